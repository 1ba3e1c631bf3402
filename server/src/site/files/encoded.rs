//! A file in a content coding that no precompressed file exists for. The engine encodes it and keeps it for all workers;
//! here is where a worker finds it without a look-up.

use bytes::Bytes;
use selvedge::proto::encoding::Coding;
use selvedge::service::{Body, FileStamp};
use selvedge::{ContentCoder, EncodedFile, Method};
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long an encoded file is used without a look-up, which also tells the cache that the file is in use.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);

/// The encoded content of a file.
pub(super) struct EncodedContent {
    coder: ContentCoder,
    coding: Coding,
    state: RefCell<EncodedState>,
}

enum EncodedState {
    Unknown,
    /// In the cache of the engine, at this time of the worker.
    Stored(Weak<Bytes>, Duration),
    /// The file is sent as it is.
    NotSmaller,
}

impl EncodedContent {
    pub(super) fn new(coder: ContentCoder, coding: Coding) -> Self {
        Self { coder, coding, state: RefCell::new(EncodedState::Unknown) }
    }

    /// Whether encoding does not make the file smaller.
    pub(super) fn is_useless(&self) -> bool {
        matches!(*self.state.borrow(), EncodedState::NotSmaller)
    }

    /// Returns the content, if the cache has it.
    pub(super) fn stored(&self, stamp: &FileStamp, now: Duration) -> Option<Bytes> {
        if let EncodedState::Stored(bytes, at) = &*self.state.borrow()
            && now < *at + LOOKUP_INTERVAL
            && let Some(bytes) = bytes.upgrade()
        {
            return Some(Bytes::clone(&bytes));
        }
        match self.coder.stored_file(stamp, self.coding)? {
            EncodedFile::Smaller(bytes) => {
                *self.state.borrow_mut() = EncodedState::Stored(Arc::downgrade(&bytes), now);
                Some(Bytes::clone(&bytes))
            }
            EncodedFile::NotSmaller => {
                *self.state.borrow_mut() = EncodedState::NotSmaller;
                None
            }
        }
    }

    /// Encodes the file, or returns `None` if that does not make it smaller.
    pub(super) async fn encode(&self, method: Method, (stamp, content): (&FileStamp, Body)) -> Option<Body> {
        let encoded = self.coder.encode_file(method, (stamp, content), self.coding).await;
        if encoded.is_none() {
            *self.state.borrow_mut() = EncodedState::NotSmaller;
        }
        encoded
    }
}
