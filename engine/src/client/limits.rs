//! Limits and timeouts of a client.

use crate::limits::{BUFFER_BYTES, LONG_BUFFER_BYTES, SPLICE_PIPE_BYTES, SPLICE_PIPES_MAX};
use selvedge_proto::field_section::{FIELD_OVERHEAD_BYTES, SectionLimits};
use selvedge_proto::http1::parse_response::ResponseHead;
use selvedge_proto::http2::Http2Limits;
use selvedge_proto::limits::{MessageLimits, RESPONSE_FIELDS_CEILING};
use std::time::Duration;

/// Bytes of request content that are kept for a second attempt by default.
pub(super) const KEPT_CONTENT_BYTES_MAX: usize = 64 * 1024;
/// Most interim responses before a response.
pub(super) const INTERIM_RESPONSES_MAX: u32 = 8;
/// Bytes of the state of a connection: its slot, its socket, its place in the pool.
const CONNECTION_STATE_BYTES: usize = 2 * 1024;
/// Keys and state of an idle session of TLS.
const TLS_STATE_BYTES: usize = 16 * 1024;
/// Content that a stream of HTTP/2 may hold while its client does not read.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// Most requests at once on one connection of HTTP/2. Most upstreams permit 100 to 250.
const HTTP2_STREAMS_MAX: u32 = 1000;
/// Most connections of HTTP/2 to one destination.
pub(super) const HTTP2_CONNECTIONS_MAX: usize = 16;
/// Most requests that wait for a stream of HTTP/2 to one destination.
pub(super) const HTTP2_WAITING_MAX: usize = 1000;
/// Bytes that wait to be sent on a connection of HTTP/2. Beyond it, content of requests waits, and nothing is received.
pub(super) const HTTP2_OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Shortest learned idle time, in sweeps. A restarted upstream closes connections that were just used.
pub(super) const LEARNED_IDLE_TICKS_MIN: u32 = 2;

/// Limits of one client, which belongs to one worker.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Limits on the heads, chunks and trailers of responses. Default: 500 fields in a head, else that of
    /// [`MessageLimits`].
    pub message: MessageLimits,
    /// Limits of connections with HTTP/2. Those of a field section follow from `message`. `streams_max` is also the most requests at once on one connection; the
    /// upstream's own limit holds, too. Beyond it, another connection is opened, at most 16 to one destination, and then
    /// up to 1000 requests wait for a stream within [`ClientTimeouts::connect`]. Default: 1000 streams, windows of
    /// 128 KiB for a stream and of that for all streams together, so that clients that read slowly do not hold up the
    /// other streams; else that of [`Http2Limits`].
    pub http2: Http2Limits,
    /// Most idle connections to one destination. Default 64. Beyond it, the one that is idle for the longest time is
    /// closed.
    pub idle_per_destination_max: usize,
    /// Most idle connections to all destinations. Default 512. Beyond it, a connection is closed after its response.
    pub idle_max: usize,
    /// Longest time that an idle connection is kept. Default 60 s. It is shorter for an upstream that announces a shorter
    /// time in Keep-Alive, or that was seen to close idle connections earlier.
    pub idle_timeout: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            message: MessageLimits { fields_max: RESPONSE_FIELDS_CEILING, ..MessageLimits::default() },
            http2: Http2Limits {
                streams_max: HTTP2_STREAMS_MAX,
                stream_window_bytes: HTTP2_STREAM_WINDOW_BYTES,
                connection_window_bytes: HTTP2_STREAM_WINDOW_BYTES * HTTP2_STREAMS_MAX,
                ..Http2Limits::default()
            },
            idle_per_destination_max: 64,
            idle_max: 512,
            idle_timeout: Duration::from_secs(60),
        }
    }
}

impl ClientLimits {
    /// Returns the limits of a connection of HTTP/2. A decoded field section may have what a head may have.
    pub(super) fn of_http2(&self) -> Http2Limits {
        // The status is a pseudo-field.
        let fields_max = self.message.fields_max.min(RESPONSE_FIELDS_CEILING) + 1;
        let section_bytes_max = self.message.head_bytes_max + fields_max * FIELD_OVERHEAD_BYTES;
        Http2Limits { section: SectionLimits { fields_max, section_bytes_max }, ..self.http2 }.permitted()
    }

    /// Returns an upper bound of the memory of one exchange over HTTP/1.1. It counts a head that is received, two pieces
    /// of content, a send buffer, and what is kept of the request for a second attempt.
    pub const fn exchange_bytes_max(&self) -> u64 {
        let head = 2 * (self.message.head_bytes_max + BUFFER_BYTES) + size_of::<ResponseHead>();
        (head + 2 * LONG_BUFFER_BYTES + BUFFER_BYTES + KEPT_CONTENT_BYTES_MAX + CONNECTION_STATE_BYTES) as u64
    }

    /// Returns an upper bound of the memory of one connection of HTTP/2: the state of the protocol, received content, and
    /// buffers. One destination has at most 16 connections.
    pub fn http2_connection_bytes_max(&self) -> u64 {
        let limits = self.of_http2();
        let buffers = LONG_BUFFER_BYTES + 2 * HTTP2_OUTPUT_BYTES_MAX + CONNECTION_STATE_BYTES;
        (limits.state_bytes_max() + limits.connection_window_bytes as usize + buffers) as u64
    }

    /// Returns the most file descriptors of the pipes through which a worker moves content of HTTP/1.1 to clients without
    /// TLS. While a client does not read, one pipe holds content for it; without a free pipe, content is copied.
    pub const fn pipe_descriptors_max() -> usize {
        2 * SPLICE_PIPES_MAX
    }

    /// Returns an upper bound of the content in these pipes of a worker, which the kernel holds.
    pub const fn pipe_bytes_max() -> u64 {
        (SPLICE_PIPES_MAX * SPLICE_PIPE_BYTES) as u64
    }

    /// Returns an upper bound of the memory of all idle connections, if all of them have TLS. They hold no buffers.
    pub const fn idle_bytes_max(&self) -> u64 {
        (self.idle_max * (CONNECTION_STATE_BYTES + TLS_STATE_BYTES)) as u64
    }
}

/// Timeouts of one exchange. They are checked 4 times per second, so each may last 0.5 s longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// Longest time to open a connection, its TLS handshake included, and to wait for a stream of HTTP/2. Default 5 s.
    pub connect: Duration,
    /// Longest time from the last sent byte of the request to the first byte of the response. It does not pass while
    /// content of the request is awaited. Default 60 s.
    pub response: Duration,
    /// Longest time in which the upstream neither sends nor takes a byte while that is awaited. Default 60 s.
    pub silence: Duration,
    /// Longest time in which neither direction of a connection moves a byte after the switch to another protocol.
    /// Default 1 h.
    pub tunnel: Duration,
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            response: Duration::from_secs(60),
            silence: Duration::from_secs(60),
            tunnel: Duration::from_secs(3600),
        }
    }
}
