#!/usr/bin/env python3
"""Kills the serving process under load, and upgrades the server under load.

Asserts that no connection is refused, that the first response is received within 200 ms of a kill,
and that an upgrade loses no request.

    python3 checks/kill_and_upgrade.py target/release/selvedge

`--any-time` does not assert times, for a machine that runs other tasks too.
"""
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ANY_TIME = "--any-time" in sys.argv
KILLS = 8
UPGRADES = 5
FIRST_RESPONSE_MAX_MS = 200
CLIENTS = 8
REQUEST = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"


class Load:
    """Clients that send each request over a new connection, as fast as possible."""

    def __init__(self, address):
        self.address = address
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.succeeded = self.aborted = self.refused = 0
        self.threads = [threading.Thread(target=self.send_requests) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def send_requests(self):
        while not self.over.is_set():
            outcome = send_request(self.address)
            with self.lock:
                setattr(self, outcome, getattr(self, outcome) + 1)

    def counts(self):
        with self.lock:
            return self.succeeded, self.aborted, self.refused

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


def send_request(address):
    """Sends a request. Returns "succeeded", "aborted" (the connection was closed before the response ended) or "refused"."""
    try:
        client = socket.create_connection(address, timeout=20)
    except ConnectionRefusedError:
        return "refused"
    with client:
        try:
            client.sendall(REQUEST)
            response = b""
            while piece := client.recv(65536):
                response += piece
        except (ConnectionResetError, BrokenPipeError):
            return "aborted"
    return "succeeded" if response.startswith(b"HTTP/1.1 200 ") and response.endswith(b"home") else "aborted"


def serving_process(supervisor):
    """Returns the process ID of the only running child of the supervisor."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with open(f"/proc/{supervisor}/task/{supervisor}/children") as children:
            found = children.read().split()
        threads = os.listdir(f"/proc/{supervisor}/task")
        for thread in threads:
            if thread != str(supervisor):
                try:
                    with open(f"/proc/{supervisor}/task/{thread}/children") as children:
                        found += children.read().split()
                except FileNotFoundError:
                    pass
        if len(found) == 1:
            return int(found[0])
        time.sleep(0.005)
    sys.exit("the supervisor does not have exactly one serving process")


def check_kills(binary):
    """Kills the serving process of several servers once each, because a supervisor delays repeated restarts."""
    times, succeeded, aborted, refused = [], 0, 0, 0
    for _ in range(KILLS):
        with SupervisedServer(binary) as program, Load(program.address) as load:
            time.sleep(0.5)
            pid = serving_process(program.process.pid)
            started_at = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            while send_request(load.address) != "succeeded":
                pass
            times.append((time.monotonic() - started_at) * 1000)
            time.sleep(0.2)
        succeeded, aborted, refused = (a + b for a, b in zip((succeeded, aborted, refused), load.counts()))
    print(
        f"{KILLS} kills: first response after {statistics.median(times):.0f} ms (median), {max(times):.0f} ms (longest); "
        f"{succeeded} succeeded, {aborted} aborted with the process, {refused} refused"
    )
    return refused == 0 and (ANY_TIME or max(times) <= FIRST_RESPONSE_MAX_MS)


def check_upgrades(binary):
    with SupervisedServer(binary) as program, Load(program.address) as load:
        for _ in range(UPGRADES):
            time.sleep(0.3)
            install(binary, program.binary)
            command = [program.binary, "upgrade", "--config", program.configuration]
            result = subprocess.run(command, capture_output=True, text=True, timeout=90)
            if result.returncode != 0:
                sys.exit(f"an upgrade failed: {result.stdout}{result.stderr}")
        time.sleep(0.5)
    succeeded, aborted, refused = load.counts()
    print(f"{UPGRADES} upgrades: {succeeded} succeeded, {aborted} aborted, {refused} refused")
    return aborted == 0 and refused == 0 and succeeded > 0


def install(binary, target):
    shutil.copy2(binary, target + ".new")
    os.rename(target + ".new", target)


class SupervisedServer:
    """A server in a temporary folder. Its exit code must be 0."""

    def __init__(self, binary):
        self.folder = tempfile.mkdtemp()
        os.mkdir(os.path.join(self.folder, "root"))
        with open(os.path.join(self.folder, "root", "index.html"), "w") as page:
            page.write("home")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = free.getsockname()
        self.configuration = os.path.join(self.folder, "selvedge.kdl")
        with open(self.configuration, "w") as configuration:
            configuration.write(
                f'listen "127.0.0.1:{self.address[1]}"\nlog {{\n    access "off"\n}}\nsite "*" {{\n    root "root"\n}}\n'
            )
        self.binary = os.path.join(self.folder, "selvedge")
        install(binary, self.binary)
        command = [self.binary, "run", "--config", self.configuration]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        deadline = time.monotonic() + 20
        while send_request(self.address) != "succeeded":
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit("the server does not start")
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        code = self.process.wait(timeout=60)
        shutil.rmtree(self.folder)
        if code != 0:
            sys.exit(f"the exit code of the server is {code}")


def main():
    results = [check_kills(sys.argv[1]), check_upgrades(sys.argv[1])]
    if not all(results):
        sys.exit("FAILED")


if __name__ == "__main__":
    main()
