//! In which directories no compressed file stands beside another, so that none is looked for by
//! its name, three times for each file.
//!
//! A directory is read once for all files in it, and again when it has changed: its times show that
//! a name was added. Only directories that are there are remembered, so clients cannot choose which.

use super::resolve::{Patience, State, changed_just_now};
use super::root::Root;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use rustix::fs::{Dir, fstat};
use rustix::io::Errno;
use selvedge::offload;
use selvedge::proto::encoding::Coding;
use selvedge::proto::path::SafePath;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::resource::CHECK_INTERVAL;

/// Directories that are remembered for one root. When there are more, all are forgotten.
const DIRECTORIES_MAX: usize = 4096;
/// Names that are read of one at the most. In one with more, compressed files are looked for by name.
const NAMES_MAX: usize = 16 * 1024;

/// What is known of the directories of one root.
#[derive(Default)]
pub(super) struct Directories(RefCell<HashMap<Box<str>, Known, RandomState>>);

/// What is known of a directory.
struct Known {
    /// The state that it was read in; none while it is read.
    state: Option<State>,
    /// When it was last seen to be in that state, or began to be read.
    checked: Duration,
    has_compressed: bool,
}

impl Directories {
    /// Whether there is surely no compressed file in the directory of what a path names, looked at
    /// within [`CHECK_INTERVAL`].
    pub(super) async fn have_no_compressed(&self, root: &Arc<Root>, path: &SafePath, now: Duration) -> bool {
        let directory = if path.names_directory() { path.as_str() } else { parent(path.as_str()) };
        let (known_state, has_compressed) = match self.0.borrow().get(directory) {
            Some(known) if now.saturating_sub(known.checked) < CHECK_INTERVAL => {
                return known.state.is_some() && !known.has_compressed;
            }
            Some(known) => (known.state, known.has_compressed),
            None => (None, true),
        };
        let opened = root.open_directory(directory, Patience::None);
        match (opened.map(|fd| state_of(&fd)), known_state) {
            // Most do not change.
            (Ok(Ok(state)), Some(known)) if state == known => {
                self.note(directory, Known { state: Some(state), checked: now, has_compressed });
                return !has_compressed;
            }
            (Ok(Err(_)) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS), _) => {
                self.0.borrow_mut().remove(directory);
                return false;
            }
            _ => {}
        }
        // Whoever asks meanwhile looks by name.
        self.note(directory, Known { state: None, checked: now, has_compressed: true });
        let (root, name) = (root.clone(), directory.to_owned());
        let read = offload(move || read(root.open_directory(&name, Patience::Waits)?)).await;
        match read {
            Some(Ok(Some((state, has_compressed)))) => {
                self.note(directory, Known { state: Some(state), checked: now, has_compressed });
                !has_compressed
            }
            // It changes at the moment, or cannot be read.
            _ => false,
        }
    }

    /// Forgets all, as when the root is another directory by now.
    pub(super) fn forget(&self) {
        self.0.borrow_mut().clear();
    }

    fn note(&self, directory: &str, known: Known) {
        let mut all = self.0.borrow_mut();
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

/// The state of a directory, and whether a name in it may be that of a compressed file; none while its
/// times would not show its next change.
fn read(fd: OwnedFd) -> rustix::io::Result<Option<(State, bool)>> {
    let before = state_of(&fd)?;
    let mut has_compressed = false;
    for (count, entry) in Dir::read_from(&fd)?.enumerate() {
        let entry = entry?;
        has_compressed = count >= NAMES_MAX || is_compressed(entry.file_name().to_bytes());
        if has_compressed {
            break;
        }
    }
    let is_settled = state_of(&fd)? == before && !changed_just_now(before);
    Ok(is_settled.then_some((before, has_compressed)))
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
    use std::path::Path;

    /// Until the times of what was changed before show its next change.
    fn settle(directory: &Path) {
        let fd = || fs::File::open(directory).unwrap().into();
        while changed_just_now(state_of(&fd()).unwrap()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_directory_is_read_again_when_a_name_was_added_and_no_sooner() {
        let folder = std::env::temp_dir().join(format!("selvedge-directories-{}", std::process::id()));
        let inner = folder.join("inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("page.html"), "x").unwrap();
        let root = Arc::new(Root::open(&folder).unwrap());
        let directories = Directories::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ask = |path: &str, milliseconds| {
            let path = SafePath::decode(path.as_bytes()).unwrap();
            let now = Duration::from_millis(milliseconds);
            runtime.block_on(directories.have_no_compressed(&root, &path, now))
        };
        settle(&inner);
        assert!(ask("/inner/page.html", 0), "it is read");
        assert!(ask("/inner/", 10) && ask("/inner/none.css", 20), "and known for all in it");
        assert!(!ask("/none/page.html", 30) && !ask("/inner/page.html/x", 40));

        fs::write(inner.join("page.html.BR"), "x").unwrap();
        settle(&inner);
        assert!(ask("/inner/page.html", 499), "within the interval nobody looks");
        assert!(!ask("/inner/page.html", 500) && !ask("/inner/page.html", 1000));
        fs::remove_file(inner.join("page.html.BR")).unwrap();
        settle(&inner);
        assert!(ask("/inner/page.html", 1500));

        fs::write(inner.join("other.html"), "x").unwrap();
        if changed_just_now(state_of(&fs::File::open(&inner).unwrap().into()).unwrap()) {
            assert!(!ask("/inner/page.html", 2000), "one that changed just now may change again unseen");
        }
        fs::remove_dir_all(folder).unwrap();
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
