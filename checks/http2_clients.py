"""Clients of HTTP/2: curl, nghttp, h2load, httpx, Go, and Chromium."""
import asyncio
import json
import os
import re
import ssl
import tempfile
import time
from pathlib import Path

import httpx
import websockets
from hyperframe.frame import GoAwayFrame, WindowUpdateFrame

from clients import HERE, STEP_TIMEOUT, TARGET, browser, run
from http2_server import LARGE_BYTES, Connection, Server, raise_windows

H2LOAD_REQUESTS = 3000
# httpx 0.28 drops a complete response if the stream is reset before its upload ends, which the site does after
# discard-bytes-max. So its content fits in that.
UPLOAD_BYTES = 200_000
# curl reads an error response while the rest of its content is discarded, and then sends no more. After another response it
# sends on, and curl 7.88 waits for its timeout if the stream is reset.
LONG_UPLOAD_BYTES = 5_900_000
# A slow reader waits this long between its reads.
SLOW_READ_SECONDS = 0.01
# What the generated page loads, of each kind.
ASSETS = 60
DOCUMENTATION = ["std/index.html", "std/vec/struct.Vec.html", "core/index.html"]


def with_curl(server, transport):
    def curl(path, *arguments):
        protocol = ["--cacert", server.authority, "--http2"] if transport == "TLS" else ["--http2-prior-knowledge"]
        out = server.folder / "received"
        out.unlink(missing_ok=True)
        wanted = "%{http_version} %{response_code} %{size_download} %{size_upload}"
        written = run("curl", "-sS", "-m", "50", *protocol, "-o", out, "-w", wanted, *arguments, server.url(transport, path))
        version, status, received, sent = written.decode().split()
        assert version == "2", f"curl {path}: HTTP/{version}"
        return int(status), int(received), int(sent), out.read_bytes() if out.exists() else b""

    large = server.root / "large.bin"
    assert curl("/large.bin") == (200, LARGE_BYTES, 0, large.read_bytes())
    assert curl("/large.bin", "-I")[0] == 200
    assert curl("/large.bin", "-r", "1000000-1999999") == (206, 1_000_000, 0, large.read_bytes()[1_000_000:2_000_000])
    assert curl("/large.bin", "-r", "-5")[3] == large.read_bytes()[-5:]
    (server.folder / "content").write_bytes(b"x" * UPLOAD_BYTES)
    upload = ["--data-binary", f"@{server.folder}/content"]
    assert curl("/accepts", *upload) == (200, 9, UPLOAD_BYTES, b"accepted\n")
    assert curl("/hello.txt", *upload)[0] == 405
    (server.folder / "content").write_bytes(b"x" * LONG_UPLOAD_BYTES)
    for path, expected in [("/hello.txt", 405), ("/small-content", 413)]:
        status, _, sent, _ = curl(path, *upload)
        assert status == expected and sent < LONG_UPLOAD_BYTES, f"{path}: {status} after {sent} bytes"
    return "GET, HEAD, ranges, an upload, and long ones with an early error"


def with_nghttp(server, transport):
    urls = [server.url(transport, path) for path in ("/hello.txt", "/large.bin", "/missing", "/")]
    output = run("nghttp", "-n", "-s", "-y", "--no-dep", *urls).decode()
    statuses = re.findall(r"^\s*\d+\s+\+\S+\s+\+\S+\s+\S+\s+(\d{3})\s", output, re.MULTILINE)
    assert sorted(statuses) == ["200", "200", "200", "404"], output
    upload = run("nghttp", "-v", "-n", "-y", "-d", server.root / "large.bin", server.url(transport, "/accepts")).decode()
    assert ":status: 200" in upload, upload[-2000:]
    return "four requests, an upload"


def with_h2load(server, transport):
    results = []
    for arguments in (["-c", "10", "-m", "20"], ["-c", "1", "-m", "100"], ["-c", "50", "-m", "1"]):
        output = run("h2load", "-n", str(H2LOAD_REQUESTS), *arguments, server.url(transport, "/hello.txt")).decode()
        succeeded = f"{H2LOAD_REQUESTS} done, {H2LOAD_REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout"
        assert succeeded in output and f"{H2LOAD_REQUESTS} 2xx" in output, output
        results.append(re.search(r"([\d.]+) req/s", output).group(1))
    return f"{' '.join(results)} requests a second"


def with_httpx(server, transport):
    async def main():
        secure = ssl.create_default_context(cafile=server.authority)
        prior_knowledge = transport == "plain"
        async with httpx.AsyncClient(http1=not prior_knowledge, http2=True, verify=secure, timeout=STEP_TIMEOUT) as client:
            # The first request decides which protocol the others share a connection by.
            await client.get(server.url(transport, "/hello.txt"))
            responses = await asyncio.gather(*(client.get(server.url(transport, "/hello.txt")) for _ in range(100)))
            assert all(response.http_version == "HTTP/2" and response.text == "hello\n" for response in responses)
            sent = await client.post(server.url(transport, "/accepts"), content=b"x" * UPLOAD_BYTES)
            assert sent.status_code == 200, sent
            async with client.stream("GET", server.url(transport, "/large.bin")) as response:
                count = sum([len(piece) async for piece in response.aiter_bytes()])
            assert count == LARGE_BYTES, count

    asyncio.run(main())
    return "100 requests at once, an upload, a download"


def with_go(server, transport):
    program = Path(TARGET) / "http2-client"
    run("go", "build", "-o", program, os.path.join(HERE, "checks/clients/http2_client.go"))
    authority = server.authority if transport == "TLS" else "none"
    run(program, authority, server.url(transport, ""), str(LARGE_BYTES))
    return "200 requests at once, a download, uploads"


