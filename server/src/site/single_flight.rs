//! Single flight for the tasks of one worker: concurrent callers with one key share one execution.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;
use tokio::sync::OnceCell;

/// The executions in progress, each with its result once it is known.
pub(super) struct SingleFlight<K: Hash + Eq, T> {
    flights: RefCell<HashMap<K, Rc<OnceCell<T>>>>,
}

impl<K: Hash + Eq, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self { flights: RefCell::default() }
    }
}

impl<K: Hash + Eq + Clone, T: Clone> SingleFlight<K, T> {
    /// Runs the work, or waits for the execution of a concurrent caller with this key and returns its result. If that
    /// caller is cancelled or its work fails, the next one runs its own.
    pub(super) async fn run<E>(&self, key: K, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let result = self.flights.borrow_mut().entry(key.clone()).or_default().clone();
        let caller = Caller { flights: &self.flights, key, result };
        caller.result.get_or_try_init(|| work).await.cloned()
    }

    /// Returns whether no execution is in progress.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.flights.borrow().is_empty()
    }
}

/// A caller of an execution. The last one to be dropped removes the execution.
struct Caller<'f, K: Hash + Eq, T> {
    flights: &'f RefCell<HashMap<K, Rc<OnceCell<T>>>>,
    key: K,
    result: Rc<OnceCell<T>>,
}

impl<K: Hash + Eq, T> Drop for Caller<'_, K, T> {
    fn drop(&mut self) {
        // The two are this one and that of the table.
        if Rc::strong_count(&self.result) == 2 {
            self.flights.borrow_mut().remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::task::{Context, Poll, Waker};
    use tokio::sync::Notify;

    #[test]
    fn concurrent_callers_share_an_execution_unless_it_fails_or_is_cancelled() {
        let (flight, runs, ended) = (SingleFlight::<u8, u32>::default(), Cell::new(0), Notify::new());
        let poll = |caller: &mut std::pin::Pin<Box<dyn Future<Output = Result<u32, u32>> + '_>>| {
            caller.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        let call = |key, is_ok: bool| -> std::pin::Pin<Box<dyn Future<Output = Result<u32, u32>> + '_>> {
            let (runs, ended) = (&runs, &ended);
            Box::pin(flight.run(key, async move {
                runs.set(runs.get() + 1);
                ended.notified().await;
                if is_ok { Ok(runs.get()) } else { Err(runs.get()) }
            }))
        };
        let (mut failing, mut cancelled, mut first, mut second) =
            (call(1, false), call(1, true), call(1, true), call(1, true));
        for caller in [&mut failing, &mut cancelled, &mut first, &mut second] {
            assert!(poll(caller).is_pending());
        }
        assert_eq!(runs.get(), 1);
        ended.notify_one();
        assert_eq!(poll(&mut failing), Poll::Ready(Err(1)));
        assert!(poll(&mut cancelled).is_pending() && runs.get() == 2);
        drop(cancelled);
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending() && runs.get() == 3);
        let mut other = call(2, true);
        assert!(poll(&mut other).is_pending() && runs.get() == 4, "another key has another execution");
        ended.notify_waiters();
        assert_eq!([poll(&mut first), poll(&mut second)], [Poll::Ready(Ok(4)), Poll::Ready(Ok(4))]);
        drop((failing, first, second, other));
        assert!(flight.is_idle());
    }
}
