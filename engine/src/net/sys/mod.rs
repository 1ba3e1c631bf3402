//! The only module with `unsafe` code: epoll registration, mapped files, memory that processes share, limits of started
//! programs, and the ring with all memory that the kernel uses. Any module may use it.
//!
//! The safety argument for a descriptor is always that it stays open while it is registered.
#![allow(unsafe_code, reason = "epoll registration, memory mapping, io_uring and limits before exec need unsafe calls")]

pub(crate) mod buffer_ring;
pub(crate) mod command;
#[cfg(test)]
pub(crate) mod faults;
pub(crate) mod ring;
pub(crate) mod shared_memory;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::cell::OnceCell;
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with epoll.
pub(crate) fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the `AsyncFd` owns the descriptor, gives out only shared references to it, and deregisters it before
    // closing it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Registers a descriptor with epoll for reading only.
pub(crate) fn register_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the `AsyncFd` owns the descriptor, gives out only shared references to it, and deregisters it before
    // closing it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// A descriptor that is registered with epoll when it is first waited for.
pub(crate) struct LazyAsyncFd {
    // Before `fd`: fields are dropped in order, so it is deregistered before it is closed.
    readiness: OnceCell<AsyncFd<BorrowedNumber>>,
    fd: OwnedFd,
}

/// The number of a descriptor with another owner.
pub(crate) struct BorrowedNumber(RawFd);

impl AsRawFd for BorrowedNumber {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl LazyAsyncFd {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { readiness: OnceCell::new(), fd }
    }

    /// Deregisters the descriptor until it is waited for again.
    pub(crate) fn deregister(&mut self) {
        self.readiness.take();
    }

    /// Returns the readiness if the descriptor is registered.
    pub(crate) fn registered(&self) -> Option<&AsyncFd<BorrowedNumber>> {
        self.readiness.get()
    }

    /// Returns the readiness. Registers the descriptor on the first call.
    #[inline]
    pub(crate) fn readiness(&self) -> io::Result<&AsyncFd<BorrowedNumber>> {
        if let Some(readiness) = self.readiness.get() {
            return Ok(readiness);
        }
        // SAFETY: `self` owns `fd` and never replaces it or gives it away while registered. It is closed after
        // `readiness`, which is dropped first.
        let registered = unsafe { AsyncFd::register(BorrowedNumber(self.fd.as_raw_fd())) }?;
        Ok(self.readiness.get_or_init(|| registered))
    }
}

impl AsFd for LazyAsyncFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets an integer TCP option that `rustix` does not support.
pub(crate) fn set_tcp_option(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the value is borrowed for the call, with its correct size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the number of unsent bytes in a TCP socket's send buffer; 0 for other sockets.
pub(crate) fn notsent_bytes(socket: BorrowedFd<'_>) -> usize {
    /// From `linux/sockios.h`; neither `libc` nor `rustix` defines it.
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one integer of this type, which is borrowed for the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) };
    if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Returns the backlog of a TCP listener.
#[cfg(test)]
pub(crate) fn backlog(listener: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: both are borrowed for the call, and the kernel writes at most `size` bytes.
    let result = unsafe {
        libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    // SAFETY: all fields are integers, for which zero is valid.
    let info = unsafe { info.assume_init() };
    if result == 0 { Ok(info.tcpi_sacked) } else { Err(io::Error::last_os_error()) }
}

/// Returns free memory of the allocator to the kernel, if glibc is used.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer and moves no memory in use. With another allocator it does nothing.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Duplicates an inherited descriptor by its number. Programs that this process starts do not inherit either one.
pub(crate) fn duplicate_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `fcntl` takes a number and accesses no memory. It fails if the number is not an open descriptor. The
    // owner keeps its descriptor, with one more flag.
    let duplicate = unsafe {
        if libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3)
    };
    if duplicate < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was created above and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

/// A mapped file that only the kernel reads. For the kernel, pages beyond the end of a truncated file are an
/// error; a read by this process would raise `SIGBUS`.
pub(crate) struct Mapping {
    start: NonNull<c_void>,
    len: usize,
}

impl Mapping {
    /// Maps a whole file at its current length.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // SAFETY: the kernel chooses the address, so no memory in use is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        NonNull::new(start).map(|start| Self { start, len }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Sends as much as possible of `first` and then of a part of the file. More output follows.
    ///
    /// # Errors
    /// As `sendmsg(2)`; `EFAULT` if the file was truncated or cannot be read.
    pub(crate) fn send_with_prefix(
        &self,
        first: &[u8],
        offset: u64,
        len: usize,
        socket: BorrowedFd<'_>,
    ) -> io::Result<usize> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len);
        let len = len.min(self.len - offset);
        // SAFETY: `offset` is at most the length of the mapping.
        let part = unsafe { self.start.byte_add(offset) };
        let mut parts = [
            libc::iovec { iov_base: first.as_ptr().cast_mut().cast(), iov_len: first.len() },
            libc::iovec { iov_base: part.as_ptr(), iov_len: len },
        ];
        // SAFETY: a `msghdr` of zeros is an empty message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        // Its type differs between C libraries, and two fits into each.
        message.msg_iovlen = parts.len() as _;
        // SAFETY: both parts stay in place during the call: one is borrowed, the other lies within a mapping that
        // `self` owns. The kernel only reads them and returns an error if it cannot.
        let sent =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_MORE) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Size of a huge page.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Moves the first `len` bytes of a file in memory to huge pages. `len` must be a multiple of [`HUGE_PAGE_BYTES`],
/// and each of these pages must already contain data. Temporary address space is released.
///
/// # Errors
/// As `mmap(2)` and `madvise(2)`. Without huge pages, or without a free one, the bytes stay where they are.
pub(crate) fn move_to_huge_pages(memory: &File, len: usize) -> io::Result<()> {
    // `libc` does not define this advice for every target; the number is Linux's.
    const MADV_COLLAPSE: libc::c_int = 25;
    // One page more than needed, since the kernel collapses only aligned ranges.
    let reserved_len = len + HUGE_PAGE_BYTES;
    // SAFETY: the kernel chooses the address, so no memory in use is replaced.
    let reserved = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved_len, ProtFlags::empty(), MapFlags::PRIVATE)
    }?;
    let padding = reserved.align_offset(HUGE_PAGE_BYTES);
    // SAFETY: `padding` is less than a huge page, and one huge page more than `len` is reserved. The mapping
    // replaces only that reservation, to which no other pointer exists. This process does not access its pages.
    let moved = unsafe {
        let start = reserved.byte_add(padding);
        mmap(start, len, ProtFlags::READ, MapFlags::SHARED | MapFlags::FIXED, memory, 0)
            .map_err(io::Error::from)
            .and_then(|start| match libc::madvise(start, len, MADV_COLLAPSE) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
    };
    // SAFETY: the range was reserved with this start and length, and no pointer into it remains.
    let unmapped = unsafe { munmap(reserved, reserved_len) };
    debug_assert!(unmapped.is_ok(), "a mapped range can be unmapped");
    moved
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the file was mapped with this start and length, and no pointer into it remains.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapped range can be unmapped");
    }
}
