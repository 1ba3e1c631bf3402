#!/usr/bin/env python3
"""Measures the private memory of a server per idle keep-alive connection.

    idle_memory.py PATH/TO/selvedge [--connections N] [--bytes-max N] [--http2] [--tls]

Each connection sends one request, all are idle for two seconds, Private_* of /proc/PID/smaps is read, and
each sends another request. The flight recorder is left out: its memory is of a fixed size, and requests fill it. Standard library and loopback only. Exit status 1 if an idle
connection takes more than the limit, or is not served.

With --http2, the connections speak HTTP/2; with --tls, they are encrypted.
"""
import argparse, os, re, resource, socket, ssl, subprocess, sys, tempfile, time

REQUEST = b"GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n"
CONTENT = b"small\n"


def private(pid):
    with open("/proc/%d/smaps" % pid) as f:
        mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", f.read(), flags=re.M)
    counted = (text for text in mappings if "/memfd:selvedge-recorder" not in text.split("\n", 1)[0])
    return 1024 * sum(int(n) for text in counted for n in re.findall(r"Private_\w+:\s+(\d+) kB", text))


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


class Http2Client:
    """A connection that sends one request at a time."""

    # :method GET, :scheme http, :path /small.txt and :authority a, without the dynamic table.
    BLOCK = b"\x82\x86\x04\x0a/small.txt\x01\x01a"

    def __init__(self, connection):
        self.connection, self.stream, self.received = connection, 1, b""
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))

    def exchange(self):
        self.connection.sendall(frame(1, 5, self.stream, self.BLOCK))
        while True:
            while len(self.received) < 9 or len(self.received) < 9 + int.from_bytes(self.received[:3], "big"):
                piece = self.connection.recv(65536)
                if not piece:
                    sys.exit("a connection was closed")
                self.received += piece
            length, kind, flags = int.from_bytes(self.received[:3], "big"), self.received[3], self.received[4]
            stream = int.from_bytes(self.received[5:9], "big")
            self.received = self.received[9 + length:]
            if kind == 4 and not flags & 1:
                self.connection.sendall(frame(4, 1, 0))
            if kind in (3, 7):
                sys.exit("a connection was refused: frame %d" % kind)
            if stream == self.stream and flags & 1:
                self.stream += 2
                return self

    def close(self):
        self.connection.close()


def exchange(connection):
    if isinstance(connection, Http2Client):
        return connection.exchange()
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
    parser.add_argument("--http2", action="store_true")
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(options.connections, hard - 100)

    root = tempfile.mkdtemp()
    with open(os.path.join(root, "small.txt"), "wb") as file:
        file.write(CONTENT)
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.set_alpn_protocols(["h2" if options.http2 else "http/1.1"])
    config = os.path.join(root, "selvedge.kdl")
    listen = "tls=#true" if options.tls else "http2=#true" if options.http2 else ""
    with open(config, "w") as file:
        file.write('listen "127.0.0.1:0" %s\nworkers 1\nsupervision { supervised #false; }\nlog { access "off"; }\n'
                   'site "localhost" "a" "127.0.0.1" { root "."; }\n' % listen)
    server = subprocess.Popen(
        [options.binary, "run", config], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    def connect():
        connection = socket.create_connection(address, 10)
        if options.tls:
            connection = tls.wrap_socket(connection, server_hostname="localhost")
        return Http2Client(connection) if options.http2 else connection

    try:
        line = server.stderr.readline()
        address = ("127.0.0.1", int(re.search(r"https?://127\.0\.0\.1:(\d+)/", line).group(1)))
        # The first connections allocate memory that is not per connection.
        for connection in [exchange(connect()) for _ in range(100)]:
            connection.close()
        time.sleep(2)
        before = private(server.pid)
        connections = [exchange(connect()) for _ in range(count)]
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
