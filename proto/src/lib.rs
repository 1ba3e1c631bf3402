//! HTTP/1.0 and HTTP/1.1 as functions of bytes and time.
//!
//! This crate never does I/O, reads a clock, spawns, logs, or draws random
//! numbers. It turns bytes into meanings ([`head`], [`target`], [`path`],
//! [`condition`], [`range`], [`encoding`], [`date`]) and meanings into bytes
//! ([`http1::write`]). What it refuses, it refuses with a [`Reject`], which
//! carries the status, the fate of the connection and both texts.
//!
//! The modules stand in the order in which a request meets them.

#![forbid(unsafe_code)]

pub mod condition;
pub mod date;
pub mod encoding;
pub mod field;
pub mod head;
pub mod http1;
pub mod limits;
pub mod method;
pub mod path;
pub mod range;
pub mod reject;
pub mod status;
mod swar;
pub mod target;

pub use limits::Limits;
pub use reject::{Afterwards, Reject};
pub use status::Status;
