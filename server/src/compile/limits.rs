//! Limits on clients.

use crate::config::model;
use selvedge::client::ClientLimits;
use selvedge::{Limits, proto};
use std::thread;

/// Fewest connections, even if few descriptors remain.
const CONNECTIONS_MIN: usize = 16;

/// Returns the engine's limits, for a configuration that keeps `descriptors` open.
pub(super) fn compile(settings: &model::Settings, descriptors: usize) -> Limits {
    let limits = &settings.limits;
    // A forwarded request needs a second descriptor, for the connection to its server.
    let descriptors_each = if settings.forwards_requests() { 2 } else { 1 };
    let descriptors = descriptors + pipe_descriptors(settings);
    let of_rest = || {
        let rest = Limits::default().connections_max.saturating_sub(descriptors);
        (rest / descriptors_each).max(CONNECTIONS_MIN)
    };
    Limits {
        message: proto::limits::MessageLimits {
            request_line_bytes_max: limits.request_line_bytes_max,
            head_bytes_max: limits.head_bytes_max,
            fields_max: limits.fields_max,
            chunk_extension_bytes_max: limits.chunk_extension_bytes_max,
            chunk_overhead_allowance: limits.chunk_overhead_allowance,
            trailer_bytes_max: limits.trailer_bytes_max,
        },
        http2: limits.http2,
        header_timeout: limits.header_timeout,
        body_timeout: limits.body_timeout,
        body_min_rate: limits.body_min_rate,
        send_timeout: limits.send_timeout,
        send_min_rate: limits.send_min_rate,
        keep_alive_timeout: limits.keep_alive_timeout,
        body_bytes_max: limits.body_bytes_max,
        discard_bytes_max: limits.discard_bytes_max,
        connections_max: limits.connections_max.unwrap_or_else(of_rest),
        shutdown_timeout: limits.shutdown_timeout,
        shutdown_notice: limits.shutdown_notice,
    }
}

/// Returns the most descriptors of the pipes through which content of upstreams passes.
fn pipe_descriptors(settings: &model::Settings) -> usize {
    if settings.upstreams.is_empty() {
        return 0;
    }
    let workers = settings.process.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    workers * ClientLimits::pipe_descriptors_max()
}

/// Returns the limits of the connections that each worker opens to upstreams.
#[cfg(feature = "program")]
pub(crate) fn client(limits: &model::ConfiguredLimits) -> ClientLimits {
    let own = &limits.upstreams;
    let defaults = ClientLimits::default();
    ClientLimits {
        message: proto::limits::MessageLimits { head_bytes_max: own.head_bytes_max, ..defaults.message },
        idle_per_destination_max: own.idle_per_server_max,
        idle_max: own.idle_connections_max,
        idle_timeout: own.idle_timeout,
        ..defaults
    }
}
