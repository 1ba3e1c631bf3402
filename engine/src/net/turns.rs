//! Turns for steps that cost much time, such as those of a handshake. One step runs in each turn of the runtime, so
//! that other connections are served between two. Steps run in the order of their requests.

use crate::net::runtime::yield_now;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// The place of a connection in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// The expensive steps of one worker.
#[derive(Default)]
pub(crate) struct Turns {
    /// The ticket of the next connection.
    next: Cell<u64>,
    /// Tickets below this have their turn.
    granted: Cell<u64>,
    waiting: RefCell<VecDeque<(Ticket, Waker)>>,
    /// Whether a step has run in this turn of the runtime.
    is_used: Cell<bool>,
    used: Notify,
}

impl Turns {
    /// Waits for a turn. `ticket` is the connection's place while it waits.
    pub(crate) fn poll_turn(&self, ticket: &mut Option<Ticket>, cx: &Context<'_>) -> Poll<()> {
        match *ticket {
            Some(Ticket(number)) if number < self.granted.get() => {
                *ticket = None;
                Poll::Ready(())
            }
            Some(_) => Poll::Pending,
            None if !self.is_used.replace(true) => {
                self.used.notify_one();
                Poll::Ready(())
            }
            None => {
                let place = Ticket(self.next.replace(self.next.get() + 1));
                *ticket = Some(place);
                self.waiting.borrow_mut().push_back((place, cx.waker().clone()));
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
                let Some((Ticket(number), waker)) = self.waiting.borrow_mut().pop_front() else { break };
                self.granted.set(number + 1);
                waker.wake();
            }
            self.is_used.set(false);
        }
    }

    /// Returns how many connections wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::rc::Rc;
    use tokio::task::spawn_local;

    #[test]
    fn steps_run_in_order_with_a_turn_of_the_runtime_between_them() {
        let Ok(runtime) = crate::net::runtime::runtime() else { panic!("cannot create a runtime") };
        runtime.block_on(async {
            let (turns, log) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
            let granting = turns.clone();
            spawn_local(async move { granting.run().await });
            let steps = (0..4).map(|number| {
                let (turns, log) = (turns.clone(), log.clone());
                spawn_local(async move {
                    let mut ticket = None;
                    poll_fn(|cx| turns.poll_turn(&mut ticket, cx)).await;
                    log.borrow_mut().push(number);
                })
            });
            let steps: Vec<_> = steps.collect();
            // The last one goes away and delays no other.
            steps[3].abort();
            let mut others = 0;
            while log.borrow().len() < 3 {
                let before = log.borrow().len();
                yield_now().await;
                assert!(log.borrow().len() <= before + 1, "one step in each turn");
                others += 1;
            }
            assert_eq!(*log.borrow(), [0, 1, 2]);
            assert!(others >= 3, "{others}");
            while turns.waiting() > 0 {
                yield_now().await;
            }
        });
    }
}
