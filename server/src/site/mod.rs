//! A site: what a request for it is answered with.
//!
//! This floor never names the configuration, the log, or a socket.

mod files;
mod listing;
mod pipeline;

pub(crate) use files::cache::BYTES_MAX as CACHE_BYTES_MAX;
pub(crate) use files::root::Root;
pub(crate) use pipeline::{Options, Site};
