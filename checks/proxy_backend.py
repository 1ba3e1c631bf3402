"""A strict upstream for the checks of the proxy.

[`Backend`] reads each request byte by byte against RFC 9110 and RFC 9112. A request that a strict server must refuse is
a violation: it is recorded with its bytes, and the connection is reset. What a request gets is the business of a script,
a function of the request's [`Upstream`] connection, which is chosen by path. Scripts send any bytes, valid or not.
"""
import contextlib
import dataclasses
import ipaddress
import re
import socket
import struct
import threading

TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
TARGET = re.compile(rb"(?:/[!$-;=?-Z\[\]^_`a-z{|}~\"<>]*|\*)")
HOST = re.compile(rb"(?:\[[0-9a-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]+)(?::[0-9]{0,5})?")
VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
CHUNK_SIZE = re.compile(rb"[1-9a-f][0-9a-f]{0,7}|0", re.IGNORECASE)
# Fields that end at the gateway. Connection, TE and Upgrade are its own, and are judged below.
NOT_FORWARDED = frozenset(
    b"keep-alive proxy-connection proxy-authorization proxy-authenticate expect http2-settings proxy".split()
)
ONCE = (b"host", b"content-length", b"transfer-encoding", b"connection", b"te", b"upgrade", b"x-forwarded-for",
        b"x-forwarded-proto", b"x-forwarded-host", b"x-request-id")
WITH_CONTENT = (b"POST", b"PUT", b"PATCH")
HEAD_BYTES_MAX = 65536
# The longest wait of a script for the proxy.
WAIT = 20


class Violation(Exception):
    """The request breaks a rule for senders."""


class Ended(Exception):
    """The proxy closed the connection, which is no violation between two requests."""


@dataclasses.dataclass
class Message:
    """A request, as received."""

    method: str
    target: str
    fields: list
    content: bytes = b""
    trailers: list = dataclasses.field(default_factory=list)

    def get(self, name):
        """Returns the value of a field that occurs once; `None` if it is absent."""
        values = [value for other, value in self.fields if other == name.encode()]
        assert len(values) < 2, f"{name} occurs {len(values)} times"
        return values[0].decode("latin-1") if values else None


def require(condition, text):
    if not condition:
        raise Violation(text)


def check_fields(fields):
    """Checks what a strict server requires of the fields of a forwarded request."""
    names = [name for name, _ in fields]
    for name in names:
        require(name == name.lower(), f"{name}: upper case")
        require(b"_" not in name and b"." not in name, f"{name}: an application can mistake it for another field")
        require(name not in NOT_FORWARDED, f"{name}: belongs to another connection")
    for name in ONCE:
        require(names.count(name) < 2, f"{name} is repeated")
    values = dict(fields)
    require(b"host" in values, "no Host")
    require(not values[b"host"] or HOST.fullmatch(values[b"host"]), f"Host {values[b'host']}")
    options = [option.strip().lower() for option in values.get(b"connection", b"").split(b",") if option.strip()]
    require(all(option in (b"close", b"upgrade", b"te") for option in options), f"Connection {options}")
    require((b"upgrade" in options) == (b"upgrade" in values), "Upgrade without its option of Connection, or reversed")
    require((b"te" in options) == (b"te" in values), "TE without its option of Connection, or reversed")
    require(values.get(b"te", b"trailers") == b"trailers", f"TE {values.get(b'te')}")
    for address in values.get(b"x-forwarded-for", b"127.0.0.1").decode().split(", "):
        require(is_address(address), f"X-Forwarded-For {address}")
    require(values.get(b"x-forwarded-proto", b"http") in (b"http", b"https"), "X-Forwarded-Proto")


def is_address(text):
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


