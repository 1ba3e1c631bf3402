#!/usr/bin/env python3
"""Installs, uses, upgrades, removes and purges the Debian package on a minimal Debian system with systemd.

    packages.py EARLIER.deb LATER.deb [--rpm FILE.rpm]

Both packages are of one program, with different release numbers. The check asserts that

- lintian and, for the RPM, rpmlint report no error;
- the installed service starts by its unit, serves the welcome page, and rotates its logs;
- three commands serve a site by TLS with a certificate of the server's own authority;
- the upgrade replaces the serving process and loses no request of clients that send requests all the time;
- a configuration without a control socket can be reloaded and restarted, and an upgrade leaves a stopped service stopped;
- the removal stops the server, and a purge leaves none of its files;
- the RPM can be installed and removed.

The system is in namespaces of its own and is removed at the end. Without root, or where systemd-nspawn cannot boot a
system, that part is skipped with the reason. Exit status 1 if a check fails.
"""
import argparse
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from debian_machine import Failed, Machine, Unavailable, make_system

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = 6
# Files that every installation of any package changes.
CHANGED = ("/var/lib/dpkg", "/var/lib/apt", "/var/lib/systemd/deb-systemd-helper-", "/var/cache", "/var/log/apt", "/var/log/dpkg",
           "/var/log/alternatives", "/var/log/journal", "/var/log/lastlog", "/var/log/wtmp", "/var/log/btmp", "/var/log/faillog",
           "/var/lib/systemd", "/var/lib/logrotate", "/var/tmp", "/tmp", "/run", "/proc", "/sys", "/dev", "/root")
ACCOUNTS = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow")
# What docs/packages.md appends to the configuration.
SITE = 'listen "[::]:443"\nsite "localhost" { root "/usr/share/selvedge/welcome"; }\n'
# A configuration like that of README, which names no control socket.
PLAIN = 'listen "0.0.0.0:80"\nsite "*" { root "/usr/share/selvedge/welcome"; }\n'


def expect(holds, text):
    """Raises if something does not hold."""
    if not holds:
        raise Failed(text)


class Load:
    """Clients that send requests all the time: half of them each over a new connection, the others over open ones."""

    def __init__(self):
        self.over, self.lock = threading.Event(), threading.Lock()
        self.succeeded, self.failures = 0, []
        self.threads = [threading.Thread(target=self.send_requests, args=(number % 2 == 0,)) for number in range(CLIENTS)]

    def send_requests(self, keeps_open):
        connection = None
        while not self.over.is_set():
            connection = connection or http.client.HTTPConnection("127.0.0.1", 80, timeout=30)
            try:
                connection.request("GET", "/")
                response = connection.getresponse()
                content = response.read()
                with self.lock:
                    if response.status == 200 and b"Selvedge is installed" in content:
                        self.succeeded += 1
                    else:
                        self.failures.append(f"status {response.status}")
            except (OSError, http.client.HTTPException) as error:
                with self.lock:
                    self.failures.append(repr(error))
                connection.close()
            if not keeps_open or response.will_close:
                connection.close()
                connection = None

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


