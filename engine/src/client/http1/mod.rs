//! Requests over HTTP/1.1.

mod content;
mod exchange;
mod upload;

pub(super) use exchange::send;
