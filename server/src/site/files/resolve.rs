//! Resolves a path to a file with its precompressed variants, or to a directory.

use super::content_hash::{self, WAIT_BYTES_MAX};
use super::error::FileError;
use super::loaded::{
    ContentIdentity, KnownStamps, LoadedContent, LoadedFile, LoadedVariant, MEANINGFUL_FROM, MEMORY_FILE_BYTES_MAX,
};
pub(super) use super::open::DiskAccess;
use super::root::Root;
use crate::site::files_rules::{Compress, Precompressed};
use rustix::fs::{FileType, Stat, fstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use selvedge::proto::encoding::Coding;
use selvedge::proto::path::SafePath;
use selvedge::service::FileStamp;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use super::resource::Resource;

/// What a path names.
pub(in crate::site) enum Resolved {
    /// A file.
    File(Rc<Resource>),
    /// A directory whose request path has no trailing slash.
    DirectoryWithoutSlash,
    /// A directory without an index, and the root above it.
    Directory(OwnedFd, Arc<Root>),
}

/// What a path names, in a form that is `Send`.
pub(super) enum LoadOutcome {
    /// The file has the known stamps.
    Unchanged,
    File(LoadedFile),
    DirectoryWithoutSlash,
    Directory(OwnedFd),
}

/// A root directory with its index names, and whether precompressed and compressed content is served.
#[derive(Clone, Debug)]
pub(in crate::site) struct DocumentRoot {
    pub(in crate::site) root: Arc<Root>,
    pub(in crate::site) index: Arc<[Box<str>]>,
    pub(in crate::site) precompressed: Precompressed,
    pub(in crate::site) compress: Compress,
}

/// Finds what a path names. Opens or reads a file unless it has the known stamps.
pub(super) fn resolve(
    document_root: &DocumentRoot,
    path: &SafePath,
    disk_access: DiskAccess,
    known: Option<&KnownStamps>,
) -> Result<LoadOutcome, FileError> {
    if is_hidden(path) {
        return Err(FileError::NotFound);
    }
    let root = &*document_root.root;
    let fd = match root.open_beneath(path, disk_access) {
        // A directory that may be entered but not read can still have an index.
        Err(Errno::ACCESS) if path.names_directory() && !path.as_str().is_empty() => {
            return resolve_index(document_root, path, disk_access, known);
        }
        opened => opened?,
    };
    let stat = fstat(&fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if path.names_directory() => Err(FileError::NotFound),
        FileType::RegularFile => load(document_root, path, (fd, stat), disk_access, known),
        FileType::Directory if !path.names_directory() => Ok(LoadOutcome::DirectoryWithoutSlash),
        FileType::Directory => {
            for name in &*document_root.index {
                let index = path.join(name);
                let file = match root.open_beneath(&index, disk_access) {
                    Ok(file) => file,
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(error.into()),
                };
                let stat = fstat(&file)?;
                if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                    return load(document_root, &index, (file, stat), disk_access, known);
                }
            }
            Ok(LoadOutcome::Directory(fd))
        }
        _ => Err(FileError::NotFound),
    }
}

/// Finds the index of a directory that cannot be read.
fn resolve_index(
    document_root: &DocumentRoot,
    path: &SafePath,
    disk_access: DiskAccess,
    known: Option<&KnownStamps>,
) -> Result<LoadOutcome, FileError> {
    for name in &*document_root.index {
        match resolve(document_root, &path.join(name), disk_access, known) {
            Err(FileError::WouldBlock) => return Err(FileError::WouldBlock),
            Err(_) => {}
            outcome => return outcome,
        }
    }
    Err(FileError::Forbidden)
}

/// Whether a path is hidden: a segment begins with a dot, except for `/.well-known/` (RFC 8615).
fn is_hidden(path: &SafePath) -> bool {
    path.segments()
        .enumerate()
        .any(|(index, segment)| segment.starts_with('.') && !(index == 0 && segment == ".well-known"))
}

