#!/usr/bin/env python3
"""Upgrades, stops and starts a server, and swaps folders above its root, while clients send POST requests.

Asserts that no request is lost: each that was sent on an open connection gets its response, or GOAWAY of HTTP/2 names it
as one that was not processed. Some clients wait between the connection and its first byte. Clients do not repeat a POST (RFC 9110 §9.2.2), so a lost one is an error that a user sees.
Asserts, too, that a swapped link to a release replaces no process, and that its files are served.

    python3 checks/no_request_lost.py target/release/selvedge [--driver io_uring]
"""
import collections
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

CLIENTS_PER_TRANSPORT = 10
# Between the connection and its first byte. `shutdown-notice` leaves more to a connection that a stop accepts last.
SILENCE_SECONDS_MAX = 0.4
# Between two requests of a client.
PAUSE_SECONDS = 0.004
STEP_SECONDS = 20
# Between two changes, so that all clients have sent requests.
SETTLE_SECONDS = 0.25
CHANGES = (["upgrade"] * 3 + ["stop"] + ["link"]) * 3
FOLDER_SWAPS = 2
PATHS = {"plain", "TLS"}


class Lost(Exception):
    """A request got no response."""


class Closed(Exception):
    """The connection was closed before a request was sent on it, or the request was refused unprocessed."""


class Transport:
    """A connection with or without TLS."""

    def __init__(self, ports, name, protocol, silence=0):
        plain = socket.create_connection(("127.0.0.1", ports[name]), STEP_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = plain
        time.sleep(silence)
        if name == "TLS":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols([protocol])
            try:
                self.socket = context.wrap_socket(plain, server_hostname="localhost")
            except ConnectionResetError as error:
                raise Lost(f"handshake: {error}") from None

    def waiting(self):
        """Returns bytes that have arrived, or none. Raises `Closed` after the end."""
        self.socket.setblocking(False)
        try:
            piece = self.socket.recv(65536)
        except (BlockingIOError, ssl.SSLWantReadError):
            return b""
        except OSError:
            raise Closed from None
        finally:
            self.socket.settimeout(STEP_SECONDS)
        if not piece:
            raise Closed
        return piece

    def send(self, request):
        try:
            self.socket.sendall(request)
        except OSError as error:
            raise Lost(f"send: {error}") from None

    def receive(self):
        try:
            piece = self.socket.recv(65536)
        except OSError as error:
            raise Lost(f"receive: {error}") from None
        if not piece:
            raise Lost("the connection ended")
        return piece

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.close()


class Http1:
    REQUEST = b"POST /post HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nword"

    def __init__(self, ports, name, silence=0):
        self.transport = Transport(ports, name, "http/1.1", silence)

    def post(self):
        """Sends a request. Returns whether the connection stays open."""
        if self.transport.waiting():
            raise Lost("bytes before the request")
        self.transport.send(self.REQUEST)
        response = b""
        while not response.endswith(b"\r\n\r\ndone"):
            response += self.transport.receive()
        if not response.startswith(b"HTTP/1.1 200 "):
            raise Lost(response[:80])
        return b"\r\nconnection: close\r\n" not in response.lower()


class Http2:
    """As few frames of HTTP/2 as a POST needs."""

    DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
    # `:method: POST`, `:scheme: http`, `:path: /post` and `:authority: localhost`, without Huffman codes.
    HEAD = b"\x83\x86\x04\x05/post\x01\x09localhost"
    # `:status: 200`.
    OK = 0x88

    def __init__(self, ports, name, silence=0):
        self.transport = Transport(ports, name, "h2", silence)
        self.head = self.HEAD if name == "plain" else self.HEAD.replace(b"\x86", b"\x87")
        self.buffer, self.stream, self.last_stream, self.ended, self.status = b"", -1, None, set(), {}
        self.transport.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(self.SETTINGS, 0, 0))

    @staticmethod
    def frame(kind, flags, stream, content=b""):
        return len(content).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + content

    def on_bytes(self, piece):
        self.buffer += piece
        while len(self.buffer) >= 9 and len(self.buffer) >= 9 + (length := int.from_bytes(self.buffer[:3])):
            kind, flags = self.buffer[3], self.buffer[4]
            stream, content = int.from_bytes(self.buffer[5:9]), self.buffer[9 : 9 + length]
            self.buffer = self.buffer[9 + length :]
            if kind in (self.SETTINGS, self.PING) and not flags & 1:
                self.transport.send(self.frame(kind, 1, 0, content if kind == self.PING else b""))
            elif kind == self.GOAWAY:
                self.last_stream = int.from_bytes(content[:4])
            elif kind == self.HEADERS:
                # The size of the dynamic table may precede the first field.
                self.status[stream] = content[1] if content[0] & 0xE0 == 0x20 else content[0]
            elif kind == self.RESET:
                self.status[stream] = f"reset {int.from_bytes(content)}"
            if kind == self.RESET or kind in (self.DATA, self.HEADERS) and flags & 1:
                self.ended.add(stream)

    def post(self):
        while piece := self.transport.waiting():
            self.on_bytes(piece)
        if self.last_stream is not None:
            raise Closed
        self.stream += 2
        stream = self.stream
        data = self.frame(self.DATA, 1, stream, b"word")
        self.transport.send(self.frame(self.HEADERS, 4, stream, self.head) + data)
        while stream not in self.ended:
            if self.last_stream is not None and self.last_stream < stream:
                raise Closed
            self.on_bytes(self.transport.receive())
        # Flow control: this client has no large content, so windows stay open.
        if self.status.pop(stream) != self.OK:
            raise Lost(f"stream {stream}: no 200")
        return self.last_stream is None


