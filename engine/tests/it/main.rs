//! Tests of the engine over sockets. The unit tests cover one connection, with virtual time and in-memory streams.
//!
//! Servers use io_uring if the system allows it; `support::other_driver` runs all tests with epoll as well.
//! `allocations`, `exit_cause` and `panic_hook` are binaries of their own, because an allocator, a limit and the panic hook
//! of the process are theirs alone.

mod support;

mod applications;
mod cases;
#[cfg(feature = "compression")]
mod compression;
mod connection_stats;
mod embedded;
mod failures;
mod gateway;
mod http2;
mod http2_load;
mod http2_tunnels;
mod layers;
mod library;
mod listeners;
mod observer;
mod own_streams;
mod replace_app;
mod server;
mod splices;
