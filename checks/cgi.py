#!/usr/bin/env python3
"""Checks routes with `cgi`: what programs get, what they may do, and git over them.

    python3 checks/cgi.py target/release/selvedge [--driver epoll|io_uring] [CHECK ...]

Needs root, git with git-http-backend, and the user `www-data`. Checks: `environment` (the variables of RFC 3875 and no others),
`responses` (heads, redirects, output that is no response), `input`, `bounds` (time, memory, output, number at once),
`leaving` (a client that leaves ends its program and what that has started), `sessions` (so does the end of a program, also for
processes that have left its session), `after` (a program that goes on after its response), `duplex` (a client that sends all
before it reads), `refusals` (`nph-`, `..`, files without
permission), `reloads` (a folder that is added) and `git` (clone and push).
"""

import argparse
import contextlib
import hashlib
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from clients import free_address, wait_until_it_listens

WAIT = 30
SH = "#!/bin/sh\n"
HTML = SH + "echo 'Content-Type: text/html'\necho\n"
# Starts a process in a session of its own, which starts another one.
SESSION = (
    "setsid \"${0%/*}/daemon\" > /dev/null 2>&1 < /dev/null &\n"
    "while ! [ -s \"$MARKS/second\" ]; do sleep 0.01; done\necho started\n"
)

# Waits for a mark after the response, works, and leaves a mark.
GOES_ON = (
    "while ! [ -e \"$MARKS/go\" ]; do sleep 0.01; done\n"
    "echo late >&2\necho surplus\nsleep 0.1\necho > \"$MARKS/worked-on\"\n"
)
DUPLEX_BYTES = 16 << 20

PROGRAMS = {
    "env": SH + "printf 'Content-Type: text/plain\\n\\n'\nenv | sort\necho \"id=$(id -un) pwd=$(pwd) args=$#\"\n",
    "sub/deep": HTML + "echo \"deep $SCRIPT_NAME $PATH_INFO\"\n",
    "status": SH + "printf 'Status: 404 Not Here\\r\\nContent-Type: text/plain\\r\\nContent-Length: 4\\r\\n\\r\\nfish'\n",
    "abroad": SH + "printf 'Location: https://example.org/\\n\\n'\n",
    "local": SH + "printf 'Location: /cgi/env?from=local\\n\\n'\n",
    "loop": SH + "printf 'Location: /cgi/loop\\n\\n'\n",
    "input": HTML + "sha256sum\necho \"$CONTENT_LENGTH $CONTENT_TYPE\"\n",
    "unread": HTML + "echo unread\n",
    "message": HTML + "echo done\necho 'a message for the log' >&2\n",
    "headless": SH + "echo 'no head here'\n",
    "empty": SH + "echo 'broken for a reason' >&2\nexit 7\n",
    "short": SH + "printf 'Content-Type: text/plain\\nContent-Length: 10\\n\\nabc'\n",
    "framed": SH + "printf 'Content-Type: text/plain\\nTransfer-Encoding: chunked\\n\\n0\\r\\n\\r\\n'\n",
    "killed": HTML + "echo part\nkill -9 $$\n",
    "slow": HTML + "echo begin\nsleep 1000\n",
    "silent": SH + "sleep 1000\n",
    "memory": HTML + "head -c 400000000 /dev/zero | tail -c 400000000 | wc -c\necho over\n",
    "flood": HTML + "exec yes 0123456789\n",
    "stream": HTML + "echo one\nwhile ! [ -e /tmp/none ] && ! [ -e \"$MARKS/continue\" ]; do sleep 0.01; done\necho two\n",
    "leaving": HTML + "sleep 1000 &\necho $! > \"$MARKS/child\"\necho $$ > \"$MARKS/self\"\necho started\nwait\n",
    "daemon": SH
    + "if [ \"$1\" = second ]; then echo $$ > \"$MARKS/second\"; exec sleep 1000; fi\n"
    + "echo $$ > \"$MARKS/first\"\nsetsid \"$0\" second &\nexec sleep 1000\n",
    "session": HTML + SESSION,
    "session-waits": HTML + SESSION + "sleep 1000\n",
    "limits": HTML + "ulimit -v\nulimit -Hv\nulimit -t\nulimit -c\n",
    "nph-raw": SH + "printf 'HTTP/1.1 200 OK\\r\\n\\r\\n'\n",
    "parent": HTML + "tr '\\0' '\\n' < /proc/$PPID/environ\nset -- /proc/$$/fd/*\necho $#\n",
    "null": HTML + "cat /dev/stdin > /dev/stdout\n",
    "goes-on": SH + "printf 'Content-Type: text/plain\\nContent-Length: 5\\n\\nhello'\n" + GOES_ON,
    "goes-on-without-content": SH + "printf 'Status: 204\\n\\n'\n" + GOES_ON,
    "goes-on-elsewhere": SH + "printf 'Location: /cgi/env\\n\\n'\n" + GOES_ON,
    "never-ends": SH + "echo $$ > \"$MARKS/self\"\nprintf 'Content-Length: 5\\nContent-Type: a/b\\n\\nhello'\nsleep 1000\n",
    "writes-on": SH + "printf 'Content-Type: text/plain\\nContent-Length: 13\\n\\n'\nexec yes 0123456789\n",
    "duplex": f"""#!/usr/bin/env python3
import os, sys, threading
def write():
    for _ in range({DUPLEX_BYTES} >> 16):
        sys.stdout.buffer.write(bytes(1 << 16))
sys.stdout.write("Content-Type: a/b\\n\\n")
sys.stdout.flush()
writer = threading.Thread(target=write)
writer.start()
count = sum(len(piece) for piece in iter(lambda: sys.stdin.buffer.read1(1 << 16), b""))
writer.join()
sys.stdout.write(f"received {{count}}")
""",
}

