"""Requests over HTTP/2 to a site, and the outcome of each: a table.

The outcome is a status, or how the server refuses the stream: `reset PROTOCOL_ERROR` for a malformed request (RFC 9113
§8.1.1). Every row has a connection of its own, on which a usual request follows: a refused request harms no other one.
"""
import dataclasses

from http2_server import Connection

MALFORMED = "reset PROTOCOL_ERROR"
HELLO = "hello\n"
UNKNOWN_TAG = '"unknown"'


@dataclasses.dataclass
class Row:
    """A request, and what is expected of its response. `{tag}` and `{time}` are the validators of `/hello.txt`."""

    name: str
    outcome: object
    path: str = "/hello.txt"
    method: str = "GET"
    more: tuple = ()
    replaced: dict = dataclasses.field(default_factory=dict)
    content: bytes = None
    has: dict = dataclasses.field(default_factory=dict)
    expected: str = None
    # The only fields of the request, for requests that lack some.
    only: tuple = None
    transports: tuple = ("TLS", "plain")


def field(name, value):
    return {"more": ((name, value),)}


def pseudo(**replaced):
    return {"replaced": replaced}


METHODS = {"allow": "GET, HEAD, OPTIONS"}
ACCEPTED = {"path": "/accepts", "method": "POST"}
SMALL = {"path": "/small-content", "method": "POST"}
GET, AUTHORITY, ROOT = (":method", "GET"), (":authority", "localhost"), (":path", "/")
SCHEME = (":scheme", "{scheme}")

CONDITIONS = [
    Row("a file", 200, has={"content-length": "6"}, expected=HELLO),
    Row("If-None-Match", 304, **field("if-none-match", "{tag}"), has={"etag": "{tag}"}, expected=""),
    Row("If-Modified-Since", 304, **field("if-modified-since", "{time}"), expected=""),
    Row("If-Match of another content", 412, **field("if-match", UNKNOWN_TAG)),
    Row("If-Match", 200, **field("if-match", "{tag}"), expected=HELLO),
    Row("a range", 206, **field("range", "bytes=1-2"), has={"content-range": "bytes 1-2/6"}, expected="el"),
    Row("a range from the end", 206, **field("range", "bytes=-2"), expected="o\n"),
    Row("a range behind the end", 416, **field("range", "bytes=100-"), has={"content-range": "bytes */6"}),
    Row("If-Range", 206, more=(("range", "bytes=1-2"), ("if-range", "{tag}")), expected="el"),
    Row("If-Range of another content", 200, more=(("range", "bytes=1-2"), ("if-range", UNKNOWN_TAG)), expected=HELLO),
    Row("HEAD", 200, method="HEAD", has={"content-length": "6"}, expected=""),
    Row("HEAD of nothing", 404, path="/missing", method="HEAD", expected=""),
    Row("the slash of a folder", 301, path="/folder", has={"location": "/folder/"}),
    Row("a redirect", 302, path="/moved", has={"location": "/hello.txt"}),
    Row("a query", 200, path="/hello.txt?a=b", expected=HELLO),
]

METHOD_ROWS = [
    Row("POST to a file", 405, method="POST", content=b"abc", has=METHODS),
    Row("PUT to a file", 405, method="PUT", has=METHODS),
    Row("TRACE", 405, method="TRACE", has=METHODS),
    Row("an unknown method", 501, method="BREW"),
    Row("no method", MALFORMED, only=(SCHEME, AUTHORITY, ROOT)),
    Row("an empty method", MALFORMED, method=""),
    Row("OPTIONS", 204, method="OPTIONS", has=METHODS, expected=""),
    Row("OPTIONS *", 204, path="*", method="OPTIONS", expected=""),
    Row("CONNECT", 405, only=((":method", "CONNECT"), (":authority", "localhost:443"))),
    Row("CONNECT with a path", MALFORMED, only=((":method", "CONNECT"), SCHEME, AUTHORITY, ROOT)),
    Row(
        "CONNECT with a protocol",
        MALFORMED,
        only=((":method", "CONNECT"), (":protocol", "websocket"), SCHEME, AUTHORITY, ROOT),
    ),
]

CONTENTS = [
    Row("content", 200, **ACCEPTED, content=b"abc", expected="accepted\n"),
    Row("content of a given length", 200, **ACCEPTED, content=b"abc", **field("content-length", "3")),
    Row("content shorter than its length", MALFORMED, **ACCEPTED, content=b"abc", **field("content-length", "4")),
    Row("content longer than its length", MALFORMED, **ACCEPTED, content=b"abc", **field("content-length", "2")),
    Row("a length without content", MALFORMED, **ACCEPTED, **field("content-length", "5")),
    Row("two lengths", 400, path="/accepts", content=b"abc", more=(("content-length", "3"), ("content-length", "4"))),
    Row("much content of a given length", 413, **SMALL, content=b"a" * 101, **field("content-length", "101")),
    Row("much content of no given length", 413, **SMALL, content=b"a" * 101),
    Row("content at the limit", 200, **SMALL, content=b"a" * 100),
    Row("Expect: 100-continue", 200, **ACCEPTED, content=b"abc", **field("expect", "100-continue")),
    Row("another expectation", 417, **field("expect", "more")),
]

