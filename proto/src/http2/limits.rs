//! All limits of one HTTP/2 connection, and the memory that they permit.

use crate::field_section::SectionLimits;

/// Limits of one connection. Each loop over a peer's bytes is bounded by one of these.
///
/// A value beyond what the protocol permits counts as the nearest permitted one; see [`Http2Limits::permitted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Limits {
    /// Most streams that the peer may have open. Default 100, at most [`STREAMS_CEILING`]: RFC 9113 §6.5.2
    /// recommends at least 100. Exceeded: the stream is reset with `REFUSED_STREAM`.
    pub streams_max: u32,
    /// Longest payload of a received frame, in bytes. Default 16,384, which is the least that RFC 9113
    /// §4.2 permits: a larger frame delays the frames of other streams. Exceeded: `FRAME_SIZE_ERROR`.
    pub frame_bytes_max: u32,
    /// Longest payload of a sent DATA frame, in bytes. Default 16,384. The peer's own limit holds, too.
    /// A larger frame delays the frames of other streams.
    pub sent_frame_bytes_max: u32,
    /// Bytes of content that the peer may send on one stream before the driver consumed some. Default
    /// 262,144: 100 Mbit/s at a round trip of 20 ms. Exceeded: the stream is reset with
    /// `FLOW_CONTROL_ERROR`.
    pub stream_window_bytes: u32,
    /// Bytes of content that the peer may send on all streams before the driver consumed some. Default
    /// 1,048,576: four streams of full speed. At least 65,535 (RFC 9113 §6.9.2). Exceeded:
    /// `FLOW_CONTROL_ERROR`.
    pub connection_window_bytes: u32,
    /// Size of the dynamic table of received fields, in bytes. Default 4,096 (RFC 9113 §6.5.2).
    pub decoder_table_bytes_max: u32,
    /// Size of the dynamic table of sent fields, in bytes. Default 4,096. The peer's own limit holds, too.
    pub encoder_table_bytes_max: u32,
    /// Limits of a received field section. Exceeded: the section is marked as too large (status 431).
    pub section: SectionLimits,
    /// Longest compressed field block, in bytes. Default 65,536: it must be decoded whole, even if it is
    /// refused (RFC 9113 §4.3). Exceeded: `ENHANCE_YOUR_CALM`.
    pub field_block_bytes_max: u32,
    /// Most CONTINUATION frames of one field block. Default 8: enough for the longest block in full
    /// frames, and twice that. Exceeded: `ENHANCE_YOUR_CALM`.
    pub continuation_frames_max: u32,
    /// Time to acknowledge SETTINGS, in milliseconds. Default 10,000. Exceeded: `SETTINGS_TIMEOUT`.
    pub settings_timeout_ms: u64,
    /// Time between the two GOAWAY frames of a shutdown if the peer does not acknowledge the PING between
    /// them, in milliseconds. Default 1,000: longer than a round trip.
    pub shutdown_notice_ms: u64,
    /// Bytes of content that a stream sends before another stream of its urgency has its turn. Default
    /// 65,536: small responses complete in their first turn. Streams that are incremental (RFC 9218 §4.2)
    /// have turns of one frame.
    pub turn_bytes: u32,
    /// Points of the budget for work that is thrown away; see [`super::Waste`] for what each costs.
    /// Default 32,000: 640 cancelled requests at once. Exceeded: `ENHANCE_YOUR_CALM`.
    pub budget_points: u32,
    /// Points that the budget regains in each second. Default 1,000: 20 cancelled requests.
    pub budget_points_per_second: u32,
    /// Whether a server accepts extended CONNECT (RFC 8441). Default: disabled, as the driver must support it.
    pub extended_connect: ExtendedConnect,
}

/// Whether an endpoint accepts extended CONNECT, which carries WebSocket (RFC 8441).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExtendedConnect {
    /// It does not.
    #[default]
    Disabled,
    /// It does.
    Enabled,
}

/// Upper bound of the limit of streams: an index of a stream has 16 bits.
pub const STREAMS_CEILING: u32 = 32_767;

/// Upper bound of flow-control windows, in bytes (RFC 9113 §6.9.1).
pub const WINDOW_CEILING: u32 = (1 << 31) - 1;

/// Window of a new connection and of a new stream before SETTINGS, in bytes (RFC 9113 §6.9.2).
pub const WINDOW_INITIAL: u32 = 65_535;

/// Least value of `SETTINGS_MAX_FRAME_SIZE`, in bytes (RFC 9113 §4.2).
pub const FRAME_BYTES_FLOOR: u32 = 16_384;

/// Greatest value of `SETTINGS_MAX_FRAME_SIZE`, in bytes (RFC 9113 §4.2).
pub const FRAME_BYTES_CEILING: u32 = (1 << 24) - 1;

impl Http2Limits {
    /// Returns the limits with each value in the range that the protocol permits.
    pub fn permitted(self) -> Self {
        let frame_bytes = FRAME_BYTES_FLOOR..=FRAME_BYTES_CEILING;
        Self {
            streams_max: self.streams_max.min(STREAMS_CEILING),
            frame_bytes_max: self.frame_bytes_max.clamp(*frame_bytes.start(), *frame_bytes.end()),
            sent_frame_bytes_max: self.sent_frame_bytes_max.clamp(1, *frame_bytes.end()),
            stream_window_bytes: self.stream_window_bytes.min(WINDOW_CEILING),
            connection_window_bytes: self.connection_window_bytes.clamp(WINDOW_INITIAL, WINDOW_CEILING),
            turn_bytes: self.turn_bytes.max(1),
            ..self
        }
    }
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            streams_max: 100,
            frame_bytes_max: FRAME_BYTES_FLOOR,
            sent_frame_bytes_max: FRAME_BYTES_FLOOR,
            stream_window_bytes: 262_144,
            connection_window_bytes: 1_048_576,
            decoder_table_bytes_max: 4_096,
            encoder_table_bytes_max: 4_096,
            section: SectionLimits::default(),
            field_block_bytes_max: 65_536,
            continuation_frames_max: 8,
            settings_timeout_ms: 10_000,
            shutdown_notice_ms: 1_000,
            turn_bytes: 65_536,
            budget_points: 32_000,
            budget_points_per_second: 1_000,
            extended_connect: ExtendedConnect::Disabled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_permitted_and_extremes_are_not() {
        assert_eq!(Http2Limits::default().permitted(), Http2Limits::default());
        let extreme = |value| Http2Limits {
            streams_max: value,
            frame_bytes_max: value,
            sent_frame_bytes_max: value,
            stream_window_bytes: value,
            connection_window_bytes: value,
            turn_bytes: value,
            ..Http2Limits::default()
        };
        let (low, high) = (extreme(0).permitted(), extreme(u32::MAX).permitted());
        assert_eq!((low.frame_bytes_max, low.sent_frame_bytes_max, low.turn_bytes), (16_384, 1, 1));
        assert_eq!((low.streams_max, low.stream_window_bytes, low.connection_window_bytes), (0, 0, 65_535));
        assert_eq!((high.streams_max, high.frame_bytes_max), (STREAMS_CEILING, FRAME_BYTES_CEILING));
        assert_eq!((high.stream_window_bytes, high.connection_window_bytes), (WINDOW_CEILING, WINDOW_CEILING));
    }
}
