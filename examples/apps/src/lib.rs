//! Shared code of the examples: the listen address, a folder, and a client for their tests.

use std::env;
use std::path::PathBuf;

pub mod client;

/// Returns the listen address: the first argument, or `127.0.0.1:3000`.
pub fn address() -> String {
    env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned())
}

/// Returns the folder with files: the second argument, or the current directory.
pub fn folder() -> PathBuf {
    env::args_os().nth(2).map_or_else(|| PathBuf::from("."), PathBuf::from)
}
