//! The content of a request to an upstream, which can be sent again while all that was sent of it is kept.

use super::limits::KEPT_CONTENT_BYTES_MAX;
use crate::service::{ContentError, IncomingBody};
use bytes::Bytes;
use selvedge_proto::field::Fields;
use selvedge_proto::forward::forward_request_trailers;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The content of a request to an upstream.
#[derive(Default)]
pub struct OutgoingContent {
    source: Source,
    /// What was taken from the source, until it is more than `kept_max`.
    kept: Vec<Bytes>,
    kept_bytes: usize,
    kept_max: usize,
    /// The next kept piece to send.
    next: usize,
    /// Whether pieces were taken that are not kept.
    has_lost: bool,
    /// Whether the source has ended.
    is_ended: bool,
    /// Names of trailers that are not forwarded.
    hidden_trailers: Option<Arc<[Box<str>]>>,
}

#[derive(Default)]
enum Source {
    #[default]
    Empty,
    Bytes(Bytes),
    Request(IncomingBody),
}

impl OutgoingContent {
    /// Creates content of no bytes.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Creates content of bytes in memory. It can always be sent again.
    pub fn bytes(bytes: Bytes) -> Self {
        let is_ended = bytes.is_empty();
        Self { source: if is_ended { Source::Empty } else { Source::Bytes(bytes) }, ..Self::default() }
    }

    /// Creates content that streams from a request. Its first 64 KiB are kept for a second attempt.
    pub fn request(content: IncomingBody) -> Self {
        let source = if content.is_empty() { Source::Empty } else { Source::Request(content) };
        Self { source, kept_max: KEPT_CONTENT_BYTES_MAX, ..Self::default() }
    }

    /// Sets names of trailers that are not forwarded, beside those that never are. They are compared without case.
    #[must_use]
    pub fn hide_trailers(self, names: &Arc<[Box<str>]>) -> Self {
        Self { hidden_trailers: (!names.is_empty()).then(|| names.clone()), ..self }
    }

    /// Sets how many bytes are kept for a second attempt. Default 64 KiB.
    #[must_use]
    pub fn keep(self, bytes_max: usize) -> Self {
        Self { kept_max: bytes_max, ..self }
    }

    /// Whether the request has no content.
    pub fn is_empty(&self) -> bool {
        matches!(self.source, Source::Empty)
    }

    /// Returns the length in bytes, if it is known.
    pub fn length(&self) -> Option<u64> {
        match &self.source {
            Source::Empty => Some(0),
            Source::Bytes(bytes) => Some(bytes.len() as u64),
            Source::Request(content) => content.length(),
        }
    }

    /// Whether all of the content that was taken can be sent again.
    pub fn can_rewind(&self) -> bool {
        !self.has_lost
    }

    /// Starts from the beginning for another attempt. Returns false if that is impossible, because more was taken than
    /// is kept.
    pub fn rewind(&mut self) -> bool {
        if self.can_rewind() {
            self.next = 0;
            if matches!(self.source, Source::Bytes(_)) {
                self.is_ended = false;
            }
        }
        self.can_rewind()
    }

    /// Releases what is kept: no other attempt follows.
    pub(super) fn stop_keeping(&mut self) {
        self.kept_max = 0;
        if self.next >= self.kept.len() {
            (self.kept, self.next, self.kept_bytes) = (Vec::new(), 0, 0);
            self.has_lost = true;
        }
    }

    /// Polls the next piece, which is not empty; `None` at the end.
    ///
    /// # Errors
    /// If the content of the client's request cannot be read.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        if let Some(piece) = self.kept.get(self.next) {
            self.next += 1;
            return Poll::Ready(Some(Ok(piece.clone())));
        }
        if self.is_ended {
            return Poll::Ready(None);
        }
        let piece = match &mut self.source {
            Source::Empty => None,
            Source::Bytes(bytes) => {
                self.is_ended = true;
                return Poll::Ready(Some(Ok(bytes.clone())));
            }
            Source::Request(content) => loop {
                match ready!(content.poll_chunk(cx)) {
                    Some(Ok(piece)) if piece.is_empty() => {}
                    next => break next,
                }
            },
        };
        match &piece {
            Some(Ok(piece)) => self.remember(piece),
            Some(Err(_)) => {}
            None => self.is_ended = true,
        }
        Poll::Ready(piece)
    }

    /// Keeps a piece for another attempt, or gives up keeping.
    fn remember(&mut self, piece: &Bytes) {
        self.kept_bytes = self.kept_bytes.saturating_add(piece.len());
        if self.has_lost || self.kept_bytes > self.kept_max {
            self.has_lost = true;
            self.kept = Vec::new();
            self.next = 0;
            return;
        }
        self.kept.push(piece.clone());
        self.next = self.kept.len();
    }

    /// Returns the trailer fields of the client's request that a gateway forwards, after the last piece.
    pub fn trailers(&self) -> Option<Fields> {
        match &self.source {
            Source::Request(content) => {
                let hidden = self.hidden_trailers.as_deref().unwrap_or_default();
                content.trailers().as_ref().map(|trailers| forward_request_trailers(trailers, hidden))
            }
            Source::Empty | Source::Bytes(_) => None,
        }
    }
}

impl fmt::Debug for OutgoingContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutgoingContent(length {:?}, {} bytes kept)", self.length(), self.kept_bytes)
    }
}
