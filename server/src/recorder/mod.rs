//! The flight recorder: the last requests of each worker in memory of a fixed size, always on.
//!
//! Each worker writes records of a fixed size into its own ring, without a lock and without an allocation. Any thread may
//! read the rings meanwhile, and skips the record that is being written. The memory is a file without a name, so the
//! supervisor can still read it when the serving process has ended. This module never names the configuration, the log or
//! a socket.

mod dump;
mod filter;
mod labels;
mod layout;
mod reader;
mod record;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use dump::{read_dump, write_dump};
pub(crate) use filter::{LastQuery, StatusRange, request_id};
pub(crate) use layout::RING_BYTES;
pub(crate) use reader::{ranks_since, record_of, select};
pub(crate) use record::{RecordRank, RequestRecord};
#[cfg(test)]
pub(crate) use tests::{recorder_with, sample_record};
pub(crate) use writer::{RecorderHandle, RouteNames};

use labels::LabelWriter;
use layout::{FORMAT, HEADER_FORMAT, HEADER_RINGS, words_for};
use selvedge::SharedMemory;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

thread_local! {
    /// The recorder that this thread writes to, and its ring there.
    static OWN_RING: Cell<(u64, usize)> = const { Cell::new((0, usize::MAX)) };
}

/// The recorder of a process.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Distinguishes the recorders of a process.
    id: u64,
    memory: SharedMemory,
    rings: usize,
    /// Rings that a thread has.
    assigned: AtomicUsize,
    labels: LabelWriter,
}

impl Recorder {
    /// Creates the recorder of a number of workers. Memory is used as requests arrive.
    ///
    /// # Errors
    /// If the system provides no memory.
    pub(crate) fn new(workers: usize) -> io::Result<Self> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let memory = SharedMemory::new(words_for(workers))?;
        memory[HEADER_RINGS].store(workers as u64, Ordering::Relaxed);
        memory[HEADER_FORMAT].store(FORMAT, Ordering::Release);
        Ok(Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            memory,
            rings: workers,
            assigned: AtomicUsize::new(0),
            labels: LabelWriter::default(),
        })
    }

    /// Returns the numbers of the recorder, for readers.
    pub(crate) fn numbers(&self) -> &[AtomicU64] {
        &self.memory
    }

    /// Returns the number of a text, which records can name; 0 if the memory for texts is full.
    fn label(&self, text: &str) -> u32 {
        self.labels.number_of(text, &self.memory)
    }

    /// Returns the ring of the calling thread. The first call of a thread takes one; `None` if all are taken.
    #[inline]
    fn own_ring(&self) -> Option<usize> {
        let (id, ring) = OWN_RING.get();
        let ring = if id == self.id { ring } else { self.take_ring() };
        (ring < self.rings).then_some(ring)
    }

    #[cold]
    fn take_ring(&self) -> usize {
        let ring = self.assigned.fetch_add(1, Ordering::Relaxed);
        OWN_RING.set((self.id, ring));
        ring
    }
}

impl AsFd for Recorder {
    /// Returns the file of the memory.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}
