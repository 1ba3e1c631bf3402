//! Files that are read by the ring, so that nobody waits for a disk.

use super::{State, Uring, Waiting, Woken};
use crate::limits::DISK_READ_BYTES;
use crate::net::sys::ring::{Kind, Number};
use rustix::io::Errno;
use std::fs::File;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Poll;
use tokio::sync::OwnedSemaphorePermit;

/// What is known of a file that is being read.
#[derive(Default)]
pub(super) struct Reading {
    /// The memory comes back with how many bytes are in it.
    done: Option<(Vec<u8>, Result<usize, Errno>)>,
    waiting: Waiting,
    /// Nobody waits any more. Until the kernel is done with the memory, its turn is not another's.
    abandoned: Option<OwnedSemaphorePermit>,
}

impl Reading {
    /// Notes what was read.
    pub(super) fn read(&mut self, memory: Vec<u8>, read: Result<usize, Errno>) -> Woken {
        self.done = Some((memory, read));
        [self.waiting.end(), None]
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.is_some()
    }
}

/// A file in the ring, which leaves it with this, or when the kernel has read.
struct RingFile {
    uring: Rc<Uring>,
    number: Number,
    turn: Option<OwnedSemaphorePermit>,
}

impl RingFile {
    fn new(uring: Rc<Uring>, file: OwnedFd, turn: OwnedSemaphorePermit) -> Self {
        let number = uring.with(|core| core.enter(file, State::Reading(Reading::default())));
        Self { uring, number, turn: Some(turn) }
    }

    /// Reads up to `count` bytes into memory that is lent for as long.
    async fn read(&self, memory: Vec<u8>, count: usize, at: u64) -> (Vec<u8>, Result<usize, Errno>) {
        self.uring.with(|core| core.ring.read(self.number, memory, count, at));
        poll_fn(|cx| {
            self.uring.with(|core| {
                let State::Reading(reading) = &mut core.states[self.number as usize] else { return Poll::Pending };
                match reading.done.take() {
                    Some(done) => Poll::Ready(done),
                    None => {
                        reading.waiting.begin(cx);
                        Poll::Pending
                    }
                }
            })
        })
        .await
    }
}

impl Drop for RingFile {
    fn drop(&mut self) {
        self.uring.with(|core| match &mut core.states[self.number as usize] {
            State::Reading(reading) if core.ring.is_in_flight(self.number, Kind::Read) => {
                reading.abandoned = self.turn.take();
                core.ring.cancel(self.number, Kind::Read);
            }
            _ => core.end(self.number),
        });
    }
}

impl Uring {
    /// Reads part of a file, so that it is in the system's memory. `None` when it cannot be read.
    pub(super) async fn bring_into_memory(self: &Rc<Self>, file: &File, at: u64, len: u64) -> Option<()> {
        let turn = self.reads.clone().acquire_owned().await.ok()?;
        let file = RingFile::new(self.clone(), file.try_clone().ok()?.into(), turn);
        let mut memory = vec![0; DISK_READ_BYTES.min(usize::try_from(len).unwrap_or(usize::MAX))];
        let mut read = 0;
        while read < len {
            let count = memory.len().min(usize::try_from(len - read).unwrap_or(usize::MAX));
            let result;
            (memory, result) = file.read(memory, count, at + read).await;
            match result {
                // Shorter than it was: the send will see it, too.
                Ok(0) => return Some(()),
                Ok(count) => read += count as u64,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return None,
            }
        }
        Some(())
    }
}
