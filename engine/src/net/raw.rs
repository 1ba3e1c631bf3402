//! System calls that send and receive on a descriptor, below both kinds of socket.

use crate::buffer::{Buffer, Size};
use crate::file::OpenFile;
use crate::net::sys;
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Whether the kernel may delay a send because more follows (`MSG_MORE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendMode {
    /// Send at once.
    Flush,
    /// More follows immediately.
    MoreFollows,
    /// Send at once or together with the output of other connections, a little later.
    Deferred,
}

/// A part of a file to send.
#[derive(Clone, Copy)]
pub(crate) struct FilePart<'a> {
    pub(crate) source: FileSource<'a>,
    pub(crate) offset: u64,
    pub(crate) length: usize,
    /// Whether more follows this part. `sendfile` finds that out by itself.
    pub(crate) mode: SendMode,
}

/// How the bytes of a file get to the client.
#[derive(Clone, Copy)]
pub(crate) enum FileSource<'a> {
    /// From the page cache. The client may receive bytes that are written to the file later.
    PageCache(&'a File),
    /// As a copy, made now.
    Copied(&'a OpenFile),
}

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShutdownMode {
    /// Nothing more is sent.
    Write,
    /// Nothing more is sent or received.
    Both,
    /// The close will be a reset, which discards unsent bytes. Otherwise the kernel keeps the bytes that a client
    /// does not read for minutes after the close.
    ResetOnClose,
}

/// Bytes to send, from index `at`.
#[derive(Default)]
pub(crate) struct SendBuffer {
    pub(crate) buffer: Option<Buffer>,
    pub(crate) at: usize,
}

impl SendBuffer {
    /// Returns the buffer to append to.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        self.buffer.get_or_insert_with(Buffer::take)
    }

    /// Switches to a long buffer for bulk content.
    pub(crate) fn use_long_buffer(&mut self) {
        if !self.buffer.as_ref().is_some_and(Buffer::is_long) {
            let mut long = Buffer::of_size(Size::Long);
            long.extend_from_slice(self.rest());
            *self = Self { buffer: Some(long), at: 0 };
        }
    }

    /// Returns the bytes that are not sent.
    pub(crate) fn rest(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.at..])
    }

    pub(crate) fn len(&self) -> usize {
        self.rest().len()
    }
}

/// Sends two parts on a descriptor; see [`Stream::send`](crate::net::stream::Stream::send).
pub(super) fn send(fd: BorrowedFd<'_>, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
    let flags = match mode {
        SendMode::Flush | SendMode::Deferred => SendFlags::NOSIGNAL,
        SendMode::MoreFollows => SendFlags::NOSIGNAL | SendFlags::MORE,
    };
    Ok(retry_on_intr(|| match parts {
        [first, []] | [[], first] => rustix::net::send(fd, first, flags),
        [first, second] => {
            let slices = [IoSlice::new(first), IoSlice::new(second)];
            rustix::net::sendmsg(fd, &slices, &mut SendAncillaryBuffer::default(), flags)
        }
    })?)
}

/// Sends part of a file on a descriptor; see [`Stream::send_file`](crate::net::stream::Stream::send_file).
pub(super) fn send_file(fd: BorrowedFd<'_>, first: &[u8], part: FilePart<'_>) -> io::Result<usize> {
    match part.source {
        FileSource::PageCache(_) if !first.is_empty() => send(fd, [first, &[]], SendMode::MoreFollows),
        FileSource::PageCache(file) => send_page_cache(fd, file, part.offset, part.length),
        FileSource::Copied(file) => send_copy(fd, first, file, part.offset, part.length),
    }
}

fn send_page_cache(fd: BorrowedFd<'_>, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    Ok(retry_on_intr(|| {
        let mut at = offset;
        rustix::fs::sendfile(fd, file, Some(&mut at), len)
    })?)
}

fn send_copy(fd: BorrowedFd<'_>, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
    let Some(mapping) = file.mapping() else {
        let mut copy = Buffer::take();
        let room = copy.capacity();
        copy.resize(len.min(room), 0);
        let read = file.read_at(&mut copy[..], offset)?;
        return if read == 0 { Ok(0) } else { send(fd, [first, &copy[..read]], SendMode::MoreFollows) };
    };
    loop {
        let sent = mapping.send_with_prefix(first, offset, len, fd);
        match sent.as_ref().map_err(io::Error::raw_os_error) {
            Err(Some(libc::EINTR)) => {}
            Err(Some(libc::EFAULT)) => return Ok(0),
            _ => return sent,
        }
    }
}

/// Returns and limits the unsent bytes of a descriptor; see [`Stream::unsent_bytes`](crate::net::stream::Stream::unsent_bytes).
pub(super) fn unsent_bytes(fd: BorrowedFd<'_>, limit: Option<i32>) -> usize {
    if let Some(limit) = limit {
        // Unix sockets do not have this option.
        let _ = sys::set_tcp_option(fd, libc::TCP_NOTSENT_LOWAT, limit);
    }
    sys::notsent_bytes(fd)
}

/// Ends a descriptor's directions; see [`Stream::shutdown`](crate::net::stream::Stream::shutdown).
pub(super) fn shutdown(fd: BorrowedFd<'_>, how: ShutdownMode) {
    // Each fails only if the connection is already closed.
    let _ = match how {
        ShutdownMode::Write => rustix::net::shutdown(fd, rustix::net::Shutdown::Write),
        ShutdownMode::Both => rustix::net::shutdown(fd, rustix::net::Shutdown::Both),
        ShutdownMode::ResetOnClose => rustix::net::sockopt::set_socket_linger(fd, Some(Duration::ZERO)),
    };
}

/// Whether a receive filled the buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecvFill {
    Partial,
    Full,
}

/// Receives at most `max` available bytes and appends them to `into`.
pub(super) fn receive_at_most(
    fd: impl AsFd,
    into: &mut Option<Buffer>,
    max: usize,
) -> rustix::io::Result<(usize, RecvFill)> {
    let mut buffer = into.take().unwrap_or_else(Buffer::take);
    let had = buffer.len();
    buffer.resize(had + max, 0);
    let received = rustix::net::recv(fd, &mut buffer[had..], RecvFlags::empty());
    let count = received.map_or(0, |(count, _)| count);
    buffer.truncate(had + count);
    if !buffer.is_empty() {
        *into = Some(buffer);
    }
    let (count, _) = received?;
    Ok((count, if count < max { RecvFill::Partial } else { RecvFill::Full }))
}

/// Receives available bytes and appends them to `into`.
pub(super) fn receive(fd: impl AsFd, into: &mut Option<Buffer>) -> rustix::io::Result<(usize, RecvFill)> {
    let mut pooled = None;
    let buffer = match into {
        Some(buffer) => buffer,
        None => pooled.insert(Buffer::take()),
    };
    buffer.reserve();
    let room = buffer.capacity() - buffer.len();
    let (received, _) = rustix::net::recv(fd, rustix::buffer::spare_capacity(buffer), RecvFlags::empty())?;
    if received > 0 && pooled.is_some() {
        *into = pooled;
    }
    Ok((received, if received < room { RecvFill::Partial } else { RecvFill::Full }))
}
