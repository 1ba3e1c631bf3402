#!/usr/bin/env python3
"""Checks the Helm chart, the manifests that it makes, and their configurations with the real program.

    chart.py HELM target/release/selvedge [--update]

The check asserts that `helm lint` has no complaint, that `helm template` prints the manifests in packaging/kubernetes/
(`--update` writes them), and that a server with the configuration of each manifest

- responds to the readiness probe without a header of the PROXY protocol;
- takes the client's address from such a header of the load balancer, and closes connections without it;
- serves TLS by a certificate in a mounted secret, and resumes sessions after a restart by mounted ticket keys;
- stops with exit code 0 on TERM.

All traffic is in a network namespace of its own. Without HELM, only the manifests are checked. Exit status 1 if a check
fails.
"""
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "packaging/helm/selvedge"
MANIFESTS = ROOT / "packaging/kubernetes"
# Without a cluster, helm assumes the version of which it was built.
SUPPORTED = ("--kube-version", "1.30.0")
BALANCER = "10.0.0.1"
CLIENT = "192.0.2.9"
READINESS = b"GET /ready HTTP/1.1\r\nHost: readiness.internal\r\nConnection: close\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"
STOP_SECONDS_MAX = 10


def expect(holds, text):
    """Ends the check if something does not hold."""
    if not holds:
        sys.exit(f"FAILED: {text}")


def helm(program, *arguments):
    """Runs helm with the chart. Returns its exit code, output and errors."""
    ran = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def check_templates(program, update):
    """Lints the chart, and compares the manifests of its defaults and of the example."""
    variants = {"selvedge": [], "behind-proxy": ["--values", str(MANIFESTS / "behind-proxy.values.yaml")]}
    for name, values in variants.items():
        code, out, err = helm(program, "lint", "--strict", str(CHART), *values)
        expect(code == 0 and "[WARNING]" not in out, f"helm lint: {out}{err}")
        code, out, err = helm(program, "template", "selvedge", str(CHART), "--namespace", "default", *SUPPORTED, *values)
        expect(code == 0, f"helm template: {err}")
        manifest = MANIFESTS / f"{name}.yaml"
        if update:
            manifest.write_text(out, encoding="utf-8")
        expect(manifest.read_text(encoding="utf-8") == out, f"{manifest} is not what the chart makes; --update writes it")
    refused = [("proxyProtocol.enabled=true", "trustedProxies"), ("proxyProtocl.enabled=true", "proxyProtocl"),
               ("certificates={a/b}", "certificates"), ("certificates={a,a}", "certificates"), ("podAnnotations.a=true", "podAnnotations"),
               ("podDisruptionBudget.maxUnavailable=abc", "maxUnavailable"), ("trustedProxies={10.0.0.0/33}", "trustedProxies")]
    for value, reason in refused:
        code, _, err = helm(program, "template", "selvedge", str(CHART), *SUPPORTED, "--set", value)
        expect(code != 0 and reason in err, f"the value {value} is accepted: {err}")
    print("chart: helm lint has no complaint, and both manifests are what the chart makes")


def configuration(manifest, folder):
    """Returns the configuration of a manifest, with its folders within a folder of this machine."""
    text = manifest.read_text(encoding="utf-8")
    found = re.search(r"^  selvedge\.kdl: \|\n((?:    .*\n|\n)+)", text, re.M)
    config = textwrap.dedent(found[1])
    for path in ("/secrets/", "/run/selvedge/", "/var/lib/selvedge/"):
        config = config.replace(f'"{path}', f'"{folder}{path}')
    # The upstream of the example, and a folder that the image has.
    config = config.replace("app.default.svc.cluster.local", "127.0.0.1")
    return config.replace('"/usr/share/selvedge/welcome"', f'"{ROOT}/packaging/welcome"')


def mount_secret(folder, files):
    """Makes a folder as the kubelet does: names are links to a folder that an update replaces by one rename."""
    version = folder / "..2026_12_01_00_00_00.1"
    version.mkdir(parents=True)
    (folder / "..data").symlink_to(version.name)
    for name, content in files.items():
        (version / name).write_bytes(content)
        (folder / name).symlink_to(f"..data/{name}")


def make_secrets(folder):
    """Makes a certificate and the ticket keys. Returns the context of a client that trusts the certificate."""
    key, chain = folder / "tls.key", folder / "tls.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=example.com", "-addext", "subjectAltName=DNS:example.com", "-keyout", key, "-out", chain],
                   check=True, capture_output=True)
    mount_secret(folder / "secrets/certificates/example-com", {path.name: path.read_bytes() for path in (key, chain)})
    mount_secret(folder / "secrets/ticket-keys", {"2026-12": os.urandom(48)})
    context = ssl.create_default_context(cafile=str(chain))
    # Tickets of TLS 1.2 arrive within the handshake, so a client cannot miss them.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def connect(port, source="127.0.0.1"):
    """Returns a connection from an address of this machine."""
    return socket.create_connection((source, port), 20, (source, 0))


