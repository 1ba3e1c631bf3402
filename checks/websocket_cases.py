#!/usr/bin/env python3
"""Sends the frames of WebSockets through the proxy: valid ones, broken ones and compressed ones (RFC 6455, RFC 7692).

    python3 checks/websocket_cases.py target/release/selvedge [--driver epoll|io_uring]

The upstream is the library `websockets`, which echoes messages. Each case runs without the proxy first, and then through it: over
HTTP/1.1 and HTTP/2, with TLS and without. All of them have to give the expected frames, close codes and ends. Without
`--driver`, it runs with both drivers.
"""
import argparse
import asyncio
import contextlib
import os
import ssl
import sys
import time
import zlib
from pathlib import Path

from proxy_packages import run_with_packages

run_with_packages()

import websockets  # noqa: E402, the packages must be installed
from websockets.asyncio.server import serve  # noqa: E402

from clients import DRIVERS, STEP_TIMEOUT, free_address  # noqa: E402
from proxy_upstreams import Proxy  # noqa: E402
from websocket_client import (  # noqa: E402
    BINARY, CLOSE, COMPRESSED, CONTINUATION, PING, PONG, TEXT, Http1WebSocket, Http2WebSocket, close_payload, frame,
)

MIB = 1 << 20
PATH = "/echo/"
NORMAL, PROTOCOL_ERROR, INVALID_DATA = 1000, 1002, 1007
SIZES = [0, 1, 125, 126, 127, 128, 65535, 65536, MIB]
VALID_CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
INVALID_CODES = [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535]
GREEK = "κόσμε".encode()
INVALID_UTF8 = {
    "a surrogate": b"\xed\xa0\x80", "beyond U+10FFFF": b"\xf4\x90\x80\x80", "an overlong slash": b"\xc0\xaf",
    "a lone continuation": b"\x80", "an incomplete code point": GREEK[:-1], "0xFE": b"\xfe", "0xFF within text": b"a\xffb",
}
DEFLATE = "permessage-deflate"
OFFERS = [
    DEFLATE, f"{DEFLATE}; client_max_window_bits", f"{DEFLATE}; client_no_context_takeover; server_no_context_takeover",
    f"{DEFLATE}; client_max_window_bits=9; server_max_window_bits=9",
]


class Case:
    """Steps of what is sent, in pieces, and which messages follow. `code` ends the connection: the client's, or an error's."""

    def __init__(self, name, steps, code=NORMAL, is_error=False):
        self.name, self.steps, self.code, self.is_error = name, steps, code, is_error


def error(name, code, *pieces):
    return Case(name, [(pieces, [])], code, is_error=True)


def messages():
    for size in SIZES:
        text, binary = b"*" * size, os.urandom(size)
        yield Case(f"text of {size} bytes", [([frame(TEXT, text)], [(TEXT, text)])])
        yield Case(f"binary of {size} bytes", [([frame(BINARY, binary)], [(BINARY, binary)])])
    text = frame(TEXT, b"byte by byte" * 5)
    yield Case("a frame byte by byte", [([text[at : at + 1] for at in range(len(text))], [(TEXT, b"byte by byte" * 5)])])
    texts = [b"%d" % number for number in range(500)]
    yield Case("500 frames at once", [([b"".join(frame(TEXT, each) for each in texts)], [(TEXT, each) for each in texts])])
    content = os.urandom(4 * MIB)
    large = frame(BINARY, content)
    pieces = [large[at : at + 9973] for at in range(0, len(large), 9973)]
    yield Case("4 MiB in pieces of 9,973 bytes", [(pieces, [(BINARY, content)])])


def pings():
    for payload in [b"", b"ping", bytes(range(125))]:
        yield Case(f"a ping of {len(payload)} bytes", [([frame(PING, payload)], [(PONG, payload)])])
    yield error("a ping of 126 bytes", PROTOCOL_ERROR, frame(PING, bytes(126)))
    yield error("a ping in fragments", PROTOCOL_ERROR, frame(PING, b"a", final=False))
    yield Case("a pong that nothing requested", [([frame(PONG, b"x"), frame(PING, b"y")], [(PONG, b"y")])])
    yield Case("ten pings", [([frame(PING, b"%d" % number)], [(PONG, b"%d" % number)]) for number in range(10)])
    one, two, ping = frame(TEXT, b"one", final=False), frame(CONTINUATION, b"two"), frame(PING, b"p")
    yield Case("a ping within a message", [([one, ping, two], [(PONG, b"p"), (TEXT, b"onetwo")])])


