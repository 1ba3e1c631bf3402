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
    /// Size of the buffer for bytes after a wait.
    expected_size: Size,
}

impl Input {
    /// Returns the unconsumed bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.buffer {
            Some(buffer) => &buffer[self.at..],
            None => &self.shared,
        }
    }

    /// Whether the last receive was long, or a long response is expected, so that much is likely to be available.
    pub(super) fn is_bulk(&self) -> bool {
        self.next_size == Size::Long
    }

    /// Counts bytes that were received elsewhere. If they are few, the response arrives slowly.
    pub(super) fn note_received_elsewhere(&mut self, bytes: usize) {
        self.expect(bytes as u64);
    }

    /// Sets the size of the buffer for a response of `bytes` bytes, which is expected next.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.expected_size = if bytes > BUFFER_BYTES as u64 { Size::Long } else { Size::Usual };
        self.next_size = self.expected_size;
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
            self.next_size = self.expected_size;
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
            *self = Self { buffer: Some(larger), at: 0, shared: Bytes::new(), ..*self };
        } else if self.at > 0
            && let Some(buffer) = &mut self.buffer
        {
            buffer.drain(..self.at);
            self.at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::epoll::EpollSocket;
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[tokio::test]
    async fn a_long_response_that_is_expected_arrives_with_one_receive() {
        let (mut upstream, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let link = EpollSocket::new(socket.into());
        for (expected, received) in [(64 * 1024, 40_000), (1_000, BUFFER_BYTES)] {
            let mut input = Input::default();
            input.expect(expected);
            let polled = poll_fn(|cx| Poll::Ready(input.poll_receive(&link, cx))).await;
            assert!(polled.is_pending() && input.buffer.is_none(), "a wait holds no buffer");
            upstream.write_all(&[b'x'; 40_000]).unwrap();
            let count = poll_fn(|cx| input.poll_receive(&link, cx)).await.unwrap();
            assert_eq!(count, received, "{expected}");
        }
    }
}
