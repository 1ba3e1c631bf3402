//! The users of a rule, which follow their file while the server runs.

use super::users::{UserProblem, Users};
use rustix::fs::OFlags;
use rustix::io::Errno;
use selvedge::service::FileStamp;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

/// The maximum size of a file of users in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The users of a file and of the configuration.
#[derive(Debug)]
pub(crate) struct LiveUsers {
    current: RwLock<Arc<Users>>,
    file: Option<PathBuf>,
    /// The lines of the users in the configuration.
    configured: String,
    seen: Mutex<SeenFile>,
}

/// The file when it was last looked at.
#[derive(Debug, Default)]
struct SeenFile {
    /// `None` if it could not be read.
    stamp: Option<FileStamp>,
    /// The number of looks in a row at which it could not be read.
    failures: u32,
}

/// The result of a look at the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UsersRefreshed {
    Unchanged,
    /// The users of this file are in use now.
    Replaced(PathBuf),
    /// The users of the file are in use now, except those of lines with these problems. Reported once.
    Faulty(String),
    /// The file cannot be read, for this reason, so its users have no access. Reported once.
    Unreadable(String),
}

/// Looks at a file that cannot be read before its users have no access. A program may replace a file by removing it first.
const FAILURES_MAX: u32 = 2;
/// Problems that one report has.
const PROBLEMS_SHOWN_MAX: usize = 5;

impl LiveUsers {
    /// Parses the users of a file's text and of the configuration. Both are lines of an htpasswd file.
    ///
    /// # Errors
    /// All problems of the users of the configuration; the line is the position of the user. Those of the file are
    /// reported by the first [`Self::refresh`].
    pub(crate) fn parse(file: Option<(&Path, &str)>, configured: String) -> Result<Self, Vec<UserProblem>> {
        let (_, problems) = Users::parse(&configured);
        if !problems.is_empty() {
            return Err(problems);
        }
        let text = file.map_or("", |(_, text)| text);
        let (users, _) = Users::parse(&[&configured, text].concat());
        let file = file.map(|(path, _)| path.to_owned());
        // The state is read after the text, and a text that was older is read again at the first look.
        let seen = Mutex::default();
        Ok(Self { current: RwLock::new(Arc::new(users)), file, configured, seen })
    }

    /// Reads the text of a file. A file that does not exist has no users.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn read_file(path: &Path) -> io::Result<String> {
        match open(path).and_then(|(mut file, _)| read_text(&mut file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read,
        }
    }

    /// Returns the first problem with a line of a file.
    pub(crate) fn problem_of(path: &Path, text: &str) -> Option<String> {
        let (_, problems) = Users::parse(text);
        problems.first().map(|problem| format!("line {} of {}: {problem}", problem.line, path.display()))
    }

    /// Returns the users in force.
    pub(super) fn current(&self) -> Arc<Users> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again if it has changed. A file that is removed or cannot be read has no users.
    pub(crate) fn refresh(&self) -> UsersRefreshed {
        let Some(path) = &self.file else { return UsersRefreshed::Unchanged };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let read = open(path).and_then(|(mut file, stamp)| {
            if seen.stamp == Some(stamp) || stamp.changed_recently(SystemTime::now()) {
                // The next look sees a file that is being written.
                return Ok(None);
            }
            Ok(Some((stamp, read_text(&mut file)?)))
        });
        match read {
            Ok(None) => {
                seen.failures = 0;
                UsersRefreshed::Unchanged
            }
            // Such an error reveals nothing about the file. The next look tries again.
            Err(error) if is_of_process(&error) => UsersRefreshed::Unchanged,
            Ok(Some((stamp, text))) => {
                let is_first = seen.stamp.is_none() && seen.failures < FAILURES_MAX;
                *seen = SeenFile { stamp: Some(stamp), failures: 0 };
                match self.replace_users(path, &text) {
                    UsersRefreshed::Unchanged if !is_first => UsersRefreshed::Replaced(path.clone()),
                    refreshed => refreshed,
                }
            }
            Err(error) => {
                seen.failures = seen.failures.saturating_add(1);
                if seen.failures != FAILURES_MAX {
                    return UsersRefreshed::Unchanged;
                }
                seen.stamp = None;
                self.replace_users(path, "");
                UsersRefreshed::Unreadable(format!("cannot read {}: {error}", path.display()))
            }
        }
    }

