//! Facts about the server that an application forwarded a request to, for the log.

use crate::service::{PhaseTimes, RequestPhase};
use selvedge_proto::StatusCode;
use std::cell::{Ref, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Facts about the server behind a proxy or gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamFacts {
    /// The name of the group of servers.
    pub group: Rc<str>,
    /// The address of the server that was tried last; empty if none was.
    pub address: Rc<str>,
    /// How often the request was sent or tried to be sent.
    pub tries: u32,
    /// The status of the server's response; `None` without one.
    pub status: Option<StatusCode>,
    /// How long the request waited for a place at a server.
    pub queued: Duration,
    /// Time from the choice of the server to the head of its response, of the last try.
    pub response_time: Option<Duration>,
    /// Time to open a connection to the server, TLS included, of the last try; `None` on an open connection.
    pub connect_time: Option<Duration>,
    /// Time from the open connection to the head of the response, or to its failure, of the last try.
    pub first_byte_time: Option<Duration>,
    /// What failed, in words: the phase, the address and the reason. With several tries, the last one.
    pub failure: Option<Box<str>>,
    /// The kind of the failure, without the parts that differ between requests. A log counts failures of one kind
    /// together. Empty if it is not known.
    pub failure_kind: &'static str,
    /// What the script or program has written to its standard error. The application bounds its length.
    pub messages: Vec<u8>,
    /// Further bytes of messages that were not kept.
    pub message_bytes_lost: u64,
}

/// A handle to the facts about the upstream of one request. Its clones share the facts, so that the content of a
/// response can add to them while it is sent.
#[derive(Clone, Default)]
pub struct UpstreamRecord(Rc<RefCell<UpstreamFacts>>);

impl UpstreamFacts {
    /// Adds the phases of the upstream to those of a request.
    pub(crate) fn add_phases(&self, phases: &mut PhaseTimes) {
        phases.set(RequestPhase::Queue, self.queued);
        phases.set(RequestPhase::Connect, self.connect_time.unwrap_or_default());
        phases.set(RequestPhase::FirstByte, self.first_byte_time.unwrap_or_default());
    }
}

impl UpstreamRecord {
    /// Creates the record of a request to a group of servers.
    pub fn new(group: Rc<str>) -> Self {
        Self(Rc::new(RefCell::new(UpstreamFacts { group, ..UpstreamFacts::default() })))
    }

    /// Changes the facts.
    ///
    /// # Panics
    /// If `change` uses this record.
    pub fn update(&self, change: impl FnOnce(&mut UpstreamFacts)) {
        change(&mut self.0.borrow_mut());
    }

    /// Returns the facts. Drop them before the next update.
    pub fn facts(&self) -> Ref<'_, UpstreamFacts> {
        self.0.borrow()
    }
}

impl fmt::Debug for UpstreamRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
