#!/usr/bin/env python3
"""Runs the applications of other people behind the proxy, with clients of HTTP/1.1 and HTTP/2, with TLS and without.

    python3 checks/proxy_peers.py target/release/selvedge [--grpc PATH] [--upload SIZE] [--kept NUMBER] [CHECK ...]

The checks: `nginx`, `uvicorn`, `gunicorn`, `node`, `go` (the exchanges of each transport, events, clients that leave, and
connections that end while they are idle), `station` (gRPC: the example `grpc` on tonic, and grpcio), `websockets`,
`browser` (Chromium opens WebSockets over HTTP/2), `upload` (the memory during a large one), `dead` (a group with a dead
server gets no POST twice) and `kept` (streams and WebSockets that outlive reloads).

curl, nginx, node, go and chromium must be installed; the packages of Python are installed from their registry into
target/. `--grpc` is the program of the example; without it, only grpcio is the upstream of `station`.
"""
import argparse
import asyncio
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from clients import STEP_TIMEOUT, run
from proxy_packages import run_with_packages

run_with_packages()

import proxy_kept  # noqa: E402, the packages must be installed
import proxy_station  # noqa: E402
import proxy_uploads  # noqa: E402
import proxy_websockets  # noqa: E402
import proxy_upstreams as upstreams  # noqa: E402
from http2_server import Connection  # noqa: E402
from php_site import wait_for  # noqa: E402
from proxy_client import Client  # noqa: E402
from proxy_upstreams import TRANSPORTS, Proxy  # noqa: E402

ECHO_SIZES = [0, 1, 70_000, 3_000_000]
# A client that leaves ends the request at the upstream within this time.
LEAVE_SECONDS_MAX = 1.0
EVENTS = 5
# A comment that each application sends before its events.
OPEN = b": open\n\n"
# Connections of clients whose requests meet the end of idle connections, and their requests.
IDLE_CLIENTS, IDLE_ROUNDS = 100, 2
IDLE_JITTER_SECONDS = 0.1
NGINX = """
server {
    listen ADDRESS; root ROOT; keepalive_requests 10; client_max_body_size 1m; gzip on; gzip_proxied any; gzip_types text/plain;
    gzip_min_length 1000; gzip_http_version 1.0;
    location /slow/ { alias ROOT/; limit_rate 2m; }
}
"""
# Another proxy between the client and this one, which forwards by HTTP/1.0.
NGINX_IN_FRONT = "server { listen ADDRESS; location / { proxy_pass http://PROXY; proxy_set_header Host localhost; } }"


def exchanges(proxy, name):
    """The exchanges of each application with each transport."""
    for transport in TRANSPORTS:
        for _ in range(2):
            status, _, content = proxy.curl(transport, f"/{name}/hello")
            assert (status, content) == (200, b"hello\n"), (transport, status, content)
        status, _, content = proxy.curl(transport, f"/{name}/hello", "--head")
        assert status == 200, (transport, "HEAD", status)
        for size in ECHO_SIZES:
            sent = random.Random(size).randbytes(size)
            for framing in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"]):
                arguments = ["--data-binary", "@-", "-H", "Content-Type: x/y", *framing]
                status, _, content = proxy.curl(transport, f"/{name}/echo", *arguments, input=sent)
                assert status == 200 and content == sent, (transport, framing, size, status, len(content))
        status = proxy.refused_upload(transport, f"/{name}/refuse", proxy.refused)
        assert status == 403, (transport, "a refused upload", status)
    return f"GET, HEAD, uploads up to {ECHO_SIZES[-1]} bytes, and early responses, with {len(TRANSPORTS)} transports"


def events(proxy, name):
    """Each event is published when the one before has arrived."""
    slowest = 0
    for transport in TRANSPORTS:
        command = proxy.curl_command(transport, f"/{name}/events", "-N", "--max-time", str(STEP_TIMEOUT))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            try:
                assert client.stdout.read(len(OPEN)) == OPEN, transport
                for number in range(EVENTS):
                    began = time.monotonic()
                    proxy.curl("HTTP/1.1", f"/{name}/publish", "--data-binary", str(number))
                    assert client.stdout.readline() == b"data: %d\n" % number, transport
                    assert client.stdout.readline() == b"\n", transport
                    slowest = max(slowest, time.monotonic() - began)
            finally:
                client.kill()
    return f"{EVENTS} events arrive one by one, the slowest {slowest * 1000:.0f} ms after its publication"


