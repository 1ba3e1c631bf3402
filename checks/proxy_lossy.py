#!/usr/bin/env python3
"""Uses the proxy over a network that loses 2 % of the packets and delays the others by 50 ms in each direction.

    python3 checks/proxy_lossy.py target/release/selvedge [--driver epoll|io_uring]

The proxy is in a network namespace of its own, and clients and upstreams are in another one. A process forwards packets between
their TUN devices, so no module of the kernel is needed. All at once, it runs GETs and uploads over HTTP/1.1, GETs over HTTP/2,
streams of events, and WebSockets. Each response has to be complete and right. Needs root and `ip`; without namespaces and TUN
devices, the check is skipped. Without `--driver`, it runs with both drivers.
"""
import argparse
import asyncio
import contextlib
import ctypes
import fcntl
import hashlib
import multiprocessing
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from proxy_packages import run_with_packages

run_with_packages()

from websockets.asyncio.client import connect  # noqa: E402, the packages must be installed
from websockets.asyncio.server import serve  # noqa: E402

from clients import DRIVERS, wait_until_it_listens  # noqa: E402
from http2_server import Connection, raise_windows  # noqa: E402

LOSS, DELAY_SECONDS = 0.02, 0.05
PACKET_BYTES_MAX = 65536
TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000
PROXY, CLIENTS = "10.77.0.1", "10.77.0.2"
PORT, UPSTREAM_PORT, SOCKETS_PORT = 8080, 9000, 9001
# The whole check, in seconds.
WAIT = 120
GET_CLIENTS, GETS, GET_BYTES = 20, 10, 8192
STREAMS = 60
UPLOADS, UPLOAD_BYTES = 8, 200_000
EVENT_CLIENTS, EVENTS, EVENT_SECONDS = 10, 30, 0.1
SOCKETS, MESSAGES = 5, 10
CONFIGURATION = f"""
listen "{PROXY}:{PORT}" http2=#true
log {{ access "access.log"; error "error.log"; }}
site "*" {{
    route "/socket" {{ proxy "http://{CLIENTS}:{SOCKETS_PORT}" }}
    route "/*" {{ proxy "http://{CLIENTS}:{UPSTREAM_PORT}" }}
}}
"""


def content_of(number):
    """Returns content that differs for each number."""
    return random.Random(number).randbytes(GET_BYTES)


