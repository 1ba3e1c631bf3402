//! One connection's two directions, and its waits.
//!
//! Every wait ends in one of three ways: it went on, the connection failed or ended, or
//! the worker gave notice. Bytes that have come win over a notice that came with them.

use crate::buffer::{Buffer, Size};
use crate::connection::Common;
use crate::connection::file::Room;
use crate::connection::incoming::Content;
use crate::limits::{LINGER_BYTES_MAX, LINGER_TIME};
use crate::net::clock::Tick;
use crate::net::notes::{Deadline, Notice, Place};
use crate::net::stream::{Leaving, Output, Stream, Then};
use crate::net::worker::Worker;
use crate::service::{CloseReason, GoesOn, HalfClosed, Keepsake};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A connection's stream, what has come and was not consumed, and what has yet to leave.
pub(super) struct Wire<S> {
    pub(super) stream: S,
    pub(super) worker: Rc<Worker>,
    pub(super) common: Rc<Common>,
    pub(super) input: RefCell<Input>,
    pub(super) output: RefCell<Output>,
    pub(super) content: RefCell<Option<Box<Content>>>,
    /// What the application keeps with this connection, between requests.
    pub(super) keepsake: Cell<Keepsake>,
    /// What becomes of a request whose client sends nothing more.
    pub(super) half_closed: Cell<HalfClosed>,
    /// What the connection goes on with after its last answer.
    pub(super) switch: Cell<Option<GoesOn>>,
    /// More room for what it is sent, while it has that.
    pub(super) room: Cell<Option<Room>>,
    peer: SocketAddr,
    place: Place,
    requests: Cell<u32>,
    /// It was parked or has moved, and has not looked for a request since.
    pub(super) is_resumed: Cell<bool>,
}

/// Bytes that have come, from `at` on.
#[derive(Default)]
pub(super) struct Input {
    pub(super) buffer: Option<Buffer>,
    pub(super) at: usize,
}

/// How receiving ended.
pub(super) enum Received {
    /// There are more bytes.
    More,
    /// The client will send no more.
    End,
    /// The connection failed.
    Failed,
    /// The worker gave notice.
    Notice(Notice),
    /// An answer that was handed over waits for the client to take what came before.
    HeldUp,
}

impl Input {
    /// What has come and was not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.at..])
    }

    /// Forgets the first `count` bytes, and gives the buffer back when none is left.
    pub(super) fn consume(&mut self, count: usize) {
        self.at += count;
        if self.buffer.as_ref().is_some_and(|buffer| buffer.len() == self.at) {
            *self = Self::default();
        }
    }

    /// Takes a long buffer for what comes next, which is given back if nothing does.
    pub(super) fn lengthen(&mut self) {
        let mut long = Buffer::of_size(Size::Long);
        long.extend_from_slice(self.bytes());
        *self = Self { buffer: Some(long), at: 0 };
    }

    /// Moves what is left to the front, so that what comes next has room.
    pub(super) fn compact(&mut self) {
        if self.at > 0
            && let Some(buffer) = &mut self.buffer
        {
            buffer.drain(..self.at);
            self.at = 0;
        }
    }
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S, peer: SocketAddr, place: Place, worker: Rc<Worker>, common: Rc<Common>) -> Self {
        Self {
            stream,
            worker,
            common,
            input: RefCell::default(),
            output: RefCell::default(),
            content: RefCell::default(),
            keepsake: Cell::default(),
            half_closed: Cell::new(HalfClosed::Answered),
            switch: Cell::default(),
            room: Cell::default(),
            peer,
            place,
            requests: Cell::new(0),
            is_resumed: Cell::new(false),
        }
    }

    /// As it was before it was parked, after so many requests.
    pub(super) fn resumed(self, requests: u32, keepsake: Keepsake) -> Self {
        self.requests.set(requests);
        self.keepsake.set(keepsake);
        self.is_resumed.set(true);
        self
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Why the worker cut it.
    pub(super) fn cut_reason(&self) -> CloseReason {
        cut_reason(&self.worker)
    }

    /// How many requests were begun.
    pub(super) fn requests(&self) -> u32 {
        self.requests.get()
    }

    /// Begins the next request; its number.
    pub(super) fn count_request(&self) -> u32 {
        self.requests.set(self.requests.get().wrapping_add(1));
        self.requests.get()
    }

    pub(super) fn deadline(&self) -> Deadline {
        self.worker.notes.deadline(self.place)
    }

    /// Notes what is awaited, and for how long at the most.
    pub(super) fn wait_for(&self, deadline: Deadline, time: Duration) {
        self.worker.notes.wait_for(self.place, deadline, self.worker.clock.after(time));
    }

    /// The same, until a moment that was fixed before.
    pub(super) fn wait_until(&self, deadline: Deadline, due: Tick) {
        self.worker.notes.wait_for(self.place, deadline, due);
    }

    /// Notes that nothing is awaited of the client.
    pub(super) fn wait_for_nothing(&self) {
        self.worker.notes.wait_for(self.place, Deadline::None, Tick::MAX);
    }

    /// The wait for the floor of a rate: `silence` from now, but never later than `bytes`
    /// that have moved since `began` allow at `bytes_per_second_min`.
    pub(super) fn wait_for_progress(&self, deadline: Deadline, progress: &Progress) {
        self.wait_on(deadline, progress, self.worker.clock.tick());
    }

    /// The same, where `silence` counts from a moment before.
    pub(super) fn wait_on(&self, deadline: Deadline, progress: &Progress, since: Tick) {
        let floor_seconds = progress.bytes / u64::from(progress.bytes_per_second_min.max(1));
        let by_floor = Duration::from_secs(floor_seconds).saturating_add(progress.silence);
        let due_by_floor = progress.began.saturating_add(crate::net::clock::ticks(by_floor)).saturating_add(1);
        let due_by_silence = since.saturating_add(crate::net::clock::ticks(progress.silence)).saturating_add(1);
        self.wait_until(deadline, due_by_silence.min(due_by_floor));
    }
}

