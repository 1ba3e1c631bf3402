#!/usr/bin/env python3
"""Throws bad input at a running selvedge and holds it to its bounds.

    bad_input.py PATH/TO/selvedge [--connections N]

Each check says what was sent, what came back, which line of the error log explains it,
and how much private memory it cost. Standard library and loopback only; about a minute.
Exit status 1 when a check failed.
"""
import argparse, os, random, re, resource, select, socket, subprocess, sys, tempfile, threading, time

MIB = 1 << 20
results = []


class Server:
    """The program under test, with its error log."""

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
        """How many events of that name the log has from line `since` on."""
        total = 0
        for line in self.errors[since:]:
            if " %s: " % name in line:
                count = re.search(r" count=(\d+)$", line.strip())
                total += int(count.group(1)) if count else 1
        return total

    def expect_logged(self, name, count, since):
        # A connection that lingers says why when it ends, five seconds later at the most.
        until = time.monotonic() + 8
        while self.logged(name, since) < count and time.monotonic() < until:
            time.sleep(0.1)
        got = self.logged(name, since)
        return [] if got >= count else ["the log has %d of %d %s" % (got, count, name)]

    def answers(self):
        """How long a plain request takes, in seconds."""
        began = time.monotonic()
        got = self.exchange(b"GET /small.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return time.monotonic() - began if got.startswith(b"HTTP/1.1 200 ") else None

    def exchange(self, request, most=64 * MIB, seconds=20):
        """Sends what the server takes, and reads until it closes."""
        s = self.connect()
        s.setblocking(False)
        got, sent, until = bytearray(), 0, time.monotonic() + seconds
        poll = select.poll()
        poll.register(s, select.POLLIN | select.POLLOUT)
        while len(got) < most and time.monotonic() < until:
            try:
                for _, happened in poll.poll(500):
                    if happened & select.POLLOUT:
                        sent += s.send(request[sent:sent + 262144])
                        if sent == len(request):
                            poll.modify(s, select.POLLIN)
                    if happened & ~select.POLLOUT:
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
    """Runs one check; it returns what happened and what was wrong with it."""
    before, since = server.private(), len(server.errors)
    began = time.monotonic()
    saw, wrong = run(since)
    took = server.answers()
    if took is None:
        wrong.append("the server does not answer afterwards")
    if any("panic" in line.lower() for line in server.errors[since:]):
        wrong.append("the log has a panic")
    grown = (server.private() - before) / MIB
    results.append(not wrong)
    print("%-4s %-28s %s; %+.1f MiB, %.1f s" % ("FAIL" if wrong else "ok", name, saw, grown, time.monotonic() - began))
    for problem in wrong:
        print("     " + problem)
    sys.stdout.flush()


def status_check(server, request, expected, reason, most=64 * MIB):
    def run(since):
        got = server.exchange(request, most)
        status = int(got[9:12]) if got.startswith(b"HTTP/1.1 ") else 0
        wrong = [] if status == expected else ["status %d, expected %d" % (status, expected)]
        wrong += server.expect_logged(reason, 1, since) if reason else []
        return "%d bytes sent, %d back, status %d" % (len(request), len(got), status), wrong
    return run


def wait_closed(connections, seconds):
    """Waits until the server has closed them all; the bytes of each."""
    poll, got, left = select.poll(), {}, {}
    for s in connections:
        s.setblocking(False)
        poll.register(s, select.POLLIN)
        left[s.fileno()], got[s.fileno()] = s, b""
    until = time.monotonic() + seconds
    while left and time.monotonic() < until:
        for fd, _ in poll.poll(200):
            try:
                data = left[fd].recv(65536)
            except OSError:
                data = b""
            if data:
                got[fd] += data
            else:
                poll.unregister(fd)
                left.pop(fd).close()
    for s in left.values():
        s.close()
    return list(got.values()), len(left)


def silent(server, count):
    def run(since):
        before = server.private()
        connections = []
        for number in range(count):
            connections.append(server.connect())
            # The system hands over who says nothing when it has sent its own part of the handshake again,
            # a second later; and loopback drops what comes behind a thousand packets at once.
            if number % 500 == 499:
                time.sleep(0.05)
        delay = server.answers()
        each = (server.private() - before) / count
        _, open_still = wait_closed(connections, 24)
        wrong = ["%d still open" % open_still] if open_still else []
        wrong += ["normal requests waited %s s" % delay] if delay is None or delay > 1 else []
        wrong += ["%.0f bytes for each" % each] if each > 2048 else []
        return "%d connections, %.0f bytes each" % (count, each), wrong + server.expect_logged("Silent", count, since)
    return run


def drip(server, count):
    def run(since):
        connections = [server.connect() for _ in range(count)]
        before = server.private()
        for s in connections:
            s.sendall(b"G")
        delay = server.answers()
        each = (server.private() - before) / count
        got, open_still = wait_closed(connections, 14)
        answered = sum(g.startswith(b"HTTP/1.1 408 ") for g in got)
        wrong = [] if answered == count else ["%d of %d got 408, %d still open" % (answered, count, open_still)]
        wrong += ["normal requests waited %s s" % delay] if delay is None or delay > 1 else []
        wrong += ["%.0f bytes for each" % each] if each > 4096 else []
        return "%d heads of one byte, %.0f bytes each" % (count, each), wrong + server.expect_logged("HeadTooSlow", count, since)
    return run


def never_reads(server, count, request, what):
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
        delay = server.answers()
        until = time.monotonic() + 45
        while server.logged("SendTooSlow", since) < count and time.monotonic() < until:
            time.sleep(0.25)
        wrong = server.expect_logged("SendTooSlow", count, since)
        wrong += ["%.0f bytes for each" % each] if each > 128 * 1024 else []
        wrong += ["normal requests waited %s s" % delay] if delay is None or delay > 1 else []
        for s in connections:
            s.close()
        return "%d readers that never read %s, %.0f KiB each" % (count, what, each / 1024), wrong
    return run


def unsent(port):
    """What the kernel holds for sockets of this port that their clients have not taken, in bytes; closed ones have it, too."""
    total = 0
    with open("/proc/net/tcp") as f:
        next(f)
        for line in f:
            columns = line.split()
            if int(columns[1].rpartition(":")[2], 16) == port:
                total += int(columns[4].partition(":")[0], 16) if columns[3] != "0A" else 0
    return total


def held_by_kernel(server, count, request, half_closes=False):
    """What readers who never read have the kernel hold of answers that would fit into its buffers; of a server with one worker."""
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
        held = unsent(server.port)
        delay = server.answers()
        for s in connections:
            s.close()
        # 128 KiB each, which the last piece may pass, and 1 MiB for 64 of them.
        bound = (count * 192 + 64 * 1024) << 10
        wrong = ["the kernel holds %.0f MiB" % (held / MIB)] if held > bound else []
        wrong += ["normal requests waited %s s" % delay] if delay is None or delay > 1 else []
        return "%d readers of 1 MiB who never read, %.0f KiB of the kernel's each" % (count, held / count / 1024), wrong
    return run


def garbage(server, count):
    rng = random.Random(1)
    request = b"POST /small.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nRange: bytes=0-1\r\n\r\n3\r\nabc\r\n0\r\n\r\n"

    def run(since):
        statuses = {}
        for _ in range(count):
            mutated = bytearray(request)
            for _ in range(rng.randint(1, 6)):
                place = rng.randrange(len(mutated))
                kind = rng.randrange(3)
                if kind == 0:
                    mutated[place] = rng.randrange(256)
                elif kind == 1:
                    del mutated[place]
                else:
                    mutated[place:place] = rng.choice([b"\r", b"\n", b"\0", b" ", b"\r\n", b":", b"\xff"])
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
        return "%d mutated requests (%s)" % (count, shown), ["answered %r" % c for c in server_errors]
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
            check(server, "1,000,000 one-byte chunks", status_check(server, chunks, 400, "ChunkOverhead"))
            ranges = b"Range: bytes=%s0-\r\nConnection: close\r\n" % (b"0-," * 1300)
            check(server, "1,300 overlapping ranges", status_check(server, get % (b"digits.txt", ranges), 200, None, 8192))
            unread = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n" + b"x" * (4 * MIB)
            check(server, "1 GiB of unread content", status_check(server, unread, 405, "ContentUnread"))
            check(server, "garbage", garbage(server, 3000))
            check(server, "slow heads", drip(server, min(many, 2000)))
            check(server, "silent connections", silent(server, many))
            check(server, "readers that never read", never_reads(server, 100, get % (b"large.bin", b""), "64 MiB"))
            batch = (get % (b"digits.txt", b"")) * 10_000
            check(server, "10,000 pipelined, unread", never_reads(server, 20, batch, "10,000 answers"))
        finally:
            server.process.terminate()
            code = server.process.wait(40)
        results.append(code == 0)
        print("ended with %d" % code)
        server = Server(options.binary, root, "--workers", "1")
        try:
            medium = get % (b"medium.bin", b"")
            closing = get % (b"medium.bin", b"Connection: close\r\n")
            check(server, "what the kernel holds", held_by_kernel(server, min(many, 2000), medium))
            check(server, "the same, closing", held_by_kernel(server, min(many, 2000), closing))
            check(server, "the same, half closed", held_by_kernel(server, min(many, 2000), medium, half_closes=True))
        finally:
            server.process.terminate()
            server.process.wait(40)
    print("%d passed, %d failed" % (results.count(True), results.count(False)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
