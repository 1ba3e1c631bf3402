//! Files that are read by the ring, so that nobody waits for a disk.

use super::{State, Uring, Waiting, Woken};
use crate::limits::DISK_READ_BYTES;
use crate::net::sys::ring::Number;
use rustix::io::Errno;
use std::fs::File;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Poll;

/// What is known of a file that is being read.
#[derive(Default)]
pub(super) struct Reading {
    /// The memory comes back with how many bytes are in it.
    done: Option<(Vec<u8>, Result<usize, Errno>)>,
    waiting: Waiting,
}

impl Reading {
    /// Notes what was read.
    pub(super) fn read(&mut self, memory: Vec<u8>, read: Result<usize, Errno>) -> Woken {
        self.done = Some((memory, read));
        [self.waiting.end(), None]
    }
}

/// A file in the ring, which leaves it with this.
struct RingFile {
    uring: Rc<Uring>,
    number: Number,
}

impl RingFile {
    fn new(uring: Rc<Uring>, file: OwnedFd) -> Self {
        let number = uring.with(|core| core.enter(file, State::Reading(Reading::default())));
        Self { uring, number }
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
        self.uring.with(|core| {
            core.leave(self.number);
            core.ring.let_go(self.number);
        });
    }
}

impl Uring {
    /// Reads part of a file, so that it is in the system's memory. `None` when it cannot be read.
    pub(super) async fn bring_into_memory(self: &Rc<Self>, file: &File, at: u64, len: u64) -> Option<()> {
        let _turn = self.reads.acquire().await.ok()?;
        let file = RingFile::new(self.clone(), file.try_clone().ok()?.into());
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
