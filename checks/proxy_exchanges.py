"""Exchanges through the proxy in which the order of events matters, and the scripts of the upstream for them.

Each step waits for the step before it, on the other side of the proxy. So a proxy that buffers what it should forward
makes a check end by its timeout, and no check depends on the speed of the machine.
"""
import contextlib
import hashlib
import json
import queue
import random
import re
import tempfile
import threading
import time

from proxy_client import WAIT, Client, Incomplete, fetch_over_http2

UPLOAD_SIZES = [0, 1, 100, 16_383, 16_384, 65_537, 1_000_000, 8 << 20]
EARLY_BYTES = 64 << 20
RACES = 100
EVENTS = 5
# More than all buffers between an upstream and a client that does not read.
BUFFERED_BYTES_MAX = 48 << 20
EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"

# What the scripts and the checks tell each other.
GO, DONE = queue.Queue(), queue.Queue()


def await_item(items):
    return items.get(timeout=WAIT)


def echo(upstream, message):
    """Responds with the request."""
    upstream.read(message)
    text = {
        "method": message.method,
        "target": message.target,
        "fields": [[name.decode(), value.decode("latin-1")] for name, value in message.fields],
        "trailers": [[name.decode(), value.decode("latin-1")] for name, value in message.trailers],
        "length": len(message.content),
        "sha256": hashlib.sha256(message.content).hexdigest(),
    }
    upstream.respond(json.dumps(text).encode())


def keep(upstream, message):
    upstream.read(message)
    upstream.respond()


def race(upstream, message):
    """Responds to the first request of a connection, and ends it when the second one arrives."""
    upstream.read(message)
    if upstream.requests == 1:
        upstream.respond()
    elif upstream.number % 2:
        upstream.close_sending()
    else:
        upstream.reset()


def fin(upstream, message):
    """Ends the connection behind a response that does not announce it."""
    upstream.read(message)
    upstream.respond()
    upstream.close_sending()
    DONE.put(upstream.number)


def chatter(upstream, message):
    """Sends a second response to one request, when the first one has arrived."""
    upstream.read(message)
    upstream.respond()
    await_item(GO)
    upstream.send(EVIL)
    DONE.put(upstream.number)


def silent(upstream, message):
    upstream.read(message)
    DONE.put(upstream.await_end())
    upstream.is_over = True


def stall(upstream, message):
    upstream.read(message)
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegin")
    DONE.put(upstream.await_end())
    upstream.is_over = True


def count_pieces(upstream, message):
    """Reports each piece of content as it arrives."""
    for piece in upstream.pieces(message):
        DONE.put(len(piece))
    upstream.respond()


def early(upstream, message):
    """Refuses the content of a request before it reads it."""
    upstream.respond(b"too large", "413 Content Too Large", ["Connection: close"])
    upstream.close_sending()
    with contextlib.suppress(Exception):
        for _ in upstream.pieces(message):
            pass
    upstream.is_over = True


def duplex(upstream, message):
    """Begins the response before it reads the content, and ends it with what it has read."""
    upstream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n")
    upstream.read(message)
    upstream.send(b"8\r\n%s\r\n0\r\n\r\n" % message.content)


def events(upstream, message):
    upstream.read(message)
    upstream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for number in range(EVENTS):
        await_item(GO)
        event = b"data: %d\n\n" % number
        upstream.send(b"%x\r\n%s\r\n" % (len(event), event))
    upstream.send(b"0\r\n\r\n")


def trailers(upstream, message):
    upstream.read(message)
    upstream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n")


def hints(upstream, message):
    upstream.read(message)
    upstream.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    await_item(GO)
    upstream.respond(b"ok")


def endless(upstream, message):
    """Sends chunks until the connection ends. Reports how many bytes were sent."""
    upstream.read(message)
    upstream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    while True:
        upstream.send(chunk)
        upstream.sent += len(chunk)


def upgrade(upstream, message):
    """Switches protocols and echoes. Sends `bye` when the other side has ended."""
    upstream.read(message)
    assert message.get("upgrade") == "test", message
    upstream.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: test\r\nX: y\r\n\r\n")
    upstream.is_over = True
    while received := upstream.stream.recv(65536):
        upstream.send(received)
    upstream.send(b"bye")


SCRIPTS = {
    "": keep,
    "chatter": chatter,
    "count": count_pieces,
    "duplex": duplex,
    "early": early,
    "echo": echo,
    "endless": endless,
    "events": events,
    "fin": fin,
    "hints": hints,
    "race": race,
    "silent": silent,
    "stall": stall,
    "trailers": trailers,
    "upgrade": upgrade,
}


