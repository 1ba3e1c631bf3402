#!/usr/bin/env python3
"""Orders certificates from pebble, the test server of Let's Encrypt, as `selvedge run` does.

    python3 checks/acme.py target/release/selvedge FOLDER-OF-PEBBLE [SCENARIO ...]

The folder has the programs `pebble` and `pebble-challtestsrv`. Pebble refuses half of all nonces. Every scenario asserts
by pebble's own log that no more certificates were ordered than needed.
"""
import email.utils
import http.client
import http.server
import json
import multiprocessing
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
import urllib.request
from pathlib import Path

SELVEDGE, PEBBLE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
WAIT_MAX = 90
# Orders of one name within a week.
BUDGET = 5


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_until(what, condition):
    end = time.monotonic() + WAIT_MAX
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError(f"timed out waiting until {what}")


def has_ended(process):
    try:
        # The state follows the name, which may contain spaces.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Authority:
    """Pebble with a name server that maps every name to this machine."""

    def __init__(self, folder, http_port, tls_port, validity, external_keys, dns):
        self.folder, self.ports = folder, [free_port(), free_port(), dns or free_port(), free_port()]
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
            "externalAccountBindingRequired": bool(external_keys),
            "externalAccountMACKeys": external_keys,
        }
        (folder / "pebble.json").write_text(json.dumps({"pebble": config}))
        names = [PEBBLE / "pebble-challtestsrv", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]
        names += ["-dnsserver", f"127.0.0.1:{dns}", "-management", f"127.0.0.1:{dns_management}"]
        names += [word for kind in ("-http01", "-https01", "-tlsalpn01", "-doh") for word in (kind, "")]
        self.dns = subprocess.Popen(names, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # A server that finds no record because the name server does not respond waits a minute before it looks again.
        wait_until("the name server listens", lambda: all(self.is_open(port) for port in self.ports[2:]))
        self.process = None
        self.start()

    def key(self):
        """Makes the certificate of the directory itself, and its root."""
        new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 400".split()
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

    def set_record(self, path, **fields):
        """Changes what the name server knows."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[3]}/{path}", data=json.dumps(fields).encode())

        def is_set():
            try:
                return urllib.request.urlopen(request).status == 200
            except ConnectionError:
                # It closes connections without a response on a busy machine.
                return False

        wait_until("the name server has the record", is_set)

    def manage(self, path, **fields):
        """Sends a request to pebble's management port."""
        context = ssl.create_default_context(cafile=self.folder / "root.pem")
        url = f"https://localhost:{self.ports[1]}/{path}"
        urllib.request.urlopen(urllib.request.Request(url, data=json.dumps(fields).encode()), context=context).read()

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

    configuration = "selvedge.kdl"

    def __init__(self, folder, ports, acme, names, certificates="certificates", reach_check="#false", listen="127.0.0.1", site=""):
        self.folder, (self.http, self.https) = folder, ports
        (folder / "root").mkdir(exist_ok=True)
        (folder / "root/index.html").write_text("secure\n")
        sites = "\n".join(f'site "{name}" {{ root "root"; {site} }}' for name in names)
        (folder / "selvedge.kdl").write_text(
            f'listen "{listen}:{self.http}"\nlisten "{listen}:{self.https}" tls=#true\nworkers 1\n'
            f'certificate-folder "{certificates}"\nlog {{ access "off"; error "error.log" level="info"; }}\n'
            f"acme {{ {acme} reach-check {reach_check}; }}\n{sites}\n"
        )
        self.process = None
        self.start()

    def start(self, environment=None):
        self.process = subprocess.Popen(
            [SELVEDGE, "run", self.folder / "selvedge.kdl"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )

    def status(self):
        command = [SELVEDGE, "certificates", "--json", self.folder / self.configuration]
        result = subprocess.run(command, capture_output=True, text=True)
        return {entry["name"]: entry for entry in json.loads(result.stdout)} if result.returncode == 0 else {}

    def has_certificate(self, name):
        return self.status().get(name, {}).get("expires")

    def children(self):
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(word) for task in tasks for word in task.read_text().split()]

    def kill(self):
        children = self.children()
        for child in children:
            os.kill(child, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        # Until it has ended, a killed process accepts connections.
        wait_until("the killed processes have ended", lambda: all(has_ended(child) for child in children))
        # The system releases the sockets of an io_uring after the end of its process.
        wait_until("the ports are free", lambda: is_free(self.http) and is_free(self.https))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=WAIT_MAX)

    def error(self, name):
        return self.status().get(name, {}).get("last_error") or ""

    def responds(self, name, roots):
        try:
            return bool(self.get(name, roots))
        except OSError:
            return False

    def get(self, name, roots, address="127.0.0.1"):
        """Fetches the page over TLS. Returns the serial number of the certificate."""
        context = ssl.create_default_context(cadata=roots)
        with socket.create_connection((address, self.https), timeout=10) as plain:
            with context.wrap_socket(plain, server_hostname=name) as tls:
                tls.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                text = b"".join(iter(lambda: tls.recv(65536), b""))
                assert text.startswith(b"HTTP/1.1 200 ") and text.endswith(b"secure\n"), text
                return tls.getpeercert()["serialNumber"]


class DomainServer(Server):
    """`selvedge serve --domain`, which writes its configuration to a folder."""

    configuration = "serve.kdl"

    def __init__(self, folder, command, environment):
        self.folder, self.http, self.https = folder, 80, 443
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


class Load:
    """1,000 requests a second over TLS, every tenth on a new connection, from processes of their own."""

    processes, rate, requests_per_connection = 4, 1000, 10

    def __init__(self, port, name, roots):
        # The serial numbers of certificates with the time at which each was first seen, failures, and counts.
        context = multiprocessing.get_context("fork")
        self.seen, self.ended = context.SimpleQueue(), context.Event()
        self.serials, self.failures, self.count = {}, [], 0
        self.clients = [context.Process(target=self.run, args=(port, name, roots)) for _ in range(self.processes)]
        self.began = time.monotonic()
        [client.start() for client in self.clients]

    def run(self, port, name, roots):
        context, known, count = ssl.create_default_context(cadata=roots), set(), 0
        while not self.ended.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
                    with context.wrap_socket(plain, server_hostname=name) as tls:
                        serial = tls.getpeercert()["serialNumber"]
                        if serial not in known:
                            known.add(serial)
                            self.seen.put((serial, time.time()))
                        for number in range(self.requests_per_connection):
                            due = self.began + count * self.processes / self.rate
                            time.sleep(max(0, due - time.monotonic()))
                            self.request(tls, name, number + 1 == self.requests_per_connection)
                            count += 1
            except Exception as error:
                self.seen.put((None, repr(error)))
        self.seen.put((None, count))

    @staticmethod
    def request(tls, name, is_last):
        persistence = "close" if is_last else "keep-alive"
        tls.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: {persistence}\r\n\r\n".encode())
        text = b""
        while not text.endswith(b"secure\n"):
            received = tls.recv(65536)
            assert received, f"the connection ends after {text}"
            text += received
        assert text.startswith(b"HTTP/1.1 200 "), text

    def collect(self):
        """Returns the serial numbers that were seen."""
        while not self.seen.empty():
            serial, value = self.seen.get()
            if serial:
                self.serials[serial] = min(value, self.serials.get(serial, value))
            elif isinstance(value, int):
                self.count += value
            else:
                self.failures.append(value)
        assert not self.failures, self.failures[:3]
        return self.serials

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.ended.set()
        [client.join() for client in self.clients]
        if not kind:
            self.collect()
            seconds = time.monotonic() - self.began
            print(f"{self.count} requests, {self.count / seconds:.0f} a second, none failed")


class Scenario:
    """A certificate authority, and servers whose folders end with it."""

    def __init__(self, validity=90 * 86400, external_keys=None, ports=None, dns=None):
        self.folder = Path(tempfile.mkdtemp(prefix="selvedge-acme-"))
        self.ports = ports or (free_port(), free_port())
        self.authority = Authority(self.folder, *self.ports, validity, external_keys or {}, dns)
        self.servers = []

    def acme(self, more=""):
        return f'directory "{self.authority.directory}"; ca "{self.folder}/root.pem"; {more}'

    def server(self, names, more="", name="server", ports=None, certificates="certificates", reach_check="#false"):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        server = Server(folder, ports or self.ports, self.acme(more), names, certificates, reach_check)
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
        with Load(server.https, "a.example.com", scenario.authority.root()) as load:
            wait_until("the certificate is renewed", lambda: len(load.collect()) > 1)
            # Connections that began before the renewal go on.
            time.sleep(1)


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


def a_clock_that_is_40_days_ahead_stays_within_the_budget():
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    assert library, "libfaketime is not installed"
    ahead = {"LD_PRELOAD": str(library), "FAKETIME": "+40d", "DONT_FAKE_MONOTONIC": "1"}
    with Scenario(validity=45 * 86400) as scenario:
        server = scenario.server(["a.example.com"])
        wait_until("a certificate is there", lambda: server.has_certificate("a.example.com"))
        roots = scenario.authority.root()
        serials = {server.get("a.example.com", roots)}
        server.stop()
        server.start(ahead)
        wait_until("the server runs", lambda: Authority.is_open(server.https))
        # The clock of pebble is right, so each new certificate has to be renewed at once.
        wait_until("the wrong clock is reported", lambda: "heck the clock" in server.error("a.example.com"))
        server.kill()
        server.start(ahead)
        wait_until("the server responds", lambda: server.responds("a.example.com", roots))
        began = time.monotonic()
        # Certificates are looked at every 10 s.
        while time.monotonic() < began + 22:
            serials.add(server.get("a.example.com", roots))
            time.sleep(0.05)
        assert len(serials) == 2 and scenario.authority.orders() == 2, (serials, scenario.authority.orders())
        # With the right clock, nothing is ordered, and the events of the future delay no order.
        server.stop()
        server.start()
        wait_until("the server has its certificate", lambda: server.has_certificate("a.example.com"))
        (server.folder / "certificates/a.example.com.pem").unlink()
        server.kill()
        server.start()
        wait_until("a certificate is ordered", lambda: server.has_certificate("a.example.com"))
        assert scenario.authority.orders() == 3, scenario.authority.orders()


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


HOOK = """#!/usr/bin/env python3
import json, os, sys, urllib.request
assert set(os.environ) <= {"PATH", "LC_CTYPE"}, os.environ
command, name, value = sys.argv[1:]
with open("FOLDER/hook.log", "a") as log:
    log.write(f"{command} {name} {os.getuid()}\\n")
path, fields = ("set-txt", {"value": value}) if command == "set" else ("clear-txt", {})
data = json.dumps({"host": name + ".", **fields}).encode()
urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:PORT/" + path, data=data)).read()
"""


def wildcards_are_validated_by_a_hook():
    with Scenario() as scenario:
        folder, dns = scenario.folder, scenario.authority.ports
        # The program has its own user, who may write the log only.
        user = "daemon" if os.getuid() == 0 else ""
        folder.chmod(0o755)
        (folder / "hook.log").touch()
        (folder / "hook.log").chmod(0o666)
        hook = folder / "hook"
        hook.write_text(HOOK.replace("FOLDER", str(folder)).replace("PORT", str(dns[3])))
        hook.chmod(0o755)
        run_as = f'user="{user}"' if user else ""
        more = f'challenge "dns-01"; dns-hook "{hook}" {run_as}; name-server "127.0.0.1:{dns[2]}";'
        server = scenario.server(["*.example.com"], more, reach_check="#true")
        wait_until("the wildcard has a certificate", lambda: server.has_certificate("*.example.com"))
        server.get("a.example.com", scenario.authority.root())
        name = "_acme-challenge.example.com"
        lines = wait_until("the record is removed", lambda: (log := (folder / "hook.log").read_text().split("\n"))[2:] and log)
        expected = 1 if user else os.getuid()
        assert lines[:2] == [f"set {name} {expected}", f"clear {name} {expected}"], lines


def a_record_that_is_set_once_is_enough():
    with Scenario() as scenario:
        name_server = f'name-server "127.0.0.1:{scenario.authority.ports[2]}";'
        server = scenario.server(
            ["*.example.com", "b.example.com"], f'challenge "dns-persist-01"; {name_server}', reach_check="#true"
        )
        wait_until("the missing record is reported", lambda: "is missing" in server.error("*.example.com"))
        assert scenario.authority.orders() == 0, "nothing is ordered before the record exists"
        for name in ("*.example.com", "b.example.com"):
            record = wait_until("the record is printed", lambda: server.status()[name]["record"])
            host, value = record.split(" IN TXT ")
            scenario.authority.set_record("set-txt", host=host, value=value.strip('"'))
        command = [SELVEDGE, "reload", server.folder / "selvedge.kdl"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for name in ("*.example.com", "b.example.com"):
            wait_until(f"{name} has a certificate", lambda: server.has_certificate(name))
        assert scenario.authority.orders() == 2, scenario.authority.orders()


def names_that_forbid_a_certificate_are_not_ordered():
    with Scenario() as scenario:
        policies = [{"tag": "issue", "value": "other.example"}]
        scenario.authority.set_record("add-caa", host="example.com.", policies=policies)
        name_server = f'name-server "127.0.0.1:{scenario.authority.ports[2]}";'
        server = scenario.server(["*.example.com"], f'challenge "dns-persist-01"; {name_server}', reach_check="#true")
        record = wait_until("the record is printed", lambda: server.status().get("*.example.com", {}).get("record"))
        host, value = record.split(" IN TXT ")
        scenario.authority.set_record("set-txt", host=host, value=value.strip('"'))
        wait_until("the CAA record is reported", lambda: "CAA record of example.com" in server.error("*.example.com"))
        assert scenario.authority.orders() == 0, scenario.authority.orders()


def external_accounts_are_bound():
    key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
    with Scenario(external_keys={"kid-1": key}) as scenario:
        (scenario.folder / "external.key").write_text(key + "\n")
        more = f'external-account "kid-1" file="{scenario.folder}/external.key";'
        server = scenario.server(["a.example.com"], more)
        wait_until("a certificate is there", lambda: server.has_certificate("a.example.com"))
        without = scenario.server(["b.example.com"], name="without", ports=(free_port(), free_port()))
        wait_until("the binding is missed", lambda: "xternal" in without.error("b.example.com"))


def the_authority_decides_when_to_renew():
    with Scenario() as scenario:
        server = scenario.server(["a.example.com"])
        wait_until("a certificate is there", lambda: server.has_certificate("a.example.com"))
        roots = scenario.authority.root()
        first = server.get("a.example.com", roots)
        server.stop()
        pem = (server.folder / "certificates/a.example.com.pem").read_text()
        certificate = pem[pem.index("-----BEGIN CERTIFICATE") :]
        window = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}
        response = json.dumps({"suggestedWindow": window})
        scenario.authority.manage("set-renewal-info/", certificate=certificate, ariResponse=response)
        server.start()

        def is_renewed():
            try:
                return server.get("a.example.com", roots) != first
            except OSError:
                return False

        wait_until("the certificate is renewed", is_renewed)
        time.sleep(1)
        assert scenario.authority.orders() == 2, "the new certificate has a window of its own"
        journal = (server.folder / "certificates/journal").read_text()
        assert journal.count("ordered") == 2, journal


class Limiter(http.server.BaseHTTPRequestHandler):
    """Refuses orders as an authority with a limit does, and forwards other requests."""

    retry_after, refused, target = "", [], None

    def forward(self):
        length = int(self.headers.get("Content-Length", 0))
        content = self.rfile.read(length)
        if self.path.startswith("/order"):
            self.refused.append(time.time())
            problem = {"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many orders"}
            self.reply(429, {"Retry-After": self.retry_after, "Content-Type": "application/problem+json"}, problem)
            return
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("localhost", self.target, context=context)
        connection.request(self.command, self.path, content, dict(self.headers))
        response = connection.getresponse()
        text = response.read()
        kept = {name: value for name, value in response.getheaders() if name not in ("Content-Length", "Date")}
        self.reply(response.status, kept, text)

    do_GET = do_POST = do_HEAD = forward

    def reply(self, status, fields, content):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def limits_of_the_authority_are_obeyed():
    for of_time in (lambda at: str(round(at - time.time())), lambda at: email.utils.formatdate(at, usegmt=True)):
        with Scenario() as scenario:
            at = time.time() + 7200
            Limiter.retry_after, Limiter.refused, Limiter.target = of_time(at), [], scenario.authority.ports[0]
            limiter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Limiter)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(scenario.folder / "directory.pem", scenario.folder / "directory.key")
            limiter.socket = context.wrap_socket(limiter.socket, server_side=True)
            threading.Thread(target=limiter.serve_forever, daemon=True).start()
            scenario.authority.directory = f"https://localhost:{limiter.server_port}/dir"
            server = scenario.server(["a.example.com"])
            wait_until("the refusal is reported", lambda: "too many orders" in server.error("a.example.com"))
            next_attempt = server.status()["a.example.com"]["next_attempt"]
            assert abs(next_attempt - at) < 5, (next_attempt, at)
            server.kill()
            server.start()
            wait_until("the wait survives a restart", lambda: server.status().get("a.example.com", {}).get("next_attempt"))
            assert len(Limiter.refused) == 1, Limiter.refused
            limiter.shutdown()


