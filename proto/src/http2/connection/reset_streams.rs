//! Streams that this endpoint has reset while the peer could still send on them.
//!
//! Frames that were in flight are ignored (RFC 9113 §5.1), as far as the stream's window permitted them.

use super::StreamId;
use crate::http2::flow::ReceiveWindow;
use std::collections::VecDeque;

/// Most streams that are remembered. Content for older ones is ignored, too, but costs the budget of the connection,
/// as no window bounds it.
const REMEMBERED_MAX: usize = 128;

/// What to do with a frame of a closed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InFlight {
    /// It was sent before the peer knew of the reset, and is within the stream's window.
    Permitted,
    /// The stream was reset so long ago that its window is not known any more.
    Forgotten,
    /// It exceeds the stream's window.
    Exceeded,
    /// This endpoint has not reset the stream.
    Unknown,
}

/// The streams, oldest first.
#[derive(Debug)]
pub(super) struct ResetStreams {
    recent: VecDeque<(StreamId, ReceiveWindow)>,
    /// Highest identifier that was removed to make room.
    forgotten_max: u32,
}

impl ResetStreams {
    pub(super) const fn new() -> Self {
        Self { recent: VecDeque::new(), forgotten_max: 0 }
    }

    /// Remembers a stream with what the peer may have sent on it.
    pub(super) fn remember(&mut self, stream: StreamId, window: ReceiveWindow) {
        if self.recent.len() == REMEMBERED_MAX
            && let Some((oldest, _)) = self.recent.pop_front()
        {
            self.forgotten_max = self.forgotten_max.max(oldest.get());
        }
        self.recent.push_back((stream, window));
    }

    /// Judges content that arrives on a closed stream, and accounts it.
    pub(super) fn receive(&mut self, stream: StreamId, bytes: u32) -> InFlight {
        match self.recent.iter_mut().find(|(id, _)| *id == stream) {
            Some((_, window)) => match window.receive(bytes) {
                true => InFlight::Permitted,
                false => InFlight::Exceeded,
            },
            None if stream.get() <= self.forgotten_max => InFlight::Forgotten,
            None => InFlight::Unknown,
        }
    }

    /// Forgets a stream, after the peer has ended it, too.
    pub(super) fn forget(&mut self, stream: StreamId) {
        self.recent.retain(|(id, _)| *id != stream);
    }

    /// Changes the windows, when the peer has acknowledged a smaller initial window.
    pub(super) fn change_windows(&mut self, bytes: i32) {
        self.recent.iter_mut().for_each(|(_, window)| window.change(bytes));
    }

    /// Releases unused memory.
    pub(super) fn compact(&mut self) {
        self.recent.shrink_to_fit();
    }

    /// Most memory, in bytes.
    pub(super) const fn bytes_max() -> usize {
        REMEMBERED_MAX * size_of::<(StreamId, ReceiveWindow)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_in_flight_are_bounded_by_the_window() {
        let mut resets = ResetStreams::new();
        resets.remember(StreamId(1), ReceiveWindow::new(10));
        assert_eq!(resets.receive(StreamId(1), 10), InFlight::Permitted);
        assert_eq!(resets.receive(StreamId(1), 0), InFlight::Permitted);
        assert_eq!(resets.receive(StreamId(1), 1), InFlight::Exceeded);
        assert_eq!(resets.receive(StreamId(3), 0), InFlight::Unknown);
        resets.forget(StreamId(1));
        assert_eq!(resets.receive(StreamId(1), 0), InFlight::Unknown);
    }

    #[test]
    fn streams_that_were_forgotten_are_no_violation() {
        let mut resets = ResetStreams::new();
        for id in 0..=REMEMBERED_MAX as u32 {
            resets.remember(StreamId(2 * id + 1), ReceiveWindow::new(0));
        }
        assert_eq!(resets.receive(StreamId(1), 1), InFlight::Forgotten);
        assert_eq!(resets.receive(StreamId(3), 1), InFlight::Exceeded);
    }
}
