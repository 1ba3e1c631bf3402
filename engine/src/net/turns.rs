//! Turns for steps that cost much time, such as those of a handshake. One step runs in each turn of the runtime, so
//! that other connections are served between two. Up to [`HANDSHAKES_IN_ORDER`] steps run in the order of their
//! requests. Of more, the newest runs first, so that a new client does not wait behind thousands of others. The
//! clients that have waited longest are also the likeliest to have left.

use crate::limits::HANDSHAKES_IN_ORDER;
use crate::net::runtime::yield_now;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// The place of a connection in the queue. Dropping it gives the place up.
pub(crate) struct Ticket {
    number: u64,
    queue: Arc<Queue>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.queue.waiting().connections.remove(&self.number);
    }
}

/// The queue of one worker. It has a lock only because a ticket leaves the worker together with its socket if the
/// connection is upgraded.
#[derive(Default)]
struct Queue(Mutex<WaitingSteps>);

#[derive(Default)]
struct WaitingSteps {
    /// The number of the next ticket.
    next: u64,
    /// The connections that wait, by number. One that was granted its turn is no longer here.
    connections: BTreeMap<u64, Waker>,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, WaitingSteps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, waker: Waker) -> Ticket {
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.connections.insert(number, waker);
        Ticket { number, queue: self.clone() }
    }

    /// Removes the connection whose turn is next.
    fn pop(&self) -> Option<Waker> {
        let connections = &mut self.waiting().connections;
        let is_crowded = connections.len() > HANDSHAKES_IN_ORDER;
        let next = if is_crowded { connections.pop_last() } else { connections.pop_first() };
        next.map(|(_, waker)| waker)
    }
}

/// The expensive steps of one worker.
#[derive(Default)]
pub(crate) struct Turns {
    queue: Arc<Queue>,
    /// Whether a step has run in this turn of the runtime.
    is_used: Cell<bool>,
    used: Notify,
}

impl Turns {
    /// Waits for a turn. `ticket` is the connection's place while it waits.
    pub(crate) fn poll_turn(&self, ticket: &mut Option<Ticket>, cx: &Context<'_>) -> Poll<()> {
        match ticket {
            Some(Ticket { number, .. }) if self.queue.waiting().connections.contains_key(number) => Poll::Pending,
            Some(_) => {
                *ticket = None;
                Poll::Ready(())
            }
            None if !self.is_used.replace(true) => {
                self.used.notify_one();
                Poll::Ready(())
            }
            None => {
                *ticket = Some(self.queue.push(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// Grants one turn in each turn of the runtime.
    pub(crate) async fn run(&self) {
        loop {
            self.used.notified().await;
            loop {
                yield_now().await;
                let Some(waker) = self.queue.pop() else { break };
                waker.wake();
            }
            self.is_used.set(false);
        }
    }

    /// Returns how many connections wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.queue.waiting().connections.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use tokio::task::spawn_local;

    /// Returns the order in which the steps of as many connections run, where the one of `leaving` goes away first.
    fn order_of(connections: usize, leaving: usize) -> Vec<usize> {
        let Ok(runtime) = crate::net::runtime::runtime() else { panic!("cannot create a runtime") };
        runtime.block_on(async {
            let (turns, log) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
            // All are in the queue before the first turn is granted.
            turns.is_used.set(true);
            let mut steps = (0..connections).map(|number| {
                let (turns, log) = (turns.clone(), log.clone());
                Some(spawn_local(async move {
                    let mut ticket = None;
                    poll_fn(|cx| turns.poll_turn(&mut ticket, cx)).await;
                    log.borrow_mut().push(number);
                }))
            });
            let mut steps: Vec<_> = steps.by_ref().collect();
            while turns.waiting() < connections {
                yield_now().await;
            }
            steps[leaving].take().unwrap().abort();
            turns.used.notify_one();
            let granting = turns.clone();
            spawn_local(async move { granting.run().await });
            let mut turns_seen = 0;
            while log.borrow().len() < connections - 1 {
                let before = log.borrow().len();
                yield_now().await;
                assert!(log.borrow().len() <= before + 1, "one step in each turn");
                turns_seen += 1;
            }
            assert!(turns_seen >= connections - 1, "{turns_seen}");
            assert_eq!(turns.waiting(), 0);
            log.take()
        })
    }

    #[test]
    fn steps_run_in_order_with_a_turn_of_the_runtime_between_them() {
        assert_eq!(order_of(4, 2), [0, 1, 3]);
        let all = order_of(HANDSHAKES_IN_ORDER, 0);
        assert!(all.iter().copied().eq(1..HANDSHAKES_IN_ORDER), "{all:?}");
    }

    #[test]
    fn of_many_steps_the_newest_runs_first() {
        let count = HANDSHAKES_IN_ORDER + 1000;
        let expected = (HANDSHAKES_IN_ORDER + 1..count).rev().chain(1..=HANDSHAKES_IN_ORDER);
        let order = order_of(count, 0);
        assert!(order.iter().copied().eq(expected), "{order:?}");
    }
}