def send_requests(ports, kind, over, results):
    """A client: sends requests until the event `over`."""
    name, protocol, silence_max = kind
    counts, connection = collections.Counter(), None
    while not over.is_set():
        try:
            if connection is None:
                connection = protocol(ports, name, random.uniform(0, silence_max))
        except OSError:
            # While no server listens, or a handshake was not complete at the end of a stop.
            time.sleep(PAUSE_SECONDS)
            continue
        except Lost as reason:
            counts["lost"] += 1
            counts[f"lost: {protocol.__name__} {name}: {reason}"] += 1
            continue
        try:
            stays_open = connection.post()
            counts["responses"] += 1
        except Closed:
            stays_open = False
            counts["closed before"] += 1
        except Lost as reason:
            stays_open = False
            counts["lost"] += 1
            counts[f"lost: {protocol.__name__} {name}: {reason}"] += 1
        # A client that has waited opens another connection, and waits again.
        if not stays_open or silence_max:
            connection.transport.close()
            connection = None
        time.sleep(PAUSE_SECONDS)
    results.put(counts)


def clients(ports, kind, over, results):
    arguments = (ports, kind, over, results)
    threads = [threading.Thread(target=send_requests, args=arguments) for _ in range(CLIENTS_PER_TRANSPORT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server:
    def __init__(self, binary, driver, folder):
        self.folder, self.ports = folder, {name: free_port() for name in sorted(PATHS)}
        self.environment = {**os.environ, "HOME": str(folder), "SELVEDGE_DRIVER": driver}
        self.binary, self.process = binary, None
        # The sandbox has the folder of the configuration, and not that of the sites.
        self.configuration, self.log = folder / "etc/selvedge.kdl", folder / "etc/error.log"
        (folder / "etc").mkdir()
        for release in ("releases/1", "releases/2", "app"):
            (folder / release / "public").mkdir(parents=True)
            (folder / release / "public/index.html").write_text(release)
        self.link("releases/1")
        self.configuration.write_text(
            f'listen "127.0.0.1:{self.ports["plain"]}" http2=#true\nlisten "127.0.0.1:{self.ports["TLS"]}" tls=#true\n'
            'certificate-folder "certificates"\nlog { access "access.log"; error "error.log"; }\n'
            'limits { shutdown-notice "5s"; }\n'
            f'site "localhost" {{ root "{folder}/current/public"; '
            'https-redirect #false; route "/post" { respond 200 "done"; }; }\n'
            f'site "app.localhost" {{ root "{folder}/app/public"; https-redirect #false; }}\n'
        )

    def start(self):
        command = [self.binary, "run", "--config", self.configuration]
        with open(self.folder / "output", "ab") as output:
            self.process = subprocess.Popen(command, env=self.environment, stdout=output, stderr=output)
        self.wait_until("the server starts", lambda: self.get("localhost") is not None and self.is_ready_for_tls())

    def is_ready_for_tls(self):
        with contextlib.suppress(OSError, Lost):
            Http1(self.ports, "TLS").transport.close()
            return True
        return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=STEP_SECONDS)
        assert code == 0, f"exit code {code}: {(self.folder / 'output').read_text()}"

    def command(self, *words):
        command = [self.binary, *words, "--config", self.configuration]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def status(self):
        return json.loads(self.command("status", "--json"))

    def get(self, host):
        """Returns the content of `/`, or `None`."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports["plain"]), 5) as client:
            client.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            response = b""
            while piece := client.recv(65536):
                response += piece
            return response.partition(b"\r\n\r\n")[2].decode() if response.startswith(b"HTTP/1.1 200 ") else None
        return None

    def link(self, release):
        """Makes the link `current` lead to a release, as deployment tools do."""
        new = self.folder / "current.new"
        new.symlink_to(release)
        new.rename(self.folder / "current")

    def swap_folder(self, number):
        """Replaces the folder `app` by another one."""
        new = self.folder / f"app{number}"
        (new / "public").mkdir(parents=True)
        (new / "public/index.html").write_text(f"app {number}")
        (self.folder / "app").rename(self.folder / f"old{number}")
        new.rename(self.folder / "app")
        self.wait_until("the other folder is served", lambda: self.get("app.localhost") == f"app {number}")

    def wait_until(self, what, condition):
        end = time.monotonic() + STEP_SECONDS
        while not condition():
            assert time.monotonic() < end and self.process.poll() is None, what
            time.sleep(0.01)


def change(server, name, number):
    if name == "upgrade":
        server.command("upgrade")
    elif name == "stop":
        server.stop()
        server.start()
    else:
        before = server.status()["process_id"]
        release = f"releases/{number % 2 + 1}"
        server.link(release)
        server.wait_until("the release is served", lambda: server.get("localhost") == release)
        assert server.status()["process_id"] == before, "a swapped link has replaced the process"


def main():
    binary = os.path.abspath(sys.argv[1])
    driver = sys.argv[sys.argv.index("--driver") + 1] if "--driver" in sys.argv else os.environ.get("SELVEDGE_DRIVER", "auto")
    folder, over, results = Path(tempfile.mkdtemp(prefix="selvedge-lost-")), multiprocessing.Event(), multiprocessing.Queue()
    server, began, total = Server(binary, driver, folder), time.monotonic(), collections.Counter()
    try:
        server.start()
        silences = (0, SILENCE_SECONDS_MAX)
        kinds = [(name, protocol, silence) for name in sorted(PATHS) for protocol in (Http1, Http2) for silence in silences]
        processes = [multiprocessing.Process(target=clients, args=(server.ports, kind, over, results)) for kind in kinds]
        for process in processes:
            process.start()
        try:
            time.sleep(SETTLE_SECONDS)
            for number, name in enumerate(CHANGES):
                change(server, name, number)
                time.sleep(SETTLE_SECONDS)
            for number in range(FOLDER_SWAPS):
                before = server.status()["process_id"]
                server.swap_folder(number)
                is_sandboxed = "no sandbox" not in server.log.read_text()
                assert not is_sandboxed or server.status()["process_id"] != before, "the sandbox has not the other folder"
                time.sleep(SETTLE_SECONDS)
            server.stop()
        finally:
            over.set()
            for _ in range(len(processes) * CLIENTS_PER_TRANSPORT):
                total += results.get(timeout=60)
            for process in processes:
                process.join()
    finally:
        if server.process and server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        output = (folder / "output").read_text() if (folder / "output").exists() else ""
        shutil.rmtree(folder)
    print(
        f"{driver}: {len(CHANGES) + FOLDER_SWAPS + 1} changes in {time.monotonic() - began:.1f} s: {total['responses']} responses,"
        f" {total['closed before']} connections closed before a request, {total['lost']} requests lost"
    )
    lost = {reason: count for reason, count in total.items() if reason.startswith("lost: ")}
    if total["lost"] or not total["responses"]:
        sys.exit(f"FAILED: {lost}\n{output}")


if __name__ == "__main__":
    main()
