#!/usr/bin/env python3
"""Checks and reloads a configuration of 10,000 sites, each with its own document root.

Asserts that `selvedge check` takes less than 1 s, and a reload during requests less than 2 s.

    python3 checks/many_sites.py target/release/selvedge

`--any-time` does not assert times, for a machine that runs other tasks too.
"""
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

ANY_TIME = "--any-time" in sys.argv
SITES = 10_000
CHECK_MAX_SECONDS = 1
RELOAD_MAX_SECONDS = 2


def get(address, host, path="/news/today"):
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        response = b""
        while piece := client.recv(65536):
            response += piece
    return response.decode()


def configure(folder, port, version):
    with open(os.path.join(folder, "selvedge.kdl.new"), "w") as configuration:
        configuration.write(f'listen "127.0.0.1:{port}"\nlog {{\n    access "off"\n}}\ninclude "sites/*.kdl"\n')
    # Ten files with a tenth of the sites each, as a generator program may write them.
    for part in range(10):
        with open(os.path.join(folder, "sites", f"{part}.kdl"), "w") as sites:
            for number in range(part, SITES, 10):
                sites.write(
                    f'site "s{number}.example" "www.s{number}.example" {{\n    root "../s{number}/public"\n'
                    f'    header "X-Version" "{version}"\n    error-page 404 "/404.html"\n'
                    '    route "/old/*" { redirect "/news/*" status=301 }\n'
                    f'    route "/news/*" {{ respond 200 "{number}" }}\n}}\n'
                )
    os.rename(os.path.join(folder, "selvedge.kdl.new"), os.path.join(folder, "selvedge.kdl"))


def create_roots(folder):
    for number in range(SITES):
        root = os.path.join(folder, f"s{number}", "public")
        os.makedirs(root)
        for name in ("index.html", "404.html"):
            with open(os.path.join(root, name), "w") as page:
                page.write(f"{name} of {number}")


def run_timed(command):
    started_at = time.monotonic()
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        sys.exit(f"{command}: {result.stdout}{result.stderr}")
    return time.monotonic() - started_at


def check_descriptor_limit():
    """Exits if the limit of file descriptors is too low: one for each root and some for the server."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit != resource.RLIM_INFINITY and limit < SITES + 1_000:
        sys.exit(f"{SITES} document roots need more file descriptors than the limit of {limit}")


def main():
    check_descriptor_limit()
    binary, folder = sys.argv[1], tempfile.mkdtemp()
    os.mkdir(os.path.join(folder, "sites"))
    create_roots(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    configure(folder, address[1], 1)
    options = ["--config", os.path.join(folder, "selvedge.kdl")]
    check_seconds = min(run_timed([binary, "check", *options]) for _ in range(3))
    program = subprocess.Popen([binary, "run", *options], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                get(address, "s0.example")
                break
            except ConnectionRefusedError:
                if program.poll() is not None or time.monotonic() > deadline:
                    sys.exit("the server does not start")
                time.sleep(0.01)
        over, counts = threading.Event(), {"ok": 0, "failed": 0}

        def send_requests():
            number = 0
            while not over.is_set():
                number = (number + 7919) % SITES
                for path, content in (("/news/today", number), ("/", f"index.html of {number}")):
                    is_correct = get(address, f"www.s{number}.example", path).endswith(f"\r\n\r\n{content}")
                    counts["ok" if is_correct else "failed"] += 1

        client = threading.Thread(target=send_requests)
        client.start()
        reload_seconds = []
        for version in range(2, 5):
            configure(folder, address[1], version)
            reload_seconds.append(run_timed([binary, "reload", *options]))
            if f"x-version: {version}\r\n" not in get(address, "s9999.example").lower():
                sys.exit("a reload has no effect")
        over.set()
        client.join()
    finally:
        program.terminate()
        code = program.wait(timeout=60)
        shutil.rmtree(folder)
    print(
        f"{SITES} sites: checked in {check_seconds:.2f} s, reloaded in at most {max(reload_seconds):.2f} s "
        f"while {counts['ok']} requests succeeded and {counts['failed']} failed"
    )
    is_fast = ANY_TIME or (check_seconds < CHECK_MAX_SECONDS and max(reload_seconds) < RELOAD_MAX_SECONDS)
    if code != 0 or counts["failed"] or not is_fast:
        sys.exit(f"FAILED (exit code of the server: {code})")


if __name__ == "__main__":
    main()
