#!/usr/bin/env python3
"""Sends odd requests to a running selvedge and holds its access logs to their formats.

    goaccess.py PATH/TO/selvedge [--requests N] [--suite H1RUN.py --cases CASES.json]

For each of common, combined and json: every line matches its format, is ASCII without a
control character, and there is one for each answer; and GoAccess, where it is installed,
reads all of them by the format's name alone without a failed line. With --suite, that
suite's cases are sent, too. Standard library and loopback only; some seconds. Exit status 1
when a check failed.
"""
import argparse, json, os, random, re, shutil, signal, socket, subprocess, sys, tempfile

TIME = r"\[\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d \+0000\]"
QUOTED = r'"(?:[^"\\]|\\["\\]|\\x[0-9a-f]{2})*"'
COMMON = r"[0-9.]+ - \S+ %s %s \d{3} (?:\d+|-)" % (TIME, QUOTED)
# What GoAccess calls each of them.
FORMATS = {
    "common": (re.compile(COMMON + r"\n"), "COMMON"),
    "combined": (re.compile(COMMON + " %s %s\n" % (QUOTED, QUOTED)), "COMBINED"),
    "json": (None, "CADDY"),
}
TELLING = [b'"', b"\\", b"\r", b"\n", b"\r\n", b"\t", b" ", b"%", b"\0", b"\x1b[31m", b"\x7f", b"\x80",
           "\u00e9\u2028\U0001d11e".encode(), b"\xff", b"{", b"}", b"[", b"]", b"'", b",", b":", b"\\x22", b"\\u0022"]


def octets(chance):
    """A few octets of any kind, most of them ones that mean something to a log."""
    pieces = [chance.choice(TELLING) if chance.random() < 0.6 else bytes([chance.randrange(256)])
              for _ in range(chance.randrange(12))]
    return b"".join(pieces)


def odd_requests(count):
    """Requests with every octet in every part that a log shows, then ones by chance."""
    head = b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    for octet in range(256):
        one = bytes([octet])
        yield b"GET /a" + one + b"b" + head + b"\r\n"
        yield b"G" + one + b"T /a" + head + b"\r\n"
        yield b"GET /" + head + b"User-Agent: a" + one + b"\r\nReferer: " + one + b"\r\n\r\n"
    chance = random.Random(7)
    for _ in range(count):
        yield (b"GET /" + octets(chance) + b" HTTP/1.1\r\nHost: a\r\nUser-Agent: " + octets(chance)
               + b"\r\nReferer: " + octets(chance) + b"\r\nConnection: close\r\n\r\n")
    yield b"\r\n\r\n\x16\x03\x01\x02\x00\x01\x00"
    yield b"GET / HTTP/1.1\r\n" + b"A: " + b"\xfe" * 20000 + b"\r\n\r\n"
    yield b"GET /" + b"\"" * 9000 + head + b"\r\n"


def exchange(port, request):
    """Sends a request and reads to the end."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        s.sendall(request)
        s.shutdown(socket.SHUT_WR)
        try:
            while data := s.recv(65536):
                answer += data
        except ConnectionResetError:
            pass
    return answer


def count_answers(answer):
    return len(re.findall(rb"(?:^|>\n|\n\n)?HTTP/1\.1 [2-5]\d\d ", answer))


def run_format(binary, name, options, directory):
    """Serves, asks, stops; the log's path, the number of answers, and what went wrong."""
    root, log = os.path.join(directory, "root-" + name), os.path.join(directory, name + ".log")
    os.mkdir(root)
    server = subprocess.Popen(
        [binary, "serve", root, "--listen", "127.0.0.1:0", "--log", name, "--access-log", log,
         "--error-log", os.path.join(directory, name + ".errors")], stderr=subprocess.PIPE, text=True)
    problems, answers = [], 0
    try:
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", server.stderr.readline()).group(1))
        for request in odd_requests(options.requests):
            answers += count_answers(exchange(port, request))
        if options.suite:
            # The suite makes files of its own, and judges the answers elsewhere.
            ran = subprocess.run([sys.executable, options.suite, "127.0.0.1:%d" % port, "--docroot", root,
                                  "--cases", options.cases], stdout=subprocess.PIPE, text=True)
            print("%-9s the suite said: %s" % (name, (ran.stdout.strip().splitlines() or ["nothing"])[-1]))
            answers = None
    finally:
        server.send_signal(signal.SIGTERM)
        if server.wait(60) != 0:
            problems.append("the program ended with %d" % server.returncode)
    return log, answers, problems


def judge(name, log, answers):
    """The number of lines, and what is wrong with them."""
    with open(log, "rb") as f:
        lines = f.readlines()
    problems = []
    if answers is not None and len(lines) != answers:
        problems.append("%d lines for %d answers" % (len(lines), answers))
    for line in lines:
        text = line.decode("utf-8")
        if not re.fullmatch(r"[\x20-\x7e]+\n", text):
            problems.append("a control character or no ASCII: %r" % text)
        pattern = FORMATS[name][0]
        if pattern and not pattern.fullmatch(text):
            problems.append("no line of the format: %r" % text)
        if not pattern:
            fields = json.loads(text)
            if not {"ts", "time", "request", "size", "status", "outcome"} <= fields.keys():
                problems.append("fields are missing: %r" % text)
    return len(lines), problems


def goaccess(name, log):
    """How many lines GoAccess could not read, or None where it is not installed."""
    if not shutil.which("goaccess"):
        return None
    report = log + ".json"
    subprocess.run(["goaccess", log, "--no-global-config", "--log-format=" + FORMATS[name][1], "-o", report],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=120)
    if not os.path.exists(report):
        return -1
    # It decodes what is percent-encoded, so its report may hold any octets.
    with open(report, errors="replace") as f:
        return json.load(f, strict=False)["general"]["failed_requests"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--requests", type=int, default=1000, help="requests by chance, for each format")
    parser.add_argument("--suite", help="a suite of raw cases to send as well")
    parser.add_argument("--cases", help="that suite's cases")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        for name in FORMATS:
            log, answers, problems = run_format(options.binary, name, options, directory)
            lines, wrong = judge(name, log, answers)
            problems += wrong
            unread = goaccess(name, log)
            if unread:
                problems.append("GoAccess could not read %s lines" % ("any" if unread < 0 else unread))
            seen = "not installed" if unread is None else "%s failed" % unread
            print("%-9s %5d lines, GoAccess: %s: %s" % (name, lines, seen, "ok" if not problems else "FAILED"))
            for problem in problems[:10]:
                print("    " + problem)
            failed |= bool(problems)
    sys.exit(failed)


if __name__ == "__main__":
    main()
