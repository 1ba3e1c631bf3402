//! Writes a response: its head, its content, and what it means for the connection.

use crate::connection::App;
use crate::connection::http1::PANICKED;
use crate::connection::wire::{Progress, Wire};
use crate::limits::{BATCH_BYTES, COPY_BYTES_MAX, FILE_SLICE_BYTES};
use crate::net::notes::Deadline;
use crate::net::stream::{Stream, Then};
use crate::net::worker::offload;
use crate::service::{Body, Chunks, CloseReason, Exchange, FileContent, Observer, Outcome, Request, Response};
use selvedge_proto::field::Fields;
use selvedge_proto::head::Version;
use selvedge_proto::http1::write::{self, ContentFraming, ResponseHead};
use selvedge_proto::method::Method;
use selvedge_proto::{Afterwards, Reject, Status};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

/// What became of a response.
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) reason: Option<&'static str>,
    pub(super) content_bytes: u64,
    /// Whether all of it was given to the connection.
    pub(super) outcome: Result<(), CloseReason>,
    pub(super) afterwards: Afterwards,
    /// Why the connection closes, if it does.
    pub(super) close_reason: CloseReason,
}

/// What of the request decides how its answer is written.
struct Asked {
    method: Method,
    version: Version,
    afterwards: Afterwards,
    close_reason: CloseReason,
}

impl<S: Stream> Wire<S> {
    /// Writes the answer to a request.
    pub(super) async fn respond(&self, request: &Request, response: Response) -> Answer {
        let mut asked = Asked {
            method: request.method(),
            version: request.version(),
            afterwards: request.head.persistence,
            close_reason: CloseReason::Asked,
        };
        let forced = match response.reason() {
            Some(PANICKED) => Some(CloseReason::Panicked),
            _ if self.worker.draining.get() => Some(CloseReason::Draining),
            _ => self.content_forces_close(),
        };
        if let Some(reason) = forced {
            (asked.afterwards, asked.close_reason) = (Afterwards::Close, reason);
        }
        self.write(asked, response).await
    }

    /// Writes the answer to bytes that are no request.
    pub(super) async fn respond_refusal(&self, response: Response) -> Answer {
        let asked = Asked {
            method: Method::Other,
            version: Version::Http11,
            afterwards: Afterwards::Close,
            close_reason: CloseReason::AnswerEnded,
        };
        self.write(asked, response).await
    }

    async fn write(&self, asked: Asked, mut response: Response) -> Answer {
        let Asked { method, version, mut afterwards, mut close_reason } = asked;
        let body = std::mem::take(&mut response.body);
        let framing = write::content_framing(response.status, version, body.length());
        if framing == ContentFraming::UntilClose && afterwards == Afterwards::KeepOpen {
            (afterwards, close_reason) = (Afterwards::Close, CloseReason::AnswerEnded);
        }
        let head = ResponseHead {
            status: response.status,
            version,
            framing,
            afterwards,
            date: &self.worker.clock.date(),
            fields: response.fields(),
        };
        head.write(self.output.borrow_mut().bytes());
        let mut answer = Answer {
            status: response.status,
            reason: response.reason(),
            content_bytes: 0,
            outcome: Ok(()),
            afterwards,
            close_reason,
        };
        if write::has_content(framing, method) {
            answer.outcome = match body {
                Body::Empty => Ok(()),
                Body::Bytes(bytes) => self.write_bytes(&bytes, &mut answer.content_bytes).await,
                Body::File(file) => Box::pin(self.send_file(file, &mut answer.content_bytes)).await,
                Body::Stream { length, chunks } => {
                    Box::pin(self.send_stream(chunks, length, framing, &mut answer.content_bytes)).await
                }
            };
        }
        if answer.outcome.is_ok() && self.output.borrow().len() >= BATCH_BYTES {
            answer.outcome = self.flush().await;
        }
        answer
    }

