"""A WebSocket client that sends frames as they are given, valid or not: over HTTP/1.1 and HTTP/2, with TLS and without."""
import os
import socket
import ssl
import struct

from hyperframe.frame import SettingsFrame, WindowUpdateFrame

from http2_server import FRAME_BYTES_MAX, SETTINGS_INITIAL_WINDOW, Connection, raise_windows

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
# The bit of a compressed message.
COMPRESSED = 0x40
WAIT = 20
RECEIVE_BYTES = 1 << 16
INITIAL_WINDOW_BYTES = 65535
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def frame(opcode, payload=b"", final=True, reserved=0):
    """Returns a masked frame."""
    head = bytes([(0x80 if final else 0) | reserved | opcode])
    if len(payload) < 126:
        head += bytes([0x80 | len(payload)])
    elif len(payload) < 1 << 16:
        head += bytes([0x80 | 126]) + struct.pack(">H", len(payload))
    else:
        head += bytes([0x80 | 127]) + struct.pack(">Q", len(payload))
    mask = os.urandom(4)
    key = int.from_bytes((mask * (len(payload) // 4 + 1))[: len(payload)], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(len(payload), "big")


def close_payload(code, reason=b""):
    return struct.pack(">H", code) + reason


def parse(received):
    """Returns the complete frames without masks, as (first byte, payload), and the remaining bytes."""
    frames, at = [], 0
    while len(received) >= at + 2:
        length, begin = received[at + 1] & 0x7F, at + 2
        if length >= 126:
            size = 2 if length == 126 else 8
            if len(received) < begin + size:
                break
            length, begin = int.from_bytes(received[begin : begin + size], "big"), begin + size
        if len(received) < begin + length:
            break
        assert not received[at + 1] & 0x80, "a server masks no frame"
        frames.append((received[at], bytes(received[begin : begin + length])))
        at = begin + length
    return frames, received[at:]


class WebSocket:
    """An open WebSocket. Subclasses send and receive bytes."""

    def __init__(self):
        self.received, self.frames = b"", []
        # The value of Sec-WebSocket-Extensions in the response.
        self.extensions = ""

    def next_frame(self):
        """Returns the next frame, or None if the other side has ended the stream."""
        while not self.frames:
            piece = self.receive()
            if not piece:
                assert not self.received, f"the stream ended within a frame: {self.received[:80]}"
                return None
            self.frames, self.received = parse(self.received + piece)
        return self.frames.pop(0)

    def message(self):
        """Returns the opcode and the content of the next message or control frame."""
        first, content = self.next_frame()
        opcode, pieces = first & 0x0F, [content]
        while not first & 0x80:
            first, content = self.next_frame()
            assert first & 0x0F == CONTINUATION, "a control frame within a message"
            pieces.append(content)
        return opcode, b"".join(pieces)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Http1WebSocket(WebSocket):
    def __init__(self, port, path, name="localhost", context=None, extensions=None):
        super().__init__()
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname=name)
        lines = [f"GET {path} HTTP/1.1", f"Host: {name}", "Connection: Upgrade", "Upgrade: websocket",
                 "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}"]
        if extensions:
            lines.append(f"Sec-WebSocket-Extensions: {extensions}")
        self.send("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.receive()
            assert piece, f"the connection ended within the head: {head}"
            head += piece
        head, _, self.received = head.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        assert status.startswith("HTTP/1.1 101 "), head
        values = dict((field.partition(":")[0].lower(), field.partition(":")[2].strip()) for field in fields)
        self.extensions = values.get("sec-websocket-extensions", "")
        self.frames, self.received = parse(self.received)

    def send(self, content):
        self.socket.sendall(content)

    def receive(self):
        try:
            return self.socket.recv(RECEIVE_BYTES)
        except (ConnectionResetError, ssl.SSLEOFError):
            return b""

    def close(self):
        self.socket.close()


class BoundedConnection(Connection):
    """Knows how much the server permits to send."""

    def __init__(self, *arguments, **options):
        self.permitted, self.initial_window = {0: INITIAL_WINDOW_BYTES, 1: INITIAL_WINDOW_BYTES}, INITIAL_WINDOW_BYTES
        super().__init__(*arguments, **options)

    def handle(self, frame):
        if isinstance(frame, WindowUpdateFrame):
            self.permitted[frame.stream_id] += frame.window_increment
        elif isinstance(frame, SettingsFrame) and SETTINGS_INITIAL_WINDOW in frame.settings:
            initial = frame.settings[SETTINGS_INITIAL_WINDOW]
            self.permitted[1] += initial - self.initial_window
            self.initial_window = initial
        super().handle(frame)


class Http2WebSocket(WebSocket):
    """A stream of its own connection, opened by CONNECT with `:protocol` (RFC 8441)."""

    def __init__(self, server, transport, path, name="localhost", extensions=None):
        super().__init__()
        self.connection, self.taken = BoundedConnection(server, transport, seconds=WAIT, name=name), 0
        fields = [(":protocol", "websocket"), ("sec-websocket-version", "13")]
        if extensions:
            fields.append(("sec-websocket-extensions", extensions))
        self.connection.send(self.connection.head(1, self.connection.fields(path, "CONNECT", fields), end=False))
        raise_windows(self.connection, 1)
        self.stream = self.connection.of(1)
        self.connection.receive_until(lambda: self.stream.fields or self.stream.is_over)
        assert self.stream.status() == 200, vars(self.stream)
        self.extensions = self.stream.field("sec-websocket-extensions") or ""

    def send(self, content):
        permitted = self.connection.permitted
        for at in range(0, len(content), FRAME_BYTES_MAX):
            piece = content[at : at + FRAME_BYTES_MAX]
            self.connection.receive_until(lambda: min(permitted.values()) >= len(piece) or self.stream.is_over)
            if self.stream.is_over or not self.connection.send(self.connection.data(1, piece, end=False)):
                raise BrokenPipeError("the stream has ended")
            for stream in permitted:
                permitted[stream] -= len(piece)

    def receive(self):
        self.connection.receive_until(lambda: len(self.stream.content) > self.taken or self.stream.is_over)
        piece = self.stream.content[self.taken :]
        self.taken += len(piece)
        return piece

    def close(self):
        self.connection.socket.close()
