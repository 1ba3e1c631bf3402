//! Content of requests that clients have sent and applications have not read.
//!
//! How much is kept is bounded by the windows of streams and of the connection, which open again when the application
//! reads.

use crate::connection::progress::TransferLimits;
use crate::net::clock::Tick;
use crate::service::ContentError;
use bytes::Bytes;
use selvedge_proto::field::Fields;
use selvedge_proto::head::Expectation;
use selvedge_proto::http2::StreamId;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

/// A piece is not joined to one that would be longer than this. Each piece costs memory besides its bytes.
const JOINED_BYTES_MAX: usize = 4096;

/// The content of all requests of a connection that have not ended.
#[derive(Default)]
pub(super) struct Contents {
    all: Vec<StreamContent>,
}

/// The content of one request.
pub(super) struct StreamContent {
    stream: StreamId,
    /// Pieces for the application. Short ones that arrive before it reads are joined.
    unread: VecDeque<Vec<u8>>,
    unread_bytes: usize,
    progress: Arrival,
    phase: ContentPhase,
    /// The client waits for `100 Continue`.
    expectation: Expectation,
    trailers: Option<Fields>,
    reader: Option<Waker>,
    timing: Timing,
}

/// Whether the time limits apply while the application waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timing {
    Limited,
    /// The application responds already, so it is a conversation, in which each side may pause.
    Unlimited,
}

/// How content arrives while the application waits for it.
struct Arrival {
    bytes: u64,
    /// Time spent waiting in earlier waits.
    waited: Tick,
    /// When the current wait began, and when the last bytes arrived.
    wait: Option<(Tick, Tick)>,
}

/// How far content has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContentPhase {
    Arriving,
    /// All of it has arrived.
    Complete,
    /// The application reads no more, because the content is too large for it.
    Stopped,
    Failed(ContentError),
}

impl StreamContent {
    /// Returns the number of bytes that the application has not read.
    pub(super) fn unread_bytes(&self) -> usize {
        self.unread_bytes
    }

    /// Returns the waker of the reader, if one waits.
    pub(super) fn into_reader(self) -> Option<Waker> {
        self.reader
    }

    /// Fails a content that is not complete. Returns the reader, which gets the error now.
    fn fail(&mut self, error: ContentError) -> Option<Waker> {
        if self.phase == ContentPhase::Arriving {
            self.phase = ContentPhase::Failed(error);
        }
        self.end_wait(self.progress.wait.map_or(0, |(began, _)| began));
        self.reader.take()
    }

    fn end_wait(&mut self, now: Tick) {
        if let Some((began, _)) = self.progress.wait.take() {
            self.progress.waited = self.progress.waited.saturating_add(now.saturating_sub(began));
        }
    }

    /// Returns when the client has been too slow, if the application waits for it.
    fn due(&self, limits: TransferLimits) -> Option<Tick> {
        let (began, last) = self.progress.wait.filter(|_| self.timing == Timing::Limited)?;
        Some(limits.due(began.saturating_sub(self.progress.waited), self.progress.bytes, last))
    }
}

impl Contents {
    fn find(&self, stream: StreamId) -> Option<&StreamContent> {
        self.all.iter().find(|content| content.stream == stream)
    }

    fn find_mut(&mut self, stream: StreamId) -> Option<&mut StreamContent> {
        self.all.iter_mut().find(|content| content.stream == stream)
    }

    /// Whether no content is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Begins the content of a request.
    pub(super) fn begin(&mut self, stream: StreamId, expectation: Expectation) {
        self.all.push(StreamContent {
            stream,
            unread: VecDeque::new(),
            unread_bytes: 0,
            progress: Arrival { bytes: 0, waited: 0, wait: None },
            phase: ContentPhase::Arriving,
            expectation,
            trailers: None,
            reader: None,
            timing: Timing::Limited,
        });
    }

    /// Ends the time limits of a content, because its response has begun.
    pub(super) fn lift_limits(&mut self, stream: StreamId) {
        if let Some(content) = self.find_mut(stream) {
            content.timing = Timing::Unlimited;
        }
    }

    /// Removes the content of a request.
    pub(super) fn remove(&mut self, stream: StreamId) -> Option<StreamContent> {
        let at = self.all.iter().position(|content| content.stream == stream)?;
        Some(self.all.swap_remove(at))
    }

    /// Whether the client may still send content of a request, as far as is known here.
    pub(super) fn is_arriving(&self, stream: StreamId) -> bool {
        self.find(stream).is_some_and(|content| content.phase != ContentPhase::Complete)
    }

    /// Stores a piece of content. Returns whether the application may read it, and the reader that waits for it.
    pub(super) fn push(&mut self, stream: StreamId, piece: &[u8], now: Tick) -> (bool, Option<Waker>) {
        let Some(content) = self.find_mut(stream).filter(|content| content.phase == ContentPhase::Arriving) else {
            return (false, None);
        };
        content.expectation = Expectation::None;
        content.progress.bytes += piece.len() as u64;
        if let Some((_, last)) = &mut content.progress.wait {
            *last = now;
        }
        content.unread_bytes += piece.len();
        // Small pieces are joined, since each has a cost of its own.
        match content.unread.back_mut() {
            Some(last) if last.len() + piece.len() <= JOINED_BYTES_MAX => last.extend_from_slice(piece),
            _ => content.unread.push_back(piece.to_vec()),
        }
        (true, content.reader.take())
    }

    /// Ends the content of a request. Returns the reader that waits for it.
    pub(super) fn end(&mut self, stream: StreamId, trailers: Option<Fields>) -> Option<Waker> {
        let content = self.find_mut(stream)?;
        if content.phase == ContentPhase::Arriving {
            content.phase = ContentPhase::Complete;
            content.trailers = trailers;
        }
        content.reader.take()
    }

