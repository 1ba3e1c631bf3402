//! Copies of files in memory of the system's, which nothing can change: what is sent from one needs
//! no look at the file and no copying.
//!
//! A file that is kept open and asked for again is worth a copy. All workers share it, whoever
//! opened the file; all copies together have a bound, and one that nobody has used for a while
//! makes room for another.

use crate::net::sys::{HUGE_PAGE_BYTES, move_to_huge_pages};
use crate::service::{FileFacts, FileState};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, sendfile};
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Bytes that all copies of the process have together at the most, also those that are only still
/// being sent.
pub(crate) const BYTES_MAX: u64 = 256 << 20;
/// A smaller file costs no less from a copy, and a larger one would have more than half of the room.
const FILE_BYTES: RangeInclusive<u64> = 32 << 10..=BYTES_MAX / 2;
/// A file that is asked for again after so long, and not after more than [`IDLE_TIME`], is worth a
/// copy.
const AGAIN_TIME: Duration = Duration::from_millis(500);
/// A copy that was not used for so long makes room.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// All copies of the process.
static COPIES: Copies = Copies::new(BYTES_MAX);

/// A copy of one state of a file.
#[derive(Debug)]
pub(crate) struct MemoryCopy {
    file: File,
    /// What it is of.
    origin: FileFacts,
    /// Bytes of the room that all copies have.
    share: u64,
    of: &'static Copies,
    used: Mutex<Instant>,
}

impl MemoryCopy {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for MemoryCopy {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.share, Ordering::Relaxed);
    }
}

/// The copies, and the room that they have.
#[derive(Debug)]
struct Copies {
    all: Mutex<Vec<Arc<MemoryCopy>>>,
    taken: AtomicU64,
    bytes_max: u64,
    /// Held by whoever makes one: one at a time, since each takes a thread and the memory's time.
    making: Mutex<()>,
}

impl Copies {
    const fn new(bytes_max: u64) -> Self {
        Self { all: Mutex::new(Vec::new()), taken: AtomicU64::new(0), bytes_max, making: Mutex::new(()) }
    }

    /// The copy of a file: one that somebody has made of it, or a new one, which takes as long as
    /// reading it. `None` when it changes meanwhile, there is no room, or another is being made.
    fn get(&'static self, file: &File, now: Instant) -> io::Result<Option<Arc<MemoryCopy>>> {
        let origin = FileFacts::from(&file.metadata()?);
        if !origin.is_settled() {
            return Ok(None);
        }
        let Ok(_making) = self.making.try_lock() else { return Ok(None) };
        if let Some(found) = lock(&self.all).iter().find(|copy| copy.origin == origin) {
            return Ok(Some(found.clone()));
        }
        let huge = huge_bytes(origin.state.length);
        let share = origin.state.length.max(huge);
        if !self.take(share, now) {
            return Ok(None);
        }
        let memory = memfd_create("selvedge-file", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        // From here on the room is given back with it.
        let copy = match memory {
            Ok(memory) => MemoryCopy { file: memory.into(), origin, share, of: self, used: Mutex::new(now) },
            Err(error) => {
                self.taken.fetch_sub(share, Ordering::Relaxed);
                return Err(error.into());
            }
        };
        if !fill(&copy.file, file, origin.state.length, share, huge)? || FileFacts::from(&file.metadata()?) != origin {
            return Ok(None);
        }
        let copy = Arc::new(copy);
        lock(&self.all).push(copy.clone());
        Ok(Some(copy))
    }

    /// Takes room, from copies that were not used for the longest time where there is none.
    fn take(&self, share: u64, now: Instant) -> bool {
        let mut all = lock(&self.all);
        loop {
            let more = |taken: u64| taken.checked_add(share).filter(|taken| *taken <= self.bytes_max);
            if self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
                return true;
            }
            let used = |copy: &Arc<MemoryCopy>| *lock(&copy.used);
            // One that is being sent would keep its room.
            let idle = (0..all.len()).filter(|&at| Arc::strong_count(&all[at]) == 1);
            let oldest = idle.min_by_key(|&at| used(&all[at]));
            match oldest.filter(|&at| now.saturating_duration_since(used(&all[at])) >= IDLE_TIME) {
                Some(at) => drop(all.swap_remove(at)),
                None => return false,
            }
        }
    }
}

