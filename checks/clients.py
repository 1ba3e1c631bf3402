#!/usr/bin/env python3
"""Runs third-party clients against the examples: echo, uploads, events, and a chat.

    python3 checks/clients.py target/release

The folder has the examples `echo`, `events`, `upload` and `chat`. curl, openssl and Chromium must be
installed; hyper, reqwest, httpx and websockets are installed from their registries into target/.
Prints the actions of each client with each driver. Fails if a client gets an unexpected result.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "target"))
EXAMPLES = ["echo", "events", "upload", "chat"]
UPLOAD_BYTES = 3_000_000
# The maximum duration of each step.
STEP_TIMEOUT = 60
DRIVERS = ["epoll", "io_uring"]

PYTHON = """
import asyncio, sys
import httpx, websockets

echo, events, upload, chat = sys.argv[2:]

def with_httpx():
    with httpx.Client() as client:
        for _ in range(3):
            assert client.post(f"http://{echo}/echo", content=b"x" * 50_000).content == b"x" * 50_000
        pieces = (b"x" * 50_000 for _ in range(60))
        received = client.put(f"http://{upload}/upload/httpx", content=pieces).text
        assert received == "3000000 bytes\\n", received
        with client.stream("GET", f"http://{events}/events") as response:
            lines = (line for line in response.iter_lines() if line)
            assert [next(lines), next(lines)] == ["data: 1", "data: 2"]

async def with_websockets():
    async with websockets.connect(f"ws://{chat}/chat") as first, websockets.connect(f"ws://{chat}/chat") as second:
        # A client that has received a pong has joined the chat.
        await (await first.ping())
        await (await second.ping())
        for line in ["hello", "x" * 4000]:
            await first.send(line)
            assert await second.recv() == line and await first.recv() == line

if sys.argv[1] == "httpx":
    with_httpx()
else:
    asyncio.run(with_websockets())
"""

# Example, path, name of the test, script that the browser runs on the page, and its expected result.
PAGES = [
    ("events", "/", "EventSource", """new Promise(done => {
        const source = new EventSource("/events"), got = [];
        source.onmessage = event => { if (got.push(event.data) == 2) { source.close(); done(got.join()); } };
    })""", "1,2"),
    ("events", "/", "fetch, streamed", """fetch("/events").then(async response => {
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        const first = (await reader.read()).value;
        await reader.cancel();
        return first;
    })""", "data: 1\n\n"),
    ("upload", "/progress/curl", "fetch, an upload", """fetch("/upload/chromium", {
        method: "PUT", body: new Blob([new Uint8Array(3000000)]),
    }).then(response => response.text())""", "3000000 bytes\n"),
    ("chat", "/", "WebSocket", """new Promise((done, failed) => {
        const first = new WebSocket(`ws://${location.host}/chat`), second = new WebSocket(first.url);
        first.onerror = second.onerror = failed;
        second.onmessage = event => done(event.data);
        // Sent repeatedly until the second socket has joined the chat.
        first.onopen = () => setInterval(() => first.send("from a browser"), 50);
    })""", "from a browser"),
]

BROWSER = """
import asyncio, json, sys
import websockets

async def main():
    address, page, script = sys.argv[1:]
    async with websockets.connect(address, max_size=None) as browser:
        numbers = iter(range(1, 1000))
        async def call(method, **parameters):
            number = next(numbers)
            await browser.send(json.dumps({"id": number, "method": method, "params": parameters}))
            while True:
                message = json.loads(await browser.recv())
                if message.get("id") == number:
                    return message["result"]
        await call("Page.enable")
        await call("Page.navigate", url=page)
        while True:
            reply = await call("Runtime.evaluate", expression="document.readyState + ' ' + location.href")
            if reply["result"]["value"] == "complete " + page:
                break
        reply = await call("Runtime.evaluate", expression=script, awaitPromise=True)
        print(json.dumps(reply["result"].get("value", reply)))

