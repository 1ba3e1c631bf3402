//! Frames that violate RFC 9113, RFC 7541, or the rules of messages.

use super::attack::AttackText;
use super::http2_attacks::{ExpectedEnd, Http2Attack, Http2Input};
use super::http2_client::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2Client, PADDED, PUSH_PROMISE, SETTINGS,
    SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_UPDATE, literal_block,
};
use selvedge::proto::http2::ErrorCode;

const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Makes an input that is sent once.
const fn once(name: &'static str, write: fn(&mut Http2Client, u32)) -> Http2Input {
    Http2Input { name, times: 1, write }
}

pub(super) const ATTACKS: &[Http2Attack] = &[
    Http2Attack {
        text: AttackText {
            name: "windows",
            sends: "windows that grow by 0 or beyond their bound",
            expects: "GOAWAY PROTOCOL_ERROR or FLOW_CONTROL_ERROR",
            limit: "RFC 9113 section 6.9",
        },
        settings: &[],
        inputs: &[
            once("an increment of 0", |client, _| client.frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
            once("an overflow", |client, _| client.frame(WINDOW_UPDATE, 0, 0, &WINDOW_MAX.to_be_bytes())),
            once("an initial window of 4 GiB", |client, _| {
                let [n0, n1] = SETTINGS_INITIAL_WINDOW_SIZE.to_be_bytes();
                client.frame(SETTINGS, 0, 0, &[n0, n1, 255, 255, 255, 255]);
            }),
        ],
        expected: ExpectedEnd::Connection(&[ErrorCode::PROTOCOL_ERROR, ErrorCode::FLOW_CONTROL_ERROR]),
    },
    Http2Attack {
        text: AttackText {
            name: "stream-identifiers",
            sends: "frames of streams that the client cannot use",
            expects: "GOAWAY PROTOCOL_ERROR or STREAM_CLOSED",
            limit: "RFC 9113 section 5.1",
        },
        settings: &[],
        inputs: &[
            once("an even identifier", |client, _| client.head("GET", END_STREAM, 2, &[])),
            once("a lower identifier", |client, _| {
                client.head("GET", END_STREAM, 5, &[]);
                client.head("GET", END_STREAM, 3, &[]);
            }),
            once("content of an idle stream", |client, _| client.frame(DATA, 0, 1, b"x")),
            once("content of stream 0", |client, _| client.frame(DATA, 0, 0, b"x")),
            once("a push of the client", |client, _| {
                client.frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]);
            }),
        ],
        expected: ExpectedEnd::Connection(&[ErrorCode::PROTOCOL_ERROR, ErrorCode::STREAM_CLOSED]),
    },
    Http2Attack {
        text: AttackText {
            name: "frame-sizes",
            sends: "frames of invalid sizes, and padding that is longer than its frame",
            expects: "GOAWAY FRAME_SIZE_ERROR or PROTOCOL_ERROR",
            limit: "http2-frame-bytes-max, RFC 9113 section 4.2",
        },
        settings: &[],
        inputs: &[
            once("settings of five bytes", |client, _| client.frame(SETTINGS, 0, 0, &[0; 5])),
            once("a frame of 16 MB", |client, _| client.raw(&[255, 255, 255, DATA, 0, 0, 0, 0, 1])),
            once("padding", |client, _| {
                client.head("POST", 0, 1, &[]);
                client.frame(DATA, PADDED, 1, &[200, 0]);
            }),
        ],
        expected: ExpectedEnd::Connection(&[ErrorCode::FRAME_SIZE_ERROR, ErrorCode::PROTOCOL_ERROR]),
    },
    Http2Attack {
        text: AttackText {
            name: "order-of-frames",
            sends: "a head that another frame interrupts, and the continuation of none",
            expects: "GOAWAY PROTOCOL_ERROR",
            limit: "RFC 9113 section 6.10",
        },
        settings: &[],
        inputs: &[
            once("another frame", |client, _| {
                let block = client.block("GET", &[]);
                client.frame(HEADERS, END_STREAM, 1, &block);
                client.head("GET", END_STREAM, 3, &[]);
            }),
            once("no head", |client, _| client.frame(CONTINUATION, END_HEADERS, 1, &[])),
        ],
        expected: ExpectedEnd::Connection(&[ErrorCode::PROTOCOL_ERROR]),
    },
    Http2Attack {
        text: AttackText {
            name: "field-blocks",
            sends: "blocks that cannot be decoded: indexes, sizes, lengths, Huffman code",
            expects: "GOAWAY COMPRESSION_ERROR",
            limit: "RFC 7541, http2-table-bytes-max",
        },
        settings: &[],
        inputs: &[
            once("index 0", |client, _| block(client, &[0x80])),
            once("an index beyond the tables", |client, _| block(client, &[0xff, 0xff, 0x01])),
            once("a table of 1 GiB", |client, _| block(client, &[0x3f, 0xe1, 0xff, 0xff, 0xff, 0x03])),
            once("an endless number", |client, _| block(client, &[0xff; 20])),
            once("the end of Huffman code", |client, _| block(client, &[0, 0x84, 0xff, 0xff, 0xff, 0xff, 0])),
            once("a block that is cut off", |client, _| block(client, &[0, 100, b'x'])),
        ],
        expected: ExpectedEnd::Connection(&[ErrorCode::COMPRESSION_ERROR]),
    },
    Http2Attack {
        text: AttackText {
            name: "malformed-heads",
            sends: "pseudo-fields that are missing, repeated or late; fields of HTTP/1.1 only; bytes of line ends",
            expects: "reset of the stream, or a refusing status; any status before content",
            limit: "RFC 9113 section 8",
        },
        settings: &[],
        inputs: &[
            once("no path", |client, _| {
                let fields: [(&[u8], &[u8]); 2] = [(b":method", b"GET"), (b":scheme", b"http")];
                block(client, &literal_block(&fields));
            }),
            once("a repeated path", |client, _| extra(client, b":path", b"/")),
            once("a late pseudo-field", |client, _| {
                client.head("GET", END_STREAM, 1, &[(b"x", b"y"), (b":authority", b"a")]);
            }),
            once("an upper-case name", |client, _| extra(client, b"X-Upper", b"y")),
            once("an empty name", |client, _| extra(client, b"", b"y")),
            once("connection", |client, _| extra(client, b"connection", b"close")),
            once("transfer-encoding", |client, _| extra(client, b"transfer-encoding", b"chunked")),
            once("a line end in a value", |client, _| extra(client, b"x", b"y\r\nhost: other.invalid")),
            once("a line end in a name", |client, _| extra(client, b"x: y\r\nz", b"y")),
            once("another host", |client, _| extra(client, b"host", b"other.invalid")),
            once("more content than announced", |client, _| {
                client.head("POST", 0, 1, &[(b"content-length", b"1")]);
                client.await_early_response();
                client.frame(DATA, END_STREAM, 1, b"GET / HTTP/1.1\r\n\r\n");
            }),
        ],
        expected: ExpectedEnd::Stream,
    },
];

/// Appends a request of stream 1 with this block.
fn block(client: &mut Http2Client, block: &[u8]) {
    client.frame(HEADERS, END_STREAM | END_HEADERS, 1, block);
}

/// Appends a usual request with one more field.
fn extra(client: &mut Http2Client, name: &[u8], value: &[u8]) {
    client.head("GET", END_STREAM, 1, &[(name, value)]);
}
