//! Writes a response: its head, its content, and what it means for the connection.

use crate::buffer::Buffer;
use crate::connection::http1::PANICKED;
use crate::connection::wire::{Progress, Wire};
use crate::connection::{App, Existing, Term};
use crate::limits::{
    BATCH_BYTES, COPY_BYTES_MAX, DISK_READ_BYTES, FEW, FILE_COPIED_BYTES, FILE_END_BYTES, FILE_SLICE_BYTES,
    UNSENT_BYTES_MAX, UNSENT_BYTES_MAX_OF_FEW,
};
use crate::net::stream::{Stream, Then};
use crate::net::worker::offload;
use crate::service::{
    Body, Chunks, CloseReason, Exchange, FieldList, FileContent, Observer, Outcome, Request, Response, Switch,
};
use selvedge_proto::head::Version;
use selvedge_proto::http1::write::{self, ContentFraming, ResponseHead};
use selvedge_proto::method::Method;
use selvedge_proto::{Afterwards, Reject, Status};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

/// What became of a response.
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) reason: Option<&'static str>,
    pub(super) fields: FieldList,
    pub(super) head_bytes: usize,
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

/// Content that could not be written behind the head at once.
pub(super) struct Rest {
    body: Body,
    framing: ContentFraming,
}

impl<S: Stream> Wire<S> {
    /// Begins the answer to a request: its head and, when that is small and at hand, all of
    /// its content. Nothing is sent yet.
    pub(super) fn begin_answer(&self, request: &Request, response: Response, term: Term) -> (Answer, Option<Rest>) {
        let mut asked = Asked {
            method: request.method(),
            version: request.version(),
            afterwards: request.head().persistence,
            close_reason: CloseReason::Asked,
        };
        if response.afterwards() == Afterwards::Close && asked.afterwards == Afterwards::KeepOpen {
            (asked.afterwards, asked.close_reason) = (Afterwards::Close, CloseReason::AnswerEnded);
        }
        // The application took the content to make its answer of it.
        if request.parts.content.is_empty() && matches!(response.body, Body::Stream { .. }) {
            self.read_on_while_answering();
        }
        let by_content = self.content_forces_close();
        let forced = match response.reason() {
            Some(PANICKED) => Some(CloseReason::Panicked),
            _ if self.worker.draining.get() => Some(CloseReason::Draining),
            _ if term == Term::Over(Existing::Finish) => Some(CloseReason::Replaced),
            _ => by_content,
        };
        if let Some(reason) = forced {
            (asked.afterwards, asked.close_reason) = (Afterwards::Close, reason);
        }
        self.begin(asked, response)
    }

    /// Begins the answer to bytes that are no request.
    pub(super) fn begin_refusal(&self, response: Response) -> (Answer, Option<Rest>) {
        let asked = Asked {
            method: Method::Other,
            version: Version::Http11,
            afterwards: Afterwards::Close,
            close_reason: CloseReason::AnswerEnded,
        };
        self.begin(asked, response)
    }

