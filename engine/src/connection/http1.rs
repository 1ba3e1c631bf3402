//! The life of an HTTP/1 connection: read a head, ask the application, write its answer,
//! keep or close.

use crate::buffer::Buffer;
use crate::connection::respond::{Answer, Ending, Rest};
use crate::connection::wire::{Input, Received, Wire};
use crate::connection::{App, Existing, Seat, Term, incoming, parts};
use crate::limits::REQUESTS_PER_TURN;
use crate::net::notes::{Deadline, Notice};
use crate::net::panic;
use crate::net::stream::Stream;
use crate::service::{Ahead, CloseReason, Incident, Moment, Observer, Parts, Request, Response, Service};
use selvedge_proto::head::Framing;
use selvedge_proto::http1::parse_request;
use selvedge_proto::{Afterwards, Reject, Status};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

/// Why there is no next request.
enum NoRequest {
    /// The connection ends without an answer.
    Ended(CloseReason),
    /// The connection ends with one.
    Refused(Refusal),
    /// There may be one later.
    Parked,
    /// There may be one soon, and it is waited for another way.
    Moves,
}

/// How serving has ended.
pub(super) enum Served {
    /// With the connection.
    Ended(CloseReason),
    /// The connection is idle and goes on without a task.
    Parked,
    /// The connection goes on when its stream has [moved](Stream::moved).
    Moves,
}

/// How an answered request leaves the connection.
enum Settled {
    /// The next request may be read.
    Next,
    /// There is content to drain, or the connection is to be closed.
    Unfinished(Ending),
    /// The connection has ended.
    Ended(CloseReason),
}

/// An answer to a request that the application never sees.
struct Refusal {
    status: Status,
    text: &'static str,
    reject: Option<Reject>,
    reason: CloseReason,
}

