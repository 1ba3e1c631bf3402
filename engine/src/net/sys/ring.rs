//! The io_uring ring: the operations in flight, and the memory and descriptors that they use.
//!
//! Everything that an operation uses is moved into the ring and returned with the completion. A descriptor is
//! closed, and a buffer is reused, only when no operation uses it.

use super::buffer_ring::{BufferRing, ProvidedBuffer};
use crate::buffer::Buffer;
use crate::limits::{RING_COPY_BYTES, RING_POOLED_COPIES_MAX};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The sizes of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Operations submitted at once.
    pub(crate) submissions: u32,
    /// Completions in the queue, before the kernel stores further ones separately.
    pub(crate) completions: u32,
    /// Provided buffers, a power of two.
    pub(crate) buffers: u16,
    /// Size of each in bytes.
    pub(crate) buffer_bytes: u32,
}

/// An operation on a descriptor. At most one of each can be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    /// A multishot receive into provided buffers.
    Receive,
    /// A send of a buffer.
    Send,
    /// A wait until the socket is readable.
    Readable,
    /// A wait until the socket is writable.
    Writable,
    /// A wait until the peer shuts down its sending side.
    PeerShutdown,
    /// A read of a file into memory of this process.
    Read,
}

impl Op {
    /// All operations, by their numbers.
    const ALL: [Self; 6] = [Self::Receive, Self::Send, Self::Readable, Self::Writable, Self::PeerShutdown, Self::Read];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Index of a descriptor in the ring.
pub(crate) type Slot = u32;

/// User data of cancellations and closes, whose completions are ignored.
const NO_COMPLETION: u64 = u64::MAX;
/// The ring's only group of provided buffers.
const GROUP: u16 = 0;
/// How long dropping a ring waits for the kernel to complete an operation, per attempt.
const DRAIN_TIME: Duration = Duration::from_millis(50);
/// Attempts in a row without a completion before dropping a ring gives up.
const DRAIN_TRIES_MAX: u32 = 20;

/// A descriptor and its operations in flight.
struct FdEntry {
    fd: OwnedFd,
    /// The bits of the operations in flight.
    in_flight: u8,
    buffer: OpBuffer,
    state: FdState,
}

/// Memory that the kernel uses for an operation.
#[derive(Default)]
enum OpBuffer {
    #[default]
    None,
    /// A buffer to send, and the index of its first unsent byte.
    Sending(Buffer, usize),
    /// A copy of the bytes to send, and its length.
    SendingCopy(Box<[u8]>, usize),
    /// Memory to read into.
    Reading(Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FdState {
    Open,
    /// Closed as soon as no operation is in flight.
    Closing,
}

/// Whether the kernel signals completions through the eventfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventfdState {
    Enabled,
    Disabled,
}

/// A completed operation.
pub(crate) struct Completion {
    pub(crate) slot: Slot,
    pub(crate) outcome: Outcome,
    pub(crate) multishot: Multishot,
}

/// Whether more completions of the operation follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Multishot {
    /// More completions follow.
    More,
    /// This was the last completion.
    Ended,
}

/// The result of an operation.
pub(crate) enum Outcome {
    /// Received bytes; `None` at the end of the stream.
    Received(Result<Option<ProvidedBuffer>, Errno>),
    /// The unsent rest: a buffer and the index of its first unsent byte.
    Sent(Option<(Buffer, usize)>, Result<(), Errno>),
    /// The memory, and the number of bytes read into it.
    Read(Vec<u8>, Result<usize, Errno>),
    /// The awaited readiness has occurred, or the wait failed.
    Ready(Op),
}

/// The ring of one thread.
pub(crate) struct Ring {
    uring: IoUring,
    buffers: Rc<BufferRing>,
    fds: Vec<Option<FdEntry>>,
    free: Vec<Slot>,
    /// Operations in flight, without those whose completions are ignored.
    in_flight: usize,
    /// Operations that did not fit into the submission queue.
    overflow: VecDeque<squeue::Entry>,
    /// Whether operations are queued and not submitted.
    has_unsubmitted: bool,
    /// Pooled memory for copies of output.
    pooled_copies: Vec<Box<[u8]>>,
    #[cfg(test)]
    pub(crate) faults: super::faults::Faults,
}

impl Ring {
    /// Creates a ring and its eventfd, which signals completions.
    ///
    /// # Errors
    /// When the kernel does not support the required operations or forbids them, or memory runs out.
    pub(crate) fn new(sizes: Sizes) -> io::Result<(Self, OwnedFd)> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_taskrun_flag()
            .setup_cqsize(sizes.completions)
            .dontfork()
            .build(sizes.submissions)?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        let required = [
            opcode::RecvMulti::CODE,
            opcode::Send::CODE,
            opcode::PollAdd::CODE,
            opcode::Read::CODE,
            opcode::AsyncCancel::CODE,
            opcode::Close::CODE,
        ];
        if !required.iter().all(|&code| probe.is_supported(code)) || !uring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        uring.submitter().register_eventfd(event.as_raw_fd())?;
        let buffers = BufferRing::new(sizes.buffers, sizes.buffer_bytes)?;
        let (queue, count) = buffers.queue();
        // SAFETY: the queue consists of whole pages with `count` entries. It lives until the ring is dropped,
        // which unregisters it first.
        unsafe { uring.submitter().register_buf_ring_with_flags(queue, count, GROUP, 0) }?;
        let ring = Self {
            uring,
            buffers,
            fds: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            overflow: VecDeque::new(),
            has_unsubmitted: false,
            pooled_copies: Vec::new(),
            #[cfg(test)]
            faults: super::faults::Faults::default(),
        };
        Ok((ring, event))
    }