def further_names_are_approved():
    class Approver(http.server.BaseHTTPRequestHandler):
        requested = []

        def do_GET(self):
            self.requested.append(self.path)
            self.send_response(200 if self.path == "/allowed?domain=a.example.com" else 403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    approver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Approver)
    threading.Thread(target=approver.serve_forever, daemon=True).start()
    with Scenario() as scenario:
        program = scenario.folder / "approve"
        program.write_text('#!/bin/sh\ntest "$1" = a.example.com\n')
        program.chmod(0o755)
        for approval in (program, f"http://127.0.0.1:{approver.server_port}/allowed"):
            folder = scenario.folder / f"by-{'url' if approval != program else 'program'}"
            folder.mkdir()
            server = Server(folder, scenario.ports, scenario.acme(), ["*"], site=f'on-demand-certificates "{approval}";')
            scenario.servers.append(server)
            wait_until("the server runs", lambda: Authority.is_open(server.https))
            roots, before = scenario.authority.root(), scenario.authority.orders()
            # The first client waits for the certificate. Clients of one moment share an order.
            clients = [threading.Thread(target=server.get, args=("a.example.com", roots)) for _ in range(5)]
            [client.start() for client in clients]
            server.get("a.example.com", roots)
            [client.join() for client in clients]
            for _ in range(3):
                try:
                    server.get("b.example.com", roots)
                    raise AssertionError("a name that is not approved has a certificate")
                except ssl.SSLError:
                    pass
            assert scenario.authority.orders() == before + 1, scenario.authority.orders()
            wait_until("the refusal is logged", lambda: "CertificateNotApproved" in (folder / "error.log").read_text())
            # After a restart, what is stored serves at once.
            scenario.authority.stop()
            server.stop()
            server.start()
            wait_until("the server runs", lambda: Authority.is_open(server.https))
            server.get("a.example.com", roots)
            server.stop()
            scenario.authority.start()

    assert sorted(set(Approver.requested)) == ["/allowed?domain=a.example.com", "/allowed?domain=b.example.com"]


