"""Uploads through the proxy: a large one in bounded memory, and servers that die during one."""
import asyncio
import collections
import random
import re
import subprocess
import threading
import time

from clients import STEP_TIMEOUT, free_address
from proxy_upstreams import TRANSPORTS, Proxy

GIB = 1 << 30
# A large upload may last longer than other steps.
GIB_SECONDS_MAX = 120
# The memory of the server may grow by this much during an upload.
GROWTH_MIB_MAX = 32
POSTS, POSTS_AT_ONCE = 400, 20
POST_BYTES = 200_000
# Requests within which one of the servers breaks its connection.
BROKEN_SHARE = 0.5
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Sink(asyncio.Protocol):
    """Counts the content of requests, and responds with its length."""

    def __init__(self):
        self.head, self.expected, self.received = b"", None, 0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if self.expected is None:
            self.head += data
            head, end, data = self.head.partition(b"\r\n\r\n")
            if not end:
                return
            self.expected, self.head = int(LENGTH.search(head)[1]), b""
        self.received += len(data)
        if self.received == self.expected:
            text = b"%d" % self.received
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
            self.expected, self.received = None, 0


class Loop:
    """A thread with asyncio, on which upstreams of a check run."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(STEP_TIMEOUT)

    def serve(self, protocol):
        """Returns an address that a protocol serves."""
        server = self.call(self.loop.create_server(protocol, "127.0.0.1", 0))
        return "127.0.0.1:%d" % server.sockets[0].getsockname()[1]


def check_upload(options):
    """A sparse file as an upload. The sum of all processes' memory is measured while it is sent."""
    size = options.upload * GIB
    with Loop() as loop:
        with Proxy(options.binary, options.driver, sink=loop.serve(Sink)) as proxy:
            path = proxy.sparse_file("sparse", size)
            for transport in TRANSPORTS:
                proxy.curl(transport, "/sink/", "--data-binary", "warm")
                before, highest, began = proxy.memory(), 0, time.monotonic()
                limit = str(options.upload * GIB_SECONDS_MAX)
                command = proxy.curl_command(transport, "/sink/", "-T", path, "-H", "Expect:", "--max-time", limit)
                with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
                    while client.poll() is None:
                        highest = max(highest, proxy.memory())
                        time.sleep(0.02)
                    received, error = client.stdout.read(), client.stderr.read()
                seconds = time.monotonic() - began
                assert received == b"%d" % size, (transport, received, error)
                assert highest < before + GROWTH_MIB_MAX, f"{transport}: {before:.0f} MiB became {highest:.0f} MiB"
                yield (
                    f"{size / GIB:g} GiB by {transport} in {seconds:.1f} s, memory {before:.1f} MiB before"
                    f" and {highest:.1f} MiB at most"
                )


class Counting(Sink):
    """A sink that counts the heads of requests by their target. Breaks its connection within some of the requests."""

    seen = collections.Counter()

    def __init__(self, broken_share):
        super().__init__()
        self.broken_share, self.total, self.break_at = broken_share, 0, None

    def data_received(self, data):
        for target in re.findall(rb"POST (\S+) HTTP/1.1\r\n", data):
            self.seen[target] += 1
            if random.random() < self.broken_share:
                self.break_at = self.total + random.randrange(POST_BYTES)
        super().data_received(data)
        self.total += len(data)
        if self.break_at is not None and self.total > self.break_at:
            self.transport.abort()


async def post(proxy, number, semaphore):
    """Sends a POST in pieces. Returns its status, or None if the connection ended."""
    async with semaphore:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.plain)
        head = f"POST /group/{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {POST_BYTES}\r\n\r\n"
        status = None
        try:
            writer.write(head.encode())
            for _ in range(10):
                writer.write(bytes(POST_BYTES // 10))
                await writer.drain()
                await asyncio.sleep(0)
            status = int((await reader.readuntil(b"\r\n\r\n")).split()[1])
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()
        return status


def check_dead(options):
    """Of a group, one server is not there, one breaks its connections, and one works."""
    with Loop() as loop:
        servers = [free_address(), loop.serve(lambda: Counting(BROKEN_SHARE)), loop.serve(lambda: Counting(0))]
        block = "\n".join(f'server "http://{address}"' for address in servers) + "\nfailures 1000000"
        with Proxy(options.binary, options.driver, group=block) as proxy:
            async def all_posts():
                semaphore = asyncio.Semaphore(POSTS_AT_ONCE)
                posts = (post(proxy, number, semaphore) for number in range(POSTS))
                return await asyncio.wait_for(asyncio.gather(*posts), STEP_TIMEOUT)

            statuses = collections.Counter(asyncio.run(all_posts()))
    twice = [target for target, count in Counting.seen.items() if count > 1]
    assert not twice, f"sent twice: {twice[:5]}"
    assert set(statuses) <= {200, 502, None} and statuses[200] > POSTS // 3, statuses
    assert statuses[502] + statuses[None], "no server broke a connection"
    # Repetitions are a share of the requests at work, so some fail while all of them are used.
    unsent = POSTS - len(Counting.seen)
    assert unsent < POSTS // 10, f"{unsent} reached no server"
    shown = ", ".join(f"{status or 'no response'}: {count}" for status, count in statuses.items())
    yield f"{POSTS} POSTs to a group with a dead server: {shown}; none was sent twice, {unsent} reached no server"