class Link:
    """Two network namespaces, and the process that forwards packets between them."""

    def __init__(self):
        self.names = [f"selvedge-{os.getpid()}-{end}" for end in ("proxy", "clients")]
        self.forwarded, self.lost = (multiprocessing.Value("q", 0, lock=False) for _ in range(2))
        self.process = None

    def __enter__(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
        is_up = multiprocessing.Event()
        self.process = multiprocessing.Process(target=self.forward, args=[is_up], daemon=True)
        self.process.start()
        if not is_up.wait(20):
            raise OSError("the TUN devices cannot be created")
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.join()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def forward(self, is_up):
        ends = [open_tun(name, address) for name, address in zip(self.names, (PROXY, CLIENTS))]
        loop = asyncio.new_event_loop()

        def receive(source, target):
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet = os.read(source, PACKET_BYTES_MAX)
                    if random.random() < LOSS:
                        self.lost.value += 1
                    else:
                        self.forwarded.value += 1
                        loop.call_later(DELAY_SECONDS, os.write, target, packet)

        for source, target in (ends, ends[::-1]):
            loop.add_reader(source, receive, source, target)
        is_up.set()
        loop.run_forever()


def enter_namespace(name):
    """Moves this process to a network namespace. Threads that it starts are there, too."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def open_tun(namespace, address):
    enter_namespace(namespace)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH14x", b"lossy", IFF_TUN | IFF_NO_PI))
    subprocess.run(["ip", "addr", "add", f"{address}/24", "dev", "lossy"], check=True)
    for name in ("lossy", "lo"):
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return device


class Server:
    """`selvedge run` in its namespace, with the attributes that the client of HTTP/2 needs."""

    host, plain = PROXY, PORT

    def __init__(self, binary, driver, namespace):
        self.folder = Path(tempfile.mkdtemp(prefix="selvedge-lossy-"))
        (self.folder / "selvedge.kdl").write_text(CONFIGURATION)
        environment = {**os.environ, "HOME": str(self.folder), "SELVEDGE_DRIVER": driver}
        command = ["ip", "netns", "exec", namespace, binary, "run", self.folder / "selvedge.kdl"]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        wait_until_it_listens(f"{PROXY}:{PORT}")
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        code = self.process.wait(60)
        log = (self.folder / "error.log").read_text(errors="replace")
        shutil.rmtree(self.folder)
        if kind:
            print(log[-2000:])
        else:
            assert code == 0 and not log.count(" error "), f"exit code {code}\n{log[-3000:]}"


async def upstream(reader, writer):
    """Serves GETs by number, uploads and events."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            if path == "/upload":
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                content = hashlib.sha256(await reader.readexactly(length)).hexdigest().encode()
            elif path == "/events":
                await send_events(writer)
                continue
            else:
                content = content_of(int(path[1:]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
            await writer.drain()
    writer.close()


async def send_events(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for number in range(EVENTS):
        event = b"data: %d\n\n" % number
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        await writer.drain()
        await asyncio.sleep(EVENT_SECONDS)
    writer.write(b"0\r\n\r\n")


async def exchange(connection, head, content=b""):
    """Sends a request, and returns the content of the response."""
    reader, writer = connection
    writer.write(head.encode() + b"Host: a\r\n\r\n" + content)
    received = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert received.startswith(b"http/1.1 200 "), received
    if b"content-length:" in received:
        return await reader.readexactly(int(received.split(b"content-length:")[1].split(b"\r\n")[0]))
    pieces = []
    while length := int(await reader.readuntil(b"\r\n"), 16):
        pieces.append((await reader.readexactly(length + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(pieces)


async def gets(client):
    connection = await asyncio.open_connection(PROXY, PORT)
    for number in range(client * GETS, (client + 1) * GETS):
        assert await exchange(connection, f"GET /{number} HTTP/1.1\r\n") == content_of(number), number
    connection[1].close()


async def upload(number):
    connection, content = await asyncio.open_connection(PROXY, PORT), os.urandom(UPLOAD_BYTES)
    got = await exchange(connection, f"POST /upload HTTP/1.1\r\nContent-Length: {len(content)}\r\n", content)
    assert got.decode() == hashlib.sha256(content).hexdigest(), f"upload {number}: {got}"
    connection[1].close()


async def events(_):
    connection = await asyncio.open_connection(PROXY, PORT)
    got = await exchange(connection, "GET /events HTTP/1.1\r\n")
    assert got == b"".join(b"data: %d\n\n" % number for number in range(EVENTS)), got
    connection[1].close()


async def socket(_):
    async with connect(f"ws://{PROXY}:{PORT}/socket", open_timeout=WAIT, ping_timeout=WAIT) as client:
        for number in range(MESSAGES):
            message = random.randbytes(number * 1000)
            await client.send(message)
            assert await client.recv() == message, number


def streams(server):
    """GETs at once on one connection of HTTP/2."""
    with Connection(server, "plain", seconds=WAIT) as connection:
        raise_windows(connection)
        numbers = range(1, 2 * STREAMS, 2)
        for number in numbers:
            connection.send(connection.head(number, connection.fields(f"/{number}")))
        for number in numbers:
            response = connection.response(number)
            assert (response.status(), response.content) == (200, content_of(number)), (number, response.status())


async def echo(connection):
    async for message in connection:
        await connection.send(message)


async def timed(name, work):
    began = time.monotonic()
    await work
    return f"{name} ({time.monotonic() - began:.1f} s)"


async def run_all(binary, driver, link):
    async with asyncio.timeout(WAIT), serve(echo, CLIENTS, SOCKETS_PORT):
        async with await asyncio.start_server(upstream, CLIENTS, UPSTREAM_PORT):
            with Server(binary, driver, link.names[0]) as server:
                many = lambda work, count: asyncio.gather(*(work(number) for number in range(count)))  # noqa: E731
                lines = await asyncio.gather(
                    timed(f"{GET_CLIENTS * GETS} GETs", many(gets, GET_CLIENTS)),
                    timed(f"{STREAMS} GETs on a connection of HTTP/2", asyncio.to_thread(streams, server)),
                    timed(f"{UPLOADS} uploads of {UPLOAD_BYTES:,} bytes", many(upload, UPLOADS)),
                    timed(f"{EVENT_CLIENTS} streams of {EVENTS} events", many(events, EVENT_CLIENTS)),
                    timed(f"{SOCKETS} WebSockets with {MESSAGES} messages", many(socket, SOCKETS)),
                )
    print(f"{driver}: {', '.join(lines)}: none wrong; {link.lost.value} of {link.lost.value + link.forwarded.value} packets were lost")
    assert link.lost.value > 0


def why_skipped():
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "`ip` is not installed"
    if not os.path.exists("/dev/net/tun"):
        return "the kernel has no TUN devices"
    probe = subprocess.run(["ip", "netns", "add", "selvedge-probe"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "selvedge-probe"], capture_output=True)
    return probe.stderr.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--driver", choices=DRIVERS)
    options = parser.parse_args()
    if reason := why_skipped():
        print(f"skipped: {reason}")
        return
    with Link() as link:
        enter_namespace(link.names[1])
        for driver in [options.driver] if options.driver else DRIVERS:
            asyncio.run(run_all(options.binary.resolve(), driver, link))


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
