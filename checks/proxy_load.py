#!/usr/bin/env python3
"""Sends GET requests through a proxy while its upstreams close connections, fail or restart.

    python3 checks/proxy_load.py target/release/selvedge [--requests NUMBER] [SCENARIO ...]

idle-close  the upstream closes idle connections after 1 s ± 0.2 s: no request fails
dead        one of three upstreams is killed: at most 3 errors after the proxy could detect it
slow        one of three upstreams is silent from then on, with a response timeout of 1 s: likewise
failing     one of three upstreams responds with 500 from then on: likewise
restart     of two upstreams one is killed and started again, four times in turn: no request fails
handover    a new upstream process takes over the port of the old one, four times: no request fails
overload    twice the requests that an upstream can do, which becomes slower the more it has: with `adaptive`, it does at
            least 95 % of its best, and less than 80 % without

Without a scenario, all run, which takes two minutes. Exits with 1 if one of them is violated. `--requests` is the number of
requests of `idle-close`, whose upstream then closes after 5 s ± 1 s: a million take half an hour.
"""
import argparse
import asyncio
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

CLIENTS = 24
# As many as two servers have at work such that all requests of one may be repeated at once.
RESTART_CLIENTS = 16
IDLE_CLIENTS = 200
IDLE_SECONDS = 30
# After how many seconds the upstream closes an idle connection, more or less by the second number.
IDLE_CLOSE, LONG_IDLE_CLOSE = (1.0, 0.2), (5.0, 1.0)
# Requests of a client in a burst, and in one of many requests.
BURST_REQUESTS, LONG_BURST_REQUESTS = 3, 20
# A client that gets no response in this time has an error.
RESPONSE_SECONDS_MAX = 15
ERRORS_AFTER_DETECTION_MAX = 3
# The third failure of a server within 10 s takes it out of a group.
FAILURES_TO_DETECT = 3
# A request that starts within this time after the third failure is not yet "after detection".
DETECTION_SECONDS = 0.1
FAULT_SECONDS = 8
RESTARTS = 4
FINE, SLOW, FAILING, POOL = range(4)
# An upstream that works on some requests at once. Each that waits for it makes all slower by the share.
POOL_PLACES, POOL_SECONDS, POOL_WAITING_SHARE = 16, 0.08, 0.01
OVERLOAD_RATE = 2 * POOL_PLACES / POOL_SECONDS
OVERLOAD_WARM_UP_SECONDS, OVERLOAD_SECONDS = 6, 10
# Names, and requests-max, queue and adaptive. The first one is the best that a fixed limit can do.
OVERLOAD_SETTINGS = [
    ("the best limit", POOL_PLACES, 100, "off"), ("a high limit", 400, 0, "off"), ("adaptive", 400, 0, "on"),
    ("adaptive with a queue", 400, 100, "on"),
]
ADAPTIVE_SHARE_MIN, UNLIMITED_SHARE_MAX = 0.95, 0.8
CONTENT = b"the content of an upstream"


def with_jitter(seconds):
    mean, jitter = seconds
    return mean + random.uniform(-jitter, jitter)


class UpstreamConnection(asyncio.Protocol):
    """A connection at an upstream. Requests have no content and are not pipelined."""

    def __init__(self, upstream, connections, idle_close):
        self.upstream, self.connections, self.idle_close = upstream, connections, idle_close
        self.head, self.timer = b"", None

    def connection_made(self, transport):
        self.transport = transport
        self.connections.add(self)
        self.upstream.accepted.value += 1

    def connection_lost(self, _):
        self.connections.discard(self)
        if self.timer:
            self.timer.cancel()

    def data_received(self, data):
        self.head += data
        if not self.head.endswith(b"\r\n\r\n"):
            return
        self.head = b""
        self.upstream.requests.value += 1
        mode = self.upstream.mode.value
        if mode == SLOW:
            return
        if mode == POOL:
            asyncio.get_running_loop().create_task(self.respond_from_pool())
            return
        self.respond(mode)

    async def respond_from_pool(self):
        pool = self.upstream.pool
        pool.requests += 1
        async with pool.places:
            waiting = max(pool.requests - POOL_PLACES, 0)
            await asyncio.sleep(POOL_SECONDS * (1 + waiting * POOL_WAITING_SHARE))
        pool.requests -= 1
        self.respond(FINE)

    def respond(self, mode):
        status = b"500 Internal Server Error" if mode == FAILING else b"200 OK"
        self.transport.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(CONTENT), CONTENT))
        if self.idle_close:
            if self.timer:
                self.timer.cancel()
            self.timer = asyncio.get_running_loop().call_later(with_jitter(self.idle_close), self.transport.close)


