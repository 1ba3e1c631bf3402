//! Flow-control windows (RFC 9113 §5.2 and §6.9).

use super::limits::WINDOW_CEILING;

/// How much content this endpoint may send. Negative after the peer reduced its initial window (RFC 9113 §6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWindow(i32);

/// A window would exceed 2^31-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowTooLarge;

impl SendWindow {
    /// `bytes` is at most [`WINDOW_CEILING`].
    pub(crate) fn new(bytes: u32) -> Self {
        debug_assert!(bytes <= WINDOW_CEILING);
        Self(bytes as i32)
    }

    /// Returns how many bytes may be sent.
    #[inline]
    pub(crate) fn available(self) -> u32 {
        self.0.max(0) as u32
    }

    /// Changes the window by WINDOW_UPDATE or by another initial window.
    pub(crate) fn change(&mut self, bytes: i64) -> Result<(), WindowTooLarge> {
        let changed = i64::from(self.0) + bytes;
        // The lower end cannot be passed: initial windows are at least 0, and only what was available is sent.
        self.0 = i32::try_from(changed).map_err(|_| WindowTooLarge)?;
        Ok(())
    }

    /// Accounts sent content, at most [`Self::available`].
    #[inline]
    pub(crate) fn send(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.available());
        self.0 -= bytes as i32;
    }
}

/// How much content the peer may send. The window reopens when half of it was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveWindow {
    available: i32,
    /// Bytes that were consumed and not yet reported to the peer.
    consumed: u32,
}

impl ReceiveWindow {
    /// `bytes` is at most [`WINDOW_CEILING`].
    pub(crate) fn new(bytes: u32) -> Self {
        debug_assert!(bytes <= WINDOW_CEILING);
        Self { available: bytes as i32, consumed: 0 }
    }

    /// Returns how many bytes the peer may send.
    #[cfg(test)]
    pub(crate) fn available(self) -> u32 {
        self.available.max(0) as u32
    }

    /// Accounts the payload of a DATA frame. Returns whether the window permits it.
    #[inline]
    #[must_use]
    pub(crate) fn receive(&mut self, bytes: u32) -> bool {
        let left = i64::from(self.available) - i64::from(bytes);
        self.available = left.max(i64::from(i32::MIN)) as i32;
        left >= 0
    }

    /// Changes the window, when the peer has acknowledged a smaller initial window.
    pub(crate) fn change(&mut self, bytes: i32) {
        self.available = self.available.saturating_add(bytes);
    }

    /// Accounts consumed bytes. Returns the increment that the peer is to receive, if half of `size` is consumed.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: u32, size: u32) -> Option<u32> {
        // A driver that reports too much must not open the window beyond its size.
        let outstanding = i64::from(size) - i64::from(self.available);
        self.consumed = i64::from(self.consumed.saturating_add(bytes)).min(outstanding).max(0) as u32;
        if self.consumed == 0 || self.consumed < size / 2 {
            return None;
        }
        let increment = core::mem::take(&mut self.consumed);
        self.available += increment as i32;
        Some(increment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_window_is_bounded_and_may_be_negative() {
        let mut window = SendWindow::new(10);
        window.send(10);
        assert_eq!(window.change(-5), Ok(()));
        assert_eq!((window, window.available()), (SendWindow(-5), 0));
        assert_eq!(window.change(i64::from(WINDOW_CEILING) + 5), Ok(()));
        assert_eq!(window.available(), WINDOW_CEILING);
        assert_eq!(window.change(1), Err(WindowTooLarge));
    }

    #[test]
    fn receive_window_reopens_at_half_and_never_beyond_its_size() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(60));
        assert_eq!(window.consume(49, 100), None);
        assert_eq!(window.consume(1, 100), Some(50));
        assert_eq!(window.available(), 90);
        assert_eq!(window.consume(1_000, 100), None);
        assert!(window.receive(90));
        assert_eq!(window.consume(u32::MAX, 100), Some(100));
        assert_eq!(window.available(), 100);
        assert!(!window.receive(101));
    }

    #[test]
    fn window_of_one_byte_reopens() {
        let mut window = ReceiveWindow::new(1);
        assert!(window.receive(1));
        assert_eq!(window.consume(0, 1), None);
        assert_eq!(window.consume(1, 1), Some(1));
    }
}
