//! Content of requests that clients have sent and applications have not read.
//!
//! How much is kept is bounded by the windows of streams and of the connection, which open again when the application
//! reads. After a complete response, a bounded rest is discarded: many clients read no response before they have sent
//! their content.

use crate::connection::progress::TransferLimits;
use crate::net::clock::Tick;
use crate::service::ContentError;
use bytes::Bytes;
use selvedge_proto::field::Fields;
use selvedge_proto::head::Expectation;
use selvedge_proto::http2::StreamId;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

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
    /// When all of it had arrived.
    ended_at: Option<Instant>,
}

/// Whether the time limits apply while the application waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timing {
    Limited,
    /// Both sides send messages, and each may pause.
    Conversation,
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
    /// The response is complete, and what still arrives is discarded.
    Discarded,
    Failed(ContentError),
}

/// What happens to content that has not arrived when the response is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// All has arrived.
    Nothing,
    /// It is discarded as it arrives.
    Discard,
    /// The client is to stop at once.
    Refuse,
}

/// What happened to a piece of content.
pub(super) enum Arrived {
    /// It is kept. The reader that waits for it.
    Kept(Option<Waker>),
    /// No application reads it.
    Discarded,
    /// More was discarded after the response than is permitted.
    TooMuch,
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

    /// Accounts a piece.
    fn arrive(&mut self, piece: &[u8], now: Tick) {
        self.progress.bytes += piece.len() as u64;
        if let Some((_, last)) = &mut self.progress.wait {
            *last = now;
        }
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

    /// Returns how many bytes of a content have arrived; 0 if it is complete and was removed.
    pub(super) fn arrived_bytes(&self, stream: StreamId) -> u64 {
        self.find(stream).map_or(0, |content| content.progress.bytes)
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
            ended_at: None,
        });
    }

    /// Ends the time limits of a content, in whose protocol each side may pause.
    pub(super) fn lift_limits(&mut self, stream: StreamId) {
        if let Some(content) = self.find_mut(stream) {
            content.timing = Timing::Conversation;
        }
    }

    /// Removes the content of a request.
    pub(super) fn remove(&mut self, stream: StreamId) -> Option<StreamContent> {
        let at = self.all.iter().position(|content| content.stream == stream)?;
        Some(self.all.swap_remove(at))
    }

    /// Returns what happens to the rest of a content when its response is complete.
    pub(super) fn rest(&self, stream: StreamId) -> Rest {
        let Some(content) = self.find(stream) else { return Rest::Nothing };
        match (content.phase, content.timing, content.expectation) {
            (ContentPhase::Complete, ..) => Rest::Nothing,
            // The client has been too slow already.
            (ContentPhase::Failed(_), ..) => Rest::Refuse,
            // A client that may pause could keep the stream.
            (_, Timing::Conversation, _) => Rest::Refuse,
            // The client has sent nothing, and waits for permission.
            (_, _, Expectation::Continue) => Rest::Refuse,
            (ContentPhase::Arriving | ContentPhase::Stopped | ContentPhase::Discarded, ..) => Rest::Discard,
        }
    }

    /// Whether the response is complete, and content is discarded.
    pub(super) fn is_discarded(&self, stream: StreamId) -> bool {
        self.find(stream).is_some_and(|content| content.phase == ContentPhase::Discarded)
    }

    /// Begins to discard what arrives of a content. Its time limits apply. Returns the number of bytes that were not
    /// read, and the reader, which gets an error.
    pub(super) fn discard(&mut self, stream: StreamId, now: Tick) -> (usize, Option<Waker>) {
        let Some(content) = self.find_mut(stream) else { return (0, None) };
        content.phase = ContentPhase::Discarded;
        content.progress = Arrival { bytes: 0, waited: 0, wait: Some((now, now)) };
        content.unread = VecDeque::new();
        (std::mem::take(&mut content.unread_bytes), content.reader.take())
    }

    /// Stores a piece of content, or discards it.
    pub(super) fn push(&mut self, stream: StreamId, piece: &[u8], now: Tick, discarded_max: u64) -> Arrived {
        let Some(content) = self.find_mut(stream) else { return Arrived::Discarded };
        match content.phase {
            ContentPhase::Arriving => {}
            ContentPhase::Discarded => {
                content.arrive(piece, now);
                return if content.progress.bytes > discarded_max { Arrived::TooMuch } else { Arrived::Discarded };
            }
            ContentPhase::Complete | ContentPhase::Stopped | ContentPhase::Failed(_) => return Arrived::Discarded,
        }
        content.expectation = Expectation::None;
        content.arrive(piece, now);
        // Until the application reads it, the client is not late.
        content.end_wait(now);
        content.unread_bytes += piece.len();
        // Small pieces are joined, since each has a cost of its own.
        match content.unread.back_mut() {
            Some(last) if last.len() + piece.len() <= JOINED_BYTES_MAX => last.extend_from_slice(piece),
            _ => content.unread.push_back(piece.to_vec()),
        }
        Arrived::Kept(content.reader.take())
    }

    /// Ends the content of a request. Returns the reader that waits for it.
    pub(super) fn end(&mut self, stream: StreamId, trailers: Option<Fields>) -> Option<Waker> {
        let content = self.find_mut(stream)?;
        if content.phase == ContentPhase::Discarded {
            self.remove(stream);
            return None;
        }
        if content.phase == ContentPhase::Arriving {
            content.phase = ContentPhase::Complete;
            content.trailers = trailers;
            content.ended_at = Some(Instant::now());
        }
        content.reader.take()
    }

    /// Returns when all of the content of a request had arrived; `None` without content or before that.
    pub(super) fn ended_at(&self, stream: StreamId) -> Option<Instant> {
        self.find(stream)?.ended_at
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
            ContentPhase::Discarded => ContentError::Ended,
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
            ContentPhase::Arriving | ContentPhase::Discarded | ContentPhase::Complete => None,
        }
    }

    /// Fails all contents that are not complete. Returns their readers.
    pub(super) fn fail_all(&mut self, error: ContentError) -> Vec<Waker> {
        self.all.iter_mut().filter_map(|content| content.fail(error)).collect()
    }

    /// Returns when the first client is too slow, if an application waits or content is discarded.
    pub(super) fn due(&self, limits: TransferLimits) -> Option<Tick> {
        self.all.iter().filter_map(|content| content.due(limits)).min()
    }

    /// Removes the discarded contents that arrive too slowly. Returns their streams.
    pub(super) fn remove_slow_discards(&mut self, now: Tick, limits: TransferLimits) -> Vec<StreamId> {
        let is_slow = |content: &mut StreamContent| {
            content.phase == ContentPhase::Discarded && content.due(limits).is_some_and(|due| due <= now)
        };
        self.all.extract_if(.., is_slow).map(|content| content.stream).collect()
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
        // The application has not read what arrived, so it is the one that is slow.
        assert!(matches!(contents.push(stream, b"x", seconds(39), 0), Arrived::Kept(Some(_))));
        assert_eq!(contents.due(LIMITS), None);
        assert!(contents.poll(stream, seconds(60), &mut cx).0.is_ready());
        // A client that sends one byte from time to time is too slow by its rate.
        assert!(contents.poll(stream, seconds(100), &mut cx).0.is_pending());
        assert_eq!(contents.due(LIMITS), Some(seconds(101) + 1));
        assert_eq!(contents.fail_slow(seconds(101), LIMITS).len(), 0);
        assert_eq!(contents.fail_slow(seconds(102), LIMITS).len(), 1);
        assert_eq!(contents.failure(stream), Some(ContentError::TooSlow));
    }

    #[test]
    fn content_of_a_conversation_has_no_time_limit() {
        let stream = StreamId::new(1).unwrap();
        let mut contents = Contents::default();
        contents.begin(stream, Expectation::None);
        assert_eq!(contents.rest(stream), Rest::Discard);
        assert!(contents.poll(stream, seconds(0), &mut Context::from_waker(Waker::noop())).0.is_pending());
        assert!(contents.due(LIMITS).is_some());
        contents.lift_limits(stream);
        assert_eq!((contents.due(LIMITS), contents.rest(stream)), (None, Rest::Refuse));
        assert_eq!(contents.fail_slow(seconds(1_000), LIMITS).len(), 0);
    }

    #[test]
    fn discarded_content_is_bounded_in_bytes_and_in_time() {
        let [first, second, third] = [1, 3, 5].map(|stream| StreamId::new(stream).unwrap());
        let mut contents = Contents::default();
        for stream in [first, second, third] {
            contents.begin(stream, Expectation::None);
            assert!(matches!(contents.push(stream, b"unread", seconds(0), 10), Arrived::Kept(None)));
            assert_eq!(contents.discard(stream, seconds(10)).0, 6);
        }
        for (piece, is_too_much) in [(&[0; 9][..], false), (b"x", false), (b"x", true)] {
            assert_eq!(matches!(contents.push(first, piece, seconds(20), 10), Arrived::TooMuch), is_too_much);
        }
        assert!(matches!(contents.push(second, b"x", seconds(20), 10), Arrived::Discarded));
        assert!(contents.end(third, None).is_none());
        assert_eq!(contents.rest(third), Rest::Nothing);
        // By the silence of a client, or by its rate.
        assert_eq!(contents.due(LIMITS), Some(seconds(40) + 1));
        assert_eq!(contents.remove_slow_discards(seconds(40), LIMITS), []);
        assert_eq!(contents.remove_slow_discards(seconds(41), LIMITS), [first, second]);
        assert!(contents.is_empty());
    }
}
