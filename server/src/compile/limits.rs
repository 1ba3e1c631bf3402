//! Bounds on clients.

use crate::config::model;
use selvedge::{Limits, proto};

/// Fewest connections, however few descriptors are left for them.
const CONNECTIONS_MIN: usize = 16;

/// The limits of the engine, where the configuration itself keeps so many descriptors open.
pub(super) fn compile(limits: &model::Limits, descriptors: usize) -> Limits {
    let of_rest = || Limits::default().connections_max.saturating_sub(descriptors).max(CONNECTIONS_MIN);
    Limits {
        message: proto::limits::Limits {
            request_line_bytes_max: limits.request_line_bytes_max,
            head_bytes_max: limits.head_bytes_max,
            fields_max: limits.fields_max,
            chunk_extension_bytes_max: limits.chunk_extension_bytes_max,
            chunk_overhead_bytes_free: limits.chunk_overhead_bytes_free,
            trailer_bytes_max: limits.trailer_bytes_max,
        },
        head_time: limits.head_time,
        body_silence: limits.body_silence,
        body_bytes_per_second_min: limits.body_bytes_per_second_min,
        send_silence: limits.send_silence,
        send_bytes_per_second_min: limits.send_bytes_per_second_min,
        keep_alive: limits.keep_alive,
        body_bytes_max: limits.body_bytes_max,
        drain_bytes_max: limits.drain_bytes_max,
        connections_max: limits.connections_max.unwrap_or_else(of_rest),
        drain_time: limits.drain_time,
    }
}
