//! The streams whose calls or content can continue.
//!
//! Each place for a stream has one waker, which any thread may use. It puts the place into the queue and wakes the
//! connection's task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The places whose streams can continue.
#[derive(Default)]
pub(super) struct ReadyQueue {
    /// Whether `ready` may have entries, so that the connection takes no lock otherwise.
    has_ready: AtomicBool,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    ready: Vec<u32>,
    task: Option<Waker>,
}

/// The waker of a place.
struct PlaceWaker {
    place: u32,
    is_queued: AtomicBool,
    queue: Arc<ReadyQueue>,
}

/// The waker of a place, and whether it is in the queue.
pub(super) struct Place {
    shared: Arc<PlaceWaker>,
    waker: Waker,
}

impl ReadyQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code of an application runs while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the waker of a place.
    pub(super) fn place(self: &Arc<Self>, place: u32) -> Place {
        let shared = Arc::new(PlaceWaker { place, is_queued: AtomicBool::new(false), queue: self.clone() });
        Place { waker: shared.clone().into(), shared }
    }

    /// Sets the task that a wake-up of a place wakes.
    pub(super) fn set_task(&self, waker: &Waker) {
        let mut state = self.lock();
        if !state.task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            state.task = Some(waker.clone());
        }
    }

    /// Takes all places that can continue, and leaves the empty `into` in their place.
    pub(super) fn take(&self, into: &mut Vec<u32>) {
        if self.has_ready.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut self.lock().ready, into);
        }
    }
}

impl Place {
    /// Returns the waker, for the next poll of the place's stream.
    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Records that the place was taken from the queue. A later wake-up puts it there again.
    pub(super) fn begin_poll(&self) {
        self.shared.is_queued.store(false, Ordering::Release);
    }
}

impl Wake for PlaceWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.queue.lock();
        state.ready.push(self.place);
        self.queue.has_ready.store(true, Ordering::Release);
        let task = state.task.clone();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_queued_once_until_it_is_polled() {
        let queue = Arc::new(ReadyQueue::default());
        let (first, second) = (queue.place(1), queue.place(2));
        let mut ready = Vec::new();
        first.waker().wake_by_ref();
        second.waker().wake_by_ref();
        first.waker().wake_by_ref();
        queue.take(&mut ready);
        assert_eq!(ready, [1, 2]);
        ready.clear();
        queue.take(&mut ready);
        assert!(ready.is_empty());
        first.begin_poll();
        first.waker().wake_by_ref();
        second.waker().wake_by_ref();
        queue.take(&mut ready);
        assert_eq!(ready, [1]);
    }
}
