//! Requests whose end two programs may see at different places, malformed heads, and paths out of a root.

use super::attack::AttackText;
use super::request_attack::ExpectedResponses::{AtMost, NoPasswords, Refusal};
use super::request_attack::RequestAttack;
use super::request_attack::RequestInput::{Chunks, Fields, Whole};

const REFUSED: &str = "400 and close, and no response to the request behind it";
const CONTENT_REFUSED: &str = "400, or another status, and close; no response to the request behind it";

pub(super) const ATTACKS: &[RequestAttack] = &[
    RequestAttack {
        text: AttackText {
            name: "two-framings",
            sends: "Content-Length and Transfer-Encoding in one request",
            expects: REFUSED,
            limit: "RFC 9112 section 6.3",
        },
        inputs: &[
            Fields(b"Content-Length: 6\r\nTransfer-Encoding: chunked"),
            Fields(b"Transfer-Encoding: chunked\r\nContent-Length: 5"),
            Fields(b"Content-Length: 5\r\nTransfer-Encoding: identity"),
        ],
        expected: Refusal(&[400]),
    },
    RequestAttack {
        text: AttackText {
            name: "two-lengths",
            sends: "two values of Content-Length",
            expects: REFUSED,
            limit: "RFC 9112 section 6.3",
        },
        inputs: &[
            Fields(b"Content-Length: 5\r\nContent-Length: 10"),
            Fields(b"Content-Length:\r\nContent-Length: 59"),
            Fields(b"Content-Length: 5, 10"),
        ],
        expected: Refusal(&[400]),
    },
    RequestAttack {
        text: AttackText {
            name: "length-syntax",
            sends: "Content-Length that is not a plain number",
            expects: REFUSED,
            limit: "RFC 9110 section 8.6",
        },
        inputs: &[
            Fields(b"Content-Length: +5"),
            Fields(b"Content-Length: -1"),
            Fields(b"Content-Length: 0x5"),
            Fields(b"Content-Length: 1_0"),
            Fields(b"Content-Length: 1 0"),
            Fields(b"Content-Length:"),
            Fields(b"Content-Length: 99999999999999999999"),
            Fields(b"Content-Length: 18446744073709551621"),
            Fields(b"Content-Length: 5;"),
        ],
        expected: Refusal(&[400]),
    },
    RequestAttack {
        text: AttackText {
            name: "transfer-coding",
            sends: "Transfer-Encoding that does not end in a plain chunked",
            expects: "400 or 501 and close, and no response to the request behind it",
            limit: "RFC 9112 section 6.1",
        },
        inputs: &[
            Fields(b"Transfer-Encoding: xchunked"),
            Fields(b"Transfer-Encoding: identity"),
            Fields(b"Transfer-Encoding: chunked, gzip"),
            Fields(b"Transfer-Encoding: chunked;a=b"),
            Fields(b"Transfer-Encoding: \x0bchunked"),
            Fields(b"Transfer-Encoding: chunked\x00"),
            Fields(b"Transfer-Encoding:"),
            Fields(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
            Fields(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        ],
        expected: Refusal(&[400, 501]),
    },
    RequestAttack {
        text: AttackText {
            name: "chunks-in-http-1.0",
            sends: "Transfer-Encoding in HTTP/1.0",
            expects: REFUSED,
            limit: "RFC 9112 section 6.1",
        },
        inputs: &[Whole(
            b"POST %PATH% HTTP/1.0\r\nHost: %HOST%\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n\
              0\r\n\r\nGET %PATH% HTTP/1.0\r\nHost: %HOST%\r\n\r\n",
        )],
        expected: Refusal(&[400]),
    },
    RequestAttack {
        text: AttackText {
            name: "field-lines",
            sends: "spaces before a colon, folded lines, names and values with forbidden bytes",
            expects: REFUSED,
            limit: "RFC 9112 section 5",
        },
        inputs: &[
            Fields(b"Transfer-Encoding : chunked"),
            Fields(b"Transfer-Encoding:\r\n chunked"),
            Fields(b"Content-Length\x85: 5"),
            Fields(b"Na me: x"),
            Fields(b": x"),
            Fields(b"Nothing"),
            Fields(b"X: a\x00b"),
            Fields(b"X: a\rY: b"),
            Fields(b"X: a\nY: b"),
        ],
        expected: Refusal(&[400]),
    },
    RequestAttack {
        text: AttackText {
            name: "host",
            sends: "no Host, two of them, and invalid ones",
            expects: REFUSED,
            limit: "RFC 9112 section 3.2",
        },
        inputs: &[
            Whole(b"GET %PATH% HTTP/1.1\r\n\r\n"),
            Whole(b"GET %PATH% HTTP/1.1\r\nHost: %HOST%\r\nHost: other.invalid\r\n\r\n"),
            Whole(b"GET %PATH% HTTP/1.1\r\nHost: %HOST%, other.invalid\r\n\r\n"),
            Whole(b"GET %PATH% HTTP/1.1\r\nHost: user@other.invalid\r\n\r\n"),
            Whole(b"GET %PATH% HTTP/1.1\r\nHost: other.invalid/x\r\n\r\n"),
        ],
        expected: Refusal(&[400]),
    },
    RequestAttack {
        text: AttackText {
            name: "request-line",
            sends: "invalid versions, targets and line ends",
            expects: "400, 405, 501 or 505, and close",
            limit: "RFC 9112 section 3",
        },
        inputs: &[
            Whole(b"GET %PATH%\r\n\r\n"),
            Whole(b"GET %PATH% HTTP/01.1\r\nHost: %HOST%\r\n\r\n"),
            Whole(b"GET %PATH% http/1.1\r\nHost: %HOST%\r\n\r\n"),
            Whole(b"GET %PATH% HTTP/2.0\r\nHost: %HOST%\r\n\r\n"),
            Whole(b"GET /a b HTTP/1.1\r\nHost: %HOST%\r\n\r\n"),
            Whole(b"GET /a\x00b HTTP/1.1\r\nHost: %HOST%\r\n\r\n"),
            Whole(b"GET /a#b HTTP/1.1\r\nHost: %HOST%\r\n\r\n"),
            Whole(b"GET * HTTP/1.1\r\nHost: %HOST%\r\n\r\n"),
            Whole(b"GET %PATH% HTTP/1.1\nHost: %HOST%\n\n"),
            Whole(b"GET %PATH% HTTP/1.1\rHost: %HOST%\r\r"),
            Whole(b"\x16\x16\x16\x16\r\n\r\n"),
        ],
        expected: Refusal(&[400, 405, 501, 505]),
    },
    RequestAttack {
        text: AttackText {
            name: "expectation",
            sends: "an unknown expectation, with content that looks like a request",
            expects: "417 and close",
            limit: "RFC 9110 section 10.1.1",
        },
        inputs: &[Fields(b"Expect: y 100-continue\r\nContent-Length: 5")],
        expected: Refusal(&[417]),
    },
    RequestAttack {
        text: AttackText {
            name: "chunk-size",
            sends: "sizes of chunks that are no plain hexadecimal number, or overflow",
            expects: CONTENT_REFUSED,
            limit: "RFC 9112 section 7.1",
        },
        inputs: &[
            Chunks(b"0x5\r\nhello\r\n0"),
            Chunks(b"+5\r\nhello\r\n0"),
            Chunks(b"-1\r\nhello\r\n0"),
            Chunks(b" 5\r\nhello\r\n0"),
            Chunks(b"5 \r\nhello\r\n0"),
            Chunks(b"1_0\r\nhello\r\n0"),
            Chunks(b"10000000000000005\r\nhello\r\n0"),
        ],
        expected: AtMost(1),
    },
    RequestAttack {
        text: AttackText {
            name: "chunk-lines",
            sends: "lines of chunks that end in one byte, and chunks that are longer than their size",
            expects: CONTENT_REFUSED,
            limit: "RFC 9112 section 7.1",
        },
        inputs: &[
            Chunks(b"5\nhello\r\n0"),
            Chunks(b"5;\nhello\r\n0"),
            Chunks(b"2\r\r;a\r\nxx\r\n0"),
            Chunks(b"5\r\nhello\n0"),
            Chunks(b"5\r\nhello!!\r\n0"),
            Chunks(b"5\r\nhello0"),
        ],
        expected: AtMost(1),
    },
    RequestAttack {
        text: AttackText {
            name: "trailers",
            sends: "trailers that are for framing, routing or authorization",
            expects: CONTENT_REFUSED,
            limit: "RFC 9110 section 6.5.1",
        },
        inputs: &[
            Chunks(b"0\r\nContent-Length: 5"),
            Chunks(b"0\r\nTransfer-Encoding: chunked"),
            Chunks(b"0\r\nHost: other.invalid"),
            Chunks(b"0\r\nAuthorization: Basic eDp5"),
            Chunks(b"0\r\nX : y"),
        ],
        expected: AtMost(1),
    },
    RequestAttack {
        text: AttackText {
            name: "content-like-a-request",
            sends: "content that looks like a request, before another request",
            expects: "at most two responses, and close",
            limit: "RFC 9112 section 6.3",
        },
        inputs: &[
            Whole(
                b"GET %PATH% HTTP/1.1\r\nHost: %HOST%\r\nContent-Length: 36\r\n\r\n\
                  GET /a HTTP/1.1\r\nHost: a.invalid\r\n\r\n\
                  GET %PATH% HTTP/1.1\r\nHost: %HOST%\r\nConnection: close\r\n\r\n",
            ),
            Whole(
                b"POST %PATH% HTTP/1.1\r\nHost: %HOST%\r\nExpect: 100-continue\r\nContent-Length: 36\r\n\r\n\
                  GET /a HTTP/1.1\r\nHost: a.invalid\r\n\r\n\
                  GET %PATH% HTTP/1.1\r\nHost: %HOST%\r\nConnection: close\r\n\r\n",
            ),
            Whole(
                b"POST %PATH% HTTP/1.1\r\nHost: %HOST%\r\nTransfer-Encoding: chunked\r\n\r\n\
                  24\r\nGET /a HTTP/1.1\r\nHost: a.invalid\r\n\r\n\r\n0\r\n\r\n\
                  GET %PATH% HTTP/1.1\r\nHost: %HOST%\r\nConnection: close\r\n\r\n",
            ),
        ],
        expected: AtMost(2),
    },
    RequestAttack {
        text: AttackText {
            name: "paths-out-of-root",
            sends: "paths to /etc/passwd with dot-segments, encoded and not",
            expects: "no content of that file",
            limit: "roots of sites",
        },
        inputs: &[
            Whole(b"GET /../../../../../../etc/passwd HTTP/1.1\r\nHost: %HOST%\r\nConnection: close\r\n\r\n"),
            Whole(b"GET /.%2e/.%2e/.%2e/.%2e/.%2e/etc/passwd HTTP/1.1\r\nHost: %HOST%\r\nConnection: close\r\n\r\n"),
            Whole(b"GET /..%2f..%2f..%2f..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: %HOST%\r\nConnection: close\r\n\r\n"),
            Whole(b"GET /%252e%252e/%252e%252e/%252e%252e/etc/passwd HTTP/1.1\r\nHost: %HOST%\r\nConnection: close\r\n\r\n"),
            Whole(b"GET //etc/passwd HTTP/1.1\r\nHost: %HOST%\r\nConnection: close\r\n\r\n"),
            Whole(b"GET /etc/passwd%00.html HTTP/1.1\r\nHost: %HOST%\r\nConnection: close\r\n\r\n"),
        ],
        expected: NoPasswords,
    },
];
