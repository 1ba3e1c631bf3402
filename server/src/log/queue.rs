//! The queue of one log: what workers send to the thread that writes it.
//!
//! The logs of a thread share its channel, and each has its own room there. So a busy log cannot take the room of
//! another. Sending never waits.

use super::error::LogEvent;
use super::line_batch::LineBatch;
use super::loss_counter::LossCounter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Most bytes that may wait for one log.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// Bytes for all logs together, unless their minimum is more. A disk that hangs may fill all queues.
const ALL_QUEUES_BYTES: usize = 1 << 30;
/// Least bytes that may wait for one log. A worker sends up to 72 KiB at a time.
const QUEUE_BYTES_MIN: usize = 256 << 10;

/// Returns the most bytes that may wait for one of `logs` logs.
pub(crate) fn queue_bytes_max(logs: usize) -> usize {
    (ALL_QUEUES_BYTES / logs.max(1)).clamp(QUEUE_BYTES_MIN, QUEUE_BYTES_MAX)
}

/// A command to a log thread.
#[derive(Debug)]
pub(super) enum Command {
    /// Write this to a log of the thread.
    Write { log: usize, entry: LogEntry, reserved: Reserved },
    /// Check for a reopen request.
    Wake,
}

/// What one log is to write.
#[derive(Debug)]
pub(super) enum LogEntry {
    /// Whole lines of an access log.
    Lines(LineBatch),
    /// An event of an error log.
    Event(LogEvent),
}

impl LogEntry {
    /// Returns the bytes of memory that it uses.
    fn bytes(&self) -> usize {
        let content = match self {
            Self::Lines(batch) => batch.bytes(),
            Self::Event(event) => event.text.capacity() + event.line.capacity(),
        };
        size_of::<Command>() + content
    }
}

/// Room for waiting bytes of one log.
#[derive(Debug)]
struct Room {
    used: AtomicUsize,
    bytes_max: usize,
}

/// A part of a log's room, free again when the value is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    room: Arc<Room>,
    bytes: usize,
}

impl Reserved {
    fn new(room: &Arc<Room>, bytes: usize) -> Option<Self> {
        let add = |used: usize| used.checked_add(bytes).filter(|&used| used <= room.bytes_max);
        room.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Self { room: room.clone(), bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The workers' side of one log.
#[derive(Debug)]
pub(super) struct LogQueue {
    commands: Sender<Command>,
    /// Index among the logs of its thread.
    log: usize,
    room: Arc<Room>,
    pub(super) loss_counter: Arc<LossCounter>,
}

impl LogQueue {
    /// Sends an entry, or returns it if the queue has no room for it.
    #[must_use]
    pub(super) fn send(&self, entry: LogEntry) -> Option<LogEntry> {
        let Some(reserved) = Reserved::new(&self.room, entry.bytes()) else { return Some(entry) };
        // A thread ends only after its senders.
        let _ = self.commands.send(Command::Write { log: self.log, entry, reserved });
        None
    }
}

/// The senders' side of a log thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadHandle {
    commands: Sender<Command>,
    reopen_requested: Arc<AtomicBool>,
}

/// The receiving side of a log thread.
#[derive(Debug)]
pub(super) struct ThreadInbox {
    pub(super) commands: Receiver<Command>,
    reopen_requested: Arc<AtomicBool>,
}

/// Creates both sides of a log thread.
pub(super) fn thread_channel() -> (ThreadHandle, ThreadInbox) {
    let (sender, commands) = channel();
    let reopen_requested = Arc::<AtomicBool>::default();
    (
        ThreadHandle { commands: sender, reopen_requested: reopen_requested.clone() },
        ThreadInbox { commands, reopen_requested },
    )
}

impl ThreadHandle {
    /// Returns the queue of the thread's log number `log`, with room for `bytes_max`.
    pub(super) fn queue(&self, log: usize, bytes_max: usize, loss_counter: Arc<LossCounter>) -> LogQueue {
        let room = Arc::new(Room { used: AtomicUsize::new(0), bytes_max });
        LogQueue { commands: self.commands.clone(), log, room, loss_counter }
    }

    /// Requests that the thread reopens its logs before it writes to them again.
    pub(super) fn reopen(&self) {
        // One wake-up is enough for all requests that the thread has not seen.
        if !self.reopen_requested.swap(true, Ordering::Relaxed) {
            let _ = self.commands.send(Command::Wake);
        }
    }
}

impl ThreadInbox {
    /// Takes a reopen request.
    pub(super) fn take_reopen_request(&self) -> bool {
        self.reopen_requested.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_all_logs_together_is_bounded() {
        for logs in 1..=ALL_QUEUES_BYTES / QUEUE_BYTES_MIN {
            assert!(logs * queue_bytes_max(logs) <= ALL_QUEUES_BYTES, "{logs}");
        }
        assert_eq!([1, 32, 10_000].map(queue_bytes_max), [QUEUE_BYTES_MAX, QUEUE_BYTES_MAX, QUEUE_BYTES_MIN]);
    }
}
