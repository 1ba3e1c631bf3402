//! HTTP/1 connections.

mod body;
mod body_state;
mod connection;
mod read_head;
pub(super) mod request_pool;
mod respond;
mod send_file;
mod send_stream;
mod serve;

pub(super) use connection::{Connection, ParkedState, PendingUpgrade};
pub(crate) use respond::{PLAIN_HTTP_RESPONSE, UNAVAILABLE_RESPONSE};
pub(super) use serve::serve;
