//! The ring: what the kernel was asked to do and has not done yet, and the memory and the
//! descriptors that it uses meanwhile.
//!
//! Whatever an operation uses is moved into the ring and comes out of it with the completion:
//! a descriptor is closed, and a buffer is anybody's, only when no operation uses it any more.

use super::leases::{Buffers, Lease};
use crate::buffer::Buffer;
use crate::limits::{RING_COPIES_KEPT_MAX, RING_COPY_BYTES};
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

/// How large a ring is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Operations that are handed to the kernel at once.
    pub(crate) submissions: u32,
    /// Completions that wait to be looked at, before the kernel sets some aside.
    pub(crate) completions: u32,
    /// Buffers for what comes in, a power of two.
    pub(crate) buffers: u16,
    /// Bytes of each.
    pub(crate) buffer_bytes: u32,
}

/// What can be in flight of a descriptor, one of each at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Bytes, into buffers of the ring's, one after the other.
    Receive,
    /// A buffer that is sent.
    Send,
    /// A wait until there is something to receive.
    Readable,
    /// A wait until there is room to send.
    Writable,
    /// A wait until the client says that nothing more comes.
    Ended,
    /// A file that is read into memory of this process's.
    Read,
}

impl Kind {
    /// By their numbers.
    const ALL: [Self; 6] = [Self::Receive, Self::Send, Self::Readable, Self::Writable, Self::Ended, Self::Read];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A descriptor that the ring holds.
pub(crate) type Number = u32;

/// What nobody waits for: the completion of a cancellation or a close.
const UNWATCHED: u64 = u64::MAX;
/// The ring's only group of buffers.
const GROUP: u16 = 0;
/// How long a ring that ends waits for the kernel to let go of something, and how often in vain.
const LETTING_GO: Duration = Duration::from_millis(50);
/// See [`LETTING_GO`].
const LETTING_GO_TRIES: u32 = 20;

/// A descriptor, and what the kernel is doing with it.
struct Held {
    fd: OwnedFd,
    /// The bits of the kinds that are in flight.
    in_flight: u8,
    used: Used,
    fate: Fate,
}

/// Memory of this process's that the kernel uses.
#[derive(Default)]
enum Used {
    #[default]
    Nothing,
    /// What is being sent, and from where on.
    Sending(Buffer, usize),
    /// A copy of it, and how many bytes that is.
    SendingCopy(Box<[u8]>, usize),
    /// What is being read into.
    Reading(Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    /// To be closed when nothing is in flight any more.
    LetGo,
}

/// Whether the kernel is to signal what can be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signals {
    Wanted,
    Unwanted,
}

/// What the kernel has done.
pub(crate) struct Completion {
    pub(crate) number: Number,
    pub(crate) done: Done,
    pub(crate) then: Then,
}

/// Whether more completions of the same operation follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It goes on.
    More,
    /// It is over.
    Over,
}

/// See [`Completion`].
pub(crate) enum Done {
    /// Bytes have come; `None` when no more will.
    Received(Result<Option<Lease>, Errno>),
    /// What was not sent comes back: a buffer, and from where on.
    Sent(Option<(Buffer, usize)>, Result<(), Errno>),
    /// The memory comes back, with so many bytes of the file in it.
    Read(Vec<u8>, Result<usize, Errno>),
    /// What was waited for is there, or will never be.
    Ready(Kind),
}

/// A ring of one thread's.
pub(crate) struct Ring {
    uring: IoUring,
    buffers: Rc<Buffers>,
    held: Vec<Option<Held>>,
    free: Vec<Number>,
    /// Operations that are in flight, but for those that nobody waits for.
    in_flight: usize,
    /// What had no room in the queue while the kernel took nothing.
    waiting: VecDeque<squeue::Entry>,
    /// Whether something stands in the queue.
    has_begun: bool,
    /// Memory for copies of what is sent.
    copies: Vec<Box<[u8]>>,
    #[cfg(test)]
    pub(crate) faults: super::faults::Faults,
}

