//! Sends files: in slices, by their pages or by copy, and cut where they have changed.

use crate::buffer::Buffer;
use crate::connection::wire::{Progress, Received, Wire};
use crate::limits::{
    COPIED_SLICE_BYTES, FILE_COPIED_BYTES, FILE_END_BYTES, FILE_SLICE_BYTES, ROOMY_MAX, SWEEP_INTERVAL,
    UNSENT_BYTES_MAX, UNSENT_BYTES_MAX_OF_ROOMY,
};
use crate::net::notes::{Deadline, Notice};
use crate::net::stream::{Stream, Then};
use crate::net::worker::Worker;
use crate::service::{self, CloseReason, FileContent, MemoryCopy, SharedFile, Source, Sweeper};
use selvedge_proto::Afterwards;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use tokio::task::{spawn_blocking, spawn_local, yield_now};
use tokio::time::sleep;

impl<S: Stream> Wire<S> {
    /// Sends part of a file in slices, so that the worker is fair to others.
    ///
    /// The end is read and held back until the file was seen to be as announced. What went
    /// before was copied while it was so, or is far enough ahead for no client to have it still
    /// unread: a complete answer has the bytes of one state of the file.
    pub(super) async fn send_file(
        &self,
        content: FileContent,
        afterwards: Afterwards,
        progress: &mut Progress,
        sent: &mut u64,
    ) -> Result<(), CloseReason> {
        if afterwards == Afterwards::KeepOpen {
            self.take_room(content.length);
        }
        let outcome = self.send_slices(content, progress, sent).await;
        self.give_room_back();
        outcome
    }

    async fn send_slices(
        &self,
        content: FileContent,
        progress: &mut Progress,
        sent: &mut u64,
    ) -> Result<(), CloseReason> {
        // Others have their turn meanwhile, and none of them may take this connection for one that waits for its client.
        self.wait_for_nothing();
        let mut at = content.offset;
        let end = content.offset.saturating_add(content.length);
        // From a copy that nothing can change, all of it goes by its pages.
        let kept = kept(&content);
        let (source, copied_bytes, end_bytes) = match &kept {
            Some(copy) => (copy.file(), 0, 0),
            None => (&**content.file, FILE_COPIED_BYTES, FILE_END_BYTES),
        };
        let copied_from = end - copied_bytes.min(content.length);
        let held_back = end - end_bytes.min(content.length);
        if kept.is_none() {
            // It may just have been opened, and the look whether it is in memory may have the kernel begin to read
            // it: tens of microseconds each, and others need not wait for both.
            yield_now().await;
        }
        if at < copied_from {
            self.send_head_of_file(progress).await?;
        }
        let mut head = std::mem::take(&mut *self.output.borrow_mut());
        let mut looks = kept.is_none() && held_back - at > COPIED_SLICE_BYTES;
        let mut in_memory_to = if kept.is_none() { at } else { end };
        while at < held_back {
            let is_copied = at >= copied_from;
            let (slice_bytes, part_end) =
                if is_copied { (COPIED_SLICE_BYTES, held_back) } else { (FILE_SLICE_BYTES, copied_from) };
            if at >= in_memory_to {
                in_memory_to = (at + FILE_SLICE_BYTES).min(part_end);
                self.have_in_memory(&content, at, in_memory_to - at).await?;
            }
            let slice_end = (at + slice_bytes).min(in_memory_to);
            while at < slice_end {
                let left = (slice_end - at) as usize;
                let attempt = || {
                    if looks && !content.is_as_announced() {
                        return Ok(0);
                    }
                    let sent = if is_copied {
                        self.stream.send_copy(head.rest(), &content.file, at, left)
                    } else {
                        self.stream.send_file(source, at, left)
                    };
                    // Once a client makes the answer wait, every send looks first.
                    looks |= kept.is_none() && !matches!(sent, Ok(sent) if sent == head.len() + left);
                    sent
                };
                let count = self.step(progress, attempt).await?;
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
        if kept.is_some() {
            return Ok(());
        }
        self.have_in_memory(&content, at, end - at).await?;
        let last = read_end(&content, at, end)?;
        let before = progress.bytes + head.len() as u64;
        let outcome = self.send_parts(head.rest(), &last, progress).await;
        *sent += progress.bytes.saturating_sub(before);
        outcome
    }

    /// Sends the head, telling the kernel that content follows at once.
    async fn send_head_of_file(&self, progress: &mut Progress) -> Result<(), CloseReason> {
        let mut output = std::mem::take(&mut *self.output.borrow_mut());
        while output.len() > 0 {
            output.at += self.step(progress, || self.stream.send([output.rest(), &[]], Then::More)).await?;
        }
        Ok(())
    }

    /// Waits until a slice is in memory, so that sending it waits for no disk.
    async fn have_in_memory(&self, content: &FileContent, at: u64, len: u64) -> Result<(), CloseReason> {
        if len == 0 || is_in_memory(content, at, len) {
            return Ok(());
        }
        self.wait_for_nothing();
        self.stream.bring_into_memory(&content.file, at, len).await.ok_or(CloseReason::FileFailed)
    }
}

/// One of the places of a worker for connections that have more room for bytes that cannot leave yet.
///
/// A connection has it until what it was sent has been sent on, and not only until the kernel has taken that: a
/// rush of clients who do not read would have it one after the other, and in the end all of it at once.
pub(super) struct Room(Rc<Worker>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.roomy.set(self.0.roomy.get() - 1);
    }
}

impl<S: Stream> Wire<S> {
    /// Has more room while long files are sent, where few others have it.
    fn take_room(&self, length: u64) {
        let room = self.room.take().or_else(|| {
            let few = self.worker.roomy.get();
            (length > UNSENT_BYTES_MAX as u64 && few < ROOMY_MAX).then(|| {
                self.worker.roomy.set(few + 1);
                self.stream.bound_unsent(UNSENT_BYTES_MAX_OF_ROOMY);
                Room(self.worker.clone())
            })
        });
        self.room.set(room);
    }

