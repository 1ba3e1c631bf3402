#!/usr/bin/env python3
"""Checks routes with `php` against PHP-FPM: what scripts get, and what clients get of them.

    python3 checks/php.py target/release/selvedge [--driver epoll|io_uring] [CHECK ...]

Needs root, PHP-FPM and curl. PHP-FPM runs as `www-data` with a pool of its own. Checks: `pages` (scripts, files, indexes,
the front controller), `variables`, `sources` (that are never sent), `uploads` (20 MiB with a length, chunked, and over HTTP/2),
`messages` (standard error in the error log), `streams` (a flushed part arrives before the script ends), `leaving` (a client
that leaves ends its script), `files` (X-Sendfile and X-Accel-Redirect), `idle` (connections that are kept), `after` (a script that goes on after its response),
`failures`.
"""

import argparse
import contextlib
import glob
import hashlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from clients import free_address, wait_until_it_listens

WAIT = 30
UPLOAD_BYTES = 20 << 20

SCRIPTS = {
    "index.php": "<?php header('Content-Type: text/plain'); echo 'front ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['SCRIPT_NAME'];",
    "hello.php": "<?php header('X-Own: yes'); echo 'hello';",
    "admin/index.php": "<?php echo 'admin ', $_SERVER['SCRIPT_NAME'];",
    "page/index.html": "<p>page</p>",
    "style.css": "p { color: red }",
    "info.php": "<?php header('Content-Type: application/json'); echo json_encode($_SERVER);",
    "post.php": "<?php echo $_SERVER['CONTENT_LENGTH'], ' ', strlen($_POST['a'] ?? ''), ' ', $_POST['b'] ?? '';",
    "upload.php": "<?php echo $_SERVER['CONTENT_LENGTH'] ?? 'none', ' ', hash('sha256', file_get_contents('php://input'));",
    "status.php": "<?php http_response_code(418); header('Content-Length: 6'); echo 'teapot';",
    "empty.php": "<?php http_response_code(204);",
    "redirect.php": "<?php header('Location: /hello.php');",
    "message.php": "<?php error_log('a message for the log'); error_log(\"two\\nlines\"); echo 'done';",
    "stream.php": """<?php
        header('Content-Type: text/event-stream');
        echo "one\\n"; flush();
        for ($n = 0; $n < 3000 && !file_exists(__DIR__ . '/continue'); $n++) { usleep(10000); clearstatcache(); }
        echo "two\\n";""",
    "leaving.php": """<?php
        register_shutdown_function(function () { file_put_contents(__DIR__ . '/left', connection_aborted() ? 'yes' : 'no'); });
        set_time_limit(0);
        for ($n = 0; $n < 3000; $n++) { echo "tick\\n"; flush(); usleep(10000); }""",
    "sendfile.php": "<?php header('Content-Type: text/x-own'); header('Content-Disposition: attachment'); "
    "header('X-Sendfile: ' . $_GET['path']);",
    "accel.php": "<?php header('X-Accel-Redirect: ' . $_GET['path']);",
    "slow.php": "<?php sleep(30);",
    "goes-on.php": """<?php
        ignore_user_abort(true);
        header('Content-Type: text/plain');
        header('Content-Length: 5');
        echo 'hello'; flush();
        for ($n = 0; $n < 3000 && !file_exists(__DIR__ . '/go'); $n++) { usleep(10000); clearstatcache(); }
        error_log('late');
        echo 'surplus';
        file_put_contents(__DIR__ . '/worked-on', connection_aborted() ? 'aborted' : 'whole');""",
    "never-ends.php": """<?php
        header('Content-Length: 5');
        echo 'hello'; flush();
        for (;;) { usleep(50000); echo 'x'; flush(); }""",
    "backup.php.bak": "<?php $password = 'secret';",
    "upper.PHP": "<?php $password = 'secret';",
    "packed.php.gz": "secret",
    ".hidden.php": "<?php echo 'hidden';",
}

POOL = """
[global]
error_log = {folder}/fpm.log
daemonize = no
[www]
user = www-data
group = www-data
listen = {folder}/fpm.sock
listen.mode = 0666
pm = static
pm.max_children = 8
php_admin_value[upload_max_filesize] = 64M
php_admin_value[post_max_size] = 64M
php_admin_flag[log_errors] = on
php_admin_value[output_buffering] = 0
"""