    fn begin(&self, asked: Asked, mut response: Response) -> (Answer, Option<Rest>) {
        let Asked { method, version, mut afterwards, mut close_reason } = asked;
        if response.status.is_interim() {
            if response.status == Status::SWITCHING_PROTOCOLS
                && let Body::Upgrade(switch) = std::mem::take(&mut response.body)
            {
                return self.begin_switch(*switch, response);
            }
            // A final answer has to follow an interim one, and this was all the application had.
            response = Response::error(Status::INTERNAL_SERVER_ERROR).because("the application answered with 1xx");
        }
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
            dated: &self.common.dated(self.worker.clock.unix()),
            fields: response.fields(),
        };
        let mut output = self.output.borrow_mut();
        let before = output.bytes().len();
        head.write(output.bytes());
        let mut answer = Answer {
            status: response.status,
            reason: response.reason(),
            head_bytes: output.bytes().len() - before,
            fields: response.into_fields(),
            content_bytes: 0,
            outcome: Ok(()),
            afterwards,
            close_reason,
        };
        match body {
            _ if !write::has_content(framing, method) => {}
            Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                output.bytes().extend_from_slice(&bytes);
                answer.content_bytes = bytes.len() as u64;
            }
            body => return (answer, Some(Rest { body, framing })),
        }
        let rest = (output.len() >= BATCH_BYTES).then_some(Rest { body: Body::Empty, framing });
        (answer, rest)
    }

    /// Ends HTTP on the connection: what follows the head is another protocol's.
    #[cold]
    fn begin_switch(&self, switch: Switch, response: Response) -> (Answer, Option<Rest>) {
        let mut output = self.output.borrow_mut();
        let before = output.bytes().len();
        let dated = self.common.dated(self.worker.clock.unix());
        write::write_switch(&switch.protocol, &dated, response.fields(), output.bytes());
        self.switch.set(Some(switch.then));
        let answer = Answer {
            status: response.status,
            reason: None,
            head_bytes: output.bytes().len() - before,
            fields: response.into_fields(),
            content_bytes: 0,
            outcome: Ok(()),
            afterwards: Afterwards::Close,
            close_reason: CloseReason::Switched,
        };
        (answer, Some(Rest { body: Body::Empty, framing: ContentFraming::Absent }))
    }

    /// Sends the head and what did not fit behind it.
    pub(super) async fn send_rest(&self, rest: Rest, answer: &mut Answer) {
        let mut progress = self.send_progress();
        let sent = &mut answer.content_bytes;
        answer.outcome = match rest.body {
            Body::Empty | Body::Upgrade(_) => self.flush().await,
            Body::Bytes(bytes) => {
                let head_bytes = self.output.borrow().len() as u64;
                let outcome = self.send_behind_output(&bytes, &mut progress).await;
                *sent = progress.bytes.saturating_sub(head_bytes);
                outcome
            }
            Body::File(file) => self.send_file(file, &mut progress, sent).await,
            Body::Stream { length, chunks } => self.send_stream(chunks, length, rest.framing, sent).await,
        };
    }

    /// Sends what has yet to leave, and `bytes` behind it, together.
    async fn send_behind_output(&self, bytes: &[u8], progress: &mut Progress) -> Result<(), CloseReason> {
        let output = std::mem::take(&mut *self.output.borrow_mut());
        self.send_parts(output.rest(), bytes, progress).await
    }

    /// Sends part of a file in slices, so that the worker is fair to others.
    ///
    /// The end is read and held back until the file was seen to be as announced. What went
    /// before was copied while it was so, or is far enough ahead for no client to have it still
    /// unread: a complete answer has the bytes of one state of the file.
    async fn send_file(
        &self,
        content: FileContent,
        progress: &mut Progress,
        sent: &mut u64,
    ) -> Result<(), CloseReason> {
        let mut at = content.offset;
        let end = content.offset.saturating_add(content.length);
        let _room = Room::take(self, content.length);
        // From a copy that nothing can change, all of it goes by its pages.
        let kept = content.file.copy_of(&content.state);
        let (source, copied_bytes, end_bytes) = match kept {
            Some(copy) => (copy, 0, 0),
            None => (&**content.file, FILE_COPIED_BYTES, FILE_END_BYTES),
        };
        let copied_from = end - copied_bytes.min(content.length);
        let held_back = end - end_bytes.min(content.length);
        if at < copied_from {
            self.send_head_of_file(progress).await?;
        }
        let mut head = std::mem::take(&mut *self.output.borrow_mut());
        let mut looks = kept.is_none() && content.length > FILE_SLICE_BYTES;
        while at < held_back {
            let is_copied = at >= copied_from;
            let slice_end = (at + FILE_SLICE_BYTES).min(if is_copied { held_back } else { copied_from });
            if kept.is_none() {
                self.have_in_memory(&content, at, slice_end - at).await?;
            }
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
                tokio::task::yield_now().await;
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
        bring_into_memory(content, at, len).await.ok_or(CloseReason::FileFailed)
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
                    poll_fn(|cx| match chunks.as_mut().poll_chunk(cx) {
                        Poll::Ready(next) => Poll::Ready(Ok(next)),
                        Poll::Pending => self.poll_gone(cx).map(|()| Err(CloseReason::ClientGone)),
                    })
                    .await?
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
            ContentFraming::Chunked => {
                write::write_last_chunk(&chunks.as_mut().trailers(), self.output.borrow_mut().bytes());
            }
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

/// More room for bytes that cannot leave yet, for as long as a long file is sent, where few others
/// are sent one.
struct Room<'w, S: Stream>(&'w Wire<S>);

impl<'w, S: Stream> Room<'w, S> {
    fn take(wire: &'w Wire<S>, length: u64) -> Option<Self> {
        let few = wire.worker.roomy.get();
        if length <= UNSENT_BYTES_MAX as u64 || few >= FEW {
            return None;
        }
        wire.worker.roomy.set(few + 1);
        wire.stream.bound_unsent(UNSENT_BYTES_MAX_OF_FEW);
        Some(Self(wire))
    }
}

impl<S: Stream> Drop for Room<'_, S> {
    fn drop(&mut self) {
        self.0.stream.bound_unsent(UNSENT_BYTES_MAX);
        self.0.worker.roomy.set(self.0.worker.roomy.get() - 1);
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

/// Reads a slice where waiting for the disk holds nobody up. `None` when it cannot be read.
async fn bring_into_memory(content: &FileContent, at: u64, len: u64) -> Option<()> {
    let file = content.file.try_clone().ok()?;
    offload(move || {
        let mut scratch = vec![0; DISK_READ_BYTES.min(len as usize)];
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
            line: request.head().line.of(request.head_bytes()),
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

    fn exchange<S>(&self, wire: &Wire<S>) -> Exchange<'_> {
        Exchange {
            peer: wire.peer(),
            request: None,
            line: &[],
            status: self.status,
            fields: self.fields.get(),
            head_bytes: self.head_bytes,
            content_bytes: self.content_bytes,
            outcome: if self.outcome.is_ok() { Outcome::Complete } else { Outcome::Cut },
            afterwards: self.afterwards,
            requests: wire.requests(),
            reject: None,
            reason: self.reason,
            unix_time: wire.worker.clock.unix(),
            elapsed: None,
        }
    }
}
