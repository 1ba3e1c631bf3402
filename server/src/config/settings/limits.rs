//! Limits on clients. Names, units and defaults are those of the engine.

use super::{BlockKind, DRY_RUN, Setting, one, setting};
use crate::config::value::ValueKind;
use std::time::Duration;

const LIMITS: &[BlockKind] = &[BlockKind::Limits];

/// From 0.1 s, below which the sweep cannot measure, to one day.
const WAIT: ValueKind = ValueKind::Time { min: Duration::from_millis(100), max: Duration::from_secs(24 * 3600) };
const RATE: ValueKind = ValueKind::Count { min: 0, max: 1 << 30 };
const GIB: u64 = 1 << 30;
const WINDOW_MAX: u64 = (1 << 31) - 1;
const FRAME: ValueKind = ValueKind::Size { min: 16_384, max: (1 << 24) - 1 };

pub(super) const SETTINGS: &[Setting] = &[
    setting(LIMITS, "request-line-bytes-max", "Longest request line. Beyond it: 414.")
        .arguments(&[one("size", ValueKind::Size { min: 64, max: 65_535 })])
        .default("8KiB"),
    setting(LIMITS, "head-bytes-max", "Longest request head. Beyond it: 431.")
        .arguments(&[one("size", ValueKind::Size { min: 64, max: 65_535 })])
        .default("16KiB"),
    setting(LIMITS, "fields-max", "Most field lines of a request head. Beyond it: 431.")
        .arguments(&[one("number", ValueKind::Count { min: 1, max: 100 })])
        .default("100"),
    setting(LIMITS, "chunk-extension-bytes-max", "Longest extension of a chunk. Beyond it: 400.")
        .arguments(&[one("size", ValueKind::Size { min: 0, max: 65_535 })])
        .default("256B"),
    setting(
        LIMITS,
        "chunk-overhead-allowance",
        "Chunk framing that is allowed beyond the number of content bytes. Beyond it: 400.",
    )
    .arguments(&[one("size", ValueKind::Size { min: 0, max: GIB })])
    .default("16KiB"),
    setting(LIMITS, "trailer-bytes-max", "Longest trailer section. Beyond it: 431.")
        .arguments(&[one("size", ValueKind::Size { min: 0, max: 65_535 })])
        .default("8KiB"),
    setting(LIMITS, "header-timeout", "Time to a complete request head. Beyond it: 408, close.")
        .arguments(&[one("time", WAIT)])
        .default("10s"),
    setting(LIMITS, "body-timeout", "Longest silence while request content is expected. Beyond it: 408, close.")
        .arguments(&[one("time", WAIT)])
        .default("30s"),
    setting(
        LIMITS,
        "body-min-rate",
        "Minimum rate of request content in bytes per second, averaged after a first `body-timeout`. Below it: \
         408, close.",
    )
    .arguments(&[one("number", RATE)])
    .default("500"),
    setting(
        LIMITS,
        "send-timeout",
        "Longest time in which a client reads nothing of a response. Beyond it: \
                                     close.",
    )
    .arguments(&[one("time", WAIT)])
    .default("30s"),
    setting(
        LIMITS,
        "send-min-rate",
        "Minimum rate of a response in bytes per second, averaged after a first `send-timeout`. Below it: \
         close.",
    )
    .arguments(&[one("number", RATE)])
    .default("500"),
    setting(LIMITS, "keep-alive-timeout", "Longest idle time between requests. Beyond it: close.")
        .arguments(&[one("time", WAIT)])
        .default("60s")
        .details("It shrinks towards 5 s as the number of connections nears `connections-max`."),
    setting(
        LIMITS,
        "body-bytes-max",
        "Most request content, unless a site or route sets another limit. Beyond \
                                       it: 413.",
    )
    .arguments(&[one("size", ValueKind::Size { min: 0, max: 1 << 50 })])
    .default("10MiB"),
    setting(
        LIMITS,
        "discard-bytes-max",
        "Most unread request content that is discarded to keep the connection \
                                          open. Beyond it: close.",
    )
    .arguments(&[one("size", ValueKind::Size { min: 0, max: GIB })])
    .default("256KiB"),
    setting(LIMITS, "connections-max", "Most connections at once. At the limit the idlest one is closed.")
        .arguments(&[one("number", ValueKind::Count { min: 1, max: 1 << 28 })])
        .if_absent("the descriptor limit, less roots, logs, pipes of proxies and a reserve; half of it if a route forwards requests"),
    setting(LIMITS, "connections-per-client-max", "Most connections of one client address. Beyond it: 503.")
        .arguments(&[one("number", ValueKind::Count { min: 1, max: 1 << 28 })])
        .properties(&[DRY_RUN])
        .if_absent("no limit"),
    setting(
        LIMITS,
        "shutdown-timeout",
        "How long a graceful shutdown waits for requests in progress. Beyond \
                                         it: close.",
    )
    .arguments(&[one("time", ValueKind::Time { min: Duration::from_millis(100), max: Duration::from_secs(24 * 3600) })])
    .default("30s"),
    setting(
        LIMITS,
        "shutdown-notice",
        "Time for a last request on an idle connection of HTTP/1 when the server stops or another process replaces it. \
         Beyond it: close.",
    )
    .arguments(&[one("time", ValueKind::Time { min: Duration::ZERO, max: Duration::from_secs(3600) })])
    .default("2s")
    .details(
        "A request that is on its way when the server closes a connection is lost, and clients do not repeat a POST. Until \
         then, the next response has `Connection: close`. `shutdown-timeout` bounds it.",
    ),
    setting(
        LIMITS,
        "http2-streams-max",
        "Most requests of one HTTP/2 connection that are in progress. Beyond it: refused.",
    )
    .arguments(&[one("number", ValueKind::Count { min: 1, max: 32_767 })])
    .default("100")
    .details("The client may repeat a refused request."),
    setting(LIMITS, "http2-stream-window-bytes", "Request content of one HTTP/2 stream that waits to be read.")
        .arguments(&[one("size", ValueKind::Size { min: 1024, max: WINDOW_MAX })])
        .default("256KiB")
        .details("A client sends at most this much in one round trip."),
    setting(LIMITS, "http2-connection-window-bytes", "Request content of an HTTP/2 connection that waits to be read.")
        .arguments(&[one("size", ValueKind::Size { min: 65_535, max: WINDOW_MAX })])
        .default("1MiB"),
    setting(LIMITS, "http2-frame-bytes-max", "Longest received frame of HTTP/2. Beyond it: close.")
        .arguments(&[one("size", FRAME)])
        .default("16KiB"),
    setting(LIMITS, "http2-sent-frame-bytes-max", "Longest sent frame of HTTP/2.")
        .arguments(&[one("size", FRAME)])
        .default("16KiB")
        .details("The limit of the client holds as well."),
    setting(LIMITS, "http2-turn-bytes", "What a response of HTTP/2 sends before the next one has its turn.")
        .arguments(&[one("size", ValueKind::Size { min: 1024, max: GIB })])
        .default("64KiB"),
    setting(LIMITS, "http2-table-bytes-max", "Size of the tables that compress fields (HPACK), for each direction.")
        .arguments(&[one("size", ValueKind::Size { min: 0, max: 65_536 })])
        .default("4KiB"),
    setting(LIMITS, "http2-field-block-bytes-max", "Longest compressed head of HTTP/2. Beyond it: close.")
        .arguments(&[one("size", ValueKind::Size { min: 1024, max: GIB })])
        .default("64KiB"),
    setting(LIMITS, "http2-continuations-max", "Most CONTINUATION frames of a head of HTTP/2. Beyond it: close.")
        .arguments(&[one("number", ValueKind::Count { min: 0, max: 65_536 })])
        .default("8"),
    setting(LIMITS, "http2-settings-timeout", "Time to acknowledge the settings of HTTP/2. Beyond it: close.")
        .arguments(&[one("time", WAIT)])
        .default("10s"),
    setting(LIMITS, "http2-shutdown-notice", "Time between the announcement of a close and the close of HTTP/2.")
        .arguments(&[one("time", WAIT)])
        .default("1s")
        .details("A client that acknowledges the announcement earlier does not wait for it."),
    setting(LIMITS, "http2-budget", "Points of an HTTP/2 connection for work that is thrown away. Beyond it: close.")
        .arguments(&[one("points", RATE)])
        .default("32000")
        .details(
            "A cancelled request costs 50 points, and a frame without effect costs a few. Responses that a client \
             receives, and time, refill the budget.",
        ),
    setting(LIMITS, "http2-budget-per-second", "Points that `http2-budget` regains in each second.")
        .arguments(&[one("points", RATE)])
        .default("1000"),
    setting(LIMITS, "upstream-head-bytes-max", "Longest head of an upstream's response. Beyond it: 502.")
        .arguments(&[one("size", ValueKind::Size { min: 1024, max: 1 << 20 })])
        .default("64KiB")
        .details("A head has at most 500 fields, of which each cookie is one. More than 65,535 bytes have no effect."),
    setting(LIMITS, "upstream-idle-timeout", "Longest time that an idle connection to an upstream is kept.")
        .arguments(&[one("time", WAIT)])
        .default("60s")
        .details(
            "It is shorter for a server that announces a shorter time, or that was seen to close idle connections earlier.",
        ),
    setting(LIMITS, "upstream-idle-connections-max", "Most idle connections to all upstreams, for each worker.")
        .arguments(&[one("number", ValueKind::Count { min: 0, max: 1 << 20 })])
        .default("512"),
    setting(LIMITS, "upstream-idle-per-server-max", "Most idle connections to one server of an upstream, for each worker.")
        .arguments(&[one("number", ValueKind::Count { min: 0, max: 1 << 20 })])
        .default("64"),
];