class Upstream:
    """One connection of the proxy. Scripts use it to read content and to send bytes."""

    def __init__(self, backend, stream, number):
        self.backend, self.stream, self.number = backend, stream, number
        self.received, self.requests, self.is_over = bytearray(), 0, False
        self.transcript = bytearray()
        # Bytes of content that a script has sent, if it counts them.
        self.sent = 0

    def more(self):
        """Receives bytes. Raises [`Ended`] at the end of the connection."""
        try:
            received = self.stream.recv(65536)
        except (ConnectionResetError, TimeoutError, BrokenPipeError) as error:
            raise Ended(str(error)) from error
        if not received:
            raise Ended("closed")
        self.received += received
        if len(self.transcript) < HEAD_BYTES_MAX:
            self.transcript += received

    def line(self):
        """Returns a line without its CRLF."""
        while (end := self.received.find(b"\n")) < 0:
            require(len(self.received) < HEAD_BYTES_MAX, "a line without an end")
            self.more()
        line = bytes(self.received[: end + 1])
        del self.received[: end + 1]
        require(line.endswith(b"\r\n") and line.count(b"\r") == 1, f"line end of {line}")
        return line[:-2]

    def exactly(self, count):
        while len(self.received) < count:
            self.more()
        taken = bytes(self.received[:count])
        del self.received[:count]
        return taken

    def section(self):
        """Reads field lines up to the empty line."""
        fields = []
        while line := self.line():
            name, colon, value = line.partition(b":")
            require(colon and TOKEN.fullmatch(name), f"name of {line}")
            require(value[:1] == b" " and VALUE.fullmatch(value[1:]), f"value of {line}")
            fields.append((name, value[1:]))
        return fields

    def head(self):
        """Reads the head of a request."""
        line = self.line()
        parts = line.split(b" ")
        require(len(parts) == 3 and TOKEN.fullmatch(parts[0]), f"request line {line}")
        require(TARGET.fullmatch(parts[1]) and parts[2] == b"HTTP/1.1", f"request line {line}")
        fields = self.section()
        check_fields(fields)
        return Message(parts[0].decode(), parts[1].decode(), fields)

    def pieces(self, message):
        """Reads the content of a request, whose framing must be beyond doubt. Yields its pieces."""
        length, coding = message.get("content-length"), message.get("transfer-encoding")
        require(length is None or coding is None, "two framings")
        if length is not None:
            require(re.fullmatch(r"0|[1-9][0-9]{0,17}", length), f"Content-Length {length}")
            remaining = int(length)
            while remaining:
                if not self.received:
                    self.more()
                piece = self.exactly(min(remaining, len(self.received)))
                remaining -= len(piece)
                yield piece
        elif coding is not None:
            require(coding == "chunked", f"Transfer-Encoding {coding}")
            while size := self.chunk_size():
                yield self.exactly(size)
                require(self.exactly(2) == b"\r\n", "a chunk without its CRLF")
            message.trailers = self.section()
        else:
            require(message.method.encode() not in WITH_CONTENT, f"{message.method} without framing")

    def chunk_size(self):
        line = self.line()
        require(CHUNK_SIZE.fullmatch(line), f"chunk size {line}")
        return int(line, 16)

    def read(self, message):
        """Reads the content into the message, and checks that no byte follows it."""
        message.content = b"".join(self.pieces(message))
        require(not self.received, f"bytes behind the request: {bytes(self.received[:99])}")

    def send(self, *parts):
        """Sends bytes. Each part is a piece of its own on the wire."""
        for part in parts:
            try:
                self.stream.sendall(part)
            except OSError as error:
                raise Ended(str(error)) from error

    def respond(self, content=b"", status="200 OK", fields=()):
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", f"X-Connection: {self.number}", *fields]
        self.send("\r\n".join([*lines, "", ""]).encode() + content)

    def close_sending(self):
        with contextlib.suppress(OSError):
            self.stream.shutdown(socket.SHUT_WR)

    def reset(self):
        """Closes the connection with RST."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.close()
        self.is_over = True

    def await_end(self):
        """Returns whether the proxy ends the connection, and sends nothing before."""
        try:
            self.more()
        except Ended as ended:
            return "timed out" not in str(ended)
        return False

    def serve(self):
        """Serves requests until the connection ends."""
        try:
            while not self.is_over:
                if not self.received:
                    self.transcript.clear()
                    self.more()
                message = self.head()
                self.requests += 1
                self.backend.note(message, self)
                self.backend.script(message)(self, message)
        except Ended:
            pass
        except Violation as violation:
            self.backend.violations.append(f"{violation}: {bytes(self.transcript)}")
            self.reset()
        finally:
            self.backend.ended(self)
            self.stream.close()


class Backend:
    """The listener, with a thread for each connection."""

    def __init__(self, scripts, port=0):
        self.scripts = scripts
        self.listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.changed = threading.Condition()
        self.violations, self.messages, self.open, self.count = [], [], {}, 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            stream.settimeout(WAIT)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.changed:
                self.count += 1
                upstream = self.open[self.count] = Upstream(self, stream, self.count)
            threading.Thread(target=upstream.serve, daemon=True).start()

    def script(self, message):
        path = message.target.partition("?")[0].split("/")[1]
        return self.scripts.get(path, self.scripts[""])

    def note(self, message, upstream):
        with self.changed:
            self.messages.append((upstream.number, message))
            self.changed.notify_all()

    def ended(self, upstream):
        with self.changed:
            self.open.pop(upstream.number, None)
            self.changed.notify_all()

    def is_closed(self, number):
        """Waits until the proxy has closed a connection. Returns whether it has."""
        with self.changed:
            return self.changed.wait_for(lambda: number not in self.open, WAIT / 2)

    def await_messages(self, path, count):
        """Waits for requests with a path. Returns the number of those that arrived."""
        def arrived():
            return sum(message.target == path for _, message in self.messages)
        with self.changed:
            self.changed.wait_for(lambda: arrived() >= count, WAIT / 2)
            return arrived()

    def take_violations(self):
        taken, self.violations = self.violations, []
        return taken

    def close(self):
        # Wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
