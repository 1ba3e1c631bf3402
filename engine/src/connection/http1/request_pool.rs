//! The pool of request structs. A connection has one only during a request.

use crate::buffer::Buffer;
use crate::service::{IncomingBody, LogInfo, RequestInner};
use std::cell::RefCell;

/// Most structs in the pool of a thread: about 140 KiB.
const POOLED_MAX: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "the structs are large and move with their request")]
    static POOL: RefCell<Vec<Box<RequestInner>>> = const { RefCell::new(Vec::new()) };
}

/// Takes a struct from the pool.
pub(in crate::connection) fn acquire() -> Box<RequestInner> {
    let mut inner = POOL.with_borrow_mut(Vec::pop).unwrap_or_default();
    inner.head.clear();
    inner
}

/// Clears a struct and returns it to the pool.
pub(in crate::connection) fn release(mut inner: Box<RequestInner>) {
    inner.bytes = Buffer::default();
    inner.content = IncomingBody::default();
    inner.log_info = LogInfo::default();
    inner.interim_sender = None;
    inner.replaced_query = None;
    inner.tls = None;
    if !inner.held.is_empty() {
        inner.held.clear();
    }
    POOL.with_borrow_mut(|pool| {
        if pool.len() < POOLED_MAX {
            pool.push(inner);
        }
    });
}
