//! Requests that wait for a stream, because all connections to a destination have as many as the upstream permits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Requests that wait for a stream, in order of arrival.
#[derive(Default)]
pub(in crate::client) struct StreamQueue(RefCell<VecDeque<Rc<QueuedRequest>>>);

/// One request.
#[derive(Default)]
struct QueuedRequest {
    /// Whether a stream may be free.
    is_called: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl StreamQueue {
    /// Whether no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Returns the number of requests that wait.
    pub(super) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Calls the first request, as a stream may be free. It calls the next one if it got a stream.
    pub(super) fn call_next(&self) {
        let Some(first) = self.0.borrow_mut().pop_front() else { return };
        first.is_called.set(true);
        if let Some(waker) = first.waker.take() {
            waker.wake();
        }
    }

    /// Joins the queue: at its end, or in front if the request was called and found no stream.
    pub(super) fn join(self: &Rc<Self>, turn: Turn) -> QueuePlace {
        let waiting = Rc::<QueuedRequest>::default();
        let mut queue = self.0.borrow_mut();
        match turn {
            Turn::First => queue.push_back(waiting.clone()),
            Turn::Again => queue.push_front(waiting.clone()),
        }
        QueuePlace { queue: self.clone(), waiting }
    }
}

/// Whether a request was called before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    Again,
}

/// The place of a request in the queue. Dropping it leaves the queue, and passes on a call that was not used.
pub(super) struct QueuePlace {
    queue: Rc<StreamQueue>,
    waiting: Rc<QueuedRequest>,
}

impl QueuePlace {
    /// Waits until the request is called. It is over when `is_over` returns true.
    pub(super) async fn wait(self, mut is_over: impl FnMut(&Context<'_>) -> bool) -> WaitEnd {
        poll_fn(|cx| {
            if self.waiting.is_called.take() {
                return Poll::Ready(WaitEnd::Called(Call(Some(self.queue.clone()))));
            }
            if is_over(cx) {
                return Poll::Ready(WaitEnd::TimedOut);
            }
            self.waiting.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if self.waiting.is_called.get() {
            self.queue.call_next();
        } else {
            self.queue.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.waiting));
        }
    }
}

/// How a wait has ended.
pub(super) enum WaitEnd {
    Called(Call),
    TimedOut,
}

/// A call. Dropping it calls the next request: more streams may be free, or another connection may be opened.
pub(super) struct Call(Option<Rc<StreamQueue>>);

impl Call {
    /// Ends the call without another one, because no stream is free.
    pub(super) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            queue.call_next();
        }
    }
}
