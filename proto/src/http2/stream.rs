//! The state of one open stream (RFC 9113 §5.1).
//!
//! ```text
//!               HEADERS                 END_STREAM of both sides, or RST_STREAM
//!   idle ────────────────► open ──────────────────────────────────────────────► closed
//!   above the last                each side: Head ─► Content ─► Ended             not in the table
//! ```
//!
//! A closed stream costs nothing: it is an identifier up to the last one that is not in the table.

use super::connection::{Content, StreamId};
use super::flow::{ReceiveWindow, SendWindow};
use super::priority::Priority;

/// How far one side of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// A head is to follow.
    Head,
    /// Content or trailers are to follow.
    Content,
    /// The side has ended the stream.
    Ended,
}

/// The index of an open stream in the table.
pub(crate) type Slot = u16;

/// No stream, in a field that links slots.
pub(super) const NO_SLOT: Slot = Slot::MAX;

/// The value of [`Stream::content_left`] if the length of the content is unknown.
const LENGTH_UNKNOWN: u64 = u64::MAX;

/// One open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// What the peer has sent.
    pub(crate) remote: Side,
    /// What this endpoint has sent.
    pub(crate) local: Side,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// Bytes of content that the peer must still send.
    content_left: u64,
    pub(crate) content: Content,
    pub(crate) priority: Priority,
    /// Whether the priority is from PRIORITY_UPDATE, which overrides the field Priority (RFC 9218 §7).
    pub(crate) priority_source: PrioritySource,
    /// The streams before and after it in its turn, or the next unused slot.
    pub(super) previous: Slot,
    pub(super) next: Slot,
    /// Whether the stream takes turns.
    pub(super) is_scheduled: bool,
    /// Bytes that it may send before its turn ends.
    pub(super) turn_left: u32,
}

/// Where the priority of a stream is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrioritySource {
    /// The default or a field.
    Field,
    /// PRIORITY_UPDATE.
    Frame,
}

/// Content has another length than the announced one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LengthMismatch;

impl Stream {
    /// Creates a stream with default priority and without content.
    pub(super) fn new(new: NewStream) -> Self {
        Self {
            id: new.id,
            remote: new.remote,
            local: new.local,
            send_window: SendWindow::new(new.send_window),
            receive_window: ReceiveWindow::new(new.receive_window),
            content_left: LENGTH_UNKNOWN,
            content: Content::Waiting,
            priority: Priority::default(),
            priority_source: PrioritySource::Field,
            previous: NO_SLOT,
            next: NO_SLOT,
            is_scheduled: false,
            turn_left: 0,
        }
    }

    /// Sets the announced length of the content that is to arrive.
    pub(crate) fn expect_content(&mut self, length: u64) -> Result<(), LengthMismatch> {
        self.content_left = length.min(LENGTH_UNKNOWN - 1);
        if self.remote == Side::Ended { self.end_content() } else { Ok(()) }
    }

    /// Accounts arriving content.
    #[inline]
    pub(crate) fn receive_content(&mut self, bytes: u32) -> Result<(), LengthMismatch> {
        if self.content_left != LENGTH_UNKNOWN {
            self.content_left = self.content_left.checked_sub(u64::from(bytes)).ok_or(LengthMismatch)?;
        }
        Ok(())
    }

    /// Checks the length at the end of the content.
    #[inline]
    pub(crate) fn end_content(&self) -> Result<(), LengthMismatch> {
        if matches!(self.content_left, 0 | LENGTH_UNKNOWN) { Ok(()) } else { Err(LengthMismatch) }
    }

    /// Whether it has content to send and a window for it.
    pub(super) fn can_send(&self) -> bool {
        self.local == Side::Content && self.content == Content::Ready && self.send_window.available() > 0
    }
}

/// What a new stream begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewStream {
    pub(crate) id: StreamId,
    pub(crate) remote: Side,
    pub(crate) local: Side,
    pub(crate) send_window: u32,
    pub(crate) receive_window: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_must_have_the_announced_length() {
        let mut stream = Stream::new(NewStream {
            id: StreamId(1),
            remote: Side::Content,
            local: Side::Content,
            send_window: 10,
            receive_window: 10,
        });
        assert_eq!(stream.receive_content(5), Ok(()));
        assert_eq!(stream.end_content(), Ok(()));
        assert_eq!(stream.expect_content(5), Ok(()));
        assert_eq!(stream.receive_content(4), Ok(()));
        assert_eq!(stream.end_content(), Err(LengthMismatch));
        assert_eq!(stream.receive_content(1), Ok(()));
        assert_eq!(stream.end_content(), Ok(()));
        assert_eq!(stream.receive_content(1), Err(LengthMismatch));
        stream.remote = Side::Ended;
        assert_eq!(stream.expect_content(0), Ok(()));
        assert_eq!(stream.expect_content(1), Err(LengthMismatch));
    }
}
