//! Reads files through the ring, so that no worker waits for a disk.

use crate::limits::PREFETCH_BYTES;
use crate::net::sys::ring::{Op, Slot};
use crate::net::uring::read_state::ReadState;
use crate::net::uring::worker_ring::{SlotState, Uring};
use rustix::io::Errno;
use std::fs::File;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Poll;
use tokio::sync::OwnedSemaphorePermit;

/// A file in the ring. It is removed when this value is dropped and the kernel no longer reads it.
struct RingFile {
    uring: Rc<Uring>,
    slot: Slot,
    permit: Option<OwnedSemaphorePermit>,
}

impl RingFile {
    fn new(uring: Rc<Uring>, file: OwnedFd, permit: OwnedSemaphorePermit) -> Self {
        let slot = uring.with_core(|core| core.insert(file, SlotState::FileRead(ReadState::default())));
        Self { uring, slot, permit: Some(permit) }
    }

    /// Reads up to `count` bytes into `memory`, which the ring owns until the read completes.
    async fn read(&self, memory: Vec<u8>, count: usize, at: u64) -> (Vec<u8>, Result<usize, Errno>) {
        self.uring.with_core(|core| core.ring.submit_read(self.slot, memory, count, at));
        poll_fn(|cx| {
            self.uring.with_core(|core| {
                let SlotState::FileRead(reading) = &mut core.states[self.slot as usize] else { return Poll::Pending };
                match reading.result.take() {
                    Some(result) => Poll::Ready(result),
                    None => {
                        reading.waiter.set(cx);
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
        self.uring.with_core(|core| match &mut core.states[self.slot as usize] {
            SlotState::FileRead(reading) if core.ring.is_in_flight(self.slot, Op::Read) => {
                reading.abandoned_permit = self.permit.take();
                core.ring.cancel(self.slot, Op::Read);
            }
            _ => core.close(self.slot),
        });
    }
}

impl Uring {
    /// Reads part of a file into the page cache. Returns `None` if it cannot be read.
    pub(crate) async fn prefetch(self: &Rc<Self>, file: &File, at: u64, len: u64) -> Option<()> {
        let permit = self.reads.clone().acquire_owned().await.ok()?;
        let file = RingFile::new(self.clone(), file.try_clone().ok()?.into(), permit);
        let mut memory = vec![0; PREFETCH_BYTES.min(usize::try_from(len).unwrap_or(usize::MAX))];
        let mut read = 0;
        while read < len {
            let count = memory.len().min(usize::try_from(len - read).unwrap_or(usize::MAX));
            let result;
            (memory, result) = file.read(memory, count, at + read).await;
            match result {
                // The file was truncated. The send notices that, too.
                Ok(0) => return Some(()),
                Ok(count) => read += count as u64,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return None,
            }
        }
        Some(())
    }
}
