//! A log file: appended to, reopened when its path names another file or none, and rotated when due.

use super::{Device, LogSink, ReopenOutcome};
use crate::log::config::Level;
use crate::log::rotate::{RotationHandle, keep_access};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Writable by the owner, readable by the group.
const MODE: u32 = 0o640;
/// Pause after a failed rotation.
const ROTATE_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct FileSink {
    path: PathBuf,
    open: OpenLogFile,
    rotation: Option<RotationHandle>,
    /// Set after a failed rotation.
    rotate_not_before: Option<Instant>,
}

/// The open file.
struct OpenLogFile {
    file: File,
    device: u64,
    inode: u64,
    size: u64,
    /// Time of the last write.
    written: SystemTime,
    kind: FileKind,
    end: LastLine,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Regular,
    /// A device or FIFO, which has no size and cannot be rotated.
    NotRegular,
}

/// How the file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastLine {
    Complete,
    /// With a partial line, after a writer ended suddenly.
    Partial,
}

impl FileSink {
    pub(super) fn open(path: &Path, rotation: Option<RotationHandle>) -> io::Result<Self> {
        let sink =
            Self { path: path.to_owned(), open: OpenLogFile::at(path, None)?, rotation, rotate_not_before: None };
        // Cleans up after an earlier run.
        sink.rotation.iter().for_each(RotationHandle::schedule_cleanup_now);
        Ok(sink)
    }

    /// Rotates the file and opens a new one.
    fn rotate(&mut self, now: SystemTime) -> io::Result<()> {
        // If two processes share a log for a while, one rotates it and the other follows.
        if self.reopen_if_moved()? == ReopenOutcome::Reopened {
            return Ok(());
        }
        let Some(rotation) = &self.rotation else { return Ok(()) };
        if let Err(error) = rotation.rotate(&self.path, now) {
            // A log that is too large is better than none.
            rotation.failed(&error);
            self.rotate_not_before = Some(Instant::now() + ROTATE_PAUSE);
            return Ok(());
        }
        self.open = OpenLogFile::at(&self.path, Some(&self.open.file))?;
        rotation.schedule_cleanup();
        Ok(())
    }
}

impl LogSink for FileSink {
    /// The file system at the time of opening: a log stays with its thread. A FIFO never blocks, because it is opened
    /// non-blocking.
    fn device(&self) -> Device {
        Device::FileSystem(self.open.device)
    }

    fn write(&mut self, lines: &[u8], _level: Level) -> io::Result<usize> {
        if self.open.end == LastLine::Partial {
            self.open.file.write_all(b"\n")?;
            self.open.end = LastLine::Complete;
        }
        let count = self.open.file.write(lines)?;
        self.open.size += count as u64;
        Ok(count)
    }

    fn reopen_if_moved(&mut self) -> io::Result<ReopenOutcome> {
        match fs::metadata(&self.path) {
            Ok(facts) if (facts.dev(), facts.ino()) == (self.open.device, self.open.inode) => {
                // Smaller after it was copied and truncated.
                self.open.size = facts.size();
                Ok(ReopenOutcome::Unchanged)
            }
            _ => self.reopen().map(|()| ReopenOutcome::Reopened),
        }
    }

    fn rotate_if_needed(&mut self, len: usize) -> io::Result<()> {
        let Some(rotation) = &self.rotation else { return Ok(()) };
        let now = SystemTime::now();
        let open = &self.open;
        let may_try = self.rotate_not_before.is_none_or(|instant| Instant::now() >= instant);
        let has_lines = open.kind == FileKind::Regular && open.size > 0;
        let is_due = may_try && has_lines && rotation.is_due(open.size, open.written, len, now);
        self.open.written = now;
        if is_due { self.rotate(now) } else { Ok(()) }
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.open = OpenLogFile::at(&self.path, Some(&self.open.file))?;
        Ok(())
    }
}

impl OpenLogFile {
    /// Opens the file of a path. If it does not exist, it is created, with the mode and the owner of the file that it
    /// follows.
    fn at(path: &Path, earlier: Option<&File>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // Opening a FIFO must not block. Read access is for the last byte.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        options.append(true).mode(MODE).custom_flags(nonblocking);
        let file = match options.clone().read(true).create_new(true).open(path) {
            Ok(created) => {
                if let Some(Ok(facts)) = earlier.map(File::metadata).filter(|facts| facts.iter().all(Metadata::is_file))
                {
                    keep_access(&created, &facts);
                }
                created
            }
            Err(_) => open_existing(&mut options, path)?,
        };
        let facts = file.metadata()?;
        let kind = if facts.is_file() { FileKind::Regular } else { FileKind::NotRegular };
        let written = facts.modified().unwrap_or_else(|_| SystemTime::now());
        let end = if kind == FileKind::Regular { last_line_of(&file, &facts) } else { LastLine::Complete };
        Ok(Self { file, device: facts.dev(), inode: facts.ino(), size: facts.size(), written, kind, end })
    }
}

/// Opens a file that exists. It is created if it was removed meanwhile, or if the path is a link to no file.
fn open_existing(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.create(true);
    match options.clone().read(true).open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => options.open(path),
        outcome => outcome,
    }
}

fn last_line_of(file: &File, facts: &Metadata) -> LastLine {
    let mut last = [b'\n'];
    // An unreadable file counts as complete.
    if facts.size() > 0 && file.read_exact_at(&mut last, facts.size() - 1).is_ok() && last[0] != b'\n' {
        return LastLine::Partial;
    }
    LastLine::Complete
}
