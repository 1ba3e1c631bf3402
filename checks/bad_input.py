#!/usr/bin/env python3
"""Sends bad input to a running selvedge and checks its bounds.

    bad_input.py PATH/TO/selvedge [--connections N]

Each check prints what was sent and received, and the growth of private memory. It asserts the status, the
reason in the error log, and the bounds of memory and time. Standard library and loopback only; takes
about a minute. Exit status 1 if a check fails.
"""
import argparse, os, random, re, resource, select, socket, subprocess, sys, tempfile, threading, time

MIB = 1 << 20
results = []


class Server:
    """The server under test, with its error log."""

    def __init__(self, binary, root, *options):
        self.errors = []
        self.process = subprocess.Popen(
            [binary, "serve", root, "--listen", "127.0.0.1:0", "--log", "off", *options],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        line = self.process.stderr.readline()
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", line).group(1))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def private(self):
        with open("/proc/%d/smaps_rollup" % self.process.pid) as f:
            return 1024 * sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+) kB", f.read()))

    def logged(self, name, since):
        """Returns the number of events with this name in the log, from line `since` on."""
        total = 0
        for line in self.errors[since:]:
            if " %s: " % name in line:
                count = re.search(r" count=(\d+)$", line.strip())
                total += int(count.group(1)) if count else 1
        return total

    def expect_logged(self, name, count, since):
        # A lingering connection is logged when it is closed, at most five seconds later.
        until = time.monotonic() + 8
        while self.logged(name, since) < count and time.monotonic() < until:
            time.sleep(0.1)
        got = self.logged(name, since)
        return [] if got >= count else ["the log has %d %s events, expected %d" % (got, name, count)]

    def probe(self):
        """Returns the duration of an ordinary request in seconds, or None if it fails."""
        began = time.monotonic()
        got = self.exchange(b"GET /small.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return time.monotonic() - began if got.startswith(b"HTTP/1.1 200 ") else None

    def exchange(self, request, bytes_max=64 * MIB, seconds=20):
        """Sends a request while the server reads, and returns the bytes until the server closes the connection."""
        s = self.connect()
        s.setblocking(False)
        got, sent, until = bytearray(), 0, time.monotonic() + seconds
        poll = select.poll()
        poll.register(s, select.POLLIN | select.POLLOUT)
        while len(got) < bytes_max and time.monotonic() < until:
            try:
                for _, events in poll.poll(500):
                    if events & select.POLLOUT:
                        sent += s.send(request[sent:sent + 262144])
                        if sent == len(request):
                            poll.modify(s, select.POLLIN)
                    if events & ~select.POLLOUT:
                        data = s.recv(262144)
                        if not data:
                            until = 0
                        got += data
            except BlockingIOError:
                pass
            except OSError:
                break
        s.close()
        return bytes(got)


def check(server, name, run):
    """Runs one check, and prints its summary and its problems."""
    before, since = server.private(), len(server.errors)
    began = time.monotonic()
    summary, problems = run(since)
    took = server.probe()
    if took is None:
        problems.append("the server does not respond afterwards")
    if any("panic" in line.lower() for line in server.errors[since:]):
        problems.append("the log has a panic")
    growth = (server.private() - before) / MIB
    results.append(not problems)
    print("%-4s %-28s %s; %+.1f MiB, %.1f s" % ("FAIL" if problems else "ok", name, summary, growth, time.monotonic() - began))
    for problem in problems:
        print("     " + problem)
    sys.stdout.flush()


def status_check(server, request, expected, reason, bytes_max=64 * MIB):
    def run(since):
        got = server.exchange(request, bytes_max)
        status = int(got[9:12]) if got.startswith(b"HTTP/1.1 ") else 0
        problems = [] if status == expected else ["status %d, expected %d" % (status, expected)]
        problems += server.expect_logged(reason, 1, since) if reason else []
        return "%d bytes sent, %d back, status %d" % (len(request), len(got), status), problems
    return run


def wait_closed(connections, seconds):
    """Waits until the server has closed the connections. Returns the bytes of each and the number of open ones."""
    poll, got, open_sockets = select.poll(), {}, {}
    for s in connections:
        s.setblocking(False)
        poll.register(s, select.POLLIN)
        open_sockets[s.fileno()], got[s.fileno()] = s, b""
    until = time.monotonic() + seconds
    while open_sockets and time.monotonic() < until:
        for fd, _ in poll.poll(200):
            try:
                data = open_sockets[fd].recv(65536)
            except OSError:
                data = b""
            if data:
                got[fd] += data
            else:
                poll.unregister(fd)
                open_sockets.pop(fd).close()
    for s in open_sockets.values():
        s.close()
    return list(got.values()), len(open_sockets)


def silent(server, count):
    def run(since):
        before = server.private()
        connections = []
        for number in range(count):
            connections.append(server.connect())
            # With TCP_DEFER_ACCEPT, the kernel completes a silent connection when it has repeated its SYN-ACK, one
            # second later. Loopback drops packets beyond a thousand at once.
            if number % 500 == 499:
                time.sleep(0.05)
        delay = server.probe()
        each = (server.private() - before) / count
        _, open_still = wait_closed(connections, 24)
        problems = ["%d still open" % open_still] if open_still else []
        problems += ["normal requests waited %s s" % delay] if delay is None or delay > 1 else []
        problems += ["%.0f bytes for each" % each] if each > 2048 else []
        return "%d connections, %.0f bytes each" % (count, each), problems + server.expect_logged("NothingReceived", count, since)
    return run


def drip(server, count):
    def run(since):
        connections = [server.connect() for _ in range(count)]
        before = server.private()
        for s in connections:
            s.sendall(b"G")
        delay = server.probe()
        each = (server.private() - before) / count
        got, open_still = wait_closed(connections, 14)
        timed_out = sum(g.startswith(b"HTTP/1.1 408 ") for g in got)
        problems = [] if timed_out == count else ["%d of %d got 408, %d still open" % (timed_out, count, open_still)]
        problems += ["normal requests waited %s s" % delay] if delay is None or delay > 1 else []
        problems += ["%.0f bytes for each" % each] if each > 4096 else []
        return "%d heads of one byte, %.0f bytes each" % (count, each), problems + server.expect_logged("HeadTooSlow", count, since)
    return run


def never_reads(server, count, request, content):
    def run(since):
        before = server.private()
        connections = []
        for _ in range(count):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", server.port))
            s.setblocking(False)
            try:
                s.send(request)
            except OSError:
                pass
            connections.append(s)
        time.sleep(2)
        each = (server.private() - before) / count
        delay = server.probe()
        until = time.monotonic() + 45
        while server.logged("SendTooSlow", since) < count and time.monotonic() < until:
            time.sleep(0.25)
        problems = server.expect_logged("SendTooSlow", count, since)
        problems += ["%.0f bytes for each" % each] if each > 128 * 1024 else []
        problems += ["normal requests waited %s s" % delay] if delay is None or delay > 1 else []
        for s in connections:
            s.close()
        return "%d clients that never read %s, %.0f KiB each" % (count, content, each / 1024), problems
    return run


def unsent(port):
    """Returns the bytes in the send queues of all sockets of this port, including closed ones."""
    total = 0
    with open("/proc/net/tcp") as f:
        next(f)
        for line in f:
            columns = line.split()
            if int(columns[1].rpartition(":")[2], 16) == port:
                total += int(columns[4].partition(":")[0], 16) if columns[3] != "0A" else 0
    return total


def unread_in_kernel(server, count, request, half_closes=False):
    """Checks the bound of unread responses in the kernel's send buffers, for a server with one worker."""
    def run(_since):
        connections = []
        for _ in range(count):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", server.port))
            s.send(request)
            if half_closes:
                s.shutdown(socket.SHUT_WR)
            connections.append(s)
        time.sleep(2)
        buffered = unsent(server.port)
        delay = server.probe()
        for s in connections:
            s.close()
        # 128 KiB each, which the last send may exceed, and 1 MiB for 64 of them.
        bound = (count * 192 + 64 * 1024) << 10
        problems = ["the kernel buffers %.0f MiB" % (buffered / MIB)] if buffered > bound else []
        problems += ["normal requests waited %s s" % delay] if delay is None or delay > 1 else []
        return "%d clients that never read 1 MiB, %.0f KiB in the kernel each" % (count, buffered / count / 1024), problems
    return run


def garbage(server, count):
    rng = random.Random(1)
    request = b"POST /small.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nRange: bytes=0-1\r\n\r\n3\r\nabc\r\n0\r\n\r\n"

    def run(since):
        statuses = {}
        for _ in range(count):
            mutated = bytearray(request)
            for _ in range(rng.randint(1, 6)):
                position = rng.randrange(len(mutated))
                kind = rng.randrange(3)
                if kind == 0:
                    mutated[position] = rng.randrange(256)
                elif kind == 1:
                    del mutated[position]
                else:
                    mutated[position:position] = rng.choice([b"\r", b"\n", b"\0", b" ", b"\r\n", b":", b"\xff"])
            s = server.connect()
            s.settimeout(0.05)
            s.sendall(mutated)
            s.shutdown(socket.SHUT_WR)
            s.settimeout(5)
            try:
                got = s.recv(65536)
            except OSError:
                got = b"none"
            statuses[got[9:12]] = statuses.get(got[9:12], 0) + 1
            s.close()
        server_errors = [code for code in statuses if code.startswith(b"5") and code not in (b"501", b"505")]
        shown = ", ".join("%s: %d" % (k.decode("latin-1") or "closed", v) for k, v in sorted(statuses.items()))
        return "%d mutated requests (%s)" % (count, shown), ["status %r" % c for c in server_errors]
    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--connections", type=int, default=10_000)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    many = min(options.connections, (hard - 64) * 7 // 8 - 100)

    with tempfile.TemporaryDirectory() as root:
        with open(os.path.join(root, "small.txt"), "w") as f:
            f.write("small\n")
        with open(os.path.join(root, "large.bin"), "wb") as f:
            f.truncate(64 * MIB)
        with open(os.path.join(root, "medium.bin"), "wb") as f:
            f.truncate(MIB)
        with open(os.path.join(root, "digits.txt"), "w") as f:
            f.write("0123456789" * 100)
        server = Server(options.binary, root)
        try:
            get = b"GET /%s HTTP/1.1\r\nHost: a\r\n%s\r\n"
            check(server, "64 KiB target", status_check(server, get % (b"x" * 65536, b""), 414, "RequestLineTooLong"))
            check(server, "64 KiB field", status_check(server, get % (b"small.txt", b"X: %s\r\n" % (b"x" * 65536)), 431, "HeadTooLarge"))
            fields = b"".join(b"X%d: y\r\n" % n for n in range(10_000))
            check(server, "10,000 fields", status_check(server, get % (b"small.txt", fields), 431, "TooManyFields"))
            chunks = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1_000_000
            check(server, "1,000,000 one-byte chunks", status_check(server, chunks, 400, "ChunkOverheadTooLarge"))
            ranges = b"Range: bytes=%s0-\r\nConnection: close\r\n" % (b"0-," * 1300)
            check(server, "1,300 overlapping ranges", status_check(server, get % (b"digits.txt", ranges), 200, None, 8192))
            unread = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n" + b"x" * (4 * MIB)
            check(server, "1 GiB of unread content", status_check(server, unread, 413, "ContentUnread"))
            check(server, "garbage", garbage(server, 3000))
            check(server, "slow heads", drip(server, min(many, 2000)))
            check(server, "silent connections", silent(server, many))
            check(server, "clients that never read", never_reads(server, 100, get % (b"large.bin", b""), "64 MiB"))
            batch = (get % (b"digits.txt", b"")) * 10_000
            check(server, "10,000 pipelined, unread", never_reads(server, 20, batch, "10,000 responses"))
        finally:
            server.process.terminate()
            code = server.process.wait(40)
        results.append(code == 0)
        print("exit code %d" % code)
        server = Server(options.binary, root, "--workers", "1")
        try:
            medium = get % (b"medium.bin", b"")
            closing = get % (b"medium.bin", b"Connection: close\r\n")
            check(server, "unread, in the kernel", unread_in_kernel(server, min(many, 2000), medium))
            check(server, "unread, closing", unread_in_kernel(server, min(many, 2000), closing))
            check(server, "unread, half closed", unread_in_kernel(server, min(many, 2000), medium, half_closes=True))
        finally:
            server.process.terminate()
            server.process.wait(40)
    print("%d passed, %d failed" % (results.count(True), results.count(False)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
