//! Cheap frames that cause work: many of them, or few with much behind them.

use super::attack::{Attack, AttackOutcome, AttackText};
use super::http2_attacks::{ExpectedEnd, Http2Attack, Http2Input, attack, open};
use super::http2_client::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2Client, PING, PRIORITY, RST_STREAM, SETTINGS,
    SETTINGS_INITIAL_WINDOW_SIZE, SettingsReply, WINDOW_UPDATE, literal_block,
};
use super::tested_server::TestedServer;
use selvedge::proto::http2::ErrorCode;

const CALM: ExpectedEnd = ExpectedEnd::Connection(&[ErrorCode::ENHANCE_YOUR_CALM]);
const GOAWAY_CALM: &str = "GOAWAY ENHANCE_YOUR_CALM";
const BUDGET: &str = "http2-budget";

/// Makes an attack of one input.
const fn flood(name: &'static str, sends: &'static str, limit: &'static str) -> AttackText {
    AttackText { name, sends, expects: GOAWAY_CALM, limit }
}

pub(super) const ATTACKS: &[Http2Attack] = &[
    Http2Attack {
        text: flood("rapid-reset", "5,000 requests, each cancelled at once", BUDGET),
        // Otherwise the response may be complete before its cancellation, which then costs the server nothing.
        settings: &[(SETTINGS_INITIAL_WINDOW_SIZE, 0)],
        inputs: &[Http2Input {
            name: "HEADERS and RST_STREAM",
            times: 5000,
            write: |client, number| {
                let stream = 2 * number + 1;
                client.head("GET", END_STREAM, stream, &[]);
                client.frame(RST_STREAM, 0, stream, &ErrorCode::CANCEL.0.to_be_bytes());
            },
        }],
        expected: CALM,
    },
    Http2Attack {
        text: flood("resets-by-violations", "5,000 requests, each with a frame that makes the server reset it", BUDGET),
        settings: &[],
        inputs: &[Http2Input {
            name: "HEADERS and WINDOW_UPDATE by 0",
            times: 5000,
            write: |client, number| {
                let stream = 2 * number + 1;
                client.head("POST", 0, stream, &[]);
                client.frame(WINDOW_UPDATE, 0, stream, &[0; 4]);
            },
        }],
        expected: CALM,
    },
    Http2Attack {
        text: flood("control-frames", "thousands of PING, SETTINGS, PRIORITY or small WINDOW_UPDATE frames", BUDGET),
        settings: &[],
        inputs: &[
            Http2Input { name: "PING", times: 10_000, write: |client, _| client.frame(PING, 0, 0, &[0; 8]) },
            Http2Input { name: "SETTINGS", times: 3000, write: |client, _| client.frame(SETTINGS, 0, 0, &[]) },
            Http2Input {
                name: "PRIORITY",
                times: 10_000,
                write: |client, _| client.frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 15]),
            },
            Http2Input {
                name: "WINDOW_UPDATE",
                times: 20_000,
                write: |client, _| client.frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()),
            },
        ],
        expected: CALM,
    },
    Http2Attack {
        text: flood("empty-data", "50,000 DATA frames without content", BUDGET),
        settings: &[],
        inputs: &[Http2Input {
            name: "DATA",
            times: 50_000,
            write: |client, number| {
                if number == 0 {
                    client.head("POST", 0, 1, &[]);
                }
                client.frame(DATA, 0, 1, &[]);
            },
        }],
        expected: CALM,
    },
    Http2Attack {
        text: flood(
            "continuations",
            "heads that 1,000 CONTINUATION frames do not end, with content and without",
            "http2-continuations-max, http2-field-block-bytes-max",
        ),
        settings: &[],
        inputs: &[
            Http2Input {
                name: "empty frames",
                times: 1000,
                write: |client, number| continued_head(client, number, &[]),
            },
            Http2Input {
                name: "long frames",
                times: 100,
                write: |client, number| {
                    let field = literal_block(&[(b"x".as_slice(), [b'a'; 8000].as_slice())]);
                    continued_head(client, number, &field);
                },
            },
        ],
        expected: CALM,
    },
    Http2Attack {
        text: AttackText {
            name: "field-bomb",
            sends: "a head of 16,000 bytes that stands for 48 MB of fields",
            expects: "431 or another refusal of the stream, or GOAWAY",
            limit: "head-bytes-max, fields-max",
        },
        settings: &[],
        inputs: &[
            Http2Input { name: "long values", times: 1, write: |client, _| bomb(client, b"x", &[b'a'; 3000]) },
            Http2Input { name: "cookies", times: 1, write: |client, _| bomb(client, b"cookie", b"") },
        ],
        expected: ExpectedEnd::Stream,
    },
];

/// Appends a head without an end, or a frame that continues it.
fn continued_head(client: &mut Http2Client, number: u32, piece: &[u8]) {
    if number == 0 {
        let block = client.block("GET", &[]);
        client.frame(HEADERS, END_STREAM, 1, &block);
    }
    client.frame(CONTINUATION, 0, 1, piece);
}

/// Appends a head that inserts a field into the dynamic table, and then refers to it by one byte each time.
fn bomb(client: &mut Http2Client, name: &[u8], value: &[u8]) {
    const REFERENCES: usize = 12_000;
    const INSERTED: u8 = 0x40;
    const NEWEST: u8 = 0x80 | 62;
    let mut block = client.block("GET", &[]);
    let mut field = literal_block(&[(name, value)]);
    field[0] = INSERTED;
    block.extend_from_slice(&field);
    block.resize(block.len() + REFERENCES, NEWEST);
    client.frame(HEADERS, END_STREAM | END_HEADERS, 1, &block);
}

/// Returns the attack by streams beyond the limit.
pub(super) fn too_many_streams() -> Attack {
    let text = AttackText {
        name: "many-streams",
        sends: "requests for 400 more streams than the limit, whose responses it does not accept",
        expects: "no more open streams than the limit",
        limit: "http2-streams-max",
    };
    attack(text, open_streams)
}

fn open_streams(server: &TestedServer) -> AttackOutcome {
    const BEYOND: u32 = 400;
    let mut client = match open(server, &[(SETTINGS_INITIAL_WINDOW_SIZE, 0)], SettingsReply::Acknowledged) {
        Ok(client) => client,
        Err(outcome) => return outcome,
    };
    let Some(streams_max) = client.streams_max else {
        return AttackOutcome::failed("the server states no limit of streams");
    };
    let last = 2 * streams_max.saturating_add(BEYOND).min(4000) - 1;
    for stream in (1..=last).step_by(2) {
        client.head("GET", END_STREAM, stream, &[]);
    }
    client.flush();
    client.receive_until(server.response_deadline(), |client| client.is_over() || client.streams.contains_key(&last));
    let refused = client.streams.values().filter(|stream| stream.reset.is_some()).count();
    let open = client.streams.values().filter(|stream| stream.status.is_some() && !stream.has_ended).count();
    match client.goaway.filter(|code| *code != ErrorCode::NO_ERROR) {
        Some(code) => AttackOutcome::held(format!("GOAWAY {code}")),
        None if client.has_ended => AttackOutcome::held("close without GOAWAY"),
        None if open as u64 > u64::from(streams_max) => AttackOutcome::failed(format!("{open} streams are open")),
        None if refused == 0 => AttackOutcome::failed("no stream is refused"),
        None => AttackOutcome::held(format!("{refused} streams refused, {open} open of at most {streams_max}")),
    }
}
