"""WebSockets through the proxy: the library `websockets` at both ends, and Chromium over HTTP/2."""
import asyncio
import contextlib
import itertools
import json
import os
import random
import ssl
import sys

import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from clients import BROWSER, STEP_TIMEOUT, browser, free_address, run
from proxy_upstreams import Proxy

MIB = 1 << 20
CONNECTIONS = 100
MESSAGES = 10
CLOSE_CODES = [1000, 1001, 1003, 1011, 3000, 4999]
# Opens WebSockets from a page, and sends text, binary data and a long message through each.
PAGE_SCRIPT = """Promise.all([...Array(20)].map((_, number) => new Promise((done, failed) => {
    const path = number % 2 ? "/echo/" : "/h2c/echo/";
    const socket = new WebSocket(`wss://${location.host}${path}`), got = [];
    socket.binaryType = "arraybuffer";
    socket.onerror = () => failed(new Error("WebSocket " + number));
    socket.onopen = () => { socket.send("text"); socket.send(new Uint8Array(70000)); socket.send("x".repeat(1 << 20)); };
    socket.onmessage = event => {
        got.push(event.data.byteLength ?? event.data.length);
        if (got.length == 3) socket.close(4321);
    };
    socket.onclose = event => done(got.join() + " " + event.code);
}))).then(all => [...new Set(all)].join("; "))"""
PAGE_RESULT = "4,70000,1048576 4321"


async def upstream(connection):
    """Sends each message back, and closes the connection with the code in its path."""
    path, _, code = connection.request.path.partition("?")
    if code:
        await connection.close(int(code), "reason")
    elif path.endswith("/ping"):
        await (await connection.ping(b"from the upstream"))
        await connection.send("pong")
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in connection:
            await connection.send(message)


async def conversation(url, context):
    async with connect(url, ssl=context, max_size=None) as client:
        assert "permessage-deflate" in client.response.headers["Sec-WebSocket-Extensions"], client.response.headers
        for message in ["", "text", "\u00e4\u20ac", b"", b"\x00\xff", random.randbytes(MIB), "x" * MIB]:
            await client.send(message)
            assert await client.recv() == message
        for pieces in (["a", "b", "", "c"], [b"a" * 70_000, b"b" * 1000]):
            await client.send(pieces)
            assert await client.recv() == pieces[0][:0].join(pieces)
        await (await client.ping(b"from the client"))
    async with connect(url, ssl=context, compression=None) as client:
        assert "Sec-WebSocket-Extensions" not in client.response.headers
        await client.send("text")
        assert await client.recv() == "text"


async def closes(url, context, closed):
    """The code of a close reaches the other side, in both directions."""
    for code in CLOSE_CODES:
        async with connect(f"{url}?{code}", ssl=context) as client:
            try:
                await client.recv()
            except websockets.ConnectionClosed as error:
                assert (error.rcvd.code, error.rcvd.reason) == (code, "reason"), error
        async with connect(url, ssl=context) as client:
            await client.close(code, "reason")
        while (got := await closed.get()) != (code, "reason"):
            assert got[0] in (1000, *CLOSE_CODES), got
    async with connect(url, ssl=context) as client:
        client.transport.abort()
    while await closed.get() != (None, None):
        pass


async def many(url, context):
    clients = [await connect(url, ssl=context) for _ in range(CONNECTIONS)]
    for number in range(MESSAGES):
        await asyncio.gather(*(client.send(f"{number} {index}") for index, client in enumerate(clients)))
        for index, client in enumerate(clients):
            assert await client.recv() == f"{number} {index}"
    await asyncio.gather(*(client.close() for client in clients))


def echo(proxy, path):
    """An application that sends back what it gets."""

    async def messages():
        async with connect(proxy.url("plain", path).replace("http", "ws"), max_size=None) as client:
            for message in ["text", b"\x00\xff", "x" * MIB]:
                await client.send(message)
                assert await client.recv() == message

    asyncio.run(asyncio.wait_for(messages(), STEP_TIMEOUT))
    return "messages of a WebSocket"


@contextlib.contextmanager
def two_proxies(options, address):
    """Yields a proxy for the upstream, and for another proxy that it reaches over HTTP/2 without TLS."""
    with Proxy(options.binary, options.driver, echo=address) as second:
        block = f'protocol "http2"; server "http://127.0.0.1:{second.plain}"'
        with Proxy(options.binary, options.driver, echo=address, h2c=block) as first:
            yield first


async def with_websockets(proxy, address):
    host, port = address.split(":")
    closed = asyncio.Queue()

    async def recorded(connection):
        await upstream(connection)
        received = connection.protocol.close_rcvd
        closed.put_nowait((received and received.code, received and received.reason))

    trusted = ssl.create_default_context(cafile=proxy.authority)
    async with serve(recorded, host, int(port), max_size=None):
        clients = [("ws", "plain", None), ("wss", "TLS", trusted)]
        for path, (scheme, security, context) in itertools.product(["/echo/", "/h2c/echo/"], clients):
            url = proxy.url(security, path).replace("http", "ws")
            await conversation(url, context)
            async with connect(url + "ping", ssl=context) as client:
                assert await client.recv() == "pong"
            await closes(url, context, closed)
            await many(url, context)
            yield (
                f"{scheme} {path}: text, binary, pieces, compression, messages of 1 MiB, pings, {len(CLOSE_CODES)} codes of closes,"
                f" a client that breaks, {CONNECTIONS} connections at once"
            )


async def collect(proxy, address):
    async with asyncio.timeout(4 * STEP_TIMEOUT):
        return [line async for line in with_websockets(proxy, address)]


def check(options):
    address = free_address()
    with two_proxies(options, address) as proxy:
        yield from asyncio.run(collect(proxy, address))


async def in_browser(address, page, script):
    """Serves the upstream while a program uses a page of the browser."""
    host, port = address.split(":")
    async with serve(upstream, host, int(port), max_size=None):
        return json.loads(await asyncio.to_thread(run, sys.executable, "-c", BROWSER, *page, script))


def check_browser(options):
    """The browser's own log shows that its WebSockets are over HTTP/2."""
    address = free_address()
    with two_proxies(options, address) as proxy:
        log = os.path.join(proxy.folder, "chromium.json")
        arguments = ["--ignore-certificate-errors", f"--log-net-log={log}", "--net-log-capture-mode=Everything"]
        with browser(proxy.folder, arguments) as page:
            got = asyncio.run(in_browser(address, [page, proxy.url("TLS", "/hello.txt")], PAGE_SCRIPT))
        assert got == PAGE_RESULT, got
        events = open(log).read()
    assert ":protocol: websocket" in events, "no WebSocket was opened over HTTP/2"
    assert "Upgrade: websocket" not in events, "a WebSocket was opened over HTTP/1.1"
    yield "Chromium: 20 WebSockets over HTTP/2, 10 of them to an upstream with HTTP/2, with text, binary data, 1 MiB, and the code of the close"
