//! The settings of both peers (RFC 9113 §6.5).

use super::limits::{FRAME_BYTES_FLOOR, WINDOW_INITIAL};

/// The settings that the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// `SETTINGS_HEADER_TABLE_SIZE`: the size of its decoder's table, in bytes. Default 4,096.
    pub header_table_bytes: u32,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`: how many streams this endpoint may open. Default: no limit.
    pub streams_max: u32,
    /// `SETTINGS_INITIAL_WINDOW_SIZE`: the window of a new stream, in bytes. Default 65,535.
    pub initial_window_bytes: u32,
    /// `SETTINGS_MAX_FRAME_SIZE`, in bytes. Default 16,384.
    pub frame_bytes_max: u32,
    /// `SETTINGS_MAX_HEADER_LIST_SIZE`: the largest field section that it accepts, in bytes. Default: no limit.
    pub field_section_bytes_max: u32,
    /// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 8441 §3).
    pub extended_connect: ExtendedConnect,
}

/// Whether a peer accepts extended CONNECT, which carries WebSocket (RFC 8441).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedConnect {
    /// It does not.
    Disabled,
    /// It does.
    Enabled,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            header_table_bytes: 4_096,
            streams_max: u32::MAX,
            initial_window_bytes: WINDOW_INITIAL,
            frame_bytes_max: FRAME_BYTES_FLOOR,
            field_section_bytes_max: u32::MAX,
            extended_connect: ExtendedConnect::Disabled,
        }
    }
}
