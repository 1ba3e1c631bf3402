//! Received bytes of a connection that are not consumed.

use crate::buffer::{Buffer, Size};
use crate::limits::{BUFFER_BYTES, COPY_BYTES_MAX};
use crate::net::stream::Stream;
use bytes::Bytes;
use std::io;
use std::task::{Context, Poll};

/// Received bytes. Large pieces of content are taken out without a copy.
#[derive(Default)]
pub(super) struct Input {
    buffer: Option<Buffer>,
    /// Consumed bytes of the buffer.
    at: usize,
    /// The rest of a buffer from which pieces were taken. The buffer is empty then.
    shared: Bytes,
    /// Size of the next buffer: long while each receive fills a usual one.
    next_size: Size,
}

impl Input {
    /// Returns the unconsumed bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.buffer {
            Some(buffer) => &buffer[self.at..],
            None => &self.shared,
        }
    }

    /// Consumes the first `count` bytes, and returns an empty buffer to the pool.
    pub(super) fn consume(&mut self, count: usize) {
        match &self.buffer {
            Some(buffer) => {
                self.at += count;
                if self.at == buffer.len() {
                    (self.buffer, self.at) = (None, 0);
                }
            }
            None => drop(self.shared.split_to(count)),
        }
    }

    /// Takes the first `count` bytes, without a copy if they are many.
    pub(super) fn take(&mut self, count: usize) -> Bytes {
        if count > COPY_BYTES_MAX / 2
            && let Some(buffer) = self.buffer.take_if(|buffer| buffer.is_well_filled())
        {
            self.shared = Bytes::from_owner(buffer).slice(std::mem::take(&mut self.at)..);
        }
        if self.buffer.is_none() {
            return self.shared.split_to(count);
        }
        let bytes = Bytes::copy_from_slice(&self.bytes()[..count]);
        self.consume(count);
        bytes
    }

    /// Takes all bytes.
    pub(super) fn take_all(&mut self) -> Bytes {
        self.take(self.bytes().len())
    }

    /// Receives available bytes behind the unconsumed ones. Returns how many, 0 at the end of the stream. While nothing
    /// arrives, no buffer is held for it.
    pub(super) fn poll_receive(&mut self, link: &impl Stream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.make_room();
        let had = self.bytes().len();
        let Poll::Ready(received) = link.poll_receive(cx, &mut self.buffer) else {
            self.next_size = Size::Usual;
            match &mut self.buffer {
                Some(buffer) if buffer.is_empty() => self.buffer = None,
                Some(buffer) => buffer.shrink_for_waiting(),
                None => {}
            }
            return Poll::Pending;
        };
        let received = received?;
        let has = had + received;
        self.next_size = if has < BUFFER_BYTES { Size::Usual } else { Size::Long };
        Poll::Ready(Ok(received))
    }

    /// Moves unconsumed bytes to the front of a buffer with room for more.
    fn make_room(&mut self) {
        let wants_long = self.next_size == Size::Long && !self.buffer.as_ref().is_some_and(Buffer::is_long);
        if wants_long || !self.shared.is_empty() {
            let mut larger = Buffer::of_size(self.next_size);
            larger.extend_from_slice(self.bytes());
            *self = Self { buffer: Some(larger), next_size: self.next_size, ..Self::default() };
        } else if self.at > 0
            && let Some(buffer) = &mut self.buffer
        {
            buffer.drain(..self.at);
            self.at = 0;
        }
    }
}
