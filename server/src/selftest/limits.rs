//! Requests that are larger than the limits of sizes and counts.

use super::attack::{Attack, AttackArea, AttackOutcome, AttackText};
use super::attack_connection::ReceiveOutcome;
use super::received_responses::ReceivedResponses;
use super::request_attack::ExpectedResponses::{AtMost, Refusal};
use super::request_attack::RequestAttack;
use super::request_attack::RequestInput::{Repeated, Whole};
use super::tested_server::TestedServer;

const CHUNKED: &[u8] = b"POST %PATH% HTTP/1.1\r\nHost: %HOST%\r\nTransfer-Encoding: chunked\r\n\r\n";
const END_OF_HEAD: &[u8] = b" HTTP/1.1\r\nHost: %HOST%\r\n\r\n";

pub(super) const ATTACKS: &[RequestAttack] = &[
    RequestAttack {
        text: AttackText {
            name: "long-target",
            sends: "a target of 100 KB",
            expects: "414 and close",
            limit: "request-line-bytes-max",
        },
        inputs: &[Repeated(b"GET /", b"a", 100_000, END_OF_HEAD)],
        expected: Refusal(&[414]),
    },
    RequestAttack {
        text: AttackText {
            name: "long-method",
            // All of it arrives at once, so a server that accepts HTTP/2, too, finds the version behind it.
            sends: "a method of 1,000 bytes",
            expects: "400, 414 or 501, and close",
            limit: "32 bytes of a method, without a setting",
        },
        inputs: &[Repeated(b"", b"M", 1000, b" / HTTP/1.1\r\nHost: %HOST%\r\n\r\n")],
        expected: Refusal(&[400, 414, 501]),
    },
    RequestAttack {
        text: AttackText {
            name: "long-field",
            sends: "a field of 100 KB",
            expects: "431 and close",
            limit: "head-bytes-max",
        },
        inputs: &[Repeated(b"GET %PATH% HTTP/1.1\r\nHost: %HOST%\r\nX: ", b"a", 100_000, b"\r\n\r\n")],
        expected: Refusal(&[431]),
    },
    RequestAttack {
        text: AttackText { name: "many-fields", sends: "10,000 fields", expects: "431 and close", limit: "fields-max" },
        inputs: &[Repeated(b"GET %PATH% HTTP/1.1\r\nHost: %HOST%\r\n", b"a: b\r\n", 10_000, b"\r\n")],
        expected: Refusal(&[431]),
    },
    RequestAttack {
        text: AttackText {
            name: "long-chunk-extension",
            sends: "a chunk extension of 100 KB",
            expects: "400, or another status, and close",
            limit: "chunk-extension-bytes-max",
        },
        inputs: &[Repeated(CHUNKED, b"5;aaaaaaaaa", 10_000, b"\r\nhello\r\n0\r\n\r\n")],
        expected: AtMost(1),
    },
    RequestAttack {
        text: AttackText {
            name: "small-chunks",
            sends: "50,000 chunks of one byte",
            expects: "400, or another status, and close",
            limit: "chunk-overhead-allowance",
        },
        inputs: &[Repeated(CHUNKED, b"1\r\na\r\n", 50_000, b"0\r\n\r\n")],
        expected: AtMost(1),
    },
    RequestAttack {
        text: AttackText {
            name: "long-trailers",
            sends: "trailers of 100 KB",
            expects: "431, or another status, and close",
            limit: "trailer-bytes-max",
        },
        inputs: &[
            Repeated(
                b"POST %PATH% HTTP/1.1\r\nHost: %HOST%\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
                b"t: u\r\n",
                17_000,
                b"\r\n",
            ),
            Repeated(
                b"POST %PATH% HTTP/1.1\r\nHost: %HOST%\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: ",
                b"u",
                100_000,
                b"\r\n\r\n",
            ),
        ],
        expected: AtMost(1),
    },
    RequestAttack {
        text: AttackText {
            name: "large-content",
            sends: "a request whose content is to have 1 TB, and its first bytes",
            expects: "413, or another status, and close",
            limit: "body-bytes-max",
        },
        inputs: &[Whole(b"POST %PATH% HTTP/1.1\r\nHost: %HOST%\r\nContent-Length: 1000000000000\r\n\r\nhello")],
        expected: AtMost(1),
    },
];

/// Content that ranges may add to that of the resource: the heads of parts.
const RANGES_OVERHEAD_MAX: u64 = 16 * 1024;

/// Returns the attack by a field Range.
pub(super) fn ranges() -> Attack {
    let text = AttackText {
        name: "overlapping-ranges",
        sends: "1,300 ranges that overlap",
        expects: "no more content than that of the resource",
        limit: "RFC 9110 section 14.2",
    };
    Attack { area: AttackArea::Limits, text, run: Box::new(request_ranges) }
}

fn request_ranges(server: &TestedServer) -> AttackOutcome {
    let mut connection = match server.target.connect() {
        Ok(connection) => connection,
        Err(error) => return AttackOutcome::unreachable(&error),
    };
    let (path, host) = (&server.target.url.path, &server.target.url.authority);
    let ranges = "0-,".repeat(1300);
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nRange: bytes={ranges}0-\r\nConnection: close\r\n\r\n");
    connection.send(head.as_bytes());
    let deadline = server.response_deadline();
    let ended = loop {
        match connection.receive(deadline) {
            ReceiveOutcome::Bytes => {}
            ended => break ended,
        }
    };
    let ReceivedResponses { statuses, content_bytes, .. } = ReceivedResponses::read(&connection.received);
    match (ended, statuses.first()) {
        (ReceiveOutcome::Ended, Some(status)) if content_bytes <= server.usual.content_bytes + RANGES_OVERHEAD_MAX => {
            AttackOutcome::held(format!("{status} with {content_bytes} bytes of content"))
        }
        (ReceiveOutcome::Ended, Some(status)) => AttackOutcome::failed(format!(
            "{status} with {content_bytes} bytes of content; a usual response has {}",
            server.usual.content_bytes
        )),
        (ReceiveOutcome::Ended, None) => AttackOutcome::held("close without a response"),
        _ => AttackOutcome::failed("no whole response in time"),
    }
}
