//! The io_uring back end: operations are submitted to the kernel in batches, and completions are reported by the
//! ring.
//!
//! The task [`Uring::run`] submits operations and processes completions. It is woken when an operation is started,
//! or by an eventfd that the ring signals. Completions wake the tasks that wait for them. Tokio's timers and
//! sockets work beside it.

mod file_read;
mod read_state;
mod receive;
mod socket;
mod socket_state;
#[cfg(test)]
mod tests;
mod waiters;
mod worker_ring;

pub(crate) use socket::{UringSocket, ring_has_sockets};
pub(crate) use worker_ring::Uring;
