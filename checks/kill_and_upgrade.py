#!/usr/bin/env python3
"""Kills the serving process under load, and upgrades it, and holds the program to what it
promises: nobody is refused, the first answer comes within 200 ms of a kill, and an upgrade
loses no request.

    python3 checks/kill_and_upgrade.py target/release/selvedge

With `--any-time` it judges no times, as on a machine that does something else, too.
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
FIRST_ANSWER_MAX_MS = 200
CLIENTS = 8
REQUEST = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"


class Load:
    """Clients that ask over a new connection each time, as fast as they can."""

    def __init__(self, address):
        self.address = address
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.answered = self.cut = self.refused = 0
        self.threads = [threading.Thread(target=self.ask_on) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def ask_on(self):
        while not self.over.is_set():
            outcome = ask(self.address)
            with self.lock:
                setattr(self, outcome, getattr(self, outcome) + 1)

    def counts(self):
        with self.lock:
            return self.answered, self.cut, self.refused

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


def ask(address):
    """answered, cut (the connection ended before the answer did) or refused."""
    try:
        client = socket.create_connection(address, timeout=20)
    except ConnectionRefusedError:
        return "refused"
    with client:
        try:
            client.sendall(REQUEST)
            answer = b""
            while piece := client.recv(65536):
                answer += piece
        except (ConnectionResetError, BrokenPipeError):
            return "cut"
    return "answered" if answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"home") else "cut"


def serving_process(supervisor):
    """The one process that the supervisor has started and that still runs."""
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
    sys.exit("the supervisor has not exactly one serving process")


def check_kills(binary):
    """Each of another program, which has not restarted anything yet: later restarts wait."""
    times, answered, cut, refused = [], 0, 0, 0
    for _ in range(KILLS):
        with Program(binary) as program, Load(program.address) as load:
            time.sleep(0.5)
            pid = serving_process(program.process.pid)
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            while ask(load.address) != "answered":
                pass
            times.append((time.monotonic() - began) * 1000)
            time.sleep(0.2)
        answered, cut, refused = (a + b for a, b in zip((answered, cut, refused), load.counts()))
    print(
        f"{KILLS} kills: first answer after {statistics.median(times):.0f} ms (median), {max(times):.0f} ms (longest); "
        f"{answered} answered, {cut} cut with the process, {refused} refused"
    )
    return refused == 0 and (ANY_TIME or max(times) <= FIRST_ANSWER_MAX_MS)


def check_upgrades(binary):
    with Program(binary) as program, Load(program.address) as load:
        for _ in range(UPGRADES):
            time.sleep(0.3)
            put(binary, program.binary)
            order = [program.binary, "upgrade", "--config", program.configuration]
            ended = subprocess.run(order, capture_output=True, text=True, timeout=90)
            if ended.returncode != 0:
                sys.exit(f"an upgrade failed: {ended.stdout}{ended.stderr}")
        time.sleep(0.5)
    answered, cut, refused = load.counts()
    print(f"{UPGRADES} upgrades: {answered} answered, {cut} cut, {refused} refused")
    return cut == 0 and refused == 0 and answered > 0


def put(binary, to):
    shutil.copy2(binary, to + ".new")
    os.rename(to + ".new", to)


class Program:
    """The program in a folder of its own; it has to end as programs should."""

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
        put(binary, self.binary)
        command = [self.binary, "run", "--config", self.configuration]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        deadline = time.monotonic() + 20
        while ask(self.address) != "answered":
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit("the program does not serve")
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        code = self.process.wait(timeout=60)
        shutil.rmtree(self.folder)
        if code != 0:
            sys.exit(f"the program ended with {code}")


def main():
    kept = [check_kills(sys.argv[1]), check_upgrades(sys.argv[1])]
    if not all(kept):
        sys.exit("not as promised")


if __name__ == "__main__":
    main()
