//! Embedded sites. An application that embeds them must respond as the program does: on selvedge's server, on axum's, and
//! called directly.

mod client;
mod comparison;
mod serve_dir;
#[cfg(feature = "configuration")]
mod sites;