class Pool:
    """The requests of an upstream that works on some of them at once."""

    def __init__(self):
        self.requests, self.places = 0, asyncio.Semaphore(POOL_PLACES)


class Upstream:
    """A process that listens on a port of its own. Counters and the mode are shared with it."""

    def __init__(self, idle_close=None):
        self.idle_close = idle_close
        self.mode, self.requests, self.accepted = (multiprocessing.Value("q", 0, lock=False) for _ in range(3))
        # Bound and not listening: keeps the port while no process serves it.
        self.reserved = listener(0)
        self.port = self.reserved.getsockname()[1]
        self.process = self.start()

    def start(self):
        """Starts another process on the port, and returns it when it listens."""
        listens = multiprocessing.Event()
        process = multiprocessing.Process(target=lambda: asyncio.run(self.serve(listens)), daemon=True)
        process.start()
        if not listens.wait(20):
            sys.exit("an upstream does not start")
        return process

    async def serve(self, listens):
        self.pool = Pool()
        loop, stopped, connections = asyncio.get_running_loop(), asyncio.Event(), set()
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
        server = await loop.create_server(
            lambda: UpstreamConnection(self, connections, self.idle_close), sock=listener(self.port), backlog=1024
        )
        listens.set()
        await stopped.wait()
        server.close()
        for connection in list(connections):
            connection.transport.close()
        await asyncio.sleep(0.1)  # bytes that are not sent yet

    def kill(self):
        self.process.kill()
        self.process.join()

    def close(self):
        self.kill()
        self.reserved.close()


def listener(port):
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


class Proxy:
    """The measured server, with a group of upstreams."""

    def __init__(self, binary, upstreams, settings):
        self.folder = tempfile.mkdtemp()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        servers = "".join(f'    server "http://127.0.0.1:{upstream.port}"\n' for upstream in upstreams)
        self.process = self.run(binary, servers, settings)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the server does not start: {self.log()}")
                time.sleep(0.02)

    def run(self, binary, servers, settings):
        path = os.path.join(self.folder, "selvedge.kdl")
        with open(path, "w") as configuration:
            configuration.write(
                f'workers 2\nlisten "127.0.0.1:{self.port}"\nlog {{\n    access "off"\n}}\n'
                f'upstream "application" {{\n{servers}{settings}}}\n'
                'site "*" {\n    route "/*" {\n        proxy "application"\n    }\n}\n'
            )
        with open(os.path.join(self.folder, "log"), "wb") as log:
            return subprocess.Popen([binary, "run", "--config", path], stdout=log, stderr=log)

    def log(self):
        with open(os.path.join(self.folder, "log")) as log:
            return "".join(log.readlines()[-5:])

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder)


