//! Sends the content of responses in DATA frames.

use super::connection::Connection;
use super::data_frame::{FRAME_HEADER_BYTES, SendStep, after_frame, send_bytes};
use super::tunnel::OutgoingTunnel;
use crate::connection::sealed_copies::sealed_copy;
use crate::file::{FileContent, SealedCopy};
use crate::limits::FILE_SLICE_BYTES;
use crate::net::prefetch::prefetch;
use crate::net::stream::Stream;
use crate::net::worker::Worker;
use crate::service::{Chunks, CloseReason};
use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use selvedge_proto::http2::{End, Section, StreamId, Turn};
use std::future::Future;
use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The content of a response that is being sent.
pub(super) enum Outgoing {
    /// The rest of bytes in memory.
    Bytes(Bytes),
    File(OutgoingFile),
    Stream(OutgoingStream),
    /// What the handler of another protocol sends.
    Tunnel(OutgoingTunnel),
}

/// The rest of a file.
pub(super) struct OutgoingFile {
    content: Box<FileContent>,
    end: u64,
    /// A copy that cannot change.
    sealed_copy: Option<Arc<SealedCopy>>,
    /// Reads the next part into the page cache.
    prefetch: Option<Pin<Box<dyn Future<Output = Option<()>>>>>,
}

/// The rest of a stream of chunks.
pub(super) struct OutgoingStream {
    chunks: Pin<Box<dyn Chunks>>,
    /// The rest of the current chunk.
    chunk: Bytes,
    /// What has to follow in total, if the length was announced.
    remaining: Option<u64>,
}

/// What follows in a stream of chunks.
enum Next {
    /// The current chunk.
    Chunk,
    End,
    /// The application reported an error.
    Failed,
}

impl Outgoing {
    pub(super) fn of_file(content: Box<FileContent>) -> Self {
        let end = content.offset.saturating_add(content.length);
        let sealed_copy = sealed_copy(&content);
        Self::File(OutgoingFile { content, end, sealed_copy, prefetch: None })
    }

    pub(super) fn of_chunks(chunks: Pin<Box<dyn Chunks>>, length: Option<u64>) -> Self {
        Self::Stream(OutgoingStream { chunks, chunk: Bytes::new(), remaining: length })
    }

