//! Request content as it comes: framed, bounded in time, and drained when nobody reads it.

use crate::buffer::Size;
use crate::connection::respond::Ending;
use crate::connection::wire::{Input, Progress, Received, Wire};
use crate::limits::{BATCH_BYTES, BUFFER_BYTES, COPY_BYTES_MAX, TURN_BYTES};
use crate::net::clock::Tick;
use crate::net::notes::{Deadline, Notice};
use crate::net::stream::Stream;
use crate::service::{CloseReason, ContentError, ContentSource, IncomingBody};
use bytes::Bytes;
use selvedge_proto::field::Fields;
use selvedge_proto::head::{Expectation, Framing};
use selvedge_proto::http1::chunked::{Decoder, Step};
use selvedge_proto::http1::write::write_interim;
use selvedge_proto::{Afterwards, Status};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};

/// The content of the request that a connection is at.
pub(super) struct Content {
    request: u32,
    framing: Remaining,
    /// The client waits for `100 Continue`, and nothing has come yet.
    client_waits: bool,
    /// The application reads on while it answers.
    is_read_on: bool,
    failed: Option<ContentError>,
    /// The application takes no more of it.
    is_refused: bool,
    /// The answer has left, and what is left of the content is drained: whoever reads on would get parts of it.
    is_drained: bool,
    /// The client is waited for.
    is_awaited: bool,
    /// When it was last heard of, or began to be waited for.
    heard: Tick,
    progress: Progress,
    /// The buffer for what comes next: a long one while each receive has as much as fills a usual one.
    next: Size,
    /// Bytes that came since others had their turn.
    in_turn: usize,
    /// How long the client was waited for, the application's own time not counted.
    waited: Tick,
    reader: Option<Waker>,
}

enum Remaining {
    Length(u64),
    Chunks(Decoder),
    Nothing(Option<Fields>),
}

/// Begins the content of a request, and gives the request its end of it.
pub(super) fn begin<S: Stream>(
    wire: &Rc<Wire<S>>,
    request: u32,
    framing: Framing,
    expectation: Expectation,
) -> IncomingBody {
    let (remaining, length) = match framing {
        Framing::None => (Remaining::Nothing(None), Some(0)),
        Framing::Length(length) => (Remaining::Length(length), Some(length)),
        Framing::Chunked => (Remaining::Chunks(Decoder::new()), None),
    };
    *wire.content.borrow_mut() = Some(Box::new(Content {
        request,
        framing: remaining,
        client_waits: expectation == Expectation::Continue,
        is_read_on: false,
        failed: None,
        is_refused: false,
        is_drained: false,
        is_awaited: false,
        heard: 0,
        next: Size::Usual,
        in_turn: 0,
        waited: 0,
        progress: Progress {
            began: wire.worker.clock.tick(),
            bytes: 0,
            silence: wire.common.limits.body_silence,
            bytes_per_second_min: wire.common.limits.body_bytes_per_second_min,
        },
        reader: None,
    }));
    let source: Weak<Wire<S>> = Rc::downgrade(wire);
    IncomingBody::new(source, request, length, wire.common.limits.body_bytes_max)
}

impl Content {
    fn is_done(&self) -> bool {
        matches!(self.framing, Remaining::Nothing(_))
    }
}

impl<S: Stream> Wire<S> {
    /// Wakes whoever waits for content, so that it looks again; whether there is somebody. It may be a
    /// task of the application's own.
    pub(super) fn wake_reader(&self) -> bool {
        let reader = self.content.borrow_mut().as_mut().and_then(|content| content.reader.take());
        reader.inspect(Waker::wake_by_ref).is_some()
    }

    /// Notes that nothing has to be sent at the moment: then only content is awaited of the client, where
    /// somebody waits for that.
    pub(super) fn wait_for_content_alone(&self) {
        match self.content.borrow().as_deref() {
            Some(content) if content.is_awaited => {
                self.wait_on(Deadline::RequestBody, &content.progress, content.heard);
            }
            _ => self.wait_for_nothing(),
        }
    }

    /// Notes that content is awaited, unless an answer is on its way that the client has yet to take:
    /// then its time for that counts.
    fn wait_for_content(&self, content: &Content) {
        if !(content.is_read_on && self.deadline() == Deadline::ResponseProgress) {
            self.wait_on(Deadline::RequestBody, &content.progress, content.heard);
        }
    }

    /// Notes that the answer that begins now is made of the content, which is therefore asked
    /// for now: in the middle of an answer it no longer can be.
    pub(super) fn read_on_while_answering(&self) {
        if let Some(content) = self.content.borrow_mut().as_mut() {
            content.is_read_on = true;
            self.ask_for(content);
        }
    }

    /// Tells a client that waits to go on, unless its content is there already.
    fn ask_for(&self, content: &mut Content) {
        if std::mem::take(&mut content.client_waits) && self.input.borrow().bytes().is_empty() {
            write_interim(Status::CONTINUE, &Fields::new(), self.output.borrow_mut().bytes());
        }
    }

