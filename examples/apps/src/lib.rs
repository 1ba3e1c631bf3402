//! What the examples share: the address that they listen at, a folder, and a client for their tests.

use std::env;
use std::path::PathBuf;

pub mod client;

/// The address to listen at: the first argument, or port 3000 of this machine.
pub fn address() -> String {
    env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned())
}

/// The folder with files: the second argument, or the current one.
pub fn folder() -> PathBuf {
    env::args_os().nth(2).map_or_else(|| PathBuf::from("."), PathBuf::from)
}
