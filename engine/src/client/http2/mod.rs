//! Requests over HTTP/2. A task for each connection receives and sends; the tasks of the exchanges read and write the
//! state that they share with it.

mod connection;
mod exchange;
mod guard;
mod handle;
mod opening;
mod pick;
mod stream;
mod stream_queue;
mod task;
mod tunnel_end;

pub(super) use connection::SharedConnection;
pub(super) use exchange::{UPGRADE_UNSUPPORTED, send};
pub(super) use opening::Opening;
pub(super) use stream_queue::StreamQueue;
pub(super) use tunnel_end::Http2TunnelEnd;
