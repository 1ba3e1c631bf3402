"""Reloads, upgrades and a shutdown of a server while clients of HTTP/2 send requests.

A client that receives GOAWAY sends the requests above the last stream of it again on a new connection (RFC 9113 §6.8). No
request may fail otherwise, and slow responses must end whole.
"""
import signal
import threading
import time

from hyperframe.frame import GoAwayFrame, WindowUpdateFrame

from clients import STEP_TIMEOUT
from http2_server import LARGE_BYTES, Connection, Server, raise_windows

RELOADS, UPGRADES = 20, 3
CLIENTS = 3
# Requests of a client that are in progress at once.
AT_ONCE = 10
# A slow response takes about as long as the commands, so that it is in progress during all of them.
SLOW_STEP_BYTES, SLOW_STEP_SECONDS = 150_000, 0.05
LIMITS = 'send-timeout "5s"'


class DrainedConnection(Connection):
    """A connection that knows which of its streams the server has promised to serve."""

    def __init__(self, *arguments):
        self.last_stream = None
        super().__init__(*arguments)

    def handle(self, frame):
        super().handle(frame)
        if isinstance(frame, GoAwayFrame):
            self.last_stream = frame.last_stream_id


class Client(threading.Thread):
    """Keeps requests in progress on a connection until the event `over`. Connects again after GOAWAY."""

    def __init__(self, server, transport, over, is_end_expected):
        super().__init__(daemon=True)
        self.server, self.transport, self.over, self.is_end_expected = server, transport, over, is_end_expected
        self.succeeded, self.repeated, self.connections, self.failures, self.versions = 0, 0, 0, [], set()

    def run(self):
        try:
            while not self.over.is_set():
                self.serve_connection()
        except OSError as error:
            # After the end of the server, no connection succeeds.
            if not (self.over.is_set() or self.is_end_expected.is_set()):
                self.failures.append(f"{type(error).__name__}: {error}")
        except Exception as error:  # A failure of a thread is one of the check.
            self.failures.append(f"{type(error).__name__}: {error}")

    def serve_connection(self):
        with DrainedConnection(self.server, self.transport) as connection:
            self.connections += 1
            raise_windows(connection)
            next_stream, open_streams = 1, set()
            while not connection.is_closed:
                while connection.goaway is None and not self.over.is_set() and len(open_streams) < AT_ONCE:
                    connection.send(connection.head(next_stream, connection.fields("/hello.txt")))
                    open_streams.add(next_stream)
                    next_stream += 2
                if not open_streams:
                    return
                connection.receive(10)
                for stream in [stream for stream in open_streams if connection.of(stream).is_over]:
                    self.judge(connection, connection.responses.pop(stream))
                    open_streams.remove(stream)
                if connection.last_stream is not None:
                    refused = {stream for stream in open_streams if stream > connection.last_stream}
                    self.repeated += len(refused)
                    open_streams -= refused
            if open_streams:
                self.failures.append(f"closed with {len(open_streams)} requests in progress, GOAWAY {connection.goaway}")

    def judge(self, connection, response):
        if response.reset == "REFUSED_STREAM":
            self.repeated += 1
        elif response.fields and response.status() == 200 and response.content == b"hello\n":
            self.succeeded += 1
            self.versions.add(response.field("x-version"))
        else:
            self.failures.append(f"{response.fields}, {len(response.content)} bytes, reset {response.reset}, {connection.goaway}")


class SlowClient(threading.Thread):
    """Receives a large response slowly. `content` is what it received."""

    def __init__(self, server, transport):
        super().__init__(daemon=True)
        self.connection = Connection(server, transport)
        self.transport, self.expected, self.failure = transport, (server.root / "large.bin").read_bytes(), "not complete"
        self.connection.send(self.connection.head(1, self.connection.fields("/large.bin")))
        self.connection.receive_until(lambda: self.connection.of(1).content)

    def run(self):
        connection, response = self.connection, self.connection.of(1)
        try:
            while not response.is_over and not connection.is_closed:
                increments = (WindowUpdateFrame(stream, window_increment=SLOW_STEP_BYTES) for stream in (0, 1))
                connection.send(*increments)
                end = time.monotonic() + SLOW_STEP_SECONDS
                while time.monotonic() < end and not response.is_over:
                    connection.receive(max(end - time.monotonic(), 0))
        except Exception as error:  # A failure of a thread is one of the check.
            self.failure = f"{type(error).__name__}: {error}"
        if response.is_complete and response.content == self.expected:
            self.failure = None
        elif response.reset or connection.goaway:
            self.failure = f"reset {response.reset}, GOAWAY {connection.goaway} after {len(response.content)} bytes"


def under_load(binary, driver, name, commands):
    """Runs commands of a server while clients send requests, and then ends it."""
    over, is_end_expected = threading.Event(), threading.Event()
    with Server(binary, driver, limits=LIMITS) as server:
        clients = [Client(server, transport, over, is_end_expected) for transport in ("TLS", "plain") for _ in range(CLIENTS)]
        slow = [SlowClient(server, transport) for transport in ("TLS", "plain")]
        for client in [*clients, *slow]:
            client.start()
        while not all(client.succeeded for client in clients):
            assert all(client.is_alive() for client in clients), [client.failures for client in clients]
            time.sleep(0.01)
        began = time.monotonic()
        commands(server, is_end_expected)
        seconds = time.monotonic() - began
        over.set()
        for client in [*clients, *slow]:
            client.join(timeout=60)
            assert not client.is_alive(), f"{name}: a client does not end"
    succeeded, repeated, connections = (sum(getattr(c, key) for c in clients) for key in ("succeeded", "repeated", "connections"))
    failures = [failure for client in clients for failure in client.failures]
    failures += [f"a slow response, {client.transport}: {client.failure}" for client in slow if client.failure]
    assert not failures, f"{name}: {len(failures)} failures, {succeeded} succeeded: {failures[:5]}"
    versions = len(set().union(*(client.versions for client in clients)))
    print(
        f"{name} in {seconds:.1f} s: {succeeded} requests succeeded, {repeated} were repeated, none failed, over {connections}"
        f" connections, {versions} configurations; two slow responses of {LARGE_BYTES} bytes were whole",
        flush=True,
    )
    return versions


def reload(server, _is_end_expected):
    for version in range(2, RELOADS + 2):
        server.configure(version)
        server.command("reload")
        time.sleep(0.05)


def upgrade(binary):
    def commands(server, _is_end_expected):
        for _ in range(UPGRADES):
            server.install(binary)
            server.command("upgrade")
            time.sleep(0.2)

    return commands


def upgrade_by_signal(server, _is_end_expected):
    before = set(server.processes()) - {server.process.pid}
    server.process.send_signal(signal.SIGUSR2)
    end = time.monotonic() + STEP_TIMEOUT
    # The former process ends with its last connections.
    while before & set(server.processes()):
        assert time.monotonic() < end, "the former process does not end"
        time.sleep(0.02)


def shutdown(server, is_end_expected):
    is_end_expected.set()
    server.end()


def check(binary, driver):
    versions = under_load(binary, driver, f"{RELOADS} reloads", reload)
    assert versions > RELOADS // 2, f"{versions} configurations were seen"
    under_load(binary, driver, f"{UPGRADES} upgrades", upgrade(binary))
    under_load(binary, driver, "an upgrade by USR2", upgrade_by_signal)
    under_load(binary, driver, "a shutdown", shutdown)
