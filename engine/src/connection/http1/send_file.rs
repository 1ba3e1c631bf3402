//! Sends files in slices, by `sendfile` or by copy, and aborts the response if the file changes.

use crate::buffer::Buffer;
use crate::connection::progress::Progress;
use crate::connection::sealed_copies::sealed_copy;
use crate::connection::transport::Transport;
use crate::file::FileContent;
use crate::limits::{COPIED_SLICE_BYTES, FILE_COPIED_BYTES, FILE_END_BYTES, FILE_SLICE_BYTES};
use crate::net::prefetch::prefetch;
use crate::net::raw::{FilePart, FileSource, SendMode};
use crate::net::runtime::yield_now;
use crate::net::stream::Stream;
use crate::service::CloseReason;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

/// Sends part of a file in slices and yields between slices.
///
/// The end is sent only after the file was checked against the announced length and times. Earlier bytes were copied
/// while the file was unchanged, or precede the end by more than the buffers of a client hold. So a complete response
/// has the bytes of one state of the file.
pub(super) async fn send_file<S: Stream>(
    transport: &Transport<S>,
    content: FileContent,
    progress: &mut Progress,
    sent: &mut u64,
) -> Result<(), CloseReason> {
    // Other tasks run during the send. Without a deadline, none of them evicts this connection as idle.
    transport.timeouts.clear();
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
    let mut head = std::mem::take(&mut *transport.output.borrow_mut());
    let mut checks_each_send = sealed_copy.is_none() && verified_end - at > COPIED_SLICE_BYTES;
    let mut prefetched_to = if sealed_copy.is_none() { at } else { end };
    while at < verified_end {
        let is_copied = at >= copied_from;
        let (slice_bytes, part_end) =
            if is_copied { (COPIED_SLICE_BYTES, verified_end) } else { (FILE_SLICE_BYTES, copied_from) };
        if at >= prefetched_to {
            prefetched_to = (at + FILE_SLICE_BYTES).min(part_end);
            prefetch_slice(transport, &content, at, prefetched_to - at).await?;
        }
        let slice_end = (at + slice_bytes).min(prefetched_to);
        while at < slice_end {
            let remaining = (slice_end - at) as usize;
            let attempt = || {
                if checks_each_send && !content.is_unchanged() {
                    return Ok(0);
                }
                let source = if is_copied { FileSource::Copied(&content.file) } else { FileSource::PageCache(source) };
                // Without a sealed copy, the end of the file follows.
                let mode = if slice_end == end { SendMode::Flush } else { SendMode::MoreFollows };
                let part = FilePart { source, offset: at, length: remaining, mode };
                let sent = transport.link.send_file(head.rest(), part);
                // Once the client makes the response wait, every send checks the file first.
                checks_each_send |=
                    sealed_copy.is_none() && !matches!(sent, Ok(sent) if sent == head.len() + remaining);
                sent
            };
            let count = transport.send_step(progress, attempt).await?;
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
    prefetch_slice(transport, &content, at, end - at).await?;
    let last = read_end(&content, at, end)?;
    let before = progress.bytes + head.len() as u64;
    let outcome = transport.send_parts(head.rest(), &last, progress).await;
    *sent += progress.bytes.saturating_sub(before);
    outcome
}

/// Waits until a slice is in the page cache, so that sending does not block on the disk.
async fn prefetch_slice<S: Stream>(
    transport: &Transport<S>,
    content: &FileContent,
    at: u64,
    len: u64,
) -> Result<(), CloseReason> {
    if len == 0 || is_in_memory(content, at, len) {
        return Ok(());
    }
    transport.timeouts.clear();
    prefetch(&transport.timeouts.worker, &content.file, at, len).await.ok_or(CloseReason::FileReadFailed)
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
