//! Files that a worker has opened by their paths lately, so that opening one again costs a look.
//!
//! A file is sent from here only where its path still names it in the state in which it was
//! opened, which the system is asked each time. What nobody asks for any more is let go of within
//! seconds.

use crate::service::{FileFacts, FileState, SharedFile};
use crate::tower::current::Current;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{spawn_blocking, spawn_local};

/// Files that a worker keeps open, where descriptors are plenty.
const FILES_MAX: usize = 64;
/// How often files are let go of that nobody has asked for since the last time.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

thread_local! {
    static OPENED: RefCell<Opened> = RefCell::new(Opened::new());
}

struct Opened {
    files: HashMap<PathBuf, Kept>,
    files_max: usize,
    /// Whether somebody lets go of what nobody asks for.
    is_swept: bool,
}

impl Opened {
    fn new() -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self { files: HashMap::new(), files_max: files_max(descriptors, workers), is_swept: false }
    }
}

/// How many files each worker keeps open: all of them take a thirty-second part of the descriptors
/// at the most, as all copies of files do.
fn files_max(descriptors: u64, workers: usize) -> usize {
    let share = usize::try_from(descriptors / 32).unwrap_or(usize::MAX);
    (share / workers.max(1)).clamp(1, FILES_MAX)
}

/// A file that was opened, and how often it was asked for since the last sweep.
struct Kept {
    file: Arc<SharedFile>,
    known: FileFacts,
    asked_lately: u32,
}

/// The regular file of a path, and its state. On a worker it is remembered.
///
/// # Errors
/// When it cannot be opened, or is no regular file.
pub(super) async fn open(path: &Path) -> io::Result<(Arc<SharedFile>, FileState)> {
    if Current::get().is_some()
        && let Some(found) = find(path)
    {
        return Ok(found);
    }
    let path = path.to_owned();
    let opened = spawn_blocking(move || {
        // Not blocking, so that a pipe without a writer is refused and not waited for.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
        let known = FileFacts::from(&regular(&file)?);
        io::Result::Ok((path, SharedFile::new(file), known))
    });
    let (path, file, known) = opened.await.map_err(io::Error::other)??;
    // Looked at again: whoever waited may have moved to another thread.
    if Current::get().is_some() && known.is_settled() {
        keep(path, Kept { file: file.clone(), known, asked_lately: 1 });
    }
    Ok((file, known.state))
}

/// The facts of an open file that is a regular one.
///
/// # Errors
/// When it is none, or the system cannot tell.
pub(super) fn regular(file: &File) -> io::Result<Metadata> {
    let facts = file.metadata()?;
    match facts.is_file() {
        true => Ok(facts),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no regular file")),
    }
}

/// What is remembered of a path, where that still is so.
fn find(path: &Path) -> Option<(Arc<SharedFile>, FileState)> {
    OPENED.with_borrow_mut(|opened| {
        let kept = opened.files.get_mut(path)?;
        // Where it cannot be told without waiting for a disk, it is opened by somebody who may wait.
        if look(path)?.as_ref() != Some(&kept.known) {
            opened.files.remove(path);
            return None;
        }
        kept.asked_lately = kept.asked_lately.saturating_add(1);
        Some((kept.file.clone(), kept.known.state))
    })
}

/// What a path names by now, if that is anything; nothing where the answer is not in memory.
fn look(path: &Path) -> Option<Option<FileFacts>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(found) => Some(File::from(found).metadata().ok().map(|facts| FileFacts::from(&facts))),
        Err(Errno::AGAIN) => None,
        // A system that does not know this call, or forbids it, is asked in the other way.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
            Some(path.metadata().ok().map(|facts| FileFacts::from(&facts)))
        }
        Err(_) => Some(None),
    }
}

/// Remembers a file, in the place of one that was asked for less.
fn keep(path: PathBuf, kept: Kept) {
    let over = OPENED.with_borrow_mut(|opened| {
        let mut over = opened.files.insert(path, kept);
        if opened.files.len() > opened.files_max {
            let least = opened.files.iter().min_by_key(|(_, kept)| kept.asked_lately).map(|(path, _)| path.clone());
            over = least.and_then(|path| opened.files.remove(&path));
        }
        if !std::mem::replace(&mut opened.is_swept, true) {
            spawn_local(sweep());
        }
        over
    });
    drop(over);
}

