#!/usr/bin/env python3
"""Receives spans by OTLP over HTTP, and prints each trace as a tree.

    python3 examples/observed/receiver.py [ADDRESS:PORT]

The address is 127.0.0.1:4318 by default. The package `opentelemetry-proto` of PyPI decodes the messages:

    python3 -m venv /tmp/observed && /tmp/observed/bin/pip install opentelemetry-proto
"""

import collections
import http.server
import sys
import threading

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

# Attributes that the line of a span has in another form, or that are equal for all spans of this example.
HIDDEN = {"http.request.method", "http.response.status_code", "url.scheme", "network.protocol.version", "server.port"}
# One print of a batch is not interrupted by another.
PRINTING = threading.Lock()


def attributes(span):
    """Returns the attributes as a dictionary."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}


def short(value):
    """Returns a value as text; a float is a time in seconds."""
    return f"{value * 1000:.1f}ms" if isinstance(value, float) else str(value)


def line(span):
    """Returns the line of a span: kind, name, time, status, and its attributes in short."""
    found = attributes(span)
    milliseconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
    kind = "try" if span.kind == span.SPAN_KIND_CLIENT else "request"
    status = found.get("http.response.status_code", "no response")
    failed = " failed" if span.status.code == span.status.STATUS_CODE_ERROR else ""
    rest = [f"{name.rpartition('.')[2]}={short(value)}" for name, value in found.items() if name not in HIDDEN]
    return f"{kind} {span.name} {milliseconds:.1f} ms {status}{failed}  {' '.join(rest)}"


def tree(spans):
    """Returns the lines of spans: those of a trace below its identifier, and each span below its parent."""
    traces, known = collections.defaultdict(list), {span.span_id for span in spans}
    children = collections.defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_time_unix_nano):
        is_root = span.parent_span_id not in known
        (traces[span.trace_id] if is_root else children[span.parent_span_id]).append(span)
    lines = []

    def add(span, depth):
        lines.append("  " * depth + line(span))
        for child in children[span.span_id]:
            add(child, depth + 1)

    for trace, roots in traces.items():
        lines.append(trace.hex())
        for root in roots:
            add(root, 1)
    return lines


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        spans = [span for part in request.resource_spans for scope in part.scope_spans for span in scope.spans]
        with PRINTING:
            print("\n".join(tree(spans)), flush=True)
        content = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main():
    address, _, port = (sys.argv[1:] + ["127.0.0.1:4318"])[0].rpartition(":")
    with http.server.ThreadingHTTPServer((address, int(port)), Handler) as server:
        print(f"receiving spans on http://{address}:{port}/v1/traces", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
