//! `103 Early Hints`: what an application says ahead of its answer (RFC 8297).

use crate::service::{Ahead, ContentError};
use crate::tower::table::{Table, Ticket};
use crate::tower::trailers;
use http::HeaderMap;
use selvedge_proto::Status;
use std::thread::{self, ThreadId};

thread_local! {
    static OPEN: Table<Ahead> = Table::default();
}

/// Sends `103 Early Hints` ahead of an answer. It stands in the extensions of a request, where
/// the server was told to offer it ([`crate::Server::early_hints`]) and the client speaks
/// HTTP/1.1. It works until the answer is there, on the thread that the request came on.
#[derive(Clone, Debug)]
pub struct EarlyHints {
    thread: ThreadId,
    ticket: Ticket,
}

/// What a request lent to its handles, for as long as it has no answer.
pub(super) struct Lent(Ticket);

/// Makes a handle.
pub(super) fn lend(ahead: Ahead) -> (EarlyHints, Lent) {
    let ticket = OPEN.with(|open| open.put(ahead));
    (EarlyHints { thread: thread::current().id(), ticket }, Lent(ticket))
}

impl EarlyHints {
    /// Sends these fields, as a rule of the name `link`. It leaves when the handler next waits.
    ///
    /// # Errors
    /// [`ContentError::Ended`] when the answer is there, or this is another thread;
    /// [`ContentError::Disconnected`] when the client does not take what it was sent before.
    pub fn send(&self, fields: &HeaderMap) -> Result<(), ContentError> {
        if thread::current().id() != self.thread {
            return Err(ContentError::Ended);
        }
        let fields = trailers::from_map(fields);
        let sent = OPEN.with(|open| open.with(self.ticket, |ahead| ahead.send(Status::EARLY_HINTS, &fields)));
        sent.unwrap_or(Err(ContentError::Ended))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let _ = OPEN.try_with(|open| drop(open.take(self.0)));
    }
}
