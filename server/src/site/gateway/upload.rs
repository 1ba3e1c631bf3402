//! The request content on its way to a script.

use super::spool::{Spool, SpoolFile};
use bytes::Bytes;
use selvedge::service::{ContentError, IncomingBody};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A read of the next piece of a file.
type ReadPiece = Pin<Box<dyn Future<Output = (SpoolFile, io::Result<Bytes>)>>>;

/// The rest of the request content.
pub(super) enum ContentUpload {
    /// As it arrives.
    Incoming(IncomingBody),
    /// All of it.
    Memory(Bytes),
    /// From a file.
    File(ReadPiece),
    /// Nothing is left.
    Done,
}

/// Why the content ends early.
#[derive(Debug)]
pub(super) enum UploadError {
    /// The client has sent no more or invalid content.
    Content(ContentError),
    /// The temporary file cannot be read.
    File(io::Error),
}

impl ContentUpload {
    pub(super) fn of_spool(spool: Spool) -> Self {
        match spool {
            Spool::Memory(bytes) => Self::Memory(bytes),
            Spool::File(file) => Self::File(Box::pin(file.read())),
        }
    }

    /// Whether the content can be sent once more.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Polls the next piece; `None` at the end.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, UploadError>> {
        let piece = match self {
            Self::Incoming(content) => match ready!(content.poll_chunk(cx)) {
                Some(chunk) => Some(chunk.map_err(UploadError::Content)?),
                None => None,
            },
            Self::Memory(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            Self::File(read) => {
                let (file, piece) = ready!(read.as_mut().poll(cx));
                *read = Box::pin(file.read());
                Some(piece.map_err(UploadError::File)?).filter(|piece| !piece.is_empty())
            }
            Self::Done => None,
        };
        if piece.is_none() {
            *self = Self::Done;
        }
        Poll::Ready(Ok(piece))
    }
}
