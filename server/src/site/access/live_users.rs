//! The users of a rule, which follow their file while the server runs.

use super::users::{UserProblem, Users};
use rustix::fs::OFlags;
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
    /// `None` if it could not be opened.
    stamp: Option<FileStamp>,
    /// Whether a refusal of this state was reported.
    is_reported: bool,
}

/// The result of a look at the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UsersRefreshed {
    Unchanged,
    /// The users of this file are in use now.
    Replaced(PathBuf),
    /// The file has changed and cannot be used, for this reason. Reported once.
    Refused(String),
}

impl LiveUsers {
    /// Parses the users of a file's text and of the configuration. Both are lines of an htpasswd file.
    ///
    /// # Errors
    /// All problems of the lines, those of the file first.
    pub(crate) fn parse(file: Option<(&Path, String)>, configured: String) -> Result<Self, Vec<UserProblem>> {
        // The state is read after the text, and a text that was older is read again at the first look.
        let seen = Mutex::default();
        let text = file.as_ref().map_or("", |(_, text)| text);
        let users = Users::parse(&joined(text, &configured))?;
        let file = file.map(|(path, _)| path.to_owned());
        Ok(Self { current: RwLock::new(Arc::new(users)), file, configured, seen })
    }

    /// Returns the users in force.
    pub(super) fn current(&self) -> Arc<Users> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again if it has changed. A file that cannot be used leaves the earlier users in force.
    pub(crate) fn refresh(&self) -> UsersRefreshed {
        let Some(path) = &self.file else { return UsersRefreshed::Unchanged };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let read = open(path).and_then(|(mut file, stamp)| {
            if seen.stamp == Some(stamp) || stamp.changed_recently(SystemTime::now()) {
                // The next look sees a file that is being written.
                return Ok(None);
            }
            let mut text = String::new();
            Read::by_ref(&mut file).take(FILE_BYTES_MAX).read_to_string(&mut text)?;
            Ok(Some((stamp, text)))
        });
        let (stamp, text) = match read {
            Ok(None) => return UsersRefreshed::Unchanged,
            Ok(Some((stamp, text))) => (stamp, text),
            Err(error) => {
                let is_reported = seen.is_reported && seen.stamp.is_none();
                *seen = SeenFile { stamp: None, is_reported: true };
                return match is_reported {
                    true => UsersRefreshed::Unchanged,
                    false => UsersRefreshed::Refused(format!("cannot read {}: {error}", path.display())),
                };
            }
        };
        let is_first = seen.stamp.is_none() && !seen.is_reported;
        *seen = SeenFile { stamp: Some(stamp), is_reported: false };
        match Users::parse(&joined(&text, &self.configured)) {
            Ok(users) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                let is_changed = !users.has_hashes_of(&current);
                if is_changed {
                    *current = Arc::new(users);
                }
                if is_changed || !is_first { UsersRefreshed::Replaced(path.clone()) } else { UsersRefreshed::Unchanged }
            }
            Err(problems) => {
                let text = problems.first().map(|problem| format!("line {}: {problem}", problem.line));
                UsersRefreshed::Refused(format!("{}: {}", path.display(), text.unwrap_or_default()))
            }
        }
    }
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

/// Returns the lines of a file followed by those of the configuration.
fn joined(file: &str, configured: &str) -> String {
    let end = if file.is_empty() || file.ends_with('\n') { "" } else { "\n" };
    [file, end, configured].concat()
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
        let users = LiveUsers::parse(Some((&path, text)), format!("root:{HASH}\n")).unwrap();
        let names = || ["ann", "bob", "root"].map(|name| users.current().get(name).is_some());
        assert_eq!((users.refresh(), users.refresh()), (UsersRefreshed::Unchanged, UsersRefreshed::Unchanged));
        assert_eq!(names(), [true, false, true]);
        write(&format!("bob:{HASH}"));
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Replaced(path.clone()), [false, true, true]));
        write("bob:plain\n");
        assert!(matches!(users.refresh(), UsersRefreshed::Refused(why) if why.contains("line 1")));
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Unchanged, [false, true, true]));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(users.refresh(), UsersRefreshed::Refused(_)));
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Unchanged, [false, true, true]));
        write(&format!("ann:{HASH}"));
        assert_eq!((users.refresh(), names()), (UsersRefreshed::Replaced(path.clone()), [true, false, true]));
        std::fs::remove_file(&path).unwrap();
    }
}
