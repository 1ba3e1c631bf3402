"""Event streams and WebSockets that outlive reloads. They end when a reload changes their route.

The upstream is `upstreams/upstream.go`, which broadcasts a text to all of them. A WebSocket over HTTP/1.1 needs two descriptors
of the server, one over HTTP/2 only that to the upstream, and an event stream from HTTP/2 to HTTP/2 none.
"""
import asyncio
import resource
import time

import proxy_upstreams as upstreams
from clients import STEP_TIMEOUT
from http2_server import Connection, raise_windows
from proxy_upstreams import Proxy

RELOADS = 3
STREAMS_OF_CONNECTION = 100
# Connects to one port at once.
OPENING = 100
# Descriptors of a process that are no kept streams.
RESERVED_DESCRIPTORS = 500
SOCKET_FIELDS = [
    ("sec-websocket-version", "13"), ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
]


class Kept(asyncio.Protocol):
    """An event stream or WebSocket over HTTP/1.1."""

    def __init__(self, request):
        self.request, self.received, self.is_closed, self.error = request, b"", False, None

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        self.received += data

    def connection_lost(self, error):
        self.is_closed, self.error = True, error


class OverHttp1:
    """Kept streams, each with a connection of its own."""

    def __init__(self, proxy, loop, number):
        self.loop, self.all = loop, []
        head = "GET /kept/{} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"
        fields = "".join(f"{name}: {value}\r\n" for name, value in SOCKET_FIELDS)
        requests = [head.format("stream", ""), head.format("socket", "Connection: Upgrade\r\nUpgrade: websocket\r\n" + fields)]
        loop.run_until_complete(self.open(proxy, [request.encode() for request in requests] * number))

    async def open(self, proxy, requests):
        for at in range(0, len(requests), OPENING):
            connecting = (
                self.loop.create_connection(lambda request=request: Kept(request), "127.0.0.1", proxy.plain)
                for request in requests[at : at + OPENING]
            )
            self.all += [kept for _, kept in await asyncio.wait_for(asyncio.gather(*connecting), STEP_TIMEOUT)]

    def receive(self):
        self.loop.run_until_complete(asyncio.sleep(0.05))

    def lacking(self, text):
        return sum(text not in kept.received for kept in self.all)

    def closed(self):
        return sum(kept.is_closed for kept in self.all)

    def broken(self):
        return sum(kept.error is not None for kept in self.all)

    def close(self):
        for kept in self.all:
            kept.transport.abort()
        self.receive()


class OverHttp2:
    """Kept streams, many on each connection."""

    def __init__(self, proxy, number):
        self.connections = []
        for at in range(0, 2 * number, STREAMS_OF_CONNECTION):
            connection = Connection(proxy, "plain", seconds=STEP_TIMEOUT)
            self.connections.append(connection)
            raise_windows(connection)
            connection.receive_until(lambda: connection.received is not None and connection.sent_settings_are_acknowledged)
            for stream in range(1, 2 * STREAMS_OF_CONNECTION, 2):
                if at < number:
                    connection.send(connection.head(stream, connection.fields("/http2/stream")))
                else:
                    fields = connection.fields("/kept/socket", "CONNECT", [(":protocol", "websocket"), *SOCKET_FIELDS[:1]])
                    connection.send(connection.head(stream, fields, end=False))
                connection.of(stream)

    def streams(self):
        return [response for connection in self.connections for response in connection.responses.values()]

    def receive(self):
        for connection in self.connections:
            if not connection.is_closed:
                connection.receive(0)

    def lacking(self, text):
        return sum(text not in stream.content for stream in self.streams())

    def closed(self):
        gone = sum(len(connection.responses) for connection in self.connections if connection.is_closed)
        return gone + sum(stream.is_over for connection in self.connections if not connection.is_closed
                          for stream in connection.responses.values())

    def broken(self):
        return sum(connection.is_closed and not stream.is_over
                   for connection in self.connections for stream in connection.responses.values())

    def close(self):
        for connection in self.connections:
            connection.socket.close()


def await_all(groups, condition, failure):
    end = time.monotonic() + STEP_TIMEOUT
    while not condition():
        assert time.monotonic() < end, failure()
        for group in groups:
            group.receive()


def broadcast(proxy, groups, text):
    """Each stream gets a text."""
    proxy.curl("HTTP/1.1", "/kept/broadcast", "--data-binary", text)
    lacking = lambda: sum(group.lacking(text.encode()) for group in groups)  # noqa: E731, used twice
    await_all(groups, lambda: lacking() == 0, lambda: f"{lacking()} streams did not get {text!r}")
    closed = sum(group.closed() for group in groups)
    assert closed == 0, f"{closed} streams are closed at {text!r}"


def keep(proxy, groups, number):
    """Reloads with all streams open, and then changes their routes."""
    await_all(
        groups, lambda: proxy.curl("HTTP/1.1", "/kept/count")[2] == b"%d" % number,
        lambda: f"{proxy.curl('HTTP/1.1', '/kept/count')[2]} of {number} streams are open",
    )
    broadcast(proxy, groups, "begin")
    for version in range(2, RELOADS + 2):
        proxy.configure(version)
        proxy.command("reload")
        assert proxy.curl("HTTP/1.1", "/hello.txt")[1]["x-version"] == str(version)
        broadcast(proxy, groups, f"reload {version}")
    memory = proxy.memory()
    proxy.route += " { header-up \"x-changed\" \"1\"; }"
    proxy.configure(RELOADS + 2)
    began = time.monotonic()
    proxy.command("reload")
    open_streams = lambda: number - sum(group.closed() for group in groups)  # noqa: E731, used twice
    await_all(groups, lambda: open_streams() == 0, lambda: f"{open_streams()} streams of changed routes are open")
    seconds = time.monotonic() - began
    broken = sum(group.broken() for group in groups)
    assert broken == 0, f"{broken} streams of changed routes were broken"
    await_all(groups, lambda: proxy.curl("HTTP/1.1", "/kept/count")[2] == b"0", lambda: "the upstream has open streams")
    return f"none closed by {RELOADS} reloads ({memory:.0f} MiB); all ended {seconds:.1f} s after a reload changed their routes"


def kept(options, transport, number):
    with upstreams.go() as address:
        http2 = f'protocol "http2"; server "http://{address}"'
        with Proxy(options.binary, options.driver, kept=address, http2=http2) as proxy:
            if transport == "HTTP/1.1":
                group = OverHttp1(proxy, asyncio.new_event_loop(), number)
            else:
                group = OverHttp2(proxy, number)
            line = keep(proxy, [group], 2 * number)
            group.close()
    return f"{number} event streams and {number} WebSockets over {transport}: {line}"


def check(options):
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED_DESCRIPTORS
    yield kept(options, "HTTP/1.1", min(options.kept, descriptors // 4))
    yield kept(options, "HTTP/2", min(options.kept, descriptors))
