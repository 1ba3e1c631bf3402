"""The server and the client of the checks of HTTP/2.

[`Server`] is `selvedge run` with a listener for TLS, whose certificate is from its own authority, and one for HTTP/2
without TLS. [`Connection`] sends frames as they are given, valid or not.
"""
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path

from hpack import Decoder, Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from clients import STEP_TIMEOUT, free_address, wait_until_it_listens

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX = 16384
WINDOW_MAX = 2**31 - 1
MIB = 1 << 20
SETTINGS_INITIAL_WINDOW = SettingsFrame.INITIAL_WINDOW_SIZE
ERRORS = dict(enumerate(
    "NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED FRAME_SIZE_ERROR REFUSED_STREAM"
    " CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM INADEQUATE_SECURITY HTTP_1_1_REQUIRED".split()
))
LARGE_BYTES, HUGE_BYTES = 5_000_000, 1 << 30

# A route of the site for each name, with content and conditions.
SITE = """
root "root"
https-redirect #false
body-bytes-max "6MB"
route "/accepts" { respond 200 "accepted\\n"; }
route "/small-content" { body-bytes-max "100B"; respond 200 "accepted\\n"; }
route "/moved" { redirect "/hello.txt"; }
"""


class Server:
    """`selvedge run` in a temporary folder. Its exit code must be 0, and its log must have no panic.

    The site "127.0.0.1" has the folder `documents`, which may be elsewhere.
    """

    host = "127.0.0.1"

    def __init__(self, binary, driver, limits="", documents="root"):
        self.driver, self.folder = driver, Path(tempfile.mkdtemp(prefix="selvedge-http2-"))
        self.root = self.folder / "root"
        self.tls, self.plain = (int(free_address().split(":")[1]) for _ in range(2))
        self.write_files()
        self.binary = self.folder / "selvedge"
        self.install(binary)
        self.limits, self.documents = limits, documents
        self.configure()
        checked = subprocess.run([self.binary, "check", self.configuration], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        environment = {**os.environ, "HOME": str(self.folder), "SELVEDGE_DRIVER": driver}
        self.process = subprocess.Popen(
            [self.binary, "run", self.configuration], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for port in (self.tls, self.plain):
            wait_until_it_listens(f"127.0.0.1:{port}")
        # The ports are open before the certificates exist.
        end = time.monotonic() + STEP_TIMEOUT
        while not self.is_ready():
            assert time.monotonic() < end and self.process.poll() is None, "the server does not start"
            time.sleep(0.02)

    def is_ready(self):
        try:
            with Connection(self, "TLS") as connection:
                return connection.request(1).status() == 200
        except (OSError, ssl.SSLError):
            return False

    def write_files(self):
        self.root.mkdir()
        (self.root / "hello.txt").write_text("hello\n")
        (self.root / "index.html").write_text("<!doctype html><title>HTTP/2</title><p>" + "HTTP/2 " * 200)
        (self.root / "folder").mkdir()
        (self.root / "large.bin").write_bytes(bytes(range(256)) * (LARGE_BYTES // 256 + 1))
        os.truncate(self.root / "large.bin", LARGE_BYTES)
        with open(self.root / "huge.bin", "wb") as file:
            file.truncate(HUGE_BYTES)

    def install(self, binary):
        shutil.copy2(binary, self.folder / "new")
        os.rename(self.folder / "new", self.binary)

    @property
    def configuration(self):
        return self.folder / "selvedge.kdl"

    @property
    def authority(self):
        """The root certificate of the server's own authority."""
        return self.folder / "certificates/local-authority.pem"

    def configure(self, version=1):
        """Writes the configuration. Responses name the version."""
        new = self.folder / "selvedge.kdl.new"
        new.write_text(
            f'listen "127.0.0.1:{self.tls}" tls=#true\nlisten "127.0.0.1:{self.plain}" http2=#true\n'
            f'certificate-folder "certificates"\nlog {{ access "access.log"; error "error.log"; }}\n'
            f'limits {{ {self.limits} }}\n'
            f'site "localhost" {{ header "x-version" "{version}"; {SITE} }}\n'
            f'site "127.0.0.1" {{ root "{self.documents}"; https-redirect #false; }}\n'
        )
        os.rename(new, self.configuration)

    def command(self, name):
        """Runs `selvedge reload` or another command of a running server."""
        ended = subprocess.run([self.binary, name, "--config", self.configuration], capture_output=True, text=True, timeout=90)
        assert ended.returncode == 0, f"{name}: {ended.stdout}{ended.stderr}"

    def url(self, transport, path="/"):
        return f"https://localhost:{self.tls}{path}" if transport == "TLS" else f"http://localhost:{self.plain}{path}"

    def processes(self):
        """Returns the process IDs of the supervisor and of the serving processes."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [self.process.pid, *(int(word) for task in children for word in task.read_text().split())]

    def memory(self):
        """Returns the resident memory of all processes in MiB."""
        total = 0
        for process in self.processes():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                total += sum(
                    int(line.split()[1]) for line in open(f"/proc/{process}/status") if line.startswith("VmRSS:")
                )
        return total / 1024

    def sockets(self):
        """Returns the number of open sockets of all processes. Files may stay open, because the server caches them."""
        links = []
        for process in self.processes():
            for descriptor in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    links.append(os.readlink(f"/proc/{process}/fd/{descriptor}"))
        return sum(link.startswith("socket:") for link in links)

    def errors(self):
        log = self.folder / "error.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def end(self):
        self.process.terminate()
        code = self.process.wait(timeout=STEP_TIMEOUT)
        assert code == 0, f"the exit code of the server is {code}"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if self.process.poll() is None:
                self.end()
            panics = [line for line in self.errors().splitlines() if "panic" in line.lower()]
            assert not panics, panics[0]
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if kind:
                print(f"--- the last lines of the log of errors\n{self.errors()[-2000:]}")
            shutil.rmtree(self.folder)


def has_io_uring(binary):
    with Server(binary, "io_uring") as server:
        return "UringUnavailable" not in server.errors()


class Response:
    """What the server sent on a stream."""

    def __init__(self):
        self.fields, self.trailers, self.content, self.reset, self.is_complete, self.interim = [], [], b"", None, False, []

    def status(self):
        return int(dict(self.fields)[":status"]) if self.fields else None

    def field(self, name):
        return dict(self.fields).get(name)

    @property
    def is_over(self):
        return self.is_complete or self.reset is not None


class Connection:
    """A connection that sends the given frames. Acknowledges settings and pings unless `acknowledges` is False."""

    def __init__(self, server, transport, settings=None, acknowledges=True, seconds=10, name="localhost"):
        self.transport, self.acknowledges, self.seconds, self.name = transport, acknowledges, seconds, name
        is_tls = transport == "TLS"
        self.socket = socket.create_connection((server.host, server.tls if is_tls else server.plain), seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_tls:
            context = ssl.create_default_context(cafile=server.authority)
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket, server_hostname=name)
            assert self.socket.selected_alpn_protocol() == "h2", self.socket.selected_alpn_protocol()
        self.encoder, self.decoder = Encoder(), Decoder()
        self.decoder.max_header_list_size = MIB
        self.received, self.block, self.responses = b"", b"", {}
        # The code of GOAWAY, and whether the server has closed the connection.
        self.goaway, self.is_closed = None, False
        self.sent_settings_are_acknowledged = False
        self.socket.sendall(PREFACE + SettingsFrame(0, settings=settings or {}).serialize())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *frames):
        """Sends frames. Returns whether the connection is open still."""
        try:
            self.socket.sendall(b"".join(frame if isinstance(frame, bytes) else frame.serialize() for frame in frames))
        except OSError:
            self.is_closed = True
        return not self.is_closed

    def fields(self, path="/hello.txt", method="GET", more=(), **replaced):
        """Returns the fields of a request. A field with the value None is absent."""
        scheme = "https" if self.transport == "TLS" else "http"
        pseudo = {"method": method, "scheme": scheme, "authority": self.name, "path": path, **replaced}
        return [(f":{name}", value) for name, value in pseudo.items() if value is not None] + list(more)

    def head(self, stream, fields, end=True):
        """Returns the frames of a head."""
        block = self.encoder.encode(fields)
        pieces = [block[at : at + FRAME_BYTES_MAX] for at in range(0, len(block), FRAME_BYTES_MAX)] or [b""]
        frames = [HeadersFrame(stream, pieces[0]), *(ContinuationFrame(stream, piece) for piece in pieces[1:])]
        if end:
            frames[0].flags.add("END_STREAM")
        frames[-1].flags.add("END_HEADERS")
        return b"".join(frame.serialize() for frame in frames)

    def data(self, stream, content, end=True):
        frame = DataFrame(stream, content)
        if end:
            frame.flags.add("END_STREAM")
        return frame

    def request(self, stream, path="/hello.txt", content=None, **parts):
        """Sends a request, and returns the response."""
        self.send(self.head(stream, self.fields(path, **parts), end=content is None))
        if content is not None:
            self.send(self.data(stream, content))
        return self.response(stream)

    def response(self, stream, seconds=None):
        """Receives until the response is complete, reset, or the connection is closed."""
        self.receive_until(lambda: self.of(stream).is_over, seconds)
        return self.of(stream)

    def with_fields(self):
        """Returns the responses whose fields have been received."""
        return [response for response in self.responses.values() if response.fields]

    def of(self, stream):
        return self.responses.setdefault(stream, Response())

    def receive_until(self, condition, seconds=None):
        """Receives frames until the condition holds or the connection is closed. Fails after `seconds`."""
        end = time.monotonic() + (seconds or self.seconds)
        while not condition() and not self.is_closed:
            remaining = end - time.monotonic()
            assert remaining > 0, "timed out waiting for the server"
            self.receive(remaining)

    def receive(self, seconds):
        self.socket.settimeout(max(seconds, 0.001))
        try:
            piece = self.socket.recv(MIB)
        except TimeoutError:
            return
        except OSError:
            piece = b""
        finally:
            with contextlib.suppress(OSError):
                self.socket.settimeout(self.seconds)
        if not piece:
            self.is_closed = True
        self.received += piece
        at = 0
        while len(self.received) >= at + 9:
            frame, length = Frame.parse_frame_header(memoryview(self.received)[at : at + 9])
            if len(self.received) < at + 9 + length:
                break
            frame.parse_body(memoryview(self.received)[at + 9 : at + 9 + length])
            at += 9 + length
            self.handle(frame)
        self.received = self.received[at:]

    def handle(self, frame):
        if isinstance(frame, SettingsFrame):
            self.sent_settings_are_acknowledged |= "ACK" in frame.flags
            if "ACK" not in frame.flags and self.acknowledges:
                self.send(SettingsFrame(0, flags=["ACK"]))
        elif isinstance(frame, PingFrame) and "ACK" not in frame.flags and self.acknowledges:
            self.send(PingFrame(0, frame.opaque_data, flags=["ACK"]))
        elif isinstance(frame, GoAwayFrame):
            self.goaway = ERRORS[frame.error_code]
        elif isinstance(frame, RstStreamFrame):
            self.of(frame.stream_id).reset = ERRORS[frame.error_code]
        elif isinstance(frame, DataFrame):
            self.handle_data(frame)
        elif isinstance(frame, (HeadersFrame, ContinuationFrame)):
            self.handle_fields(frame)

    def handle_data(self, frame):
        response = self.of(frame.stream_id)
        response.content += frame.data
        response.is_complete |= "END_STREAM" in frame.flags

    def handle_fields(self, frame):
        self.block += bytes(frame.data)
        ends_stream = isinstance(frame, HeadersFrame) and "END_STREAM" in frame.flags
        response = self.of(frame.stream_id)
        response.is_complete |= ends_stream
        if "END_HEADERS" not in frame.flags:
            return
        fields, self.block = self.decoder.decode(self.block), b""
        if response.fields:
            response.trailers = fields
        elif fields[0][1].startswith("1"):
            response.interim.append(int(fields[0][1]))
        else:
            response.fields = fields

    def outcome(self, stream):
        """Returns the status of the response, the code that the stream was reset with, or that of GOAWAY."""
        response = self.response(stream)
        if response.fields:
            return response.status()
        return f"reset {response.reset}" if response.reset else f"closed {self.goaway}"


def raise_windows(connection, *streams):
    """Permits the server to send without a bound on the connection and on streams."""
    connection.send(*(WindowUpdateFrame(stream, window_increment=WINDOW_MAX - 65535) for stream in (0, *streams)))
