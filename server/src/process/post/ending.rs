//! The end of a serving process, which has its time.

use super::{Chain, Post, guard};
use crate::log::say;
use crate::process::claimed::OwnFile;
use crate::process::link::Asked;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process that has stopped goes on to answer whoever has asked before.
const LAST_ANSWERS_TIME: Duration = Duration::from_secs(5);
/// How often a process that stops says that it is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// How much longer than what runs the workers may take to end.
const LATE_TIME: Duration = Duration::from_secs(5);

impl Post {
    /// Says that no connection is left. What comes after that is not worth waiting for long.
    pub(crate) fn has_drained(&self) {
        drop(guard(&self.busy).take());
    }

    /// The last words of a process that has stopped.
    pub(crate) fn finish(&self) {
        self.leave_all();
        self.has_drained();
        self.end_orders();
        // Whoever gave an order gets its answer, such as that this process was replaced.
        let deadline = Instant::now() + LAST_ANSWERS_TIME;
        while Arc::strong_count(&self.answering) > 1 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        if let Chain::Alone { files, .. } = &self.chain {
            files.iter().for_each(OwnFile::remove);
        }
    }

    /// Says how long what runs may take when this process stops, from now on.
    pub(crate) fn drains_within(&self, time: Duration) {
        *guard(&self.drain_time) = time;
    }

    /// Listens nowhere any more but where whoever serves still does, and is asked only how it is.
    pub(super) fn leave_all(&self) {
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.see_to_the_end();
        }
        match &self.chain {
            Chain::Supervised { .. } => guard(&self.sockets).let_go(),
            Chain::Alone { .. } => guard(&self.sockets).end(),
        }
    }

    /// Says that it is alive for as long as what runs may take, so that nobody takes it for hanging;
    /// a worker that hangs then does not keep it any longer. There may be nobody else to end it: the
    /// supervisor may be gone.
    fn see_to_the_end(&self) {
        let (busy, is_busy) = channel();
        *guard(&self.busy) = Some(busy);
        let link = match &self.chain {
            Chain::Supervised { link, .. } => link.try_clone().ok(),
            Chain::Alone { notifier, .. } => {
                notifier.stopping();
                None
            }
        };
        let time = *guard(&self.drain_time) + LATE_TIME;
        // One that cannot have a thread has the time that the supervisor knows of.
        let _ = thread::Builder::new().name("selvedge-ending".to_owned()).spawn(move || {
            let say_alive = || link.iter().for_each(|link| drop(link.send(&Asked::Alive)));
            if wait_for_end(&is_busy, time, say_alive) == Drained::Never {
                say(&format!(
                    "selvedge: a worker hangs, {} s after a stop: the process ends itself",
                    time.as_secs_f64()
                ));
                // Nothing that has to be waited for, as at an exit.
                let _ = kill_process(getpid(), Signal::KILL);
            }
        });
    }
}

/// What became of what ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drained {
    InTime,
    Never,
}

/// Waits until nobody is busy, at most for a time.
fn wait_for_end(is_busy: &Receiver<()>, at_most: Duration, say_alive: impl Fn()) -> Drained {
    let deadline = Instant::now() + at_most;
    while let Err(RecvTimeoutError::Timeout) = is_busy.recv_timeout(ALIVE_EVERY) {
        if Instant::now() >= deadline {
            return Drained::Never;
        }
        say_alive();
    }
    Drained::InTime
}
