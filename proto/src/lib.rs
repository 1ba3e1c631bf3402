//! HTTP/1.0, HTTP/1.1 and HTTP/2 as functions of bytes and time.
//!
//! This crate never does I/O, reads a clock, spawns, logs, or draws random numbers.
//!
//! It parses bytes ([`head`], [`target`], [`path`], [`condition`], [`range`], [`encoding`],
//! [`accept`], [`date`]), builds request heads from parts ([`HeadBuilder`]), and writes responses ([`http1::write`]).
//! A refused request yields a [`Reject`]: its status code, the persistence of the connection, a message
//! and a name for the log. [`http2::Connection`] is a connection of HTTP/2. [`fastcgi`] and [`cgi`] are the
//! side of a web server towards scripts, and [`proxy_protocol`] the header in which a proxy names a client.

#![forbid(unsafe_code)]

pub mod accept;
pub mod cgi;
pub mod condition;
pub mod date;
pub mod encoding;
pub mod fastcgi;
pub mod field;
pub mod field_section;
pub mod forward;
pub mod head;
mod head_builder;
pub mod http1;
pub mod http2;
pub mod limits;
pub mod message;
pub mod method;
pub mod path;
pub mod proxy_protocol;
pub mod range;
pub mod reject;
pub mod status;
mod swar;
pub mod target;

pub use head_builder::{HeadBuilder, RequestLine};
pub use limits::MessageLimits;
pub use reject::{Persistence, Reject};
pub use status::StatusCode;
