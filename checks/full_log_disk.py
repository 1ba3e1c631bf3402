#!/usr/bin/env python3
"""Fills the disk with the logs of a running selvedge, and checks the logs afterwards.

    full_log_disk.py PATH/TO/selvedge [--seconds N]

Both logs are on a small tmpfs in a separate mount namespace. If that is not allowed, a limit
of file sizes replaces it. The disk is full for N seconds (default 5; 60 for the long run)
while requests are sent. The check asserts that no request fails, that the error log reports
the number of lost lines and the recovery, and that the written and lost lines are as many
as the requests. Standard library and loopback only. Exit status 1 if a check fails.
"""
import argparse, http.client, os, re, resource, signal, subprocess, sys, tempfile, time

DISK_BYTES = 64 << 20


def start(binary, root, logs):
    """Starts the server. Returns the process and its port."""
    # SIGXFSZ stays ignored, so that a write beyond the limit is an error and does not terminate the server.
    server = subprocess.Popen(
        [binary, "serve", root, "--listen", "127.0.0.1:0", "--access-log", os.path.join(logs, "access.log"),
         "--error-log", os.path.join(logs, "error.log")],
        stderr=subprocess.PIPE, text=True, restore_signals=False)
    return server, int(re.search(r"http://127\.0\.0\.1:(\d+)/", server.stderr.readline()).group(1))


class Client:
    """A client that sends requests on one connection and counts them."""

    def __init__(self, port):
        self.connection, self.sent, self.failed = http.client.HTTPConnection("127.0.0.1", port, timeout=20), 0, 0

    def send_request(self):
        self.sent += 1
        try:
            self.connection.request("GET", "/?%d" % self.sent, headers={"User-Agent": "x" * 200})
            response = self.connection.getresponse()
            response.read()
            self.failed += response.status != 404
        except OSError:
            self.failed += 1
            self.connection.close()

    def send_requests_for(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.send_request()


class Tmpfs:
    """A tmpfs of DISK_BYTES, which a file fills."""
    name = "a tmpfs of %d bytes" % DISK_BYTES

    def __init__(self, logs):
        self.filler = os.path.join(logs, "filler")

    def fill(self, server):
        with open(self.filler, "wb", buffering=0) as f:
            try:
                while f.write(b"\0" * 4096):
                    pass
            except OSError:
                pass

    def free(self, server):
        os.remove(self.filler)


class Limit:
    """A limit of file sizes at the current size of the log."""
    name = "a limit of file sizes"

    def __init__(self, logs):
        self.log = os.path.join(logs, "access.log")

    def fill(self, server):
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (os.path.getsize(self.log) + 1000, resource.RLIM_INFINITY))

    def free(self, server):
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def check_logs(logs, client):
    """Checks the logs, prints a summary, and returns the problems."""
    with open(os.path.join(logs, "access.log")) as f:
        lines = f.readlines()
    with open(os.path.join(logs, "error.log")) as f:
        errors = f.readlines()
    problems = []
    numbers = []
    for line in lines:
        match = re.fullmatch(r'127\.0\.0\.1 - - \[[^]]+\] "GET /\?(\d+) HTTP/1\.1" 404 \d+ "-" "x{200}"\n', line)
        if match:
            numbers.append(int(match.group(1)))
        else:
            problems.append("incomplete line: %r" % line)
    if numbers != sorted(set(numbers)):
        problems.append("lines are duplicated or out of order")
    lost = 0
    for line in errors:
        if "LogLinesLost: lines of the access log" in line:
            count = re.search(r" count=(\d+)$", line.strip())
            lost += int(count.group(1)) if count else 1
    if len(numbers) + lost != client.sent:
        problems.append("%d written and %d lost lines do not match %d requests" % (len(numbers), lost, client.sent))
    recovered = [line.strip() for line in errors if "LogRecovered: the access log" in line]
    if not recovered or lost == 0:
        problems.append("the error log does not report the lost lines and the recovery")
    if client.failed:
        problems.append("%d requests failed" % client.failed)
    print("%d requests, %d failed; %d lines written, %d lost" % (client.sent, client.failed, len(numbers), lost))
    for line in errors:
        print("    " + line.strip())
    return problems


def check(binary, seconds, directory, disk_kind):
    root, logs = os.path.join(directory, "root"), os.path.join(directory, "logs")
    os.mkdir(root)
    disk = disk_kind(logs)
    print("the disk is %s, full for %g seconds" % (disk.name, seconds))
    server, port = start(binary, root, logs)
    try:
        client = Client(port)
        client.send_requests_for(0.5)
        time.sleep(0.6)
        disk.fill(server)
        client.send_requests_for(seconds)
        disk.free(server)
        client.send_requests_for(4)
        client.connection.close()
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    problems = check_logs(logs, client) + ([] if code == 0 else ["the exit code of the server is %d" % code])
    for problem in problems[:10]:
        print("FAILED: " + problem)
    if not problems:
        print("ok: every line is written or counted as lost")
    return bool(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--disk", choices=["tmpfs", "limit"], help="kind of disk (default: tmpfs if it can be mounted)")
    parser.add_argument("--within", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.within:
        # In a separate mount namespace, so that no other process sees this mount.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%d" % DISK_BYTES, "none",
                        os.path.join(options.within, "logs")], check=True)
        sys.exit(check(options.binary, options.seconds, options.within, Tmpfs))
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(os.path.join(directory, "logs"))
        unshare = ["unshare", "--map-root-user", "--mount"]
        probe = 'mount -t tmpfs none "$1"'
        may_mount = options.disk == "tmpfs" or options.disk is None and subprocess.run(
            unshare + ["sh", "-c", probe, "sh", os.path.join(directory, "logs")], stderr=subprocess.DEVNULL).returncode == 0
        if may_mount:
            again = [sys.executable, os.path.abspath(__file__), options.binary, "--seconds", str(options.seconds)]
            sys.exit(subprocess.run(unshare + again + ["--within", directory]).returncode)
        sys.exit(check(options.binary, options.seconds, directory, Limit))


if __name__ == "__main__":
    main()
