//! Dumps of a recorder: its memory, compressed, in a file that only the owner may read.

use super::layout::words_for;
use super::reader::{rings, rings_of_header};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

/// Dumps that a folder keeps. A new one replaces the oldest.
const DUMPS_MAX: usize = 4;
/// The start of the name of each dump.
const PREFIX: &str = "selvedge-last-";
const SUFFIX: &str = ".gz";
/// Most workers of a dump.
const RINGS_MAX: usize = 1024;
/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Writes the memory of a recorder to a new file in a folder. `name` tells it from other dumps and begins with the time in
/// a form that sorts.
///
/// # Errors
/// If a file cannot be read or written.
pub(crate) fn write_dump(memory: &File, folder: &Path, name: &str) -> io::Result<PathBuf> {
    let path = folder.join(format!("{PREFIX}{name}{SUFFIX}"));
    let part = folder.join(format!("{PREFIX}{name}{SUFFIX}.part"));
    remove_oldest(folder);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    // A file with the name of a dump is complete.
    let written = compress(memory, file).and_then(|()| fs::rename(&part, &path));
    if let Err(error) = written {
        let _ = fs::remove_file(&part);
        return Err(error);
    }
    Ok(path)
}

fn compress(memory: &File, file: File) -> io::Result<()> {
    let mut encoder = GzEncoder::new(file, Compression::fast());
    let (length, mut at, mut piece) = (memory.metadata()?.len(), 0, vec![0; COPY_BYTES]);
    while at < length {
        // The position of the file is shared with the process that writes it, so it stays where it is.
        let count = memory.read_at(&mut piece, at)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        encoder.write_all(&piece[..count])?;
        at += count as u64;
    }
    encoder.finish()?;
    Ok(())
}

/// Removes the oldest dumps of a folder, so that one more is within the limit.
fn remove_oldest(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_dump = |name: &str| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
    let mut dumps: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_dump))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.path())
        .collect();
    dumps.sort();
    let surplus = (dumps.len() + 1).saturating_sub(DUMPS_MAX);
    // A dump that cannot be removed stays.
    dumps.iter().take(surplus).for_each(|dump| drop(fs::remove_file(dump)));
}

/// Reads the numbers of a dump.
///
/// # Errors
/// If the file cannot be read, or is no dump.
pub(crate) fn read_dump(path: &Path) -> io::Result<Vec<AtomicU64>> {
    let (mut decoder, mut numbers) = (GzDecoder::new(File::open(path)?), Vec::new());
    let invalid = || io::Error::new(ErrorKind::InvalidData, "it is not a dump of this version of the flight recorder");
    let mut piece = vec![0; COPY_BYTES];
    loop {
        let count = read_full(&mut decoder, &mut piece)?;
        let whole = piece[..count].chunks_exact(8);
        numbers.extend(whole.map(|bytes| AtomicU64::new(u64::from_ne_bytes(bytes.try_into().expect("of 8 bytes")))));
        // A small file may stand for many bytes, so their number is that of the header at most.
        let length = length_of(&numbers).ok_or_else(invalid)?;
        if numbers.len() > length {
            return Err(invalid());
        }
        if count < piece.len() {
            break;
        }
    }
    match rings(&numbers) {
        0 => Err(invalid()),
        _ => Ok(numbers),
    }
}

/// Returns how many numbers a dump has by its first ones; `None` if these are of no dump.
fn length_of(numbers: &[AtomicU64]) -> Option<usize> {
    let rings = rings_of_header(numbers).filter(|rings| (1..=RINGS_MAX).contains(rings))?;
    Some(words_for(rings))
}

/// Fills a buffer, or reads up to the end.
fn read_full(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}