def fields(proxy, _backend):
    """Fields of the client's connection and forged ones do not reach the upstream."""
    sent = [
        "Connection: keep-alive, X-Hop, Cookie, Authorization, X-Forwarded-For, Host",
        "X-Hop: 1", "Cookie: a=b", "Authorization: Basic eDp5", "Keep-Alive: 5", "Proxy-Connection: x", "Proxy: http://evil",
        "X-Forwarded-For: 1.1.1.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil", "Forwarded: for=1.1.1.1",
        "X_Forwarded_For: 1.1.1.1", "X.Y: 1", "X-Real-IP: 1.1.1.1", "X-Request-Id: forged", "TE: gzip", "X-Kept: \xe9 x",
    ]
    with Client(proxy.address) as client:
        response = client.exchange("GET", "/echo?a=%2f..%2F;b[]=\"<>", sent)
    request = json.loads(response.body)
    assert request["target"] == "/echo?a=%2f..%2F;b[]=\"<>", request
    ids = [value for name, value in request["fields"] if name == "x-request-id"]
    assert len(ids) == 1 and len(ids[0]) == 32, request
    vias = [value for name, value in request["fields"] if name == "via"]
    assert len(vias) == 1 and re.fullmatch("1.1 selvedge-[0-9a-f]{8}", vias[0]), request
    own = ("x-request-id", "via")
    assert sorted((name, value) for name, value in request["fields"] if name not in own) == sorted([
        ("host", "127.0.0.1"), ("cookie", "a=b"), ("authorization", "Basic eDp5"), ("x-kept", "\xe9 x"),
        ("x-forwarded-for", "127.0.0.1"), ("x-forwarded-proto", "http"), ("x-forwarded-host", "127.0.0.1"),
    ]), request
    request = json.loads(fetch_over_http2(proxy.address, "GET", "/echo", "-H", "TE: trailers", "-H", "X-A: b").body)
    names = {name: value for name, value in request["fields"]}
    assert names["host"] == proxy.address and names["x-a"] == "b" and names["te"] == "trailers", request
    print("fields: those of the connection and forged ones are dropped, all others arrive")


def races(proxy, backend):
    """A connection that ends while it is idle, or as a request arrives, costs no GET, and no POST is sent twice."""
    failed = 0
    with Client(proxy.address) as client:
        for number in range(RACES):
            assert client.exchange("GET", f"/race?{number}").status == 200, f"GET {number}"
        for number in range(RACES):
            path = f"/race?post-{number}"
            response = client.exchange("POST", path, content=b"x")
            assert response.is_complete and response.status in (200, 502), response
            failed += response.status == 502
            assert backend.await_messages(path, 1) == 1, f"{path} was sent again"
        for number in range(RACES):
            response = client.exchange("POST", "/fin", content=b"x")
            assert response.status == 200, f"the connection had ended before POST {number}: {response}"
            await_item(DONE)
        for _ in range(10):
            assert client.exchange("GET", "/chatter").status == 200
            GO.put(True)
            number = await_item(DONE)
            response = client.exchange("GET", "/keep")
            assert response.status == 200 and response.body == b"", response
            assert response.get("x-connection") != str(number), "a connection with unexpected bytes is used again"
    print(f"races: no GET failed, {failed} of {RACES} POSTs failed, none was sent twice")


def timeouts(proxy, backend):
    with Client(proxy.address) as client:
        response = client.exchange("POST", "/silent", content=b"x")
        assert response.status == 504 and response.is_complete, response
        assert backend.await_messages("/silent", 1) == 1
        assert await_item(DONE), "the proxy keeps the connection"
    with Client(proxy.address) as client:
        response = client.exchange("GET", "/stall")
        assert response.status == 200 and response.body == b"begin" and not response.is_complete, response
        assert await_item(DONE), "the proxy keeps the connection"
    print("timeouts: 504 without a response, an abort without content, each connection closed")


def chunked(content, seed):
    """Returns content in chunks of many sizes."""
    random_size, at, out = random.Random(seed), 0, bytearray()
    while at < len(content):
        size = random_size.choice([1, 15, 16, 255, 4096, 65_536, 300_000])
        piece = content[at : at + size]
        out += b"%x\r\n%s\r\n" % (len(piece), piece)
        at += size
    return bytes(out + b"0\r\n\r\n")