def leave(proxy, name):
    """A client that leaves ends the request at the upstream."""
    slowest, before = 0, int(proxy.curl("HTTP/1.1", f"/{name}/left")[2])
    for number, transport in enumerate(TRANSPORTS, before + 1):
        command = proxy.curl_command(transport, f"/{name}/wait", "-N", "--max-time", str(STEP_TIMEOUT))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            assert client.stdout.readline() == b"begin\n", transport
            client.kill()
        began = time.monotonic()
        while proxy.curl("HTTP/1.1", f"/{name}/left")[2] != b"%d" % number:
            assert time.monotonic() - began < LEAVE_SECONDS_MAX, f"{transport}: the upstream still works for a client that left"
        slowest = max(slowest, time.monotonic() - began)
    return f"a client that leaves ends the request in at most {slowest:.2f} s"


async def get_at_intervals(proxy, path, seconds):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.plain)
    statuses = []
    for number in range(IDLE_ROUNDS + 1):
        if number:
            await asyncio.sleep(seconds + random.uniform(-IDLE_JITTER_SECONDS, IDLE_JITTER_SECONDS))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        statuses.append(int(head.split()[1]))
        # Applications respond with a length or one chunk.
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await (reader.readexactly(int(length[0].split()[1])) if length else reader.readuntil(b"0\r\n\r\n"))
    writer.close()
    return statuses


def idle(proxy, path, seconds):
    """GETs with pauses around the time after which the upstream closes idle connections."""

    async def all_clients():
        clients = (get_at_intervals(proxy, path, seconds) for _ in range(IDLE_CLIENTS))
        return await asyncio.wait_for(asyncio.gather(*clients), STEP_TIMEOUT)

    statuses = [status for client in asyncio.run(all_clients()) for status in client]
    assert set(statuses) == {200}, f"{path}: {len(statuses) - statuses.count(200)} of {len(statuses)} GETs failed"
    return f"{len(statuses)} GETs with pauses of {seconds} s ± {IDLE_JITTER_SECONDS} s, none failed"


def nginx(options):
    text = b"".join(b"line %d\n" % number for number in range(5000))
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        Path(root, "text.txt").write_bytes(text)
        Path(root, "folder").mkdir()
        Path(root, "large.bin").write_bytes(bytes(3_000_000))
        with upstreams.nginx(NGINX.replace("ROOT", root)) as address:
            with Proxy(options.binary, options.driver, nginx=address) as proxy:
                yield nginx_exchanges(proxy, text)
                yield behind_nginx(proxy, text)


def nginx_exchanges(proxy, text):
    for transport in TRANSPORTS:
        for _ in range(12):
            status, fields, content = proxy.curl(transport, "/nginx/text.txt")
            assert (status, content) == (200, text), (transport, status)
        assert proxy.curl(transport, "/nginx/text.txt", "-H", f"If-None-Match: {fields['etag']}")[0] == 304, transport
        status, partial, content = proxy.curl(transport, "/nginx/text.txt", "-r", "5-9")
        assert (status, content) == (206, text[5:10]) and partial["content-range"] == f"bytes 5-9/{len(text)}", partial
        status, fields, content = proxy.curl(transport, "/nginx/text.txt", "--compressed")
        assert (status, content) == (200, text) and fields["content-encoding"] == "gzip", fields
        assert len(proxy.curl(transport, "/nginx/slow/large.bin")[2]) == 3_000_000, transport
        assert proxy.curl(transport, "/nginx/none")[0] == 404, transport
        assert proxy.curl(transport, "/nginx/folder")[0] == 301, transport
        status = proxy.refused_upload(transport, "/nginx/text.txt", proxy.refused)
        assert status == 413, (transport, "content above the limit of nginx", status)
    return f"files, ranges, gzip, 304, 404, 301 and 413 with {len(TRANSPORTS)} transports"


def behind_nginx(proxy, text):
    with upstreams.nginx(NGINX_IN_FRONT.replace("PROXY", f"127.0.0.1:{proxy.plain}")) as front:
        for arguments in 12 * [[]] + [["--compressed"]]:
            assert run("curl", "-sS", *arguments, f"http://{front}/nginx/text.txt") == text, arguments
    return "behind another nginx, which forwards by HTTP/1.0"


def with_application(options, name, upstream, checks, **more):
    with upstream as address, Proxy(options.binary, options.driver, **{name: address}, **more) as proxy:
        for check in checks:
            yield check(proxy, name)


def uvicorn(options):
    checks = [exchanges, events, leave, lambda proxy, name: proxy_websockets.echo(proxy, f"/{name}/socket")]
    return with_application(options, "uvicorn", upstreams.uvicorn(), checks)