ADDRESS = "203.0.113.7"


def in_own_network(name):
    """Runs a scenario in a network in which this machine has a public address and is the name server. Returns whether
    the caller is there already."""
    if os.environ.get("SELVEDGE_OWN_NETWORK"):
        return True
    if os.getuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        print(f"{name}: needs root, unshare and ip")
        return False
    resolver = Path(tempfile.mkdtemp(prefix="selvedge-resolver-")) / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n")
    set_up = f"ip link set lo up && ip address add {ADDRESS}/32 dev lo && mount --bind {resolver} /etc/resolv.conf"
    command = ["unshare", "-n", "-m", "sh", "-c", f'{set_up} && exec "$@"', "sh", sys.executable, *sys.argv[:3], name]
    environment = {**os.environ, "SELVEDGE_OWN_NETWORK": "1"}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    shutil.rmtree(resolver.parent)
    assert ended.returncode == 0, ended.stdout
    return False


def a_domain_on_the_command_line_is_a_secure_site():
    if not in_own_network("a_domain_on_the_command_line_is_a_secure_site"):
        return
    with Scenario(ports=(80, 443), dns=53) as scenario:
        folder = scenario.folder / "server"
        folder.mkdir()
        (folder / "index.html").write_text("secure\n")
        command = [SELVEDGE, "serve", folder, "--domain", "example.com", "--domain", "www.example.com"]
        command += ["--acme-directory", scenario.authority.directory, "--log", "off", "--error-log", folder / "error.log"]
        environment = {**os.environ, "XDG_DATA_HOME": folder, "SSL_CERT_FILE": scenario.folder / "root.pem"}
        server = DomainServer(folder / "selvedge", command, environment)
        scenario.servers.append(server)
        for name in ("example.com", "www.example.com"):
            wait_until("a certificate is there", lambda: server.has_certificate(name))
            server.get(name, scenario.authority.root())
        with socket.create_connection(("127.0.0.1", 80)) as plain:
            plain.sendall(b"GET /a?b HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: plain.recv(65536), b""))
        assert text.startswith(b"HTTP/1.1 308 ") and b"location: https://example.com/a?b\r\n" in text.lower(), text


def addresses_have_certificates():
    if not in_own_network("addresses_have_certificates"):
        return
    for challenge in ("http-01", "tls-alpn-01"):
        with Scenario() as scenario:
            folder = scenario.folder / "server"
            folder.mkdir()
            server = Server(folder, scenario.ports, scenario.acme(f'challenge "{challenge}";'), [ADDRESS], listen="0.0.0.0")
            scenario.servers.append(server)
            wait_until("the address has a certificate", lambda: server.has_certificate(ADDRESS))
            server.get(ADDRESS, scenario.authority.root(), ADDRESS)


def main():
    scenarios = [
        issues,
        renews_under_load,
        waits_for_an_authority_that_is_down,
        kills_never_exceed_the_budget,
        a_clock_that_is_40_days_ahead_stays_within_the_budget,
        two_servers_on_one_folder_order_once,
        an_account_that_is_lost_is_created_again,
        wildcards_are_validated_by_a_hook,
        a_record_that_is_set_once_is_enough,
        names_that_forbid_a_certificate_are_not_ordered,
        external_accounts_are_bound,
        the_authority_decides_when_to_renew,
        limits_of_the_authority_are_obeyed,
        further_names_are_approved,
        a_domain_on_the_command_line_is_a_secure_site,
        addresses_have_certificates,
    ]
    wanted = sys.argv[3:]
    for scenario in (scenario for scenario in scenarios if not wanted or scenario.__name__ in wanted):
        began = time.monotonic()
        scenario()
        print(f"{scenario.__name__}: passed in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