CONFIGURATION = """
workers 2
listen "{address}" http2=#true
log {{ access "access.log"; error "error.log"; }}
site "127.0.0.1" {{
    root "site"
    body-bytes-max "64MiB"
    route "/down/*" {{ php "unix:{folder}/nothing.sock"; }}
    route "/never-ends.php" {{ php "unix:{folder}/fpm.sock" {{ silence-timeout "1s"; }}; }}
    route "/slow.php" {{ php "unix:{folder}/fpm.sock" {{ response-timeout "1s"; }}; }}
    route "/*" {{
        php "unix:{folder}/fpm.sock" {{
            env "APP_ENV" "check"
            env "SERVER_SOFTWARE" "replaced"
            send-file "{folder}/private" prefix="/protected"
        }}
    }}
}}
site "kept.example" {{
    root "site"
    route "/*" {{ php "unix:{folder}/fpm.sock" {{ idle-connections-max 2; }}; }}
}}
"""


class Server:
    """PHP-FPM, and `selvedge run` before it. Its exit code must be 0, and its log must have no panic."""

    def __init__(self, binary, driver):
        self.folder = Path(tempfile.mkdtemp(prefix="selvedge-php-"))
        self.folder.chmod(0o755)
        self.address = free_address()
        self.log_offset = 0
        for name, text in SCRIPTS.items():
            path = self.folder / "site" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.folder / "private").mkdir()
        (self.folder / "private" / "report 1.txt").write_text("the report")
        shutil.chown(self.folder / "site", "www-data")
        (self.folder / "fpm.conf").write_text(POOL.format(folder=self.folder))
        php = sorted(glob.glob("/usr/sbin/php-fpm*"))[-1]
        arguments = [php, "--fpm-config", self.folder / "fpm.conf", "--nodaemonize", "--allow-to-run-as-root"]
        self.fpm = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for(lambda: (self.folder / "fpm.sock").exists(), "the socket of PHP-FPM")
        configuration = self.folder / "selvedge.kdl"
        configuration.write_text(CONFIGURATION.format(address=self.address, folder=self.folder))
        checked = subprocess.run([binary, "check", configuration], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        environment = {**os.environ, "HOME": str(self.folder), "SELVEDGE_DRIVER": driver}
        self.process = subprocess.Popen(
            [binary, "run", configuration], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until_it_listens(self.address)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        code = self.process.wait(60)
        self.fpm.terminate()
        self.fpm.wait(60)
        log = (self.folder / "error.log").read_text(errors="replace")
        if kind is None:
            assert code == 0 and "panicked" not in log, f"exit code {code}\n{log[-3000:]}"
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

    def fetch(self, path, method="GET", body=None, headers=None, host=None):
        """Returns the status, the fields and the content."""
        connection = http.client.HTTPConnection(self.address, timeout=WAIT)
        fields = {**(headers or {}), **({"Host": host} if host else {})}
        connection.request(method, path, body, fields)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, response.headers, content.decode(errors="replace")

    def curl(self, path, *arguments, data=None):
        url = f"http://{self.address}{path}"
        command = ["curl", "-sS", "-m", str(WAIT), *arguments, url]
        return subprocess.run(command, input=data, capture_output=True, check=True, timeout=2 * WAIT).stdout.decode()


def pages(server):
    status, fields, content = server.fetch("/hello.php")
    assert (status, content, fields["X-Own"]) == (200, "hello", "yes"), (status, content)
    assert fields["Content-Type"].startswith("text/html"), fields
    assert server.fetch("/hello.php", "HEAD")[::2] == (200, "")
    status, fields, content = server.fetch("/style.css")
    assert (status, content, fields["Content-Type"]) == (200, SCRIPTS["style.css"], "text/css; charset=utf-8"), fields
    assert server.fetch("/style.css", headers={"If-None-Match": fields["ETag"]})[0] == 304
    assert server.fetch("/style.css", headers={"Range": "bytes=0-0"})[::2] == (206, "p")
    assert server.fetch("/style.css", "POST", b"x")[0] == 405
    assert server.fetch("/page/")[2] == "<p>page</p>"
    for folder in ["/page", "/admin"]:
        status, fields, _ = server.fetch(f"{folder}?q=1")
        assert (status, fields["Location"]) == (301, f"{folder}/?q=1"), (folder, status, fields)
    assert server.fetch("/admin/")[2] == "admin /admin/index.php"
    for path in ["/", "/index.php"]:
        assert server.fetch(path)[2] == f"front {path} /index.php"
    for path in ["/2026/11/a-post/?p=1", "/none.php", "/none.php/x", "/.hidden.php", "/hello.php.txt"]:
        assert server.fetch(path)[2] == f"front {path} /index.php", server.fetch(path)
    status, fields, content = server.fetch("/status.php")
    assert (status, fields["Content-Length"], content) == (418, "6", "teapot"), fields
    assert server.fetch("/empty.php")[0] == 204
    status, fields, _ = server.fetch("/redirect.php")
    assert (status, fields["Location"]) == (302, "/hello.php"), fields
    form = b"a=" + b"x" * 100_000 + b"&b=last"
    content = server.fetch("/post.php", "POST", form, {"Content-Type": "application/x-www-form-urlencoded"})[2]
    assert content == f"{len(form)} 100000 last", content
    assert server.fetch("/hello.php", "TRACE")[0] in (405, 501)


def variables(server):
    fields = {"Proxy": "http://evil/", "X_Own": "1", "X-Own": "2", "Cookie": "a=b", "Authorization": "Bearer t"}
    content = server.fetch("/info.php/a%20b/%2e/c?q=%20x&y", headers=fields, host="Kept.example:81")[2]
    got = json.loads(content)
    root = str(server.folder / "site")
    expected = {
        "SCRIPT_NAME": "/info.php",
        "SCRIPT_FILENAME": f"{root}/info.php",
        "PATH_INFO": "/a b/c",
        "PATH_TRANSLATED": f"{root}/a b/c",
        "PHP_SELF": "/info.php/a b/c",
        "DOCUMENT_ROOT": root,
        "REQUEST_URI": "/info.php/a%20b/%2e/c?q=%20x&y",
        "QUERY_STRING": "q=%20x&y",
        "REQUEST_METHOD": "GET",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_NAME": "Kept.example",
        # Of the listener, never of Host (RFC 3875 section 4.1.15).
        "SERVER_ADDR": "127.0.0.1",
        "SERVER_PORT": server.address.rpartition(":")[2],
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "Kept.example:81",
        "HTTP_COOKIE": "a=b",
        "HTTP_AUTHORIZATION": "Bearer t",
        "HTTP_X_OWN": "2",
        "REQUEST_SCHEME": "http",
    }
    for name, value in expected.items():
        assert got.get(name) == value, (name, got.get(name), value)
    for name in ["HTTP_PROXY", "HTTPS", "APP_ENV"]:
        assert name not in got, (name, got[name])
    got = json.loads(server.fetch("/info.php")[2])
    assert (got["APP_ENV"], got["SERVER_SOFTWARE"]) == ("check", "replaced"), got
    assert "PATH_INFO" not in got, got


def sources(server):
    for path in ["/backup.php.bak", "/upper.PHP", "/packed.php.gz", "/packed.php", "/UPPER.php", "/.hidden.php"]:
        status, _, content = server.fetch(path, headers={"Accept-Encoding": "gzip"})
        assert "secret" not in content and "<?php" not in content, (path, status, content)
    for path in ["/..%2findex.php", "/a/..%2f..%2fetc/passwd", "/%2e%2e/index.php", "/index.php%00.css"]:
        assert server.fetch(path)[0] in (400, 404), path


def uploads(server):
    content = os.urandom(UPLOAD_BYTES)
    expected = f"{UPLOAD_BYTES} {hashlib.sha256(content).hexdigest()}"
    assert server.fetch("/upload.php", "POST", content)[2] == expected, "with a length"
    pieces = (content[at : at + 70_001] for at in range(0, UPLOAD_BYTES, 70_001))
    connection = http.client.HTTPConnection(server.address, timeout=WAIT)
    connection.request("POST", "/upload.php", pieces, encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    got = connection.getresponse().read().decode()
    assert got == expected, f"chunked: {got}"
    got = server.curl("/upload.php", "--http2-prior-knowledge", "-T", "-", "-X", "POST", data=content)
    assert got == expected, f"HTTP/2 without a length: {got}"
    small = "5 " + hashlib.sha256(b"small").hexdigest()
    assert server.curl("/upload.php", "-H", "Transfer-Encoding: chunked", "--data-binary", "small") == small
    assert server.fetch("/upload.php", "POST", b"")[2].endswith(hashlib.sha256(b"").hexdigest())
    status = server.fetch("/upload.php", "POST", b"x", {"Content-Length": str(65 << 20)})[0]
    assert status == 413, status
    # Nothing is left of the temporary files.
    assert not glob.glob(os.path.join(tempfile.gettempdir(), f"selvedge-{server.process.pid}-*"))


def messages(server):
    server.forget_logs()
    assert server.fetch("/message.php")[2] == "done"
    server.logs("a message for the log")
    server.logs("lines")
    log = (server.folder / "error.log").read_text()[server.log_offset :]
    lines = [line for line in log.splitlines() if " error Script: " in line]
    assert len(lines) == 2 and all('request="GET /message.php' in line for line in lines), log


def streams(server):
    (server.folder / "site" / "continue").unlink(missing_ok=True)
    connection = http.client.HTTPConnection(server.address, timeout=WAIT)
    connection.request("GET", "/stream.php")
    response = connection.getresponse()
    assert response.readline() == b"one\n"
    (server.folder / "site" / "continue").write_text("")
    assert response.read() == b"two\n"


def leaving(server):
    left = server.folder / "site" / "left"
    connection = http.client.HTTPConnection(server.address, timeout=WAIT)
    connection.request("GET", "/leaving.php")
    response = connection.getresponse()
    assert response.readline() == b"tick\n"
    response.close()
    connection.close()
    server.wait_for(lambda: left.exists() and left.read_text() == "yes", "end of the script of a client that left")


def files(server):
    path = f"{server.folder}/private/report 1.txt"
    status, fields, content = server.fetch("/sendfile.php?path=" + path.replace(" ", "%20"))
    assert (status, content) == (200, "the report"), (status, content)
    assert (fields["Content-Type"], fields["Content-Disposition"]) == ("text/x-own;charset=UTF-8", "attachment"), fields
    assert "X-Sendfile" not in fields and "ETag" in fields
    status, fields, content = server.fetch("/accel.php?path=/protected/report%25201.txt", headers={"Range": "bytes=4-5"})
    assert (status, content, fields["Content-Range"]) == (206, "re", "bytes 4-5/10"), (status, content)
    server.forget_logs()
    for request in ["/sendfile.php?path=/etc/passwd", f"/sendfile.php?path={server.folder}/private/../fpm.conf",
                    "/accel.php?path=/protected/%252e%252e/fpm.conf", "/accel.php?path=/etc/passwd"]:
        status, _, content = server.fetch(request)
        assert status == 502 and "root:x" not in content and "fpm.sock" not in content, (request, status, content)
    server.logs("not in the folder of `send-file`", lambda: server.fetch("/sendfile.php?path=/etc/passwd"))
    assert server.fetch("/accel.php?path=/protected/none")[0] == 404


def idle(server):
    for _ in range(200):
        assert server.fetch("/hello.php", host="kept.example")[::2] == (200, "hello")
    # PHP-FPM with other children closes the connections that are kept.
    os.kill(server.fpm.pid, signal.SIGUSR2)
    time.sleep(0.5)
    server.wait_for(lambda: (server.folder / "fpm.sock").exists(), "the socket of PHP-FPM")
    for _ in range(50):
        assert server.fetch("/hello.php", host="kept.example")[::2] == (200, "hello")


def after(server):
    go, worked_on = server.folder / "site" / "go", server.folder / "site" / "worked-on"
    for host in [None, "kept.example"]:
        server.forget_logs()
        connection = http.client.HTTPConnection(server.address, timeout=5)
        for path, expected in [("/goes-on.php", b"hello"), ("/hello.php", b"hello")]:
            connection.request("GET", path, headers={"Host": host} if host else {})
            assert connection.getresponse().read() == expected, (host, path)
        connection.close()
        assert not worked_on.exists()
        go.write_text("")
        server.wait_for(lambda: worked_on.exists() and worked_on.read_text(), "end of a script that goes on")
        assert worked_on.read_text() == "whole", "the server has waited for the script"
        worked_on.unlink()
        go.unlink()
        server.logs("error Script: /goes-on.php, after its response: PHP message: late")
        server.logs("/goes-on.php, after its response: 7 bytes of output beyond its Content-Length were not sent")
    assert server.fetch("/never-ends.php")[2] == "hello"
    server.logs("error Script: /never-ends.php, after its response: ended after 1s")


def failures(server):
    server.forget_logs()
    assert server.fetch("/down/index.php")[0] == 502
    server.logs("nothing.sock: connect: the socket does not exist", lambda: server.fetch("/down/index.php"))
    start = time.monotonic()
    assert server.fetch("/slow.php")[0] == 504
    assert time.monotonic() - start < WAIT / 2
    server.logs("await response: timed out", lambda: server.fetch("/slow.php"))


CHECKS = [pages, variables, sources, uploads, messages, streams, leaving, files, idle, after, failures]


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
