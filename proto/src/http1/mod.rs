//! The HTTP/1 message syntax (RFC 9112).
//!
//! [`parse_request()`] parses the request line and the field lines, then decides the framing of the
//! content and the persistence of the connection. [`chunked`] decodes chunked content. [`mod@write`]
//! writes the head and the chunks of the response.
//!
//! A gateway is a client as well: [`mod@write_request`] writes the head of a request, and [`mod@parse_response`] parses
//! the head of its response.

pub mod chunked;
mod framing;
mod malformed_response;
mod parse_fields;
mod parse_request;
pub mod parse_response;
mod persistence;
pub mod write;
pub mod write_request;

pub(crate) use framing::{parse_length, request_framing};
pub use malformed_response::MalformedResponse;
pub use parse_request::parse_request;
pub(crate) use parse_request::{find_target_end, interpret_head};
pub use parse_response::parse_response;
pub(crate) use persistence::expectation;