/// Copies a file and seals the copy; whether there was all of it.
fn fill(copy: &File, file: &File, length: u64, share: u64, huge: u64) -> io::Result<bool> {
    ftruncate(copy, share)?;
    let mut at = 0;
    while at < length {
        let left = usize::try_from(length - at).unwrap_or(usize::MAX);
        if sendfile(copy, file, Some(&mut at), left)? == 0 {
            return Ok(false);
        }
    }
    if huge > 0 {
        // Where there are none it is sent from common pages, at more cost.
        let _ = move_to_huge_pages(copy, usize::try_from(huge).unwrap_or(0));
    }
    fcntl_add_seals(copy, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(true)
}

/// How much of a copy goes into huge pages, each of which is to be half full at least.
fn huge_bytes(length: u64) -> u64 {
    const HUGE: u64 = HUGE_PAGE_BYTES as u64;
    (length + HUGE / 2) / HUGE * HUGE
}

/// What an open file knows of its copy.
#[derive(Debug, Default)]
pub(crate) struct Copied(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    copy: Weak<MemoryCopy>,
    /// When it was first asked for, of those times that are no more than [`IDLE_TIME`] apart.
    since: Option<Instant>,
    last: Option<Instant>,
    /// When somebody was last told to have it copied.
    tried: Option<Instant>,
}

/// What an answer is to be sent from.
#[derive(Debug)]
pub(crate) enum Source {
    Copy(Arc<MemoryCopy>),
    File,
    /// The file, and somebody is to have it copied meanwhile.
    FileWorthCopying,
}

impl Copied {
    /// Notes that an answer is made of this state of the file.
    pub(crate) fn ask(&self, state: &FileState, now: Instant) -> Source {
        let mut known = lock(&self.0);
        if let Some(copy) = known.copy.upgrade().filter(|copy| copy.origin.state == *state) {
            *lock(&copy.used) = now;
            return Source::Copy(copy);
        }
        if !FILE_BYTES.contains(&state.length) {
            return Source::File;
        }
        let within = |time: Option<Instant>, at_most: Duration| {
            time.is_some_and(|time| now.saturating_duration_since(time) < at_most)
        };
        if !within(known.last.replace(now), IDLE_TIME) {
            known.since = Some(now);
        }
        if within(known.since, AGAIN_TIME) || within(known.tried, AGAIN_TIME) {
            return Source::File;
        }
        known.tried = Some(now);
        Source::FileWorthCopying
    }

    /// Has the file sent from a copy from now on, if one can be had. It takes as long as reading
    /// the file.
    pub(crate) fn make(&self, file: &File) -> io::Result<()> {
        self.make_among(&COPIES, file, Instant::now())
    }

    fn make_among(&self, copies: &'static Copies, file: &File, now: Instant) -> io::Result<()> {
        if let Some(copy) = copies.get(file, now)? {
            lock(&self.0).copy = Arc::downgrade(&copy);
        }
        Ok(())
    }

    /// Whether there is a copy of this state.
    pub(crate) fn is_of(&self, state: &FileState) -> bool {
        lock(&self.0).copy.upgrade().is_some_and(|copy| copy.origin.state == *state)
    }
}

/// What is behind a lock. Nothing that could panic runs under one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const ROOM: u64 = 8 << 20;

    fn copies() -> &'static Copies {
        Box::leak(Box::new(Copies::new(ROOM)))
    }

    /// A file of so many bytes, of which its times would show the next change.
    fn settled(length: u64) -> File {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(length).unwrap();
        settle(&file);
        file
    }

    /// Waits until a change would show, which is the system's clock and no test's.
    fn settle(file: &File) {
        while !FileFacts::from(&file.metadata().unwrap()).is_settled() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn huge_pages_are_half_full_at_least() {
        const MIB: u64 = 1 << 20;
        for (length, huge) in [
            (0, 0),
            (MIB - 1, 0),
            (MIB, 2 * MIB),
            (2 * MIB, 2 * MIB),
            (3 * MIB - 1, 2 * MIB),
            (3 * MIB, 4 * MIB),
            (4 * MIB, 4 * MIB),
        ] {
            assert_eq!(huge_bytes(length), huge, "{length}");
        }
    }

    #[test]
    fn what_is_asked_for_again_is_worth_a_copy() {
        let state = |length| FileState { length, modified: (0, 0) };
        let began = Instant::now();
        for (length, asked_at_ms, worth) in [
            (1 << 20, &[0, 1, 499][..], &[][..]),
            (1 << 20, &[0, 500], &[500]),
            (1 << 20, &[0, 600, 700, 1099, 1100], &[600, 1100]),
            (1 << 20, &[0, 10_000, 20_000], &[]),
            (1 << 20, &[0, 9_999], &[9_999]),
            (*FILE_BYTES.start() - 1, &[0, 600], &[]),
            (*FILE_BYTES.end(), &[0, 600], &[600]),
            (*FILE_BYTES.end() + 1, &[0, 600], &[]),
        ] {
            let copied = Copied::default();
            let is_worth = |&&ms: &&u64| {
                matches!(copied.ask(&state(length), began + Duration::from_millis(ms)), Source::FileWorthCopying)
            };
            let found: Vec<u64> = asked_at_ms.iter().filter(is_worth).copied().collect();
            assert_eq!(found, worth, "{length} {asked_at_ms:?}");
        }
    }

    #[test]
    fn a_copy_is_of_one_state_and_all_who_open_the_file_share_it() {
        let (copies, file, now) = (copies(), settled(3 << 20), Instant::now());
        let (one, other) = (Copied::default(), Copied::default());
        one.make_among(copies, &file, now).unwrap();
        other.make_among(copies, &file.try_clone().unwrap(), now).unwrap();
        assert_eq!(copies.taken.load(Ordering::Relaxed), 4 << 20, "two huge pages, once");
        let state = FileState::of(&file).unwrap();
        let (Source::Copy(a), Source::Copy(b)) = (one.ask(&state, now), other.ask(&state, now)) else {
            panic!("there is a copy")
        };
        assert!(Arc::ptr_eq(&a, &b) && a.file.write_at(b"x", 0).is_err());
        let changed = FileState { length: state.length, modified: (state.modified.0 + 1, 0) };
        assert!(matches!(one.ask(&changed, now), Source::File));
        // Whoever has it open sends what it was; the next copy is another.
        file.write_at(b"x", 0).unwrap();
        one.make_among(copies, &file, now).unwrap();
        assert!(matches!(one.ask(&state, now), Source::Copy(copy) if Arc::ptr_eq(&copy, &a)), "it has just changed");
        settle(&file);
        one.make_among(copies, &file, now).unwrap();
        let state = FileState::of(&file).unwrap();
        assert!(matches!(one.ask(&state, now), Source::Copy(copy) if !Arc::ptr_eq(&copy, &a)));
    }

    #[test]
    fn copies_have_a_bound_and_those_that_nobody_uses_make_room() {
        let (copies, began) = (copies(), Instant::now());
        let files: Vec<_> = (0..3).map(|_| (settled(ROOM / 2), Copied::default())).collect();
        let state = |at: usize| FileState::of(&files[at].0).unwrap();
        let is_copied = |at: usize| files[at].1.is_of(&state(at));
        let has_room = |at: usize, seconds: u64| {
            let (file, copied) = &files[at];
            copied.make_among(copies, file, began + Duration::from_secs(seconds)).unwrap();
            is_copied(at)
        };
        assert!(has_room(0, 0) && has_room(1, 1));
        assert!(!has_room(2, 9), "the oldest was used lately");
        let Source::Copy(sent) = files[0].1.ask(&state(0), began + Duration::from_secs(5)) else {
            panic!("it is copied")
        };
        assert!(!has_room(2, 10));
        assert!(has_room(2, 11) && is_copied(0) && !is_copied(1), "the other one was idle");
        // One that is being sent has its room until it is sent.
        assert!(!has_room(1, 15));
        drop(sent);
        assert!(has_room(1, 16) && !is_copied(0));
        assert_eq!(copies.taken.load(Ordering::Relaxed), ROOM);
    }
}