fn load(
    DocumentRoot { root, precompressed: mode, .. }: &DocumentRoot,
    path: &SafePath,
    (fd, stat): (OwnedFd, Stat),
    disk_access: DiskAccess,
    known: Option<&KnownStamps>,
) -> Result<LoadOutcome, FileError> {
    let (mut variants, mut outdated) = (Vec::new(), Vec::new());
    let codings = if *mode == Precompressed::On { &Coding::ALL[..] } else { &[] };
    for &coding in codings {
        match root.open_beneath(&path.with_suffix(coding.suffix()), disk_access) {
            Ok(variant) => {
                let variant_stat = fstat(&variant)?;
                if FileType::from_raw_mode(variant_stat.st_mode) == FileType::RegularFile {
                    match is_current(&FileStamp::from_stat(&variant_stat), &FileStamp::from_stat(&stat)) {
                        true => variants.push((coding, variant, variant_stat)),
                        false => outdated.push((coding, FileStamp::from_stat(&variant_stat))),
                    }
                }
            }
            Err(Errno::AGAIN) => return Err(FileError::WouldBlock),
            // The error does not show whether a precompressed variant exists. A response without Vary would be
            // wrong for as long as it is cached.
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO)) => return Err(error.into()),
            // A variant that cannot be opened is not served.
            Err(_) => {}
        }
    }
    let is_unchanged = known.is_some_and(|known| {
        let now = variants.iter().map(|(coding, _, variant_stat)| (Some(*coding), FileStamp::from_stat(variant_stat)));
        // A file that is being hashed is looked at again, in case its hash is known now.
        !known.is_pending
            && std::iter::once((None, FileStamp::from_stat(&stat))).chain(now).eq(known.stamps.iter().copied())
    });
    if is_unchanged {
        return Ok(LoadOutcome::Unchanged);
    }
    let identity = read(fd, &stat, disk_access)?;
    let variants = variants
        .into_iter()
        .map(|(coding, fd, variant_stat)| Ok((coding, read(fd, &variant_stat, disk_access)?)))
        .collect::<Result<Vec<_>, FileError>>()?;
    outdated.retain(|(_, stamp)| outdated::report_once(*stamp));
    let outdated = outdated.into_iter().map(|(coding, _)| coding).collect();
    let name = path.file_name().to_owned();
    Ok(LoadOutcome::File(LoadedFile { name, identity, precompressed: variants, outdated }))
}

/// Whether a precompressed file belongs to the current state of its file: it is not older. Tools that copy the time of the
/// file may cut it to the steps of another system, so a time that is cut is equal to its original.
fn is_current(variant: &FileStamp, file: &FileStamp) -> bool {
    /// Nanoseconds in the steps: of 100 ns, a microsecond, a millisecond, a second.
    const STEPS: [u32; 4] = [100, 1_000, 1_000_000, 1_000_000_000];
    let ((seconds, nanoseconds), (file_seconds, file_nanoseconds)) = (variant.modified, file.modified);
    let is_cut = |step: &u32| nanoseconds == file_nanoseconds - file_nanoseconds % step;
    variant.modified >= file.modified || (seconds == file_seconds && STEPS.iter().any(is_cut))
}

/// Which outdated precompressed files were reported. Each has a line of its own in the log, so their number is bounded.
mod outdated {
    use selvedge::service::FileStamp;
    use std::collections::HashSet;
    use std::sync::{LazyLock, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    /// The maximum number of files that are reported within [`PERIOD`].
    pub(super) const REPORTS_MAX: usize = 1024;
    /// If more files are outdated, the reports begin again after this time.
    pub(super) const PERIOD: Duration = Duration::from_secs(3600);

    static REPORTED: LazyLock<Mutex<Reported>> = LazyLock::new(Mutex::default);

    /// The files that were reported.
    #[derive(Default)]
    pub(super) struct Reported {
        stamps: HashSet<FileStamp>,
        began: Option<Instant>,
    }

    impl Reported {
        /// Whether a file is reported for the first time in this state.
        pub(super) fn add(&mut self, stamp: FileStamp, now: Instant) -> bool {
            if self.stamps.contains(&stamp) {
                return false;
            }
            if self.stamps.len() >= REPORTS_MAX {
                if self.began.is_some_and(|began| now.duration_since(began) < PERIOD) {
                    return false;
                }
                self.stamps.clear();
            }
            if self.stamps.is_empty() {
                self.began = Some(now);
            }
            self.stamps.insert(stamp)
        }
    }

    pub(super) fn report_once(stamp: FileStamp) -> bool {
        REPORTED.lock().unwrap_or_else(PoisonError::into_inner).add(stamp, Instant::now())
    }
}

/// How often a file that changes during a read is read again.
const READ_TRIES_MAX: usize = 3;

/// Reads a small file in a consistent state, or keeps a large one open.
fn read(fd: OwnedFd, stat: &Stat, disk_access: DiskAccess) -> Result<LoadedVariant, FileError> {
    let file = File::from(fd);
    let mut before = FileStamp::from_stat(stat);
    for _ in 0..READ_TRIES_MAX {
        if before.length > MEMORY_FILE_BYTES_MAX {
            break;
        }
        let bytes = read_whole(&file, before.length, disk_access)?;
        let after = FileStamp::from_stat(&fstat(&file)?);
        let is_whole = before == after && bytes.len() as u64 == after.length;
        // The system sets the modification time when a write begins, so it does not reveal a write in progress.
        // Two reads of the content then differ.
        if is_whole
            && (!after.changed_recently(SystemTime::now()) || read_whole(&file, after.length, disk_access)? == bytes)
        {
            let identity = ContentIdentity::Hash(content_hash::hash_of(&bytes));
            return Ok(LoadedVariant { stamp: after, content: LoadedContent::Memory(bytes), identity });
        }
        before = after;
    }
    // The file is large or is written constantly. The engine sends it from the descriptor and aborts the
    // response if the length changes.
    let identity = identity_of(&file, &before, disk_access)?;
    Ok(LoadedVariant { stamp: before, content: LoadedContent::Open(file), identity })
}

/// Returns what identifies the content of a large file.
fn identity_of(file: &File, stamp: &FileStamp, disk_access: DiskAccess) -> Result<ContentIdentity, FileError> {
    if time_identifies(stamp, SystemTime::now()) {
        return Ok(ContentIdentity::Time);
    }
    if let Some(hash) = content_hash::known_hash(stamp) {
        return Ok(ContentIdentity::Hash(hash));
    }
    if stamp.length > WAIT_BYTES_MAX {
        content_hash::hash_later(file, stamp);
        return Ok(ContentIdentity::Pending);
    }
    if disk_access == DiskAccess::CachedOnly {
        return Err(FileError::WouldBlock);
    }
    let hash = content_hash::hash_file(file, stamp).map_err(|_| FileError::System(Errno::IO))?;
    Ok(hash.map_or(ContentIdentity::Pending, ContentIdentity::Hash))
}

/// Whether the modification time and the length identify the content of a file at its path. They do if the system set the
/// time when the content was last written: then it has fractions of a second and is the time of the last change, too. A
/// time that a tool has set can be equal for every version.
fn time_identifies(stamp: &FileStamp, now: SystemTime) -> bool {
    let (seconds, nanoseconds) = stamp.modified;
    let is_past =
        now.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|now| i128::from(seconds) <= now.as_secs().into());
    nanoseconds != 0 && stamp.modified == stamp.changed && seconds >= MEANINGFUL_FROM && is_past
}