    /// Puts the users of a text into force.
    fn replace_users(&self, path: &Path, text: &str) -> UsersRefreshed {
        let (users, problems) = Users::parse(&[&self.configured, text].concat());
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let is_changed = !users.has_hashes_of(&current);
        if is_changed {
            *current = Arc::new(users);
        }
        // The users of the configuration have one line each.
        let own_lines = self.configured.lines().count();
        let shown = problems.iter().take(PROBLEMS_SHOWN_MAX);
        let mut texts: Vec<_> =
            shown.map(|problem| format!("line {}: {problem}", problem.line.saturating_sub(own_lines))).collect();
        match problems.len() {
            0 if is_changed => return UsersRefreshed::Replaced(path.to_owned()),
            0 => return UsersRefreshed::Unchanged,
            count if count > texts.len() => texts.push(format!("{} more", count - texts.len())),
            _ => {}
        }
        UsersRefreshed::Faulty(format!("{}: {}", path.display(), texts.join("; ")))
    }
}

/// Reads a file. A line that is not UTF-8 costs only its user, so the other lines are kept.
fn read_text(file: &mut std::fs::File) -> io::Result<String> {
    let mut bytes = Vec::new();
    Read::by_ref(file).take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether an error is about the process.
fn is_of_process(error: &io::Error) -> bool {
    let of_process = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|number| of_process.contains(&number))
}

/// Opens a regular file.
fn open(path: &Path) -> io::Result<(std::fs::File, FileStamp)> {
    // NONBLOCK: opening a FIFO does not wait. It is rejected by its type afterwards.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let stamp = FileStamp::of(&file)?;
    Ok((file, stamp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const HASH: &str = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

    #[test]
    fn users_follow_their_file() {
        let path = std::env::temp_dir().join(format!("selvedge-users-{}", std::process::id()));
        let write = |text: &str| {
            std::fs::write(&path, text).unwrap();
            // A state that may change unseen is not read.
            while FileStamp::of(std::fs::File::open(&path).unwrap()).unwrap().changed_recently(SystemTime::now()) {
                thread::yield_now();
            }
        };
        let text = format!("ann:{HASH}\n");
        write(&text);
        let users = LiveUsers::parse(Some((&path, &text)), format!("root:{HASH}\n")).unwrap();
        let names = || ["ann", "bob", "root"].map(|name| users.current().get(name).is_some());
        assert_eq!((users.refresh(), users.refresh()), (UsersRefreshed::Unchanged, UsersRefreshed::Unchanged));
        assert_eq!(names(), [true, false, true]);
        write(&format!("bob:{HASH}"));
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Replaced(path.clone()), [false, true, true]));
        // A bad line costs only its user, and a name of the configuration has the hash there.
        write(&format!("bob:plain\nroot:{HASH}\nann:{HASH}\n"));
        assert!(matches!(users.refresh(), UsersRefreshed::Faulty(why)
            if why.contains("line 1: a password hash") && why.contains("selvedge hash-password") && why.contains("line 2: ")));
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Unchanged, [true, false, true]));
        write("");
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Replaced(path.clone()), [false, false, true]));
        write(&format!("ann:{HASH}"));
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Replaced(path.clone()), [true, false, true]));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Unchanged, [true, false, true]), "it may be replaced");
        assert!(matches!(users.refresh(), UsersRefreshed::Unreadable(_)));
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Unchanged, [false, false, true]));
        write(&format!("ann:{HASH}"));
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Replaced(path.clone()), [true, false, true]));
        std::fs::remove_file(&path).unwrap();
    }
}
