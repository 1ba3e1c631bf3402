//! Syslog and journal: one datagram for each line.
//!
//! This file formats the datagram, by RFC 5424 or by the journal's native protocol. The caller provides the socket.

use super::{Device, LogSink, ReopenOutcome};
use crate::log::config::Level;
use crate::log::time::TimePattern;
use selvedge::proto::http1::write::write_decimal;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A socket that takes log datagrams.
pub(crate) trait LogDatagrams: Send {
    /// Sends one datagram.
    fn send(&mut self, datagram: &[u8]) -> io::Result<()>;
}

/// Connects to the syslog or journald socket at a path.
pub(crate) type Connect = fn(&Path) -> io::Result<Box<dyn LogDatagrams>>;

/// The facility of RFC 5424 §6.2.1 for background programs.
const FACILITY_DAEMON: u64 = 3;
/// Length to which a line is cut if the system refuses it as too long.
const TRUNCATED_BYTES: usize = 1024;

/// The format of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatagramFormat {
    Syslog,
    Journal,
}

pub(super) struct DatagramSink {
    format: DatagramFormat,
    path: PathBuf,
    kind: &'static str,
    connect: Connect,
    socket: Option<Box<dyn LogDatagrams>>,
    time: TimePattern,
    datagram: Vec<u8>,
}

impl DatagramSink {
    pub(super) fn open(format: DatagramFormat, path: &Path, kind: &'static str, connect: Connect) -> io::Result<Self> {
        let (socket, time) = (Some(connect(path)?), TimePattern::rfc3339_seconds());
        Ok(Self { format, path: path.to_owned(), kind, connect, socket, time, datagram: Vec::new() })
    }

    fn send(&mut self, line: &[u8], level: Level) -> io::Result<()> {
        // The receiver may have restarted, so a failed send reconnects.
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => (self.connect)(&self.path)?,
        };
        self.compose(line, level);
        match socket.send(&self.datagram) {
            Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::MSGSIZE) => {
                self.compose(&line[..line.len().min(TRUNCATED_BYTES)], level);
                socket.send(&self.datagram)?;
            }
            outcome => outcome?,
        }
        self.socket = Some(socket);
        Ok(())
    }

    fn compose(&mut self, line: &[u8], level: Level) {
        let out = &mut self.datagram;
        out.clear();
        match self.format {
            DatagramFormat::Syslog => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                out.push(b'<');
                write_decimal(FACILITY_DAEMON * 8 + severity(level), out);
                out.extend_from_slice(b">1 ");
                out.extend_from_slice(self.time.at(i64::try_from(since.as_secs()).unwrap_or(i64::MAX)));
                let _ = write!(out, ".{:03}Z", since.subsec_millis());
                // The receiver adds the host name.
                out.extend_from_slice(b" - selvedge ");
                write_decimal(std::process::id().into(), out);
                out.push(b' ');
                out.extend_from_slice(self.kind.as_bytes());
                out.extend_from_slice(b" - ");
                out.extend_from_slice(line);
            }
            DatagramFormat::Journal => {
                out.extend_from_slice(b"PRIORITY=");
                write_decimal(severity(level), out);
                out.extend_from_slice(b"\nSYSLOG_FACILITY=");
                write_decimal(FACILITY_DAEMON, out);
                out.extend_from_slice(b"\nSYSLOG_IDENTIFIER=selvedge\nSELVEDGE_LOG=");
                out.extend_from_slice(self.kind.as_bytes());
                out.extend_from_slice(b"\nMESSAGE=");
                out.extend_from_slice(line);
                out.push(b'\n');
            }
        }
    }
}

/// Returns the severity of RFC 5424 §6.2.1.
fn severity(level: Level) -> u64 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug => 7,
    }
}

impl LogSink for DatagramSink {
    fn device(&self) -> Device {
        match self.format {
            DatagramFormat::Syslog => Device::Syslog,
            DatagramFormat::Journal => Device::Journal,
        }
    }

    fn write(&mut self, lines: &[u8], level: Level) -> io::Result<usize> {
        let mut taken = 0;
        for line in lines.split_inclusive(|&b| b == b'\n') {
            match self.send(line.strip_suffix(b"\n").unwrap_or(line), level) {
                Ok(()) => taken += line.len(),
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    fn reopen_if_moved(&mut self) -> io::Result<ReopenOutcome> {
        Ok(ReopenOutcome::Unchanged)
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.socket = None;
        Ok(())
    }
}
