//! The two streams that the program was started with, and the lack of one.

use super::Outlet;
use crate::log::plan::Level;
use std::io;

/// One of them. Written without a buffer between, so that it is known how far a write came.
pub(super) enum Standard {
    Output,
    Error,
    Nowhere,
}

impl Outlet for Standard {
    fn write(&mut self, lines: &[u8], _level: Level) -> io::Result<usize> {
        let written = match self {
            Self::Output => rustix::io::write(io::stdout(), lines),
            Self::Error => rustix::io::write(io::stderr(), lines),
            Self::Nowhere => Ok(lines.len()),
        };
        written.map_err(io::Error::from)
    }
}
