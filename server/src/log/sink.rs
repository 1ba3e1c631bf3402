//! The threads that write: one writes access lines to standard output, another errors to
//! standard error, so that neither waits for whoever reads the other.

use super::error::{ErrorLog, Event};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Batches of access lines that may wait to be written: at most 32 MiB.
const BATCHES_MAX: usize = 1024;
/// Errors that may wait to be written.
const ERRORS_MAX: usize = 1024;
/// How long an error may wait for its second to be over, beyond that second.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// How long the end waits for what is left to be written: whoever reads the log and has
/// stopped to read it must not keep the program from ending.
const FINISH_TIME: Duration = Duration::from_secs(5);

/// A worker's end of the logs. Sending never waits.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    access: SyncSender<Vec<u8>>,
    errors: SyncSender<Event>,
    /// Lines that were lost and could not even be reported yet.
    lost: Arc<AtomicU64>,
}

impl Queue {
    /// Hands on whole access lines, or reports them as lost.
    pub(super) fn access(&self, lines: Vec<u8>, count: u64) {
        if self.access.try_send(lines).is_err() {
            report_lost(&self.errors, &self.lost, count);
        }
    }

    /// Hands on something for the error log.
    pub(super) fn error(&self, event: Event) {
        if self.errors.try_send(event).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn report_lost(errors: &SyncSender<Event>, lost: &AtomicU64, count: u64) {
    if errors.try_send(lines_lost(count)).is_err() {
        lost.fetch_add(count, Ordering::Relaxed);
    }
}

fn lines_lost(count: u64) -> Event {
    Event {
        level: "error",
        key: "LogLinesLost",
        name: "LogLinesLost",
        text: "log lines could not be written".to_owned(),
        peer: None,
        line: Vec::new(),
        count,
    }
}

/// What the access log is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Lines in the Combined Log Format.
    Combined,
    /// Nothing.
    Off,
}

/// The logs of the program.
#[derive(Debug)]
pub(crate) struct Logs {
    queue: Queue,
    threads: [JoinHandle<()>; 2],
    access: Access,
}

impl Logs {
    /// Starts the threads that write.
    pub(crate) fn start(access: Access) -> io::Result<Self> {
        let (access_sender, batches) = sync_channel(BATCHES_MAX);
        let (error_sender, events) = sync_channel(ERRORS_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let queue = Queue { access: access_sender, errors: error_sender.clone(), lost: lost.clone() };
        let (errors, lost_here) = (error_sender, lost.clone());
        let threads = [
            thread::Builder::new()
                .name("selvedge-access".to_owned())
                .spawn(move || write_access(&batches, &errors, &lost_here))?,
            thread::Builder::new().name("selvedge-error".to_owned()).spawn(move || write_errors(&events, &lost))?,
        ];
        Ok(Self { queue, threads, access })
    }

    pub(crate) fn wants_access(&self) -> bool {
        self.access == Access::Combined
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// Waits until what is left is written, within bounds. The workers have ended, so the
    /// queues end with this end of them.
    pub(crate) fn finish(self) {
        let Self { queue, threads, .. } = self;
        drop(queue);
        let deadline = Instant::now() + FINISH_TIME;
        while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn write_access(batches: &Receiver<Vec<u8>>, errors: &SyncSender<Event>, lost: &AtomicU64) {
    while let Ok(batch) = batches.recv() {
        let mut out = io::stdout().lock();
        if out.write_all(&batch).and_then(|()| out.flush()).is_err() {
            let count = batch.iter().filter(|&&b| b == b'\n').count();
            report_lost(errors, lost, count as u64);
        }
    }
}

fn write_errors(events: &Receiver<Event>, lost: &AtomicU64) {
    let mut errors = ErrorLog::default();
    let mut lines = Vec::new();
    let mut finished = false;
    while !finished {
        let event = if errors.is_waiting() {
            events.recv_timeout(FLUSH_INTERVAL)
        } else {
            events.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        let now = Instant::now();
        match event {
            Ok(event) => errors.take(event, now, &mut lines),
            Err(RecvTimeoutError::Disconnected) => finished = true,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            errors.take(lines_lost(count), now, &mut lines);
        }
        // At the end every second counts as over.
        errors.flush(if finished { now + Duration::from_secs(2) } else { now }, &mut lines);
        if !lines.is_empty() {
            let _ = io::stderr().lock().write_all(&lines);
            lines.clear();
        }
    }
}