    /// Fails the content of a request that is not complete. Returns the reader that waits for it.
    pub(super) fn fail(&mut self, stream: StreamId, error: ContentError) -> Option<Waker> {
        self.find_mut(stream)?.fail(error)
    }

    /// Returns the next piece for the application, and whether the client has to be told to continue.
    pub(super) fn poll(
        &mut self,
        stream: StreamId,
        now: Tick,
        cx: &mut Context<'_>,
    ) -> (Poll<Option<Result<Bytes, ContentError>>>, Expectation) {
        let Some(content) = self.find_mut(stream) else {
            return (Poll::Ready(Some(Err(ContentError::Ended))), Expectation::None);
        };
        if let Some(piece) = content.unread.pop_front() {
            content.unread_bytes -= piece.len();
            content.end_wait(now);
            return (Poll::Ready(Some(Ok(piece.into()))), Expectation::None);
        }
        let error = match content.phase {
            ContentPhase::Arriving => {
                content.progress.wait.get_or_insert((now, now));
                content.reader = Some(cx.waker().clone());
                return (Poll::Pending, std::mem::take(&mut content.expectation));
            }
            ContentPhase::Complete => {
                content.end_wait(now);
                return (Poll::Ready(None), Expectation::None);
            }
            ContentPhase::Stopped => ContentError::TooLarge,
            ContentPhase::Failed(error) => error,
        };
        (Poll::Ready(Some(Err(error))), Expectation::None)
    }

    /// Returns the trailer fields of complete content that was read.
    pub(super) fn trailers(&self, stream: StreamId) -> Option<Fields> {
        self.find(stream).filter(|content| content.unread.is_empty())?.trailers.clone()
    }

    /// Records that the application reads no more of a content. Returns the number of bytes that are discarded.
    pub(super) fn stop(&mut self, stream: StreamId) -> usize {
        let Some(content) = self.find_mut(stream) else { return 0 };
        if content.phase == ContentPhase::Arriving {
            content.phase = ContentPhase::Stopped;
        }
        content.unread.clear();
        std::mem::take(&mut content.unread_bytes)
    }

    /// Returns why a content could not be read to its end.
    pub(super) fn failure(&self, stream: StreamId) -> Option<ContentError> {
        match self.find(stream)?.phase {
            ContentPhase::Failed(error) => Some(error),
            ContentPhase::Stopped => Some(ContentError::TooLarge),
            ContentPhase::Arriving | ContentPhase::Complete => None,
        }
    }

    /// Fails all contents that are not complete. Returns their readers.
    pub(super) fn fail_all(&mut self, error: ContentError) -> Vec<Waker> {
        self.all.iter_mut().filter_map(|content| content.fail(error)).collect()
    }

    /// Returns when the first client is too slow, if an application waits.
    pub(super) fn due(&self, limits: TransferLimits) -> Option<Tick> {
        self.all.iter().filter_map(|content| content.due(limits)).min()
    }

    /// Fails the contents that arrive too slowly. Returns their readers.
    pub(super) fn fail_slow(&mut self, now: Tick, limits: TransferLimits) -> Vec<Waker> {
        let slow = self.all.iter_mut().filter(|content| content.due(limits).is_some_and(|due| due <= now));
        slow.filter_map(|content| content.fail(ContentError::TooSlow)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::clock::ticks;
    use std::time::Duration;

    const LIMITS: TransferLimits = TransferLimits { timeout: Duration::from_secs(30), min_rate: 500 };

    fn seconds(seconds: u64) -> Tick {
        ticks(Duration::from_secs(seconds))
    }

    #[test]
    fn only_a_wait_of_the_application_is_timed_and_the_rate_counts() {
        let stream = StreamId::new(1).unwrap();
        let mut contents = Contents::default();
        let mut cx = Context::from_waker(Waker::noop());
        contents.begin(stream, Expectation::None);
        assert_eq!(contents.due(LIMITS), None);
        assert!(contents.poll(stream, seconds(10), &mut cx).0.is_pending());
        assert_eq!(contents.due(LIMITS), Some(seconds(40) + 1));
        // A client that sends one byte from time to time is too slow by its rate.
        assert!(contents.push(stream, b"x", seconds(39)).0);
        assert_eq!(contents.due(LIMITS), Some(seconds(40) + 1));
        assert!(contents.poll(stream, seconds(39), &mut cx).0.is_ready());
        assert_eq!(contents.due(LIMITS), None);
        assert!(contents.poll(stream, seconds(100), &mut cx).0.is_pending());
        assert_eq!(contents.due(LIMITS), Some(seconds(101) + 1));
        assert_eq!(contents.fail_slow(seconds(101), LIMITS).len(), 0);
        assert_eq!(contents.fail_slow(seconds(102), LIMITS).len(), 1);
        assert_eq!(contents.failure(stream), Some(ContentError::TooSlow));
    }

    #[test]
    fn content_has_no_time_limit_after_the_response_has_begun() {
        let stream = StreamId::new(1).unwrap();
        let mut contents = Contents::default();
        contents.begin(stream, Expectation::None);
        assert!(contents.poll(stream, seconds(0), &mut Context::from_waker(Waker::noop())).0.is_pending());
        assert!(contents.due(LIMITS).is_some());
        contents.lift_limits(stream);
        assert_eq!(contents.due(LIMITS), None);
        assert_eq!(contents.fail_slow(seconds(1_000), LIMITS).len(), 0);
    }
}
