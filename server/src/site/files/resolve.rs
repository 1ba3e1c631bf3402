//! From a path to what it names: an open file with its facts, its sidecars, a directory.

use super::failure::Failure;
pub(super) use super::root::Patience;
use super::root::Root;
use crate::site::action::Sidecars;
use rustix::fs::{FileType, Stat, fstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use selvedge::proto::encoding::Coding;
use selvedge::proto::path::SafePath;
use selvedge::service::FileState;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use super::resource::{Resource, changed_just_now};

/// A file up to this size is kept in memory; a larger one is sent by the kernel, which costs less
/// from here on: it copies nothing.
pub(super) const MEMORY_FILE_BYTES_MAX: u64 = 32 * 1024;

/// What a path names.
pub(in crate::site) enum Found {
    /// A file.
    File(Rc<Resource>),
    /// A directory, asked for without the slash.
    DirectoryWithoutSlash,
    /// A directory that has no index, and the root that it is beneath.
    Directory(OwnedFd, Arc<Root>),
}

/// The same, as it can be handed from thread to thread.
pub(super) enum Loaded {
    /// What is known of the file is still so.
    Unchanged,
    File(Parts),
    DirectoryWithoutSlash,
    Directory(OwnedFd),
}

/// A file and what stands beside it in other codings.
pub(super) struct Parts {
    /// The last segment of its path, which its type is told from.
    pub(super) name: String,
    pub(super) identity: Opened,
    pub(super) sidecars: Vec<(Coding, Opened)>,
}

/// One file: its facts, and its bytes or itself.
pub(super) struct Opened {
    pub(super) state: State,
    pub(super) content: Content,
}

pub(super) enum Content {
    Memory(Vec<u8>),
    Open(File),
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) length: u64,
    pub(super) modified: (i64, u32),
    pub(super) changed: (i64, u32),
}

impl State {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        }
    }

    /// The part of it that tells one content from another.
    pub(super) fn content(&self) -> FileState {
        FileState { length: self.length, modified: (self.modified.0, i64::from(self.modified.1)) }
    }

    /// Whether the content is the same in both. A file that was deleted or replaced since is
    /// another state, but what is open of it has not changed.
    pub(super) fn has_content_of(&self, other: &Self) -> bool {
        (self.length, self.modified) == (other.length, other.modified)
    }
}

fn nanoseconds(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// The states of a resource that is known already: of the file and of each sidecar.
pub(super) type KnownStates = Vec<(Option<Coding>, State)>;

/// A directory that is served, the names that stand for directories in it, and whether
/// compressed files are sent for those that they stand beside.
#[derive(Clone, Debug)]
pub(in crate::site) struct Place {
    pub(in crate::site) root: Arc<Root>,
    pub(in crate::site) index: Arc<[Box<str>]>,
    pub(in crate::site) sidecars: Sidecars,
}

/// Finds what a path names and, unless it is known in just this state, reads or opens it.
pub(super) fn resolve(
    place: &Place,
    path: &SafePath,
    patience: Patience,
    known: Option<&KnownStates>,
) -> Result<Loaded, Failure> {
    if is_hidden(path) {
        return Err(Failure::NotFound);
    }
    let root = &*place.root;
    let fd = match root.open_beneath(path, patience) {
        // A directory that may be entered but not read can still have an index.
        Err(Errno::ACCESS) if path.names_directory() && !path.as_str().is_empty() => {
            return resolve_index(place, path, patience, known);
        }
        opened => opened?,
    };
    let stat = fstat(&fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if path.names_directory() => Err(Failure::NotFound),
        FileType::RegularFile => load(place, path, (fd, stat), patience, known),
        FileType::Directory if !path.names_directory() => Ok(Loaded::DirectoryWithoutSlash),
        FileType::Directory => {
            for name in &*place.index {
                let index = path.join(name);
                let file = match root.open_beneath(&index, patience) {
                    Ok(file) => file,
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(error.into()),
                };
                let stat = fstat(&file)?;
                if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                    return load(place, &index, (file, stat), patience, known);
                }
            }
            Ok(Loaded::Directory(fd))
        }
        _ => Err(Failure::NotFound),
    }
}

