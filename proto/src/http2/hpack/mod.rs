//! HPACK, the compression of field sections in HTTP/2 (RFC 7541).
//!
//! [`Decoder`] reads the blocks of one connection, [`Encoder`] writes them. Both keep a dynamic table, which must
//! be equal to the table of the peer. Every [`HpackError`] is therefore a connection error COMPRESSION_ERROR
//! (RFC 9113 §4.3).

mod decode;
mod dynamic_table;
mod encode;
mod error;
mod huffman;
mod indexing;
mod integer;
mod static_table;

pub use decode::{DecodeOutcome, Decoder, REPEATED_BLOCK_BYTES_MAX};
pub use encode::{BlockEncoder, ENCODER_BUFFER_BYTES_MAX, Encoder};
pub use error::HpackError;

/// Size of both dynamic tables of a new connection, in bytes (SETTINGS_HEADER_TABLE_SIZE, RFC 9113 §6.5.2).
pub const INITIAL_TABLE_BYTES: usize = 4_096;

#[cfg(test)]
mod tests;