    /// Why what is left of the content makes this answer, which begins now, the connection's
    /// last.
    pub(super) fn content_forces_close(&self) -> Option<CloseReason> {
        let mut content = self.content.borrow_mut();
        let content = content.as_mut()?;
        match (&content.framing, content.failed) {
            (_, Some(error)) => Some(close_reason(error)),
            (Remaining::Nothing(_), _) => None,
            //= RFC 9110 §10.1.1: a client that was not told to go on may send its content or not, so
            //= nobody can tell where the next request begins
            _ if std::mem::take(&mut content.client_waits) => Some(CloseReason::AnswerEnded),
            // What is not read in the end is drained, or closes without having been announced.
            _ if content.is_read_on => None,
            (Remaining::Length(left), _) if *left > self.common.limits.drain_bytes_max => {
                Some(CloseReason::ContentUnread)
            }
            _ => None,
        }
    }

    /// Drains what was left unread, so that the next request can be found; or closes in a
    /// way that lets the client see the answer.
    pub(super) async fn finish_content(&self, ending: Ending) -> Result<(), CloseReason> {
        let done = self.content.borrow().as_ref().is_none_or(|content| content.is_done());
        if done {
            *self.content.borrow_mut() = None;
            return Ok(());
        }
        if let Some(content) = self.content.borrow_mut().as_mut() {
            content.is_drained = true;
            content.is_read_on = false;
        }
        self.wake_reader();
        self.flush().await?;
        let failed = self.content.borrow().as_ref().and_then(|content| content.failed);
        let drained = match (ending.afterwards, failed) {
            (Afterwards::KeepOpen, None) => self.drain_content().await,
            (Afterwards::KeepOpen, Some(error)) => Err(close_reason(error)),
            (Afterwards::Close, error) => Err(error.map_or(ending.close_reason, close_reason)),
        };
        *self.content.borrow_mut() = None;
        if drained.is_ok() {
            // Of the next request nothing is awaited yet.
            self.wait_for_nothing();
        }
        match drained {
            Err(CloseReason::Reset | CloseReason::ContentCut) | Ok(()) => {}
            Err(_) => {
                self.send_last().await?;
                self.linger().await;
            }
        }
        drained
    }

    async fn drain_content(&self) -> Result<(), CloseReason> {
        let mut drained = 0;
        loop {
            match poll_fn(|cx| self.poll_piece(cx)).await {
                None => return Ok(()),
                Some(Err(error)) => return Err(close_reason(error)),
                Some(Ok(bytes)) => drained += bytes.len() as u64,
            }
            if drained > self.common.limits.drain_bytes_max {
                return Err(CloseReason::ContentUnread);
            }
        }
    }

    /// The next piece of the content, whoever wants it.
    fn poll_piece(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        let mut guard = self.content.borrow_mut();
        let Some(content) = guard.as_mut() else { return Poll::Ready(Some(Err(ContentError::Ended))) };
        if let Some(error) = content.failed {
            return Poll::Ready(Some(Err(error)));
        }
        loop {
            match self.take_piece(content) {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(None) if content.is_done() => return Poll::Ready(None),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(fail(content, error)))),
            }
            // It may have sent its content without waiting; then it needs no telling.
            self.ask_for(content);
            if !content.is_awaited {
                content.is_awaited = true;
                content.heard = self.worker.clock.tick();
                content.progress.began = content.heard.saturating_sub(content.waited);
            }
            if self.deadline() != Deadline::RequestBody {
                self.wait_for_content(content);
            }
            content.reader = Some(cx.waker().clone());
            if content.in_turn >= TURN_BYTES {
                content.in_turn = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // A client that takes nothing of what was said before has the same time. While an answer is on its
            // way the connection sends it, and only one can wait for that.
            if !content.is_read_on && ready!(self.poll_flush(cx)).is_err() {
                return Poll::Ready(Some(Err(fail(content, ContentError::Disconnected))));
            }
            let had = self.input.borrow().bytes().len();
            if content.next == Size::Long {
                self.input.borrow_mut().lengthen();
            }
            let Poll::Ready(received) = self.poll_more(cx) else {
                content.in_turn = 0;
                return Poll::Pending;
            };
            let error = match received {
                Received::More => {
                    let has = self.input.borrow().bytes().len();
                    content.next = if has < BUFFER_BYTES { Size::Usual } else { Size::Long };
                    content.progress.bytes += (has - had) as u64;
                    content.in_turn += has - had;
                    content.heard = self.worker.clock.tick();
                    self.wait_for_content(content);
                    continue;
                }
                Received::HeldUp => continue,
                // A notice to idle connections is not meant for this one.
                Received::Notice(Notice::Expired) => ContentError::TooSlow,
                Received::Notice(Notice::None | Notice::MakeRoom | Notice::Drain | Notice::Park) => {
                    self.wait_for_content(content);
                    continue;
                }
                Received::Notice(Notice::Cut) | Received::End | Received::Failed => ContentError::Disconnected,
            };
            return Poll::Ready(Some(Err(fail(content, error))));
        }
    }

    /// Content that has come already; `None` when more has to come first, or none is left.
    fn take_piece(&self, content: &mut Content) -> Result<Option<Bytes>, ContentError> {
        let mut input = self.input.borrow_mut();
        match &mut content.framing {
            Remaining::Nothing(_) => Ok(None),
            Remaining::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(input.bytes().len());
                if here == 0 {
                    return Ok(None);
                }
                content.client_waits = false;
                *left -= here as u64;
                if *left == 0 {
                    content.framing = Remaining::Nothing(None);
                }
                Ok(Some(take_bytes(&mut input, here)))
            }
            Remaining::Chunks(decoder) => {
                if !input.bytes().is_empty() {
                    content.client_waits = false;
                }
                let mut joined = Vec::new();
                let trailers = loop {
                    match decoder.step(input.bytes(), &self.common.limits.message).map_err(ContentError::Rejected)? {
                        Step::Data { start, end } => {
                            joined.extend_from_slice(&input.bytes()[start..end]);
                            input.consume(end);
                        }
                        Step::NeedMore { consumed } => {
                            input.consume(consumed);
                            break None;
                        }
                        Step::Done { consumed } => {
                            input.consume(consumed);
                            break Some(decoder.trailers().clone());
                        }
                    }
                };
                if let Some(trailers) = trailers {
                    content.framing = Remaining::Nothing(Some(trailers));
                }
                Ok((!joined.is_empty()).then(|| joined.into()))
            }
        }
    }
}

