//! The ring's own buffers: the kernel fills one when bytes have come, and whoever reads those
//! bytes has it on lease.
//!
//! A buffer belongs to the kernel or to one [`Lease`], never to both: a lease is made only of a
//! completion, and the kernel has the buffer again only when the lease is dropped.

use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The buffers of one ring, and the queue in which the kernel is given them.
pub(super) struct Buffers {
    queue: Pages,
    memory: Pages,
    count: u16,
    bytes_each: u32,
    /// How many were ever given to the kernel.
    given: Cell<u16>,
    /// How many are on lease.
    leased: Cell<u16>,
}

/// Memory of whole pages.
struct Pages {
    start: NonNull<c_void>,
    len: usize,
}

impl Pages {
    fn map(len: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the place, so nothing that is in use is replaced.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        NonNull::new(start).map(|start| Self { start, len }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: they were mapped with this start and length, and whoever owns them keeps no
        // pointer and no lease longer than them.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok(), "pages are unmapped once");
    }
}

impl Buffers {
    /// A number of buffers, a power of two, all of them the kernel's.
    pub(super) fn new(count: u16, bytes_each: u32) -> io::Result<Rc<Self>> {
        debug_assert!(count.is_power_of_two(), "positions in the queue wrap");
        let queue = Pages::map(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory = Pages::map(usize::from(count) * bytes_each as usize)?;
        let buffers = Rc::new(Self { queue, memory, count, bytes_each, given: Cell::new(0), leased: Cell::new(0) });
        (0..count).for_each(|number| buffers.give(number));
        Ok(buffers)
    }

    /// Where the queue is, and how many it has room for.
    pub(super) fn queue(&self) -> (u64, u16) {
        (self.queue.start.as_ptr() as u64, self.count)
    }

    /// What the kernel has put into a buffer, as a completion says it. There is one such lease
    /// for each time that the kernel was given the buffer.
    pub(super) fn lease(self: &Rc<Self>, number: u16, len: u32) -> Lease {
        debug_assert!(number < self.count && len <= self.bytes_each, "the kernel names what it was given");
        self.leased.set(self.leased.get() + 1);
        Lease { buffers: self.clone(), number, at: 0, end: len.min(self.bytes_each) }
    }

    fn place(&self, number: u16) -> NonNull<u8> {
        let offset = usize::from(number % self.count) * self.bytes_each as usize;
        // SAFETY: there are `count` buffers of this size in the memory.
        unsafe { self.memory.start.cast::<u8>().add(offset) }
    }

    /// Gives the kernel a buffer that nobody has on lease.
    fn give(&self, number: u16) {
        let entries = self.queue.start.cast::<BufRingEntry>();
        let position = usize::from(self.given.get() % self.count);
        self.given.set(self.given.get().wrapping_add(1));
        // SAFETY: the queue has `count` entries. The kernel reads this one only after the tail has
        // moved behind it, and is done with what stood there: a buffer comes here once for each
        // time that it was taken out. Zeros, as fresh pages have them, are an entry, too.
        let entry = unsafe { entries.add(position).as_mut() };
        entry.set_addr(self.place(number).as_ptr() as u64);
        entry.set_len(self.bytes_each);
        entry.set_bid(number);
        // SAFETY: the tail lies within the first entry of the queue, is aligned, and is read by the
        // kernel at any time, which an atomic allows.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries.as_ptr()).cast_mut()) };
        tail.store(self.given.get(), Ordering::Release);
    }
}

/// Bytes that have come, in one of the ring's buffers. Dropping it gives the buffer back.
pub(crate) struct Lease {
    buffers: Rc<Buffers>,
    number: u16,
    at: u32,
    end: u32,
}

impl Lease {
    /// The bytes that were not consumed.
    pub(crate) fn bytes(&self) -> &[u8] {
        let start = self.buffers.place(self.number);
        // SAFETY: the kernel has filled the buffer up to `end` and does not have it again before the
        // lease is dropped, which outlives the borrow. The memory lives as long as the lease.
        unsafe { std::slice::from_raw_parts(start.as_ptr().add(self.at as usize), (self.end - self.at) as usize) }
    }

    /// Whether so few are on lease that one more need not be given back soon.
    pub(crate) fn is_of_few(&self) -> bool {
        self.buffers.leased.get() <= self.buffers.count / 2
    }

    /// Forgets the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.at = self.end.min(self.at.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.buffers.leased.set(self.buffers.leased.get() - 1);
        self.buffers.give(self.number);
    }
}
