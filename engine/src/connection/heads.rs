//! Heads for reuse: a connection has one only while it has a request.

use selvedge_proto::head::RequestHead;
use std::cell::RefCell;

/// Heads that a thread keeps: about 64 KiB.
const KEPT_MAX: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "a head is large and moves with its request")]
    static POOL: RefCell<Vec<Box<RequestHead>>> = const { RefCell::new(Vec::new()) };
}

/// An empty head.
pub(super) fn take() -> Box<RequestHead> {
    let mut head = POOL.with_borrow_mut(Vec::pop).unwrap_or_default();
    head.clear();
    head
}

/// Gives a head back.
pub(super) fn give(head: Box<RequestHead>) {
    POOL.with_borrow_mut(|pool| {
        if pool.len() < KEPT_MAX {
            pool.push(head);
        }
    });
}