def read_all(connection):
    """Returns what the server sends until it closes the connection."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def exchange(port, content, source="127.0.0.1"):
    """Sends bytes and returns the response."""
    with connect(port, source) as connection:
        connection.sendall(content)
        return read_all(connection)


def balanced(port):
    """Returns the header that the load balancer sends first."""
    return f"PROXY TCP4 {CLIENT} {BALANCER} 40000 {port}\r\n".encode()


def serve_upstream():
    """Starts an upstream that responds with the field X-Forwarded-For of the request."""
    listener = socket.create_server(("127.0.0.1", 3000))

    def respond(connection):
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(65536)
                if not piece:
                    return
                head += piece
            found = re.search(rb"(?im)^x-forwarded-for: *([^\r]*)", head)
            content = found[1] if found else b"none"
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))

    def accept():
        while True:
            threading.Thread(target=respond, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


class Server:
    """A server with the configuration of a manifest."""

    def __init__(self, program, file):
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            [program, "run", file], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        until = time.monotonic() + 20
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                sys.exit(f"FAILED: the server does not start: {self.process.stderr.read().decode()}")
            time.sleep(0.05)

    @staticmethod
    def is_ready():
        """Sends the readiness probe."""
        try:
            response = exchange(8081, READINESS)
        except ConnectionRefusedError:
            return False
        return response.startswith(b"HTTP/1.1 200 ") and response.endswith(b"ready")

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        """Stops the server by TERM. After a failure, kills it: then its serving process ends by itself."""
        if failure:
            self.process.kill()
            return
        self.process.terminate()
        code = self.process.wait(STOP_SECONDS_MAX)
        expect(code == 0, f"the exit code is {code}: {self.process.stderr.read().decode()}")


def check_by_tls(context, session=None):
    """Sends a request by TLS behind the load balancer. Returns the session and whether it was resumed."""
    with connect(443, BALANCER) as plain:
        plain.sendall(balanced(443))
        with context.wrap_socket(plain, server_hostname="example.com", session=session) as connection:
            connection.sendall(REQUEST)
            response = read_all(connection)
            expect(response.endswith(CLIENT.encode()), f"the client behind the load balancer, by TLS: {response}")
            return connection.session, connection.session_reused


def check_servers(program, folder):
    """Runs the configuration of both manifests."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", BALANCER + "/32", "dev", "lo"], check=True)
    for name in ("run/selvedge", "var/lib/selvedge"):
        (folder / name).mkdir(parents=True)
    context = make_secrets(folder)
    serve_upstream()
    file = folder / "selvedge.kdl"

    file.write_text(configuration(MANIFESTS / "selvedge.yaml", folder), encoding="utf-8")
    with Server(program, file):
        response = exchange(80, REQUEST)
        expect(response.startswith(b"HTTP/1.1 200 ") and b"Selvedge is installed" in response, f"the welcome page: {response}")
    print("selvedge.yaml: ready, serves the welcome page, and ends on TERM")

    file.write_text(configuration(MANIFESTS / "behind-proxy.yaml", folder), encoding="utf-8")
    with Server(program, file):
        response = exchange(80, balanced(80) + REQUEST, BALANCER)
        expect(b"\r\nlocation: https://example.com/" in response.lower(), f"plain HTTP is not redirected: {response}")
        expect(exchange(80, REQUEST, BALANCER) == b"", "a connection of the load balancer without a header gets a response")
        expect(exchange(80, balanced(80) + REQUEST) == b"", "a connection of another address gets a response")
        session, resumed = check_by_tls(context)
        expect(not resumed, "the first session is resumed")
    with Server(program, file):
        expect(check_by_tls(context, session)[1], "the session is not resumed after a restart")
    print("behind-proxy.yaml: the PROXY protocol names the client, TLS by a secret, sessions outlive a restart")


def main():
    program, selvedge = sys.argv[1], os.path.abspath(sys.argv[2])
    if "--within" in sys.argv:
        with tempfile.TemporaryDirectory(prefix="selvedge-chart-") as folder:
            check_servers(selvedge, Path(folder))
        return
    if shutil.which(program):
        check_templates(program, "--update" in sys.argv)
    else:
        print(f"chart: `helm lint` and `helm template` are skipped, because {program} does not exist")
    again = [sys.executable, os.path.abspath(__file__), program, selvedge, "--within"]
    sys.exit(subprocess.run(["unshare", "--map-root-user", "--net", *again], check=False).returncode)


if __name__ == "__main__":
    main()
