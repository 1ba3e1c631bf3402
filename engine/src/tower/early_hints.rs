//! `103 Early Hints` responses (RFC 8297).

use crate::service::{ContentError, InterimSender};
use crate::tower::header_map;
use crate::tower::slab::{Slab, SlabKey};
use http::HeaderMap;
use selvedge_proto::StatusCode;
use std::thread::{self, ThreadId};

thread_local! {
    static OPEN_SENDERS: Slab<InterimSender> = Slab::default();
}

/// Sends `103 Early Hints` before the response.
///
/// It is a request extension if the server enables it ([`crate::Server::early_hints`]) and the client
/// uses HTTP/1.1 or HTTP/2. It works until the response starts, and only on the thread that received the
/// request.
#[derive(Clone, Debug)]
pub struct EarlyHints {
    thread: ThreadId,
    key: SlabKey,
}

/// Invalidates a request's handles on drop, when the response starts.
pub(super) struct HintsGuard(SlabKey);

/// Creates a handle and its guard.
pub(super) fn open(interim_sender: InterimSender) -> (EarlyHints, HintsGuard) {
    let key = OPEN_SENDERS.with(|senders| senders.insert(interim_sender));
    (EarlyHints { thread: thread::current().id(), key }, HintsGuard(key))
}

impl EarlyHints {
    /// Sends these fields, usually `link`, when the handler next waits.
    ///
    /// # Errors
    /// [`ContentError::Ended`] if the response has started or this is another thread;
    /// [`ContentError::Disconnected`] if the client does not read what was already sent.
    pub fn send(&self, fields: &HeaderMap) -> Result<(), ContentError> {
        if thread::current().id() != self.thread {
            return Err(ContentError::Ended);
        }
        let fields = header_map::to_fields(fields);
        let sent =
            OPEN_SENDERS.with(|senders| senders.with(self.key, |sender| sender.send(StatusCode::EARLY_HINTS, &fields)));
        sent.unwrap_or(Err(ContentError::Ended))
    }
}

impl Drop for HintsGuard {
    fn drop(&mut self) {
        let _ = OPEN_SENDERS.try_with(|senders| drop(senders.remove(self.0)));
    }
}
