//! Tests of the program with the real binary, real files and raw bytes over a socket, and of the library.
//!
//! Programs and servers use io_uring if the system allows it; `support::other_driver` runs all tests with epoll as well,
//! and those of a served folder over TLS.
//! `sites_cost` is a binary of its own, because its allocator counts the allocations of the whole process.

mod support;

mod library;
#[cfg(feature = "program")]
mod run;
#[cfg(feature = "program")]
mod serve;