def gunicorn(options):
    """Its default worker serves one connection at a time, and closes each of them."""
    yield from with_application(options, "gunicorn", upstreams.gunicorn(), [exchanges])
    # One connection for each thread, closed when idle for two seconds.
    checks = [exchanges, events, leave, lambda proxy, name: idle(proxy, f"/{name}/hello", 2)]
    threads = upstreams.gunicorn("--worker-class=gthread", f"--threads={IDLE_CLIENTS + 10}", "--keep-alive=2")
    yield from with_application(options, "gunicorn", threads, checks)


def node(options):
    checks = [exchanges, events, leave, *(
        lambda proxy, name, path=path: idle(proxy, f"/{name}/{path}", 5) for path in ("hello", "quiet")
    )]
    return with_application(options, "node", upstreams.node(), checks)


def trailers(proxy, name):
    """Trailers of the request and the response."""
    path, expected, sum_field = f"/{name}/trailers", [("x-length", "7"), ("x-received", "sum")], ("x-sum", "sum")
    with Client(f"127.0.0.1:{proxy.plain}") as client:
        fields = ["Transfer-Encoding: chunked", "Trailer: X-Sum", "TE: trailers", "Connection: TE"]
        received = client.exchange("POST", path, fields, b"7\r\ncontent\r\n0\r\nX-Sum: sum\r\n\r\n")
    assert received.body == b"content\n" and sorted(received.trailers) == expected, received
    for transport in ("plain", "TLS"):
        with Connection(proxy, transport) as client:
            fields = client.fields(path, "POST", [("te", "trailers"), ("trailer", "x-sum")])
            client.send(client.head(1, fields, end=False), client.data(1, b"content", end=False), client.head(1, [sum_field]))
            received = client.response(1)
        assert received.content == b"content\n" and sorted(received.trailers) == expected, vars(received)
    return "trailers in both directions"


def no_websocket(proxy, name):
    """An upstream with plain HTTP/2 and no extended CONNECT gets no WebSocket."""
    fields = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + "A" * 22 + "=="]
    arguments = [argument for field in fields for argument in ("-H", field)]
    status, _, _ = proxy.curl("HTTP/1.1", f"/{name}/socket", *arguments)
    reason = "the upstream does not accept WebSockets over HTTP/2 (extended CONNECT)"
    assert status == 502, status
    wait_for(lambda: reason in (proxy.folder / "error.log").read_text(), f"line with {reason!r}")
    return "a WebSocket over plain HTTP/2 without extended CONNECT gets 502 with its reason in the log"


def go(options):
    with upstreams.go() as address:
        block = f'protocol "http2"; server "http://{address}"'
        with Proxy(options.binary, options.driver, go=address, http2=block) as proxy:
            for name in ("go", "http2"):
                for check in (exchanges, events, leave, trailers):
                    yield f"{name}: {check(proxy, name)}"
            yield f"http2: {no_websocket(proxy, 'http2')}"
            yield idle(proxy, "/go/hello", 1)
            yield f"http2: {idle(proxy, '/http2/hello', 1)}"


CHECKS = {
    "nginx": nginx,
    "uvicorn": uvicorn,
    "gunicorn": gunicorn,
    "node": node,
    "go": go,
    "station": proxy_station.check,
    "websockets": proxy_websockets.check,
    "browser": proxy_websockets.check_browser,
    "upload": proxy_uploads.check_upload,
    "dead": proxy_uploads.check_dead,
    "kept": proxy_kept.check,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=Path)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--driver", choices=["epoll", "io_uring"], default="epoll")
    parser.add_argument("--grpc", type=Path, help="the program of the example grpc")
    parser.add_argument("--upload", type=int, default=1, metavar="GIB", help="the size of the upload")
    parser.add_argument("--kept", type=int, default=1000, metavar="NUMBER", help="the number of streams, and of WebSockets")
    options = parser.parse_args()
    maximum = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
    failed = []
    for name in options.checks or CHECKS:
        began = time.monotonic()
        try:
            for line in CHECKS[name](options):
                print(f"{name}: {line}", flush=True)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"FAILED: {error.cmd}: {(error.stderr or b'').decode()[-2000:]}")
        except Exception:  # The other checks run nevertheless.
            failed.append(name)
            print(f"FAILED: {name}: {traceback.format_exc(limit=-3)}")
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    if failed:
        sys.exit("FAILED: " + "; ".join(failed))


if __name__ == "__main__":
    main()
