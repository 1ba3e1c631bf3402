#!/usr/bin/env python3
"""Checks HTTP/2 of a server, over TLS and without, with both drivers.

    python3 checks/http2.py target/release/selvedge [--h2spec PATH] [--suite ../shared/suites/h2attack.py] [CHECK ...]

The checks: `h2spec` (conformance), `rows` (a table of requests), `suite` and `attacks` (floods and slow clients), `clients`
(curl, nghttp, h2load, httpx, Go), `browser` (Chromium loads a site with many files), and `reloads` (reload, upgrade and
shutdown under load). curl, nghttp, h2load, go, chromium and certutil must be installed; the packages of Python are
installed from their registry into target/.
"""
import argparse
import subprocess
import sys
import time
import traceback
from pathlib import Path

from python_packages import run_with

PACKAGES = ["h2", "hpack", "hyperframe", "httpx", "websockets"]
run_with("http2-checks-python", PACKAGES, PACKAGES)

import http2_attacks  # noqa: E402, the packages must be installed
import http2_clients  # noqa: E402
import http2_reloads  # noqa: E402
import http2_rows  # noqa: E402
from http2_server import Server, has_io_uring  # noqa: E402

# Conformance tests race with the server about the order of frames, so that one pass is no proof.
H2SPEC_RUNS = 10
H2SPEC_TESTS = 145
SUITE_MEMORY_MAX = 16
SUITE_PROBE_MAX = 0.3
TLS_FROM_THREADS = Path(__file__).with_name("tls_from_threads.py")


def h2spec(server, options):
    """Runs all tests of h2spec several times."""
    for transport, port, arguments in [("TLS", server.tls, ["-t", "-k"]), ("plain", server.plain, [])]:
        command = [options.h2spec, "-h", "localhost", "-p", str(port), "-o", "5", *arguments]
        expected = f"{H2SPEC_TESTS} tests, {H2SPEC_TESTS} passed, 0 skipped, 0 failed"
        for _ in range(H2SPEC_RUNS):
            output = subprocess.run(command, capture_output=True, timeout=120).stdout.decode(errors="replace")
            assert expected in output, output[output.find("Failures:") :]
        print(f"h2spec, {transport}: {H2SPEC_TESTS} tests passed, {H2SPEC_RUNS} times")


def rows(server, _options):
    http2_rows.check(server)


def suite(server, options):
    """Runs the suite of attacks over TLS and without at once."""
    if not options.suite.is_file():
        print("suite: skipped, because the file is missing")
        return
    running = []
    for transport, arguments in [("TLS", [str(server.tls), "--tls"]), ("plain", [str(server.plain)])]:
        command = [sys.executable, TLS_FROM_THREADS, options.suite, *arguments, "--path", "/hello.txt"]
        command += ["--pid", str(server.process.pid), "--mem", str(SUITE_MEMORY_MAX)]
        running.append((transport, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    for transport, process in running:
        output = process.communicate(timeout=170)[0]
        lines = output.splitlines()
        attacks = [line for line in lines if " probe " in line]
        slowest = max((float(line.split(" probe ")[1].split()[0]) for line in attacks), default=99)
        assert process.returncode == 0 and lines[-1] == f"{len(attacks)} passed, 0 failed", output
        assert attacks and (options.any_time or slowest < SUITE_PROBE_MAX), output
        print(f"the suite of attacks, {transport}: {lines[-1]}, slowest probe {slowest} s")


def attacks(server, options):
    http2_attacks.check(options.binary, server.driver, options.any_time)


def clients(server, _options):
    http2_clients.check(server)


def browser(server, options):
    http2_clients.check_browser(options.binary, server.driver)


def reloads(server, options):
    http2_reloads.check(options.binary, server.driver)


CHECKS = [h2spec, rows, suite, attacks, clients, browser, reloads]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=Path)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(check.__name__ for check in CHECKS))
    parser.add_argument("--h2spec", default="h2spec")
    parser.add_argument("--suite", type=Path, default=Path("../shared/suites/h2attack.py"))
    parser.add_argument("--driver", choices=["epoll", "io_uring"])
    parser.add_argument("--any-time", action="store_true", help="assert no times, for a machine that runs other tasks too")
    options = parser.parse_args()
    wanted = [check for check in CHECKS if not options.checks or check.__name__ in options.checks]
    failed = []
    for driver in [options.driver] if options.driver else ["epoll", "io_uring"]:
        if driver == "io_uring" and not has_io_uring(options.binary):
            print("io_uring: unavailable")
            continue
        for check in wanted:
            began = time.monotonic()
            try:
                with Server(options.binary, driver) as server:
                    check(server, options)
            except subprocess.CalledProcessError as error:
                failed.append(f"{driver}: {check.__name__}")
                print(f"FAILED: {error.cmd}: {(error.stderr or b'').decode()[-2000:]}")
            except Exception:  # The other checks run nevertheless.
                failed.append(f"{driver}: {check.__name__}")
                print(f"FAILED: {traceback.format_exc(limit=-3)}")
            print(f"{driver}: {check.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    if failed:
        sys.exit("FAILED: " + "; ".join(failed))


if __name__ == "__main__":
    main()
