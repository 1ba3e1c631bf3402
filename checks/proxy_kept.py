"""Event streams and WebSockets that outlive reloads and replacements of the process. They end when a reload changes their route.

The upstream is `upstreams/upstream.go`, which broadcasts a text to all of them. A stream over HTTP/1.1 needs two descriptors of
the server. Over HTTP/2, a WebSocket needs only that to the upstream, and event streams share a few connections on both sides.
"""
import asyncio
import resource
import tempfile
import time
from pathlib import Path

import proxy_upstreams as upstreams
from clients import STEP_TIMEOUT, free_address
from http2_server import Connection, raise_windows
from proxy_upstreams import SHUTDOWN_SECONDS, Proxy

RELOADS = 3
# Event streams, and WebSockets, that replaced processes keep.
REPLACED = 200
# The server looks for connections to abort at intervals.
SWEEPS_SECONDS = 1.5
STREAMS_OF_CONNECTION = 100
# Requests at once that a worker sends to a server of HTTP/2: 16 connections, each with 100 streams.
UPSTREAM_STREAMS_MAX = 1600
# Connects to one port at once.
OPENING = 100
# Descriptors of the server that are no kept streams: its own reserve, and those of other requests.
RESERVED_DESCRIPTORS = 2800
# Connections of HTTP/2, on both sides.
CONNECTIONS_MAX = 1000
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

    def send_on_sockets(self, content):
        for kept in self.all[1::2]:
            kept.transport.write(content)

    def receive(self):
        self.loop.run_until_complete(asyncio.sleep(0.05))

    def lacking(self, text):
        return sum(text not in kept.received for kept in self.all)

    def sockets_lacking(self, content):
        return sum(content not in kept.received for kept in self.all[1::2])

    def open_streams(self):
        return sum(not kept.is_closed for kept in self.all[::2])

    def open_sockets(self):
        return sum(not kept.is_closed for kept in self.all[1::2])

    def broken(self):
        """The number of connections that were reset."""
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

    def responses(self):
        return [response for connection in self.connections for response in connection.responses.values()]

    def send_on_sockets(self, content):
        for connection in self.connections[len(self.connections) // 2 :]:
            connection.send(*(connection.data(stream, content, end=False) for stream in connection.responses))

    def receive(self):
        for connection in self.connections:
            if not connection.is_closed:
                connection.receive(0)

    def lacking(self, text):
        return sum(text not in stream.content for stream in self.responses())

    def sockets_lacking(self, content):
        sockets = self.connections[len(self.connections) // 2 :]
        return sum(content not in each.content for connection in sockets for each in connection.responses.values())

    def count_open(self, connections):
        return sum(
            not (stream.is_over or connection.is_closed)
            for connection in connections for stream in connection.responses.values()
        )

    def open_streams(self):
        return self.count_open(self.connections[: len(self.connections) // 2])

    def open_sockets(self):
        return self.count_open(self.connections[len(self.connections) // 2 :])

    def broken(self):
        """The number of connections that ended without GOAWAY."""
        return sum(connection.is_closed and connection.goaway is None for connection in self.connections)

    def close(self):
        for connection in self.connections:
            connection.socket.close()


def await_all(group, condition, failure):
    end = time.monotonic() + STEP_TIMEOUT
    while not condition():
        assert time.monotonic() < end, failure()
        group.receive()


def broadcast(proxy, group, number, text):
    """Each stream gets a text, and each WebSocket gets back what it sends."""
    echoed = f"echo of {text}".encode()
    group.send_on_sockets(echoed)
    await_all(
        group, lambda: group.sockets_lacking(echoed) == 0, lambda: f"{group.sockets_lacking(echoed)} got no echo of {text!r}"
    )
    proxy.curl("HTTP/1.1", "/kept/broadcast", "--data-binary", text)
    sought = text.encode()
    await_all(group, lambda: group.lacking(sought) == 0, lambda: f"{group.lacking(sought)} streams did not get {text!r}")
    closed = 2 * number - group.open_streams() - group.open_sockets()
    assert closed == 0, f"{closed} streams are closed at {text!r}"


def reload(proxy, version):
    proxy.configure(version)
    proxy.command("reload")
    assert proxy.curl("HTTP/1.1", "/hello.txt")[1]["x-version"] == str(version)


def keep(proxy, group, number):
    """Reloads with all streams open, and then changes their routes."""

    def count():
        return int(proxy.curl("HTTP/1.1", "/kept/count")[2])

    await_all(group, lambda: count() == 2 * number, lambda: f"{count()} of {2 * number} are open")
    broadcast(proxy, group, number, "begin")
    for version in range(2, RELOADS + 2):
        reload(proxy, version)
        broadcast(proxy, group, number, f"reload {version}")
    # A replaced configuration aborts at its timeout what it does not keep.
    after_timeout = time.monotonic() + SHUTDOWN_SECONDS + SWEEPS_SECONDS
    await_all(group, lambda: time.monotonic() > after_timeout, lambda: "the clock stands still")
    broadcast(proxy, group, number, "after the timeout")
    memory = proxy.memory()
    proxy.route += " { header-up \"x-changed\" \"1\"; }"
    began = time.monotonic()
    reload(proxy, RELOADS + 2)
    await_all(group, lambda: group.open_sockets() == 0, lambda: f"{group.open_sockets()} WebSockets of a changed route are open")
    assert group.open_streams() == number, "streams ended as soon as WebSockets"
    sockets_ended = time.monotonic() - began
    await_all(group, lambda: group.open_streams() == 0, lambda: f"{group.open_streams()} streams of a changed route are open")
    streams_ended = time.monotonic() - began
    assert group.broken() == 0, f"{group.broken()} connections of changed routes were broken"
    await_all(group, lambda: count() == 0, lambda: f"the upstream has {count()} open streams")
    return (
        f"none closed by {RELOADS} reloads ({memory:.0f} MiB); after a reload that changes their routes, the WebSockets ended"
        f" in {sockets_ended:.1f} s, the streams in {streams_ended:.1f} s"
    )


def replace(proxy, group, number):
    """Replaces the process with all streams open: by a reload that needs a new folder, and by an upgrade."""
    broadcast(proxy, group, number, "begin")
    with tempfile.TemporaryDirectory(prefix="selvedge-elsewhere-") as folder:
        site = Path(folder, "new/site")
        site.mkdir(parents=True)
        (site / "index.html").write_text("elsewhere\n")
        proxy.more.append(f'route "/elsewhere/*" {{ files root="{site}" }}')
        reload(proxy, 2)
        assert proxy.curl("HTTP/1.1", "/elsewhere/")[2] == b"elsewhere\n"
        broadcast(proxy, group, number, "after the reload")
        by_reload = len(proxy.processes()) - 2
        proxy.command("upgrade")
        broadcast(proxy, group, number, "after the upgrade")
        # A replaced process aborts at its timeout what it does not keep, and would be killed five seconds later.
        after_timeout = time.monotonic() + SHUTDOWN_SECONDS + SWEEPS_SECONDS + 6
        await_all(group, lambda: time.monotonic() > after_timeout, lambda: "the clock stands still")
        broadcast(proxy, group, number, "after the timeout")
        assert len(proxy.processes()) == 3, f"{proxy.processes()}: one replaced process has all streams"
        group.close()
        end = time.monotonic() + STEP_TIMEOUT
        while len(proxy.processes()) > 2:
            assert time.monotonic() < end, f"{len(proxy.processes()) - 2} replaced processes remain"
            time.sleep(0.05)
    # Without Landlock in the kernel, a reload needs no other process.
    return f"none closed by a reload that replaces {by_reload} process and by an upgrade; the replaced process ended with them"


def kept(options, transport, number, check):
    addresses = [free_address() for _ in range(-(-number // UPSTREAM_STREAMS_MAX))]
    with upstreams.go(*addresses) as address:
        http2 = 'protocol "http2"; ' + "".join(f'server "http://{address}";' for address in addresses)
        with Proxy(options.binary, options.driver, kept=address, http2=http2) as proxy:
            if transport == "HTTP/1.1":
                group = OverHttp1(proxy, asyncio.new_event_loop(), number)
            else:
                group = OverHttp2(proxy, number)
            line = check(proxy, group, number)
            group.close()
    return f"{number} event streams and {number} WebSockets over {transport}: {line}"


def check(options):
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED_DESCRIPTORS
    most = {"HTTP/1.1": descriptors // 4, "HTTP/2": descriptors - CONNECTIONS_MAX}
    for transport, number in most.items():
        yield kept(options, transport, min(options.kept, number), keep)
    for transport, number in most.items():
        yield kept(options, transport, min(options.kept, number, REPLACED), replace)