CONFIGURATION = """
workers 2
listen "{address}" http2=#true
log {{ access "access.log"; error "error.log"; }}
site "127.0.0.1" {{
    body-bytes-max "64MiB"
    route "/cgi/*" {{
        cgi "{folder}/cgi-bin" user="www-data" {{
            env "MARKS" "{folder}/marks"
            run-timeout "2s"
            memory-bytes-max "128MiB"
            output-bytes-max "4MiB"
            requests-max 4
        }}
    }}
    route "/long/*" {{ cgi "{folder}/cgi-bin" user="www-data" {{ env "MARKS" "{folder}/marks"; }}; }}
    route "/brief/*" {{
        cgi "{folder}/cgi-bin" user="www-data" {{ env "MARKS" "{folder}/marks"; silence-timeout "1s"; }}
    }}
    {more}
    route "/git/*" {{
        cgi "{backend}" user="www-data" program="git-http-backend" {{
            env "GIT_PROJECT_ROOT" "{folder}/git"
            env "GIT_HTTP_EXPORT_ALL" "1"
        }}
    }}
}}
"""


class Server:
    """`selvedge run` with programs. Its exit code must be 0, and its log must have no panic."""

    def __init__(self, binary, driver):
        self.binary = binary
        self.folder = Path(tempfile.mkdtemp(prefix="selvedge-cgi-"))
        self.folder.chmod(0o755)
        self.address = free_address()
        self.log_offset = 0
        for name, text in PROGRAMS.items():
            path = self.folder / "cgi-bin" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        (self.folder / "cgi-bin" / "data.txt").write_text("no program")
        (self.folder / "cgi-bin" / "link").symlink_to("/bin/ls")
        shutil.copytree(self.folder / "cgi-bin", self.folder / "later")
        for name in ["marks", "git"]:
            (self.folder / name).mkdir()
            shutil.chown(self.folder / name, "www-data")
        self.configuration = self.folder / "selvedge.kdl"
        self.configure("")
        checked = subprocess.run([binary, "check", self.configuration], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        self.environment = {**os.environ, "HOME": str(self.folder), "SELVEDGE_DRIVER": driver, "SECRET": "of the server"}
        self.process = subprocess.Popen(
            [binary, "run", self.configuration],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
        )
        wait_until_it_listens(self.address)

    def configure(self, more):
        backend = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
        values = {"address": self.address, "folder": self.folder, "backend": backend, "more": more}
        self.configuration.write_text(CONFIGURATION.format(**values))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        code = self.process.wait(60)
        log = (self.folder / "error.log").read_text(errors="replace")
        left = subprocess.run(["pgrep", "-f", f"{self.folder}/cgi-bin"], capture_output=True, text=True).stdout.split()
        if kind is None:
            assert code == 0 and "panicked" not in log, f"exit code {code}\n{log[-3000:]}"
            assert not left, f"programs are left: {left}"
            shutil.rmtree(self.folder)
        else:
            print(f"the log is in {self.folder}: {log[-1000:]}")

    @staticmethod
    def wait_for(is_true, what):
        end = time.monotonic() + WAIT
        while not is_true():
            assert time.monotonic() < end, f"no {what} within {WAIT} s"
            time.sleep(0.01)

    def logs(self, text, repeat=lambda: None):
        """Waits until the error log has a text behind the place of the last call. Events of one second are one line with
        the text of the first, so an event may have to be repeated."""
        def has_text():
            repeat()
            return text in (self.folder / "error.log").read_bytes()[self.log_offset :].decode(errors="replace")

        self.wait_for(has_text, f"log line with {text!r}")

    def forget_logs(self):
        log = self.folder / "error.log"
        self.log_offset = log.stat().st_size if log.exists() else 0

    def request(self, path, method="GET", body=None, headers=None):
        connection = http.client.HTTPConnection(self.address, timeout=WAIT)
        connection.request(method, path, body, headers or {})
        return connection.getresponse()

    def fetch(self, *arguments, **options):
        """Returns the status, the fields and the content."""
        response = self.request(*arguments, **options)
        content = response.read()
        response.close()
        return response.status, response.headers, content.decode(errors="replace")


def environment(server):
    fields = {"Proxy": "http://evil/", "X-Own": "a'b;c", "Cookie": "c=d"}
    content = server.fetch("/cgi/env/a%20b?q=1&$(id)", headers=fields)[2]
    lines = content.splitlines()
    got = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("id="))
    host, port = server.address.split(":")
    expected = {
        "DOCUMENT_URI": "/cgi/env/a b",
        "GATEWAY_INTERFACE": "CGI/1.1",
        "HTTP_ACCEPT_ENCODING": "identity",
        "HTTP_COOKIE": "c=d",
        "HTTP_HOST": server.address,
        "HTTP_X_OWN": "a'b;c",
        "MARKS": f"{server.folder}/marks",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PATH_INFO": "/a b",
        "QUERY_STRING": "q=1&$(id)",
        "REDIRECT_STATUS": "200",
        "REMOTE_ADDR": "127.0.0.1",
        "REQUEST_METHOD": "GET",
        "REQUEST_SCHEME": "http",
        "REQUEST_URI": "/cgi/env/a%20b?q=1&$(id)",
        "SCRIPT_FILENAME": f"{server.folder}/cgi-bin/env",
        "SCRIPT_NAME": "/cgi/env",
        "SERVER_ADDR": "127.0.0.1",
        "SERVER_NAME": host,
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": "HTTP/1.1",
    }
    for name, value in expected.items():
        assert got.pop(name, None) == value, (name, content)
    assert re.fullmatch("[0-9a-f]{32}", got.pop("HTTP_X_REQUEST_ID")), content
    assert got.pop("SELVEDGE_PROGRAM").replace(".", "").isdigit()
    assert got.pop("SERVER_SOFTWARE").startswith("Selvedge/") and got.pop("REMOTE_PORT").isdigit()
    # The shell adds these.
    assert set(got) <= {"PWD", "OLDPWD", "SHLVL", "_"}, got
    assert lines[-1] == f"id=www-data pwd={server.folder}/cgi-bin args=0", lines[-1]
    content = server.fetch("/cgi/parent")[2]
    assert "of the server" not in content, content
    # Standard input, output, error, the script of the shell, and the folder that it reads.
    assert int(content.split()[-1]) <= 5, content
    assert server.fetch("/cgi/sub/deep/x/y/")[2] == "deep /cgi/sub/deep /x/y/\n"


