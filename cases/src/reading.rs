//! Feeds bytes to the protocol crate as a server would, and tells what becomes of them.
//!
//! The bytes come in pieces of any size. Those of a head are kept until it is complete; of
//! content, what was decoded is forgotten; after a refusal or a close nothing is read.

use crate::model;
use crate::verdict::{WAIT, reject};
use selvedge_proto::field::Fields;
use selvedge_proto::head::{Framing, RequestHead};
use selvedge_proto::http1::chunked::{Decoder, Step};
use selvedge_proto::http1::parse_request;
use selvedge_proto::{Afterwards, Limits, Reject};

/// Where in the stream of messages the reading stands.
#[derive(Debug)]
enum State {
    Head,
    Length(u64),
    Chunked(Box<Decoder>),
    Ended,
}

/// Whether the bytes at hand suffice for one more step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Made,
    Starved,
}

/// One connection's bytes, being read.
#[derive(Debug)]
pub struct Reading {
    limits: Limits,
    state: State,
    head: RequestHead,
    /// The bytes of the head that was read last.
    head_bytes: Vec<u8>,
    content: Vec<u8>,
    /// What has come and is not done with.
    pending: Vec<u8>,
    verdicts: Vec<String>,
}

/// Reads pieces one after the other, with the default limits: one line for each message.
pub fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    let mut reading = Reading::new(Limits::default());
    for piece in pieces {
        reading.feed(piece);
    }
    reading.finish()
}

impl Reading {
    /// A connection on which nothing has come.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Head,
            head: RequestHead::default(),
            head_bytes: Vec::new(),
            content: Vec::new(),
            pending: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// Takes the bytes that came next.
    pub fn feed(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
        loop {
            match self.step() {
                Ok(Progress::Made) => {}
                Ok(Progress::Starved) => return,
                Err(reason) => {
                    self.verdicts.push(reject(reason));
                    self.state = State::Ended;
                }
            }
        }
    }

    /// The lines, with one for a message that is not complete.
    pub fn finish(mut self) -> Vec<String> {
        let between = matches!(self.state, State::Head) && self.pending.is_empty();
        if !between && !matches!(self.state, State::Ended) {
            self.verdicts.push(WAIT.to_owned());
        }
        self.verdicts
    }

    fn step(&mut self) -> Result<Progress, Reject> {
        match &mut self.state {
            State::Head => self.step_head(),
            State::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(self.pending.len());
                *left -= here as u64;
                let complete = *left == 0;
                self.content.extend(self.pending.drain(..here));
                if !complete {
                    return Ok(Progress::Starved);
                }
                self.hand_over(&Fields::new());
                Ok(Progress::Made)
            }
            State::Chunked(_) => self.step_chunked(),
            State::Ended => {
                self.pending.clear();
                Ok(Progress::Starved)
            }
        }
    }

    fn step_head(&mut self) -> Result<Progress, Reject> {
        if self.pending.is_empty() || !parse_request(&self.pending, &self.limits, &mut self.head)? {
            return Ok(Progress::Starved);
        }
        self.head_bytes = self.pending.drain(..self.head.len).collect();
        match self.head.framing {
            Framing::None => self.hand_over(&Fields::new()),
            Framing::Length(length) => self.state = State::Length(length),
            Framing::Chunked => self.state = State::Chunked(Box::new(Decoder::new())),
        }
        Ok(Progress::Made)
    }

    /// Decodes all the content that is at hand, and forgets its bytes once.
    fn step_chunked(&mut self) -> Result<Progress, Reject> {
        let State::Chunked(decoder) = &mut self.state else { return Ok(Progress::Starved) };
        let mut at = 0;
        let progress = loop {
            match decoder.step(&self.pending[at..], &self.limits)? {
                Step::Data { start, end } => {
                    self.content.extend_from_slice(&self.pending[at + start..at + end]);
                    at += end;
                }
                Step::NeedMore { consumed } => {
                    at += consumed;
                    break Progress::Starved;
                }
                Step::Done { consumed } => {
                    at += consumed;
                    break Progress::Made;
                }
            }
        };
        let trailers = decoder.trailers().clone();
        self.pending.drain(..at);
        if progress == Progress::Made {
            self.hand_over(&trailers);
        }
        Ok(progress)
    }

    /// The request is complete: the application answers it.
    fn hand_over(&mut self, trailers: &Fields) {
        self.verdicts.push(model::verdict(&self.head, &self.head_bytes, &self.content, trailers));
        self.state = match self.head.persistence {
            Afterwards::KeepOpen => State::Head,
            Afterwards::Close => State::Ended,
        };
        self.head.clear();
        self.content.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_each_other_in_any_pieces() {
        let bytes = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.0\r\n\r\nrest";
        let whole = read([&bytes[..]]);
        assert_eq!(whole.len(), 2);
        assert!(whole[0].starts_with("accept POST /a version=1.1 host=h path=/a query=- content=\"hi\""), "{whole:?}");
        assert!(whole[1].ends_with(" close"), "{whole:?}");
        assert_eq!(read(bytes.chunks(1)), whole);
        assert_eq!(read([&bytes[..20]]), [WAIT]);
    }
}
