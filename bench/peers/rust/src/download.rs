//! Content that a program makes while it is sent. Each piece is memory of its own, so that a server
//! that takes more of them than it can send is seen.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

const PIECE_BYTES: usize = 64 * 1024;
const PIECES: usize = 160;

/// 10 MiB, in pieces.
pub struct Download {
    left: usize,
}

impl Default for Download {
    fn default() -> Self {
        Self { left: PIECES }
    }
}

impl Download {
    /// How much is still to come.
    pub fn bytes_left(&self) -> u64 {
        (self.left * PIECE_BYTES) as u64
    }

    /// The next piece.
    pub fn piece(&mut self) -> Option<Bytes> {
        self.left = self.left.checked_sub(1)?;
        Some(vec![b'.'; PIECE_BYTES].into())
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.piece().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left())
    }
}
