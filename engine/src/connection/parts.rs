//! Parts of requests for reuse: a connection has some only while it has a request.

use crate::buffer::Buffer;
use crate::service::{IncomingBody, Parts, Remarks};
use std::cell::RefCell;

/// Parts that a thread keeps: about 140 KiB.
const KEPT_MAX: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "parts are large and move with their request")]
    static POOL: RefCell<Vec<Box<Parts>>> = const { RefCell::new(Vec::new()) };
}

/// Parts without a request.
pub(super) fn take() -> Box<Parts> {
    let mut parts = POOL.with_borrow_mut(Vec::pop).unwrap_or_default();
    parts.head.clear();
    parts
}

/// Gives parts back.
pub(super) fn give(mut parts: Box<Parts>) {
    parts.bytes = Buffer::default();
    parts.content = IncomingBody::default();
    parts.remarks = Remarks::default();
    parts.ahead = None;
    POOL.with_borrow_mut(|pool| {
        if pool.len() < KEPT_MAX {
            pool.push(parts);
        }
    });
}
