//! Bounds on clients. Names, units and defaults are those of the engine's limits.

use super::{OBSERVE, Place, Setting, one, setting};
use crate::config::value::Kind;
use std::time::Duration;

const LIMITS: &[Place] = &[Place::Limits];

/// From a tenth of a second, below which the sweeper cannot see, to a day.
const WAIT: Kind = Kind::Time { min: Duration::from_millis(100), max: Duration::from_secs(24 * 3600) };
const RATE: Kind = Kind::Count { min: 0, max: 1 << 30 };
const GIB: u64 = 1 << 30;

pub(super) const SETTINGS: &[Setting] = &[
    setting(LIMITS, "request-line-bytes-max", "Longest request line. Beyond it: 414.")
        .with(&[one("size", Kind::Size { min: 64, max: 65_535 })])
        .default("8KiB"),
    setting(LIMITS, "head-bytes-max", "Longest request head. Beyond it: 431.")
        .with(&[one("size", Kind::Size { min: 64, max: 65_535 })])
        .default("16KiB"),
    setting(LIMITS, "fields-max", "Most field lines of a head. Beyond it: 431.")
        .with(&[one("number", Kind::Count { min: 1, max: 100 })])
        .default("100"),
    setting(LIMITS, "chunk-extension-bytes-max", "Longest extension of one chunk. Beyond it: 400.")
        .with(&[one("size", Kind::Size { min: 0, max: 65_535 })])
        .default("256B"),
    setting(
        LIMITS,
        "chunk-overhead-bytes-free",
        "Framing that a chunked body may spend before its content has to pay for it. Beyond it: 400.",
    )
    .with(&[one("size", Kind::Size { min: 0, max: GIB })])
    .default("16KiB"),
    setting(LIMITS, "trailer-bytes-max", "Longest trailer section. Beyond it: 431.")
        .with(&[one("size", Kind::Size { min: 0, max: 65_535 })])
        .default("8KiB"),
    setting(LIMITS, "head-time", "Time to a complete request head. Beyond it: 408, close.")
        .with(&[one("time", WAIT)])
        .default("10s"),
    setting(LIMITS, "body-silence", "Longest silence while request content is awaited. Beyond it: 408, close.")
        .with(&[one("time", WAIT)])
        .default("30s"),
    setting(
        LIMITS,
        "body-bytes-per-second-min",
        "Slowest request content, on the average after a first `body-silence`. Below it: 408, close.",
    )
    .with(&[one("number", RATE)])
    .default("500"),
    setting(LIMITS, "send-silence", "Longest time in which a client takes nothing of a response. Beyond it: close.")
        .with(&[one("time", WAIT)])
        .default("30s"),
    setting(
        LIMITS,
        "send-bytes-per-second-min",
        "Slowest taking of a response, on the average after a first `send-silence`. Below it: close.",
    )
    .with(&[one("number", RATE)])
    .default("500"),
    setting(LIMITS, "keep-alive", "Longest idle time between requests. Beyond it: close.")
        .with(&[one("time", WAIT)])
        .default("60s")
        .more("It shrinks towards 5 seconds as `connections-max` nears."),
    setting(LIMITS, "body-bytes-max", "Most request content, unless a route says otherwise. Beyond it: 413.")
        .with(&[one("size", Kind::Size { min: 0, max: 1 << 50 })])
        .default("10MiB"),
    setting(LIMITS, "drain-bytes-max", "Most unread request content that is read so that the connection can live on.")
        .with(&[one("size", Kind::Size { min: 0, max: GIB })])
        .default("256KiB"),
    setting(LIMITS, "connections-max", "Most connections at once. At the limit the idlest one makes room.")
        .with(&[one("number", Kind::Count { min: 1, max: 1 << 28 })])
        .otherwise("what the limit of descriptors allows, less roots, logs and a reserve"),
    setting(LIMITS, "connections-per-client-max", "Most connections of one client address. Beyond it: 503.")
        .with(&[one("number", Kind::Count { min: 1, max: 1 << 28 })])
        .properties(&[OBSERVE])
        .otherwise("no bound"),
    setting(LIMITS, "drain-time", "How long a graceful stop waits for what is running. Beyond it: close.")
        .with(&[one("time", Kind::Time { min: Duration::from_millis(100), max: Duration::from_secs(24 * 3600) })])
        .default("30s"),
];
