//! Bounds on clients.

use crate::config::model;
use selvedge::{Limits, proto};

/// The limits of the engine.
pub(crate) fn compile(limits: &model::Limits) -> Limits {
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
        connections_max: limits.connections_max.unwrap_or_else(|| Limits::default().connections_max),
        drain_time: limits.drain_time,
    }
}
