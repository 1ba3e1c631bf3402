#!/usr/bin/env python3
"""Sends unusual requests to a running selvedge and checks the formats of its access logs.

    goaccess.py PATH/TO/selvedge [--requests N] [--suite H1RUN.py --cases CASES.json]

For each of common, combined and json, it asserts that every line matches the format, is ASCII
without control characters, and that every response has one line. GoAccess, if it is
installed, must parse all lines with the format's name alone. --suite also sends the cases of
a suite. Standard library and loopback only; takes some seconds. Exit status 1 if a check fails.
"""
import argparse, json, os, random, re, shutil, signal, socket, subprocess, sys, tempfile

TIME = r"\[\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d \+0000\]"
QUOTED = r'"(?:[^"\\]|\\["\\]|\\x[0-9a-f]{2})*"'
COMMON = r"[0-9.]+ - \S+ %s %s \d{3} (?:\d+|-)" % (TIME, QUOTED)
# The pattern of each format, and its name in GoAccess.
FORMATS = {
    "common": (re.compile(COMMON + r"\n"), "COMMON"),
    "combined": (re.compile(COMMON + " %s %s\n" % (QUOTED, QUOTED)), "COMBINED"),
    "json": (None, "CADDY"),
}
SPECIAL = [b'"', b"\\", b"\r", b"\n", b"\r\n", b"\t", b" ", b"%", b"\0", b"\x1b[31m", b"\x7f", b"\x80",
           "\u00e9\u2028\U0001d11e".encode(), b"\xff", b"{", b"}", b"[", b"]", b"'", b",", b":", b"\\x22", b"\\u0022"]


def random_bytes(rng):
    """Returns a few random bytes, most of them with a meaning in log formats."""
    pieces = [rng.choice(SPECIAL) if rng.random() < 0.6 else bytes([rng.randrange(256)])
              for _ in range(rng.randrange(12))]
    return b"".join(pieces)


def odd_requests(count):
    """Yields requests with every byte value in each logged part, then random ones."""
    head = b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    for byte in range(256):
        char = bytes([byte])
        yield b"GET /a" + char + b"b" + head + b"\r\n"
        yield b"G" + char + b"T /a" + head + b"\r\n"
        yield b"GET /" + head + b"User-Agent: a" + char + b"\r\nReferer: " + char + b"\r\n\r\n"
    rng = random.Random(7)
    for _ in range(count):
        yield (b"GET /" + random_bytes(rng) + b" HTTP/1.1\r\nHost: a\r\nUser-Agent: " + random_bytes(rng)
               + b"\r\nReferer: " + random_bytes(rng) + b"\r\nConnection: close\r\n\r\n")
    yield b"\r\n\r\n\x16\x03\x01\x02\x00\x01\x00"
    yield b"GET / HTTP/1.1\r\n" + b"A: " + b"\xfe" * 20000 + b"\r\n\r\n"
    yield b"GET /" + b"\"" * 9000 + head + b"\r\n"


def exchange(port, request):
    """Sends a request, and returns the bytes until the connection is closed."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        s.sendall(request)
        s.shutdown(socket.SHUT_WR)
        try:
            while data := s.recv(65536):
                received += data
        except ConnectionResetError:
            pass
    return received


def count_responses(received):
    return len(re.findall(rb"(?:^|>\n|\n\n)?HTTP/1\.1 [2-5]\d\d ", received))


def run_format(binary, name, options, directory):
    """Serves with one format and sends all requests. Returns the log's path, the number of responses, and the problems."""
    root, log = os.path.join(directory, "root-" + name), os.path.join(directory, name + ".log")
    os.mkdir(root)
    server = subprocess.Popen(
        [binary, "serve", root, "--listen", "127.0.0.1:0", "--log", name, "--access-log", log,
         "--error-log", os.path.join(directory, name + ".errors")], stderr=subprocess.PIPE, text=True)
    problems, responses = [], 0
    try:
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", server.stderr.readline()).group(1))
        for request in odd_requests(options.requests):
            responses += count_responses(exchange(port, request))
        if options.suite:
            # The suite creates its own files. Its result is asserted in another check.
            result = subprocess.run([sys.executable, options.suite, "127.0.0.1:%d" % port, "--docroot", root,
                                  "--cases", options.cases], stdout=subprocess.PIPE, text=True)
            print("%-9s output of the suite: %s" % (name, (result.stdout.strip().splitlines() or ["none"])[-1]))
            responses = None
    finally:
        server.send_signal(signal.SIGTERM)
        if server.wait(60) != 0:
            problems.append("the exit code of the server is %d" % server.returncode)
    return log, responses, problems


def check_log(name, log, responses):
    """Checks the lines of a log. Returns their number and the problems."""
    with open(log, "rb") as f:
        lines = f.readlines()
    problems = []
    if responses is not None and len(lines) != responses:
        problems.append("%d lines for %d responses" % (len(lines), responses))
    for line in lines:
        text = line.decode("utf-8")
        if not re.fullmatch(r"[\x20-\x7e]+\n", text):
            problems.append("a control character or not ASCII: %r" % text)
        pattern = FORMATS[name][0]
        if pattern and not pattern.fullmatch(text):
            problems.append("not a line of the format: %r" % text)
        if not pattern:
            fields = json.loads(text)
            if not {"ts", "time", "request", "size", "status", "outcome"} <= fields.keys():
                problems.append("missing fields: %r" % text)
    return len(lines), problems


def goaccess(name, log):
    """Returns the number of lines that GoAccess cannot parse, or None if it is not installed."""
    if not shutil.which("goaccess"):
        return None
    report = log + ".json"
    subprocess.run(["goaccess", log, "--no-global-config", "--log-format=" + FORMATS[name][1], "-o", report],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=120)
    if not os.path.exists(report):
        return -1
    # GoAccess decodes percent-encoding, so its report may contain any bytes.
    with open(report, errors="replace") as f:
        return json.load(f, strict=False)["general"]["failed_requests"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--requests", type=int, default=1000, help="number of random requests for each format")
    parser.add_argument("--suite", help="a suite of raw cases to send in addition")
    parser.add_argument("--cases", help="the cases of the suite")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        for name in FORMATS:
            log, responses, problems = run_format(options.binary, name, options, directory)
            lines, line_problems = check_log(name, log, responses)
            problems += line_problems
            unparsed = goaccess(name, log)
            if unparsed:
                problems.append("GoAccess cannot parse %s lines" % ("any" if unparsed < 0 else unparsed))
            goaccess_result = "not installed" if unparsed is None else "%s failed" % unparsed
            print("%-9s %5d lines, GoAccess: %s: %s" % (name, lines, goaccess_result, "ok" if not problems else "FAILED"))
            for problem in problems[:10]:
                print("    " + problem)
            failed |= bool(problems)
    sys.exit(failed)


if __name__ == "__main__":
    main()