    async fn write_bytes(&self, bytes: &[u8], sent: &mut u64) -> Result<(), CloseReason> {
        *sent = bytes.len() as u64;
        if bytes.len() <= COPY_BYTES_MAX {
            self.output.borrow_mut().bytes().extend_from_slice(bytes);
            return Ok(());
        }
        Box::pin(self.send_behind_output(bytes, &mut self.send_progress())).await
    }

    /// Sends what has yet to leave, and `bytes` behind it, together.
    async fn send_behind_output(&self, bytes: &[u8], progress: &mut Progress) -> Result<(), CloseReason> {
        let output = std::mem::take(&mut *self.output.borrow_mut());
        let first = output.buffer.as_ref().map_or(&[][..], |buffer| &buffer[output.at..]);
        self.send_parts(first, bytes, progress).await
    }

    /// Sends part of a file in slices, so that the worker is fair to others.
    async fn send_file(&self, content: FileContent, sent: &mut u64) -> Result<(), CloseReason> {
        let mut progress = self.send_progress();
        self.send_head_of_file(&mut progress).await?;
        let mut at = content.offset;
        let end = content.offset.saturating_add(content.length);
        let before = (content.length > FILE_SLICE_BYTES).then(|| FileState::of(&content.file));
        while at < end {
            let len = FILE_SLICE_BYTES.min(end - at);
            if at + len == end && before.as_ref().is_some_and(|before| *before != FileState::of(&content.file)) {
                return Err(CloseReason::FileChanged);
            }
            if !is_in_memory(&content, at, len) {
                self.wait_for_nothing();
                bring_into_memory(&content, at, len).await.ok_or(CloseReason::FileFailed)?;
            }
            let slice_end = at + len;
            while at < slice_end {
                let count = self.send_slice(&content, at, (slice_end - at) as usize, &mut progress).await?;
                if count == 0 {
                    return Err(CloseReason::FileChanged);
                }
                at += count as u64;
                *sent += count as u64;
            }
            if at < end {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends the head, telling the kernel that content follows at once.
    async fn send_head_of_file(&self, progress: &mut Progress) -> Result<(), CloseReason> {
        self.wait_for_progress(Deadline::ResponseProgress, progress);
        poll_fn(|cx| {
            let output = &mut *self.output.borrow_mut();
            while let Some(buffer) = &output.buffer
                && output.at < buffer.len()
            {
                let sent = self.stream.poll_send(cx, [&buffer[output.at..], &[]], Then::More);
                match self.poll_or_notice(sent) {
                    Poll::Ready(Ok(count)) => output.at += count,
                    Poll::Ready(Err(reason)) => return Poll::Ready(Err(reason)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            *output = Default::default();
            Poll::Ready(Ok(()))
        })
        .await
    }

    async fn send_slice(
        &self,
        content: &FileContent,
        at: u64,
        len: usize,
        progress: &mut Progress,
    ) -> Result<usize, CloseReason> {
        self.wait_for_progress(Deadline::ResponseProgress, progress);
        let sent = poll_fn(|cx| self.poll_or_notice(self.stream.poll_send_file(cx, &content.file, at, len))).await?;
        progress.bytes += sent as u64;
        Ok(sent)
    }

    /// Sends pieces as they come; whenever none is there, what came before has left.
    async fn send_stream(
        &self,
        mut chunks: Pin<Box<dyn Chunks>>,
        length: Option<u64>,
        framing: ContentFraming,
        sent: &mut u64,
    ) -> Result<(), CloseReason> {
        loop {
            let next = poll_fn(|cx| Poll::Ready(chunks.as_mut().poll_chunk(cx))).await;
            let next = match next {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    self.flush().await?;
                    self.wait_for_nothing();
                    poll_fn(|cx| chunks.as_mut().poll_chunk(cx)).await
                }
            };
            let Some(piece) = next else { break };
            let piece = piece.map_err(|_| CloseReason::StreamFailed)?;
            if piece.is_empty() {
                continue;
            }
            *sent += piece.len() as u64;
            if length.is_some_and(|length| *sent > length) {
                return Err(CloseReason::StreamFailed);
            }
            self.write_piece(&piece, framing).await?;
        }
        match framing {
            ContentFraming::Chunked => write::write_last_chunk(&Fields::new(), self.output.borrow_mut().bytes()),
            _ if length.is_some_and(|length| *sent < length) => return Err(CloseReason::StreamFailed),
            _ => {}
        }
        Ok(())
    }

    async fn write_piece(&self, piece: &[u8], framing: ContentFraming) -> Result<(), CloseReason> {
        if framing == ContentFraming::Chunked {
            write::write_chunk_size(piece.len(), self.output.borrow_mut().bytes());
        }
        if piece.len() <= COPY_BYTES_MAX {
            self.output.borrow_mut().bytes().extend_from_slice(piece);
        } else {
            self.send_behind_output(piece, &mut self.send_progress()).await?;
        }
        if framing == ContentFraming::Chunked {
            self.output.borrow_mut().bytes().extend_from_slice(b"\r\n");
        }
        if self.output.borrow().len() >= BATCH_BYTES { self.flush().await } else { Ok(()) }
    }
}

/// What shows that a file is no longer the one whose length was announced.
#[derive(PartialEq, Eq)]
struct FileState(Option<(u64, std::time::SystemTime)>);

impl FileState {
    fn of(file: &std::fs::File) -> Self {
        Self(file.metadata().ok().and_then(|facts| Some((facts.len(), facts.modified().ok()?))))
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
        !matches!(preadv2(&content.file, &mut into, position, ReadWriteFlags::NOWAIT), Err(Errno::AGAIN))
    };
    probe(at) && (len == 1 || probe(at + len - 1))
}

/// Reads a slice where waiting for the disk holds nobody up. `None` when it cannot be read.
async fn bring_into_memory(content: &FileContent, at: u64, len: u64) -> Option<()> {
    const STEP: usize = 256 * 1024;
    let file = content.file.try_clone().ok()?;
    offload(move || {
        let mut scratch = vec![0; STEP.min(len as usize)];
        let mut read = 0;
        while read < len {
            let want = scratch.len().min((len - read) as usize);
            match rustix::io::pread(&file, &mut scratch[..want], at + read) {
                // Shorter than it was: the send will see it, too.
                Ok(0) => return Some(()),
                Ok(count) => read += count as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(())
    })
    .await?
}

impl Answer {
    /// Tells the observer of a request and its answer.
    pub(super) fn report<T, O: Observer, S>(
        &self,
        app: &App<T, O>,
        wire: &Wire<S>,
        request: &Request,
        began: Option<Instant>,
    ) {
        app.observer.finished(&Exchange {
            request: Some(request),
            line: request.head.line.of(request.head_bytes()),
            elapsed: began.map(|began| began.elapsed()),
            ..self.exchange(wire)
        });
    }

    /// Tells the observer of bytes that were refused.
    pub(super) fn report_refusal<T, O: Observer, S>(&self, app: &App<T, O>, wire: &Wire<S>, reject: Option<Reject>) {
        const LINE_BYTES_MAX: usize = 1024;
        let input = wire.input.borrow();
        let line = input.bytes().strip_prefix(b"\r\n").unwrap_or(input.bytes());
        let line = &line[..line.len().min(LINE_BYTES_MAX)];
        let end = line.iter().position(|&b| b == b'\r' || b == b'\n').unwrap_or(line.len());
        app.observer.finished(&Exchange { line: &line[..end], reject, ..self.exchange(wire) });
    }

    fn exchange<S>(&self, wire: &Wire<S>) -> Exchange<'static> {
        Exchange {
            peer: wire.peer(),
            request: None,
            line: &[],
            status: self.status,
            content_bytes: self.content_bytes,
            outcome: if self.outcome.is_ok() { Outcome::Complete } else { Outcome::Cut },
            reject: None,
            reason: self.reason,
            unix_time: wire.worker.clock.unix(),
            elapsed: None,
        }
    }
}
