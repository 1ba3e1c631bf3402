//! The memory that the limits of a connection permit.

use super::Connection;
use super::reset_streams::ResetStreams;
use crate::http2::frame::FRAME_HEADER_BYTES;
use crate::http2::hpack::{ENCODER_BUFFER_BYTES_MAX, REPEATED_BLOCK_BYTES_MAX};
use crate::http2::limits::Http2Limits;
use crate::http2::stream_table::StreamTable;

/// Bytes of a dynamic table for each byte of its size: its buffer has twice the size, and the positions of its entries
/// half of it.
const BYTES_OF_TABLE_BYTE: usize = 3;

/// Bytes of the position of one field of a section.
const FIELD_POSITION_BYTES: usize = 16;

/// The capacity of a vector is at most this multiple of its greatest length.
const VECTOR_GROWTH: usize = 2;

impl Http2Limits {
    /// Returns the most memory of one connection, in bytes, without content.
    ///
    /// The driver holds at most [`Http2Limits::connection_window_bytes`] of received content besides it.
    pub fn state_bytes_max(&self) -> usize {
        let partial_frame = FRAME_HEADER_BYTES + self.frame_bytes_max as usize;
        let block = self.field_block_bytes_max as usize + REPEATED_BLOCK_BYTES_MAX;
        let section = self.section.section_bytes_max + self.section.fields_max * FIELD_POSITION_BYTES;
        let tables = (self.decoder_table_bytes_max + self.encoder_table_bytes_max) as usize * BYTES_OF_TABLE_BYTE;
        let streams = StreamTable::bytes_max(self.streams_max as usize);
        let vectors = partial_frame + block + section + tables + streams + ResetStreams::bytes_max();
        size_of::<Connection>() + ENCODER_BUFFER_BYTES_MAX + VECTOR_GROWTH * vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 1_024, "{}", size_of::<Connection>());
    }

    #[test]
    fn each_limit_of_memory_counts() {
        let default = Http2Limits::default();
        let default_bytes = default.state_bytes_max();
        assert!((100_000..300_000).contains(&default_bytes), "{default_bytes}");
        for larger in [
            Http2Limits { streams_max: 200, ..default },
            Http2Limits { frame_bytes_max: 32_768, ..default },
            Http2Limits { field_block_bytes_max: 100_000, ..default },
            Http2Limits { decoder_table_bytes_max: 8_192, ..default },
            Http2Limits { encoder_table_bytes_max: 8_192, ..default },
        ] {
            assert!(larger.state_bytes_max() > default_bytes, "{larger:?}");
        }
    }
}
