#!/usr/bin/env python3
"""Private memory of a server for each idle keep-alive connection, and that each is served afterwards.

    idle_memory.py PATH/TO/selvedge [--connections N] [--bytes-max N]

Each connection asks once, all are left alone for two seconds, Private_* of /proc/PID/smaps_rollup is
read, and each asks once more. Standard library and loopback only. Exit status 1 when an idle
connection takes more than that, or is not served.
"""
import argparse, os, re, resource, socket, subprocess, sys, tempfile, time

REQUEST = b"GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n"
CONTENT = b"small\n"


def private(pid):
    with open("/proc/%d/smaps_rollup" % pid) as f:
        return 1024 * sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+) kB", f.read()))


def ask(connection):
    connection.sendall(REQUEST)
    got = b""
    while not got.endswith(b"\r\n\r\n" + CONTENT):
        came = connection.recv(65536)
        if not came:
            sys.exit("a connection ended after %r" % got)
        got += came
    return connection


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--bytes-max", type=int, default=532, help="nginx's, with its pools freed")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(options.connections, hard - 100)

    root = tempfile.mkdtemp()
    with open(os.path.join(root, "small.txt"), "wb") as file:
        file.write(CONTENT)
    server = subprocess.Popen(
        [options.binary, "serve", root, "--listen", "127.0.0.1:0", "--workers", "1", "--log", "off"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        line = server.stderr.readline()
        address = ("127.0.0.1", int(re.search(r"http://127\.0\.0\.1:(\d+)/", line).group(1)))
        # What the first ones touch is not the connections'.
        for connection in [ask(socket.create_connection(address, 10)) for _ in range(100)]:
            connection.close()
        time.sleep(2)
        before = private(server.pid)
        connections = [ask(socket.create_connection(address, 10)) for _ in range(count)]
        time.sleep(2)
        each = (private(server.pid) - before) / count
        print("%d idle connections: %.0f bytes each" % (count, each))
        for connection in connections:
            ask(connection)
        print("each was served again")
        if each > options.bytes_max:
            sys.exit("more than %d bytes" % options.bytes_max)
    finally:
        server.terminate()
        server.wait()


main()
