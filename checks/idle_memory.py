#!/usr/bin/env python3
"""Private memory of a server for each idle keep-alive connection, after one request each.

    idle_memory.py PID PORT [PATH] [--connections N]

Reads Private_* of /proc/PID/smaps_rollup before and after; loopback and standard library only.
"""
import argparse, re, resource, socket, time


def private(pid):
    with open("/proc/%d/smaps_rollup" % pid) as f:
        return 1024 * sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+) kB", f.read()))


def ask(port, path):
    s = socket.create_connection(("127.0.0.1", port), 10)
    s.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
    got = b""
    while b"\r\n\r\n" not in got:
        got += s.recv(65536)
    head, content = got.split(b"\r\n\r\n", 1)
    length = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
    while len(content) < length:
        content += s.recv(65536)
    return s


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pid", type=int)
    parser.add_argument("port", type=int)
    parser.add_argument("path", nargs="?", default="/")
    parser.add_argument("--connections", type=int, default=7000)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    ask(options.port, options.path).close()
    time.sleep(1)
    before = private(options.pid)
    connections = [ask(options.port, options.path) for _ in range(options.connections)]
    time.sleep(1)
    after = private(options.pid)
    print("%d idle connections: %.0f bytes each (%d before, %d after)"
          % (len(connections), (after - before) / len(connections), before, after))


if __name__ == "__main__":
    main()