/// Why a worker cuts a connection.
pub(super) fn cut_reason(worker: &Worker) -> CloseReason {
    match (worker.stopped_at_once.get(), worker.draining.get()) {
        (true, _) => CloseReason::StoppedAtOnce,
        (false, true) => CloseReason::DrainLimit,
        (false, false) => CloseReason::ReplacedLimit,
    }
}

/// How far one direction has come, to hold it against its floor.
pub(super) struct Progress {
    pub(super) began: Tick,
    pub(super) bytes: u64,
    pub(super) silence: Duration,
    pub(super) bytes_per_second_min: u32,
}

impl<S: Stream> Wire<S> {
    /// The same, with its stream [moved](Stream::moved).
    pub(super) fn moved(self) -> Self {
        Self { stream: self.stream.moved(&self.worker), ..self }
    }

    /// Receives more behind what has come.
    pub(super) fn poll_more(&self, cx: &mut Context<'_>) -> Poll<Received> {
        let mut input = self.input.borrow_mut();
        input.compact();
        match self.stream.poll_receive(cx, &mut input.buffer) {
            Poll::Ready(Ok(0)) => Poll::Ready(Received::End),
            Poll::Ready(Ok(_)) => Poll::Ready(Received::More),
            Poll::Ready(Err(_)) => Poll::Ready(Received::Failed),
            Poll::Pending => match self.worker.notes.notice(self.place) {
                Notice::None if self.stream.is_held_up() => Poll::Ready(Received::HeldUp),
                Notice::None => {
                    if let Some(buffer) = &mut input.buffer {
                        buffer.shrink_for_waiting();
                    }
                    Poll::Pending
                }
                notice => Poll::Ready(Received::Notice(notice)),
            },
        }
    }

