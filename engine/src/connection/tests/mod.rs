//! Connections with an in-memory stream and virtual time.
//!
//! A fault is a setting of the [`pipe`], a minute passes in a moment, and every test checks the close reason and not
//! only bytes. One file for each thing that a connection does, in that order.

mod pipe;
mod recorder;
mod responses;
mod scenario;
mod test_app;

mod body_kinds;
mod content;
mod eviction;
mod expect;
mod files;
mod hand_over;
mod head;
mod linger;
mod long_buffers;
mod panics;
mod parking;
mod pipelining;
mod session;
mod slow_reading;
mod splices;
mod stop;
mod streams;

mod http2;
