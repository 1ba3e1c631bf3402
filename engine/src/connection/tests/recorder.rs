//! An observer that keeps what it is told, as data of its own.

use crate::service::{Closed, Exchange, Incident, Observer, Outcome};
use selvedge_proto::Reject;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

/// A request and its answer, as they were reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) peer: SocketAddr,
    pub(super) line: String,
    pub(super) status: u16,
    pub(super) content_bytes: u64,
    pub(super) outcome: Outcome,
    pub(super) reject: Option<Reject>,
    pub(super) reason: Option<&'static str>,
    pub(super) is_request: bool,
}

/// What happened, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    finished: Rc<RefCell<Vec<Finished>>>,
    closed: Rc<RefCell<Vec<Closed>>>,
    incidents: Rc<RefCell<Vec<Incident>>>,
}

impl Recorder {
    /// The requests that came from there.
    pub(super) fn finished(&self, peer: SocketAddr) -> Vec<Finished> {
        self.finished.borrow().iter().filter(|finished| finished.peer == peer).cloned().collect()
    }

    /// How many requests were reported before the first one that came from there.
    pub(super) fn before(&self, peer: SocketAddr) -> usize {
        self.finished.borrow().iter().take_while(|finished| finished.peer != peer).count()
    }

    /// How the connection from there ended, which it does once.
    pub(super) fn closed(&self, peer: SocketAddr) -> Option<Closed> {
        let closed = self.closed.borrow();
        let mut own = closed.iter().filter(|closed| closed.peer == peer);
        let first = own.next().cloned();
        assert_eq!(own.next(), None, "a connection ends once");
        first
    }

    /// The panics, as they were reported.
    pub(super) fn panics(&self) -> Vec<String> {
        let incidents = self.incidents.borrow();
        incidents
            .iter()
            .filter_map(|incident| match incident {
                Incident::Panic { message, .. } => Some(message.clone()),
                _ => None,
            })
            .collect()
    }
}

impl Observer for Recorder {
    fn finished(&self, exchange: &Exchange<'_>) {
        self.finished.borrow_mut().push(Finished {
            peer: exchange.peer,
            line: String::from_utf8_lossy(exchange.line).into_owned(),
            status: exchange.status.code(),
            content_bytes: exchange.content_bytes,
            outcome: exchange.outcome,
            reject: exchange.reject,
            reason: exchange.reason,
            is_request: exchange.request.is_some(),
        });
    }

    fn closed(&self, closed: &Closed) {
        self.closed.borrow_mut().push(closed.clone());
    }

    fn incident(&self, incident: &Incident) {
        self.incidents.borrow_mut().push(incident.clone());
    }
}
