//! Parses the bytes of one connection with the protocol crate, as a server does, and returns a
//! verdict line for each message.
//!
//! The bytes arrive in pieces of any size. The reader buffers a head until it is complete, and drops
//! the bytes of content when they are decoded. It reads nothing after a refusal or a close.

use crate::model;
use crate::verdict::{WAIT, reject_line};
use selvedge_proto::field::Fields;
use selvedge_proto::head::{RequestFraming, RequestHead};
use selvedge_proto::http1::chunked::{ChunkEvent, ChunkedDecoder};
use selvedge_proto::http1::parse_request;
use selvedge_proto::{MessageLimits, Persistence, Reject};

/// The part of a message that the reader expects next.
#[derive(Debug)]
enum NextPart {
    Head,
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
    Closed,
}

/// Whether a step consumed bytes or needs more of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadProgress {
    Advanced,
    NeedsMore,
}

/// Reads the bytes of one connection.
#[derive(Debug)]
pub struct MessageReader {
    limits: MessageLimits,
    state: NextPart,
    head: RequestHead,
    /// The bytes of the last complete head.
    head_bytes: Vec<u8>,
    content: Vec<u8>,
    /// Received bytes that are not yet consumed.
    pending: Vec<u8>,
    verdicts: Vec<String>,
}

/// Reads the pieces of one connection with the default limits. Returns one verdict line for each
/// message.
pub fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut reader = MessageReader::new(MessageLimits::default());
    for piece in pieces {
        reader.feed(piece);
    }
    reader.finish()
}

impl MessageReader {
    /// Creates a reader for a new connection.
    pub fn new(limits: MessageLimits) -> Self {
        Self {
            limits,
            state: NextPart::Head,
            head: RequestHead::default(),
            head_bytes: Vec::new(),
            content: Vec::new(),
            pending: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// Reads the next received bytes.
    pub fn feed(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
        loop {
            match self.step() {
                Ok(ReadProgress::Advanced) => {}
                Ok(ReadProgress::NeedsMore) => return,
                Err(reason) => {
                    self.verdicts.push(reject_line(reason));
                    self.state = NextPart::Closed;
                }
            }
        }
    }

    /// Returns the verdict lines, including one for an incomplete message.
    pub fn finish(mut self) -> Vec<String> {
        let is_between_messages = matches!(self.state, NextPart::Head) && self.pending.is_empty();
        if !is_between_messages && !matches!(self.state, NextPart::Closed) {
            self.verdicts.push(WAIT.to_owned());
        }
        self.verdicts
    }

    fn step(&mut self) -> Result<ReadProgress, Reject> {
        match &mut self.state {
            NextPart::Head => self.step_head(),
            NextPart::Length(remaining) => {
                let available = usize::try_from(*remaining).unwrap_or(usize::MAX).min(self.pending.len());
                *remaining -= available as u64;
                let is_complete = *remaining == 0;
                self.content.extend(self.pending.drain(..available));
                if !is_complete {
                    return Ok(ReadProgress::NeedsMore);
                }
                self.complete_request(&Fields::new());
                Ok(ReadProgress::Advanced)
            }
            NextPart::Chunked(_) => self.step_chunked(),
            NextPart::Closed => {
                self.pending.clear();
                Ok(ReadProgress::NeedsMore)
            }
        }
    }

    fn step_head(&mut self) -> Result<ReadProgress, Reject> {
        if self.pending.is_empty() || !parse_request(&self.pending, &self.limits, &mut self.head)? {
            return Ok(ReadProgress::NeedsMore);
        }
        self.head_bytes = self.pending.drain(..self.head.len).collect();
        match self.head.framing {
            // No HTTP/1 request ends with a stream.
            RequestFraming::None | RequestFraming::UntilStreamEnd => self.complete_request(&Fields::new()),
            RequestFraming::Length(length) => self.state = NextPart::Length(length),
            RequestFraming::Chunked => self.state = NextPart::Chunked(Box::new(ChunkedDecoder::new())),
        }
        Ok(ReadProgress::Advanced)
    }

    /// Decodes all available content, then drops its bytes in one operation.
    fn step_chunked(&mut self) -> Result<ReadProgress, Reject> {
        let NextPart::Chunked(decoder) = &mut self.state else { return Ok(ReadProgress::NeedsMore) };
        let mut at = 0;
        let progress = loop {
            match decoder.decode_next(&self.pending[at..], &self.limits)? {
                ChunkEvent::Data { start, end } => {
                    self.content.extend_from_slice(&self.pending[at + start..at + end]);
                    at += end;
                }
                ChunkEvent::NeedMore { consumed } => {
                    at += consumed;
                    break ReadProgress::NeedsMore;
                }
                ChunkEvent::Done { consumed } => {
                    at += consumed;
                    break ReadProgress::Advanced;
                }
            }
        };
        let trailers = decoder.trailers().clone();
        self.pending.drain(..at);
        if progress == ReadProgress::Advanced {
            self.complete_request(&trailers);
        }
        Ok(progress)
    }

    /// Adds the verdict of a complete request.
    fn complete_request(&mut self, trailers: &Fields) {
        self.verdicts.push(model::expected_line(&self.head, &self.head_bytes, &self.content, trailers));
        self.state = match self.head.persistence {
            Persistence::KeepAlive => NextPart::Head,
            Persistence::Close => NextPart::Closed,
        };
        self.head.clear();
        self.content.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelined_messages_are_read_in_any_pieces() {
        let bytes = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.0\r\n\r\nrest";
        let whole = read([&bytes[..]]);
        assert_eq!(whole.len(), 2);
        assert!(whole[0].starts_with("accept POST /a version=1.1 host=h path=/a query=- content=\"hi\""), "{whole:?}");
        assert!(whole[1].ends_with(" close"), "{whole:?}");
        assert_eq!(read(bytes.chunks(1)), whole);
        assert_eq!(read([&bytes[..20]]), [WAIT]);
    }
}
