"""Floods and slow clients over HTTP/2 that the shared suite of attacks does not have.

Each asserts how the server ends the abuse, that a usual request on another connection succeeds meanwhile, and that memory
and file descriptors return to what they were.
"""
import contextlib
import os
import socket
import time

from hyperframe.frame import ContinuationFrame, HeadersFrame, RstStreamFrame, WindowUpdateFrame

from http2_server import (
    FRAME_BYTES_MAX,
    MIB,
    SETTINGS_INITIAL_WINDOW,
    WINDOW_MAX,
    Connection,
    Server,
    raise_windows,
)

SEND_TIMEOUT, SETTINGS_TIMEOUT = 2, 1
LIMITS = f'send-timeout "{SEND_TIMEOUT}s"; http2-settings-timeout "{SETTINGS_TIMEOUT}s"'
GROWTH_MAX = 16
PROBE_MAX = 0.3
STREAMS = 100
REPETITIONS = 10
# What the kernel may hold of a response that a client does not read: the buffers of both ends, and what is in frames of a turn.
BUFFERED_MAX = 24 * MIB
# How much longer small responses may take beside a large one. The minimum is for responses that are very fast alone.
SLOWER_MAX, SLOWER_SECONDS_MIN = 10, 0.5


class Watch:
    """The state of a server during an attack."""

    def __init__(self, server, transport, any_time):
        self.server, self.transport, self.any_time = server, transport, any_time
        self.memory, self.sockets = server.memory(), server.sockets()
        self.peak, self.slowest = self.memory, 0

    def probe(self):
        """Sends a usual request over a new connection."""
        began = time.monotonic()
        with Connection(self.server, self.transport) as connection:
            outcome = connection.request(1).status()
        assert outcome == 200, f"a usual request: {outcome}"
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.peak = max(self.peak, self.server.memory())

    def end(self):
        self.probe()
        growth = self.peak - self.memory
        assert growth < GROWTH_MAX, f"memory grew by {growth:.1f} MiB"
        assert self.any_time or self.slowest < PROBE_MAX, f"the slowest usual request took {self.slowest:.2f} s"
        end = time.monotonic() + 10
        while self.server.sockets() > self.sockets:
            assert time.monotonic() < end, f"{self.server.sockets()} sockets are open, {self.sockets} before"
            time.sleep(0.02)
        return f"memory {growth:+.1f} MiB, slowest usual request {self.slowest:.2f} s"


def empty_continuations(watch):
    """A head whose continuations are empty never ends."""
    with Connection(watch.server, watch.transport) as connection:
        block = connection.encoder.encode(connection.fields())
        connection.send(HeadersFrame(1, block))
        # One frame at a time, so that the last one is the first of the server's refusal.
        for _ in range(1000):
            if not connection.send(ContinuationFrame(1, b"")):
                break
        connection.receive_until(lambda: connection.goaway)
        watch.probe()
        assert connection.goaway == "ENHANCE_YOUR_CALM", connection.goaway
        return "GOAWAY ENHANCE_YOUR_CALM"


def bomb(field):
    """Heads of one byte per field, on a hundred streams whose window is 0."""

    def attack(watch):
        with Connection(watch.server, watch.transport, {SETTINGS_INITIAL_WINDOW: 0}) as connection:
            # The first entry of the dynamic table is the field with an empty value; 0xbe refers to it.
            insert = b"\x40" + bytes([len(field)]) + field + b"\x00"
            for stream in range(1, 2 * STREAMS, 2):
                block = (insert if stream == 1 else b"") + b"\xbe" * 32_000
                block = encoded_literally(connection.fields()) + block
                pieces = [block[at : at + FRAME_BYTES_MAX] for at in range(0, len(block), FRAME_BYTES_MAX)]
                frames = [HeadersFrame(stream, pieces[0], flags=["END_STREAM"])]
                frames += [ContinuationFrame(stream, piece) for piece in pieces[1:]]
                frames[-1].flags.add("END_HEADERS")
                if not connection.send(*frames):
                    break
            connection.receive_until(lambda: connection.goaway or len(connection.with_fields()) == STREAMS)
            watch.probe()
            return drip_until_over(watch, connection)

    attack.__name__ = f"bomb_of_{field.decode()}"
    return attack


