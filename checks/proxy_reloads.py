#!/usr/bin/env python3
"""Reloads a server several times while event streams and WebSockets are open through its proxy. None may be closed.

    python3 checks/proxy_reloads.py target/release/selvedge [--connections 1000]

Half of the connections are streams of events (HTTP/1.1, chunked), the other half echo after an upgrade. The reloads change
another route of the site, and `shutdown-timeout` passes after each of them. A last reload changes the route of the
connections, which has to close the upgraded ones. The descriptor limit has to permit four for each connection.
"""
import argparse
import asyncio
import os
import resource
import signal
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from clients import free_address, wait_until_it_listens  # noqa: E402

RELOADS = 3
# Longer than `shutdown-timeout` and two sweeps.
AFTER_RELOAD_SECONDS = 2
STEP_SECONDS = 120
OPENED_AT_ONCE = 200
CONFIGURATION = """
workers 2
listen "{address}"
limits {{ shutdown-timeout "500ms"; connections-max 65536; }}
log {{ access "off"; error "error.log" level="info"; }}
site "*" {{
    route "/other" {{ respond 200 "{number}"; }}
    route "/*" {{ proxy "http://{upstream}" {{ via {via}; }}; }}
}}
"""


class Upstream:
    """Sends events to the clients of `/events`, and echoes for all others."""

    def __init__(self):
        self.subscribers = []

    async def start(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=4096)
        return "{}:{}".format(*server.sockets[0].getsockname())

    async def serve(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"/events" in head.split(b"\r\n")[0]:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                self.subscribers.append(writer)
                await reader.read()
                return
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
            while piece := await reader.read(4096):
                writer.write(piece)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def publish(self, event):
        for writer in self.subscribers:
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))


class Server:
    """`selvedge run` with the configuration of this check."""

    def __init__(self, binary, upstream):
        self.folder = Path(tempfile.mkdtemp(prefix="selvedge-proxy-reloads-"))
        self.address, self.upstream = free_address(), upstream
        self.configure(0, "#false")
        environment = {**os.environ, "HOME": str(self.folder)}
        command = [binary, "run", self.folder / "selvedge.kdl"]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until_it_listens(self.address)

    def configure(self, number, via):
        text = CONFIGURATION.format(address=self.address, upstream=self.upstream, number=number, via=via)
        (self.folder / "selvedge.kdl").write_text(text)

    async def reload(self, number, via="#false"):
        self.configure(number, via)
        self.process.send_signal(signal.SIGHUP)
        while f"configuration {number + 1}" not in (self.folder / "error.log").read_text():
            await asyncio.sleep(0.05)
        await asyncio.sleep(AFTER_RELOAD_SECONDS)

    def stop(self):
        self.process.terminate()
        code = self.process.wait(60)
        log = (self.folder / "error.log").read_text()
        shutil.rmtree(self.folder)
        assert code == 0 and "panicked" not in log, f"exit code {code}\n{log[-2000:]}"


async def open_connection(server, path, slots):
    async with slots:
        host, port = server.address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        upgrade = b"" if path == b"/events" else b"Connection: upgrade\r\nUpgrade: echo\r\n"
        writer.write(b"GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n" % (path, upgrade))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 " if path == b"/events" else b"HTTP/1.1 101 "), head
        return reader, writer


async def work(upstream, events, sockets, text):
    """Sends one event to each stream and one message on each upgraded connection. Returns how many got it."""
    upstream.publish(text)
    for _, writer in sockets:
        writer.write(text)

    async def receive(reader, expected):
        try:
            return await reader.readexactly(len(expected)) == expected
        except (asyncio.IncompleteReadError, ConnectionError):
            return False

    chunk = b"%x\r\n%s\r\n" % (len(text), text)
    received = [receive(reader, chunk) for reader, _ in events] + [receive(reader, text) for reader, _ in sockets]
    return sum(await asyncio.gather(*received))


async def check(binary, count):
    upstream = Upstream()
    server = Server(binary, await upstream.start())
    slots = asyncio.Semaphore(OPENED_AT_ONCE)
    half = count // 2
    events = await asyncio.gather(*[open_connection(server, b"/events", slots) for _ in range(half)])
    sockets = await asyncio.gather(*[open_connection(server, b"/socket", slots) for _ in range(half)])
    assert await work(upstream, events, sockets, b"begun") == 2 * half
    for number in range(1, RELOADS + 1):
        await server.reload(number)
        alive = await work(upstream, events, sockets, b"after reload %d" % number)
        print(f"reload {number}: {alive} of {2 * half} connections are open")
        assert alive == 2 * half
    await server.reload(RELOADS + 1, "#true")
    ends = await asyncio.gather(*[reader.read() for reader, _ in sockets])
    assert all(end == b"" for end in ends)
    print(f"a reload of their route closed all {half} upgraded connections")
    for _, writer in events + sockets:
        writer.close()
    server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--connections", type=int, default=1000)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(asyncio.wait_for(check(options.binary.resolve(), options.connections), STEP_SECONDS * 3))


if __name__ == "__main__":
    main()
