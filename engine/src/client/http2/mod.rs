//! Requests over HTTP/2. A task for each connection receives and sends; the tasks of the exchanges read and write the
//! state that they share with it.

mod connection;
mod exchange;
mod guard;
mod handle;
mod opening;
mod pick;
mod stream;
mod task;

pub(super) use connection::SharedConnection;
pub(super) use exchange::send;
pub(super) use opening::Opening;