def encoded_literally(fields):
    """Encodes fields without the tables."""
    return b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in fields
    )


def stalled_responses(watch):
    """Large responses, each of whose windows grows by a byte now and then, end by the send timeout."""
    with Connection(watch.server, watch.transport, {SETTINGS_INITIAL_WINDOW: 0}) as connection:
        connection.send(*(connection.head(stream, connection.fields("/huge.bin")) for stream in range(1, 2 * STREAMS, 2)))
        connection.receive_until(lambda: len(connection.with_fields()) == STREAMS)
        return drip_until_over(watch, connection)


def drip_until_over(watch, connection):
    """Increases the windows by a byte each 100 ms, until the server has ended the connection or every stream."""
    began, probed = time.monotonic(), 0
    # The minimum rate is averaged after a first timeout.
    until = began + 4 * SEND_TIMEOUT + 2

    def is_over():
        return connection.is_closed or connection.goaway or all(r.is_over for r in connection.responses.values())

    while not is_over():
        assert time.monotonic() < until, "a drip of bytes keeps responses open"
        open_streams = [stream for stream, response in connection.responses.items() if not response.is_over]
        connection.send(*(WindowUpdateFrame(stream, window_increment=1) for stream in open_streams))
        with contextlib.suppress(AssertionError):
            connection.receive_until(is_over, 0.1)
        if time.monotonic() > probed + 1:
            watch.probe()
            probed = time.monotonic()
    resets = sorted({response.reset for response in connection.responses.values() if response.reset})
    how = f"GOAWAY {connection.goaway}" if connection.goaway else f"resets {resets}" if resets else "closed"
    statuses = sorted({response.status() for response in connection.responses.values() if response.fields})
    return f"statuses {statuses}, {how} after {time.monotonic() - began:.1f} s"


def unacknowledged_settings(watch):
    """A client that never acknowledges the settings is served until the timeout."""
    with Connection(watch.server, watch.transport, acknowledges=False) as connection:
        began = time.monotonic()
        assert connection.request(1).status() == 200
        connection.receive_until(lambda: connection.goaway)
        seconds = time.monotonic() - began
        watch.probe()
        assert connection.goaway == "SETTINGS_TIMEOUT", connection.goaway
        assert seconds > SETTINGS_TIMEOUT / 2, f"after {seconds:.1f} s"
        return f"GOAWAY SETTINGS_TIMEOUT after {seconds:.1f} s"


def early_resets(watch):
    """Requests that are cancelled while their handlers start leave nothing open, and no stream counts as open."""
    connections, cancelled = 5, 300
    for _ in range(connections):
        with Connection(watch.server, watch.transport) as connection:
            for number in range(cancelled):
                stream = 2 * number + 1
                # Cancelled within the packet of the request, or in the next one.
                head = connection.head(stream, connection.fields("/large.bin"))
                parts = [head, RstStreamFrame(stream, error_code=8).serialize()]
                for part in [b"".join(parts)] if number % 2 else parts:
                    connection.send(part)
            raise_windows(connection)
            wanted = range(2 * cancelled + 1, 2 * (cancelled + STREAMS), 2)
            connection.send(*(connection.head(stream, connection.fields()) for stream in wanted))
            for stream in wanted:
                assert connection.outcome(stream) == 200, connection.outcome(stream)
    watch.probe()
    return f"{connections * cancelled} requests cancelled"


