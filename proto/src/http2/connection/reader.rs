//! Cuts received bytes into frames.
//!
//! A frame that is complete in the input is processed where it is. A part of a frame is kept until the rest arrives,
//! except for content, which is delivered as it arrives.

use super::receive_data::IncomingData;
use crate::http2::frame::{CLIENT_PREFACE, FRAME_HEADER_BYTES, FrameHeader, FrameType, PADDED};

/// What the next bytes are.
#[derive(Debug)]
pub(super) enum Reading {
    /// The client preface, of which some bytes have arrived.
    Preface { received: u8 },
    /// A frame.
    Frame,
    /// The payload of a DATA frame.
    Data(IncomingData),
    /// The rest of a frame that is ignored.
    Skip { bytes: u32 },
}

/// Bytes of an incomplete frame.
#[derive(Debug, Default)]
pub(super) struct PartialFrame {
    bytes: Vec<u8>,
}

impl PartialFrame {
    /// Whether no frame is incomplete.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes bytes from the input until `len` are stored. Returns how many were taken.
    pub(super) fn fill(&mut self, len: usize, input: &[u8]) -> usize {
        let taken = len.saturating_sub(self.bytes.len()).min(input.len());
        self.bytes.extend_from_slice(&input[..taken]);
        taken
    }

    /// Returns the frame header, if it is complete.
    pub(super) fn header(&self) -> Option<FrameHeader> {
        self.bytes.first_chunk().map(FrameHeader::parse)
    }

    /// Returns the stored bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the stored bytes, to process them.
    pub(super) fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.bytes)
    }

    /// Gives the buffer back for the next frame.
    pub(super) fn reuse(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.bytes = buffer;
    }

    /// Releases unused memory.
    pub(super) fn compact(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

/// Returns how many bytes of a frame must be present to process it: all, or of DATA, header and padding length.
#[inline]
pub(super) fn bytes_needed(header: &FrameHeader) -> usize {
    match header.kind {
        FrameType::Data if header.has(PADDED) && header.length > 0 => FRAME_HEADER_BYTES + 1,
        FrameType::Data | FrameType::Unknown => FRAME_HEADER_BYTES,
        _ => FRAME_HEADER_BYTES + header.length as usize,
    }
}

/// Compares bytes with the client preface after those that were received. Returns how many match, or `None` if a byte
/// differs.
pub(super) fn match_preface(received: u8, input: &[u8]) -> Option<u8> {
    let rest = &CLIENT_PREFACE[usize::from(received)..];
    let compared = rest.len().min(input.len());
    (rest[..compared] == input[..compared]).then_some(compared as u8)
}
