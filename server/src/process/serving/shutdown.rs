//! Shutdown of a serving process, within its timeout. One that hands over ends with the last response that outlives it.

use super::shutdown_watch::{CountLasting, DrainOutcome};
use super::{Parent, ServingProcess};
use crate::log::print_line;
use crate::process::link::FromChild;
use crate::process::lock::lock;
use crate::process::owned_file::OwnedFile;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// How long a stopped process waits until replies to earlier callers are sent.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time beyond the shutdown timeout for workers to end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

impl ServingProcess {
    /// Records that no connection is open, which ends the watch over the shutdown timeout.
    pub(crate) fn mark_drained(&self) {
        drop(lock(&self.busy).take());
    }

    /// Waits for last replies and removes owned files.
    pub(crate) fn finish(&self) {
        self.stop_listening(None);
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

    /// Stops listening, serves `status` only, and begins the shutdown timeout. With `count_lasting`, it does not end while
    /// responses last.
    pub(in crate::process) fn stop_listening(&self, count_lasting: Option<CountLasting>) {
        let time = *lock(&self.shutdown_timeout) + SHUTDOWN_GRACE;
        self.shutdown_watch.begin(time, count_lasting);
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.watch_shutdown(time);
        }
        match &self.parent {
            Parent::Supervisor { .. } => lock(&self.sockets).release_all(),
            Parent::None { .. } => lock(&self.sockets).close_all(),
        }
    }

    /// Sends heartbeats during the shutdown timeout, so that the supervisor does not kill this process. Then it kills
    /// this process if a worker hangs, because the supervisor may have ended.
    fn watch_shutdown(&self, time: Duration) {
        let (busy, drained) = channel();
        *lock(&self.busy) = Some(busy);
        let link = match &self.parent {
            Parent::Supervisor { link, .. } => link.try_clone().ok(),
            Parent::None { notifier, .. } => {
                notifier.stopping();
                None
            }
        };
        let watch = self.shutdown_watch.clone();
        // Without a thread, the supervisor's deadline applies.
        let _ = thread::Builder::new().name("selvedge-shutdown".to_owned()).spawn(move || {
            let send_heartbeat = || link.iter().for_each(|link| drop(link.send(&FromChild::Heartbeat)));
            if watch.wait_until_drained(&drained, send_heartbeat) == DrainOutcome::TimedOut {
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
