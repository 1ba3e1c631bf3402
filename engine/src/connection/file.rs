//! Sends files in slices, by `sendfile` or by copy, and aborts the response if the file changes.

use crate::buffer::Buffer;
use crate::connection::large_send_buffer::LargeSendBuffer;
use crate::connection::progress::Progress;
use crate::connection::transport::{Connection, Received};
use crate::file::{self, FileContent, SealedCopy, SendSource, SharedFile, SweeperGuard};
use crate::limits::{
    COPIED_SLICE_BYTES, FILE_COPIED_BYTES, FILE_END_BYTES, FILE_SLICE_BYTES, LARGE_SEND_BUFFER_BYTES,
    LARGE_SEND_BUFFERS_MAX, SEND_BUFFER_BYTES, SWEEP_INTERVAL,
};
use crate::net::connection_table::{Deadline, Interrupt};
use crate::net::prefetch::prefetch;
use crate::net::raw::{FilePart, FileSource};
use crate::net::runtime::{sleep, spawn_blocking, spawn_local, yield_now};
use crate::net::stream::Stream;
use crate::service::CloseReason;
use selvedge_proto::Persistence;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

impl<S: Stream> Connection<S> {
    /// Sends part of a file in slices and yields between slices.
    ///
    /// The end is sent only after the file was checked against the announced length and times. Earlier bytes were
    /// copied while the file was unchanged, or precede the end by more than the buffers of a client hold. So a
    /// complete response has the bytes of one state of the file.
    pub(super) async fn send_file(
        &self,
        content: FileContent,
        persistence: Persistence,
        progress: &mut Progress,
        sent: &mut u64,
    ) -> Result<(), CloseReason> {
        if persistence == Persistence::KeepAlive {
            self.acquire_large_send_buffer(content.length);
        }
        let outcome = self.send_slices(content, progress, sent).await;
        self.release_large_send_buffer();
        outcome
    }

    async fn send_slices(
        &self,
        content: FileContent,
        progress: &mut Progress,
        sent: &mut u64,
    ) -> Result<(), CloseReason> {
        // Other tasks run during the send. Without a deadline, none of them evicts this connection as idle.
        self.clear_deadline();
        let mut at = content.offset;
        let end = content.offset.saturating_add(content.length);
        // A sealed copy cannot change, so all of it can be sent by `sendfile`.
        let sealed_copy = sealed_copy(&content);
        let (source, copied_bytes, end_bytes) = match &sealed_copy {
            Some(copy) => (copy.file(), 0, 0),
            None => (&**content.file, FILE_COPIED_BYTES, FILE_END_BYTES),
        };
        let copied_from = end - copied_bytes.min(content.length);
        let verified_end = end - end_bytes.min(content.length);
        if sealed_copy.is_none() {
            // Opening the file and probing the page cache may each start a disk read and take tens of microseconds.
            // Yield between the two.
            yield_now().await;
        }
        let mut head = std::mem::take(&mut *self.output.borrow_mut());
        let mut checks_each_send = sealed_copy.is_none() && verified_end - at > COPIED_SLICE_BYTES;
        let mut prefetched_to = if sealed_copy.is_none() { at } else { end };
        while at < verified_end {
            let is_copied = at >= copied_from;
            let (slice_bytes, part_end) =
                if is_copied { (COPIED_SLICE_BYTES, verified_end) } else { (FILE_SLICE_BYTES, copied_from) };
            if at >= prefetched_to {
                prefetched_to = (at + FILE_SLICE_BYTES).min(part_end);
                self.prefetch(&content, at, prefetched_to - at).await?;
            }
            let slice_end = (at + slice_bytes).min(prefetched_to);
            while at < slice_end {
                let remaining = (slice_end - at) as usize;
                let attempt = || {
                    if checks_each_send && !content.is_unchanged() {
                        return Ok(0);
                    }
                    let source =
                        if is_copied { FileSource::Copied(&content.file) } else { FileSource::PageCache(source) };
                    let sent = self.stream.send_file(head.rest(), FilePart { source, offset: at, length: remaining });
                    // Once the client makes the response wait, every send checks the file first.
                    checks_each_send |=
                        sealed_copy.is_none() && !matches!(sent, Ok(sent) if sent == head.len() + remaining);
                    sent
                };
                let count = self.send_step(progress, attempt).await?;
                if count == 0 {
                    return Err(CloseReason::FileChanged);
                }
                let of_file = count.saturating_sub(head.len()) as u64;
                head.at += count - of_file as usize;
                at += of_file;
                *sent += of_file;
            }
            if at < end {
                yield_now().await;
            }
        }
        if sealed_copy.is_some() {
            return Ok(());
        }
        self.prefetch(&content, at, end - at).await?;
        let last = read_end(&content, at, end)?;
        let before = progress.bytes + head.len() as u64;
        let outcome = self.send_parts(head.rest(), &last, progress).await;
        *sent += progress.bytes.saturating_sub(before);
        outcome
    }

