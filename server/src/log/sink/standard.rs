//! Standard output, standard error, and no output.

use super::{Device, LogSink};
use crate::log::config::Level;
use std::io;

/// An unbuffered standard stream, so that the length of a partial write is known.
pub(super) enum StandardSink {
    Output,
    Error,
    Discard,
}

impl LogSink for StandardSink {
    fn device(&self) -> Device {
        match self {
            Self::Output => Device::StandardOutput,
            Self::Error => Device::StandardError,
            Self::Discard => Device::Nothing,
        }
    }

    fn write(&mut self, lines: &[u8], _level: Level) -> io::Result<usize> {
        let written = match self {
            Self::Output => rustix::io::write(io::stdout(), lines),
            Self::Error => rustix::io::write(io::stderr(), lines),
            Self::Discard => Ok(lines.len()),
        };
        written.map_err(io::Error::from)
    }
}
