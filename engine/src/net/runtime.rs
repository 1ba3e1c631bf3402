//! The runtime of a worker, and its threads for work that blocks.

use crate::limits::{BLOCKING_THREADS_MAX, SWEEP_INTERVAL};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
pub(crate) use tokio::task::{spawn_local, yield_now};
pub(crate) use tokio::time::Interval;

/// Creates the runtime of one worker.
pub(crate) fn runtime() -> io::Result<tokio::runtime::LocalRuntime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("selvedge-disk")
        .on_thread_start(lower_thread_priority)
        .build_local(tokio::runtime::LocalOptions::default())
}

/// Niceness of blocking threads: next to a worker on one core, they get about a tenth of its CPU time.
const BLOCKING_THREAD_NICENESS: i32 = 10;

/// Lowers the CPU priority of this thread below the workers, so that work for one client does not delay the
/// others.
fn lower_thread_priority() {
    // Optional: the server also works without it.
    let _ = rustix::process::setpriority_process(None, BLOCKING_THREAD_NICENESS);
}

/// Returns the times of the sweeps of a table, the first one now.
pub(crate) fn sweeps() -> Interval {
    let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
    sweeps.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    sweeps
}

/// The deadline of a wait that most often ends before it.
#[derive(Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    is_running: bool,
}

impl Timer {
    /// Starts the wait, unless it has started, and completes when `time` has passed since then.
    pub(crate) fn poll_after(&mut self, time: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        if !std::mem::replace(&mut self.is_running, true) {
            sleep.as_mut().reset(tokio::time::Instant::now() + time);
        }
        sleep.as_mut().poll(cx)
    }

    /// Ends the wait.
    pub(crate) fn stop(&mut self) {
        self.is_running = false;
    }
}

/// Waits for a duration.
pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Runs `work` on a blocking thread, where it may wait for a disk or compute for a long time.
///
/// Code in a handler runs on the worker's thread. While it computes or blocks without `await` (a file, a lock, a
/// database), the worker serves no other connection. Rule of thumb: move work that takes more than 0.1 ms to a
/// blocking thread. Each worker has at most 8 of them. The queue for them is not bounded.
///
/// For a multi-threaded runtime, create one in the application. Handlers may use its handle
/// (`handle.spawn(…).await`).
///
/// Returns `None` if the work panicked or the server is stopping.
pub async fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
