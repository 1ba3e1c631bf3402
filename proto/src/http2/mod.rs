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
//!     loop {
//!         let step = connection.receive(input, now, &mut out)?;          // on an error: send `out`, close
//!         match step.event {
//!             Some(Event::Headers { stream, end, section }) => …         // connection.fields()
//!             Some(Event::Data { stream, content, end }) => …            // input[content]
//!             Some(Event::Reset { stream, .. }) => …                     // cancel the work for this stream
//!             Some(…) => …
//!             None => break,
//!         }
//!         input = &input[step.consumed..];
//!     }
//!     // 2. Heads of responses that are ready: send_fields(), set_content().
//!     // 3. Content, until `out` is full or nothing may be sent: next_to_send(), begin_data(), the payload.
//!     // 4. Send `out`; wait for input, for the application, or for connection.deadline().
//! }
//! ```
//!
//! # A request and its response
//!
//! ```
//! use selvedge_proto::StatusCode;
//! use selvedge_proto::http2::{Connection, Content, End, Event, Http2Limits, Millis, Role, Section};
//!
//! /// Gives bytes to a connection, and returns the events.
//! fn receive(connection: &mut Connection, mut input: &[u8], out: &mut Vec<u8>) -> Vec<Event> {
//!     let mut events = Vec::new();
//!     loop {
//!         let step = connection.receive(input, Millis(0), out).expect("the peer is correct");
//!         let Some(event) = step.event else { return events };
//!         events.push(event);
//!         input = &input[step.consumed..];
//!     }
//! }
//!
//! let (limits, now) = (Http2Limits::default(), Millis(0));
//! let (mut client, mut server) =
//!     (Connection::new(Role::Client, &limits, now), Connection::new(Role::Server, &limits, now));
//! let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
//! client.start(&mut to_server);
//! server.start(&mut to_client);
//!
//! let stream = client
//!     .open(End::Last, &mut to_server, |block| {
//!         block.field(b":method", b"GET");
//!         block.field(b":scheme", b"https");
//!         block.field(b":authority", b"example.com");
//!         block.field(b":path", b"/");
//!     })
//!     .expect("the server permits a stream");
//! let events = receive(&mut server, &to_server, &mut to_client);
//! assert!(matches!(events[..], [Event::Headers { end: End::Last, .. }]));
//! assert_eq!(server.fields().len(), 4);
//!
//! server
//!     .send_fields(stream, Section::Head(End::More), &mut to_client, |block| block.status(StatusCode::OK))
//!     .expect("the stream is open");
//! server.set_content(stream, Content::Ready);
//! while let Some(turn) = server.next_to_send() {
//!     let piece = b"hello";
//!     server.begin_data(turn.stream, piece.len(), End::Last, &mut to_client).expect("it is within the turn");
//!     to_client.extend_from_slice(piece);
//! }
//! let events = receive(&mut client, &to_client, &mut to_server);
//! assert!(matches!(events[..], [Event::Headers { .. }, Event::Data { end: End::Last, .. }]));
//! assert_eq!(client.open_streams(), 0);
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
    Connection, Content, End, Event, FieldSection, Millis, ResetCause, Role, Section, Step, StreamId, Turn, WindowOf,
};
pub use error::{ConnectionError, ErrorCode, OpenError, SendError, StreamError};
pub use limits::{
    ExtendedConnect, FRAME_BYTES_CEILING, FRAME_BYTES_FLOOR, Http2Limits, STREAMS_CEILING, WINDOW_CEILING,
    WINDOW_INITIAL,
};
pub use priority::{Delivery, Priority};
pub use settings::PeerSettings;
