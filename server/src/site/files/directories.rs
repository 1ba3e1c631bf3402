//! In which directories no compressed file stands beside another, so that none is looked for by
//! its name, three times for each file.
//!
//! A directory is read once for all files in it, and again when it has changed: its times show that
//! a name was added. That holds where times are what they seem: for one whose last change lies so far back
//! that no system writes the next one down as the same moment, and on file systems that are known to write
//! it down. Everywhere else compressed files are looked for by name, as they are in a directory that has one.

use super::cache::{Key, KeyRef, Owner};
use super::resolve::{Patience, State};
use super::resource::CHECK_INTERVAL;
use super::root::Root;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use rustix::fs::{Dir, fstat, fstatfs};
use selvedge::offload;
use selvedge::proto::encoding::Coding;
use selvedge::proto::path::SafePath;
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Directories that a worker remembers. In others compressed files are looked for by name.
const DIRECTORIES_MAX: usize = 4096;
/// The same for those whose path is longer.
const PATH_BYTES_MAX: usize = 256;
/// What that takes at the most.
pub(crate) const BYTES_MAX: usize = DIRECTORIES_MAX * (PATH_BYTES_MAX + 2 * size_of::<(Key, Known)>());
/// Names that are read of one at the most. In one with more, compressed files are looked for by name.
const NAMES_MAX: usize = 4096;
/// The kinds of file systems (`linux/magic.h`) that write down when a name is added to a directory: ext2 to 4,
/// XFS, Btrfs, F2FS, ZFS, tmpfs, what containers are made of (overlayfs), and two that never change.
const KINDS: [u32; 9] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0x0102_1994, 0x794c_7630, 0x7371_7368, 0xe0f5_e1e2];
/// So far back a directory's last change has to lie: the times of some file systems have steps of two seconds.
const SETTLED_AFTER: Duration = Duration::from_secs(3);
/// When one is looked at again in which compressed files are looked for by name in any case.
const SILENT_TIME: Duration = Duration::from_secs(3);
/// The same where that will not change, and when one is read again whatever its state: another file system may
/// have taken its place that was made at the same moment.
const TRUSTED_TIME: Duration = Duration::from_secs(60);

/// What a worker knows of directories.
pub(in crate::site) struct Directories {
    known: RefCell<HashMap<Key, Known, RandomState>>,
    /// Until when there is no room for another.
    full_until: Cell<Duration>,
    clock: fn() -> SystemTime,
}

/// What a directory has told.
#[derive(Clone, Copy)]
struct Told {
    /// The state that it was read in; none where that would not show its next change.
    state: Option<State>,
    may_have_compressed: bool,
    /// How long that is good for.
    lasts: Duration,
}

/// The same, with when it was read, and until when nobody looks at it again.
#[derive(Clone, Copy)]
struct Known {
    told: Told,
    read_at: Duration,
    until: Duration,
}

impl Told {
    /// Nothing, so compressed files are looked for by name.
    const fn nothing(lasts: Duration) -> Self {
        Self { state: None, may_have_compressed: true, lasts }
    }
}

impl Default for Directories {
    fn default() -> Self {
        Self { known: RefCell::default(), full_until: Cell::default(), clock: SystemTime::now }
    }
}

impl Directories {
    /// Whether there is surely no compressed file in the directory of what a path names, looked at
    /// within [`CHECK_INTERVAL`]. None where that is not known; then [`Directories::learn`] finds out.
    pub(super) fn have_no_compressed(&self, owner: Owner, root: &Root, path: &SafePath, now: Duration) -> Option<bool> {
        let name = directory_of(path);
        let directory = KeyRef { owner, path: name.as_bytes() };
        let known = self.known.borrow().get(&directory).copied()?;
        if now < known.until {
            return Some(!known.told.may_have_compressed);
        }
        let state = root.open_directory(name, Patience::None).and_then(state_of).ok()?;
        if known.told.state == Some(state) && now < known.read_at + TRUSTED_TIME {
            self.note(directory, Known { until: now + known.told.lasts, ..known });
            return Some(!known.told.may_have_compressed);
        }
        if !is_settled(&state, (self.clock)()) {
            self.learned(directory, Told::nothing(SILENT_TIME), now);
            return Some(false);
        }
        None
    }

