//! What many ask for at once and is done one after the other: all who ask while it is being done
//! are given what comes of doing it once more.

use super::post::guard;
use std::sync::{Condvar, Mutex, PoisonError};

/// Work whose result is good for everybody who asked before it began.
#[derive(Debug)]
pub(super) struct Together<T> {
    state: Mutex<State<T>>,
    over: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// How often it was begun.
    begun: u64,
    now: Now,
    /// How many wait for it to be over.
    waiting: usize,
    /// What came of it last, and which time that was.
    last: Option<(u64, T)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Idle,
    Working,
}

impl<T> Default for Together<T> {
    fn default() -> Self {
        let state = State { begun: 0, now: Now::Idle, waiting: 0, last: None };
        Self { state: Mutex::new(state), over: Condvar::new() }
    }
}

impl<T: Clone> Together<T> {
    /// Works, or waits for somebody else who begins to from now on; what has come of it.
    pub(super) fn work(&self, work: impl FnOnce() -> T) -> T {
        let mut state = guard(&self.state);
        // What is being done now may have begun before there was a reason to ask.
        let enough = state.begun + 1;
        while state.now == Now::Working {
            state.waiting += 1;
            state = self.over.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
            if let Some((time, result)) = &state.last
                && *time >= enough
            {
                return result.clone();
            }
        }
        state.begun += 1;
        state.now = Now::Working;
        let time = state.begun;
        drop(state);
        // Also when the work panics, in which case the next one does it.
        let turn = Turn(self);
        let result = work();
        let mut state = guard(&self.state);
        if state.waiting > 0 {
            state.last = Some((time, result.clone()));
        }
        drop(state);
        drop(turn);
        result
    }
}

/// Held by whoever works.
struct Turn<'a, T>(&'a Together<T>);

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        guard(&self.0.state).now = Now::Idle;
        self.0.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn all_who_ask_meanwhile_share_the_next_time() {
        let together = &Together::default();
        let (go, wait) = channel::<()>();
        let (began, begins) = channel();
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                together.work(|| {
                    began.send(()).unwrap();
                    wait.recv().unwrap();
                    1
                })
            });
            begins.recv().unwrap();
            let second = scope.spawn(|| together.work(|| 2));
            let third = scope.spawn(|| together.work(|| 2));
            while guard(&together.state).waiting < 2 {
                thread::sleep(Duration::from_millis(1));
            }
            go.send(()).unwrap();
            let results = [first, second, third].map(|asker| asker.join().unwrap());
            assert_eq!(results, [1, 2, 2], "nobody is given what began before it asked");
        });
        assert_eq!(guard(&together.state).begun, 2);
        assert_eq!(together.work(|| 3), 3, "what was done before is not enough");
    }

    #[test]
    fn who_panics_keeps_nobody_waiting() {
        let together: Together<u8> = Together::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| together.work(|| panic!("as it is meant to"))));
        assert!(panicked.is_err());
        assert_eq!(together.work(|| 1), 1);
    }
}