def get(port=80, context=None):
    """Returns the status and the content of a response."""
    if context:
        connection = http.client.HTTPSConnection("localhost", port, timeout=20, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/")
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, content


def files(machine):
    """Returns the paths of all files and folders, without those that each installation changes."""
    found = ("/" + str(path.relative_to(machine.folder)) for path in Path(machine.folder).rglob("*"))
    return {path for path in found if not path.startswith(CHANGED)}


def status(machine, name):
    """Returns a value of `selvedge status --json`."""
    return json.loads(machine.run("selvedge", "status", "--json"))[name]


def wait_for_port(port):
    """Waits until a connection is accepted."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise Failed(f"no connection to port {port} is accepted within 20 s")


def check_installation(machine, package):
    """Installs the package, and looks at the service, its user, its logs, the manual and the completions."""
    shutil.copy(package, machine.path("/root/earlier.deb"))
    print(machine.run("apt-get", "install", "-y", "-qq", "/root/earlier.deb").strip().splitlines()[-1])
    wait_for_port(80)
    expect(get() == (200, open(machine.path("/usr/share/selvedge/welcome/index.html"), "rb").read()), "no welcome page")
    expect(machine.run("systemctl", "is-active", "selvedge").strip() == "active", "the unit is not active")
    expect(machine.run("systemctl", "is-enabled", "selvedge").strip() == "enabled", "the unit is not enabled")
    main = machine.run("systemctl", "show", "--property=User,NRestarts,StatusText", "selvedge")
    expect("User=selvedge" in main and "NRestarts=0" in main, main)
    process = machine.run("systemctl", "show", "--property=MainPID", "--value", "selvedge").strip()
    facts = machine.run("cat", f"/proc/{process}/status")
    # Bit 10 is CAP_NET_BIND_SERVICE.
    expect("CapBnd:\t0000000000000400" in facts and "Uid:\t0\t" not in facts, "the process has privileges:\n" + facts)
    for path in ("/usr/share/man/man1/selvedge.1.gz", "/usr/share/man/man1/selvedge-reload.1.gz",
                 "/usr/share/bash-completion/completions/selvedge", "/usr/share/zsh/vendor-completions/_selvedge",
                 "/usr/share/fish/vendor_completions.d/selvedge.fish", "/usr/share/doc/selvedge/copyright"):
        expect(os.path.exists(machine.path(path)), f"{path} is missing")
    expect(machine.run("selvedge", "check").strip() != "", "`selvedge check` prints nothing")
    print("installed: the unit is active with one capability, and serves the welcome page")


def check_rotation(machine):
    """Rotates the logs, and looks whether the next request is in the new file."""
    log = machine.path("/var/log/selvedge/access.log")

    def wait_for_lines():
        until = time.monotonic() + 10
        while not (os.path.exists(log) and os.path.getsize(log)):
            expect(time.monotonic() < until, "no line in the access log within 10 s")
            time.sleep(0.05)

    wait_for_lines()
    machine.run("logrotate", "--force", "/etc/logrotate.d/selvedge")
    get()
    wait_for_lines()
    expect(os.path.exists(log + ".1"), "the earlier log is missing")
    print("logrotate: lines of later requests are in the new file")


def check_site_by_tls(machine):
    """Serves a site by TLS as docs/packages.md does, and then restores the configuration."""
    expect(SITE.encode("unicode_escape").decode() in (ROOT / "docs/packages.md").read_text(), "docs/packages.md has another site")
    configuration = Path(machine.path("/etc/selvedge/selvedge.kdl"))
    before = configuration.read_text(encoding="utf-8")
    with configuration.open("a", encoding="utf-8") as file:
        file.write(SITE)
    machine.run("systemctl", "reload", "selvedge")
    wait_for_port(443)
    authority = machine.path("/var/lib/selvedge/certificates/local-authority.pem")
    status_code, page = get(443, ssl.create_default_context(cafile=authority))
    expect(status_code == 200 and b"Selvedge is installed" in page, "no site by TLS")
    configuration.write_text(before, encoding="utf-8")
    machine.run("selvedge", "check")
    machine.run("selvedge", "reload")
    print("three commands: https://localhost/ has a certificate of the server's own authority")


def check_upgrade(machine, package):
    """Upgrades the package under load."""
    shutil.copy(package, machine.path("/root/later.deb"))
    process = status(machine, "process_id")
    with Load() as load:
        time.sleep(1)
        machine.run("apt-get", "install", "-y", "-qq", "/root/later.deb")
        time.sleep(3)
    expect(not load.failures, f"{len(load.failures)} requests failed, the first: {load.failures[:3]}")
    expect(load.succeeded > 100, f"only {load.succeeded} requests")
    expect(status(machine, "replacements") == 1, "the serving process was not replaced")
    expect(status(machine, "process_id") != process, "the serving process stayed")
    print(f"upgraded under load: {load.succeeded} requests succeeded, none failed; the serving process was replaced")


def check_plain_configuration(machine):
    """Reloads and restarts the service with a configuration that names neither a control socket nor a folder."""
    configuration = Path(machine.path("/etc/selvedge/selvedge.kdl"))
    before = configuration.read_text(encoding="utf-8")
    for text in PLAIN, before:
        configuration.write_text(text, encoding="utf-8")
        machine.run("systemctl", "reload", "selvedge")
        machine.run("systemctl", "restart", "selvedge")
        wait_for_port(80)
        expect(get()[0] == 200, "no welcome page")
        machine.run("selvedge", "status")
    print("a configuration without `control`: reloaded and restarted")


def check_crash(machine):
    """Kills the serving process, and reads its last requests, which a restart of the machine would leave."""
    get()
    machine.run("sh", "-c", f"kill -KILL {status(machine, 'process_id')}")
    folder, until = Path(machine.path("/var/lib/selvedge")), time.monotonic() + 20
    while not (dumps := list(folder.glob("selvedge-last-*.gz"))):
        expect(time.monotonic() < until, "no dump of the flight recorder within 20 s")
        time.sleep(0.05)
    last = machine.run("selvedge", "last", "--dump", f"/var/lib/selvedge/{dumps[0].name}")
    expect(" 200 " in last and "GET /" in last, f"the dump has other requests: {last}")
    wait_for_port(80)
    print("killed: a dump in /var/lib/selvedge has the last requests, and the service goes on")


def check_stopped_service(machine):
    """Upgrades the package while the operator has stopped the service."""
    machine.run("systemctl", "stop", "selvedge")
    machine.run("dpkg", "--install", "/root/later.deb")
    state = machine.run("systemctl", "show", "--property=ActiveState", "--value", "selvedge").strip()
    expect(state == "inactive", f"an upgrade has started a stopped service: {state}")
    machine.run("systemctl", "start", "selvedge")
    print("upgraded while stopped: the service stays stopped")


def check_removal(machine, before):
    """Removes and purges the package."""
    machine.run("apt-get", "remove", "-y", "-qq", "selvedge")
    with socket.socket() as probe:
        expect(probe.connect_ex(("127.0.0.1", 80)) != 0, "a removed server accepts connections")
    expect(os.path.exists(machine.path("/etc/selvedge/selvedge.kdl")), "a removal removes the configuration")
    expect(os.path.exists(machine.path("/var/log/selvedge/access.log")), "a removal removes the logs")
    expect(not os.path.exists(machine.path("/usr/bin/selvedge")), "a removal leaves the program")
    machine.run("apt-get", "purge", "-y", "-qq", "selvedge")
    # The tools that change accounts keep the earlier files.
    left = files(machine) - before - {name + "-" for name in ACCOUNTS}
    expect(not left, f"a purge leaves {sorted(left)}")
    print("removed and purged: the server has stopped, and no file is left")


def check_rpm(system, rpm):
    """Installs and removes the RPM in the files of the system. Its dependencies have other names there, and are there."""
    def run(*command):
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        expect(ran.returncode == 0, f"{' '.join(command)}: {ran.stdout}")
        return ran.stdout

    def exist(*paths):
        return [os.path.exists(system + path) for path in paths]

    paths = "/usr/bin/selvedge", "/etc/selvedge/selvedge.kdl", "/usr/lib/systemd/system/selvedge.service"
    expect(not any(exist(*paths)), "files of the earlier package are left")
    run("rpm", "--root", system, "--initdb")
    run("rpm", "--root", system, "--nodeps", "--install", rpm)
    expect(all(exist(*paths, "/var/log/selvedge", "/usr/share/man/man1/selvedge.1.gz")), "files of the RPM are missing")
    run("chroot", system, "selvedge", "check")
    run("rpm", "--root", system, "--nodeps", "--erase", "selvedge")
    expect(not any(exist(*paths)), "a removal leaves files of the RPM")
    print("rpm: installed and removed")


def check_on_machine(system, earlier, later):
    """Runs all checks that need a machine, in the network namespace of this process."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    machine = Machine.boot(system)
    try:
        before = files(machine)
        check_installation(machine, earlier)
        check_rotation(machine)
        check_site_by_tls(machine)
        check_upgrade(machine, later)
        check_plain_configuration(machine)
        check_crash(machine)
        check_stopped_service(machine)
        check_removal(machine, before)
    except (Failed, OSError):
        journal = machine.command("journalctl", "--no-pager", "--lines=40", "--unit=selvedge")
        print(subprocess.run(journal, capture_output=True, text=True, check=False).stdout)
        raise
    finally:
        machine.end()


def in_namespaces(arguments):
    """Makes a system, and runs this program again in a network namespace. Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="selvedge-debian-") as folder:
        system = os.path.join(folder, "system")
        began = time.monotonic()
        make_system(system)
        print(f"a minimal Debian system after {time.monotonic() - began:.0f} s", flush=True)
        again = [sys.executable, os.path.abspath(__file__), *arguments, "--system", system]
        return subprocess.run(["unshare", "--net", *again], check=False).returncode


def check_by_linters(deb, rpm):
    """Runs lintian and rpmlint. Both print warnings, of which none is an error."""
    commands = [["lintian", deb]]
    if rpm:
        commands.append(["rpmlint", "--config", str(ROOT / "packaging/rpm/rpmlint.toml"), rpm])
    for command in commands:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = (ran.stdout + ran.stderr).splitlines()
        errors = [line for line in lines if line.startswith("E:") or ": E: " in line]
        expect(not errors and ran.returncode == 0, "\n".join([f"{command[0]} exited with {ran.returncode}", *lines]))
        print(f"{command[0]}: no errors, {sum(': W: ' in line or line.startswith('W:') for line in lines)} warnings")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier")
    parser.add_argument("later")
    parser.add_argument("--rpm")
    parser.add_argument("--system", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if options.system:
            check_on_machine(options.system, options.earlier, options.later)
            if options.rpm:
                check_rpm(options.system, options.rpm)
            return
        check_by_linters(options.earlier, options.rpm)
        sys.exit(in_namespaces(sys.argv[1:]))
    except Unavailable as reason:
        print(f"packages on a Debian system: skipped, because {reason}")
    except Failed as failure:
        sys.exit(f"FAILED: {failure}")


if __name__ == "__main__":
    main()
