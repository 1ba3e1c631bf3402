//! Connections: one task for each, from the first byte to the close reason. An idle connection is parked and has no
//! task.
//!
//! From bottom to top: `transport` is the socket with buffers and timeouts, and knows no protocol. `exchange` and
//! `response_plan` belong to requests of all versions. `http1` and `http2` are the protocols. `start` chooses one,
//! `run` is the task.
//!
//! This module never decides what to respond and never opens a socket or a file.

mod app_context;
mod close;
mod exchange;
mod exit;
mod http1;
mod http2;
mod large_send_buffer;
mod marks;
mod parked;
mod progress;
mod receive_buffer;
mod response_plan;
mod run;
mod sealed_copies;
mod send_queue;
mod start;
#[cfg(test)]
mod tests;
mod timeouts;
mod transport;
mod upgraded;

pub(crate) use app_context::AppContext;
pub(crate) use exit::FirstProtocol;
pub(crate) use http1::{PLAIN_HTTP_RESPONSE, UNAVAILABLE_RESPONSE};
pub(crate) use run::run;
pub(crate) use timeouts::phase_of;
