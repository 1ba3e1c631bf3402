"""Starts a check again with a Python that has packages from their registry, which are installed on first use."""
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from clients import TARGET, run


def run_with(folder, packages, modules):
    """Returns if this Python is the one in this folder of the target. Otherwise that Python replaces this process."""
    folder = Path(TARGET) / folder
    program = folder / "bin/python"
    if Path(sys.prefix).resolve() == folder.resolve():
        return
    folder.mkdir(parents=True, exist_ok=True)
    # Several checks may start at once.
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            run(sys.executable, "-m", "venv", folder)
        if subprocess.run([program, "-c", "import " + ", ".join(modules)], stderr=subprocess.DEVNULL).returncode:
            subprocess.run([program, "-m", "pip", "install", "--quiet", *packages], check=True)
    os.execv(program, [program, *sys.argv])
