//! An observer that stores what is reported.

use crate::service::{CloseReason, Closed, Exchange, Observer, ResponseOutcome, ServerEvent};
use selvedge_proto::Reject;
use selvedge_proto::http2::StreamError;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

/// A reported request with its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) peer: SocketAddr,
    /// The number of the request, or its stream.
    pub(super) stream: u64,
    pub(super) line: String,
    pub(super) status: u16,
    pub(super) content_bytes: u64,
    pub(super) outcome: ResponseOutcome,
    pub(super) reject: Option<Reject>,
    pub(super) reason: Option<&'static str>,
    pub(super) is_request: bool,
    pub(super) reset: Option<CloseReason>,
}

/// All reports, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    finished: Rc<RefCell<Vec<Finished>>>,
    closed: Rc<RefCell<Vec<Closed>>>,
    events: Rc<RefCell<Vec<ServerEvent>>>,
}

impl Recorder {
    /// Returns the requests of a peer.
    pub(super) fn finished(&self, peer: SocketAddr) -> Vec<Finished> {
        self.finished.borrow().iter().filter(|finished| finished.peer == peer).cloned().collect()
    }

    /// Returns how many requests were reported before the first one of a peer.
    pub(super) fn before(&self, peer: SocketAddr) -> usize {
        self.finished.borrow().iter().take_while(|finished| finished.peer != peer).count()
    }

    /// Returns how the connection of a peer ended; it ends once.
    pub(super) fn closed(&self, peer: SocketAddr) -> Option<Closed> {
        let closed = self.closed.borrow();
        let mut own = closed.iter().filter(|closed| closed.peer == peer);
        let first = own.next().cloned();
        assert_eq!(own.next(), None, "a connection ends once");
        first
    }

    /// Returns the reported panics.
    pub(super) fn panics(&self) -> Vec<String> {
        let events = self.events.borrow();
        events
            .iter()
            .filter_map(|event| match event {
                ServerEvent::Panic { message, .. } => Some(message.clone()),
                _ => None,
            })
            .collect()
    }
}

impl Recorder {
    /// Returns the reported reasons of streams that were refused, with their numbers.
    pub(super) fn refused(&self) -> Vec<(StreamError, u32)> {
        let events = self.events.borrow();
        events
            .iter()
            .filter_map(|event| match event {
                ServerEvent::StreamsRefused { error, count, .. } => Some((*error, *count)),
                _ => None,
            })
            .collect()
    }
}

impl Observer for Recorder {
    fn finished(&self, exchange: &Exchange<'_>) {
        self.finished.borrow_mut().push(Finished {
            peer: exchange.peer,
            stream: exchange.stream.0,
            line: String::from_utf8_lossy(exchange.request_line).into_owned(),
            status: exchange.status.code(),
            content_bytes: exchange.content_bytes,
            outcome: exchange.outcome,
            reject: exchange.reject,
            reason: exchange.reason,
            is_request: exchange.request.is_some(),
            reset: exchange.reset,
        });
    }

    fn closed(&self, closed: &Closed) {
        self.closed.borrow_mut().push(closed.clone());
    }

    fn event(&self, event: &ServerEvent) {
        self.events.borrow_mut().push(event.clone());
    }
}
