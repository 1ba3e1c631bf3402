#!/usr/bin/env python3
"""Checks the traces of the program with the messages of OpenTelemetry: a collector that decodes them by the package
`opentelemetry-proto` of PyPI.

    python3 checks/traces.py BINARY

Requests go to a route with a response of its own, and to an upstream of which one server is closed. Each span has to have its
name, kind, parent, time and attributes, and the upstream has to get the identifier of its try.
"""

import http.client
import http.server
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from python_packages import run_with

TRACE_ID, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TIME_MAX = 30


def wait_for(what, find):
    """Repeats until something is found."""
    deadline = time.monotonic() + TIME_MAX
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found
        time.sleep(0.02)
    raise SystemExit(f"traces: {what}: not within {TIME_MAX} s")


class Server(http.server.ThreadingHTTPServer):
    """A collector, and an application behind the proxy."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.batches, self.heads, self.problems = [], [], []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return "127.0.0.1:%d" % self.server_address[1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def respond(self, content, media_type):
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        self.server.heads.append(dict(self.headers))
        self.respond(b"hello", "text/plain")

    def do_POST(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
            ExportTraceServiceResponse,
        )

        content = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportTraceServiceRequest()
        request.ParseFromString(content)
        # What the package would write is as long: no field is repeated or superfluous.
        if len(request.SerializeToString()) != len(content):
            self.server.problems.append("a batch has other fields than those that were decoded")
        self.server.batches.append((self.path, self.headers["Content-Type"], request))
        self.respond(ExportTraceServiceResponse().SerializeToString(), "application/x-protobuf")


def closed_address():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % unused.getsockname()[1]


def attributes(owner):
    """Returns the attributes as a dictionary. Each occurs once."""
    pairs = [(pair.key, getattr(pair.value, pair.value.WhichOneof("value"))) for pair in owner.attributes]
    if len(dict(pairs)) != len(pairs):
        raise SystemExit(f"traces: an attribute is repeated: {pairs}")
    return dict(pairs)


def check(batches, head, began):
    """Returns what is wrong with the spans."""
    problems, spans = [], []

    def expect(what, found, expected):
        if found != expected:
            problems.append(f"{what} is {found!r}, expected {expected!r}")

    for path, media_type, request in batches:
        expect("the path", path, "/v1/traces")
        expect("the media type", media_type, "application/x-protobuf")
        for resource_spans in request.resource_spans:
            resource = attributes(resource_spans.resource)
            expect("service.name", resource.get("service.name"), "edge")
            expect("telemetry.sdk.language", resource.get("telemetry.sdk.language"), "rust")
            for scope_spans in resource_spans.scope_spans:
                expect("the scope", scope_spans.scope.name, "selvedge")
                spans += scope_spans.spans
    servers = {span.name: span for span in spans if span.kind == span.SPAN_KIND_SERVER}
    expect("the names of requests", sorted(servers), ["GET /app/*", "HEAD /fixed"])
    if problems:
        return problems
    forwarded, fixed = servers["GET /app/*"], servers["HEAD /fixed"]
    tries = [span for span in spans if span.kind == span.SPAN_KIND_CLIENT]
    expect("the number of tries", [span.parent_span_id == forwarded.span_id for span in tries], [True] * len(tries))
    expect("the trace", {span.trace_id.hex() for span in [forwarded, *tries]}, {TRACE_ID})
    expect("the parent", forwarded.parent_span_id.hex(), PARENT)
    expect("the state", forwarded.trace_state, "a=1,b=2")
    # The flag of the sender, and that the parent is elsewhere or here.
    expect("the flags", [forwarded.flags, tries[-1].flags, fixed.flags], [0x301, 0x101, 0x101])
    expect("the parent of a new trace", (fixed.parent_span_id, fixed.trace_state), (b"", ""))
    expect("the identifiers", len({span.span_id for span in spans}), len(spans))
    expect("their lengths", {(len(span.trace_id), len(span.span_id)) for span in spans}, {(16, 8)})
    expect("traceparent of the upstream", head.get("traceparent"), f"00-{TRACE_ID}-{tries[-1].span_id.hex()}-01")
    expect("tracestate of the upstream", head.get("tracestate"), "a=1,b=2")
    now = time.time_ns()
    for span in spans:
        if not began <= span.start_time_unix_nano <= span.end_time_unix_nano <= now:
            problems.append(f"{span.name} is from {span.start_time_unix_nano} to {span.end_time_unix_nano}")
    found = attributes(forwarded)
    expected = {
        "http.request.method": "GET",
        "url.path": "/app/x",
        "url.scheme": "http",
        "http.response.status_code": 200,
        "http.route": "/app/*",
        "client.address": "127.0.0.1",
        "server.address": "a.example",
        "server.port": 8080,
        "network.protocol.version": "1.1",
        "user_agent.original": "agent/1",
    }
    expect("attributes of a request", {name: found.get(name) for name in expected}, expected)
    expect("types of phases", {type(value) for name, value in found.items() if name.startswith("selvedge.phase.")}, {float})
    last = attributes(tries[-1])
    expect("the status of the last try", (last.get("http.response.status_code"), tries[-1].status.code), (200, 0))
    for number, span in enumerate(tries[:-1]):
        expect("a failed try", (attributes(span).get("error.type"), span.status.code), ("connection_refused", 2))
        expect("its number", attributes(span).get("http.request.resend_count", 0), number)
    if any("secret" in str(span) for span in spans):
        problems.append("a span has a query")
    return problems


def run(binary, folder):
    collector, application = Server(), Server()
    text = (
        f'listen "127.0.0.1:0"\nworkers 1\nlog {{ access "off"; }}\n'
        f'traces "http://{collector.address}/v1/traces" {{ service "edge"; ratio 1; }}\n'
        f'upstream "app" {{ server "http://{closed_address()}"; server "http://{application.address}"; balance "round-robin"; }}\n'
        'site "a.example" { route "/fixed" { respond 200 "x"; }; route "/app/*" { proxy "app"; }; }\n'
    )
    (folder / "selvedge.kdl").write_text(text)
    messages = folder / "messages"
    with open(messages, "wb") as out:
        server = subprocess.Popen([binary, "run", folder / "selvedge.kdl"], stdout=out, stderr=out)
    try:
        began = time.time_ns()
        pattern = re.compile(r" on http://([\d.]+):(\d+)/")
        place = wait_for("the program serves", lambda: pattern.search(messages.read_text()))
        connection = http.client.HTTPConnection(place.group(1), int(place.group(2)), timeout=TIME_MAX)
        parent = f"00-{TRACE_ID}-{PARENT}-01"
        fields = {"Host": "a.example:8080", "User-Agent": "agent/1"}
        with_parent = {**fields, "traceparent": parent, "tracestate": "a=1, b=2"}
        for method, target, headers in (("GET", "/app/x?secret=1", with_parent), ("HEAD", "/fixed", fields)):
            connection.request(method, target, headers=headers)
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                return [f"{target} has status {response.status}"]
        connection.close()
    finally:
        server.terminate()
        server.wait(timeout=TIME_MAX)
    # The end of the program has sent what was left.
    problems = collector.problems + check(collector.batches, application.heads[0], began)
    spans = [span for _, _, request in collector.batches for part in request.resource_spans for scope in part.scope_spans for span in scope.spans]
    print(f"traces: {len(spans)} spans decoded: " + ", ".join(span.name for span in spans))
    return problems


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    run_with("traces-python", ["opentelemetry-proto"], ["opentelemetry.proto.collector.trace.v1.trace_service_pb2"])
    with tempfile.TemporaryDirectory() as folder:
        problems = run(Path(sys.argv[1]).resolve(), Path(folder))
    for problem in problems:
        print(f"traces: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
