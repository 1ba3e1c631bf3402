//! The one address of `unsafe`: joining descriptors to the worker's epoll set, files in the
//! address space, and the ring with all that the kernel uses of this process's memory. It names
//! nothing else of the crate but buffers and bounds, so any floor may use it.
//!
//! What is promised of a descriptor each time is the same: it stays open, and the same, for as
//! long as the set knows it.
#![allow(unsafe_code, reason = "registration has to be told that a descriptor outlives it, and mapping is unsafe")]

#[cfg(test)]
pub(crate) mod faults;
pub(crate) mod leases;
pub(crate) mod ring;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::cell::OnceCell;
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that is in the epoll set from the beginning.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the `AsyncFd` owns the descriptor, gives out only shared references to it, and
    // leaves the set before it closes it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// The same, for one that nobody writes to.
pub(crate) fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: as in `watch`.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// A descriptor that joins the epoll set when it is first waited for.
pub(crate) struct LazilyWatched {
    // Before `fd`: fields are dropped in order, so it leaves the set before it closes.
    readiness: OnceCell<AsyncFd<Number>>,
    fd: OwnedFd,
}

/// The number of a descriptor that somebody else owns.
pub(crate) struct Number(RawFd);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl LazilyWatched {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { readiness: OnceCell::new(), fd }
    }

    /// The descriptor, out of the set.
    pub(crate) fn into_inner(self) -> OwnedFd {
        let Self { readiness, fd } = self;
        drop(readiness);
        fd
    }

    /// Takes the descriptor out of the set until it is waited for again.
    pub(crate) fn forget(&mut self) {
        self.readiness.take();
    }

    /// Its readiness, if it was ever waited for.
    pub(crate) fn known_readiness(&self) -> Option<&AsyncFd<Number>> {
        self.readiness.get()
    }

    /// Its readiness; the first call puts it into the set.
    #[inline]
    pub(crate) fn readiness(&self) -> io::Result<&AsyncFd<Number>> {
        if let Some(readiness) = self.readiness.get() {
            return Ok(readiness);
        }
        // SAFETY: `fd` is owned by `self`, is never replaced or given away, and is closed only
        // when `self` is dropped, after `readiness`, which stands before it.
        let registered = unsafe { AsyncFd::register(Number(self.fd.as_raw_fd())) }?;
        Ok(self.readiness.get_or_init(|| registered))
    }
}

impl AsFd for LazilyWatched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets an option of a TCP socket that is a number, and that `rustix` has no name for.
pub(crate) fn set_tcp_option(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the value is borrowed for the call, and as long as it is said to be.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How many bytes a TCP socket has taken and not yet sent; 0 for one of another kind.
pub(crate) fn unsent(socket: BorrowedFd<'_>) -> usize {
    /// `linux/sockios.h`; neither `libc` nor `rustix` has a name for it.
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one number of this type, which is borrowed for the call.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) };
    if asked == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// How many may wait to be accepted at a TCP listener.
#[cfg(test)]
pub(crate) fn queue_room(listener: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: both are borrowed for the call, and what is written is as long as `size` says at the most.
    let got = unsafe {
        libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    // SAFETY: it is made of numbers alone, for which zeros are as good as what the system has written.
    let info = unsafe { info.assume_init() };
    if got == 0 { Ok(info.tcpi_sacked) } else { Err(io::Error::last_os_error()) }
}

/// Gives the system back what the allocator keeps of memory that is free, where it can.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and moves nothing that is in use. Where another allocator is in
    // charge it finds nothing to give back.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A descriptor of this process's own for what it was started with under a number, which is
/// not passed on to programs that this one starts any more.
pub(crate) fn duplicate_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `fcntl` is told a number and touches no memory of ours; where the number is no
    // open descriptor, it says so. Whoever owns it keeps it, with one flag more.
    let duplicate = unsafe {
        if libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3)
    };
    if duplicate < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was made just now, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

/// A file in the address space, for the kernel alone to read: to it, pages that are no longer
/// there are an error, where this process would be ended by a signal.
pub(crate) struct Mapping {
    start: NonNull<c_void>,
    len: usize,
}

impl Mapping {
    /// The whole of a file, as long as it is now.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // SAFETY: the kernel chooses the place, so nothing that is in use is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        NonNull::new(start).map(|start| Self { start, len }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Sends `first` and behind it part of the file, or as much of both as can be sent now.
    /// More is announced to follow.
    ///
    /// # Errors
    /// As `sendmsg(2)`; `EFAULT` where the file has ended since, or cannot be read.
    pub(crate) fn send_behind(
        &self,
        first: &[u8],
        offset: u64,
        len: usize,
        socket: BorrowedFd<'_>,
    ) -> io::Result<usize> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len);
        let len = len.min(self.len - offset);
        // SAFETY: `offset` is at most the mapping's length.
        let part = unsafe { self.start.byte_add(offset) };
        let mut pieces = [
            libc::iovec { iov_base: first.as_ptr().cast_mut().cast(), iov_len: first.len() },
            libc::iovec { iov_base: part.as_ptr(), iov_len: len },
        ];
        // SAFETY: a message of zeros is an empty one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len();
        // SAFETY: both pieces stay where they are during the call: one is borrowed, the other
        // lies within a mapping that `self` owns. The kernel only reads them, and answers with
        // an error where it cannot.
        let sent =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_MORE) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Size of a huge page: what one entry of the second lowest table of pages stands for.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Has the first `len` bytes of a file in memory moved to huge pages, of which `len` is a
/// multiple, and each of which has bytes in it already. What it takes of the address space is
/// given back before it returns.
///
/// # Errors
/// As `mmap(2)` and `madvise(2)`; a system without huge pages, or without one to spare, has the
/// bytes stay where they are.
pub(crate) fn move_to_huge_pages(memory: &File, len: usize) -> io::Result<()> {
    // No advice of that name in `libc` for every target; the number is Linux's.
    const MADV_COLLAPSE: libc::c_int = 25;
    // More than it takes, since the system collapses only what is aligned.
    let reserved_len = len + HUGE_PAGE_BYTES;
    // SAFETY: the kernel chooses the place, so nothing that is in use is replaced.
    let reserved = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved_len, ProtFlags::empty(), MapFlags::PRIVATE)
    }?;
    let before = reserved.align_offset(HUGE_PAGE_BYTES);
    // SAFETY: `before` is less than a huge page, by which more was reserved than `len`. What the
    // mapping replaces is that reservation alone; nobody but this function knows it, and its pages
    // are not looked at by this process.
    let moved = unsafe {
        let start = reserved.byte_add(before);
        mmap(start, len, ProtFlags::READ, MapFlags::SHARED | MapFlags::FIXED, memory, 0)
            .map_err(io::Error::from)
            .and_then(|start| match libc::madvise(start, len, MADV_COLLAPSE) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
    };
    // SAFETY: it was reserved with this start and length, and nobody keeps a pointer into it.
    let unmapped = unsafe { munmap(reserved, reserved_len) };
    debug_assert!(unmapped.is_ok(), "a mapping is unmapped once");
    moved
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this start and length, and nobody keeps a pointer into it.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping is unmapped once");
    }
}
