//! A log file: appended to, opened anew when its path names another file or none, and put
//! aside when it is due.

use super::{Opened, Outlet};
use crate::log::plan::Level;
use crate::log::rotate::Rotating;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Its owner writes it, its group reads it.
const MODE: u32 = 0o640;
/// How long it is not tried again to put a file aside that could not be.
const ROTATE_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct FileOutlet {
    path: PathBuf,
    open: Open,
    rotating: Option<Rotating>,
    /// After it could not be put aside.
    rotate_not_before: Option<Instant>,
}

/// The file that is open.
struct Open {
    file: File,
    device: u64,
    inode: u64,
    size: u64,
    /// When it was last written to.
    written: SystemTime,
    kind: Kind,
    end: End,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Regular,
    /// A device or a FIFO, which has no size and cannot be put aside.
    Special,
}

/// How the file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// In the middle of a line, of a writer that came to a sudden end.
    Torn,
}

impl FileOutlet {
    pub(super) fn open(path: &Path, rotating: Option<Rotating>) -> io::Result<Self> {
        let outlet = Self { path: path.to_owned(), open: Open::at(path)?, rotating, rotate_not_before: None };
        // What an earlier run had to leave.
        outlet.rotating.iter().for_each(Rotating::tidy_now);
        Ok(outlet)
    }

    /// Puts the file aside and begins a new one.
    fn rotate(&mut self, now: SystemTime) -> io::Result<()> {
        // Of two processes that share a log for a while, one puts it aside and the other follows.
        if self.look()? == Opened::Anew {
            return Ok(());
        }
        let Some(rotating) = &self.rotating else { return Ok(()) };
        if let Err(error) = rotating.put_aside(&self.path, now) {
            // A log that is too large is better than none.
            rotating.failed(&error);
            self.rotate_not_before = Some(Instant::now() + ROTATE_PAUSE);
            return Ok(());
        }
        self.open = Open::at(&self.path)?;
        rotating.tidy_soon();
        Ok(())
    }
}

impl Outlet for FileOutlet {
    fn write(&mut self, lines: &[u8], _level: Level) -> io::Result<usize> {
        if self.open.end == End::Torn {
            self.open.file.write_all(b"\n")?;
            self.open.end = End::Whole;
        }
        let count = self.open.file.write(lines)?;
        self.open.size += count as u64;
        Ok(count)
    }

    fn look(&mut self) -> io::Result<Opened> {
        match fs::metadata(&self.path) {
            Ok(facts) if (facts.dev(), facts.ino()) == (self.open.device, self.open.inode) => {
                // Shorter when somebody has copied and truncated it.
                self.open.size = facts.size();
                Ok(Opened::AsBefore)
            }
            _ => self.reopen().map(|()| Opened::Anew),
        }
    }

    fn make_room(&mut self, len: usize) -> io::Result<()> {
        let Some(rotating) = &self.rotating else { return Ok(()) };
        let now = SystemTime::now();
        let open = &self.open;
        let may_try = self.rotate_not_before.is_none_or(|instant| Instant::now() >= instant);
        let has_lines = open.kind == Kind::Regular && open.size > 0;
        let is_due = may_try && has_lines && rotating.is_due(open.size, open.written, len, now);
        self.open.written = now;
        if is_due { self.rotate(now) } else { Ok(()) }
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.open = Open::at(&self.path)?;
        Ok(())
    }
}

impl Open {
    fn at(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // So that opening a FIFO waits for nobody. Reading is for looking at the last octet.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        options.append(true).create(true).mode(MODE).custom_flags(nonblocking);
        let file = match options.clone().read(true).open(path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => options.open(path)?,
            outcome => outcome?,
        };
        let facts = file.metadata()?;
        let kind = if facts.is_file() { Kind::Regular } else { Kind::Special };
        let written = facts.modified().unwrap_or_else(|_| SystemTime::now());
        let end = if kind == Kind::Regular { end_of(&file, &facts) } else { End::Whole };
        Ok(Self { file, device: facts.dev(), inode: facts.ino(), size: facts.size(), written, kind, end })
    }
}

fn end_of(file: &File, facts: &Metadata) -> End {
    let mut last = [b'\n'];
    // What cannot be read is taken for whole.
    if facts.size() > 0 && file.read_exact_at(&mut last, facts.size() - 1).is_ok() && last[0] != b'\n' {
        return End::Torn;
    }
    End::Whole
}
