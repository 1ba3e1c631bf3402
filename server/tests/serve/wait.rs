//! Waiting for what will come, without guessing when.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on the slowest machine. Only a failure lasts as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Looks until there is something to see.
///
/// # Panics
/// When there is nothing after [`PATIENCE`].
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