def uploads(proxy, _backend):
    for size in UPLOAD_SIZES:
        content = random.Random(size).randbytes(size)
        expected = {"length": size, "sha256": hashlib.sha256(content).hexdigest()}.items()
        with Client(proxy.address) as client:
            for method in ("POST", "PUT"):
                request = json.loads(client.exchange(method, "/echo", content=content).body)
                assert expected <= request.items(), (method, request)
                coding = ["Transfer-Encoding: chunked"]
                request = json.loads(client.exchange(method, "/echo", coding, chunked(content, size)).body)
                assert expected <= request.items(), (method, request)
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            response = fetch_over_http2(proxy.address, "POST", "/echo", "--data-binary", f"@{file.name}")
            assert expected <= json.loads(response.body).items(), response
        response = fetch_over_http2(proxy.address, "POST", "/echo", content=content)
        assert expected <= json.loads(response.body).items(), response
    with Client(proxy.address) as client:
        client.stream.sendall(b"POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(10):
            client.stream.sendall(b"3e8\r\n" + bytes(1000) + b"\r\n")
            received = 0
            while received < 1000:
                received += await_item(DONE)
        client.stream.sendall(b"0\r\n\r\n")
        assert client.receive().status == 200
    print(f"uploads: up to {UPLOAD_SIZES[-1]} bytes, and each chunk arrives before the next one is sent")


def early_responses(proxy, _backend):
    content = random.Random(1).randbytes(EARLY_BYTES)

    def send(client, path):
        with contextlib.suppress(OSError):
            client.send("POST", path, content=content)

    with Client(proxy.address) as client:
        sender = threading.Thread(target=send, args=(client, "/early"))
        sender.start()
        response = client.receive()
        client.stream.shutdown(2)
        sender.join(WAIT)
    assert response.status == 413 and response.body == b"too large", response
    with Client(proxy.address) as client:
        client.send("POST", "/duplex", ["Content-Length: 8"])
        while b"early" not in client.received:
            client.more()
        client.stream.sendall(b"contents")
        response = client.receive()
        assert response.body == b"earlycontents" and response.is_complete, response
    print("early: a response before the end of an upload arrives at once, and both go on")


def streams(proxy, backend):
    with Client(proxy.address) as client:
        client.send("GET", "/events")
        for number in range(EVENTS):
            GO.put(True)
            expected = b"data: %d\n\n" % number
            while expected not in client.received:
                client.more()
    with Client(proxy.address) as client:
        response = client.exchange("GET", "/trailers", ["TE: trailers", "Connection: TE"])
        assert response.body == b"ok" and response.trailers == [("x-sum", "1")], response
        client.send("GET", "/hints")
        while b"103 Early Hints\r\n" not in client.received:
            client.more()
        GO.put(True)
        response = client.receive()
        assert response.interim == [(103, [("link", "</a>")])] and response.body == b"ok", response
    with Client(proxy.address) as client:
        client.send("GET", "/endless")
        while len(client.received) < 1 << 20:
            client.more()
        number, _ = backend.messages[-1]
    assert backend.is_closed(number), "the client has left, but the upstream still sends"
    print("streams: events, trailers and interim responses arrive at once, a client that leaves ends its exchange")


def bounds(proxy, backend):
    """A client that does not read makes the upstream wait."""
    with Client(proxy.address) as client:
        client.send("GET", "/endless")
        client.more()
        number, _ = backend.messages[-1]
        upstream, before, since = backend.open[number], -1, time.monotonic()
        while time.monotonic() - since < 1:
            if upstream.sent != before:
                before, since = upstream.sent, time.monotonic()
            assert before < BUFFERED_BYTES_MAX, f"{before} bytes are buffered"
            time.sleep(0.05)
        with contextlib.suppress(Incomplete):
            while len(client.received) < before + (1 << 20):
                client.more()
        assert len(client.received) > before, "the response ended"
    print(f"bounds: {before >> 10} KiB are buffered for a client that does not read")


def tunnels(proxy, backend):
    offer = ["Connection: Upgrade", "Upgrade: test"]
    content = random.Random(2).randbytes(4 << 20)
    with Client(proxy.address) as client:
        client.send("GET", "/upgrade", offer)
        response = client.receive()
        assert response.status == 101 and response.get("upgrade") == "test" and response.get("x") == "y", response

        def send():
            client.stream.sendall(content)
            client.stream.shutdown(1)

        sender = threading.Thread(target=send)
        sender.start()
        with contextlib.suppress(Incomplete):
            while True:
                client.more()
        sender.join(WAIT)
        assert client.received == content + b"bye", f"{len(client.received)} bytes"
    with Client(proxy.address) as client:
        client.send("GET", "/upgrade", offer)
        assert client.receive().status == 101
        number, _ = backend.messages[-1]
    assert backend.is_closed(number), "the client has left, but the tunnel is open"
    print(f"tunnels: {len(content)} bytes in both directions at once, and each end is forwarded")


CHECKS = {
    "fields": fields,
    "races": races,
    "timeouts": timeouts,
    "uploads": uploads,
    "early": early_responses,
    "streams": streams,
    "bounds": bounds,
    "tunnels": tunnels,
}
