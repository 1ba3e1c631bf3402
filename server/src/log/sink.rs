//! The thread that writes: access lines to standard output, errors to standard error.

use super::error::{ErrorLog, Event};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What workers hand on.
#[derive(Debug)]
pub(super) enum Message {
    /// Access lines, whole.
    Access(Vec<u8>),
    /// Something for the error log.
    Error(Event),
}

/// Messages that may wait to be written: at most 32 MiB of access lines.
const QUEUE_MAX: usize = 1024;
/// How long an error may wait for its second to be over, beyond that second.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// How long the end waits for what is left to be written: whoever reads the log and has
/// stopped to read it must not keep the program from ending.
const FINISH_TIME: Duration = Duration::from_secs(5);

/// A worker's end of the queue. Sending never waits.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    sender: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl Queue {
    /// Sends a message that stands for `lines` lines, or counts them as lost.
    pub(super) fn send(&self, message: Message, lines: u64) {
        if self.sender.try_send(message).is_err() {
            self.lost.fetch_add(lines, Ordering::Relaxed);
        }
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
    thread: JoinHandle<()>,
    access: Access,
}

impl Logs {
    /// Starts the thread that writes.
    pub(crate) fn start(access: Access) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let queue = Queue { sender, lost: lost.clone() };
        let thread = thread::Builder::new().name("selvedge-log".to_owned()).spawn(move || write(&receiver, &lost))?;
        Ok(Self { queue, thread, access })
    }

    pub(crate) fn wants_access(&self) -> bool {
        self.access == Access::Combined
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// Waits until what is left is written, within bounds. The workers have ended, so the
    /// queue ends with this end of it.
    pub(crate) fn finish(self) {
        let Self { queue, thread, .. } = self;
        drop(queue);
        let deadline = Instant::now() + FINISH_TIME;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn write(receiver: &Receiver<Message>, lost: &AtomicU64) {
    let mut errors = ErrorLog::default();
    let mut lines = Vec::new();
    let mut finished = false;
    while !finished {
        let message = if errors.is_waiting() {
            receiver.recv_timeout(FLUSH_INTERVAL)
        } else {
            receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        let now = Instant::now();
        match message {
            Ok(Message::Access(batch)) => to(&mut io::stdout().lock(), &batch, lost),
            Ok(Message::Error(event)) => errors.take(event, now, &mut lines),
            Err(RecvTimeoutError::Disconnected) => finished = true,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            let text = "log lines could not be written".to_owned();
            errors.take(
                Event {
                    level: "error",
                    key: "LogLinesLost",
                    name: "LogLinesLost",
                    text,
                    peer: None,
                    line: vec![],
                    count,
                },
                now,
                &mut lines,
            );
        }
        // At the end every second counts as over.
        errors.flush(if finished { now + Duration::from_secs(2) } else { now }, &mut lines);
        if !lines.is_empty() {
            let _ = io::stderr().lock().write_all(&lines);
            lines.clear();
        }
    }
}

/// Writes whole lines, or counts them as lost.
fn to(out: &mut impl Write, batch: &[u8], lost: &AtomicU64) {
    if out.write_all(batch).and_then(|()| out.flush()).is_err() {
        let count = batch.iter().filter(|&&b| b == b'\n').count();
        lost.fetch_add(count as u64, Ordering::Relaxed);
    }
}