def with_goaway(server, transport):
    """A client that sends GOAWAY behind its last request receives the response, however slowly it reads."""
    with Connection(server, transport) as connection:
        connection.send(connection.head(1, connection.fields("/large.bin")))
        raise_windows(connection, 1)
        connection.send(GoAwayFrame(0, last_stream_id=0))
        response, known = connection.of(1), 0
        while not response.is_over and not connection.is_closed:
            connection.receive(STEP_TIMEOUT)
            time.sleep(SLOW_READ_SECONDS)
            if len(response.content) > known:
                known = len(response.content)
                connection.send(WindowUpdateFrame(0, window_increment=1))
        assert len(response.content) == LARGE_BYTES, f"{len(response.content)} of {LARGE_BYTES} bytes"
    return "a whole response"


def check(server):
    for transport in ("TLS", "plain"):
        for client in (with_curl, with_nghttp, with_h2load, with_httpx, with_go, with_goaway):
            print(f"{client.__name__.removeprefix('with_')}, {transport}: {client(server, transport)}", flush=True)


def documentation():
    """Returns a folder of documentation that this machine has, or None."""
    toolchain = Path(run("rustc", "--print", "sysroot").decode().strip()) / "share/doc/rust/html"
    return toolchain if (toolchain / DOCUMENTATION[0]).exists() else None


def generate_site(root):
    """Writes a page that loads many scripts, styles and images."""
    (root / "assets").mkdir()
    for number in range(ASSETS):
        (root / f"assets/{number}.js").write_text(f"window.scripts = (window.scripts || 0) + 1; // {'x' * number * 500}\n")
        (root / f"assets/{number}.css").write_text(f".c{number} {{ color: rgb({number}, 0, 0); }}\n" * (number + 1))
        image = f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text>{number}</text></svg>'
        (root / f"assets/{number}.svg").write_text(image)
    kinds = {"js": '<script src="{}"></script>', "css": '<link rel="stylesheet" href="{}">', "svg": '<img src="{}" alt="">'}
    tags = [tag.format(f"assets/{number}.{kind}") for kind, tag in kinds.items() for number in range(ASSETS)]
    (root / "many.html").write_text('<!doctype html><link rel="icon" href="assets/0.svg">' + "\n".join(tags))


NAVIGATE = 9
COMMANDS = [
    ("Network.enable", {}),
    ("Page.enable", {}),
    ("Page.setLifecycleEventsEnabled", {"enabled": True}),
    ("Network.setCacheDisabled", {"cacheDisabled": True}),
]


async def load(address, page):
    """Loads a page in Chromium until the network is idle. Returns the URLs of its requests, by number, and the events."""
    events, loader, idle = [], None, set()
    async with websockets.connect(address, max_size=None) as devtools:
        for number, (method, parameters) in enumerate(COMMANDS):
            await devtools.send(json.dumps({"id": number, "method": method, "params": parameters}))
        await devtools.send(json.dumps({"id": NAVIGATE, "method": "Page.navigate", "params": {"url": page}}))
        end = time.monotonic() + STEP_TIMEOUT
        while loader is None or loader not in idle:
            message = json.loads(await asyncio.wait_for(devtools.recv(), end - time.monotonic()))
            parameters = message.get("params", {})
            if message.get("id") == NAVIGATE:
                loader = message["result"]["loaderId"]
            elif message.get("method") == "Page.lifecycleEvent" and parameters["name"] == "networkIdle":
                idle.add(parameters["loaderId"])
            else:
                events.append((message.get("method"), parameters))
    # Events of the page before are not of this one.
    sent = [parameters for method, parameters in events if method == "Network.requestWillBeSent"]
    sent = [request for request in sent if request["loaderId"] == loader and request["request"]["url"].startswith("http")]
    return {request["requestId"]: request["request"]["url"] for request in sent}, events


def outcomes(requests, events):
    """Returns the protocol and status of each request of a page, or why it failed."""
    found = dict.fromkeys(requests, "no response")
    for method, parameters in events:
        request = parameters.get("requestId")
        if request in requests and method == "Network.responseReceived":
            found[request] = (parameters["response"]["protocol"], parameters["response"]["status"])
        elif request in requests and method == "Network.loadingFailed":
            found[request] = parameters["errorText"]
    return found


def check_browser(binary, driver):
    """Chromium loads pages with many files, and trusts the server's own authority."""
    source = documentation()
    with Server(binary, driver, documents=source or "root") as server:
        pages = [server.url("TLS", "/many.html")]
        if source:
            pages += [f"https://127.0.0.1:{server.tls}/{page}" for page in DOCUMENTATION]
        generate_site(server.root)
        home = Path(tempfile.mkdtemp(dir=server.folder))
        database = home / ".pki/nssdb"
        database.mkdir(parents=True)
        run("certutil", "-d", f"sql:{database}", "-N", "--empty-password")
        run("certutil", "-d", f"sql:{database}", "-A", "-t", "C,,", "-n", "selvedge", "-i", server.authority)
        with browser(server.folder, (), {"HOME": str(home)}) as address:
            for page in pages:
                requests, events = asyncio.run(load(address, page))
                found = outcomes(requests, events)
                other = {requests[number]: outcome for number, outcome in found.items() if outcome != ("h2", 200)}
                assert requests and not other, (page, other)
                print(f"Chromium, {page}: {len(requests)} requests over h2")
        minimum = 3 * ASSETS + 1
        requests = (server.folder / "access.log").read_text().count("HTTP/2.0")
        assert requests >= minimum, f"the log has {requests} requests, expected {minimum}"
