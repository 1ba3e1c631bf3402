"""The upstreams of checks/proxy_peers.py, the proxy in front of them, and curl as its client.

Each application has the paths /hello, /echo, /events (the newest stream gets each text that is posted to /publish), /wait
(begins a response and waits until the client leaves), /left (how many clients left it) and /refuse (403, before the content
is read).
"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from clients import STEP_TIMEOUT, TARGET, free_address, run, wait_until_it_listens
from http2_server import FRAME_BYTES_MAX, Connection, Server

APPLICATIONS = Path(__file__).parent / "upstreams"
# Arguments of curl by transport, and whether it is over TLS.
TRANSPORTS = {
    "HTTP/1.1": (["--http1.1"], "plain"),
    "HTTP/1.1, TLS": (["--http1.1"], "TLS"),
    "HTTP/2": (["--http2-prior-knowledge"], "plain"),
    "HTTP/2, TLS": (["--http2"], "TLS"),
}
SHUTDOWN_SECONDS = 4
# The initial window of a stream, unless a setting changes it.
WINDOW_BYTES = 256 << 10
# More than the buffers between a client and an application.
REFUSED_BYTES = 256 << 20


class Proxy(Server):
    """A server with a route for each upstream, whose name is the first segment of a path."""

    def __init__(self, binary, driver, **upstreams):
        """Each upstream is an address, or the content of its block."""
        self.upstreams = {
            name: text if "server" in text else f'server "http://{text}"' for name, text in upstreams.items()
        }
        self.route = "proxy \"NAME\" strip-prefix=#true"
        # Lines after these routes.
        self.more = []
        super().__init__(binary, driver)

    def write_files(self):
        self.root.mkdir()
        (self.root / "hello.txt").write_text("hello\n")
        self.refused = self.sparse_file("refused", REFUSED_BYTES)

    def sparse_file(self, name, size):
        """Returns the path of a new file, which takes no room."""
        path = self.folder / name
        path.touch()
        os.truncate(path, size)
        return path

    def configure(self, version=1):
        lines = [
            f'listen "127.0.0.1:{self.tls}" tls=#true',
            f'listen "127.0.0.1:{self.plain}" http2=#true',
            'certificate-folder "certificates"',
            'log { access "access.log"; error "error.log"; }',
            f'limits {{ shutdown-timeout "{SHUTDOWN_SECONDS}s"; }}',
            *(f"upstream {name!r} {{\n{text}\n}}".replace("'", '"') for name, text in self.upstreams.items()),
            'site "localhost" "127.0.0.1" { root "root"; https-redirect #false; body-bytes-max "1TiB"',
            f'header "x-version" "{version}"',
            *(f'route "/{name}/*" {{ {self.route.replace("NAME", name)} }}' for name in self.upstreams),
            *self.more,
            "}",
        ]
        new = self.folder / "selvedge.kdl.new"
        new.write_text("\n".join(lines) + "\n")
        os.rename(new, self.configuration)

    def curl(self, transport, path, *arguments, **options):
        """Runs curl. Returns the status, the fields and the content of the response."""
        with tempfile.NamedTemporaryFile() as head:
            command = self.curl_command(transport, path, "--max-time", str(STEP_TIMEOUT), "-D", head.name, *arguments)
            ended = subprocess.run(command, capture_output=True, timeout=2 * STEP_TIMEOUT, **options)
            lines = Path(head.name).read_text().strip().split("\n\n")[-1].splitlines()
        assert ended.returncode == 0, f"{command}: {ended.stderr.decode()}"
        fields = dict((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:]))
        return int(lines[0].split()[1]), fields, ended.stdout

    def curl_command(self, transport, path, *arguments):
        version, security = TRANSPORTS[transport]
        return ["curl", "-sS", "-4", "--cacert", self.authority, *version, *arguments, self.url(security, path)]

    def refused_upload(self, transport, path, file):
        """Sends a file, of which the upstream reads nothing or not all. Returns the status."""
        version, security = TRANSPORTS[transport]
        if version == ["--http1.1"]:
            arguments = ["-T", file, "-H", "Expect:", "-o", "/dev/null", "-w", "%{size_upload}"]
            status, _, written = self.curl(transport, path, *arguments)
            assert int(written) < file.stat().st_size, f"{transport}: the whole upload was read"
            return status
        # curl before version 8 does not read the response on a stream that the server has closed.
        with Connection(self, security) as client:
            length = ("content-length", str(file.stat().st_size))
            client.send(client.head(1, client.fields(path, "POST", [length]), end=False))
            for _ in range(WINDOW_BYTES // FRAME_BYTES_MAX):
                client.send(client.data(1, bytes(FRAME_BYTES_MAX), end=False))
            return client.response(1).status()


@contextlib.contextmanager
def program(*command, address=None, **options):
    """Runs a program that listens on an address, with the processes that it starts. Yields its process."""
    options = {"stdout": subprocess.DEVNULL, **options}
    process = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True, **options
    )
    try:
        wait_until_it_listens(address)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def application(name, address):
    """Runs the application on uvicorn or Node at an address."""
    host, port = address.split(":")
    commands = {
        "uvicorn": [
            sys.executable, "-m", "uvicorn", "--app-dir", APPLICATIONS, "--host", host, "--port", port, "asgi:application"
        ],
        "node": ["node", APPLICATIONS / "upstream.mjs", address],
    }
    return program(*commands[name], address=address)


@contextlib.contextmanager
def uvicorn():
    address = free_address()
    with application("uvicorn", address):
        yield address


@contextlib.contextmanager
def gunicorn(*options):
    address = free_address()
    command = [sys.executable, "-m", "gunicorn", "--chdir", APPLICATIONS, "--bind", address, *options, "wsgi:application"]
    with program(*command, address=address):
        yield address


@contextlib.contextmanager
def node():
    address = free_address()
    with application("node", address):
        yield address


@contextlib.contextmanager
def go(*more_addresses):
    folder = Path(TARGET) / "proxy-upstreams"
    run("go", "build", "-o", folder / "upstream", APPLICATIONS / "upstream.go")
    address = free_address()
    with program(folder / "upstream", *more_addresses, address, address=address):
        yield address


@contextlib.contextmanager
def nginx(content):
    """Runs nginx with a configuration, in which ADDRESS is its address."""
    folder, address = Path(tempfile.mkdtemp(prefix="nginx-")), free_address()
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; include /etc/nginx/mime.types; client_body_temp_path {folder}; proxy_temp_path {folder};\n"
        f"{content.replace('ADDRESS', address)} }}"
    )
    try:
        with program("nginx", "-p", folder, "-c", folder / "nginx.conf", address=address):
            yield address
    finally:
        shutil.rmtree(folder)
