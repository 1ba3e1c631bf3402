//! The budget of a connection for work that is thrown away.
//!
//! It is a bucket of points. [`Waste`] costs points, useful work regains some of them, and time regains the
//! rest. A connection whose budget is exhausted ends with `ENHANCE_YOUR_CALM`. Costs are chosen so that usual
//! clients never exhaust it: a cancelled request is paid by one complete response, a PING or two small
//! WINDOW_UPDATE frames by one DATA frame.

macro_rules! wastes {
    ($($(#[$doc:meta])* $name:ident = $cost:literal, $message:literal;)+) => {
        /// Work that a peer causes and that serves no response. Each kind has its cost in points.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Waste { $($(#[$doc])* $name,)+ }

        impl Waste {
            /// All kinds, for tables and counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the cost of one occurrence, in points.
            pub const fn cost(self) -> u32 {
                match self { $(Self::$name => $cost,)+ }
            }

            /// Returns one clause for the log.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)+ }
            }
        }
    };
}

wastes! {
    /// The peer reset a stream whose response was not complete (CVE-2023-44487).
    ResetByPeer = 50, "the peer reset too many streams";
    /// The peer made this endpoint reset a stream by a violation (CVE-2025-8671).
    ResetOfPeer = 50, "the peer caused too many resets of streams";
    /// The peer opened a stream beyond the limit of open streams.
    RefusedStream = 25, "the peer opened too many streams beyond the limit";
    /// HEADERS arrived for a stream that this endpoint has reset or does not accept, or content that no window bounds.
    FrameAfterReset = 2, "the peer sent too many frames for streams that were reset";
    /// RST_STREAM or WINDOW_UPDATE for a closed stream.
    FrameOnClosedStream = 5, "the peer sent too many frames for closed streams";
    /// A DATA frame without content that does not end its stream (CVE-2019-9518).
    EmptyData = 20, "the peer sent too many empty DATA frames";
    /// A DATA frame of fewer than [`TINY_DATA_BYTES`] bytes that does not end its stream.
    TinyData = 6, "the peer sent too many tiny DATA frames";
    /// SETTINGS (CVE-2019-9515).
    Settings = 50, "the peer sent too many SETTINGS frames";
    /// PING (CVE-2019-9512).
    Ping = 10, "the peer sent too many PING frames";
    /// PRIORITY or PRIORITY_UPDATE (CVE-2019-9513).
    Priority = 10, "the peer sent too many PRIORITY frames";
    /// WINDOW_UPDATE of at least [`SMALL_INCREMENT_BYTES`].
    WindowUpdate = 1, "the peer sent too many WINDOW_UPDATE frames";
    /// WINDOW_UPDATE of fewer than [`SMALL_INCREMENT_BYTES`] (CVE-2019-9511).
    SmallWindowUpdate = 5, "the peer sent too many small WINDOW_UPDATE frames";
    /// CONTINUATION.
    Continuation = 20, "the peer sent too many CONTINUATION frames";
    /// A field section that exceeds a limit.
    SectionTooLarge = 50, "the peer sent too many field sections that are too large";
    /// An interim response, of a server.
    Interim = 10, "the peer sent too many interim responses";
    /// A frame of unknown type, or GOAWAY.
    Ignored = 20, "the peer sent too many frames that are ignored";
}

/// Least content of a DATA frame that costs nothing, in bytes: the empty message of gRPC has 5.
pub const TINY_DATA_BYTES: u32 = 5;

/// Least increment of a WINDOW_UPDATE that is not small, in bytes.
pub const SMALL_INCREMENT_BYTES: u32 = 64;

/// Points that a complete response regains: the cost of one cancelled request.
const POINTS_OF_RESPONSE: u32 = 50;

/// Most points that a sent DATA frame regains, besides those for its length: the cost of a PING, or of two small
/// WINDOW_UPDATE frames. A frame of fewer bytes regains one point for each byte.
const POINTS_OF_FRAME_MAX: u32 = 10;

/// Bytes of content, sent or received, that regain one point.
const BYTES_OF_POINT: u32 = 64;

/// The points of one connection.
#[derive(Debug)]
pub(crate) struct Budget {
    points: i32,
    points_max: i32,
    points_per_second: u32,
    /// The time until which points were regained.
    regained_until: u64,
    /// The waste that exhausted the budget.
    exhausted_by: Option<Waste>,
}

impl Budget {
    pub(crate) fn new(points_max: u32, points_per_second: u32, now_ms: u64) -> Self {
        let points_max = i32::try_from(points_max).unwrap_or(i32::MAX);
        Self { points: points_max, points_max, points_per_second, regained_until: now_ms, exhausted_by: None }
    }

    /// Charges the cost of a waste.
    pub(crate) fn charge(&mut self, waste: Waste, now_ms: u64) {
        self.regain_by_time(now_ms);
        self.points = self.points.saturating_sub_unsigned(waste.cost());
        if self.points < 0 {
            self.exhausted_by.get_or_insert(waste);
        }
    }

    /// Returns the waste that exhausted the budget.
    #[inline]
    pub(crate) fn exhausted_by(&self) -> Option<Waste> {
        self.exhausted_by
    }

    /// Regains points by a complete response.
    #[inline]
    pub(crate) fn response_completed(&mut self) {
        self.regain(POINTS_OF_RESPONSE);
    }

    /// Regains points by a sent DATA frame.
    #[inline]
    pub(crate) fn data_sent(&mut self, bytes: u32) {
        self.regain(bytes.min(POINTS_OF_FRAME_MAX) + bytes / BYTES_OF_POINT);
    }

    /// Regains points by received content that is delivered.
    #[inline]
    pub(crate) fn data_received(&mut self, bytes: u32) {
        self.regain(bytes / BYTES_OF_POINT);
    }

    #[inline]
    fn regain(&mut self, points: u32) {
        self.points = self.points.saturating_add_unsigned(points).min(self.points_max);
    }

    fn regain_by_time(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.regained_until);
        let points = passed_ms.saturating_mul(u64::from(self.points_per_second)) / 1_000;
        if points > 0 {
            self.regain(u32::try_from(points).unwrap_or(u32::MAX));
            self.regained_until = now_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_exhausted_exactly_and_names_the_first_waste() {
        let mut budget = Budget::new(100, 0, 0);
        budget.charge(Waste::ResetByPeer, 0);
        budget.charge(Waste::ResetByPeer, 1_000_000);
        assert_eq!(budget.exhausted_by(), None);
        budget.charge(Waste::WindowUpdate, 0);
        budget.charge(Waste::Ping, 0);
        assert_eq!(budget.exhausted_by(), Some(Waste::WindowUpdate));
    }

    #[test]
    fn useful_work_pays_for_usual_waste() {
        let mut budget = Budget::new(100, 0, 0);
        for _ in 0..1_000 {
            budget.charge(Waste::ResetByPeer, 0);
            budget.response_completed();
            // A streamed message of 25 bytes, acknowledged by two WINDOW_UPDATE frames.
            budget.charge(Waste::SmallWindowUpdate, 0);
            budget.charge(Waste::SmallWindowUpdate, 0);
            budget.data_sent(25);
            // A PING for each DATA frame, to measure the bandwidth.
            budget.charge(Waste::Ping, 0);
            budget.data_sent(16_384);
        }
        assert_eq!(budget.exhausted_by(), None);
    }

    #[test]
    fn drip_of_single_bytes_is_not_paid_by_its_frames() {
        let mut budget = Budget::new(100, 0, 0);
        for _ in 0..100 {
            budget.charge(Waste::SmallWindowUpdate, 0);
            budget.data_sent(1);
        }
        assert_eq!(budget.exhausted_by(), Some(Waste::SmallWindowUpdate));
    }

    #[test]
    fn time_regains_points_up_to_the_limit() {
        let mut budget = Budget::new(100, 10, 0);
        budget.charge(Waste::ResetByPeer, 0);
        // Half a point each time adds up.
        for now_ms in (50..=5_000).step_by(50) {
            budget.regain_by_time(now_ms);
        }
        assert_eq!(budget.points, 100);
        budget.regain_by_time(u64::MAX);
        assert_eq!(budget.points, 100);
    }
}