/// The first `count` bytes of the input; a large piece that is all there is takes the
/// buffer with it instead of being copied.
fn take_bytes(input: &mut Input, count: usize) -> Bytes {
    if count > COPY_BYTES_MAX / 2
        && count == input.bytes().len()
        && let Some(buffer) = input.buffer.take_if(|buffer| buffer.is_well_filled())
    {
        let at = std::mem::take(&mut input.at);
        return Bytes::from_owner(buffer).slice(at..);
    }
    let bytes = Bytes::copy_from_slice(&input.bytes()[..count]);
    input.consume(count);
    bytes
}

fn fail(content: &mut Content, error: ContentError) -> ContentError {
    content.failed = Some(error);
    error
}

fn close_reason(error: ContentError) -> CloseReason {
    match error {
        ContentError::Rejected(reject) => CloseReason::ContentRejected(reject),
        ContentError::TooSlow => CloseReason::ContentTooSlow,
        ContentError::Disconnected => CloseReason::ContentCut,
        ContentError::TooLarge | ContentError::Ended => CloseReason::ContentUnread,
    }
}

impl<S: Stream> ContentSource for Wire<S> {
    fn poll_content(&self, request: u32, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        if self.content.borrow().as_ref().is_none_or(|content| content.request != request || content.is_drained) {
            return Poll::Ready(Some(Err(ContentError::Ended)));
        }
        let polled = self.poll_piece(cx);
        let reader = match self.content.borrow_mut().as_mut() {
            Some(content) if polled.is_ready() && content.is_awaited => {
                content.is_awaited = false;
                content.waited = self.worker.clock.tick().saturating_sub(content.progress.began);
                content.reader.take()
            }
            _ => return polled,
        };
        // The application has the next move.
        if self.deadline() == Deadline::RequestBody {
            self.wait_for_nothing();
        }
        // A task of the application's own waited in the connection's place.
        self.worker.notes.wake(self.place(), Some(cx.waker()));
        // Whose last it is may be dropped with it, when nothing is borrowed any more.
        drop(reader);
        polled
    }

    fn trailers(&self, request: u32) -> Option<Fields> {
        match self.content.borrow().as_deref() {
            Some(Content { request: own, framing: Remaining::Nothing(trailers), .. }) if *own == request => {
                trailers.clone()
            }
            _ => None,
        }
    }

    fn refuse(&self, request: u32) {
        if let Some(content) = self.content.borrow_mut().as_mut().filter(|content| content.request == request) {
            content.is_refused = true;
        }
    }

    fn failure(&self, request: u32) -> Option<ContentError> {
        let content = self.content.borrow();
        let content = content.as_ref().filter(|content| content.request == request)?;
        content.failed.or(content.is_refused.then_some(ContentError::TooLarge))
    }

    fn send_interim(&self, request: u32, status: Status, fields: &Fields) -> Result<(), ContentError> {
        if request != self.requests() {
            return Err(ContentError::Ended);
        }
        let mut output = self.output.borrow_mut();
        if output.len() >= BATCH_BYTES {
            return Err(ContentError::Disconnected);
        }
        write_interim(status, fields, output.bytes());
        self.worker.notes.wake(self.place(), None);
        Ok(())
    }
}