class Load:
    """Clients with keep-alive connections. `errors` has the start, end and reason of each failed request."""

    def __init__(self, port, clients, requests_at_once, pause):
        self.port, self.requests_at_once, self.pause = port, requests_at_once, pause
        self.completed, self.errors, self.is_over = 0, [], False
        self.tasks = [asyncio.create_task(self.client()) for _ in range(clients)]

    async def client(self):
        writer = None
        while not self.is_over:
            for _ in range(self.requests_at_once):
                started = time.monotonic()
                try:
                    async with asyncio.timeout(RESPONSE_SECONDS_MAX):
                        if writer is None:
                            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                        closes = await self.get(reader, writer)
                    self.completed += 1
                except (OSError, EOFError, ValueError, TimeoutError) as error:
                    self.errors.append((started, time.monotonic(), f"{type(error).__name__} {error}"))
                    closes = True
                if closes and writer:
                    writer.close()
                    writer = None
            await asyncio.sleep(self.pause())
        if writer:
            writer.close()

    async def get(self, reader, writer):
        """Sends a request. Returns whether the connection is to be closed after its response."""
        writer.write(b"GET /path HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        content = await reader.readexactly(length)
        if not head.startswith(b"http/1.1 200 ") or content != CONTENT:
            raise ValueError(head.split(b"\r\n")[0].decode())
        return b"connection: close" in head

    async def stop(self):
        self.is_over = True
        await asyncio.gather(*self.tasks)


def reasons(errors):
    counts = {}
    for _, _, reason in errors:
        counts[reason] = counts.get(reason, 0) + 1
    return ", ".join(f"{count} of {reason!r}" for reason, count in counts.items()) or "none"


def steady_load(port, clients=CLIENTS):
    return Load(port, clients, 1, lambda: 0.002)


class Bursts:
    """Pauses of clients that all send at once, so that many connections are as old as the upstream permits."""

    def __init__(self, pause):
        self.pause, self.next = pause, time.monotonic()

    def until_next(self):
        now = time.monotonic()
        if self.next <= now:
            self.next = now + with_jitter(self.pause)
        return self.next - now


async def idle_close(binary, upstreams, requests):
    """Without a number of requests, the clients send for some seconds."""
    proxy = Proxy(binary, upstreams, "")
    try:
        mean, jitter = upstreams[0].idle_close
        bursts = Bursts((mean, jitter * 1.5))
        load = Load(proxy.port, IDLE_CLIENTS, LONG_BURST_REQUESTS if requests else BURST_REQUESTS, bursts.until_next)
        end = time.monotonic() + IDLE_SECONDS
        while load.completed + len(load.errors) < requests if requests else time.monotonic() < end:
            await asyncio.sleep(0.1)
        await load.stop()
    finally:
        proxy.close()
    accepted = upstreams[0].accepted.value
    # Without reuse, no request could meet a connection that is being closed.
    is_reused = accepted < load.completed * 0.8
    return (
        f"{load.completed} requests over {accepted} upstream connections, errors: {reasons(load.errors)}",
        not load.errors and is_reused,
    )


async def one_of_three(binary, upstreams, inject):
    settings = '    failures 3 per="10s" eject="3s"\n    response-timeout "1s"\n'
    proxy = Proxy(binary, upstreams, settings)
    try:
        load = steady_load(proxy.port)
        await asyncio.sleep(1.5)
        before = [upstream.requests.value for upstream in upstreams]
        errors_before = len(load.errors)
        inject(upstreams[0])
        await asyncio.sleep(FAULT_SECONDS / 2)
        middle = load.completed
        await asyncio.sleep(FAULT_SECONDS / 2)
        late = load.completed - middle
        await load.stop()
    finally:
        proxy.close()
    ends = sorted(end for _, end, _ in load.errors)
    detected = ends[FAILURES_TO_DETECT - 1] + DETECTION_SECONDS if len(ends) >= FAILURES_TO_DETECT else None
    after = [error for error in load.errors if detected and error[0] > detected]
    return (
        f"{load.completed} requests ({late} in the last {FAULT_SECONDS / 2:.0f} s), {before} at the upstreams before; "
        f"{len(after)} errors after detection; all errors: {reasons(load.errors)}",
        not errors_before and min(before) > 0 and late > 0 and len(after) <= ERRORS_AFTER_DETECTION_MAX,
    )


async def restart(binary, upstreams):
    for upstream in upstreams:
        # Half of the clients wait for the upstream that is killed.
        upstream.mode.value = POOL
    proxy = Proxy(binary, upstreams, '    failures 3 per="10s" eject="1s"\n')
    try:
        load = steady_load(proxy.port, RESTART_CLIENTS)
        await asyncio.sleep(1)
        for number in range(RESTARTS):
            upstream = upstreams[number % 2]
            upstream.kill()
            await asyncio.sleep(0.7)
            upstream.process = await asyncio.to_thread(upstream.start)
            # Longer than the server is out of the group, also the second time.
            await asyncio.sleep(3)
        await load.stop()
    finally:
        proxy.close()
    return f"{load.completed} requests, errors: {reasons(load.errors)}", not load.errors and load.completed > 0


async def handover(binary, upstreams):
    proxy, upstream = Proxy(binary, upstreams, ""), upstreams[0]
    try:
        load = steady_load(proxy.port)
        for _ in range(RESTARTS):
            await asyncio.sleep(1)
            new = await asyncio.to_thread(upstream.start)
            upstream.process.terminate()
            await asyncio.to_thread(upstream.process.join)
            upstream.process = new
        await asyncio.sleep(1)
        await load.stop()
    finally:
        proxy.close()
    return f"{load.completed} requests, errors: {reasons(load.errors)}", not load.errors and load.completed > 0


class Arrivals:
    """Requests that arrive at a rate, whether or not earlier ones have a response. Clients keep their connections."""

    def __init__(self, port, rate):
        self.port, self.idle, self.statuses, self.sent = port, [], [], 0
        self.task = asyncio.create_task(self.send(rate))

    async def send(self, rate):
        began, tasks = time.monotonic(), set()
        try:
            while True:
                while self.sent < (time.monotonic() - began) * rate:
                    self.sent += 1
                    task = asyncio.create_task(self.request())
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                await asyncio.sleep(0.005)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def request(self):
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(b"GET /path HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        except BaseException:
            writer.close()
            raise
        self.statuses.append(int(head.split()[1]))
        if b"connection: close" in head:
            writer.close()
        else:
            self.idle.append((reader, writer))

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        for _, writer in self.idle:
            writer.close()


async def pool_rate(binary, upstream, settings):
    """Returns the responses with 200 per second."""
    proxy = Proxy(binary, [upstream], settings)
    try:
        arrivals = Arrivals(proxy.port, OVERLOAD_RATE)
        await asyncio.sleep(OVERLOAD_WARM_UP_SECONDS)
        before, began = len(arrivals.statuses), time.monotonic()
        await asyncio.sleep(OVERLOAD_SECONDS)
        statuses, seconds = arrivals.statuses[before:], time.monotonic() - began
        await arrivals.stop()
    finally:
        # A stop takes a second, and the other runs still measure.
        await asyncio.to_thread(proxy.close)
    assert set(statuses) == {200, 503}, set(statuses)
    return statuses.count(200) / seconds


async def overload(binary, upstreams):
    """All settings at once, so that each has as much of the machine as the others."""
    runs = []
    for upstream, (_, requests_max, queue, mode) in zip(upstreams, OVERLOAD_SETTINGS):
        upstream.mode.value = POOL
        settings = f'    requests-max {requests_max} queue={queue}\n    adaptive "{mode}"\n'
        runs.append(pool_rate(binary, upstream, settings))
    best, high, *adaptive = rates = await asyncio.gather(*runs)
    report = ", ".join(f"{name} {rate:.0f} ({100 * rate / best:.1f} %)" for (name, *_), rate in zip(OVERLOAD_SETTINGS, rates))
    holds = high < best * UNLIMITED_SHARE_MAX and min(adaptive) >= best * ADAPTIVE_SHARE_MIN
    return f"of {OVERLOAD_RATE:.0f} requests per second: {report}", holds


def set_mode(mode):
    def inject(upstream):
        upstream.mode.value = mode

    return inject


# The name, the function, the number of upstreams, and arguments.
SCENARIOS = {
    "idle-close": (idle_close, 1),
    "dead": (one_of_three, 3, Upstream.kill),
    "slow": (one_of_three, 3, set_mode(SLOW)),
    "failing": (one_of_three, 3, set_mode(FAILING)),
    "restart": (restart, 2),
    "handover": (handover, 1),
    "overload": (overload, len(OVERLOAD_SETTINGS)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--requests", type=int, default=0, metavar="NUMBER", help="the number of requests of idle-close")
    options = parser.parse_intermixed_args()
    if not set(options.scenarios) <= set(SCENARIOS):
        parser.error(f"the scenarios are {', '.join(SCENARIOS)}")
    failed = False
    for name in options.scenarios or SCENARIOS:
        scenario, count, *arguments = SCENARIOS[name]
        upstream_idle_close = None
        if name == "idle-close":
            arguments, upstream_idle_close = [options.requests], LONG_IDLE_CLOSE if options.requests else IDLE_CLOSE
        upstreams = [Upstream(upstream_idle_close) for _ in range(count)]
        began = time.monotonic()
        try:
            report, holds = asyncio.run(scenario(options.binary, upstreams, *arguments))
        finally:
            for upstream in upstreams:
                upstream.close()
        failed |= not holds
        print(f"{name}: {'holds' if holds else 'VIOLATED'}: {report} ({time.monotonic() - began:.0f} s)", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
