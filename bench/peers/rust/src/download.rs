//! Content that a program generates while it is sent. Each chunk is a separate allocation, so that a server that
//! buffers more chunks than it can send shows a higher memory use.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

const CHUNK_BYTES: usize = 64 * 1024;
const CHUNKS: usize = 160;

/// Content of 10 MiB in chunks.
pub struct Download {
    remaining: usize,
}

impl Default for Download {
    fn default() -> Self {
        Self { remaining: CHUNKS }
    }
}

impl Download {
    /// Returns the number of remaining bytes.
    pub fn bytes_remaining(&self) -> u64 {
        (self.remaining * CHUNK_BYTES) as u64
    }

    /// Returns the next chunk.
    pub fn next_chunk(&mut self) -> Option<Bytes> {
        self.remaining = self.remaining.checked_sub(1)?;
        Some(vec![b'.'; CHUNK_BYTES].into())
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next_chunk().map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_remaining())
    }
}
