//! What the examples share: the address that they listen at, and a client for their tests.

use std::env;

pub mod client;

/// The address to listen at: the first argument, or port 3000 of this machine.
pub fn address() -> String {
    env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned())
}