    /// Waits until nobody is there any more to answer, where that ends a request.
    pub(super) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.half_closed.get() == HalfClosed::Answered {
            return Poll::Pending;
        }
        // Whoever waits for content receives only when nothing has to leave before.
        let may_receive = self.output.borrow().len() == 0;
        match self.stream.poll_ended(cx) {
            // Content may stand before the end; whoever waits for it sees both.
            Poll::Ready(()) if may_receive && self.wake_reader() => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => {
                // The stream wakes only one.
                if may_receive && self.stream.is_unread() {
                    self.wake_reader();
                }
                Poll::Pending
            }
        }
    }

    /// Whether nothing of what has come or has to leave is held here. Room that is not in use is given back.
    pub(super) fn has_nothing(&self) -> bool {
        let output = &mut *self.output.borrow_mut();
        let is_clear = self.stream.reclaim(output) == Leaving::Clear && output.len() == 0;
        is_clear && self.input.borrow().bytes().is_empty() && self.content.borrow().is_none() && self.give_room_back()
    }

    /// As [`Wire::poll_more`].
    pub(super) async fn more(&self) -> Received {
        poll_fn(|cx| self.poll_more(cx)).await
    }

    /// Sends what has yet to leave, as far as it goes without waiting; whether all of it went.
    pub(super) fn send_now(&self, then: Then) -> Result<bool, CloseReason> {
        let output = &mut *self.output.borrow_mut();
        if self.stream.reclaim(output) == Leaving::Busy {
            return Ok(false);
        }
        while let Some(buffer) = &output.buffer {
            if output.at == buffer.len() {
                *output = Output::default();
                break;
            }
            match self.stream.send([&buffer[output.at..], &[]], then) {
                Ok(sent) => output.at += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(CloseReason::Reset),
            }
        }
        Ok(true)
    }

    /// Has what has yet to leave sent while the next request is awaited.
    pub(super) async fn hand_over(&self) -> Result<(), CloseReason> {
        let handed = self.stream.hand_over(&mut self.output.borrow_mut());
        match handed {
            Ok(Leaving::Clear) => Ok(()),
            Ok(Leaving::Busy) => Box::pin(self.flush_slowly()).await,
            Err(_) => Err(CloseReason::Reset),
        }
    }

    /// Sends what has yet to leave.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<Result<(), CloseReason>> {
        while !self.send_now(Then::Nothing)? {
            ready!(self.poll_writable(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until more can be sent, or for the notice that the client takes too long.
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<Result<(), CloseReason>> {
        match self.stream.poll_writable(cx) {
            Poll::Ready(ready) => Poll::Ready(ready.map_err(|_| CloseReason::Reset)),
            Poll::Pending => match self.worker.notes.notice(self.place) {
                Notice::Expired => Poll::Ready(Err(CloseReason::SendTooSlow)),
                _ => Poll::Pending,
            },
        }
    }

    /// Sends what has yet to leave. Only a send that has to wait costs more than the send.
    pub(super) async fn flush(&self) -> Result<(), CloseReason> {
        if self.send_now(Then::Nothing)? { Ok(()) } else { Box::pin(self.flush_slowly()).await }
    }

    /// Sends what has yet to leave, and says that nothing more will be sent: the end goes in one packet
    /// with what comes last. It is said before the connection is closed, since closing on bytes that
    /// came and were not read takes with it what has not left.
    pub(super) async fn send_last(&self) -> Result<(), CloseReason> {
        if !self.send_now(Then::More)? {
            Box::pin(self.flush_slowly()).await?;
        }
        self.stream.finish();
        Ok(())
    }

    pub(super) async fn flush_slowly(&self) -> Result<(), CloseReason> {
        let mut progress = self.send_progress();
        self.clear_way(&progress).await?;
        let output = std::mem::take(&mut *self.output.borrow_mut());
        self.send_parts(output.rest(), &[], &mut progress).await
    }

    /// Waits until nothing that was handed over is on its way.
    pub(super) async fn clear_way(&self, progress: &Progress) -> Result<(), CloseReason> {
        while self.stream.reclaim(&mut self.output.borrow_mut()) == Leaving::Busy {
            self.wait_for_progress(Deadline::ResponseProgress, progress);
            poll_fn(|cx| self.poll_writable(cx)).await?;
        }
        Ok(())
    }

    /// The progress of an answer that begins now.
    pub(super) fn send_progress(&self) -> Progress {
        Progress {
            began: self.worker.clock.tick(),
            bytes: 0,
            silence: self.common.limits.send_silence,
            bytes_per_second_min: self.common.limits.send_bytes_per_second_min,
        }
    }

    /// Waits, within bounds, for a client that was sent its last answer to finish, so that it gets
    /// the answer and not a reset (RFC 9112 §9.6).
    pub(super) async fn linger(&self) {
        self.wait_for(Deadline::Linger, LINGER_TIME);
        let mut discarded = 0u64;
        while discarded < LINGER_BYTES_MAX {
            let have = {
                let mut input = self.input.borrow_mut();
                let have = input.bytes().len();
                input.consume(have);
                have
            };
            discarded += have as u64;
            if !matches!(self.more().await, Received::More) {
                return;
            }
        }
        // Closing now would reset the connection under a client that is still sending, before it
        // has looked at the answer. It cannot send on, and has the rest of the time to look.
        poll_fn(|_| match self.worker.notes.notice(self.place) {
            Notice::None => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }

    /// Sends all of `first` and `second`.
    pub(super) async fn send_parts(
        &self,
        first: &[u8],
        second: &[u8],
        progress: &mut Progress,
    ) -> Result<(), CloseReason> {
        let mut sent = 0;
        let all = first.len() + second.len();
        while sent < all {
            let parts = [&first[sent.min(first.len())..], &second[sent.saturating_sub(first.len())..]];
            sent += self.step(progress, || self.stream.send(parts, Then::Nothing)).await?;
        }
        Ok(())
    }

    /// One step of an answer: tries to send, and waits until it can.
    pub(super) async fn step(
        &self,
        progress: &mut Progress,
        mut attempt: impl FnMut() -> io::Result<usize>,
    ) -> Result<usize, CloseReason> {
        self.wait_for_progress(Deadline::ResponseProgress, progress);
        loop {
            match attempt() {
                Ok(sent) => {
                    progress.bytes += sent as u64;
                    return Ok(sent);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => poll_fn(|cx| self.poll_writable(cx)).await?,
                Err(_) => return Err(CloseReason::Reset),
            }
        }
    }
}
