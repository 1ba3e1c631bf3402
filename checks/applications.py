#!/usr/bin/env python3
"""Runs examples/configurations/applications.kdl with real applications, and checks each of its promises.

    python3 checks/applications.py target/release/selvedge [--driver epoll|io_uring] [CHECK ...]

The API is served by Node and by uvicorn, the WebSocket by `websockets`, and the blog is WordPress with PHP-FPM and MariaDB. The
check replaces the addresses and paths in the text of the example, and nothing else. The checks: `redirect`, `front_end`, `api`,
`servers` (balance, one is unwell, one is killed), `capacity`, `sockets`, `blog`.

Needs root, node, curl, and Debian's packages php-fpm, php-mysql, wordpress, wordpress-theme-twentytwentythree and mariadb-server.
"""
import argparse
import asyncio
import collections
import contextlib
import email.parser
import hashlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from pathlib import Path

from proxy_packages import run_with_packages

run_with_packages()

import websockets  # noqa: E402, the packages must be installed
from websockets.asyncio.server import serve  # noqa: E402

import proxy_upstreams as upstreams  # noqa: E402
import wordpress  # noqa: E402
from clients import STEP_TIMEOUT, free_address  # noqa: E402
from http2_server import Connection, raise_windows  # noqa: E402
from php_site import WAIT, wait_for  # noqa: E402
from websocket_client import TEXT, Http1WebSocket, Http2WebSocket, frame  # noqa: E402

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
APP, BLOG = "app.localhost", "blog.localhost"
# The numbers of the example: requests at work at each server, and those that wait.
REQUESTS_MAX, QUEUE_MAX, SERVERS = 200, 400, 2
STREAMS_OF_CONNECTION = 100
UPLOAD_BYTES = 20 << 20
BALANCED_REQUESTS = 40
HEALTH_SECONDS = 5
SCRIPT = "<?php echo 'a script of an attacker';"


async def chat(connection):
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in connection:
            await connection.send(message)


@contextlib.contextmanager
def chat_server():
    """Serves WebSockets on a thread. Yields the address."""
    address, loop, is_over = free_address(), asyncio.new_event_loop(), asyncio.Event()

    async def run():
        async with serve(chat, *address.split(":")):
            await is_over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[run()])
    thread.start()
    try:
        upstreams.wait_until_it_listens(address)
        yield address
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()


def replaced(text, replacements):
    """Returns a text with replacements, which must occur as often as given."""
    for old, new, count in replacements:
        assert text.count(old) == count, f"the example has {text.count(old)} times {old!r}, and not {count} times"
        text = text.replace(old, new)
    return text


class Applications(wordpress.WordPress):
    """The example, and all that it forwards to."""

    host = "127.0.0.1"

    def __init__(self, binary, driver, chat_address):
        self.tls, self.chat = int(free_address().split(":")[1]), chat_address
        self.api = {}
        self.stack = contextlib.ExitStack()
        with self.stack:
            self.start_api("node")
            self.start_api("uvicorn")
            super().__init__(binary, driver)
            self.plain = int(self.address.split(":")[1])
            self.origin = f"https://{BLOG}:{self.tls}"
            self.authority = self.folder / "certificates/local-authority.pem"
            self.context = None
            wait_for(self.is_ready, "certificate")
            self.stack = self.stack.pop_all()

    def start_api(self, name):
        """Starts a server of the API, at the address of an earlier one if it had one."""
        address = self.api[name][0] if name in self.api else free_address()
        process = self.stack.enter_context(upstreams.application(name, address))
        self.api[name] = (address, process)

    def configuration(self):
        app_root = self.folder / "front-end"
        subprocess.run(["cp", "-r", EXAMPLES / "site", app_root], check=True)
        app, blog = (EXAMPLES / "configurations/applications.kdl").read_text().split(f'site "{BLOG}"')
        replacements = [
            ('"[::]:80"', f'"{self.address}"', 1), ('"[::]:443"', f'"127.0.0.1:{self.tls}" tls=#true', 1),
            ("127.0.0.1:3001", self.api["node"][0], 1), ("127.0.0.1:3002", self.api["uvicorn"][0], 1),
            ("127.0.0.1:3003", self.chat, 1), ('"../site"', f'"{app_root}"', 1),
            # On a busy machine, this client may need more than the default to send what fills the queue.
            ("queue=400", 'queue=400 queue-timeout="1m"', 1),
        ]
        app = replaced(app, replacements)
        blog = replaced(blog, [("/run/php/php-fpm.sock", f"{self.folder}/fpm.sock", 2), ('"../site"', '"site"', 1)])
        return f'log {{ access "access.log"; error "error.log"; }}\n{app}site "{BLOG}"{blog}'

    def is_ready(self):
        try:
            self.context = self.context or ssl.create_default_context(cafile=self.authority)
            with Connection(self, "TLS", name=APP) as connection:
                return connection.request(1, "/style.css").status() == 200
        except (OSError, ssl.SSLError):
            return False

    def __exit__(self, *arguments):
        self.stack.close()
        super().__exit__(*arguments)

    def open(self, url, data, fields, method):
        """Uses curl, which has HTTP/2 and finds names beneath `localhost`."""
        with tempfile.NamedTemporaryFile() as head, tempfile.NamedTemporaryFile() as content:
            cookies = self.folder / "cookies"
            command = ["curl", "-sS", "-4", "-m", str(WAIT), "--cacert", self.authority, "--http2", "-L", "-D", head.name,
                       "-b", cookies, "-c", cookies, "-o", content.name, "-w", "%{http_version} %{url_effective}", url]
            for name, value in fields.items():
                command += ["-H", f"{name}: {value}"]
            if data is not None:
                command += ["--data-binary", "@-"]
            if method:
                command += ["-X", method]
            ended = subprocess.run(command, input=data, capture_output=True, timeout=2 * WAIT)
            assert ended.returncode == 0, f"{url}: {ended.stderr.decode()}"
            status, _, lines = Path(head.name).read_text().replace("\r", "").strip().split("\n\n")[-1].partition("\n")
            version, _, final = ended.stdout.decode().partition(" ")
            assert version == "2" or url.startswith("http:"), f"{url} was fetched by HTTP/{version}"
            return int(status.split()[1]), email.parser.Parser().parsestr(lines), Path(content.name).read_bytes(), final

    def logs(self, *texts):
        """Whether a line of the error log has all of these texts."""
        return any(all(text in line for text in texts) for line in self.log.read_text().splitlines())

    def app(self, path, *arguments, **options):
        return self.fetch(f"https://{APP}:{self.tls}{path}", *arguments, **options)

    def describe(self, **options):
        return json.loads(self.app("/api/describe", **options)[1])

    def directly(self, name, path, data=None):
        """Sends a request to a server of the API, past the proxy."""
        with urllib.request.urlopen(f"http://{self.api[name][0]}{path}", data, timeout=STEP_TIMEOUT) as response:
            return response.read()