/// Serves requests until the connection ends, or has been idle for a while.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn keeps room for its arguments twice, as long as the connection lasts"
)]
pub(super) fn serve<S: Stream, T: Service, O: Observer>(
    wire: &Rc<Wire<S>>,
    seat: &Seat<T, O>,
) -> impl Future<Output = Served> {
    async move {
        let mut app = seat.app();
        let mut in_a_row = 0;
        wire.half_closed.set(app.service.half_closed());
        loop {
            let mut request = match wire.read_request().await {
                Ok(request) => request,
                Err(NoRequest::Ended(reason)) => return Served::Ended(reason),
                Err(NoRequest::Refused(refusal)) => return Served::Ended(Box::pin(wire.refuse(&refusal, &app)).await),
                Err(NoRequest::Parked) => return Served::Parked,
                Err(NoRequest::Moves) => return Served::Moves,
            };
            if app.common.term.get() == Term::Over(Existing::Follow) {
                app = seat.follow(wire.place());
                wire.half_closed.set(app.service.half_closed());
                wire.keepsake.take();
            }
            wire.lend(&mut request, &app);
            let began = app.observer.times().then(Instant::now);
            let called = {
                let mut call = pin!(app.service.call(&mut request));
                poll_fn(|cx| wire.poll_call(cx, call.as_mut(), &app)).await
            };
            let settled = match wire.answer(request, called, &app, began) {
                Answered::Settled(settled) => settled,
                Answered::Sending(rest) => rest.await,
            };
            match settled {
                Settled::Next => {}
                Settled::Ended(reason) => return Served::Ended(reason),
                Settled::Unfinished(ending) => {
                    if let Err(reason) = Box::pin(wire.finish(ending)).await {
                        return Served::Ended(reason);
                    }
                }
            }
            in_a_row += 1;
            if in_a_row == REQUESTS_PER_TURN {
                in_a_row = 0;
                if let Err(reason) = wire.flush().await {
                    return Served::Ended(reason);
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

/// What became of an answer that was written.
enum Answered<F> {
    /// Its request is settled.
    Settled(Settled),
    /// Some of it has yet to be sent, and then its request is settled.
    Sending(Pin<Box<F>>),
}

/// An answer that is being sent. It is reported also when the connection is cut in the
/// middle of it.
struct Sending<'a, S: Stream, T: Service, O: Observer> {
    answered: Option<(Request, Answer)>,
    app: &'a App<T, O>,
    wire: &'a Wire<S>,
    began: Option<Instant>,
}

/// Why there is an answer to send.
const UNTIL_SENT: &str = "an answer is there until it was sent";

impl<S: Stream, T: Service, O: Observer> Sending<'_, S, T, O> {
    /// Sends it, to its end or to the connection's, and settles its request.
    async fn send(mut self, rest: Rest) -> Settled {
        let (_, answer) = self.answered.as_mut().expect(UNTIL_SENT);
        self.wire.send_rest(rest, answer).await;
        let (request, answer) = self.answered.take().expect(UNTIL_SENT);
        self.wire.settle(request, answer, self.app, self.began)
    }
}

impl<S: Stream, T: Service, O: Observer> Drop for Sending<'_, S, T, O> {
    fn drop(&mut self) {
        if let Some((request, answer)) = &mut self.answered {
            answer.outcome = Err(self.wire.cut_reason());
            answer.report(self.app, self.wire, request, self.began);
        }
    }
}

impl<S: Stream> Wire<S> {
    /// Waits for the next request and judges its head.
    async fn read_request(self: &Rc<Self>) -> Result<Request, NoRequest> {
        let mut begun: Option<Box<Parts>> = None;
        // Whether the head's time runs: an answer that was there at once has left the note of the one before.
        let mut is_timed = false;
        if self.is_resumed.take() {
            // It waits as it did before it was parked, and may have been given notice since.
        } else if self.requests() == 0 {
            // Somebody who has connected and said nothing when the server began to stop.
            if self.worker.draining.get() && !self.has_more().await {
                return Err(NoRequest::Ended(CloseReason::Draining));
            }
            self.wait_for(Deadline::RequestHead, self.common.limits.head_time);
            is_timed = true;
        } else if !self.has_begun() {
            self.hand_over().await.map_err(NoRequest::Ended)?;
            // The stop began when the answer had begun, too late for it to say so. A request that
            // came behind it is answered: closing on it would take what has yet to leave with it.
            if self.worker.draining.get() && !self.has_more().await {
                let reason = self.flush().await.err().unwrap_or(CloseReason::Draining);
                return Err(NoRequest::Ended(reason));
            }
            self.wait_for(Deadline::KeepAlive, self.common.limits.keep_alive);
            if self.stream.would_move(&self.worker) && self.has_nothing() {
                return Err(NoRequest::Moves);
            }
        }
        loop {
            if !self.input.borrow().bytes().is_empty() {
                let complete = {
                    let input = self.input.borrow();
                    let head = &mut begun.get_or_insert_with(parts::take).head;
                    parse_request(input.bytes(), &self.common.limits.message, head)
                };
                if complete.map_err(|reject| NoRequest::Refused(reject.into()))?
                    && let Some(parts) = begun.take()
                {
                    return Ok(self.request(parts));
                }
                self.flush().await.map_err(NoRequest::Ended)?;
                if self.has_begun() && !(is_timed && self.deadline() == Deadline::RequestHead) {
                    self.wait_for(Deadline::RequestHead, self.common.limits.head_time);
                    is_timed = true;
                }
            }
            self.more_of_head().await?;
        }
    }

    /// Whether a head has begun. The empty line that a client may send before one is no part of it
    /// (RFC 9112 §2.2).
    fn has_begun(&self) -> bool {
        !matches!(self.input.borrow().bytes(), b"" | b"\r" | b"\r\n")
    }

    /// Receives what has come by now, without waiting for it; whether there is any.
    async fn has_more(&self) -> bool {
        poll_fn(|cx| Poll::Ready(matches!(self.poll_more(cx), Poll::Ready(Received::More)))).await
    }

    /// Receives more of a head, or says how there is none.
    async fn more_of_head(&self) -> Result<(), NoRequest> {
        loop {
            let mut received = self.more().await;
            if matches!(received, Received::More) {
                return Ok(());
            }
            if matches!(received, Received::Notice(Notice::Park)) {
                if self.has_nothing() {
                    return Err(NoRequest::Parked);
                }
                self.worker.notes.ignore_notice(self.place());
                if self.output.borrow().len() == 0 {
                    continue;
                }
                received = Received::HeldUp;
            }
            // An answer that was handed over leaves before the connection ends.
            if !matches!(received, Received::Failed) {
                self.flush().await.map_err(NoRequest::Ended)?;
            }
            let begun = self.has_begun();
            return Err(NoRequest::Ended(match received {
                Received::More => return Ok(()),
                Received::HeldUp => {
                    self.wait_for(Deadline::KeepAlive, self.common.limits.keep_alive);
                    continue;
                }
                Received::End if !self.input.borrow().bytes().is_empty() => CloseReason::HeadCut,
                Received::End => CloseReason::ClientDone,
                Received::Failed => CloseReason::Reset,
                Received::Notice(Notice::Expired) if begun => {
                    return Err(NoRequest::Refused(Refusal {
                        status: Status::REQUEST_TIMEOUT,
                        text: CloseReason::HeadTooSlow.explain(),
                        reject: None,
                        reason: CloseReason::HeadTooSlow,
                    }));
                }
                Received::Notice(Notice::Expired) if self.requests() == 0 => CloseReason::Silent,
                Received::Notice(Notice::Expired) => CloseReason::Idle,
                Received::Notice(Notice::MakeRoom) => CloseReason::MadeRoom,
                // A head that has begun may be completed within its time.
                Received::Notice(Notice::Drain) if begun => {
                    self.worker.notes.ignore_notice(self.place());
                    continue;
                }
                Received::Notice(_) => CloseReason::Draining,
            }));
        }
    }

    /// Makes a request of a complete head: its bytes move from the connection to it.
    fn request(self: &Rc<Self>, mut parts: Box<Parts>) -> Request {
        let number = self.count_request();
        let clock = &self.worker.clock;
        parts.peer = self.peer();
        parts.moment = Moment { since_start: clock.since_start(), unix_time: clock.unix() };
        if parts.head.framing == Framing::None {
            let Input { buffer, at } = std::mem::take(&mut *self.input.borrow_mut());
            (parts.bytes, parts.start) = (buffer.unwrap_or_default(), at);
        } else {
            // What follows the head is needed while the request lives. It stays in its buffer, which
            // may be a long one: a request does not hold one of those for its head.
            let mut input = self.input.borrow_mut();
            (parts.bytes, parts.start) = (Buffer::of(&input.bytes()[..parts.head.len]), 0);
            input.consume(parts.head.len);
            drop(input);
            parts.content = incoming::begin(self, number, parts.head.framing, parts.head.expectation);
        }
        Request { parts }
    }

    /// Gives a request what of the connection its application keeps or uses.
    fn lend<T: Service, O>(self: &Rc<Self>, request: &mut Request, app: &App<T, O>) {
        if app.service.keeps() {
            request.parts.keepsake = self.keepsake.take();
        }
        if app.service.sends_ahead() {
            let source: Weak<Self> = Rc::downgrade(self);
            request.parts.ahead = Some(Ahead { source, request: self.requests() });
        }
    }

    /// Asks the application. Answers that wait to leave do not wait for a slow one.
    fn poll_call<T, O: Observer>(
        &self,
        cx: &mut Context<'_>,
        call: Pin<&mut impl Future<Output = Response>>,
        app: &App<T, O>,
    ) -> Poll<Result<Response, CloseReason>> {
        match panic::catch(|| call.poll(cx)) {
            Ok(Poll::Ready(response)) => Poll::Ready(Ok(response)),
            Ok(Poll::Pending) => {
                // Only an application that takes its time needs the wait for the client to be over.
                if matches!(self.deadline(), Deadline::KeepAlive | Deadline::RequestHead) {
                    self.wait_for_nothing();
                }
                let has_output = self.output.borrow().len() > 0;
                match self.poll_flush(cx) {
                    Poll::Ready(Err(reason)) => return Poll::Ready(Err(reason)),
                    // Whoever waits for content may have waited for that, and the stream wakes only one.
                    Poll::Ready(Ok(())) if has_output => {
                        self.wake_reader();
                    }
                    _ => {}
                }
                self.poll_gone(cx).map(|()| Err(CloseReason::ClientGone))
            }
            Err(message) => {
                app.observer.incident(&Incident::Panic { peer: self.peer(), message });
                Poll::Ready(Ok(Response::error(Status::INTERNAL_SERVER_ERROR).because(PANICKED)))
            }
        }
    }

    /// Answers a request with what the application said, as far as it goes without waiting.
    fn answer<'a, T: Service, O: Observer>(
        &'a self,
        request: Request,
        called: Result<Response, CloseReason>,
        app: &'a App<T, O>,
        began: Option<Instant>,
    ) -> Answered<impl Future<Output = Settled> + use<'a, S, T, O>> {
        let (answer, rest) = match called {
            Ok(response) => self.begin_answer(&request, response, app.common.term.get()),
            Err(reason) => (Answer::none(reason), None),
        };
        match rest {
            None => Answered::Settled(self.settle(request, answer, app, began)),
            Some(rest) => {
                let sending = Sending { answered: Some((request, answer)), app, wire: self, began };
                Answered::Sending(Box::pin(sending.send(rest)))
            }
        }
    }

    /// Reports a request whose answer has left or failed, and settles it: what came behind it goes back
    /// to the input.
    fn settle<T, O: Observer>(
        &self,
        request: Request,
        answer: Answer,
        app: &App<T, O>,
        began: Option<Instant>,
    ) -> Settled {
        answer.report(app, self, &request, began);
        let mut parts = request.parts;
        let consumed = parts.start + parts.head.len;
        let has_content = parts.head.framing != Framing::None;
        let bytes = std::mem::take(&mut parts.bytes);
        if let Some(keepsake) = parts.keepsake.take() {
            self.keepsake.set(Some(keepsake));
        }
        parts::give(parts);
        if let Err(reason) = answer.outcome {
            return Settled::Ended(reason);
        }
        if !has_content && consumed < bytes.len() {
            *self.input.borrow_mut() = Input { buffer: Some(bytes), at: consumed };
        }
        match answer.ending.afterwards {
            Afterwards::KeepOpen if !has_content => Settled::Next,
            _ => Settled::Unfinished(answer.ending),
        }
    }

    /// What is left to do after an answer: content that nobody read, and the close.
    async fn finish(&self, ending: Ending) -> Result<(), CloseReason> {
        if ending.close_reason == CloseReason::Switched {
            return Err(CloseReason::Switched);
        }
        self.finish_content(ending).await?;
        if ending.afterwards == Afterwards::KeepOpen {
            return Ok(());
        }
        self.send_last().await?;
        // Requests that came behind this one are not answered; closing on them would reset
        // the connection and take the answer with it.
        let is_clear = self.input.borrow().bytes().is_empty();
        if !is_clear || (self.stream.has_waited() && self.has_more().await) {
            self.linger().await;
        }
        Err(ending.close_reason)
    }

    /// Answers a request that the application never sees, and ends the connection.
    async fn refuse<T, O: Observer>(self: &Rc<Self>, refusal: &Refusal, app: &App<T, O>) -> CloseReason {
        // The reason is reported with the refusal, or with the close.
        let response = Response::error_with_text(refusal.status, refusal.text).without_reason();
        let (mut answer, rest) = self.begin_refusal(response);
        if let Some(rest) = rest {
            self.send_rest(rest, &mut answer).await;
        }
        answer.report_refusal(app, self, refusal.reject);
        if let Err(reason) = answer.outcome {
            return reason;
        }
        if let Err(reason) = self.send_last().await {
            return reason;
        }
        self.linger().await;
        refusal.reason
    }
}

/// Why the application's answer is a 500, for the log.
pub(super) const PANICKED: &str = "the application panicked";

impl From<Reject> for Refusal {
    fn from(reject: Reject) -> Self {
        Self {
            status: reject.status(),
            text: reject.text(),
            reject: Some(reject),
            reason: CloseReason::Rejected(reject),
        }
    }
}