    /// Has the directory of what a path names read, in which a file was found.
    pub(super) async fn learn(&self, owner: Owner, root: &Arc<Root>, path: &SafePath, now: Duration) {
        let name = directory_of(path);
        let directory = KeyRef { owner, path: name.as_bytes() };
        // Whoever asks meanwhile looks by name.
        if name.len() > PATH_BYTES_MAX || !self.learned(directory, Told::nothing(SILENT_TIME), now) {
            return;
        }
        let (root, name, clock) = (root.clone(), name.to_owned(), self.clock);
        match offload(move || read(root.open_directory(&name, Patience::Waits)?, clock())).await {
            Some(Ok(told)) => {
                self.learned(directory, told, now);
            }
            // What cannot be read may be gone.
            _ => {
                self.known.borrow_mut().remove(&directory);
            }
        }
    }

    /// Forgets all that somebody has, as when a root is another directory by now.
    pub(super) fn forget(&self, owner: Owner) {
        self.known.borrow_mut().retain(|key, _| key.owner != owner);
    }

    fn learned(&self, directory: KeyRef<'_>, told: Told, now: Duration) -> bool {
        self.note(directory, Known { told, read_at: now, until: now + told.lasts })
    }

    /// Remembers it; false where there is no room.
    fn note(&self, directory: KeyRef<'_>, known: Known) -> bool {
        let mut all = self.known.borrow_mut();
        if let Some(place) = all.get_mut(&directory) {
            *place = known;
            return true;
        }
        let now = known.read_at;
        if all.len() >= DIRECTORIES_MAX && now >= self.full_until.get() {
            // Those that nobody has asked for in the meantime make room.
            all.retain(|_, known| now < known.until);
            self.full_until.set(now + SILENT_TIME);
        }
        let has_room = all.len() < DIRECTORIES_MAX;
        if has_room {
            all.insert(Key { owner: directory.owner, path: directory.path.into() }, known);
        }
        has_room
    }
}

/// The directory that a path names, or that what it names is in.
fn directory_of(path: &SafePath) -> &str {
    let whole = path.as_str();
    if path.names_directory() { whole } else { whole.rsplit_once('/').map_or("", |(directory, _)| directory) }
}

fn state_of(fd: impl AsFd) -> rustix::io::Result<State> {
    Ok(State::of(&fstat(fd)?))
}

/// What a directory tells at this time.
fn read(fd: OwnedFd, time: SystemTime) -> rustix::io::Result<Told> {
    if !KINDS.contains(&(fstatfs(&fd)?.f_type as u32)) {
        return Ok(Told::nothing(TRUSTED_TIME));
    }
    let mut names = Dir::new(fd)?;
    let before = state_of(names.fd()?)?;
    let mut may_have_compressed = false;
    let mut count = 0;
    while let Some(entry) = names.next().filter(|_| !may_have_compressed) {
        count += 1;
        may_have_compressed = count > NAMES_MAX || is_compressed(entry?.file_name().to_bytes());
    }
    if state_of(names.fd()?)? != before || !is_settled(&before, time) {
        return Ok(Told::nothing(SILENT_TIME));
    }
    let lasts = if may_have_compressed { SILENT_TIME } else { CHECK_INTERVAL };
    Ok(Told { state: Some(before), may_have_compressed, lasts })
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
    use super::super::cache::Cache;
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
        let owner = Cache::new(1).new_owner();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ask = |directories: &Directories, path: &str, milliseconds| {
            let path = SafePath::decode(path.as_bytes()).unwrap();
            let now = Duration::from_millis(milliseconds);
            let known = directories.have_no_compressed(owner, &root, &path, now);
            known.unwrap_or_else(|| {
                runtime.block_on(directories.learn(owner, &root, &path, now));
                directories.have_no_compressed(owner, &root, &path, now).unwrap_or(false)
            })
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
        assert!(!ask(&later, "/inner/page.html", 500) && !ask(&later, "/inner/page.html", 3499));
        fs::remove_file(inner.join("page.html.BR")).unwrap();
        later.forget(owner);
        assert!(ask(&later, "/inner/page.html", 3500));
        assert!(later.known.borrow().keys().all(|key| *key.path == *b"inner"), "what is not there is not kept");

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
