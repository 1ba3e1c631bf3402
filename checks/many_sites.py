#!/usr/bin/env python3
"""Makes a configuration of 10,000 sites, each with a root of its own, and holds the program to what
it promises: it is checked in under 1 s, and reloaded in under 2 s while it serves.

    python3 checks/many_sites.py target/release/selvedge

With `--any-time` it judges no times, as on a machine that does something else, too.
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
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    return answer.decode()


def configure(folder, port, version):
    with open(os.path.join(folder, "selvedge.kdl.new"), "w") as configuration:
        configuration.write(f'listen "127.0.0.1:{port}"\nlog {{\n    access "off"\n}}\ninclude "sites/*.kdl"\n')
    # A tenth in each of ten files, as whoever makes them by a program would.
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


def publish(folder):
    for number in range(SITES):
        root = os.path.join(folder, f"s{number}", "public")
        os.makedirs(root)
        for name in ("index.html", "404.html"):
            with open(os.path.join(root, name), "w") as page:
                page.write(f"{name} of {number}")


def timed(command):
    began = time.monotonic()
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if ended.returncode != 0:
        sys.exit(f"{command}: {ended.stdout}{ended.stderr}")
    return time.monotonic() - began


def see_to_descriptors():
    """Every site's root takes one, and what serves takes some beside."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit != resource.RLIM_INFINITY and limit < SITES + 1_000:
        sys.exit(f"{SITES} roots take more descriptors than the {limit} that there may be here")


def main():
    see_to_descriptors()
    binary, folder = sys.argv[1], tempfile.mkdtemp()
    os.mkdir(os.path.join(folder, "sites"))
    publish(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    configure(folder, address[1], 1)
    options = ["--config", os.path.join(folder, "selvedge.kdl")]
    checked = min(timed([binary, "check", *options]) for _ in range(3))
    program = subprocess.Popen([binary, "run", *options], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                get(address, "s0.example")
                break
            except ConnectionRefusedError:
                if program.poll() is not None or time.monotonic() > deadline:
                    sys.exit("the program does not serve")
                time.sleep(0.01)
        over, counts = threading.Event(), {"answered": 0, "failed": 0}

        def ask():
            number = 0
            while not over.is_set():
                number = (number + 7919) % SITES
                for path, content in (("/news/today", number), ("/", f"index.html of {number}")):
                    right = get(address, f"www.s{number}.example", path).endswith(f"\r\n\r\n{content}")
                    counts["answered" if right else "failed"] += 1

        client = threading.Thread(target=ask)
        client.start()
        reloads = []
        for version in range(2, 5):
            configure(folder, address[1], version)
            reloads.append(timed([binary, "reload", *options]))
            if f"x-version: {version}\r\n" not in get(address, "s9999.example").lower():
                sys.exit("a reload did not count")
        over.set()
        client.join()
    finally:
        program.terminate()
        code = program.wait(timeout=60)
        shutil.rmtree(folder)
    print(
        f"{SITES} sites: checked in {checked:.2f} s, reloaded in {max(reloads):.2f} s at most "
        f"while {counts['answered']} requests were answered and {counts['failed']} failed"
    )
    quick = ANY_TIME or (checked < CHECK_MAX_SECONDS and max(reloads) < RELOAD_MAX_SECONDS)
    if code != 0 or counts["failed"] or not quick:
        sys.exit(f"not as promised (the program ended with {code})")


if __name__ == "__main__":
    main()