    /// Registers a descriptor. The ring owns it.
    pub(crate) fn register(&mut self, fd: OwnedFd) -> Slot {
        let fd_entry = FdEntry { fd, in_flight: 0, buffer: OpBuffer::None, state: FdState::Open };
        if let Some(slot) = self.free.pop() {
            self.fds[slot as usize] = Some(fd_entry);
            return slot;
        }
        self.fds.push(Some(fd_entry));
        Slot::try_from(self.fds.len() - 1).expect("file descriptor numbers fit in 31 bits")
    }

    fn fd_entry(&self, slot: Slot) -> &FdEntry {
        self.fds[slot as usize].as_ref().expect("the caller's slot is registered")
    }

    /// Returns the descriptor.
    pub(crate) fn fd(&self, slot: Slot) -> BorrowedFd<'_> {
        self.fd_entry(slot).fd.as_fd()
    }

    /// Returns whether the operation is in flight.
    pub(crate) fn is_in_flight(&self, slot: Slot, op: Op) -> bool {
        self.fd_entry(slot).in_flight & op.bit() != 0
    }

    /// Starts an operation that uses no memory except provided buffers. Does nothing if it is in flight.
    pub(crate) fn start(&mut self, slot: Slot, op: Op) {
        if self.is_in_flight(slot, op) {
            return;
        }
        let fd = types::Fd(self.fd_entry(slot).fd.as_raw_fd());
        let poll = |events: libc::c_short| opcode::PollAdd::new(fd, events as u32).build();
        let entry = match op {
            Op::Receive => opcode::RecvMulti::new(fd, GROUP).build(),
            Op::Readable => poll(libc::POLLIN),
            Op::Writable => poll(libc::POLLOUT),
            Op::PeerShutdown => poll(libc::POLLRDHUP),
            Op::Send | Op::Read => {
                return debug_assert!(false, "start operations with memory by `submit_send` and `submit_read`");
            }
        };
        self.track_and_push(slot, op, entry);
        #[cfg(test)]
        if self.faults.cancels_receive() && op == Op::Receive {
            self.cancel(slot, op);
        }
    }

    /// Sends a buffer from index `at`, without waiting for space. The unsent rest returns with the completion.
    /// Only one send may be in flight.
    pub(crate) fn submit_send(&mut self, slot: Slot, buffer: Buffer, at: usize) {
        assert!(!self.is_in_flight(slot, Op::Send), "only one send per socket may be in flight, to keep the order");
        let rest = &buffer[at..];
        #[cfg(test)]
        let rest = &rest[..rest.len().min(self.faults.send_bytes_max())];
        let (fd, flags) = (types::Fd(self.fd_entry(slot).fd.as_raw_fd()), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        let entry = |bytes: &[u8]| {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            opcode::Send::new(fd, bytes.as_ptr(), len).flags(flags).build()
        };
        // A small response is copied, so that its buffer, which is still in the CPU cache, is reused at once.
        let (entry, op_buffer) = if buffer.len() - at <= RING_COPY_BYTES {
            let mut copy = self.pooled_copies.pop().unwrap_or_else(|| vec![0; RING_COPY_BYTES].into());
            copy[..buffer.len() - at].copy_from_slice(&buffer[at..]);
            (entry(&copy[..rest.len()]), OpBuffer::SendingCopy(copy, buffer.len() - at))
        } else {
            (entry(rest), OpBuffer::Sending(buffer, at))
        };
        self.store_buffer(slot, op_buffer);
        self.track_and_push(slot, Op::Send, entry);
    }

    /// Reads up to `count` bytes of a file into `memory`, which returns with the completion. No other operation of
    /// the descriptor may use memory.
    pub(crate) fn submit_read(&mut self, slot: Slot, mut memory: Vec<u8>, count: usize, at: u64) {
        let count = u32::try_from(count.min(memory.len())).unwrap_or(u32::MAX);
        let fd = types::Fd(self.fd_entry(slot).fd.as_raw_fd());
        let entry = opcode::Read::new(fd, memory.as_mut_ptr(), count).offset(at).build();
        self.store_buffer(slot, OpBuffer::Reading(memory));
        self.track_and_push(slot, Op::Read, entry);
    }

    /// Stores memory while the kernel uses it. Its bytes do not move when its owner moves.
    fn store_buffer(&mut self, slot: Slot, op_buffer: OpBuffer) {
        let fd_entry = self.fds[slot as usize].as_mut().expect("the caller's slot is registered");
        assert!(matches!(fd_entry.buffer, OpBuffer::None), "one operation of a descriptor uses memory at a time");
        fd_entry.buffer = op_buffer;
    }

    /// Requests the cancellation of an operation in flight. It still completes.
    pub(crate) fn cancel(&mut self, slot: Slot, op: Op) {
        if self.is_in_flight(slot, op) {
            self.push(without_completion(opcode::AsyncCancel::new(user_data(slot, op)).build()));
        }
    }

    /// Closes a descriptor as soon as no operation is in flight. A send completes; other operations are cancelled,
    /// and their completions are ignored.
    pub(crate) fn release(&mut self, slot: Slot) {
        for op in Op::ALL {
            if op != Op::Send {
                self.cancel(slot, op);
            }
        }
        self.fds[slot as usize].as_mut().expect("a slot is released only once").state = FdState::Closing;
        self.close_if_idle(slot);
    }

    /// Returns a descriptor to the caller; `None` while an operation is in flight.
    pub(crate) fn deregister(&mut self, slot: Slot) -> Option<OwnedFd> {
        let fd_entry = self.fds[slot as usize].take_if(|fd_entry| fd_entry.in_flight == 0)?;
        self.free.push(slot);
        Some(fd_entry.fd)
    }

    fn close_if_idle(&mut self, slot: Slot) {
        let is_idle = |fd_entry: &mut FdEntry| fd_entry.in_flight == 0 && fd_entry.state == FdState::Closing;
        if let Some(fd_entry) = self.fds[slot as usize].take_if(is_idle) {
            self.free.push(slot);
            let fd = types::Fd(fd_entry.fd.into_raw_fd());
            self.push(without_completion(opcode::Close::new(fd).build()));
        }
    }

    fn track_and_push(&mut self, slot: Slot, op: Op, entry: squeue::Entry) {
        let fd_entry = self.fds[slot as usize].as_mut().expect("the caller's slot is registered");
        fd_entry.in_flight |= op.bit();
        self.in_flight += 1;
        self.push(entry.user_data(user_data(slot, op)));
    }

    fn push(&mut self, entry: squeue::Entry) {
        if !self.overflow.is_empty() || !self.push_to_queue(&entry) {
            // The queue is full. Submitting it makes space, unless memory is short.
            let _ = self.enter(0, None);
            self.overflow.push_back(entry);
            self.push_overflow();
        }
    }

    fn push_overflow(&mut self) {
        while let Some(entry) = self.overflow.front().cloned()
            && self.push_to_queue(&entry)
        {
            self.overflow.pop_front();
        }
    }

    fn push_to_queue(&mut self, entry: &squeue::Entry) -> bool {
        self.has_unsubmitted = true;
        // SAFETY: `fds` owns the memory that an entry points to, or it belongs to the provided buffers, until the
        // operation completes. Its descriptor is open until then.
        unsafe { self.uring.submission().push(entry) }.is_ok()
    }

    /// Returns whether operations are queued and not submitted.
    pub(crate) fn has_pending(&self) -> bool {
        #[cfg(test)]
        if self.faults.hold() == super::faults::DelayedCompletions::Waiting {
            return true;
        }
        self.has_unsubmitted
    }

    /// Returns whether operations are to be submitted or completions are available.
    pub(crate) fn has_work(&mut self) -> bool {
        self.has_pending() || !self.uring.completion().is_empty() || self.uring.submission().cq_overflow()
    }

    /// Returns whether the kernel has deferred work. One `io_uring_enter` call may do only part of it, and the
    /// rest is not signalled again.
    pub(crate) fn has_deferred_work(&mut self) -> bool {
        #[cfg(test)]
        if self.faults.reports_work() {
            return true;
        }
        // The signal request must be visible before this check.
        fence(Ordering::SeqCst);
        // Reading the flag is cheap, but it can be stale; `poll` is exact.
        self.uring.submission().taskrun() && is_readable(&self.uring)
    }

    /// Enables or disables completion signals. A busy task polls without signals. Check for work once more after
    /// this call.
    pub(crate) fn set_eventfd(&mut self, state: EventfdState) {
        match state {
            EventfdState::Enabled => self.uring.completion().enable_eventfd(),
            EventfdState::Disabled => self.uring.completion().disable_eventfd(),
        }
    }

    /// Submits the queued operations and runs deferred kernel work, after which completions may be available. With
    /// `wait`, waits up to that time for a completion.
    ///
    /// # Errors
    /// When the ring is unusable because of a bug in this process.
    pub(crate) fn submit_and_wait(&mut self, wait: Option<Duration>) -> io::Result<()> {
        self.push_overflow();
        #[cfg(test)]
        let wait = {
            let hold = self.faults.turn();
            wait.filter(|_| hold == super::faults::DelayedCompletions::None)
        };
        let completions_min = u32::from(wait.is_some());
        match self.enter(completions_min, wait) {
            // Interrupted by a signal, short of memory, or completions must be processed first.
            Err(error) if is_transient(&error) => Ok(()),
            result => result,
        }
    }

    fn enter(&mut self, completions_min: u32, wait: Option<Duration>) -> io::Result<()> {
        /// Makes the kernel run deferred work (`io_uring_enter(2)`).
        const GETEVENTS: u32 = 1;
        let submissions = u32::try_from(self.uring.submission().len()).unwrap_or(u32::MAX);
        let submitter = self.uring.submitter();
        let result = match wait {
            // SAFETY: without an argument, the kernel accesses no memory.
            None => unsafe { submitter.enter::<libc::sigset_t>(submissions, completions_min, GETEVENTS, None) },
            Some(time) => {
                let time = types::Timespec::from(time);
                submitter.submit_with_args(completions_min as usize, &types::SubmitArgs::new().timespec(&time))
            }
        };
        self.has_unsubmitted = !self.overflow.is_empty() || !self.uring.submission().is_empty();
        result.map(drop)
    }

    /// Returns the next completion that is not ignored.
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        loop {
            #[cfg(not(test))]
            let entry = self.uring.completion().next()?;
            #[cfg(test)]
            let entry = self.faults.next(&mut self.uring.completion())?;
            if let Some(completion) = self.complete(&entry) {
                return Some(completion);
            }
        }
    }

    fn complete(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let (slot, op) = parse_user_data(entry.user_data())?;
        let multishot = if cqueue::more(entry.flags()) { Multishot::More } else { Multishot::Ended };
        let fd_entry = self.fds.get_mut(slot as usize)?.as_mut()?;
        if multishot == Multishot::Ended {
            fd_entry.in_flight &= !op.bit();
            self.in_flight -= 1;
        }
        let result = match entry.result() {
            negative @ ..0 => Err(Errno::from_raw_os_error(-negative)),
            count => Ok(count as u32),
        };
        let outcome = match op {
            Op::Receive => Outcome::Received(match (cqueue::buffer_select(entry.flags()), result) {
                // A buffer without data must be returned, too.
                (Some(buffer), result) => {
                    let provided = self.buffers.claim(buffer, result.unwrap_or(0));
                    result.map(|len| (len > 0).then_some(provided))
                }
                (None, result) => result.map(|_| None),
            }),
            Op::Send => {
                let sent = result.unwrap_or(0) as usize;
                let rest = match mem::take(&mut fd_entry.buffer) {
                    OpBuffer::Sending(buffer, at) => (at + sent < buffer.len()).then_some((buffer, at + sent)),
                    OpBuffer::SendingCopy(copy, len) => {
                        let rest = (sent < len).then(|| (Buffer::of(&copy[sent..len]), 0));
                        if self.pooled_copies.len() < RING_POOLED_COPIES_MAX {
                            self.pooled_copies.push(copy);
                        }
                        rest
                    }
                    OpBuffer::None | OpBuffer::Reading(_) => None,
                };
                Outcome::Sent(rest, result.map(drop))
            }
            Op::Read => match mem::take(&mut fd_entry.buffer) {
                OpBuffer::Reading(memory) => Outcome::Read(memory, result.map(|len| len as usize)),
                _ => return None,
            },
            ready => Outcome::Ready(ready),
        };
        if fd_entry.state == FdState::Closing {
            self.close_if_idle(slot);
            return None;
        }
        Some(Completion { slot, outcome, multishot })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for slot in 0..self.fds.len() as Slot {
            if self.fds[slot as usize].as_ref().is_some_and(|fd_entry| fd_entry.state == FdState::Open) {
                self.release(slot);
            }
        }
        // Attempts in a row without a completion.
        let mut tries = 0;
        while (self.in_flight > 0 || self.has_pending()) && tries < DRAIN_TRIES_MAX {
            let in_flight_before = self.in_flight;
            let wait = (in_flight_before > 0).then_some(DRAIN_TIME);
            if self.submit_and_wait(wait).is_err() {
                break;
            }
            while self.next_completion().is_some() {}
            tries = if self.in_flight < in_flight_before { 0 } else { tries + 1 };
        }
        let _ = self.uring.submitter().unregister_buf_ring(GROUP);
        if self.in_flight > 0 {
            // The kernel may still use this memory, so it is never freed.
            mem::forget((mem::take(&mut self.fds), self.buffers.clone()));
        }
    }
}

fn is_readable(uring: &IoUring) -> bool {
    // SAFETY: the ring's descriptor is open as long as the ring, which is borrowed.
    let ring = unsafe { BorrowedFd::borrow_raw(uring.as_raw_fd()) };
    let mut fds = [PollFd::new(&ring, PollFlags::IN)];
    // If `poll` fails, assume that work is pending.
    !matches!(rustix::event::poll(&mut fds, Some(&Timespec::default())), Ok(0))
}

fn user_data(slot: Slot, op: Op) -> u64 {
    u64::from(slot) << 8 | op as u64
}

fn parse_user_data(user_data: u64) -> Option<(Slot, Op)> {
    let op = Op::ALL.get(usize::from(user_data as u8))?;
    Some((Slot::try_from(user_data >> 8).ok()?, *op))
}

fn without_completion(entry: squeue::Entry) -> squeue::Entry {
    entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(NO_COMPLETION)
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME | libc::ENOMEM))
}
