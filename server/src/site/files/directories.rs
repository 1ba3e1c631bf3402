//! In which directories no compressed file stands beside another, so that none is looked for by
//! its name, three times for each file.
//!
//! A directory is read once for all files in it, and again when it has changed: its times show that
//! a name was added. That holds where times are what they seem: for one whose last change lies so far back
//! that no system writes the next one down as the same moment, and on file systems that are known to write
//! it down. Everywhere else compressed files are looked for by name, as they are in a directory that has one.

use super::resolve::{Patience, State};
use super::root::Root;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use rustix::fs::{Dir, fstat, fstatfs};
use rustix::io::Errno;
use selvedge::offload;
use selvedge::proto::encoding::Coding;
use selvedge::proto::path::SafePath;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::resource::CHECK_INTERVAL;

/// Directories that are remembered for one root. When there are more, all are forgotten.
const DIRECTORIES_MAX: usize = 4096;
/// Names that are read of one at the most. In one with more, compressed files are looked for by name.
const NAMES_MAX: usize = 16 * 1024;

/// The kinds of file systems (`linux/magic.h`) that write down when a name is added to a directory: ext2 to 4,
/// XFS, Btrfs, F2FS, ZFS, tmpfs, what containers are made of (overlayfs), and two that never change.
const KINDS: [u32; 9] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0x0102_1994, 0x794c_7630, 0x7371_7368, 0xe0f5_e1e2];
/// So far back a directory's last change has to lie: the times of some file systems have steps of two seconds.
const SETTLED_AFTER: Duration = Duration::from_secs(3);
/// When one is looked at again that can tell nothing.
const SILENT_TIME: Duration = Duration::from_secs(3);

/// What is known of the directories of one root.
pub(super) struct Directories {
    known: RefCell<HashMap<Box<str>, Known, RandomState>>,
    clock: fn() -> SystemTime,
}

/// What is known of a directory, until it is looked at again.
#[derive(Clone, Copy)]
struct Known {
    verdict: Verdict,
    until: Duration,
}

/// What a directory tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// In this state there was no compressed file in it.
    None(State),
    /// In this state there may be one.
    Some(State),
    /// Nothing: it is being read, or has just changed, or is of an unknown kind.
    Unknown,
}

impl Default for Directories {
    fn default() -> Self {
        Self { known: RefCell::default(), clock: SystemTime::now }
    }
}

impl Directories {
    /// Whether there is surely no compressed file in the directory of what a path names, looked at
    /// within [`CHECK_INTERVAL`].
    pub(super) async fn have_no_compressed(&self, root: &Arc<Root>, path: &SafePath, now: Duration) -> bool {
        let directory = if path.names_directory() { path.as_str() } else { parent(path.as_str()) };
        let known = self.known.borrow().get(directory).copied();
        let state = match known {
            Some(Known { verdict, until }) if now < until => return matches!(verdict, Verdict::None(_)),
            Some(Known { verdict: Verdict::None(state) | Verdict::Some(state), .. }) => Some(state),
            _ => None,
        };
        let opened = root.open_directory(directory, Patience::None).and_then(|fd| state_of(&fd));
        match (opened, known) {
            // Most do not change.
            (Ok(now_in), Some(Known { verdict, .. })) if Some(now_in) == state => {
                self.note(directory, Known { verdict, until: now + CHECK_INTERVAL });
                return matches!(verdict, Verdict::None(_));
            }
            (Ok(_) | Err(Errno::AGAIN), _) => {}
            _ => {
                self.known.borrow_mut().remove(directory);
                return false;
            }
        }
        // Whoever asks meanwhile looks by name.
        self.note(directory, Known { verdict: Verdict::Unknown, until: now + SILENT_TIME });
        let (root, name, clock) = (root.clone(), directory.to_owned(), self.clock);
        let read = offload(move || read(&root.open_directory(&name, Patience::Waits)?, clock())).await;
        let Some(Ok(verdict @ (Verdict::None(_) | Verdict::Some(_)))) = read else { return false };
        self.note(directory, Known { verdict, until: now + CHECK_INTERVAL });
        matches!(verdict, Verdict::None(_))
    }

    /// Forgets all, as when the root is another directory by now.
    pub(super) fn forget(&self) {
        self.known.borrow_mut().clear();
    }

    fn note(&self, directory: &str, known: Known) {
        let mut all = self.known.borrow_mut();
        if let Some(place) = all.get_mut(directory) {
            *place = known;
            return;
        }
        if all.len() >= DIRECTORIES_MAX {
            all.clear();
        }
        all.insert(directory.into(), known);
    }
}

