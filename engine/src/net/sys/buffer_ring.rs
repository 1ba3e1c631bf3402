//! Provided buffers: memory that the kernel fills with received bytes.
//!
//! At any time the kernel or one [`ProvidedBuffer`] owns a buffer. A [`ProvidedBuffer`] is created only from a
//! completion. When it is dropped, the buffer returns to the kernel.

use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The provided buffers of one ring, and the queue that returns them to the kernel.
pub(super) struct BufferRing {
    queue: Pages,
    memory: Pages,
    count: u16,
    bytes_each: u32,
    /// Tail of the queue: the number of buffers given to the kernel, modulo 2^16.
    tail: Cell<u16>,
    /// Buffers that are in use by a [`ProvidedBuffer`].
    in_use: Cell<u16>,
}

/// Mapped anonymous memory.
struct Pages {
    start: NonNull<c_void>,
    len: usize,
}

impl Pages {
    fn map(len: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address, so no memory in use is replaced.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        NonNull::new(start).map(|start| Self { start, len }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped with this start and length. Their owner keeps no pointer and no provided
        // buffer longer than the pages.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok(), "pages are mapped when they are unmapped");
    }
}

impl BufferRing {
    /// Creates `count` buffers, a power of two, and gives all of them to the kernel.
    pub(super) fn new(count: u16, bytes_each: u32) -> io::Result<Rc<Self>> {
        debug_assert!(
            count.is_power_of_two(),
            "the number of buffers must be a power of two, since queue positions wrap"
        );
        let queue = Pages::map(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory = Pages::map(usize::from(count) * bytes_each as usize)?;
        let buffers = Rc::new(Self { queue, memory, count, bytes_each, tail: Cell::new(0), in_use: Cell::new(0) });
        (0..count).for_each(|id| buffers.return_to_kernel(id));
        Ok(buffers)
    }

    /// Returns the address of the queue and its number of entries.
    pub(super) fn queue(&self) -> (u64, u16) {
        (self.queue.start.as_ptr() as u64, self.count)
    }

    /// Returns the buffer that a completion names, with `len` received bytes. The kernel names a buffer once for
    /// each time that it was given to it.
    pub(super) fn claim(self: &Rc<Self>, id: u16, len: u32) -> ProvidedBuffer {
        debug_assert!(id < self.count && len <= self.bytes_each, "the kernel returned an unknown buffer");
        self.in_use.set(self.in_use.get() + 1);
        ProvidedBuffer { buffers: self.clone(), id, at: 0, end: len.min(self.bytes_each) }
    }

    fn buffer_start(&self, id: u16) -> NonNull<u8> {
        let offset = usize::from(id % self.count) * self.bytes_each as usize;
        // SAFETY: the memory holds `count` buffers of this size.
        unsafe { self.memory.start.cast::<u8>().add(offset) }
    }

    /// Gives a buffer to the kernel. It must not be in use.
    fn return_to_kernel(&self, id: u16) {
        let entries = self.queue.start.cast::<BufRingEntry>();
        let index = usize::from(self.tail.get() % self.count);
        self.tail.set(self.tail.get().wrapping_add(1));
        // SAFETY: the queue has `count` entries. The kernel reads this entry only after the tail has passed it. It
        // no longer uses the previous value of the entry: each buffer is returned once for each time that the
        // kernel filled it. An entry of zeros, as in fresh pages, is valid.
        let entry = unsafe { entries.add(index).as_mut() };
        entry.set_addr(self.buffer_start(id).as_ptr() as u64);
        entry.set_len(self.bytes_each);
        entry.set_bid(id);
        // SAFETY: the tail lies within the first entry of the queue and is aligned. The kernel may read it at any
        // time, which an atomic permits.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries.as_ptr()).cast_mut()) };
        tail.store(self.tail.get(), Ordering::Release);
    }
}

/// Received bytes in a provided buffer. Dropping it returns the buffer to the kernel.
pub(crate) struct ProvidedBuffer {
    buffers: Rc<BufferRing>,
    id: u16,
    at: u32,
    end: u32,
}

impl ProvidedBuffer {
    /// Returns the unread bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        let start = self.buffers.buffer_start(self.id);
        // SAFETY: the kernel has filled the buffer up to `end`. It owns the buffer again only after this value is
        // dropped, which outlives the borrow. The memory lives as long as this value.
        unsafe { std::slice::from_raw_parts(start.as_ptr().add(self.at as usize), (self.end - self.at) as usize) }
    }

    /// Returns whether at most half of the buffers are in use, so that this one need not be returned soon.
    pub(crate) fn is_ring_mostly_free(&self) -> bool {
        self.buffers.in_use.get() <= self.buffers.count / 2
    }

    /// Skips the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.at = self.end.min(self.at.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)));
    }
}

impl Drop for ProvidedBuffer {
    fn drop(&mut self) {
        self.buffers.in_use.set(self.buffers.in_use.get() - 1);
        self.buffers.return_to_kernel(self.id);
    }
}
