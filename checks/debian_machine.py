"""A Debian system with systemd in namespaces of its own, for checks of packages. It is no security boundary.

`Machine.boot(folder)` makes a minimal system in a folder by mmdebstrap and boots it by systemd-nspawn. It shares the
network namespace of the caller, who makes one of their own before. `Unavailable` is raised with a reason where the
system does not permit it.
"""
import os
import shutil
import signal
import subprocess
import time

SUITE = "bookworm"
# What the package depends on, and what the checks use. A machine without network access installs no more.
PACKAGES = "adduser,logrotate,systemd,systemd-sysv"
BOOT_SECONDS = 60
STOP_SECONDS = 20


class Unavailable(Exception):
    """The checks cannot run on this system; the text is the reason."""


class Failed(Exception):
    """A command in the machine failed; the text has its output."""


def make_system(folder):
    """Makes the files of a minimal system. Needs the network of the host."""
    for program in ("mmdebstrap", "systemd-nspawn", "nsenter"):
        if not shutil.which(program):
            raise Unavailable(f"{program} is not installed")
    if os.geteuid() != 0:
        raise Unavailable("only root can make and boot a system")
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", SUITE, folder]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if made.returncode != 0:
        raise Unavailable(f"mmdebstrap made no system: {made.stderr.strip()[-500:]}")


def children(process):
    """Returns the process IDs of the children of a process."""
    try:
        with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as listed:
            return [int(each) for each in listed.read().split()]
    except FileNotFoundError:
        return []


class Machine:
    """A booted system."""

    def __init__(self, folder):
        self.folder = folder
        self.log = open(folder + ".log", "w+", encoding="utf-8", errors="replace")  # pylint: disable=consider-using-with
        # Without a registration, no service of the host is needed.
        command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=pipe", "--boot", "-D", folder]
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    @classmethod
    def boot(cls, folder):
        """Boots the system in the folder, and waits until systemd has started its services."""
        machine = cls(folder)
        until = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < until:
            if machine.process.poll() is not None:
                raise Unavailable(f"systemd-nspawn ended: {machine.printed()}")
            if machine.state() in ("running", "degraded"):
                return machine
            time.sleep(0.1)
        machine.end()
        raise Unavailable(f"systemd did not start within {BOOT_SECONDS} s: {machine.printed()}")

    def printed(self):
        """Returns the last lines of the console."""
        self.log.seek(0)
        return self.log.read().strip()[-800:]

    def command(self, *arguments):
        """Returns the command that runs a command in the machine."""
        leader = children(self.process.pid)
        if not leader:
            raise Unavailable("the system has no first process")
        return ["nsenter", "--target", str(leader[0]), "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--root", "--wd",
                "--", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C",
                *arguments]

    def state(self):
        """Returns the state that systemd reports, or an empty text before it does."""
        try:
            command = self.command("systemctl", "is-system-running")
        except Unavailable:
            return ""
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip()

    def run(self, *arguments, code=0):
        """Runs a command and returns what it printed. It has to exit with this code."""
        ran = subprocess.run(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=120, check=False)
        if ran.returncode != code:
            raise Failed(f"{' '.join(arguments)} exited with {ran.returncode}: {ran.stdout.strip()}")
        return ran.stdout

    def path(self, inside):
        """Returns the path of a file of the machine on the host."""
        return os.path.join(self.folder, inside.lstrip("/"))

    def end(self):
        """Stops the machine."""
        # The signal that systemd-nspawn forwards as a request to power off.
        for stop in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(stop)
                try:
                    self.process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        self.log.close()
