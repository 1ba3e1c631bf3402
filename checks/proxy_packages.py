"""Starts a check again with a Python that has the packages of the proxy's checks, which are installed on first use."""
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from clients import TARGET, run

PACKAGES = ["hpack", "hyperframe", "websockets", "uvicorn", "gunicorn", "grpcio"]
MODULES = [*PACKAGES[:-1], "grpc"]


def run_with_packages():
    """Returns if this Python has the packages. Otherwise another process replaces this one."""
    folder = Path(TARGET) / "proxy-checks-python"
    program = folder / "bin/python"
    if Path(sys.prefix).resolve() == folder.resolve():
        return
    folder.mkdir(parents=True, exist_ok=True)
    # Several checks may start at once.
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            run(sys.executable, "-m", "venv", folder)
        if subprocess.run([program, "-c", "import " + ", ".join(MODULES)], stderr=subprocess.DEVNULL).returncode:
            subprocess.run([program, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    os.execv(program, [program, *sys.argv])
