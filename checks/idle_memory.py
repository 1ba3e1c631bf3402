#!/usr/bin/env python3
"""Measures the private memory of a server per idle keep-alive connection.

    idle_memory.py PATH/TO/selvedge [--connections N] [--bytes-max N]

Each connection sends one request, all are idle for two seconds, Private_* of /proc/PID/smaps_rollup is
read, and each sends another request. Standard library and loopback only. Exit status 1 if an idle
connection takes more than the limit, or is not served.
"""
import argparse, os, re, resource, socket, subprocess, sys, tempfile, time

REQUEST = b"GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n"
CONTENT = b"small\n"


def private(pid):
    with open("/proc/%d/smaps_rollup" % pid) as f:
        return 1024 * sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+) kB", f.read()))


def exchange(connection):
    connection.sendall(REQUEST)
    got = b""
    while not got.endswith(b"\r\n\r\n" + CONTENT):
        piece = connection.recv(65536)
        if not piece:
            sys.exit("a connection was closed after %r" % got)
        got += piece
    return connection


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--bytes-max", type=int, default=532, help="limit per connection (default: the memory of nginx with freed pools)")
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
        # The first connections allocate memory that is not per connection.
        for connection in [exchange(socket.create_connection(address, 10)) for _ in range(100)]:
            connection.close()
        time.sleep(2)
        before = private(server.pid)
        connections = [exchange(socket.create_connection(address, 10)) for _ in range(count)]
        time.sleep(2)
        per_connection = (private(server.pid) - before) / count
        print("%d idle connections: %.0f bytes each" % (count, per_connection))
        for connection in connections:
            exchange(connection)
        print("all connections were served again")
        if per_connection > options.bytes_max:
            sys.exit("FAILED: more than %d bytes per connection" % options.bytes_max)
    finally:
        server.terminate()
        server.wait()


main()
