//! The HTTP/1 message syntax (RFC 9112).
//!
//! A request goes through these rooms in order: its line ([`parse_request()`]), its field
//! lines, how its content ends, whether the connection lives on, the content in chunks
//! ([`chunked`]); the answer is laid out by [`mod@write`].

pub mod chunked;
mod framing;
mod parse_fields;
mod parse_request;
mod persist;
pub mod write;

pub use parse_request::parse_request;