def fragments():
    for size in (1, 64, 4096, 65536):
        content = os.urandom(size * 16)
        first = frame(BINARY, content[:size], final=False)
        middle = [frame(CONTINUATION, content[at : at + size], final=False) for at in range(size, 15 * size, size)]
        last = frame(CONTINUATION, content[15 * size :])
        yield Case(f"16 fragments of {size} bytes", [([first, *middle, last], [(BINARY, content)])])
    empty = [frame(TEXT, final=False), frame(CONTINUATION, final=False), frame(CONTINUATION)]
    yield Case("fragments without content", [(empty, [(TEXT, b"")])])
    yield error("a continuation of nothing", PROTOCOL_ERROR, frame(CONTINUATION, b"x"))
    yield error("a message within a message", PROTOCOL_ERROR, frame(TEXT, b"x", final=False), frame(TEXT, b"y"))
    for opcode in (3, 7, 11, 15):
        yield error(f"opcode {opcode}", PROTOCOL_ERROR, frame(opcode, b"x"))
    for reserved in (0x10, 0x20, 0x40, 0x70):
        yield error(f"reserved bits {reserved:#x}", PROTOCOL_ERROR, frame(TEXT, b"x", reserved=reserved))
    yield error("a frame without a mask", PROTOCOL_ERROR, b"\x81\x01x")


def encodings():
    yield Case("Greek", [([frame(TEXT, GREEK)], [(TEXT, GREEK)])])
    pieces = [frame(TEXT, GREEK[:1], final=False)]
    pieces += [frame(CONTINUATION, GREEK[at : at + 1], final=at == len(GREEK) - 1) for at in range(1, len(GREEK))]
    yield Case("Greek in fragments of a byte", [(pieces, [(TEXT, GREEK)])])
    for name, content in INVALID_UTF8.items():
        yield error(f"text with {name}", INVALID_DATA, frame(TEXT, content))
    yield error("a reason that is no UTF-8", INVALID_DATA, frame(CLOSE, close_payload(NORMAL, b"\xff")))


def closes():
    for code in VALID_CODES:
        yield Case(f"close with {code}", [], code)
    for code in INVALID_CODES:
        yield error(f"close with {code}", PROTOCOL_ERROR, frame(CLOSE, close_payload(code)))
    yield error("close with half of a code", PROTOCOL_ERROR, frame(CLOSE, b"\x03"))
    yield error("close with 126 bytes", PROTOCOL_ERROR, frame(CLOSE, close_payload(NORMAL, bytes(124))))
    yield error("frames behind a close", NORMAL, frame(CLOSE, close_payload(NORMAL)), frame(TEXT, b"x"), frame(PING, b"y"))


CASES = [*messages(), *pings(), *fragments(), *encodings(), *closes()]


class Deflate:
    """Compresses and decompresses messages by the extensions that the server accepted."""

    def __init__(self, accepted):
        parameters = dict(part.strip().partition("=")[::2] for part in accepted.split(";"))
        assert DEFLATE in parameters, accepted
        self.bits = int(parameters.get("client_max_window_bits") or 15)
        self.keeps, self.server_keeps = (f"{side}_no_context_takeover" not in parameters for side in ("client", "server"))
        self.compressor, self.decompressor = self.new_compressor(), zlib.decompressobj(-15)

    def new_compressor(self):
        return zlib.compressobj(wbits=-self.bits)

    def compress(self, content):
        if not self.keeps:
            self.compressor = self.new_compressor()
        return (self.compressor.compress(content) + self.compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]

    def decompress(self, content):
        if not self.server_keeps:
            self.decompressor = zlib.decompressobj(-15)
        return self.decompressor.decompress(content + b"\x00\x00\xff\xff")


