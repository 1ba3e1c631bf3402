//! Sockets, workers and time: the only floor that names the runtime. It never names an
//! HTTP type.
//!
//! In the order in which a connection meets them: a listener is bound, a worker accepts at it,
//! a stream carries bytes, notes watch the time.

pub(crate) mod accept;
pub(crate) mod clock;
mod disk;
mod driven;
pub(crate) mod driver;
pub(crate) mod duplex;
pub(crate) mod listen;
mod listening;
pub(crate) mod notes;
pub(crate) mod panic;
mod parking;
mod queue;
pub(crate) mod stream;
pub(crate) mod sys;
pub(crate) mod uring;
pub(crate) mod worker;
