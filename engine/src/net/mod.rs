//! Sockets, workers and time. Connections use the runtime only through this module. It never names an HTTP type.
//!
//! From bottom to top: `sys` and `raw` call the system. `worker` is the context that connections share. `stream` is
//! the interface of a socket, with `epoll` and `uring` below it. `link` is a socket with or without a session. `accept` and `worker_listeners` accept
//! connections. `executor` runs a worker on its thread.

mod accept;
pub(crate) mod accepted;
mod adaptive_backlog;
pub(crate) mod backend;
pub(crate) mod client_session;
pub(crate) mod clock;
pub(crate) mod connect;
pub(crate) mod connection_table;
pub(crate) mod epoll;
pub(crate) mod executor;
pub(crate) mod held_connections;
mod idle_epoll;
pub(crate) mod link;
pub(crate) mod listen;
pub(crate) mod panic;
pub(crate) mod pipe;
pub(crate) mod prefetch;
pub(crate) mod prefix;
pub(crate) mod raw;
pub(crate) mod runtime;
pub(crate) mod socket;
pub(crate) mod stop_notice;
pub(crate) mod stopping;
pub(crate) mod stream;
pub(crate) mod stream_listener;
pub(crate) mod sys;
pub(crate) mod turns;
pub(crate) mod upgrade;
pub(crate) mod uring;
pub(crate) mod worker;
mod worker_listeners;