def responses(server):
    status, fields, content = server.fetch("/cgi/status")
    assert (status, content, fields["Content-Length"]) == (404, "fish", "4"), (status, content)
    status, fields, _ = server.fetch("/cgi/abroad")
    assert (status, fields["Location"]) == (302, "https://example.org/")
    status, _, content = server.fetch("/cgi/local", "POST", b"content")
    assert status == 200 and "QUERY_STRING=from=local" in content and "REQUEST_METHOD=GET" in content, content
    assert "CONTENT_LENGTH" not in content and "REQUEST_URI=/cgi/local" in content, content
    assert server.fetch("/cgi/loop")[0] == 404, "a redirect to itself ends"
    assert server.fetch("/cgi/message", "HEAD")[::2] == (200, "")
    assert server.fetch("/cgi/null", "POST", b"by name")[2] == "by name"
    server.forget_logs()
    assert server.fetch("/cgi/message")[2] == "done\n"
    server.logs("error Script: a message for the log")
    for path, reason in [
        ("headless", "has a line that is not a field"),
        ("empty", "its last message: the program ended with code 7"),
        ("framed", "has a Transfer-Encoding"),
    ]:
        server.forget_logs()
        assert server.fetch(f"/cgi/{path}")[0] == 502, path
        server.logs(reason, lambda path=path: server.fetch(f"/cgi/{path}"))
    for path in ["short", "killed"]:
        # The end may be known before the head is sent.
        with contextlib.suppress(http.client.IncompleteRead, http.client.RemoteDisconnected):
            response = server.fetch(f"/cgi/{path}")
            assert response[0] == 502, f"{path} is complete: {response}"


