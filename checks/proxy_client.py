"""A client of the proxy: HTTP/1.1 over a socket of its own, strict about what it receives, and HTTP/2 by curl."""
import contextlib
import dataclasses
import re
import socket
import subprocess
import tempfile
from pathlib import Path

STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [^\r\n]*")
# The longest wait for the proxy. Its timeouts are 2 s in these checks.
WAIT = 20


class Incomplete(Exception):
    """The connection ended within a message."""


@dataclasses.dataclass
class Response:
    """What a client received."""

    status: int = 0
    fields: list = dataclasses.field(default_factory=list)
    body: bytes = b""
    trailers: list = dataclasses.field(default_factory=list)
    interim: list = dataclasses.field(default_factory=list)
    is_complete: bool = False

    def values(self, name):
        return [value for other, value in self.fields if other == name]

    def get(self, name):
        return (self.values(name) or [None])[0]


class Client:
    """A connection to the proxy."""

    def __init__(self, address):
        host, port = address.split(":")
        self.stream = socket.create_connection((host, int(port)), timeout=WAIT)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def send(self, method, path, fields=(), content=None):
        """Sends a request. The length of the content is sent unless the fields tell its framing."""
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *fields]
        if content is not None and not any(field.lower().startswith("transfer-encoding") for field in fields):
            lines.append(f"Content-Length: {len(content)}")
        self.stream.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + (content or b""))

    def more(self):
        try:
            received = self.stream.recv(65536)
        except ConnectionResetError as error:
            raise Incomplete("reset") from error
        if not received:
            raise Incomplete("closed")
        self.received += received

    def line(self):
        while (end := self.received.find(b"\r\n")) < 0:
            self.more()
        line = bytes(self.received[:end])
        del self.received[: end + 2]
        assert b"\n" not in line and b"\r" not in line, f"a line end in {line}"
        return line

    def exactly(self, count, response=None):
        """Reads bytes, and appends them to the body of a response as they arrive."""
        taken = bytearray()
        while len(taken) < count:
            if not self.received:
                self.more()
            piece = self.received[: count - len(taken)]
            del self.received[: len(piece)]
            taken += piece
            if response:
                response.body += piece
        return bytes(taken)

    def section(self):
        fields = []
        while line := self.line():
            name, colon, value = line.decode("latin-1").partition(":")
            assert colon and name and name == name.strip(), f"field line {line}"
            fields.append((name.lower(), value.strip(" \t")))
        return fields

    def head(self, response):
        """Reads the head of a response, behind its interim responses."""
        while True:
            line = self.line()
            found = STATUS_LINE.fullmatch(line)
            assert found, f"status line {line}"
            status, fields = int(found[1]), self.section()
            if status >= 200 or status == 101:
                response.status, response.fields = status, fields
                return
            response.interim.append((status, fields))

    def receive(self, method="GET"):
        """Returns a response, which is not complete if the connection ended too early."""
        response = Response()
        with contextlib.suppress(Incomplete):
            self.head(response)
            response.is_complete = self.content(method, response)
        return response

    def content(self, method, response):
        """Reads the content of a response. Returns whether it is complete."""
        lengths, codings = response.values("content-length"), response.values("transfer-encoding")
        assert len(lengths) + len(codings) <= 1, f"framing {lengths} {codings}"
        if method == "HEAD" or response.status in (101, 204, 304):
            return True
        if lengths:
            self.exactly(int(lengths[0]), response)
        elif codings:
            assert codings == ["chunked"], codings
            while size := int(self.line(), 16):
                self.exactly(size, response)
                assert self.line() == b"", "a chunk without its CRLF"
            response.trailers = self.section()
        else:
            # Only the end of the connection would end the content, so a client could not notice that it is incomplete.
            raise AssertionError(f"no framing: {response}")
        return True

    def exchange(self, method, path, fields=(), content=None):
        self.send(method, path, fields, content)
        return self.receive(method)


def fields_of(lines):
    pairs = (line.partition(":") for line in lines)
    return [(name.lower(), value.strip(" \t")) for name, _, value in pairs]


def fetch_over_http2(address, method, path, *arguments, content=None):
    """Sends a request with curl over HTTP/2 without TLS. The length of the content is not announced."""
    with tempfile.TemporaryDirectory() as folder:
        body, head = Path(folder, "body"), Path(folder, "head")
        command = ["curl", "-sS", "--http2-prior-knowledge", "--max-time", str(WAIT), "-o", body, "-D", head]
        command += ["-I"] if method == "HEAD" else ["-X", method]
        command += ["-T", "-"] if content is not None else []
        command += [*arguments, f"http://{address}{path}"]
        ended = subprocess.run(command, input=content, capture_output=True, timeout=2 * WAIT)
        blocks = head.read_bytes().decode("latin-1").strip().split("\r\n\r\n") if head.exists() else []
        response = Response(is_complete=ended.returncode == 0)
        for block in blocks:
            first, *lines = block.split("\r\n")
            if first.startswith("HTTP/2 "):
                response.status = int(first.split()[1])
                response.fields = fields_of(lines)
            elif first:
                response.trailers = fields_of([first, *lines])
        if method != "HEAD" and body.exists():
            response.body = body.read_bytes()
        return response
