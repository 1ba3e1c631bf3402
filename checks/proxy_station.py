"""gRPC through the proxy: the four kinds of calls, with the example `grpc` on tonic and with grpcio as upstreams."""
import concurrent.futures
import queue
import subprocess
import sys
import time

import grpc

import proxy_upstreams as upstreams
from clients import STEP_TIMEOUT, free_address, run, rust
from proxy_upstreams import Proxy

sys.path.insert(0, str(upstreams.APPLICATIONS))
import station  # noqa: E402, it is in the folder of upstreams

CALLS_AT_ONCE = 100
LARGE_BYTES = 8 << 20
CANCEL_SECONDS_MAX = 1.0
SENSOR = station.encode("roof")


def reading(degrees, note=b""):
    return station.encode("roof", degrees, note)


def degrees(message):
    return station.decode_reading(message)[1]


class Calls:
    """The methods of a channel."""

    def __init__(self, channel):
        self.latest = channel.unary_unary("/station.Station/Latest")
        self.watch = channel.unary_stream("/station.Station/Watch")
        self.record = channel.stream_unary("/station.Station/Record")
        self.convert = channel.stream_stream("/station.Station/Convert")
        self.other = channel.unary_unary("/station.Station/Other")


def status_of(call, *arguments, **options):
    try:
        call(*arguments, timeout=options.get("timeout", STEP_TIMEOUT))
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def converse(calls, values):
    """Sends each message after the reply to the one before."""
    sent = queue.SimpleQueue()
    replies = calls.convert(iter(sent.get, None), timeout=STEP_TIMEOUT)
    for value in values:
        sent.put(reading(value))
        assert degrees(next(replies)) == value * 1.8 + 32.0
    sent.put(None)
    assert list(replies) == []


def all_calls(channel):
    calls = Calls(channel)
    assert status_of(calls.latest, station.encode("none")) == (grpc.StatusCode.NOT_FOUND, "the sensor has no reading")
    assert status_of(calls.other, b"")[0] == grpc.StatusCode.UNIMPLEMENTED
    watched = calls.watch(SENSOR, timeout=STEP_TIMEOUT)
    # The head of the response arrives before its first message.
    watched.initial_metadata()
    summary = calls.record(iter([reading(1.0), reading(20.0)]), timeout=STEP_TIMEOUT)
    assert station.decode(summary, 0, 0) == (2, 0)
    assert [degrees(next(watched)) for _ in range(2)] == [1.0, 20.0]
    watched.cancel()
    assert degrees(calls.latest(SENSOR, timeout=STEP_TIMEOUT)) == 20.0
    converse(calls, [0.0, 100.0, -40.0])
    note = bytes(range(256)) * (LARGE_BYTES // 256)
    summary = calls.record(iter([reading(2.0, note)] * 3), timeout=STEP_TIMEOUT)
    assert station.decode(summary, 0, 0) == (3, 3 * LARGE_BYTES)
    replies = list(calls.convert(iter([reading(3.0, note)] * 3), timeout=STEP_TIMEOUT))
    assert [station.decode_reading(reply)[2] for reply in replies] == [note] * 3
    silent = calls.convert(iter(queue.SimpleQueue().get, None), timeout=0.3)
    assert status_of(lambda **_: next(silent))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    with concurrent.futures.ThreadPoolExecutor(CALLS_AT_ONCE) as threads:
        for call in [threads.submit(converse, calls, [float(number), 1.0]) for number in range(CALLS_AT_ONCE)]:
            call.result(STEP_TIMEOUT)


def cancellation(channel, lines):
    """A call that the client cancels ends at the upstream."""
    watched = Calls(channel).watch(SENSOR, timeout=STEP_TIMEOUT)
    watched.initial_metadata()
    while not lines.empty():
        lines.get()
    watched.cancel()
    began = time.monotonic()
    lines.get(timeout=CANCEL_SECONDS_MAX)
    return time.monotonic() - began


def channels(proxy):
    """Yields a channel for each transport. The path of a call begins with the name of its service."""
    options = station.OPTIONS
    yield "plain", grpc.insecure_channel(f"localhost:{proxy.plain}", options)
    credentials = grpc.ssl_channel_credentials(proxy.authority.read_bytes())
    yield "TLS", grpc.secure_channel(f"localhost:{proxy.tls}", credentials, options)


class StationProxy(Proxy):
    """A proxy that forwards the paths of the service as they are."""

    def __init__(self, options, address):
        super().__init__(options.binary, options.driver, station=f'protocol "http2"; server "http://{address}"')

    def configure(self, version=1):
        super().configure(version)
        text = self.configuration.read_text().replace('"/station/*"', '"/station.Station/*"')
        self.configuration.write_text(text.replace("strip-prefix=#true", ""))


def check_upstream(options, name, address, then):
    """Calls an upstream from grpcio, with TLS and without, and from tonic. `then` is called with each channel."""
    with StationProxy(options, address) as proxy:
        for transport, channel in channels(proxy):
            with channel:
                all_calls(channel)
                more = then(channel)
            yield (
                f"{name}, {transport}: four kinds of calls from grpcio, {CALLS_AT_ONCE} at once,"
                f" messages of {LARGE_BYTES >> 20} MiB{more}"
            )
        run(rust(), "tonic", str(proxy.plain))
        yield f"{name}: four kinds of calls from tonic"


def check(options):
    if options.grpc:
        address = free_address()
        with upstreams.program(options.grpc, address, address=address):
            yield from check_upstream(options, "tonic", address, lambda _: "")
    address, lines = free_address(), queue.SimpleQueue()
    command = [sys.executable, upstreams.APPLICATIONS / "station.py", address]
    with upstreams.program(*command, address=address, stdout=subprocess.PIPE, text=True) as process:
        concurrent.futures.ThreadPoolExecutor(1).submit(lambda: [lines.put(line) for line in process.stdout])
        yield from check_upstream(
            options, "grpcio", address, lambda channel: f", a cancelled call ends in {cancellation(channel, lines):.2f} s"
        )
