#!/usr/bin/env python3
"""Orders certificates from pebble, the test server of Let's Encrypt, as `selvedge run` does.

    python3 checks/acme.py target/release/selvedge FOLDER-OF-PEBBLE

The folder has the programs `pebble` and `pebble-challtestsrv`. Pebble refuses half of all nonces. Every scenario asserts
by pebble's own log that no more certificates were ordered than needed.
"""
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SELVEDGE, PEBBLE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
WAIT_MAX = 90
# Orders of one name within a week.
BUDGET = 5


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, condition):
    end = time.monotonic() + WAIT_MAX
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError(f"timed out waiting until {what}")


class Authority:
    """Pebble with a name server that maps every name to this machine."""

    def __init__(self, folder, http_port, tls_port, validity):
        self.folder, self.ports = folder, [free_port() for _ in range(4)]
        directory, management, dns, dns_management = self.ports
        self.directory = f"https://localhost:{directory}/dir"
        self.key()
        config = {
            "listenAddress": f"127.0.0.1:{directory}",
            "managementListenAddress": f"127.0.0.1:{management}",
            "certificate": str(folder / "directory.pem"),
            "privateKey": str(folder / "directory.key"),
            "httpPort": http_port,
            "tlsPort": tls_port,
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "for tests", "validityPeriod": validity}},
        }
        (folder / "pebble.json").write_text(json.dumps({"pebble": config}))
        names = [PEBBLE / "pebble-challtestsrv", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]
        names += ["-dnsserver", f"127.0.0.1:{dns}", "-management", f"127.0.0.1:{dns_management}"]
        names += [word for kind in ("-http01", "-https01", "-tlsalpn01", "-doh") for word in (kind, "")]
        self.dns = subprocess.Popen(names, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.process = None
        self.start()

    def key(self):
        """Makes the certificate of the directory itself, and its root."""
        new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split()
        root, key = self.folder / "root.pem", self.folder / "root.key"
        sign = ["-CA", root, "-CAkey", key, "-addext", "subjectAltName=DNS:localhost"]
        sign += ["-addext", "basicConstraints=critical,CA:FALSE", "-subj", "/CN=localhost"]
        own = ["-keyout", self.folder / "directory.key", "-out", self.folder / "directory.pem"]
        for command in ([*new, "-subj", "/CN=root", "-keyout", key, "-out", root], [*new, *sign, *own]):
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    def start(self):
        environment = {**os.environ, "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "50"}
        command = [PEBBLE / "pebble", "-config", self.folder / "pebble.json", "-dnsserver", f"127.0.0.1:{self.ports[2]}"]
        with open(self.folder / "pebble.log", "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        wait_until("pebble listens", lambda: self.is_open(self.ports[0]) and self.is_open(self.ports[1]))

    @staticmethod
    def is_open(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def stop(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.stop()
        self.dns.kill()
        self.dns.wait()

    def orders(self):
        return (self.folder / "pebble.log").read_text().count("orders in the db")

    def root(self):
        context = ssl.create_default_context(cafile=self.folder / "root.pem")
        with socket.create_connection(("127.0.0.1", self.ports[1])) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as tls:
                tls.sendall(b"GET /roots/0 HTTP/1.0\r\nHost: localhost\r\n\r\n")
                text = b"".join(iter(lambda: tls.recv(65536), b""))
        return text.split(b"\r\n\r\n", 1)[1].decode()


class Server:
    """`selvedge run` with a site for each name."""

    def __init__(self, folder, ports, acme, names, certificates="certificates"):
        self.folder, (self.http, self.https) = folder, ports
        (folder / "root").mkdir(exist_ok=True)
        (folder / "root/index.html").write_text("secure\n")
        sites = "\n".join(f'site "{name}" {{ root "root"; }}' for name in names)
        (folder / "selvedge.kdl").write_text(
            f'listen "127.0.0.1:{self.http}"\nlisten "127.0.0.1:{self.https}" tls=#true\nworkers 1\n'
            f'certificate-folder "{certificates}"\nlog {{ access "off"; error "error.log" level="info"; }}\n'
            f"acme {{ {acme} reach-check #false; }}\n{sites}\n"
        )
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [SELVEDGE, "run", self.folder / "selvedge.kdl"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def status(self):
        command = [SELVEDGE, "certificates", "--json", self.folder / "selvedge.kdl"]
        result = subprocess.run(command, capture_output=True, text=True)
        return {entry["name"]: entry for entry in json.loads(result.stdout)} if result.returncode == 0 else {}

    def has_certificate(self, name):
        return self.status().get(name, {}).get("expires")

    def children(self):
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(word) for task in tasks for word in task.read_text().split()]

    def kill(self):
        for child in self.children():
            os.kill(child, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=WAIT_MAX)

    def get(self, name, roots):
        """Fetches the page over TLS. Returns the serial number of the certificate."""
        context = ssl.create_default_context(cadata=roots)
        with socket.create_connection(("127.0.0.1", self.https), timeout=10) as plain:
            with context.wrap_socket(plain, server_hostname=name) as tls:
                tls.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                text = b"".join(iter(lambda: tls.recv(65536), b""))
                assert text.startswith(b"HTTP/1.1 200 ") and text.endswith(b"secure\n"), text
                return tls.getpeercert()["serialNumber"]


class Scenario:
    """A certificate authority, and servers whose folders end with it."""

    def __init__(self, validity=90 * 86400):
        self.folder = Path(tempfile.mkdtemp(prefix="selvedge-acme-"))
        self.ports = free_port(), free_port()
        self.authority = Authority(self.folder, *self.ports, validity)
        self.servers = []

    def acme(self, more=""):
        return f'directory "{self.authority.directory}"; ca "{self.folder}/root.pem"; {more}'

    def server(self, names, more="", name="server", ports=None, certificates="certificates"):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        server = Server(folder, ports or self.ports, self.acme(more), names, certificates)
        self.servers.append(server)
        return server

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for server in self.servers:
            if server.process.poll() is None:
                server.kill()
        self.authority.end()
        if kind:
            for log in [*self.folder.glob("*/error.log"), self.folder / "pebble.log"]:
                print(f"--- {log}\n{log.read_text()[-3000:]}")
        shutil.rmtree(self.folder)


def issues():
    for challenge in ("http-01", "tls-alpn-01"):
        with Scenario() as scenario:
            names = ["a.example.com", "b.example.com"]
            server = scenario.server(names, f'challenge "{challenge}";')
            for name in names:
                wait_until(f"{name} has a certificate", lambda: server.has_certificate(name))
                server.get(name, scenario.authority.root())
            assert scenario.authority.orders() == 2, scenario.authority.orders()
            # The next start uses what is stored.
            server.stop()
            scenario.authority.stop()
            server.start()
            wait_until("the server runs", server.status)
            assert server.has_certificate("a.example.com"), "a server with a certificate needs no certificate authority"


def renews_under_load():
    with Scenario(validity=45) as scenario:
        server = scenario.server(["a.example.com"])
        wait_until("a certificate is there", lambda: server.has_certificate("a.example.com"))
        roots, serials, failures, ended = scenario.authority.root(), set(), [], threading.Event()

        def load():
            while not ended.is_set():
                try:
                    serials.add(server.get("a.example.com", roots))
                except Exception as error:
                    failures.append(error)

        threads = [threading.Thread(target=load) for _ in range(4)]
        [thread.start() for thread in threads]
        try:
            wait_until("the certificate is renewed", lambda: len(serials) > 1 or failures)
        finally:
            ended.set()
            [thread.join() for thread in threads]
        assert not failures, failures[:3]


def waits_for_an_authority_that_is_down():
    with Scenario() as scenario:
        scenario.authority.stop()
        server = scenario.server(["a.example.com"])
        error = wait_until("the failure is reported", lambda: server.status().get("a.example.com", {}).get("last_error"))
        assert "onnect" in error, error
        # The other directory is tried if the first is down.
        scenario.authority.start()
        dead = f"https://localhost:{free_port()}/dir"
        both = scenario.server(["b.example.com"], name="both", ports=(free_port(), free_port()))
        both.kill()
        text = (both.folder / "selvedge.kdl").read_text()
        text = text.replace('directory "', f'directory "{dead}" "').replace(str(both.http), str(scenario.ports[0]))
        server.stop()
        (both.folder / "selvedge.kdl").write_text(text)
        both.start()
        wait_until("the second directory is used", lambda: both.has_certificate("b.example.com"))


def kills_never_exceed_the_budget():
    with Scenario() as scenario:
        server = scenario.server(["a.example.com"])
        for step in range(12):
            time.sleep(0.15 * (step % 6))
            server.kill()
            server.start()
        time.sleep(3)
        orders = scenario.authority.orders()
        assert orders <= BUDGET, f"{orders} orders"


def two_servers_on_one_folder_order_once():
    with Scenario() as scenario:
        shared = scenario.folder / "shared"
        first = scenario.server(["a.example.com"], name="first", certificates=shared)
        second = scenario.server(["a.example.com"], name="second", ports=(free_port(), free_port()), certificates=shared)
        for server in (first, second):
            wait_until("both have the certificate", lambda: server.has_certificate("a.example.com"))
        roots = scenario.authority.root()
        serials = {server.get("a.example.com", roots) for server in (first, second)}
        orders = scenario.authority.orders()
        assert len(serials) == 1 and orders == 1, (serials, orders)


def an_account_that_is_lost_is_created_again():
    with Scenario() as scenario:
        server = scenario.server(["a.example.com"])
        wait_until("a certificate is there", lambda: server.has_certificate("a.example.com"))
        server.stop()
        # Pebble forgets everything at a restart.
        scenario.authority.stop()
        scenario.authority.start()
        (server.folder / "certificates/a.example.com.pem").unlink()
        server.start()
        wait_until("the loss is noticed", lambda: server.status().get("a.example.com", {}).get("last_error"))
        server.stop()
        (server.folder / "certificates/journal").unlink()
        server.start()
        wait_until("another certificate is there", lambda: server.has_certificate("a.example.com"))


def main():
    scenarios = [
        issues,
        renews_under_load,
        waits_for_an_authority_that_is_down,
        kills_never_exceed_the_budget,
        two_servers_on_one_folder_order_once,
        an_account_that_is_lost_is_created_again,
    ]
    for scenario in scenarios:
        began = time.monotonic()
        scenario()
        print(f"{scenario.__name__}: passed in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
