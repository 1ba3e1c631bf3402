//! System calls that send and receive on a descriptor, below both kinds of socket.

use crate::buffer::Buffer;
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
        SendMode::Flush => SendFlags::NOSIGNAL,
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
pub(super) fn send_file(fd: BorrowedFd<'_>, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    Ok(retry_on_intr(|| {
        let mut at = offset;
        rustix::fs::sendfile(fd, file, Some(&mut at), len)
    })?)
}

/// Sends a copy of part of a file on a descriptor; see [`Stream::send_copy`](crate::net::stream::Stream::send_copy).
pub(super) fn send_copy(
    fd: BorrowedFd<'_>,
    first: &[u8],
    file: &OpenFile,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
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

/// Limits unsent bytes on a descriptor; see [`Stream::set_notsent_lowat`](crate::net::stream::Stream::set_notsent_lowat).
pub(super) fn set_notsent_lowat(fd: BorrowedFd<'_>, bytes_max: i32) {
    // Unix sockets do not have this option.
    let _ = sys::set_tcp_option(fd, libc::TCP_NOTSENT_LOWAT, bytes_max);
}

/// Makes the close of a descriptor a reset; see [`Stream::reset_on_close`](crate::net::stream::Stream::reset_on_close).
pub(super) fn reset_on_close(fd: BorrowedFd<'_>) {
    // Fails only if the connection is already closed.
    let _ = rustix::net::sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

/// Whether a receive filled the buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecvFill {
    Partial,
    Full,
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
