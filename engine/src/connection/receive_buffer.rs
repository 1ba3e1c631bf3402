//! Received bytes that are not consumed.

use crate::buffer::{Buffer, Size};

/// Received bytes, from `at` on.
#[derive(Default)]
pub(super) struct ReceiveBuffer {
    pub(super) buffer: Option<Buffer>,
    pub(super) at: usize,
}

impl ReceiveBuffer {
    /// Returns the unconsumed bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.at..])
    }

    /// Consumes the first `count` bytes, and returns an empty buffer to the pool.
    pub(super) fn consume(&mut self, count: usize) {
        self.at += count;
        if self.buffer.as_ref().is_some_and(|buffer| buffer.len() == self.at) {
            *self = Self::default();
        }
    }

    /// Switches to a long buffer for bulk content. It returns to the pool if nothing arrives.
    pub(super) fn use_long_buffer(&mut self) {
        let mut long = Buffer::of_size(Size::Long);
        long.extend_from_slice(self.bytes());
        *self = Self { buffer: Some(long), at: 0 };
    }

    /// Moves unconsumed bytes to the front to free capacity.
    pub(super) fn compact(&mut self) {
        if self.at > 0
            && let Some(buffer) = &mut self.buffer
        {
            buffer.drain(..self.at);
            self.at = 0;
        }
    }
}
