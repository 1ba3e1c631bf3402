//! Requests that wait for a place, strictly in order of arrival. Workers share a queue.
//!
//! A place that becomes free calls the first request. Only a request that is called takes a place, and one that finds none
//! stays where it is. Requests that arrive while others wait join behind them.

use super::rules::CapacityRules;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Requests that wait.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// The number of entries, which is read without the lock.
    waiting: AtomicU32,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    next_ticket: u64,
    /// In order of their tickets.
    waiting: VecDeque<WaitingRequest>,
}

#[derive(Debug)]
struct WaitingRequest {
    ticket: u64,
    /// Whether it is its turn.
    is_called: bool,
    waker: Option<Waker>,
}

/// Why a request got no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// As many requests as permitted wait already.
    QueueFull,
    /// It has waited for the queue timeout.
    TimedOut,
}

/// At which servers a request may get a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acceptable {
    AnyServer,
    /// Not at those that it has tried. Later requests may take a place that it cannot use.
    OtherServers,
}

/// A place in the queue, until it is dropped.
struct Ticket<'a> {
    queue: &'a WaitQueue,
    number: u64,
}

impl WaitQueue {
    /// Returns the number of requests that wait.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Whether a request waits, so that later ones do not overtake it.
    pub(super) fn is_used(&self) -> bool {
        self.waiting() > 0
    }

    /// Tells the first request that a place is free. Returns whether one waits.
    pub(super) fn wake_one(&self) -> bool {
        let is_used = self.is_used();
        if is_used {
            self.call(self.entries(), 0);
        }
        is_used
    }

    /// Waits until `enter` succeeds, which is tried in each turn of this request.
    pub(super) async fn wait<T>(
        &self,
        rules: &CapacityRules,
        acceptable: Acceptable,
        mut enter: impl FnMut() -> Option<T>,
    ) -> Result<T, NoPlace> {
        let ticket = self.join(rules.queue_max).ok_or(NoPlace::QueueFull)?;
        let place = poll_fn(|cx| {
            if !ticket.takes_turn(cx) {
                return Poll::Pending;
            }
            match enter() {
                Some(entered) => Poll::Ready(entered),
                None => {
                    if acceptable == Acceptable::OtherServers {
                        ticket.pass_on();
                    }
                    Poll::Pending
                }
            }
        });
        tokio::time::timeout(rules.queue_timeout, place).await.map_err(|_| NoPlace::TimedOut)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request to the end; `None` if too many wait. Without others before it, it is its turn.
    fn join(&self, queue_max: u32) -> Option<Ticket<'_>> {
        let mut entries = self.entries();
        if entries.waiting.len() >= queue_max as usize {
            return None;
        }
        let number = entries.next_ticket;
        entries.next_ticket += 1;
        let is_called = entries.waiting.is_empty();
        entries.waiting.push_back(WaitingRequest { ticket: number, is_called, waker: None });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Some(Ticket { queue: self, number })
    }

    /// Gives the turn to a request, if the queue has it.
    fn call(&self, mut entries: MutexGuard<'_, Entries>, index: usize) {
        let called = entries.waiting.get_mut(index).and_then(|entry| {
            entry.is_called = true;
            entry.waker.take()
        });
        // A waker may run other code.
        drop(entries);
        called.into_iter().for_each(Waker::wake);
    }
}

impl Entries {
    fn index_of(&self, ticket: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |entry| entry.ticket).ok()
    }
}

impl Ticket<'_> {
    /// Whether it is the turn of this request, which ends with the call. Another one is noticed in any case.
    fn takes_turn(&self, cx: &Context<'_>) -> bool {
        let mut entries = self.queue.entries();
        let Some(index) = entries.index_of(self.number) else { return false };
        let entry = &mut entries.waiting[index];
        let replaced = match &entry.waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => entry.waker.replace(cx.waker().clone()),
        };
        let is_called = std::mem::take(&mut entry.is_called);
        drop(entries);
        drop(replaced);
        is_called
    }

    /// Gives the turn to the next request.
    fn pass_on(&self) {
        let entries = self.queue.entries();
        if let Some(index) = entries.index_of(self.number) {
            self.queue.call(entries, index + 1);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut entries = self.queue.entries();
        let Some(index) = entries.index_of(self.number) else { return };
        let removed = entries.waiting.remove(index);
        self.queue.waiting.fetch_sub(1, Ordering::SeqCst);
        if removed.as_ref().is_some_and(|entry| entry.is_called) {
            self.queue.call(entries, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::capacity::Places;
    use super::super::rules::AdaptiveMode;
    use super::*;
    use std::num::NonZeroU32;
    use std::rc::Rc;
    use std::time::Duration;

    fn rules(queue_max: u32) -> CapacityRules {
        let (requests_max, queue_timeout) = (NonZeroU32::new(1), Duration::from_secs(5));
        CapacityRules { requests_max, queue_max, queue_timeout, adaptive: AdaptiveMode::Off }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_place_in_order() {
        let rules = rules(2);
        let (places, queue) = (Rc::new(Places::new(&rules)), Rc::new(WaitQueue::default()));
        assert!(places.enter().is_some() && !queue.wake_one());
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let local = tokio::task::LocalSet::new();
        for number in 0..3 {
            let (places, queue, order) = (places.clone(), queue.clone(), order.clone());
            local.spawn_local(async move {
                let result = queue.wait(&rules, Acceptable::AnyServer, || places.enter()).await.map(drop);
                order.borrow_mut().push((number, result));
            });
        }
        local
            .run_until(async {
                for _ in 0..2 {
                    tokio::task::yield_now().await;
                    places.leave();
                    assert!(queue.wake_one());
                }
                tokio::task::yield_now().await;
            })
            .await;
        local.await;
        assert_eq!(*order.borrow(), [(2, Err(NoPlace::QueueFull)), (0, Ok(())), (1, Ok(()))]);
        assert!(!queue.is_used() && places.at_work() == 1);
    }

    #[test]
    fn every_request_gets_its_place_with_many_threads() {
        const REQUESTS: u32 = 500;
        let (rules, queue) =
            (CapacityRules { queue_timeout: Duration::from_secs(60), ..rules(u32::MAX) }, WaitQueue::default());
        let places = Places::new(&rules);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                    let request = async || {
                        queue.wait(&rules, Acceptable::AnyServer, || places.enter()).await.unwrap();
                        places.leave();
                        queue.wake_one();
                    };
                    for _ in 0..REQUESTS {
                        runtime.block_on(async { tokio::join!(request(), request(), request()) });
                    }
                });
            }
        });
        assert!(!queue.is_used() && places.at_work() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_the_queue_timeout_at_most() {
        let rules = rules(1);
        let (places, queue) = (Places::new(&rules), WaitQueue::default());
        assert!(places.enter().is_some());
        let began = tokio::time::Instant::now();
        assert_eq!(queue.wait(&rules, Acceptable::AnyServer, || places.enter()).await, Err(NoPlace::TimedOut));
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        assert!(!queue.is_used());
    }
}
