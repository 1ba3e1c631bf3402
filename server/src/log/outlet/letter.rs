//! The system's log: one letter for each line.
//!
//! The letter itself is sent by whoever knows sockets; this file knows how it is written:
//! by RFC 5424 for syslog, by the journal's own protocol for the journal.

use super::{Opened, Outlet};
use crate::log::plan::Level;
use crate::log::time::TimePattern;
use selvedge::proto::http1::write::write_decimal;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What takes letters.
pub(crate) trait Letters: Send {
    /// Sends one, whole.
    fn send(&mut self, letter: &[u8]) -> io::Result<()>;
}

/// Finds whoever takes letters at a path.
pub(crate) type Connect = fn(&Path) -> io::Result<Box<dyn Letters>>;

/// The facility of RFC 5424 §6.2.1 for programs in the background.
const FACILITY_DAEMON: u64 = 3;
/// What is left of a line that is too long for the system to take.
const CUT_BYTES: usize = 1024;

/// How a letter is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Syslog,
    Journal,
}

pub(super) struct LetterOutlet {
    form: Form,
    path: PathBuf,
    kind: &'static str,
    connect: Connect,
    letters: Option<Box<dyn Letters>>,
    time: TimePattern,
    letter: Vec<u8>,
}

impl LetterOutlet {
    pub(super) fn open(form: Form, path: &Path, kind: &'static str, connect: Connect) -> io::Result<Self> {
        let (letters, time) = (Some(connect(path)?), TimePattern::rfc3339());
        Ok(Self { form, path: path.to_owned(), kind, connect, letters, time, letter: Vec::new() })
    }

    fn send(&mut self, line: &[u8], level: Level) -> io::Result<()> {
        // Whoever took letters may have gone, and another may have come.
        let mut letters = match self.letters.take() {
            Some(letters) => letters,
            None => (self.connect)(&self.path)?,
        };
        self.compose(line, level);
        match letters.send(&self.letter) {
            Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::MSGSIZE) => {
                self.compose(&line[..line.len().min(CUT_BYTES)], level);
                letters.send(&self.letter)?;
            }
            outcome => outcome?,
        }
        self.letters = Some(letters);
        Ok(())
    }

    fn compose(&mut self, line: &[u8], level: Level) {
        let out = &mut self.letter;
        out.clear();
        match self.form {
            Form::Syslog => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                out.push(b'<');
                write_decimal(FACILITY_DAEMON * 8 + severity(level), out);
                out.extend_from_slice(b">1 ");
                out.extend_from_slice(self.time.at(i64::try_from(since.as_secs()).unwrap_or(i64::MAX)));
                // The name of the host is the receiver's to know.
                out.extend_from_slice(b" - selvedge ");
                write_decimal(std::process::id().into(), out);
                out.push(b' ');
                out.extend_from_slice(self.kind.as_bytes());
                out.extend_from_slice(b" - ");
                out.extend_from_slice(line);
            }
            Form::Journal => {
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

/// The severity of RFC 5424 §6.2.1.
fn severity(level: Level) -> u64 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug => 7,
    }
}

impl Outlet for LetterOutlet {
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

    fn look(&mut self) -> io::Result<Opened> {
        Ok(Opened::AsBefore)
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.letters = None;
        Ok(())
    }
}