    /// Writes the next frame. `Pending` if the content is not available yet; the context is woken then.
    pub(super) fn poll_send<S: Stream>(
        &mut self,
        connection: &Connection<S>,
        turn: Turn,
        scratch: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<SendStep> {
        match self {
            Self::Bytes(bytes) => {
                let piece = bytes.split_to(bytes.len().min(turn.bytes_max));
                let end = if bytes.is_empty() { End::Last } else { End::More };
                Poll::Ready(send_bytes(connection, turn.stream, &piece, end))
            }
            Self::File(file) => file.poll_send(connection, turn, scratch, cx),
            Self::Stream(stream) => stream.poll_send(connection, turn, cx),
            Self::Tunnel(tunnel) => tunnel.poll_send(connection, turn, cx),
        }
    }

    /// Moves what does not depend on the client's reading.
    pub(super) fn poll_progress(&mut self, cx: &mut Context<'_>) {
        if let Self::Stream(stream) = self {
            stream.chunks.as_mut().poll_progress(cx);
        }
    }

    /// Writes the end if no content precedes it, which needs no window.
    pub(super) fn poll_end<S: Stream>(
        &mut self,
        connection: &Connection<S>,
        id: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<SendStep> {
        match self {
            Self::Stream(stream) => stream.poll_chunk(cx).map(|next| match next {
                Next::Chunk => {
                    // What does not depend on the client's reading continues.
                    stream.chunks.as_mut().poll_progress(cx);
                    SendStep::More(0)
                }
                Next::End => stream.end(connection, id),
                Next::Failed => SendStep::Failed(CloseReason::StreamFailed),
            }),
            Self::Tunnel(tunnel) => tunnel.poll_end(connection, id, cx),
            Self::Bytes(_) | Self::File(_) => Poll::Ready(SendStep::More(0)),
        }
    }
}

impl OutgoingFile {
    fn poll_send<S: Stream>(
        &mut self,
        connection: &Connection<S>,
        turn: Turn,
        scratch: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<SendStep> {
        let count = usize::try_from(self.end - self.content.offset).map_or(turn.bytes_max, |n| n.min(turn.bytes_max));
        // The bytes are read behind the place of the frame header, which is written when they are right.
        let mut output = connection.transport.output.borrow_mut();
        let out = output.bytes();
        let start = out.len();
        out.resize(start + FRAME_HEADER_BYTES + count, 0);
        let read = self.poll_read(&connection.transport.timeouts.worker, &mut out[start + FRAME_HEADER_BYTES..], cx);
        if !matches!(read, Poll::Ready(Ok(()))) {
            out.truncate(start);
        }
        if let Err(reason) = ready!(read) {
            return Poll::Ready(SendStep::Failed(reason));
        }
        self.content.offset += count as u64;
        let end = if self.content.offset == self.end { End::Last } else { End::More };
        scratch.clear();
        let begun = connection.protocol.borrow_mut().begin_data(turn.stream, count, end, scratch);
        match scratch.as_slice().try_into() {
            Ok(header) => {
                let header: [u8; FRAME_HEADER_BYTES] = header;
                out[start..start + FRAME_HEADER_BYTES].copy_from_slice(&header);
            }
            Err(_) => out.truncate(start),
        }
        Poll::Ready(after_frame(begun, count, end))
    }

    /// Reads the next bytes of the file while it is in its announced state.
    fn poll_read(
        &mut self,
        worker: &Rc<Worker>,
        into: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CloseReason>> {
        if let Some(copy) = &self.sealed_copy {
            let read = read_at(copy.file(), into, self.content.offset, ReadWriteFlags::empty());
            return Poll::Ready(read.map_err(|_| CloseReason::FileReadFailed));
        }
        loop {
            if let Some(prefetch) = &mut self.prefetch {
                let prefetched = ready!(prefetch.as_mut().poll(cx));
                self.prefetch = None;
                if prefetched.is_none() {
                    return Poll::Ready(Err(CloseReason::FileReadFailed));
                }
            }
            match read_at(&**self.content.file, into, self.content.offset, ReadWriteFlags::NOWAIT) {
                Ok(()) if self.content.is_unchanged() => return Poll::Ready(Ok(())),
                Ok(()) => return Poll::Ready(Err(CloseReason::FileChanged)),
                // Not in the page cache.
                Err(Errno::AGAIN) => {
                    let (worker, file, at) = (worker.clone(), self.content.file.clone(), self.content.offset);
                    let length = (self.end - at).min(FILE_SLICE_BYTES);
                    self.prefetch = Some(Box::pin(async move { prefetch(&worker, &file, at, length).await }));
                }
                // The file is shorter than announced.
                Err(Errno::NODATA) => return Poll::Ready(Err(CloseReason::FileChanged)),
                Err(_) => return Poll::Ready(Err(CloseReason::FileReadFailed)),
            }
        }
    }
}

/// Reads all of `into` at an offset. Fails with `NODATA` at the end of the file, and with `AGAIN` if the flags forbid to
/// wait for the disk.
fn read_at(file: impl AsFd, into: &mut [u8], offset: u64, flags: ReadWriteFlags) -> Result<(), Errno> {
    let mut at = 0;
    while at < into.len() {
        let read = preadv2(&file, &mut [IoSliceMut::new(&mut into[at..])], offset + at as u64, flags);
        match read {
            Ok(0) => return Err(Errno::NODATA),
            Ok(count) => at += count,
            Err(Errno::INTR) => {}
            // The file system cannot tell, so the worker reads.
            Err(Errno::OPNOTSUPP) if !flags.is_empty() => {
                return read_at(file, &mut into[at..], offset + at as u64, ReadWriteFlags::empty());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl OutgoingStream {
    fn poll_send<S: Stream>(&mut self, connection: &Connection<S>, turn: Turn, cx: &mut Context<'_>) -> Poll<SendStep> {
        match ready!(self.poll_chunk(cx)) {
            Next::Chunk => {}
            Next::End => return Poll::Ready(self.end(connection, turn.stream)),
            Next::Failed => return Poll::Ready(SendStep::Failed(CloseReason::StreamFailed)),
        }
        let count = self.chunk.len().min(turn.bytes_max);
        if let Some(remaining) = &mut self.remaining {
            match remaining.checked_sub(count as u64) {
                Some(rest) => *remaining = rest,
                None => return Poll::Ready(SendStep::Failed(CloseReason::StreamFailed)),
            }
        }
        let piece = self.chunk.split_to(count);
        let is_last = self.remaining == Some(0) && self.chunk.is_empty() && !self.chunks.may_have_trailers();
        Poll::Ready(send_bytes(connection, turn.stream, &piece, if is_last { End::Last } else { End::More }))
    }

    /// Makes the current chunk one that is not empty.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        while self.chunk.is_empty() {
            match ready!(self.chunks.as_mut().poll_chunk(cx)) {
                None => return Poll::Ready(Next::End),
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(_)) => return Poll::Ready(Next::Failed),
            }
        }
        Poll::Ready(Next::Chunk)
    }

    /// Writes the end of the content, with trailers if the application has any.
    fn end<S: Stream>(&mut self, connection: &Connection<S>, stream: StreamId) -> SendStep {
        if self.remaining.is_some_and(|remaining| remaining > 0) {
            return SendStep::Failed(CloseReason::StreamFailed);
        }
        let trailers = self.chunks.as_mut().trailers();
        if trailers.lines().is_empty() {
            return send_bytes(connection, stream, &[], End::Last);
        }
        let sent = connection.with_protocol(|protocol, out| {
            protocol.send_fields(stream, Section::Trailers, out, |block| block.fields(&trailers))
        });
        after_frame(sent, 0, End::Last)
    }
}
