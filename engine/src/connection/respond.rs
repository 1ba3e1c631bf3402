//! Writes a response: its head, its content, and what it means for the connection.

use crate::connection::http1::PANICKED;
use crate::connection::wire::{Progress, Wire};
use crate::connection::{App, Existing, Term};
use crate::limits::{BATCH_BYTES, COPY_BYTES_MAX, PIECES_PER_TURN, TURN_BYTES};
use crate::net::stream::{Stream, Then};
use crate::service::{Body, Chunks, CloseReason, Exchange, FieldList, Observer, Outcome, Request, Response, Switch};
use selvedge_proto::field::Fields;
use selvedge_proto::head::Version;
use selvedge_proto::http1::write::{self, ContentFraming, ResponseHead};
use selvedge_proto::method::Method;
use selvedge_proto::{Afterwards, Reject, Status};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

/// What stands for the status of a request whose client went away before it was answered: the
/// one that nginx made usual in logs. It is never sent.
const CLIENT_GONE: Status = Status::new(499).expect("it has three digits");

/// What became of a response.
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) reason: Option<&'static str>,
    pub(super) fields: FieldList,
    pub(super) head_bytes: usize,
    pub(super) content_bytes: u64,
    /// Whether all of it was given to the connection.
    pub(super) outcome: Result<(), CloseReason>,
    pub(super) ending: Ending,
}

/// What an answer means for its connection.
#[derive(Clone, Copy)]
pub(super) struct Ending {
    pub(super) afterwards: Afterwards,
    /// Why it closes, if it does.
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
        if method == Method::Connect && (200..300).contains(&response.status.code()) {
            //= RFC 9110 §9.3.6: what follows such a head is a tunnel, for which there is no way here
            response = Response::error(Status::NOT_IMPLEMENTED).because("the application answered CONNECT with 2xx");
        }
        let body = std::mem::take(&mut response.body);
        if !matches!(body, Body::File(_)) {
            self.give_room_back();
        }
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
            ending: Ending { afterwards, close_reason },
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
            ending: Ending { afterwards: Afterwards::Close, close_reason: CloseReason::Switched },
        };
        (answer, Some(Rest { body: Body::Empty, framing: ContentFraming::Absent }))
    }

    /// Sends the head and what did not fit behind it.
    pub(super) async fn send_rest(&self, rest: Rest, answer: &mut Answer) {
        let mut progress = self.send_progress();
        if let Err(reason) = self.clear_way(&progress).await {
            answer.outcome = Err(reason);
            return;
        }
        // Answers to earlier requests leave whatever becomes of this one's content.
        let is_at_hand = matches!(rest.body, Body::Empty | Body::Bytes(_) | Body::Upgrade(_));
        let is_behind = self.output.borrow().len() > answer.head_bytes;
        if is_behind
            && !is_at_hand
            && let Err(reason) = self.flush().await
        {
            answer.outcome = Err(reason);
            return;
        }
        let afterwards = answer.ending.afterwards;
        let sent = &mut answer.content_bytes;
        answer.outcome = match rest.body {
            Body::Empty | Body::Upgrade(_) => self.flush().await,
            Body::Bytes(bytes) => {
                let head_bytes = self.output.borrow().len() as u64;
                let outcome = self.send_behind_output(&bytes, &mut progress).await;
                *sent = progress.bytes.saturating_sub(head_bytes);
                outcome
            }
            Body::File(file) => self.send_file(file, afterwards, &mut progress, sent).await,
            Body::Stream { length, chunks } => self.send_stream(chunks, length, rest.framing, sent).await,
        };
    }

    /// Sends what has yet to leave, and `bytes` behind it, together.
    async fn send_behind_output(&self, bytes: &[u8], progress: &mut Progress) -> Result<(), CloseReason> {
        let output = std::mem::take(&mut *self.output.borrow_mut());
        self.send_parts(output.rest(), bytes, progress).await
    }

    /// Sends pieces as they come; whenever none is there, what came before has left.
    async fn send_stream(
        &self,
        mut chunks: Pin<Box<dyn Chunks>>,
        length: Option<u64>,
        framing: ContentFraming,
        sent: &mut u64,
    ) -> Result<(), CloseReason> {
        let mut turn = Turn::default();
        loop {
            let next = poll_fn(|cx| Poll::Ready(chunks.as_mut().poll_chunk(cx))).await;
            let next = match next {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    turn = Turn::default();
                    // Whoever makes the content wakes this task, or has woken it to let others have their
                    // turn. A flush that waits takes such a call for its own.
                    let mut is_called = !self.send_now(Then::Nothing)?;
                    if is_called {
                        Box::pin(self.flush_slowly()).await?;
                    }
                    self.wait_for_content_alone();
                    poll_fn(|cx| {
                        if std::mem::replace(&mut is_called, true)
                            && let Poll::Ready(next) = chunks.as_mut().poll_chunk(cx)
                        {
                            return Poll::Ready(Ok(next));
                        }
                        self.poll_gone(cx).map(|()| Err(CloseReason::ClientGone))
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
            if turn.ends_with(piece.len()) {
                tokio::task::yield_now().await;
            }
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

/// What was sent of content that is always at hand since others had their turn.
#[derive(Default)]
struct Turn {
    bytes: usize,
    pieces: usize,
}

impl Turn {
    /// Counts a piece; whether it is the last one of the turn.
    fn ends_with(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.pieces += 1;
        let is_over = self.bytes >= TURN_BYTES || self.pieces >= PIECES_PER_TURN;
        if is_over {
            *self = Self::default();
        }
        is_over
    }
}

impl Answer {
    /// No answer: the client went away before there was one.
    pub(super) fn none(why: CloseReason) -> Self {
        Self {
            status: CLIENT_GONE,
            reason: None,
            fields: FieldList::Own(Fields::new()),
            head_bytes: 0,
            content_bytes: 0,
            outcome: Err(why),
            ending: Ending { afterwards: Afterwards::Close, close_reason: why },
        }
    }

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
            afterwards: self.ending.afterwards,
            requests: wire.requests(),
            reject: None,
            reason: self.reason,
            unix_time: wire.worker.clock.unix(),
            elapsed: None,
        }
    }
}
