//! Connections: one task for each, from the first byte to the close reason. An idle connection is parked and has no
//! task.
//!
//! This module never decides what to respond and never opens a socket or a file.

mod app_context;
mod body_state;
mod close;
mod file;
mod http1;
mod large_send_buffer;
mod parked;
mod progress;
mod request_body;
mod request_pool;
mod respond;
mod run;
#[cfg(test)]
mod tests;
mod transport;
mod upgraded;

pub(crate) use app_context::AppContext;
pub(crate) use respond::UNAVAILABLE_RESPONSE;
pub(crate) use run::run;
pub(crate) use transport::phase_of;
