//! One connection to an upstream, and what it keeps while exchanges use it.

use super::error::ConnectionUse;
use super::group::Group;
use super::input::Input;
use super::request::ResponseUse;
use crate::limits::{HEAD_MARGIN_BYTES, SPLICE_BYTES_MIN};
use crate::net::clock::Tick;
use crate::net::epoll::EpollSocket;
use crate::net::link::Link;
use crate::net::raw::{SendBuffer, SendMode};
use crate::net::stream::Stream;
use bytes::{Buf, Bytes};
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

/// A connection to an upstream.
pub(super) struct PooledConnection {
    pub(super) link: Link<EpollSocket>,
    pub(super) group: Rc<Group>,
    pub(super) input: Input,
    /// Bytes to send, and content to send after them.
    pub(super) output: SendBuffer,
    pub(super) piece: Bytes,
    /// Bytes that were sent since it was opened.
    pub(super) sent: u64,
    /// Whether it has served a request before.
    pub(super) connection_use: ConnectionUse,
    /// How long it was idle before its current use.
    pub(super) idle_for: Tick,
    /// Wakes the client's task while the connection is idle.
    pub(super) idle_waker: Option<Waker>,
    pub(super) idle_since: Tick,
    pub(super) idle_until: Tick,
}

impl PooledConnection {
    pub(super) fn new(link: Link<EpollSocket>, group: Rc<Group>) -> Self {
        Self {
            link,
            group,
            input: Input::default(),
            output: SendBuffer::default(),
            piece: Bytes::new(),
            sent: 0,
            connection_use: ConnectionUse::First,
            idle_for: 0,
            idle_waker: None,
            idle_since: 0,
            idle_until: 0,
        }
    }

    /// Whether nothing is left to send or to read, as an idle connection requires.
    pub(super) fn is_clean(&self) -> bool {
        self.input.bytes().is_empty() && self.output.len() == 0 && self.piece.is_empty()
    }

    /// Whether an idle connection is open and has received nothing. The waker is woken when that changes.
    pub(super) fn is_quiet(&self, waker: &Waker) -> bool {
        self.link.poll_receive(&mut Context::from_waker(waker), &mut None).is_pending()
    }

    /// Sends the closing message of the session, if it has one. The socket is closed when the connection is dropped.
    pub(super) fn close(&self) {
        self.link.close_session();
    }

    /// Prepares to receive a response, which is expected to be as long as the last one.
    pub(super) fn expect_response(&mut self, response_use: ResponseUse) {
        let expected = self.group.response_bytes.get();
        let head_max = self.group.head_bytes.get().saturating_add(HEAD_MARGIN_BYTES);
        let splices = expected >= SPLICE_BYTES_MIN as u64 + u64::from(head_max);
        if response_use == ResponseUse::Forward && splices && !self.link.has_session() {
            self.input.expect(0);
            self.link.socket().limit_next_receive(head_max);
        } else {
            self.input.expect(expected);
        }
    }

    /// Sends what is to be sent. Ready when the system has accepted all of it.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.output.len() + self.piece.len() > 0 {
            match self.link.send([self.output.rest(), &self.piece], SendMode::Flush) {
                Ok(sent) => {
                    let of_output = sent.min(self.output.len());
                    self.output.at += of_output;
                    self.piece.advance(sent - of_output);
                    self.sent += sent as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(self.link.poll_writable(cx))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.output = SendBuffer::default();
        self.piece = Bytes::new();
        // What a session has encoded leaves, too.
        loop {
            match self.link.send([&[], &[]], SendMode::Flush) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(self.link.poll_writable(cx))?,
                result => return Poll::Ready(result.map(drop)),
            }
        }
    }

    /// Receives bytes behind the unconsumed ones. Returns how many, 0 at the end of the stream.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            match self.input.poll_receive(&self.link, cx) {
                // Messages of the session have to leave first.
                Poll::Ready(Err(error)) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.link.poll_writable(cx))?;
                }
                received => return received,
            }
        }
    }
}