    /// Gives the room back if it is not in use; whether there is none now.
    #[inline]
    pub(super) fn give_room_back(&self) -> bool {
        let Some(room) = self.room.take() else { return true };
        self.room.set(Some(room));
        if self.stream.unsent() > UNSENT_BYTES_MAX as usize {
            return false;
        }
        self.end_room();
        true
    }

    /// Has no more room than any other connection from now on.
    pub(super) fn end_room(&self) {
        if self.room.take().is_some() {
            self.stream.bound_unsent(UNSENT_BYTES_MAX);
        }
    }

    /// Waits, within bounds, until a client that is sent nothing more has taken what the room is in use for:
    /// the kernel keeps that also of a connection that was closed.
    pub(super) async fn see_off(&self) {
        self.wait_for(Deadline::ResponseProgress, self.common.limits.send_silence);
        while !self.give_room_back() && !self.worker.draining.get() {
            sleep(SWEEP_INTERVAL).await;
            let received = poll_fn(|cx| Poll::Ready(self.poll_more(cx))).await;
            let have = self.input.borrow().bytes().len();
            self.input.borrow_mut().consume(have);
            let is_told = self.worker.notes.notice(self.place()) != Notice::None;
            if is_told || matches!(received, Poll::Ready(Received::Failed)) {
                return;
            }
        }
    }
}

/// The copy that an answer is sent from, if there is one. Where the file is worth one, it is made
/// meanwhile.
fn kept(content: &FileContent) -> Option<Arc<MemoryCopy>> {
    match content.file.source(&content.state, content.length, Instant::now()) {
        Source::Copy(copy) => Some(copy),
        Source::File => None,
        Source::FileWorthCopying => {
            drop(spawn_local(copy(content.file.shared().clone())));
            None
        }
    }
}

/// Has a file copied, and then copies let go of that nobody uses, unless somebody does that.
async fn copy(file: Arc<SharedFile>) {
    let _ = spawn_blocking(move || file.have_copied()).await;
    let Some(_sweeper) = Sweeper::begin() else { return };
    loop {
        sleep(service::SWEEP_INTERVAL).await;
        if !spawn_blocking(service::sweep).await.unwrap_or(false) {
            return;
        }
    }
}

/// The end of a file, read before the file was seen to be as announced.
fn read_end(content: &FileContent, at: u64, end: u64) -> Result<Buffer, CloseReason> {
    let mut last = Buffer::take();
    last.resize((end - at) as usize, 0);
    match content.file.read_exact_at(&mut last, at) {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(CloseReason::FileFailed),
        Ok(()) if content.is_as_announced() => Ok(last),
        _ => Err(CloseReason::FileChanged),
    }
}

/// Whether the first and the last page of a slice are in memory. The pages between them
/// were read ahead with them, or go soon after.
fn is_in_memory(content: &FileContent, at: u64, len: u64) -> bool {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let probe = |position: u64| {
        let mut byte = [0];
        let mut into = [std::io::IoSliceMut::new(&mut byte)];
        // A file system that cannot tell is read on the worker, as it always was.
        !matches!(preadv2(&**content.file, &mut into, position, ReadWriteFlags::NOWAIT), Err(Errno::AGAIN))
    };
    probe(at) && (len == 1 || probe(at + len - 1))
}
