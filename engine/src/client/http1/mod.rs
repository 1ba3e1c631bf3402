//! Requests over HTTP/1.1.

mod content;
mod exchange;
mod head;
mod upload;

pub(super) use exchange::send;
