#!/usr/bin/env python3
"""Reloads the configuration of a server a hundred times while both cores are busy.

Asserts that no request fails, no connection is refused, and the p99 latency stays below twice that
of the undisturbed server.

    python3 checks/reload_under_load.py target/release/selvedge

`--any-time` does not assert times, for a machine that runs other tasks too.
"""
import multiprocessing
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ANY_TIME = "--any-time" in sys.argv
RELOADS = 100
# The undisturbed latency is measured before and after the reloads.
UNDISTURBED_SECONDS = 4
CLIENT_PROCESSES = 2
KEEP_ALIVE_CLIENTS = 24
CLOSING_CLIENTS = 8
# The minimum time between the starts of two reloads.
RELOAD_EVERY_SECONDS = 0.05
KEEP = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
CLOSE = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
BODY = b"the page\n"


class Client:
    """Sends requests over one connection, and reconnects after a response with `Connection: close`."""

    def __init__(self, address, request, selector):
        self.address, self.request, self.selector = address, request, selector
        self.socket = None
        self.response = b""

    def send(self):
        if self.socket is None:
            self.socket = socket.create_connection(self.address, timeout=10)
            self.socket.setblocking(False)
            self.selector.register(self.socket, selectors.EVENT_READ, self)
        self.started_at = time.perf_counter()
        self.response = b""
        self.socket.send(self.request)

    def receive(self):
        """Receives bytes. Returns whether the response is complete, or None if the connection was closed."""
        try:
            piece = self.socket.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            piece = b""
        self.response += piece
        if self.response.endswith(BODY):
            if b"\r\nconnection: close\r\n" in self.response.lower() or self.request is CLOSE:
                self.close()
            return self.response.startswith(b"HTTP/1.1 200 ")
        if not piece:
            self.close()
            return None
        return False

    def close(self):
        self.selector.unregister(self.socket)
        self.socket.close()
        self.socket = None


def load(address, results, over):
    """Sends requests with all clients until the event `over`; puts the counts and latencies into `results`."""
    selector = selectors.DefaultSelector()
    clients = [Client(address, request, selector) for request in [KEEP] * KEEP_ALIVE_CLIENTS + [CLOSE] * CLOSING_CLIENTS]
    latencies, failed, refused, versions = [], 0, 0, set()
    for client in clients:
        client.send()
    while not over.is_set():
        for key, _ in selector.select(timeout=1):
            client = key.data
            complete = client.receive()
            if complete is False:
                continue
            now = time.perf_counter()
            if complete:
                latencies.append((now, now - client.started_at))
                at = client.response.find(b"x-version: ")
                versions.add(client.response[at + 11 : client.response.find(b"\r", at)])
            else:
                failed += 1
            try:
                client.send()
            except ConnectionRefusedError:
                refused += 1
    results.put((latencies, failed, refused, versions))


def p99(times):
    return sorted(times)[len(times) * 99 // 100] * 1000


def configure(folder, port, version):
    new = os.path.join(folder, "selvedge.kdl.new")
    with open(new, "w") as configuration:
        configuration.write(
            f'listen "127.0.0.1:{port}"\nlog {{\n    access "access.log"\n    error "error.log"\n}}\n'
            f'site "*" {{\n    root "root"\n    header "x-version" "{version}"\n}}\n'
        )
    os.rename(new, os.path.join(folder, "selvedge.kdl"))


def send_command(folder, command_name):
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(30)
        control.connect(os.path.join(folder, "selvedge.sock"))
        control.sendall(command_name.encode() + b"\n")
        response = b""
        while piece := control.recv(65536):
            response += piece
    if not response.startswith(b"ok\n"):
        sys.exit(f"the server refused {command_name}: {response.decode()}")


def main():
    binary, folder = sys.argv[1], tempfile.mkdtemp()
    os.mkdir(os.path.join(folder, "root"))
    with open(os.path.join(folder, "root", "index.html"), "wb") as page:
        page.write(BODY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    configure(folder, address[1], 1)
    command = [binary, "run", "--config", os.path.join(folder, "selvedge.kdl")]
    program = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(address).close()
                break
            except ConnectionRefusedError:
                if program.poll() is not None or time.monotonic() > deadline:
                    sys.exit("the server does not start")
                time.sleep(0.01)
        over, results = multiprocessing.Event(), multiprocessing.Queue()
        clients = [multiprocessing.Process(target=load, args=(address, results, over)) for _ in range(CLIENT_PROCESSES)]
        for client in clients:
            client.start()
        time.sleep(1)
        marks = [time.perf_counter()]
        time.sleep(UNDISTURBED_SECONDS)
        marks.append(time.perf_counter())
        durations = []
        for version in range(2, RELOADS + 2):
            configure(folder, address[1], version)
            started_at = time.perf_counter()
            send_command(folder, "reload")
            durations.append(time.perf_counter() - started_at)
            time.sleep(max(0, RELOAD_EVERY_SECONDS - durations[-1]))
        marks.append(time.perf_counter())
        time.sleep(UNDISTURBED_SECONDS)
        marks.append(time.perf_counter())
        over.set()
        outcomes = [results.get() for _ in clients]
        for client in clients:
            client.join()
    finally:
        program.terminate()
        code = program.wait(timeout=60)
        shutil.rmtree(folder)
    latencies = [sample for outcome in outcomes for sample in outcome[0]]
    failed, refused = (sum(outcome[i] for outcome in outcomes) for i in (1, 2))
    versions = len(set().union(*(outcome[3] for outcome in outcomes)))
    first, during, last = (
        [latency for at, latency in latencies if begin <= at < end] for begin, end in zip(marks, marks[1:])
    )
    undisturbed = p99(first + last)
    print(
        f"{RELOADS} reloads of at most {max(durations) * 1000:.0f} ms each, with {len(during)} responses meanwhile: "
        f"{failed} failed, {refused} refused, {versions} configurations seen; p99 {p99(during):.2f} ms, "
        f"undisturbed {undisturbed:.2f} ms ({p99(first):.2f} before, {p99(last):.2f} after), ratio {p99(during) / undisturbed:.2f}"
    )
    is_fast = ANY_TIME or p99(during) < 2 * undisturbed
    if failed or refused or code != 0 or not is_fast:
        sys.exit(f"FAILED (exit code of the server: {code})")


if __name__ == "__main__":
    main()
