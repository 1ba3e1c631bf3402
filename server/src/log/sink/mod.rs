//! Sinks: destinations of lines that can fail.

mod datagram;
mod file;
mod standard;

pub(crate) use datagram::{Connect, LogDatagrams};

use super::config::{Destination, Level};
use super::loss_counter::LossCounter;
use super::rotate::Rotator;
use std::io;
use std::sync::Arc;

/// A destination of lines. One thread uses it, and may block.
pub(super) trait LogSink: Send {
    /// Returns what a write may wait for.
    fn device(&self) -> Device;

    /// Writes some of the lines and returns how many bytes were written.
    fn write(&mut self, lines: &[u8], level: Level) -> io::Result<usize>;

    /// Checks whether the sink is still what it was opened as, and reopens it if not.
    fn reopen_if_moved(&mut self) -> io::Result<ReopenOutcome> {
        Ok(ReopenOutcome::Unchanged)
    }

    /// Called before `len` bytes of whole lines are written, when no line is partial. A file may rotate here.
    fn rotate_if_needed(&mut self, _len: usize) -> io::Result<()> {
        Ok(())
    }

    /// Reopens the sink.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the writes of a sink may wait for. Sinks of one device block together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// The file system with this device number (`st_dev`).
    FileSystem(u64),
    StandardOutput,
    StandardError,
    Syslog,
    Journal,
    /// Writes never wait.
    Nothing,
}

/// Whether a sink was reopened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReopenOutcome {
    Unchanged,
    Reopened,
}

/// What sinks need from their creator.
#[derive(Clone, Copy)]
pub(super) struct SinkContext<'a> {
    /// Connects to the system's log sockets.
    pub(super) connect: Connect,
    /// Handles rotated files.
    pub(super) rotator: &'a Rotator,
}

/// Opens a destination for a log of kind `access` or `error`.
pub(super) fn open(
    destination: &Destination,
    kind: &'static str,
    loss_counter: &Arc<LossCounter>,
    context: SinkContext<'_>,
) -> io::Result<Box<dyn LogSink>> {
    Ok(match destination {
        Destination::File { path, rotation } => {
            let rotating = match rotation {
                Some(rotation) => Some(context.rotator.register(path, *rotation, loss_counter)?),
                None => None,
            };
            Box::new(file::FileSink::open(path, rotating)?)
        }
        Destination::StandardOutput => Box::new(standard::StandardSink::Output),
        Destination::StandardError => Box::new(standard::StandardSink::Error),
        Destination::Discard => Box::new(standard::StandardSink::Discard),
        Destination::Syslog { path } => {
            Box::new(datagram::DatagramSink::open(datagram::DatagramFormat::Syslog, path, kind, context.connect)?)
        }
        Destination::Journal { path } => {
            Box::new(datagram::DatagramSink::open(datagram::DatagramFormat::Journal, path, kind, context.connect)?)
        }
    })
}
