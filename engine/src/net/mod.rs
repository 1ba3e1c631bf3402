//! Sockets, workers and time. Only this module depends on the runtime. It never names an HTTP type.
//!
//! Path of a connection: `listen` binds, `accept` accepts, `stream` carries bytes, and `connection_table` records
//! deadlines.

pub(crate) mod accept;
mod backlog;
pub(crate) mod clock;
pub(crate) mod connection_table;
pub(crate) mod driver;
mod idle_epoll;
pub(crate) mod listen;
pub(crate) mod panic;
mod prefetch;
mod socket;
pub(crate) mod stream;
pub(crate) mod sys;
pub(crate) mod upgrade;
pub(crate) mod uring;
pub(crate) mod worker;
mod worker_listeners;
