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
    /// A frame arrived for a stream that this endpoint has reset.
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
    /// A frame of unknown type, or GOAWAY.
    Ignored = 20, "the peer sent too many frames that are ignored";
}

/// Least content of a DATA frame that costs nothing, in bytes: the empty message of gRPC has 5.
pub const TINY_DATA_BYTES: u32 = 5;

/// Least increment of a WINDOW_UPDATE that is not small, in bytes.
pub const SMALL_INCREMENT_BYTES: u32 = 64;
