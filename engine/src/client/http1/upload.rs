//! Sends the content of a request, while the response is awaited or received.

use crate::client::connection::PooledConnection;
use crate::client::error::ClientErrorKind;
use crate::client::outgoing_content::OutgoingContent;
use crate::limits::{BATCH_BYTES, BYTES_PER_YIELD, COPY_BYTES_MAX};
use bytes::Bytes;
use selvedge_proto::head::RequestFraming;
use selvedge_proto::http1::write::{write_chunk_size, write_last_chunk};
use std::io;
use std::task::{Context, Poll, ready};

/// Returns how the content of a request is framed.
pub(super) fn framing_of(content: &OutgoingContent) -> RequestFraming {
    match content.length() {
        Some(0) => RequestFraming::None,
        Some(length) => RequestFraming::Length(length),
        None => RequestFraming::Chunked,
    }
}

/// The content of a request that is being sent.
pub(super) struct RequestUpload {
    framing: RequestFraming,
    state: UploadState,
    /// Whether the end of a chunk is to be written.
    has_open_chunk: bool,
    /// Whether the next content has not arrived from the client.
    awaits_content: bool,
    /// Bytes since the last yield.
    bytes_since_yield: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UploadState {
    /// More content follows.
    Reading,
    /// All content is in the send buffer.
    Flushing,
    /// All content was sent.
    Sent,
    /// The upstream takes no more.
    Abandoned,
}

/// Why sending failed.
pub(super) enum UploadError {
    /// The content cannot be read.
    Content(ClientErrorKind),
    /// The connection failed. The upstream may have sent a response before.
    Send(io::Error),
}

impl RequestUpload {
    pub(super) const fn new(framing: RequestFraming) -> Self {
        let state = match framing {
            RequestFraming::None => UploadState::Flushing,
            RequestFraming::Length(_) | RequestFraming::Chunked | RequestFraming::UntilStreamEnd => {
                UploadState::Reading
            }
        };
        Self { framing, state, has_open_chunk: false, awaits_content: false, bytes_since_yield: 0 }
    }

    /// Whether all content was sent, so that the connection can be used again.
    pub(super) fn is_sent(&self) -> bool {
        self.state == UploadState::Sent
    }

    /// Whether nothing more is to be sent.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, UploadState::Sent | UploadState::Abandoned)
    }

    /// Whether the upload waits for the client, not for the upstream.
    pub(super) fn awaits_content(&self) -> bool {
        self.awaits_content && !self.is_over()
    }

    /// Sends no more.
    pub(super) fn abandon(&mut self) {
        self.state = UploadState::Abandoned;
    }

    /// Moves content from its source to the connection. Ready when all of it was sent.
    pub(super) fn poll(
        &mut self,
        connection: &mut PooledConnection,
        content: &mut OutgoingContent,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        while !self.is_over() {
            self.awaits_content = false;
            while self.state == UploadState::Reading
                && connection.piece.is_empty()
                && connection.output.len() < BATCH_BYTES
            {
                match content.poll_chunk(cx) {
                    Poll::Ready(Some(Ok(piece))) => {
                        let piece = self.framed(piece, connection.output.bytes())?;
                        self.bytes_since_yield += piece.len();
                        if piece.len() <= COPY_BYTES_MAX {
                            connection.output.bytes().extend_from_slice(&piece);
                        } else {
                            connection.piece = piece;
                        }
                    }
                    Poll::Ready(None) => self.end(content, connection.output.bytes())?,
                    Poll::Ready(Some(Err(error))) => {
                        return Poll::Ready(Err(UploadError::Content(ClientErrorKind::RequestContent(error))));
                    }
                    Poll::Pending => {
                        self.awaits_content = true;
                        break;
                    }
                }
            }
            let is_waiting = self.awaits_content;
            // Until everything is sent, the upstream is waited for.
            self.awaits_content = false;
            ready!(connection.poll_flush(cx)).map_err(UploadError::Send)?;
            match self.state {
                UploadState::Flushing => self.state = UploadState::Sent,
                _ if is_waiting => {
                    self.awaits_content = true;
                    self.bytes_since_yield = 0;
                    return Poll::Pending;
                }
                _ if self.bytes_since_yield >= BYTES_PER_YIELD => {
                    self.bytes_since_yield = 0;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the framing before a piece. Returns the piece.
    fn framed(&mut self, piece: Bytes, output: &mut Vec<u8>) -> Result<Bytes, UploadError> {
        match &mut self.framing {
            RequestFraming::Chunked => {
                if std::mem::replace(&mut self.has_open_chunk, true) {
                    output.extend_from_slice(b"\r\n");
                }
                write_chunk_size(piece.len(), output);
            }
            RequestFraming::Length(remaining) => {
                let length = piece.len() as u64;
                *remaining =
                    remaining.checked_sub(length).ok_or(UploadError::Content(ClientErrorKind::RequestLength))?;
                if *remaining == 0 {
                    self.state = UploadState::Flushing;
                }
            }
            RequestFraming::None | RequestFraming::UntilStreamEnd => {}
        }
        Ok(piece)
    }

    /// Writes the end of the content.
    fn end(&mut self, content: &OutgoingContent, output: &mut Vec<u8>) -> Result<(), UploadError> {
        match self.framing {
            // An announced length that is not reached would leave the upstream waiting.
            RequestFraming::Length(1..) => return Err(UploadError::Content(ClientErrorKind::RequestLength)),
            RequestFraming::Chunked => {
                if std::mem::take(&mut self.has_open_chunk) {
                    output.extend_from_slice(b"\r\n");
                }
                write_last_chunk(&content.trailers().unwrap_or_default(), output);
            }
            RequestFraming::None | RequestFraming::Length(0) | RequestFraming::UntilStreamEnd => {}
        }
        self.state = UploadState::Flushing;
        Ok(())
    }
}
