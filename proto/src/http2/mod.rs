//! HTTP/2 (RFC 9113) as functions of bytes and time, for servers and clients.
//!
//! [`Connection`] has no socket, no clock and no content. The driver gives it received bytes and gets one
//! event at a time. Everything that the core sends is appended to the driver's `Vec<u8>`. Content is never
//! stored inside: an event names the bytes of the driver's input, and [`Connection::begin_data`] writes only
//! the header of a DATA frame, after which the driver appends the payload or sends a file.
//!
//! ```text
//! receive(input) ─► Headers ─► fields(), message rules ─► expect_content ─► the application is called
//!                   Data ────► content to the application ─► consumed() reopens the windows
//!                   Trailers, Reset, GoAway, …
//! send_fields(Head) ─► set_content(Ready) ─► next_to_send() ─► begin_data() + payload ─► … ─► End::Last
//! ```
//!
//! # The loop of a driver
//!
//! ```text
//! let mut connection = Connection::new(Role::Server, &limits, now);
//! connection.start(&mut out);
//! loop {
//!     // 1. Everything that was received. The core consumes all of it, so the buffer is free afterwards.
//!     let mut at = 0;
//!     loop {
//!         let step = connection.receive(&input[at..], now, &mut out)?;   // on an error: send `out`, close
//!         match step.event {
//!             Some(Event::Headers { stream, end, section }) => …         // connection.fields()
//!             Some(Event::Data { stream, content, end }) => …            // input[at..][content]
//!             Some(Event::Reset { stream, .. }) => …                     // cancel the work for this stream
//!             Some(…) => …
//!             None => break,
//!         }
//!         at += step.consumed;
//!     }
//!     // 2. Heads of responses that are ready.
//!     connection.send_fields(stream, Section::Head, End::More, &mut out, |block| block.status(…))?;
//!     connection.set_content(stream, Content::Ready);
//!     // 3. Content, in the order of priorities, until `out` is full or nothing may be sent.
//!     while out.len() < OUT_BYTES_MAX && let Some(turn) = connection.next_to_send() {
//!         match next_piece_of(turn.stream, turn.bytes_max) {
//!             Piece::Bytes(bytes, end) => {
//!                 connection.begin_data(turn.stream, bytes.len(), end, &mut out)?;
//!                 out.extend_from_slice(bytes);
//!             }
//!             Piece::NotYet => connection.set_content(turn.stream, Content::Waiting),
//!         }
//!     }
//!     // 4. Send `out`; wait for input, for the application, or for connection.deadline().
//! }
//! ```
//!
//! If `out` grows because the peer does not read, the driver must stop to call [`Connection::receive`]: then
//! replies to PING and SETTINGS are bounded by the driver, too.

mod budget;
mod connection;
mod error;
mod flow;
mod frame;
pub mod hpack;
mod limits;
mod priority;
mod schedule;
mod settings;
mod stream;
mod stream_table;

pub use budget::{SMALL_INCREMENT_BYTES, TINY_DATA_BYTES, Waste};
pub use connection::{
    Connection, Content, End, Event, FieldSection, Millis, ResetCause, Role, Section, Step, StreamId, Turn,
};
pub use error::{ConnectionError, ErrorCode, OpenError, SendError, StreamError};
pub use limits::{
    ExtendedConnect, FRAME_BYTES_CEILING, FRAME_BYTES_FLOOR, Http2Limits, STREAMS_CEILING, WINDOW_CEILING,
    WINDOW_INITIAL,
};
pub use priority::{Delivery, Priority};
pub use settings::PeerSettings;