def play(socket, case):
    """Runs a case. Returns the number of frames. Fails unless the server sends what the case expects, and ends."""
    for pieces, expected in case.steps:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                socket.send(piece)
        for opcode, content in expected:
            got = socket.message()
            assert got == (opcode, content), f"{case.name}: {got[0]} {got[1][:80]} of {len(got[1])} bytes"
    if not case.is_error:
        socket.send(frame(CLOSE, close_payload(case.code, b"reason")))
    opcode, payload = socket.message()
    code = int.from_bytes(payload[:2], "big")
    assert (opcode, code) == (CLOSE, case.code), f"{case.name}: {opcode} {payload}"
    assert case.is_error or payload[2:] == b"reason", f"{case.name}: {payload}"
    assert socket.next_frame() is None, f"{case.name}: a frame behind the close"


def play_compressed(socket, offer):
    deflate = Deflate(socket.extensions)
    for content in [b"", b"text", b"text", b"x" * 70_000, os.urandom(70_000), b"json " * (MIB // 5), b"last"]:
        compressed = deflate.compress(content)
        pieces = [frame(BINARY, compressed, reserved=COMPRESSED)]
        if len(compressed) > 2:
            # Only the first fragment has the bit.
            pieces = [frame(BINARY, compressed[:2], final=False, reserved=COMPRESSED), frame(CONTINUATION, compressed[2:])]
        for piece in pieces:
            socket.send(piece)
        first, got = socket.next_frame()
        assert first == 0x80 | COMPRESSED | BINARY and deflate.decompress(got) == content, (offer, first, len(content))
    socket.send(frame(TEXT, b"not compressed"))
    first, got = socket.next_frame()
    assert deflate.decompress(got) == b"not compressed", (offer, first)
    play(socket, Case(f"close after {offer}", []))


def play_errors_of_compression(open_socket):
    for name, content in [
        ("a compressed continuation", frame(TEXT, b"a", final=False) + frame(CONTINUATION, b"b", reserved=COMPRESSED)),
        ("a compressed ping", frame(PING, b"x", reserved=COMPRESSED)),
    ]:
        with open_socket(DEFLATE) as socket:
            play(socket, error(name, PROTOCOL_ERROR, content))


def run_all(open_socket):
    """Runs all cases, each with a connection of its own. Returns how many."""
    for case in CASES:
        with open_socket(None) as socket:
            assert not socket.extensions
            play(socket, case)
    for offer in OFFERS:
        with open_socket(offer) as socket:
            play_compressed(socket, offer)
    play_errors_of_compression(open_socket)
    return len(CASES) + len(OFFERS) + 2


async def echo(connection):
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in connection:
            await connection.send(message)


def transports(proxy):
    trusted = ssl.create_default_context(cafile=proxy.authority)
    return {
        "HTTP/1.1": lambda offer: Http1WebSocket(proxy.plain, PATH, extensions=offer),
        "HTTP/1.1, TLS": lambda offer: Http1WebSocket(proxy.tls, PATH, context=trusted, extensions=offer),
        "HTTP/2": lambda offer: Http2WebSocket(proxy, "plain", PATH, extensions=offer),
        "HTTP/2, TLS": lambda offer: Http2WebSocket(proxy, "TLS", PATH, extensions=offer),
    }


async def check(binary, drivers):
    address = free_address()
    host, port = address.split(":")
    async with serve(echo, host, int(port), max_size=None):

        async def timed(name, open_socket):
            began = time.monotonic()
            count = await asyncio.wait_for(asyncio.to_thread(run_all, open_socket), STEP_TIMEOUT)
            print(f"{name}: {count} cases ({time.monotonic() - began:.1f} s)", flush=True)

        await timed("without the proxy", lambda offer: Http1WebSocket(int(port), PATH, extensions=offer))
        for driver in drivers:
            with await asyncio.to_thread(Proxy, binary, driver, echo=address) as proxy:
                for name, open_socket in transports(proxy).items():
                    await timed(f"{driver}, {name}", open_socket)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--driver", choices=DRIVERS)
    options = parser.parse_args()
    asyncio.run(check(options.binary, [options.driver] if options.driver else DRIVERS))


if __name__ == "__main__":
    sys.exit(main())