def input_(server):
    content = os.urandom(3_000_000)
    expected = f"{hashlib.sha256(content).hexdigest()}  -\n{len(content)} text/x-own\n"
    own = {"Content-Type": "text/x-own"}
    assert server.fetch("/long/input", "POST", content, own)[2] == expected
    pieces = (content[at : at + 100_001] for at in range(0, len(content), 100_001))
    # http.client sends pieces in chunks.
    assert server.fetch("/long/input", "POST", pieces, own)[2] == expected
    # A program may respond without having read its input.
    assert server.fetch("/long/unread", "POST", content)[2] == "unread\n"


def bounds(server):
    server.forget_logs()
    start = time.monotonic()
    assert server.fetch("/cgi/silent")[0] == 502
    server.logs("the program was killed after 2 s", lambda: server.fetch("/cgi/silent"))
    with contextlib.suppress(http.client.IncompleteRead):
        raise AssertionError(f"complete: {server.fetch('/cgi/slow')}")
    assert time.monotonic() - start < WAIT / 2
    assert "400000000" not in server.fetch("/cgi/memory")[2], "the memory is bounded"
    kilobytes = str(128 * 1024)
    assert server.fetch("/cgi/limits")[2].split() == [kilobytes, kilobytes, "2", "0"], "of the first instruction on"
    server.forget_logs()

    def flood():
        with contextlib.suppress(http.client.IncompleteRead):
            raise AssertionError(f"complete: {len(server.fetch('/cgi/flood')[2])} bytes")

    server.logs("the output is longer than 4194304 bytes", flood)
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(server.fetch("/cgi/silent")[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert sorted(statuses) == [502] * 4 + [503] * 4, statuses
    assert server.fetch("/cgi/unread")[2] == "unread\n", "the places are free again"


def streams(server):
    response = server.request("/long/stream")
    assert response.readline() == b"one\n"
    (server.folder / "marks" / "continue").write_text("")
    assert response.read() == b"two\n"


def leaving(server):
    response = server.request("/long/leaving")
    assert response.readline() == b"started\n"
    pids = [(server.folder / "marks" / name).read_text().strip() for name in ["self", "child"]]
    assert all(os.path.exists(f"/proc/{pid}") for pid in pids)
    response.close()
    server.wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "end of the program and its child")


def sessions(server):
    marks = server.folder / "marks"
    for program in ["session", "session-waits"]:
        response = server.request(f"/long/{program}")
        assert response.readline() == b"started\n"
        pids = [(marks / name).read_text().strip() for name in ["first", "second"]]
        for name in ["first", "second"]:
            (marks / name).unlink()
        response.close()

        def have_ended(pids=pids):
            return not any(os.path.exists(f"/proc/{pid}") for pid in pids)

        server.wait_for(have_ended, f"end of the sessions of {program}")


def after(server):
    marks = server.folder / "marks"
    go, worked_on = marks / "go", marks / "worked-on"

    def goes_on(what):
        assert not worked_on.exists(), f"{what}: the program did not wait"
        go.write_text("")
        server.wait_for(worked_on.exists, f"end of the work of a program, {what}")
        go.unlink()
        worked_on.unlink()

    for method, path, expected in [
        ("GET", "/long/goes-on", (200, b"hello")),
        ("HEAD", "/long/goes-on", (200, b"")),
        ("GET", "/long/goes-on-without-content", (204, b"")),
    ]:
        server.forget_logs()
        connection = http.client.HTTPConnection(server.address, timeout=5)
        connection.request(method, path)
        response = connection.getresponse()
        assert (response.status, response.read()) == expected, path
        # The response has ended, so the connection takes another request.
        connection.request("GET", "/long/unread")
        assert connection.getresponse().read() == b"unread\n", path
        connection.close()
        goes_on(f"{method} {path}")
        server.logs(f"error Script: {path}, after its response: late")
    url = f"http://{server.address}/long/goes-on"
    curl = ["curl", "-s", "-m", "5", "--http2-prior-knowledge", url]
    assert subprocess.run(curl, capture_output=True, timeout=60).stdout == b"hello"
    goes_on("HTTP/2")
    # A redirect of the server leads to what the program has done.
    redirected = threading.Thread(target=goes_on, args=("local redirect",))
    redirected.start()
    assert "REQUEST_METHOD=GET" in server.fetch("/long/goes-on-elsewhere")[2]
    redirected.join()
    server.forget_logs()
    assert server.fetch("/brief/never-ends")[2] == "hello"
    process = Path("/proc") / (marks / "self").read_text().strip()
    server.wait_for(lambda: not process.exists(), "end of a program that goes on for too long")
    server.logs("error Script: /brief/never-ends, after its response: ended after 1s")
    assert server.fetch("/long/writes-on")[2] == "0123456789\n01"
    # It may have written so much before its response is sent.
    server.logs("ended after 262144 bytes of output")


def duplex(server):
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        head = f"POST /long/duplex HTTP/1.1\r\nHost: {server.address}\r\nContent-Length: {DUPLEX_BYTES}\r\nConnection: close\r\n\r\n"
        client.sendall(head.encode())
        client.sendall(bytes(DUPLEX_BYTES))
        received = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert b"received %d" % DUPLEX_BYTES in received[-100:], received[:200] + received[-100:]


def refusals(server):
    server.forget_logs()
    assert server.fetch("/cgi/nph-raw")[0] == 403
    server.logs("programs whose name begins with nph- are not run", lambda: server.fetch("/cgi/nph-raw"))
    for path in ["/cgi/", "/cgi/none", "/cgi/sub", "/cgi/sub/", "/cgi/.hidden", "/cgi/link", "/cgi"]:
        assert server.fetch(path)[0] == 404, path
    for path in ["/cgi/../../bin/ls", "/cgi/sub/..%2f..%2fbin/ls", "/cgi/%2e%2e/%2e%2e/bin/ls", "/cgi/env%00"]:
        assert server.fetch(path)[0] in (400, 404), path
    assert server.fetch("/cgi/data.txt")[0] == 502
    reason = "the program was not started: data.txt: Permission denied"
    server.logs(reason, lambda: server.fetch("/cgi/data.txt"))
    server.configuration.write_text(server.configuration.read_text().replace(' user="www-data"', "", 1))
    started = subprocess.run(
        [server.binary, "run", server.configuration.rename(server.folder / "root.kdl")],
        capture_output=True,
        text=True,
        timeout=60,
        env=server.environment,
    )
    server.configure("")
    assert started.returncode != 0, started


def reloads(server):
    server.configure(f'route "/later/*" {{ cgi "{server.folder}/later" user="www-data"; }}')
    reloaded = subprocess.run(
        [server.binary, "reload", server.configuration],
        capture_output=True,
        text=True,
        timeout=60,
        env=server.environment,
        cwd=server.folder,
    )
    assert reloaded.returncode == 0, reloaded.stdout + reloaded.stderr
    server.wait_for(lambda: server.fetch("/later/unread")[2] == "unread\n", "program of a folder that was added")


def git(server):
    bare = server.folder / "git" / "project.git"
    quiet = {"capture_output": True, "check": True, "timeout": 60, "text": True}
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", bare], **quiet)
    subprocess.run(["git", "-C", bare, "config", "http.receivepack", "true"], **quiet)
    subprocess.run(["chown", "-R", "www-data:www-data", bare], **quiet)
    url = f"http://{server.address}/git/project.git"
    first, second = server.folder / "first", server.folder / "second"
    who = ["-c", "user.name=check", "-c", "user.email=check@example.org"]
    subprocess.run(["git", "init", "-q", "-b", "main", first], **quiet)
    (first / "large").write_bytes(os.urandom(5_000_000))
    (first / "text").write_text("text\n")
    subprocess.run(["git", "-C", first, "add", "."], **quiet)
    subprocess.run(["git", "-C", first, *who, "commit", "-qm", "first"], **quiet)
    # git sends content that is longer than its buffer in chunks.
    subprocess.run(["git", "-C", first, "push", "-q", url, "main"], **quiet)
    subprocess.run(["git", "clone", "-q", url, second], **quiet)
    assert (second / "large").read_bytes() == (first / "large").read_bytes()
    (second / "text").write_text("changed\n")
    subprocess.run(["git", "-C", second, *who, "commit", "-qam", "second"], **quiet)
    subprocess.run(["git", "-C", second, "push", "-q", "origin", "main"], **quiet)
    subprocess.run(["git", "-C", first, "pull", "-q", url, "main"], **quiet)
    assert (first / "text").read_text() == "changed\n"


input_.__name__ = "input"
CHECKS = [environment, responses, input_, bounds, streams, leaving, sessions, after, duplex, refusals, reloads, git]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--driver", default="epoll")
    parser.add_argument("checks", nargs="*", metavar="CHECK")
    options = parser.parse_intermixed_args()
    chosen = [check for check in CHECKS if not options.checks or check.__name__ in options.checks]
    failed = []
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Server(os.path.abspath(options.binary), options.driver))
        for check in chosen:
            start = time.monotonic()
            try:
                check(server)
                print(f"{check.__name__}: ok ({time.monotonic() - start:.1f} s)", flush=True)
            except (AssertionError, OSError, subprocess.SubprocessError, http.client.HTTPException):
                traceback.print_exc()
                failed.append(check.__name__)
        if failed:
            raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    sys.exit(main())