/// The index of a directory that cannot be looked into.
fn resolve_index(
    place: &Place,
    path: &SafePath,
    patience: Patience,
    known: Option<&KnownStates>,
) -> Result<Loaded, Failure> {
    for name in &*place.index {
        match resolve(place, &path.join(name), patience, known) {
            Err(Failure::WouldWait) => return Err(Failure::WouldWait),
            Err(_) => {}
            found => return found,
        }
    }
    Err(Failure::Forbidden)
}

/// Names that begin with a dot are not served, but for `/.well-known/` (RFC 8615).
fn is_hidden(path: &SafePath) -> bool {
    path.segments()
        .enumerate()
        .any(|(place, segment)| segment.starts_with('.') && !(place == 0 && segment == ".well-known"))
}

fn load(
    Place { root, sidecars: wanted, .. }: &Place,
    path: &SafePath,
    (fd, stat): (OwnedFd, Stat),
    patience: Patience,
    known: Option<&KnownStates>,
) -> Result<Loaded, Failure> {
    let mut sidecars = Vec::new();
    let codings = if *wanted == Sidecars::On { &Coding::ALL[..] } else { &[] };
    for &coding in codings {
        match root.open_beneath(&path.with_suffix(coding.suffix()), patience) {
            Ok(sidecar) => {
                let facts = fstat(&sidecar)?;
                // One that is older than the file belongs to an earlier state of it.
                let regular = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
                if regular && (facts.st_mtime, facts.st_mtime_nsec) >= (stat.st_mtime, stat.st_mtime_nsec) {
                    sidecars.push((coding, sidecar, facts));
                }
            }
            Err(Errno::AGAIN) => return Err(Failure::WouldWait),
            // A lack of descriptors or memory says nothing of sidecars, and an answer without
            // Vary would be wrong for as long as it is kept.
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO)) => return Err(error.into()),
            // One that may not be had is none.
            Err(_) => {}
        }
    }
    let is_known = known.is_some_and(|known| {
        let now = sidecars.iter().map(|(coding, _, facts)| (Some(*coding), State::of(facts)));
        std::iter::once((None, State::of(&stat))).chain(now).eq(known.iter().copied())
    });
    if is_known {
        return Ok(Loaded::Unchanged);
    }
    let identity = read(fd, &stat, patience)?;
    let sidecars = sidecars
        .into_iter()
        .map(|(coding, fd, facts)| Ok((coding, read(fd, &facts, patience)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    Ok(Loaded::File(Parts { name: path.name().to_owned(), identity, sidecars }))
}

/// How often a file that changes while it is read is read again.
const READ_TRIES_MAX: usize = 3;

/// Reads a small file whole, in one state of it, or keeps a large one open.
fn read(fd: OwnedFd, stat: &Stat, patience: Patience) -> Result<Opened, Failure> {
    let file = File::from(fd);
    let mut before = State::of(stat);
    for _ in 0..READ_TRIES_MAX {
        if before.length > MEMORY_FILE_BYTES_MAX {
            break;
        }
        let bytes = read_whole(&file, before.length, patience)?;
        let after = State::of(&fstat(&file)?);
        let is_whole = before == after && bytes.len() as u64 == after.length;
        // The system sets a file's times when a write begins, so they say nothing of one that goes on; two
        // readings of it differ.
        if is_whole && (!changed_just_now(after) || read_whole(&file, after.length, patience)? == bytes) {
            return Ok(Opened { state: after, content: Content::Memory(bytes) });
        }
        before = after;
    }
    // It is large, or somebody writes to it all the time: the engine sends it from the file
    // and cuts the answer when its length changes on the way.
    Ok(Opened { state: before, content: Content::Open(file) })
}

fn read_whole(file: &File, length: u64, patience: Patience) -> Result<Vec<u8>, Failure> {
    // One byte more than there should be, to see whether the file has grown.
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0) + 1];
    let flags = match patience {
        Patience::None => ReadWriteFlags::NOWAIT,
        Patience::Waits => ReadWriteFlags::empty(),
    };
    let mut have = 0;
    loop {
        let mut into = [IoSliceMut::new(&mut bytes[have..])];
        match preadv2(file, &mut into, have as u64, flags) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(Errno::INTR) => {}
            // A file system that cannot tell whether it would wait is given time.
            Err(Errno::AGAIN | Errno::OPNOTSUPP) if patience == Patience::None => return Err(Failure::WouldWait),
            Err(error) => return Err(error.into()),
        }
        if have == bytes.len() {
            break;
        }
    }
    bytes.truncate(have);
    Ok(bytes)
}
