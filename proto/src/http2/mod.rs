//! HTTP/2 (RFC 9113) as functions of bytes and time.

pub mod hpack;
