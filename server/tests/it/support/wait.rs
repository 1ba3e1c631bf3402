//! Polling for a condition, in place of fixed waits.

use std::thread;
use std::time::{Duration, Instant};

/// The maximum time that a step of a test may take on a slow machine.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Polls until `poll` returns a value, and returns it.
///
/// # Panics
/// If `poll` returns no value within [`WAIT_TIMEOUT`].
pub(crate) fn wait_until<T>(condition: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < deadline, "timed out waiting until {condition}");
        thread::sleep(Duration::from_millis(2));
    }
}
