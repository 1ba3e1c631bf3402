#!/usr/bin/env python3
"""Fills the disk that a running selvedge logs to, and holds it to what it says afterwards.

    full_log_disk.py PATH/TO/selvedge [--seconds N]

Both logs are on a small disk of their own (tmpfs, in a mount namespace of its own; where
that is not allowed, files that may not grow stand in for it). The disk is full for N
seconds (5 unless told; 60 for the long run), while requests go on. Then: no request has
failed, the error log says how many lines were lost and when it recovered, and the lines
that are in the access log and those that were counted as lost are all that there were.
Standard library and loopback only. Exit status 1 when a check failed.
"""
import argparse, http.client, os, re, resource, signal, subprocess, sys, tempfile, time

DISK_BYTES = 64 << 20


def start(binary, root, logs):
    """The program, and the port it listens on."""
    # SIGXFSZ stays ignored, so that a file that may not grow is an error and no end.
    server = subprocess.Popen(
        [binary, "serve", root, "--listen", "127.0.0.1:0", "--access-log", os.path.join(logs, "access.log"),
         "--error-log", os.path.join(logs, "error.log")],
        stderr=subprocess.PIPE, text=True, restore_signals=False)
    return server, int(re.search(r"http://127\.0\.0\.1:(\d+)/", server.stderr.readline()).group(1))


class Clients:
    """Asks on one connection, and counts."""

    def __init__(self, port):
        self.connection, self.asked, self.failed = http.client.HTTPConnection("127.0.0.1", port, timeout=20), 0, 0

    def ask(self):
        self.asked += 1
        try:
            self.connection.request("GET", "/?%d" % self.asked, headers={"User-Agent": "x" * 200})
            answer = self.connection.getresponse()
            answer.read()
            self.failed += answer.status != 404
        except OSError:
            self.failed += 1
            self.connection.close()

    def ask_for(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.ask()


class Tmpfs:
    """A disk of DISK_BYTES, filled by a file."""
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
    """Files that may not grow beyond what they are."""
    name = "a limit of file sizes"

    def __init__(self, logs):
        self.log = os.path.join(logs, "access.log")

    def fill(self, server):
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (os.path.getsize(self.log) + 1000, resource.RLIM_INFINITY))

    def free(self, server):
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def judge(logs, clients):
    """What the logs say, and what is wrong with it."""
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
            problems.append("not a whole line: %r" % line)
    if numbers != sorted(set(numbers)):
        problems.append("lines are there twice, or out of order")
    lost = 0
    for line in errors:
        if "LogLinesLost: lines of the access log" in line:
            count = re.search(r" count=(\d+)$", line.strip())
            lost += int(count.group(1)) if count else 1
    if len(numbers) + lost != clients.asked:
        problems.append("%d lines and %d lost are not %d" % (len(numbers), lost, clients.asked))
    recovered = [line.strip() for line in errors if "LogRecovered: the access log" in line]
    if not recovered or lost == 0:
        problems.append("the error log does not say that lines were lost and when the log recovered")
    if clients.failed:
        problems.append("%d requests failed" % clients.failed)
    print("%d requests, %d failed; %d lines written, %d lost" % (clients.asked, clients.failed, len(numbers), lost))
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
        clients = Clients(port)
        clients.ask_for(0.5)
        time.sleep(0.6)
        disk.fill(server)
        clients.ask_for(seconds)
        disk.free(server)
        clients.ask_for(4)
        clients.connection.close()
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    problems = judge(logs, clients) + ([] if code == 0 else ["the program ended with %d" % code])
    for problem in problems[:10]:
        print("FAILED: " + problem)
    if not problems:
        print("ok: every line is there or counted")
    return bool(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--disk", choices=["tmpfs", "limit"], help="which disk; the best there is unless told")
    parser.add_argument("--within", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.within:
        # In a mount namespace of its own: what is mounted here, nobody else sees.
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