/// Reads up to `length` bytes, fewer if the file is shorter. The file's stamp afterwards shows whether it is longer.
fn read_whole(file: &File, length: u64, disk_access: DiskAccess) -> Result<Vec<u8>, FileError> {
    let length = usize::try_from(length).unwrap_or(0);
    // With a spare byte, responses share the bytes without a check whether they are the first to do so.
    let mut bytes = vec![0; length + 1];
    let flags = match disk_access {
        DiskAccess::CachedOnly => ReadWriteFlags::NOWAIT,
        DiskAccess::MayBlock => ReadWriteFlags::empty(),
    };
    let mut filled = 0;
    while filled < length {
        let mut into = [IoSliceMut::new(&mut bytes[filled..length])];
        match preadv2(file, &mut into, filled as u64, flags) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            // A file system that does not support NOWAIT is read on a blocking thread.
            Err(Errno::AGAIN | Errno::OPNOTSUPP) if disk_access == DiskAccess::CachedOnly => {
                return Err(FileError::WouldBlock);
            }
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn modified(seconds: i64, nanoseconds: u32) -> FileStamp {
        let time = (seconds, nanoseconds);
        FileStamp { device: 1, inode: 1, length: 1, modified: time, changed: time }
    }

    #[test]
    fn precompressed_file_with_a_cut_time_is_current() {
        let file = modified(100, 123_456_789);
        for (seconds, nanoseconds, expected) in [
            (100, 123_456_789, true),
            (101, 0, true),
            (100, 0, true),
            (100, 123_000_000, true),
            (100, 123_456_000, true),
            (100, 123_456_700, true),
            (100, 123_456_788, false),
            (100, 122_000_000, false),
            (99, 123_456_789, false),
            (99, 0, false),
        ] {
            assert_eq!(is_current(&modified(seconds, nanoseconds), &file), expected, "{seconds}.{nanoseconds}");
        }
    }

    #[test]
    fn reports_of_outdated_files_are_bounded() {
        let (mut reported, now) = (outdated::Reported::default(), std::time::Instant::now());
        let stamp = |number: usize| FileStamp { inode: number as u64, ..modified(0, 0) };
        let first = (0..outdated::REPORTS_MAX).filter(|number| reported.add(stamp(*number), now)).count();
        assert_eq!(first, outdated::REPORTS_MAX);
        let next = stamp(outdated::REPORTS_MAX);
        assert!(!reported.add(stamp(0), now) && !reported.add(next, now));
        let later = now + outdated::PERIOD;
        assert!(reported.add(next, later) && !reported.add(next, later));
    }

    #[test]
    fn time_identifies_content_if_the_system_has_set_it() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        assert!(time_identifies(&modified(1_700_000_000, 5), now));
        for stamp in [
            modified(1_700_000_000, 0),
            modified(1, 0),
            modified(1, 5),
            modified(315_532_801, 0),
            modified(1_900_000_000, 5),
            FileStamp { changed: (1_700_000_001, 5), ..modified(1_700_000_000, 5) },
        ] {
            assert!(!time_identifies(&stamp, now), "{stamp:?}");
        }
    }
}