/// Lets go of what nobody asks for, until there is nothing left.
async fn sweep() {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let (over, is_empty) = OPENED.with_borrow_mut(|opened| {
            let over: Vec<_> = opened
                .files
                .extract_if(|_, kept| std::mem::take(&mut kept.asked_lately) == 0)
                .map(|(_, kept)| kept)
                .collect();
            opened.is_swept = !opened.files.is_empty();
            (over, opened.files.is_empty())
        });
        // The last who closes a file that was deleted waits for the disk.
        drop(spawn_blocking(move || drop(over)));
        if is_empty {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Moment;
    use selvedge_proto::method::Method;
    use std::pin::pin;

    fn on_a_worker(test: impl Future<Output = ()>) {
        let current = Current { peer: ([127, 0, 0, 1], 1).into(), moment: Moment::default(), method: Method::Get };
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build_local(tokio::runtime::LocalOptions::default())
            .expect("a runtime needs nothing that could be missing")
            .block_on(current.within(pin!(test)));
    }

    /// A file whose path is its own.
    fn written(name: &str, content: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("selvedge-opened-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The same, last changed long enough ago.
    fn settled(name: &str, content: &[u8]) -> PathBuf {
        let path = written(name, content);
        settle(&path);
        path
    }

    /// Waits until a change would show, which is the system's clock and no runtime's.
    fn settle(path: &Path) {
        while !FileFacts::from(&std::fs::metadata(path).unwrap()).is_settled() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_file_is_opened_once_and_each_state_is_another() {
        on_a_worker(async {
            let path = settled("once", b"first");
            let (first, state) = open(&path).await.unwrap();
            let (again, _) = open(&path).await.unwrap();
            assert!(Arc::ptr_eq(&first, &again));
            std::fs::write(&path, "other").unwrap();
            let (other, changed) = open(&path).await.unwrap();
            assert!(!Arc::ptr_eq(&first, &other), "it has the same length and another content");
            assert_ne!(state, changed);
            let replaced = settled("replacing", b"other");
            settle(&path);
            let (before, _) = open(&path).await.unwrap();
            std::fs::rename(replaced, &path).unwrap();
            let (after, _) = open(&path).await.unwrap();
            assert!(!Arc::ptr_eq(&before, &after), "another file has its name");
            std::fs::remove_file(&path).unwrap();
            assert!(open(&path).await.is_err());
        });
    }

    #[test]
    fn files_leave_descriptors_for_connections() {
        for (descriptors, workers) in [(1024, 1), (1024, 8), (1024, 32), (4096, 16), (1 << 20, 64)] {
            let files = files_max(descriptors, workers);
            assert!((1..=FILES_MAX).contains(&files), "{descriptors} {workers}");
            assert!((files * workers) as u64 <= descriptors / 32, "{descriptors} {workers}: {files} files");
        }
        assert_eq!((files_max(1 << 20, 64), files_max(u64::MAX, 1), files_max(16, 4)), (FILES_MAX, FILES_MAX, 1));
    }

    #[test]
    fn files_are_few_and_go_when_nobody_asks() {
        on_a_worker(async {
            let files_max = OPENED.with_borrow_mut(|opened| std::mem::replace(&mut opened.files_max, FILES_MAX));
            assert!(files_max <= FILES_MAX);
            let paths: Vec<_> = (0..FILES_MAX + 3).map(|at| written(&format!("few-{at}"), b"few")).collect();
            settle(&paths[FILES_MAX + 2]);
            for path in &paths {
                open(path).await.unwrap();
            }
            assert_eq!(OPENED.with_borrow(|opened| opened.files.len()), FILES_MAX);
            tokio::time::sleep(SWEEP_INTERVAL * 5 / 2).await;
            assert_eq!(OPENED.with_borrow(|opened| (opened.files.len(), opened.is_swept)), (0, false));
            paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        });
    }
}