impl Ring {
    /// A ring, and a descriptor that is signalled when there is something to complete.
    ///
    /// # Errors
    /// When the system has no rings, or not such ones, or forbids them, or memory runs out.
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
        let used = [
            opcode::RecvMulti::CODE,
            opcode::Send::CODE,
            opcode::PollAdd::CODE,
            opcode::Read::CODE,
            opcode::AsyncCancel::CODE,
            opcode::Close::CODE,
        ];
        if !used.iter().all(|&code| probe.is_supported(code)) || !uring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        uring.submitter().register_eventfd(event.as_raw_fd())?;
        let buffers = Buffers::new(sizes.buffers, sizes.buffer_bytes)?;
        let (queue, count) = buffers.queue();
        // SAFETY: the queue is of whole pages and has so many entries. It lives until the ring is
        // dropped, which takes it back from the kernel before.
        unsafe { uring.submitter().register_buf_ring_with_flags(queue, count, GROUP, 0) }?;
        let ring = Self {
            uring,
            buffers,
            held: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            waiting: VecDeque::new(),
            has_begun: false,
            copies: Vec::new(),
            #[cfg(test)]
            faults: super::faults::Faults::default(),
        };
        Ok((ring, event))
    }

    /// Takes a descriptor, to do things with it.
    pub(crate) fn hold(&mut self, fd: OwnedFd) -> Number {
        let held = Held { fd, in_flight: 0, used: Used::Nothing, fate: Fate::Kept };
        if let Some(number) = self.free.pop() {
            self.held[number as usize] = Some(held);
            return number;
        }
        self.held.push(Some(held));
        Number::try_from(self.held.len() - 1).expect("descriptors are numbered in fewer bits")
    }

    fn held(&self, number: Number) -> &Held {
        self.held[number as usize].as_ref().expect("whoever has the number has not let go")
    }

    /// The descriptor.
    pub(crate) fn fd(&self, number: Number) -> BorrowedFd<'_> {
        self.held(number).fd.as_fd()
    }

    /// Whether such an operation is in flight.
    pub(crate) fn is_in_flight(&self, number: Number, kind: Kind) -> bool {
        self.held(number).in_flight & kind.bit() != 0
    }

    /// Begins an operation that uses no memory but the ring's own. One that is in flight goes on.
    pub(crate) fn begin(&mut self, number: Number, kind: Kind) {
        if self.is_in_flight(number, kind) {
            return;
        }
        let fd = types::Fd(self.held(number).fd.as_raw_fd());
        let poll = |events: libc::c_short| opcode::PollAdd::new(fd, events as u32).build();
        let entry = match kind {
            Kind::Receive => opcode::RecvMulti::new(fd, GROUP).build(),
            Kind::Readable => poll(libc::POLLIN),
            Kind::Writable => poll(libc::POLLOUT),
            Kind::Ended => poll(libc::POLLRDHUP),
            Kind::Send | Kind::Read => return debug_assert!(false, "memory is given to `send` and `read`"),
        };
        self.launch(number, kind, entry);
        #[cfg(test)]
        if self.faults.cancels(kind) {
            self.cancel(number, kind);
        }
    }

    /// Sends a buffer from `at` on, as far as it goes without waiting. It comes back with the
    /// completion. One at a time.
    pub(crate) fn send(&mut self, number: Number, buffer: Buffer, at: usize) {
        assert!(!self.is_in_flight(number, Kind::Send), "one send of a socket at a time keeps the order");
        let rest = &buffer[at..];
        #[cfg(test)]
        let rest = &rest[..rest.len().min(self.faults.send_bytes_max())];
        let (fd, flags) = (types::Fd(self.held(number).fd.as_raw_fd()), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        let entry = |bytes: &[u8]| {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            opcode::Send::new(fd, bytes.as_ptr(), len).flags(flags).build()
        };
        // A small answer is copied: the buffer that it was made in is the next one's, still warm.
        let (entry, used) = if buffer.len() - at <= RING_COPY_BYTES {
            let mut copy = self.copies.pop().unwrap_or_else(|| vec![0; RING_COPY_BYTES].into());
            copy[..buffer.len() - at].copy_from_slice(&buffer[at..]);
            (entry(&copy[..rest.len()]), Used::SendingCopy(copy, buffer.len() - at))
        } else {
            (entry(rest), Used::Sending(buffer, at))
        };
        self.lend(number, used);
        self.launch(number, Kind::Send, entry);
    }

    /// Reads up to `count` bytes of a file into memory, which comes back with the completion. One at
    /// a time, and nothing else of the same descriptor that uses memory.
    pub(crate) fn read(&mut self, number: Number, mut memory: Vec<u8>, count: usize, at: u64) {
        let count = u32::try_from(count.min(memory.len())).unwrap_or(u32::MAX);
        let fd = types::Fd(self.held(number).fd.as_raw_fd());
        let entry = opcode::Read::new(fd, memory.as_mut_ptr(), count).offset(at).build();
        self.lend(number, Used::Reading(memory));
        self.launch(number, Kind::Read, entry);
    }

    /// Keeps memory for as long as the kernel uses it. Its bytes stay where they are when what owns
    /// them moves: that only points to them.
    fn lend(&mut self, number: Number, used: Used) {
        let held = self.held[number as usize].as_mut().expect("whoever has the number has not let go");
        assert!(matches!(held.used, Used::Nothing), "one operation of a descriptor uses memory at a time");
        held.used = used;
    }

    /// Has an operation that is in flight end soon. It completes all the same.
    pub(crate) fn cancel(&mut self, number: Number, kind: Kind) {
        if self.is_in_flight(number, kind) {
            self.push(unwatched(opcode::AsyncCancel::new(user_data(number, kind)).build()));
        }
    }

    /// Closes a descriptor, as soon as nothing is in flight any more. What is being sent is sent;
    /// other operations are cancelled, and their completions are nobody's.
    pub(crate) fn let_go(&mut self, number: Number) {
        for kind in Kind::ALL {
            if kind != Kind::Send {
                self.cancel(number, kind);
            }
        }
        self.held[number as usize].as_mut().expect("let go of once").fate = Fate::LetGo;
        self.close_if_idle(number);
    }

    /// Gives a descriptor back; `None` while something is in flight.
    pub(crate) fn take_back(&mut self, number: Number) -> Option<OwnedFd> {
        let held = self.held[number as usize].take_if(|held| held.in_flight == 0)?;
        self.free.push(number);
        Some(held.fd)
    }

    fn close_if_idle(&mut self, number: Number) {
        let is_over = |held: &mut Held| held.in_flight == 0 && held.fate == Fate::LetGo;
        if let Some(held) = self.held[number as usize].take_if(is_over) {
            self.free.push(number);
            let fd = types::Fd(held.fd.into_raw_fd());
            self.push(unwatched(opcode::Close::new(fd).build()));
        }
    }

    fn launch(&mut self, number: Number, kind: Kind, entry: squeue::Entry) {
        let held = self.held[number as usize].as_mut().expect("whoever has the number has not let go");
        held.in_flight |= kind.bit();
        self.in_flight += 1;
        self.push(entry.user_data(user_data(number, kind)));
    }

    fn push(&mut self, entry: squeue::Entry) {
        if !self.waiting.is_empty() || !self.push_to_queue(&entry) {
            // It is full: what stands there is handed over, which makes room unless memory is short.
            let _ = self.enter(0, None);
            self.waiting.push_back(entry);
            self.push_waiting();
        }
    }

    fn push_waiting(&mut self) {
        while let Some(entry) = self.waiting.front().cloned()
            && self.push_to_queue(&entry)
        {
            self.waiting.pop_front();
        }
    }

    fn push_to_queue(&mut self, entry: &squeue::Entry) -> bool {
        self.has_begun = true;
        // SAFETY: what an entry points to is owned by `held` until the operation has completed, or
        // is the ring's own group of buffers; and its descriptor is open until then.
        unsafe { self.uring.submission().push(entry) }.is_ok()
    }

    /// Whether something was begun and not yet handed to the kernel.
    pub(crate) fn has_begun(&self) -> bool {
        #[cfg(test)]
        if self.faults.held() == super::faults::Held::Something {
            return true;
        }
        self.has_begun
    }

    /// Whether a turn has something to do: to hand over what was begun, or to look at completions.
    pub(crate) fn is_due(&mut self) -> bool {
        self.has_begun() || !self.uring.completion().is_empty() || self.uring.submission().cq_overflow()
    }

    /// Whether the kernel has put something off until the next turn. One turn need not do all of it
    /// (twenty operations, at this writing), and what is left over is not signalled again.
    pub(crate) fn has_work(&mut self) -> bool {
        #[cfg(test)]
        if self.faults.says_work() {
            return true;
        }
        // A request for signals has to be out before this looks.
        fence(Ordering::SeqCst);
        // The flag costs nothing, and may still stand when all is done; the call says what is true.
        self.uring.submission().taskrun() && self.is_readable()
    }

    fn is_readable(&self) -> bool {
        // SAFETY: the ring's descriptor is open for as long as the ring is, which is borrowed.
        let ring = unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) };
        let mut asked = [PollFd::new(&ring, PollFlags::IN)];
        // Who gets no answer has to look.
        !matches!(rustix::event::poll(&mut asked, Some(&Timespec::default())), Ok(0))
    }

    /// Has the kernel signal when there is something to complete, or not: whoever is busy looks by
    /// itself. Afterwards has to be looked once more.
    pub(crate) fn signal(&mut self, signals: Signals) {
        match signals {
            Signals::Wanted => self.uring.completion().enable_eventfd(),
            Signals::Unwanted => self.uring.completion().disable_eventfd(),
        }
    }

    /// Hands over what was begun, and has the kernel complete what it can; then there may be
    /// completions. Waits until there is one, for a time, where one is wanted.
    ///
    /// # Errors
    /// When the ring is of no use any more, which is a mistake of this process's.
    pub(crate) fn turn(&mut self, wait: Option<Duration>) -> io::Result<()> {
        self.push_waiting();
        #[cfg(test)]
        let wait = {
            let held = self.faults.turn();
            wait.filter(|_| held == super::faults::Held::Nothing)
        };
        let wanted = u32::from(wait.is_some());
        match self.enter(wanted, wait) {
            // A signal came, memory is short, or completions have to be looked at first.
            Err(error) if is_passing(&error) => Ok(()),
            entered => entered,
        }
    }

    fn enter(&mut self, wanted: u32, wait: Option<Duration>) -> io::Result<()> {
        /// Has the kernel do what it has put off until now (`io_uring_enter(2)`).
        const GETEVENTS: u32 = 1;
        let begun = u32::try_from(self.uring.submission().len()).unwrap_or(u32::MAX);
        let submitter = self.uring.submitter();
        let entered = match wait {
            // SAFETY: without an argument there is nothing that the kernel could read or write.
            None => unsafe { submitter.enter::<libc::sigset_t>(begun, wanted, GETEVENTS, None) },
            Some(time) => {
                let time = types::Timespec::from(time);
                submitter.submit_with_args(wanted as usize, &types::SubmitArgs::new().timespec(&time))
            }
        };
        self.has_begun = !self.waiting.is_empty() || !self.uring.submission().is_empty();
        entered.map(drop)
    }

    /// The next completion that somebody waits for.
    pub(crate) fn next(&mut self) -> Option<Completion> {
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
        let (number, kind) = meaning(entry.user_data())?;
        let then = if cqueue::more(entry.flags()) { Then::More } else { Then::Over };
        let held = self.held.get_mut(number as usize)?.as_mut()?;
        if then == Then::Over {
            held.in_flight &= !kind.bit();
            self.in_flight -= 1;
        }
        let result = match entry.result() {
            negative @ ..0 => Err(Errno::from_raw_os_error(-negative)),
            count => Ok(count as u32),
        };
        let done = match kind {
            Kind::Receive => Done::Received(match (cqueue::buffer_select(entry.flags()), result) {
                // Also when nothing came with it, it has to be given back.
                (Some(buffer), result) => {
                    let lease = self.buffers.lease(buffer, result.unwrap_or(0));
                    result.map(|len| (len > 0).then_some(lease))
                }
                (None, result) => result.map(|_| None),
            }),
            Kind::Send => {
                let sent = result.unwrap_or(0) as usize;
                let rest = match mem::take(&mut held.used) {
                    Used::Sending(buffer, at) => (at + sent < buffer.len()).then_some((buffer, at + sent)),
                    Used::SendingCopy(copy, len) => {
                        let rest = (sent < len).then(|| (Buffer::of(&copy[sent..len]), 0));
                        if self.copies.len() < RING_COPIES_KEPT_MAX {
                            self.copies.push(copy);
                        }
                        rest
                    }
                    Used::Nothing | Used::Reading(_) => None,
                };
                Done::Sent(rest, result.map(drop))
            }
            Kind::Read => match mem::take(&mut held.used) {
                Used::Reading(memory) => Done::Read(memory, result.map(|len| len as usize)),
                _ => return None,
            },
            ready => Done::Ready(ready),
        };
        if held.fate == Fate::LetGo {
            self.close_if_idle(number);
            return None;
        }
        Some(Completion { number, done, then })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for number in 0..self.held.len() as Number {
            if self.held[number as usize].as_ref().is_some_and(|held| held.fate == Fate::Kept) {
                self.let_go(number);
            }
        }
        // Turns in a row in which nothing was over.
        let mut tries = 0;
        while (self.in_flight > 0 || self.has_begun()) && tries < LETTING_GO_TRIES {
            let before = self.in_flight;
            let waited = (before > 0).then_some(LETTING_GO);
            if self.turn(waited).is_err() {
                break;
            }
            while self.next().is_some() {}
            tries = if self.in_flight < before { 0 } else { tries + 1 };
        }
        let _ = self.uring.submitter().unregister_buf_ring(GROUP);
        if self.in_flight > 0 {
            // The kernel may still use it, so nobody else ever will.
            mem::forget((mem::take(&mut self.held), self.buffers.clone()));
        }
    }
}

fn user_data(number: Number, kind: Kind) -> u64 {
    u64::from(number) << 8 | kind as u64
}

fn meaning(user_data: u64) -> Option<(Number, Kind)> {
    let kind = Kind::ALL.get(usize::from(user_data as u8))?;
    Some((Number::try_from(user_data >> 8).ok()?, *kind))
}

fn unwatched(entry: squeue::Entry) -> squeue::Entry {
    entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(UNWATCHED)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME | libc::ENOMEM))
}