def request_flood(watch):
    """Requests that are cancelled without an end exhaust the budget of their connection."""
    with Connection(watch.server, watch.transport) as connection:
        for number in range(20_000):
            if number % 20 == 0:
                connection.receive(0)
            if connection.goaway:
                break
            stream = 2 * number + 1
            head = connection.head(stream, connection.fields("/huge.bin"))
            if not connection.send(head, RstStreamFrame(stream, error_code=8)):
                break
        connection.receive_until(lambda: connection.goaway)
        watch.probe()
        assert connection.goaway == "ENHANCE_YOUR_CALM", connection.goaway
        return f"GOAWAY {connection.goaway} after {number} requests"


def invalid_record(watch):
    """A TLS record that cannot be decoded, behind a violation that closes the connection, is discarded."""
    if watch.transport != "TLS":
        return "not without TLS"
    with Connection(watch.server, watch.transport) as connection:
        connection.send(WindowUpdateFrame(0, window_increment=WINDOW_MAX))
        connection.receive_until(lambda: connection.goaway)
        with socket.socket(fileno=os.dup(connection.socket.fileno())) as below_tls:
            below_tls.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
        connection.receive_until(lambda: connection.is_closed)
        assert connection.goaway == "FLOW_CONTROL_ERROR", connection.goaway
        return f"GOAWAY {connection.goaway}"


def small_beside_large(watch):
    """Small responses do not wait for a large one on their connection.

    Repeated, because whether their requests are read in time depends on what the server does when they arrive.
    """
    summaries = [small_beside_large_once(watch) for _ in range(REPETITIONS)]
    watch.probe()
    return max(summaries)[1]


def small_beside_large_once(watch):
    """Returns how much of the large response preceded the small ones, and a summary."""
    small = range(3, 2 * STREAMS, 2)
    seconds, received = {}, {}
    for beside in (False, True):
        with Connection(watch.server, watch.transport, seconds=60) as connection:
            large = connection.of(1)
            if beside:
                connection.send(connection.head(1, connection.fields("/huge.bin")))
                raise_windows(connection, 1)
                connection.receive_until(lambda: len(large.content) > MIB)
            received_and_dropped(large)
            began = time.monotonic()
            connection.send(*(connection.head(stream, connection.fields()) for stream in small))
            total = 0
            while not all(connection.of(stream).is_complete for stream in small):
                connection.receive(10)
                total += received_and_dropped(large)
                assert not connection.is_closed and large.reset is None, large.reset
            seconds[beside], received[beside] = time.monotonic() - began, total
            assert all(connection.of(stream).content == b"hello\n" for stream in small)
    assert received[True] < BUFFERED_MAX, f"{received[True] / MIB:.0f} MiB of the large response are before small ones"
    slower_max = max(SLOWER_MAX * seconds[False], SLOWER_SECONDS_MIN)
    assert watch.any_time or seconds[True] < slower_max, f"{seconds[True]:.2f} s, {seconds[False]:.2f} s alone"
    duration = f"{len(small)} responses in {seconds[True]:.3f} s, {seconds[False]:.3f} s alone"
    return received[True], f"{duration}, {received[True] / MIB:.1f} MiB of the large one meanwhile"


def received_and_dropped(response):
    """Returns how much content has been received since the last call."""
    count, response.content = len(response.content), b""
    return count


ATTACKS = [
    empty_continuations,
    bomb(b"a"),
    bomb(b"cookie"),
    stalled_responses,
    unacknowledged_settings,
    early_resets,
    request_flood,
    invalid_record,
    small_beside_large,
]


def check(binary, driver, any_time):
    failed = []
    with Server(binary, driver, limits=LIMITS) as server:
        for transport in ("TLS", "plain"):
            # The first connections allocate memory that stays.
            for _ in range(20):
                Watch(server, transport, True).probe()
            for attack in ATTACKS:
                watch = Watch(server, transport, any_time)
                try:
                    summary = attack(watch)
                    print(f"{attack.__name__}, {transport}: {summary}; {watch.end()}", flush=True)
                except AssertionError as error:
                    failed.append(f"{attack.__name__}, {transport}: {error}")
    assert not failed, "\n".join(failed)