asyncio.run(main())
"""


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, timeout=STEP_TIMEOUT).stdout


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "127.0.0.1:%d" % listener.getsockname()[1]


def wait_until_it_listens(address):
    host, port = address.split(":")
    end = time.monotonic() + STEP_TIMEOUT
    while True:
        try:
            return socket.create_connection((host, int(port))).close()
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


@contextlib.contextmanager
def examples(folder, scratch, driver):
    """Runs the examples. Yields their addresses by name."""
    running, addresses = [], {}
    try:
        for name in EXAMPLES:
            addresses[name] = free_address()
            command = [os.path.join(folder, name), addresses[name], scratch]
            environment = {**os.environ, "TMPDIR": scratch, "SELVEDGE_DRIVER": driver}
            running.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
        for address in addresses.values():
            wait_until_it_listens(address)
        yield addresses
    finally:
        for process in running:
            process.kill()
            process.wait()


def python():
    """Returns a Python with httpx and websockets, installed on first use."""
    folder = os.path.join(TARGET, "client-checks-python")
    program = os.path.join(folder, "bin", "python")
    if not os.path.exists(program):
        run(sys.executable, "-m", "venv", folder)
    if subprocess.run([program, "-c", "import httpx, websockets"], stderr=subprocess.DEVNULL).returncode:
        subprocess.run([program, "-m", "pip", "install", "--quiet", "httpx", "websockets"], check=True)
    return program


def with_curl(addresses, scratch):
    path = os.path.join(scratch, "content")
    with open(path, "wb") as file:
        file.write(b"x" * UPLOAD_BYTES)
    assert run("curl", "-sS", "--data-binary", "hello", f"http://{addresses['echo']}/echo") == b"hello"
    expected = f"{UPLOAD_BYTES} bytes\n".encode()
    assert run("curl", "-sS", "-T", path, f"http://{addresses['upload']}/upload/curl") == expected
    chunked = ["-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue"]
    assert run("curl", "-sS", *chunked, "-T", path, f"http://{addresses['upload']}/upload/curl") == expected
    head = run("curl", "-sS", "-I", f"http://{addresses['chat']}/")
    assert head.startswith(b"HTTP/1.1 200 "), head
    process = subprocess.Popen(["curl", "-sSN", f"http://{addresses['events']}/events"], stdout=subprocess.PIPE)
    try:
        lines = (line for line in process.stdout if line.strip())
        assert [next(lines), next(lines)] == [b"data: 1\n", b"data: 2\n"]
    finally:
        process.kill()
        process.wait()


def rust():
    """Builds the clients in Rust, and returns their program."""
    manifest = os.path.join(HERE, "checks/clients/Cargo.toml")
    folder = os.path.join(TARGET, "client-checks")
    build = ["cargo", "build", "--quiet", "--locked", "--manifest-path", manifest, "--target-dir", folder]
    subprocess.run(build, check=True)
    return os.path.join(folder, "debug/selvedge-client-checks")


def with_rust(addresses, program):
    for client in ["hyper", "reqwest"]:
        run(program, client, addresses["echo"], addresses["events"], addresses["upload"])
        print(f"{client}: an echo, an upload in chunks, events")


@contextlib.contextmanager
def browser(scratch, arguments=(), environment=None):
    """Runs Chromium. Yields the address of its DevTools socket for a new page."""
    profile = tempfile.mkdtemp(dir=scratch)
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
               "--remote-debugging-port=0", f"--user-data-dir={profile}", *arguments, "about:blank"]
    environment = {**os.environ, **(environment or {})}
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
    try:
        port_file, end = os.path.join(profile, "DevToolsActivePort"), time.monotonic() + STEP_TIMEOUT
        while not (os.path.exists(port_file) and open(port_file).read().count("\n") >= 1):
            assert time.monotonic() < end and process.poll() is None, "Chromium does not start"
            time.sleep(0.05)
        port = open(port_file).read().split()[0]
        pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=STEP_TIMEOUT))
        yield next(page for page in pages if page["type"] == "page")["webSocketDebuggerUrl"]
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def chat_with_tls(folder, scratch, driver):
    """Runs the example `chat` with a certificate. Yields its address."""
    chain, key = os.path.join(scratch, "chain.pem"), os.path.join(scratch, "key.pem")
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
        "-subj", "/CN=chat", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", chain)
    address = free_address()
    process = subprocess.Popen([os.path.join(folder, "chat"), address, chain, key],
                               env={**os.environ, "SELVEDGE_DRIVER": driver}, stderr=subprocess.DEVNULL)
    try:
        wait_until_it_listens(address)
        yield address
    finally:
        process.kill()
        process.wait()


def with_chromium_over_http2(folder, program, scratch, driver):
    """Opens WebSockets of a page over HTTP/2. The browser's own log shows that no other connection has them."""
    log = os.path.join(scratch, "chromium.json")
    _, path, _, script, expected = next(page for page in PAGES if page[0] == "chat")
    arguments = ["--ignore-certificate-errors", f"--log-net-log={log}", "--net-log-capture-mode=Everything"]
    with chat_with_tls(folder, scratch, driver) as address:
        with browser(scratch, arguments) as page:
            script = script.replace("ws://", "wss://")
            got = json.loads(run(program, "-c", BROWSER, page, f"https://{address}{path}", script))
    assert got == expected, f"WebSocket over HTTP/2: got {got!r}, expected {expected!r}"
    events = open(log).read()
    assert ":protocol: websocket" in events, "no WebSocket was opened over HTTP/2"
    assert "Upgrade: websocket" not in events, "a WebSocket was opened over HTTP/1.1"
    print("Chromium: two WebSockets over HTTP/2")


def with_chromium(addresses, program, scratch):
    with browser(scratch) as page:
        for example, path, name, script, expected in PAGES:
            got = json.loads(run(program, "-c", BROWSER, page, f"http://{addresses[example]}{path}", script))
            assert got == expected, f"{name}: got {got!r}, expected {expected!r}"
            print(f"Chromium: {name}")


def main():
    folder = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
    scratch = tempfile.mkdtemp()
    try:
        in_rust, in_python = rust(), python()
        for driver in DRIVERS:
            print(f"{driver}:")
            with examples(folder, scratch, driver) as addresses:
                with_curl(addresses, scratch)
                print("curl: an echo, uploads of known length and in chunks, HEAD, events")
                with_rust(addresses, in_rust)
                for client, actions in [("httpx", "an echo, an upload in chunks, events"), ("websockets", "a chat of two")]:
                    run(in_python, "-c", PYTHON, client, *(addresses[name] for name in EXAMPLES))
                    print(f"{client}: {actions}")
                with_chromium(addresses, in_python, scratch)
            with_chromium_over_http2(folder, in_python, scratch, driver)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.cmd[:2]}: {error.stderr and error.stderr.decode()}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
