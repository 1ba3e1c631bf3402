//! Shutdown of a serving process, within its timeout.

use super::{Parent, ServingProcess};
use crate::log::print_line;
use crate::process::link::FromChild;
use crate::process::lock::lock;
use crate::process::owned_file::OwnedFile;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a stopped process waits until replies to earlier callers are sent.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of heartbeats during a shutdown.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Time beyond the shutdown timeout for workers to end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

impl ServingProcess {
    /// Records that no connection is open, which ends the watch over the shutdown timeout.
    pub(crate) fn mark_drained(&self) {
        drop(lock(&self.busy).take());
    }

    /// Waits for last replies and removes owned files.
    pub(crate) fn finish(&self) {
        self.stop_listening();
        self.mark_drained();
        self.end_commands();
        // Callers get their replies, for example that this process was replaced.
        let deadline = Instant::now() + REPLY_TIMEOUT;
        while Arc::strong_count(&self.calls) > 1 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        if let Parent::None { files, .. } = &self.parent {
            files.iter().for_each(OwnedFile::remove);
        }
    }

    /// Sets the shutdown timeout.
    pub(crate) fn set_shutdown_timeout(&self, time: Duration) {
        *lock(&self.shutdown_timeout) = time;
    }

    /// Stops listening, and serves `status` only.
    pub(in crate::process) fn stop_listening(&self) {
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.run_shutdown();
        }
        match &self.parent {
            Parent::Supervisor { .. } => lock(&self.sockets).release_all(),
            Parent::None { .. } => lock(&self.sockets).close_all(),
        }
    }

    /// Sends heartbeats during the shutdown timeout, so that the supervisor does not kill this process. Then it kills
    /// this process if a worker hangs, because the supervisor may have ended.
    fn run_shutdown(&self) {
        let (busy, drained) = channel();
        *lock(&self.busy) = Some(busy);
        let link = match &self.parent {
            Parent::Supervisor { link, .. } => link.try_clone().ok(),
            Parent::None { notifier, .. } => {
                notifier.stopping();
                None
            }
        };
        let time = *lock(&self.shutdown_timeout) + SHUTDOWN_GRACE;
        // Without a thread, the supervisor's deadline applies.
        let _ = thread::Builder::new().name("selvedge-shutdown".to_owned()).spawn(move || {
            let send_heartbeat = || link.iter().for_each(|link| drop(link.send(&FromChild::Heartbeat)));
            if wait_until_drained(&drained, time, send_heartbeat) == DrainOutcome::TimedOut {
                print_line(&format!(
                    "selvedge: a worker hangs {} s after a stop; the process kills itself",
                    time.as_secs_f64()
                ));
                // SIGKILL, because an exit would wait for threads.
                let _ = kill_process(getpid(), Signal::KILL);
            }
        });
    }
}

/// The result of draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainOutcome {
    Drained,
    TimedOut,
}

/// Waits until draining has ended, at most for `timeout`, and sends heartbeats meanwhile.
fn wait_until_drained(drained: &Receiver<()>, timeout: Duration, send_heartbeat: impl Fn()) -> DrainOutcome {
    let deadline = Instant::now() + timeout;
    while let Err(RecvTimeoutError::Timeout) = drained.recv_timeout(HEARTBEAT_INTERVAL) {
        if Instant::now() >= deadline {
            return DrainOutcome::TimedOut;
        }
        send_heartbeat();
    }
    DrainOutcome::Drained
}
