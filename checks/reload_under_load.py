#!/usr/bin/env python3
"""Reloads a configuration a hundred times in a row while both cores are busy, and holds the
program to what it promises: no request fails, nobody is refused, and the p99 stays under twice
that of the undisturbed server.

    python3 checks/reload_under_load.py target/release/selvedge

With `--any-time` it judges no times, as on a machine that does something else, too.
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
# The undisturbed time is measured before and after.
UNDISTURBED_SECONDS = 4
CLIENT_PROCESSES = 2
KEEPING = 24
CLOSING = 8
# One more reload begins when the last one is done, but not sooner than this.
RELOAD_EVERY_SECONDS = 0.05
KEEP = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
CLOSE = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
BODY = b"the page\n"


class Client:
    """Asks over one connection, which it makes anew when the server says that it closes."""

    def __init__(self, address, request, selector):
        self.address, self.request, self.selector = address, request, selector
        self.socket = None
        self.answer = b""

    def ask(self):
        if self.socket is None:
            self.socket = socket.create_connection(self.address, timeout=10)
            self.socket.setblocking(False)
            self.selector.register(self.socket, selectors.EVENT_READ, self)
        self.began = time.perf_counter()
        self.answer = b""
        self.socket.send(self.request)

    def hear(self):
        """Whether an answer is complete; None when there is none to come."""
        try:
            piece = self.socket.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            piece = b""
        self.answer += piece
        if self.answer.endswith(BODY):
            if b"\r\nconnection: close\r\n" in self.answer.lower() or self.request is CLOSE:
                self.end()
            return self.answer.startswith(b"HTTP/1.1 200 ")
        if not piece:
            self.end()
            return None
        return False

    def end(self):
        self.selector.unregister(self.socket)
        self.socket.close()
        self.socket = None


def load(address, results, over):
    """Keeps its clients asking; what came of it goes to `results`, with the time of each."""
    selector = selectors.DefaultSelector()
    clients = [Client(address, request, selector) for request in [KEEP] * KEEPING + [CLOSE] * CLOSING]
    seen, failed, refused, versions = [], 0, 0, set()
    for client in clients:
        client.ask()
    while not over.is_set():
        for key, _ in selector.select(timeout=1):
            client = key.data
            complete = client.hear()
            if complete is False:
                continue
            now = time.perf_counter()
            if complete:
                seen.append((now, now - client.began))
                at = client.answer.find(b"x-version: ")
                versions.add(client.answer[at + 11 : client.answer.find(b"\r", at)])
            else:
                failed += 1
            try:
                client.ask()
            except ConnectionRefusedError:
                refused += 1
    results.put((seen, failed, refused, versions))


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


def order(folder, word):
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(30)
        control.connect(os.path.join(folder, "selvedge.sock"))
        control.sendall(word.encode() + b"\n")
        answer = b""
        while piece := control.recv(65536):
            answer += piece
    if not answer.startswith(b"ok\n"):
        sys.exit(f"{word} was refused: {answer.decode()}")


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
                    sys.exit("the program does not serve")
                time.sleep(0.01)
        over, results = multiprocessing.Event(), multiprocessing.Queue()
        clients = [multiprocessing.Process(target=load, args=(address, results, over)) for _ in range(CLIENT_PROCESSES)]
        for client in clients:
            client.start()
        time.sleep(1)
        marks = [time.perf_counter()]
        time.sleep(UNDISTURBED_SECONDS)
        marks.append(time.perf_counter())
        spent = []
        for version in range(2, RELOADS + 2):
            configure(folder, address[1], version)
            began = time.perf_counter()
            order(folder, "reload")
            spent.append(time.perf_counter() - began)
            time.sleep(max(0, RELOAD_EVERY_SECONDS - spent[-1]))
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
    seen = [one for outcome in outcomes for one in outcome[0]]
    failed, refused = (sum(outcome[i] for outcome in outcomes) for i in (1, 2))
    versions = len(set().union(*(outcome[3] for outcome in outcomes)))
    first, during, last = (
        [took for at, took in seen if begin <= at < end] for begin, end in zip(marks, marks[1:])
    )
    quiet = p99(first + last)
    print(
        f"{RELOADS} reloads, each {max(spent) * 1000:.0f} ms at most, while {len(during)} requests were answered: "
        f"{failed} failed, {refused} refused, {versions} versions seen; p99 {p99(during):.2f} ms, "
        f"undisturbed {quiet:.2f} ms ({p99(first):.2f} before, {p99(last):.2f} after), ratio {p99(during) / quiet:.2f}"
    )
    calm = ANY_TIME or p99(during) < 2 * quiet
    if failed or refused or code != 0 or not calm:
        sys.exit(f"not as promised (the program ended with {code})")


if __name__ == "__main__":
    main()