    /// Waits until a slice is in the page cache, so that sending does not block on the disk.
    async fn prefetch(&self, content: &FileContent, at: u64, len: u64) -> Result<(), CloseReason> {
        if len == 0 || is_in_memory(content, at, len) {
            return Ok(());
        }
        self.clear_deadline();
        prefetch(&self.worker, &content.file, at, len).await.ok_or(CloseReason::FileReadFailed)
    }
}

impl<S: Stream> Connection<S> {
    /// Sets a large send buffer for a long file, if a permit is free.
    fn acquire_large_send_buffer(&self, length: u64) {
        let permit = self.large_send_buffer.take().or_else(|| {
            let in_use = self.worker.large_send_buffers.get();
            (length > SEND_BUFFER_BYTES as u64 && in_use < LARGE_SEND_BUFFERS_MAX).then(|| {
                self.worker.large_send_buffers.set(in_use + 1);
                self.stream.unsent_bytes(Some(LARGE_SEND_BUFFER_BYTES));
                LargeSendBuffer(self.worker.clone())
            })
        });
        self.large_send_buffer.set(permit);
    }

    /// Releases the permit if the send queue is empty. Returns whether the connection holds none now.
    #[inline]
    pub(super) fn release_large_send_buffer(&self) -> bool {
        let Some(permit) = self.large_send_buffer.take() else { return true };
        self.large_send_buffer.set(Some(permit));
        if self.stream.unsent_bytes(None) > SEND_BUFFER_BYTES as usize {
            return false;
        }
        self.drop_large_send_buffer();
        true
    }

    /// Resets the send buffer and releases the permit.
    pub(super) fn drop_large_send_buffer(&self) {
        if self.large_send_buffer.take().is_some() {
            self.stream.unsent_bytes(Some(SEND_BUFFER_BYTES));
        }
    }

    /// Waits until the large send buffer is almost empty, at most for the send timeout. The kernel holds that data
    /// after a close as well, so the permit must not be released earlier.
    pub(super) async fn drain_send_queue(&self) {
        self.wait_for(Deadline::ResponseProgress, self.shared.limits.send_timeout);
        while !self.release_large_send_buffer() && !self.worker.is_draining.get() {
            sleep(SWEEP_INTERVAL).await;
            let received = poll_fn(|cx| Poll::Ready(self.poll_receive(cx))).await;
            let have = self.input.borrow().bytes().len();
            self.input.borrow_mut().consume(have);
            let is_interrupted = self.worker.connections.interrupt(self.id()) != Interrupt::None;
            if is_interrupted || matches!(received, Poll::Ready(Received::Failed)) {
                return;
            }
        }
    }
}

/// Returns the sealed copy of the file, if one exists. Starts to create one if the file is used often enough.
fn sealed_copy(content: &FileContent) -> Option<Arc<SealedCopy>> {
    match content.file.choose_source(&content.stamp, content.length, Instant::now()) {
        SendSource::Copy(copy) => Some(copy),
        SendSource::File => None,
        SendSource::FileWorthCopying => {
            drop(spawn_local(make_sealed_copy(content.file.shared().clone())));
            None
        }
    }
}

/// Creates a sealed copy, and evicts unused copies unless another task does so already.
async fn make_sealed_copy(file: Arc<SharedFile>) {
    let _ = spawn_blocking(move || file.ensure_copied()).await;
    let Some(_sweeper) = SweeperGuard::acquire() else { return };
    loop {
        sleep(file::SWEEP_INTERVAL).await;
        if spawn_blocking(file::sweep).await != Some(true) {
            return;
        }
    }
}

/// Reads the end of a file, before the file is checked against its announced state.
fn read_end(content: &FileContent, at: u64, end: u64) -> Result<Buffer, CloseReason> {
    let mut last = Buffer::take();
    last.resize((end - at) as usize, 0);
    match content.file.read_exact_at(&mut last, at) {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(CloseReason::FileReadFailed),
        Ok(()) if content.is_unchanged() => Ok(last),
        _ => Err(CloseReason::FileChanged),
    }
}

/// Whether the first and the last page of a slice are in the page cache. The pages between them were read ahead with
/// them.
fn is_in_memory(content: &FileContent, at: u64, len: u64) -> bool {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let probe = |position: u64| {
        let mut byte = [0];
        let mut into = [std::io::IoSliceMut::new(&mut byte)];
        // If the file system does not support the probe, the worker reads.
        !matches!(preadv2(&**content.file, &mut into, position, ReadWriteFlags::NOWAIT), Err(Errno::AGAIN))
    };
    probe(at) && (len == 1 || probe(at + len - 1))
}