/// The directory that a path's last segment is in.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn state_of(fd: &OwnedFd) -> rustix::io::Result<State> {
    Ok(State::of(&fstat(fd)?))
}

/// What a directory tells at this time.
fn read(fd: &OwnedFd, time: SystemTime) -> rustix::io::Result<Verdict> {
    let before = state_of(fd)?;
    if !is_settled(&before, time) || !KINDS.contains(&(fstatfs(fd)?.f_type as u32)) {
        return Ok(Verdict::Unknown);
    }
    let mut may_have_one = false;
    for (count, entry) in Dir::read_from(fd)?.enumerate() {
        may_have_one = count >= NAMES_MAX || is_compressed(entry?.file_name().to_bytes());
        if may_have_one {
            break;
        }
    }
    Ok(match state_of(fd)? {
        after if after != before => Verdict::Unknown,
        after if may_have_one => Verdict::Some(after),
        after => Verdict::None(after),
    })
}

/// Whether a directory's next change will have another time than its last one.
fn is_settled(state: &State, time: SystemTime) -> bool {
    let (seconds, nanoseconds) = state.changed;
    let changed = u64::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanoseconds));
    time.duration_since(UNIX_EPOCH).is_ok_and(|time| changed + SETTLED_AFTER <= time)
}

/// Whether a name ends as those of compressed files do, in any case: a file system may not mind it.
fn is_compressed(name: &[u8]) -> bool {
    Coding::ALL.iter().any(|coding| {
        let suffix = coding.suffix().as_bytes();
        name.len() >= suffix.len() && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_directory_is_read_again_when_a_name_was_added_and_no_sooner() {
        let folder = std::env::temp_dir().join(format!("selvedge-directories-{}", std::process::id()));
        let inner = folder.join("inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("page.html"), "x").unwrap();
        let root = Arc::new(Root::open(&folder).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ask = |directories: &Directories, path: &str, milliseconds| {
            let path = SafePath::decode(path.as_bytes()).unwrap();
            let now = Duration::from_millis(milliseconds);
            runtime.block_on(directories.have_no_compressed(&root, &path, now))
        };
        let later = Directories { clock: || SystemTime::now() + HOUR, ..Directories::default() };
        assert!(ask(&later, "/inner/page.html", 0), "it is read");
        assert!(ask(&later, "/inner/", 10) && ask(&later, "/inner/none.css", 20), "and known for all in it");
        assert!(!ask(&later, "/none/page.html", 30) && !ask(&later, "/inner/page.html/x", 40));

        let before = State::of(&rustix::fs::stat(&inner).unwrap());
        while State::of(&rustix::fs::stat(&inner).unwrap()) == before {
            // The system's clock has moved by then, which a change in the same tick would not show.
            fs::write(inner.join("page.html.BR"), "x").unwrap();
            fs::remove_file(inner.join("page.html.BR")).unwrap();
        }
        fs::write(inner.join("page.html.BR"), "x").unwrap();
        assert!(ask(&later, "/inner/page.html", 499), "within the interval nobody looks");
        assert!(!ask(&later, "/inner/page.html", 500) && !ask(&later, "/inner/page.html", 1000));
        fs::remove_file(inner.join("page.html.BR")).unwrap();
        later.forget();
        assert!(ask(&later, "/inner/page.html", 1500));

        // One that has just changed tells nothing, and neither does one that will have changed.
        let now = Directories::default();
        assert!(!ask(&now, "/inner/page.html", 0) && !ask(&now, "/inner/page.html", 2999));
        let earlier = Directories { clock: || SystemTime::now() - HOUR, ..Directories::default() };
        assert!(!ask(&earlier, "/inner/page.html", 0));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn changes_are_told_apart_after_the_longest_step_of_times() {
        let changed = |seconds, nanoseconds| State {
            device: 0,
            inode: 0,
            length: 0,
            modified: (0, 0),
            changed: (seconds, nanoseconds),
        };
        for (state, time, expected) in [
            (changed(100, 0), 103, true),
            (changed(100, 1), 103, false),
            (changed(100, 0), 102, false),
            (changed(104, 0), 103, false),
            (changed(-1, 0), 103, true),
        ] {
            assert_eq!(is_settled(&state, UNIX_EPOCH + Duration::from_secs(time)), expected, "{state:?} {time}");
        }
    }

    #[test]
    fn names_of_compressed_files() {
        for (name, expected) in [
            ("a.html.gz", true),
            ("a.html.br", true),
            ("a.html.zst", true),
            ("A.GZ", true),
            (".gz", true),
            ("a.html", false),
            ("gz", false),
            ("a.gzip", false),
            ("", false),
        ] {
            assert_eq!(is_compressed(name.as_bytes()), expected, "{name}");
        }
    }
}