AUTHORITIES = [
    Row("an unknown authority", 421, **pseudo(authority="other.test")),
    Row("the authority of another certificate", 421, **pseudo(authority="127.0.0.1"), transports=("TLS",)),
    Row("another authority", 200, **pseudo(authority="127.0.0.1"), transports=("plain",), expected=HELLO),
    Row("no authority", 400, **pseudo(authority=None)),
    Row("an empty authority", 400, **pseudo(authority="")),
    Row("a user in the authority", 400, **pseudo(authority="user@localhost")),
    Row("Host in place of the authority", 200, **pseudo(authority=None), **field("host", "localhost")),
    Row("Host and the authority", 200, **field("host", "localhost")),
    Row("Host of another authority", MALFORMED, **field("host", "other.test")),
    Row("an unknown scheme", 400, **pseudo(scheme="ftp")),
    Row("no scheme", MALFORMED, **pseudo(scheme=None)),
]

PATHS = [
    Row("no path", MALFORMED, only=(GET, SCHEME, AUTHORITY)),
    Row("an empty path", MALFORMED, path=""),
    Row("a star for GET", MALFORMED, path="*"),
    Row("a path without a slash", MALFORMED, path="hello.txt"),
    Row("a URL as path", MALFORMED, path="http://localhost/hello.txt"),
    Row("a fragment", 400, path="/hello.txt#part"),
    Row("two slashes", 200, path="//hello.txt"),
    Row("an encoded slash", 404, path="/%2Fhello.txt"),
    Row("dots behind an encoded slash", 400, path="/folder%2F..%2Fhello.txt"),
    Row("dots within the site", 200, path="/folder/../hello.txt", expected=HELLO),
    Row("encoded dots above the root", 400, path="/%2e%2e/hello.txt"),
    Row("an encoded NUL", 400, path="/hello%00.txt"),
    Row("a hidden file", 404, path="/.git/config"),
    Row("a long path", 414, path="/" + "a" * 12_000),
]

FIELDS = [
    Row("many fields", 431, more=tuple((f"x-{number}", "") for number in range(200))),
    Row("too many cookie crumbs", 431, more=(("cookie", ""),) * 400),
    Row("as many cookie crumbs as browsers send", 200, more=(("cookie", "name=value"),) * 180, expected=HELLO),
    Row("some cookie crumbs", 200, more=(("cookie", "name=value"),) * 40, expected=HELLO),
    Row("a large field", 431, **field("x", "v" * 40_000)),
    Row("te: trailers", 200, **field("te", "trailers"), expected=HELLO),
    Row("another te", MALFORMED, **field("te", "gzip")),
    Row("an upper-case name", MALFORMED, **field("X-Upper", "value")),
    Row("connection", MALFORMED, **field("connection", "close")),
    Row("keep-alive", MALFORMED, **field("keep-alive", "1")),
    Row("proxy-connection", MALFORMED, **field("proxy-connection", "close")),
    Row("transfer-encoding", MALFORMED, **field("transfer-encoding", "chunked")),
    Row("upgrade", MALFORMED, **field("upgrade", "h2c")),
    Row("an empty name", MALFORMED, **field("", "value")),
    Row("a blank in a name", MALFORMED, **field("a b", "value")),
    Row("a colon in a name", MALFORMED, **field("x:", "value")),
    Row("a line end in a value", MALFORMED, **field("x", "a\r\nb: c")),
    Row("NUL in a value", MALFORMED, **field("x", "a\0b")),
    Row("a blank before a value", MALFORMED, **field("x", " value")),
    Row("an unknown pseudo field", MALFORMED, **field(":unknown", "value")),
    Row("the pseudo field of a response", MALFORMED, only=((":status", "200"), GET, SCHEME, AUTHORITY, ROOT)),
    Row("a repeated pseudo field", MALFORMED, only=(GET, GET, SCHEME, AUTHORITY, ROOT)),
    Row("a pseudo field behind a field", MALFORMED, only=(GET, ("a", "b"), SCHEME, AUTHORITY, ROOT)),
]

ROWS = CONDITIONS + METHOD_ROWS + CONTENTS + AUTHORITIES + PATHS + FIELDS


def problems(server, transport, row, values):
    """Sends the request of a row. Returns what is not as expected."""
    with Connection(server, transport) as connection:
        fields = row.only or connection.fields(row.path, row.method, row.more, **row.replaced)
        connection.send(connection.head(1, [(name, value.format(**values)) for name, value in fields], end=row.content is None))
        if row.content is not None:
            connection.send(connection.data(1, row.content))
        outcome, response = connection.outcome(1), connection.of(1)
        if outcome != row.outcome:
            yield f"{outcome}, expected {row.outcome}"
            return
        for name, value in row.has.items():
            if response.field(name) != value.format(**values):
                yield f"{name}: {response.field(name)}, expected {value}"
        if row.expected is not None and response.content != row.expected.encode():
            yield f"the content is {response.content[:80]!r}, expected {row.expected!r}"
        if outcome == 200 and not (response.is_complete and response.reset in (None, "NO_ERROR")):
            yield f"the response is not complete, reset {response.reset}"
        next_request = connection.request(3)
        if next_request.fields == [] or next_request.status() != 200:
            yield f"the next request: {connection.outcome(3)}"


def check(server):
    """Sends the request of every row over TLS and without."""
    failed, count = [], 0
    for transport in ("TLS", "plain"):
        with Connection(server, transport) as connection:
            file = connection.request(1)
        values = {
            "tag": file.field("etag"),
            "time": file.field("last-modified"),
            "scheme": "https" if transport == "TLS" else "http",
        }
        for row in (row for row in ROWS if transport in row.transports):
            count += 1
            failed += [f"{transport}, {row.name}: {problem}" for problem in problems(server, transport, row, values)]
    assert not failed, "\n".join(failed)
    print(f"{count} rows of requests and responses")
