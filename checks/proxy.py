#!/usr/bin/env python3
"""Checks the proxy of a server with a strict upstream: what reaches the upstream, and what reaches the client.

    python3 checks/proxy.py target/release/selvedge [--driver epoll|io_uring] [--address HOST:PORT] [CHECK ...]

The upstream (`proxy_backend.py`) resets the connection on each request that a strict server must refuse. The checks:
`rows` (the responses of `cases/proxy/`, whole, byte by byte, at random splits, and to a client of HTTP/2), `cuts` (an
upstream that ends at each byte), `requests` (the requests of `cases/rfc9112/`), `fields`, `races` (connections that end
while they are idle or as a request arrives), `timeouts`, `uploads`, `early` (responses before the end of an upload),
`streams` (events, trailers, interim responses, a client that leaves) and `tunnels`. curl must be installed.

`--upstream PORT` starts no server, but checks the proxy at `--address`, which forwards to this port.
"""
import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import proxy_exchanges
from clients import free_address, wait_until_it_listens
from proxy_backend import Backend
from proxy_client import WAIT, Client, fetch_over_http2
from proxy_rows import client_requests, load_reasons, load_rows

CONFIGURATION = """
workers 1
listen "{address}" http2=#true
log {{ access "access.log"; error "error.log"; }}
upstream "strict" {{
    server "http://{upstream}"
    failures 1000000
    response-timeout "2s"
    silence-timeout "2s"
}}
site "*" {{
    body-bytes-max "1GiB"
    route "/*" {{ proxy "strict"; }}
}}
"""
# Longer rows are not sent byte by byte.
BYTE_BY_BYTE_MAX = 600
# Responses that end at each of their bytes.
CUT = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX: y\r\n\r\nabcdef",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3;x\r\ndef\r\n0\r\nX: y\r\n\r\n",
}


