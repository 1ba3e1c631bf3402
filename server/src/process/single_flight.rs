//! Single flight: concurrent callers share one execution. Callers that arrive during an execution share the next one.

use super::lock::lock;
use std::sync::{Condvar, Mutex, PoisonError};

/// Shares executions between concurrent callers.
#[derive(Debug)]
pub(super) struct SingleFlight<T> {
    state: Mutex<FlightState<T>>,
    ended: Condvar,
}

#[derive(Debug)]
struct FlightState<T> {
    /// Number of executions started.
    started: u64,
    phase: FlightPhase,
    /// Callers that wait for an execution to end.
    waiting: usize,
    /// Result of the last execution, and its number.
    last: Option<(u64, T)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlightPhase {
    Idle,
    Running,
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        let state = FlightState { started: 0, phase: FlightPhase::Idle, waiting: 0, last: None };
        Self { state: Mutex::new(state), ended: Condvar::new() }
    }
}

impl<T: Clone> SingleFlight<T> {
    /// Runs the work, or waits for an execution that starts after this call. Returns its result.
    pub(super) fn run(&self, work: impl FnOnce() -> T) -> T {
        let mut state = lock(&self.state);
        // The current execution may have started before the change that the caller reacts to, so wait for the next one.
        let first_valid = state.started + 1;
        while state.phase == FlightPhase::Running {
            state.waiting += 1;
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
            if let Some((number, result)) = &state.last
                && *number >= first_valid
            {
                return result.clone();
            }
        }
        state.started += 1;
        state.phase = FlightPhase::Running;
        let number = state.started;
        drop(state);
        // Ends the execution even if the work panics; then the next caller runs it.
        let flight_guard = FlightGuard(self);
        let result = work();
        let mut state = lock(&self.state);
        if state.waiting > 0 {
            state.last = Some((number, result.clone()));
        }
        drop(state);
        drop(flight_guard);
        result
    }
}

/// Ends the execution when dropped.
struct FlightGuard<'a, T>(&'a SingleFlight<T>);

impl<T> Drop for FlightGuard<'_, T> {
    fn drop(&mut self) {
        lock(&self.0.state).phase = FlightPhase::Idle;
        self.0.ended.notify_all();
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
    fn callers_during_an_execution_share_the_next_one() {
        let flight = &SingleFlight::default();
        let (go, wait) = channel::<()>();
        let (began, begins) = channel();
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                flight.run(|| {
                    began.send(()).unwrap();
                    wait.recv().unwrap();
                    1
                })
            });
            begins.recv().unwrap();
            let second = scope.spawn(|| flight.run(|| 2));
            let third = scope.spawn(|| flight.run(|| 2));
            while lock(&flight.state).waiting < 2 {
                thread::sleep(Duration::from_millis(1));
            }
            go.send(()).unwrap();
            let results = [first, second, third].map(|caller| caller.join().unwrap());
            assert_eq!(results, [1, 2, 2], "no caller gets an execution that started before its call");
        });
        assert_eq!(lock(&flight.state).started, 2);
        assert_eq!(flight.run(|| 3), 3, "an earlier result is not reused");
    }

    #[test]
    fn a_panic_does_not_block_other_callers() {
        let flight: SingleFlight<u8> = SingleFlight::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| flight.run(|| panic!("requested by the test"))));
        assert!(panicked.is_err());
        assert_eq!(flight.run(|| 1), 1);
    }
}
