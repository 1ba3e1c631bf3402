//! The HTTP/1 message syntax (RFC 9112).
//!
//! [`parse_request()`] parses the request line and the field lines, then decides the framing of the
//! content and the persistence of the connection. [`chunked`] decodes chunked content. [`mod@write`]
//! writes the head and the chunks of the response.

pub mod chunked;
mod framing;
mod parse_fields;
mod parse_request;
mod persistence;
pub mod write;

pub(crate) use framing::{parse_length, request_framing};
pub use parse_request::parse_request;
pub(crate) use parse_request::{find_target_end, interpret_head};
pub(crate) use persistence::expectation;