class Proxy:
    """`selvedge run` with a proxy for all paths. Its exit code must be 0, and its log must have no panic."""

    def __init__(self, binary, driver, upstream):
        self.folder = Path(tempfile.mkdtemp(prefix="selvedge-proxy-"))
        self.address = free_address()
        configuration = self.folder / "selvedge.kdl"
        configuration.write_text(CONFIGURATION.format(address=self.address, upstream=upstream))
        checked = subprocess.run([binary, "check", configuration], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        environment = {**os.environ, "HOME": str(self.folder), "SELVEDGE_DRIVER": driver}
        self.process = subprocess.Popen(
            [binary, "run", configuration], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until_it_listens(self.address)
        self.log_start = 0

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        code = self.process.wait(60)
        log = self.log()
        if kind is None:
            assert code == 0 and "panicked" not in log, f"exit code {code}\n{log[-3000:]}"
            shutil.rmtree(self.folder)
        else:
            print(f"the log is in {self.folder}: {log[-1000:]}")

    def log(self):
        """Returns the error log, whose file exists from its first line on."""
        path = self.folder / "error.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def mark_log(self):
        """Begins the part of the error log in which [`Proxy.has_logged`] searches."""
        self.log_start = len(self.log())

    def has_logged(self, text):
        """Returns whether the error log has a text, or gets it soon."""
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            if text in self.log()[self.log_start :]:
                return True
            time.sleep(0.02)
        return False


class Running(contextlib.AbstractContextManager):
    """Another proxy, which runs already. It has no log that this program can read."""

    def __init__(self, address):
        self.address = address

    def __exit__(self, *_):
        pass

    def mark_log(self):
        pass

    def has_logged(self, _text):
        return True


class RowScript:
    """Sends the response of the current row."""

    def __init__(self):
        self.parts, self.end, self.number = [], None, 0

    def __call__(self, upstream, message):
        self.number = upstream.number
        upstream.read(message)
        upstream.send(*self.parts)
        if self.end == "close":
            upstream.close_sending()
        elif self.end == "reset":
            upstream.reset()


def close_after(upstream, message):
    """Responds and ends the connection, so that the next row begins without an idle one."""
    upstream.read(message)
    upstream.respond(fields=["Connection: close"])
    upstream.close_sending()


ROW = RowScript()
SCRIPTS = {"row": ROW, "next": close_after, **proxy_exchanges.SCRIPTS}


def splits(sent):
    """Yields a name and the pieces in which a response is sent."""
    yield "whole", [sent]
    if len(sent) <= BYTE_BY_BYTE_MAX:
        yield "byte by byte", [sent[at : at + 1] for at in range(len(sent))]
    for seed in range(2):
        places = sorted(random.Random(f"{seed}{len(sent)}").randrange(len(sent) + 1) for _ in range(6))
        yield f"split {seed}", [sent[a:b] for a, b in zip([0, *places], [*places, len(sent)])]


def compare(row, response, shown):
    """Compares what the client got with the verdict of a row."""
    if row.is_aborted:
        if response.is_complete and response.status == 502:
            # The error was known before anything was sent, or a reset has overtaken the head.
            return
        assert not response.is_complete, f"{shown}: complete: {response}"
        # In HTTP/2, a stream may be reset before its head: that is no end that a client could take for another one.
        statuses = (row.status, 0) if "HTTP/2" in shown else (row.status,)
        assert response.status in statuses, f"{shown}: {response}"
        assert row.body is None or row.body.startswith(response.body), f"{shown}: {response}"
        return
    assert response.is_complete and response.status == row.status, f"{shown}: {response}"
    for name, value in row.has:
        assert value in response.values(name), f"{shown}: {name}: {value} in {response.fields}"
    for name, _ in row.has_not:
        assert not response.values(name), f"{shown}: {name} in {response.fields}"
    assert row.body is None or response.body == row.body, f"{shown}: {response.body}"


def check_fate(row, proxy, backend, shown):
    """Checks whether the connection of the row is used for the next request."""
    if not row.is_reused:
        assert backend.is_closed(ROW.number), f"{shown}: the connection to the upstream stays open"
    with Client(proxy.address) as client:
        response = client.exchange("GET", "/next")
    assert response.status == 200, f"{shown}: then {response}"
    is_reused = response.get("x-connection") == str(ROW.number)
    assert is_reused == row.is_reused, f"{shown}: reused: {is_reused}"


def send_row(row, proxy, shown):
    """Sends the request of a row, and compares its response with the verdict."""
    content = b"" if row.method == "POST" else None
    with Client(proxy.address) as client:
        compare(row, client.exchange(row.method, "/row", row.fields, content), shown)


def check_reason(row, proxy, reason, shown):
    """Checks that the log has the reason of a malformed response. It has at most one line per second for all of them."""
    end = time.monotonic() + WAIT
    while not proxy.has_logged(reason):
        assert time.monotonic() < end, f"{shown}: `{reason}` is not in the log"
        send_row(row, proxy, shown)


def rows(proxy, backend):
    reasons, all_rows, count = load_reasons(), load_rows(), 0
    for row in all_rows:
        ROW.end = row.end
        for split, ROW.parts in splits(row.sent):
            shown = f"{row.where}: {row.name} ({split})"
            proxy.mark_log()
            send_row(row, proxy, shown)
            if row.reason and split == "whole":
                check_reason(row, proxy, reasons[row.reason], shown)
            check_fate(row, proxy, backend, shown)
            count += 1
        # Fields of a connection are malformed in HTTP/2.
        if not row.fields:
            ROW.parts = [row.sent]
            shown = f"{row.where}: {row.name} (HTTP/2)"
            compare(row, fetch_over_http2(proxy.address, row.method, "/row"), shown)
            check_fate(row, proxy, backend, shown)
            count += 1
    print(f"rows: {len(all_rows)}, sent {count} times")


def cuts(proxy, backend):
    """A POST whose response ends anywhere is never complete, and never sent twice."""
    count = 0
    for name, sent in CUT.items():
        head_len = sent.index(b"\r\n\r\n") + 4
        for at in range(len(sent)):
            for end in ("close", "reset"):
                ROW.parts, ROW.end = [sent[:at]], end
                path = f"/row?{name}-{at}-{end}"
                with Client(proxy.address) as client:
                    response = client.exchange("POST", path, content=b"x")
                if at < head_len:
                    assert response.is_complete and response.status == 502, f"{path}: {response}"
                elif response.is_complete:
                    # The end was known before anything was sent.
                    assert response.status == 502, f"{path}: {response}"
                else:
                    assert response.status == 200 and b"abcdef".startswith(response.body), f"{path}: {response}"
                assert backend.await_messages(path, 1) == 1, f"{path}: the POST was sent again"
                count += 1
    print(f"cuts: {count} responses that end too early, each POST sent once")


def requests(proxy, backend):
    """No request of a client makes the proxy send one that a strict server refuses."""
    count = 0
    for name, sent in client_requests():
        before = backend.count
        with Client(proxy.address) as client:
            with contextlib.suppress(OSError):
                client.stream.sendall(sent)
                client.stream.shutdown(1)
                while client.stream.recv(65536):
                    pass
        assert not backend.violations, f"{name}: {backend.take_violations()}"
        count += backend.count > before
    assert count, "no request reached the upstream"
    print(f"requests: {sum(1 for _ in client_requests())} sent, none of those forwarded breaks a rule")


CHECKS = {"rows": rows, "cuts": cuts, "requests": requests, **proxy_exchanges.CHECKS}


def run_checks(options, driver):
    """Runs the checks with one driver. Returns the names of those that failed."""
    failed = []
    for name in options.checks or CHECKS:
        began, backend = time.monotonic(), Backend(SCRIPTS, options.upstream)
        try:
            with contextlib.closing(backend):
                proxy = Running(options.address) if options.upstream else Proxy(options.binary, driver, backend.address)
                with proxy:
                    CHECKS[name](proxy, backend)
                violations = backend.take_violations()
                assert not violations, f"the proxy broke a rule: {violations[:3]}"
        except Exception:  # The other checks run nevertheless.
            failed.append(f"{driver}: {name}")
            print(f"FAILED: {traceback.format_exc(limit=-6)}")
            for violation in backend.violations[:3]:
                print(f"the proxy broke a rule: {violation}")
        print(f"{driver}: {name}: {time.monotonic() - began:.1f} s", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=Path)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--driver", choices=["epoll", "io_uring"])
    parser.add_argument("--address", help="a proxy that runs already")
    parser.add_argument("--upstream", type=int, default=0, help="the port to which it forwards")
    options = parser.parse_args()
    failed = []
    for driver in [options.driver] if options.driver else ["epoll", "io_uring"]:
        failed += run_checks(options, driver)
    if failed:
        sys.exit("FAILED: " + "; ".join(failed))


if __name__ == "__main__":
    main()