def redirect(site):
    for host in (APP, BLOG):
        command = ["curl", "-sS", "-4", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", f"http://{host}:{site.plain}/a?b=c"]
        got = subprocess.run(command, capture_output=True, text=True, check=True, timeout=STEP_TIMEOUT).stdout
        assert got == f"308 https://{host}:{site.tls}/a?b=c", got
    with Connection(site, "TLS", name=APP) as connection:
        assert connection.request(1, "/", authority="other.localhost").status() == 421
    return "both names are redirected to https, and another name gets 421"


def front_end(site):
    page = {"Accept": "text/html"}
    fields, index = site.app("/", fields=page)
    assert b"<title>" in index and fields["X-Content-Type-Options"] == "nosniff", fields.items()
    assert fields["Cache-Control"] == "no-cache" and fields["ETag"], fields.items()
    assert site.app("/a/path/of/the/application", fields=page)[1] == index
    fields, _ = site.app("/style.css", fields={"Accept-Encoding": "br"})
    assert fields["Content-Encoding"] == "br" and fields["Content-Type"].startswith("text/css"), fields.items()
    fields, content = site.app("/none.js", fields={"Accept": "*/*"}, status=404)
    assert content == (EXAMPLES / "site/404.html").read_bytes() and fields["X-Content-Type-Options"] == "nosniff", content[:200]
    with Connection(site, "TLS", name=APP) as connection:
        raise_windows(connection)
        for stream in range(1, 101, 2):
            connection.send(connection.head(stream, connection.fields("/style.css")))
        lengths = {len(connection.response(stream).content) for stream in range(1, 101, 2)}
    assert lengths == {(EXAMPLES / "site/style.css").stat().st_size}, lengths
    return "pages, precompressed files, the page for navigations, 404 with its page, 50 streams at once"


def api(site):
    fields = {"X-Real-IP": "10.9.8.7", "X-Forwarded-For": "10.9.8.7", "X_Real_IP": "10.9.8.7", "X-Own": "kept"}
    got = json.loads(site.app("/api/describe?a=%20b&c", fields=fields, method="PATCH", data=b"{}")[1])
    assert (got["method"], got["url"]) == ("PATCH", "/describe?a=%20b&c"), got
    expected = {"x-real-ip": "127.0.0.1", "x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "https", "x-own": "kept",
                "x-forwarded-host": f"{APP}:{site.tls}", "host": f"{APP}:{site.tls}", "x_real_ip": None}
    for name, value in expected.items():
        assert got["fields"].get(name) == value, (name, got["fields"].get(name), value)
    content = os.urandom(UPLOAD_BYTES)
    _, echoed = site.app("/api/echo", content)
    assert hashlib.sha256(echoed).digest() == hashlib.sha256(content).digest()
    with Connection(site, "TLS", name=APP) as connection:
        head = connection.fields("/api/echo", "POST", [("content-length", str((1 << 30) + 1))])
        connection.send(connection.head(1, head, end=False))
        assert connection.response(1).status() == 413
    return f"the prefix, fields of clients, {UPLOAD_BYTES >> 20} MiB up and down, and 413 beyond 1 GiB"


def used(site, count=BALANCED_REQUESTS):
    """Returns how many of some GETs each server responds to. None fails."""
    names = [site.describe()["server"] for _ in range(count)]
    return {name: names.count(name) for name in sorted(set(names))}


def servers(site):
    both = used(site)
    assert len(both) == SERVERS and min(both.values()) > BALANCED_REQUESTS / 8, both
    site.directly("node", "/health", b"503")
    address = site.api["node"][0]
    wait_for(lambda: site.logs("UpstreamCheckFailed", address), "end of requests for a server that is unwell")
    assert used(site) == {"uvicorn": BALANCED_REQUESTS}
    site.directly("node", "/health", b"200")
    wait_for(lambda: len(used(site, 6)) == SERVERS, "return of the server")
    site.api["uvicorn"][1].kill()
    # From the first request on, none fails.
    assert used(site) == {"node": BALANCED_REQUESTS}
    site.start_api("uvicorn")
    wait_for(lambda: len(used(site, 6)) == SERVERS, "return of the killed server")
    site.api["uvicorn"][1].kill()
    site.api["node"][1].kill()
    fields, _ = site.app("/api/describe", status=502)
    assert "error=connection_" in fields["Proxy-Status"], fields.items()
    for name in site.api:
        site.start_api(name)
    wait_for(lambda: is_available(site), "return of both servers")
    wait_for(lambda: len(used(site, 6)) == SERVERS, "return of both servers")
    return f"balance {both}, one that is unwell, one that is killed, 502 with Proxy-Status without any"


def is_available(site):
    try:
        return bool(site.describe())
    except AssertionError:
        return False


def capacity(site):
    excess = 200
    count = SERVERS * REQUESTS_MAX + QUEUE_MAX + excess
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(count // STREAMS_OF_CONNECTION):
            connection = stack.enter_context(Connection(site, "TLS", seconds=STEP_TIMEOUT, name=APP))
            connections.append(connection)
            # A hundred error pages are more than the window that a connection begins with.
            raise_windows(connection)
            for stream in range(1, 2 * STREAMS_OF_CONNECTION, 2):
                connection.send(connection.head(stream, connection.fields("/api/hold")))
                connection.of(stream)
        responses = [response for connection in connections for response in connection.responses.values()]

        def refused():
            for connection in connections:
                connection.receive(0.001)
            return [response for response in responses if response.is_over]

        wait_for(lambda: len(refused()) >= excess, "503 for requests beyond the queue")
        assert {response.status() for response in refused()} == {503} and len(refused()) == excess, len(refused())
        assert all(response.field("retry-after") for response in refused())
        for name in site.api:
            site.directly(name, "/release")
        for connection in connections:
            for stream in connection.responses:
                connection.response(stream)
        statuses = [response.status() for response in responses]
    assert (statuses.count(200), statuses.count(503)) == (count - excess, excess), collections.Counter(statuses)
    return f"of {count} requests at once, {count - excess} wait for the API, and {excess} get 503 with Retry-After"


def sockets(site):
    for open_socket in (
        lambda: Http1WebSocket(site.tls, "/chat", APP, site.context), lambda: Http2WebSocket(site, "TLS", "/chat", APP)
    ):
        with open_socket() as first, open_socket() as second:
            for number in range(20):
                for socket in (first, second):
                    text = f"message {number} ".encode() * 500
                    socket.send(frame(TEXT, text))
                    assert socket.message() == (TEXT, text)
    return "messages over HTTP/1.1 and over HTTP/2"


def blog(site):
    for step in wordpress.click_through(site):
        print(f"blog: {step}", flush=True)
    uploads = site.folder / "site/wp-content/uploads"
    for path in ("own.php", "2026/own.php"):
        (uploads / path).parent.mkdir(exist_ok=True)
        (uploads / path).write_text(SCRIPT)
        assert b"attacker" not in site.fetch(f"/wp-content/uploads/{path}", status=404)[1]
    site.fetch("/xmlrpc.php", status=404)
    statuses = {site.open(f"{site.origin}/wp-login.php", None, {}, None)[0] for _ in range(45)}
    assert statuses == {200, 429}, statuses
    return "WordPress over HTTP/2, no script of uploads, no XML-RPC, 429 for many attempts to log in"


CHECKS = {each.__name__: each for each in (redirect, front_end, api, servers, capacity, sockets, blog)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--driver", choices=["epoll", "io_uring"], default="epoll")
    options = parser.parse_intermixed_args()
    failed = []
    with chat_server() as address, Applications(options.binary, options.driver, address) as site:
        for name in options.checks or CHECKS:
            began = time.monotonic()
            try:
                print(f"{name}: {CHECKS[name](site)} ({time.monotonic() - began:.1f} s)", flush=True)
            except (AssertionError, OSError, ValueError, subprocess.SubprocessError):  # The other checks run nevertheless.
                failed.append(name)
                traceback.print_exc()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
