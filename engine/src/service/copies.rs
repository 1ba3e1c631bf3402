//! Copies of files in memory of the system's, which nothing can change: what is sent from one needs
//! no look at the file and no copying.
//!
//! A file that is kept open and asked for again is worth a copy. All workers share it, whoever
//! opened the file. All copies together have a bound, in bytes and in descriptors; one that was not
//! used for a while makes room for another, and after a minute for anything else.

use crate::net::sys::{HUGE_PAGE_BYTES, move_to_huge_pages};
use crate::service::{FileFacts, FileState, memory};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, sendfile};
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Bytes that all copies of the process have together at the most, where it may have eight times
/// as many.
const BYTES_MAX: u64 = 256 << 20;
/// Copies that there are at the most, where descriptors are plenty: each has one.
const COPIES_MAX: usize = 2048;
/// A smaller file costs no less from a copy, and a larger one would have more than half of the room.
const FILE_BYTES: RangeInclusive<u64> = 32 << 10..=BYTES_MAX / 2;
/// A file that is asked for again after so long, and not after more than [`IDLE_TIME`], is worth a
/// copy.
const AGAIN_TIME: Duration = Duration::from_millis(500);
/// One that is asked for so often is, too, however soon: until there is a copy, each answer copies.
const OFTEN: u64 = 8;
/// A copy that was not used for so long makes room for another.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// A copy that was not used for so long is let go.
const KEPT_TIME: Duration = Duration::from_secs(60);
/// How often copies are let go.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// A file that was changed so shortly ago is not copied: the times of a file that is written to
/// in place are those of the beginning, and a copy of half of it would stay.
const RESTED_TIME: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(10) };

/// All copies of the process.
static COPIES: LazyLock<Copies> = LazyLock::new(|| {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let copies_max = usize::try_from(descriptors / 32).unwrap_or(usize::MAX).clamp(1, COPIES_MAX);
    Copies::new(BYTES_MAX.min(memory::bytes_max() / 8), copies_max)
});

/// Bytes that all copies have together at the most.
pub(crate) fn bytes_max() -> u64 {
    COPIES.bytes_max
}

/// A copy of one state of a file.
#[derive(Debug)]
pub(crate) struct MemoryCopy {
    file: File,
    /// What it is of.
    origin: FileFacts,
    used: Mutex<Used>,
    /// Given back when the file is closed, so it stands behind it.
    share: Share,
}

/// When a copy was last used, and what was asked for of it since.
#[derive(Debug)]
struct Used {
    at: Instant,
    bytes: u64,
}

impl MemoryCopy {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Notes that part of it is sent. It counts as used when an eighth of it was asked for, so that
    /// nobody keeps it in its place for a byte.
    fn ask(&self, bytes: u64, now: Instant) {
        let mut used = lock(&self.used);
        used.bytes = used.bytes.saturating_add(bytes);
        if used.bytes >= self.origin.state.length / 8 {
            *used = Used { at: now, bytes: 0 };
        }
    }

    fn was_used_within(&self, time: Duration, now: Instant) -> bool {
        now.saturating_duration_since(lock(&self.used).at) < time
    }
}

/// The copies, and the room that they have.
#[derive(Debug)]
struct Copies {
    all: Mutex<Vec<Arc<MemoryCopy>>>,
    taken: Mutex<Taken>,
    bytes_max: u64,
    copies_max: usize,
    /// Held by whoever makes one: one at a time, since each takes a thread and the memory's time.
    making: Mutex<()>,
}

/// Room that is taken, also by copies that are only still being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    bytes: u64,
    copies: usize,
}

/// Room of one copy.
#[derive(Debug)]
struct Share {
    of: &'static Copies,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = lock(&self.of.taken);
        taken.bytes -= self.bytes;
        taken.copies -= 1;
    }
}

/// What comes of the wish for a copy.
enum Made {
    Copy(Arc<MemoryCopy>),
    /// The file was changed lately, or another is being copied.
    NotNow,
    /// All copies that there are are used.
    NoRoom,
}

impl Copies {
    const fn new(bytes_max: u64, copies_max: usize) -> Self {
        let taken = Mutex::new(Taken { bytes: 0, copies: 0 });
        Self { all: Mutex::new(Vec::new()), taken, bytes_max, copies_max, making: Mutex::new(()) }
    }

    /// The copy of a file: one that somebody has made of it, or a new one, which takes as long as
    /// reading it.
    fn get(&'static self, file: &File, now: Instant) -> io::Result<Made> {
        let origin = FileFacts::from(&file.metadata()?);
        if !origin.has_rested(RESTED_TIME) {
            return Ok(Made::NotNow);
        }
        let Ok(_making) = self.making.try_lock() else { return Ok(Made::NotNow) };
        if let Some(found) = lock(&self.all).iter().find(|copy| copy.origin == origin) {
            return Ok(Made::Copy(found.clone()));
        }
        let huge = huge_bytes(origin.state.length);
        let Some(share) = self.take(origin.state.length.max(huge), now) else { return Ok(Made::NoRoom) };
        let copy = File::from(memfd_create("selvedge-file", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        if !fill(&copy, file, origin.state.length, share.bytes, huge)? || FileFacts::from(&file.metadata()?) != origin {
            return Ok(Made::NotNow);
        }
        let used = Mutex::new(Used { at: now, bytes: 0 });
        let copy = Arc::new(MemoryCopy { file: copy, origin, used, share });
        lock(&self.all).push(copy.clone());
        Ok(Made::Copy(copy))
    }

    /// Takes room, from copies that were not used for the longest time where there is none.
    fn take(&'static self, bytes: u64, now: Instant) -> Option<Share> {
        let mut all = lock(&self.all);
        // One that is being sent would keep its room.
        let is_idle = |copy: &&Arc<MemoryCopy>| Arc::strong_count(copy) == 1 && !copy.was_used_within(IDLE_TIME, now);
        let idle = all.iter().filter(is_idle).fold(Taken::default(), |idle, copy| Taken {
            bytes: idle.bytes + copy.share.bytes,
            copies: idle.copies + 1,
        });
        let fits = |taken: Taken| taken.bytes + bytes <= self.bytes_max && taken.copies < self.copies_max;
        let taken = *lock(&self.taken);
        if !fits(Taken { bytes: taken.bytes - idle.bytes, copies: taken.copies - idle.copies }) {
            return None;
        }
        loop {
            let mut taken = lock(&self.taken);
            if fits(*taken) {
                *taken = Taken { bytes: taken.bytes + bytes, copies: taken.copies + 1 };
                return Some(Share { of: self, bytes });
            }
            drop(taken);
            let idle = (0..all.len()).filter(|&at| is_idle(&&all[at]));
            let oldest = idle.min_by_key(|&at| lock(&all[at].used).at)?;
            drop(all.swap_remove(oldest));
        }
    }

    /// Lets go of what was not used for long; whether anything is left.
    fn sweep(&self, now: Instant) -> bool {
        let mut all = lock(&self.all);
        let over: Vec<_> = all.extract_if(.., |copy| !copy.was_used_within(KEPT_TIME, now)).collect();
        let is_left = !all.is_empty();
        drop(all);
        // Giving memory back takes its time.
        drop(over);
        is_left
    }
}

/// Held by whoever lets go of copies that nobody uses.
pub(crate) struct Sweeper(());

static IS_SWEPT: AtomicBool = AtomicBool::new(false);

impl Sweeper {
    /// Nothing where there is one.
    pub(crate) fn begin() -> Option<Self> {
        (!IS_SWEPT.swap(true, Ordering::Relaxed)).then_some(Self(()))
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        IS_SWEPT.store(false, Ordering::Relaxed);
    }
}

/// Lets go of what was not used for long; whether anything is left. For a thread that may wait.
pub(crate) fn sweep() -> bool {
    COPIES.sweep(Instant::now())
}

/// Copies a file and seals the copy; whether there was all of it.
fn fill(copy: &File, file: &File, length: u64, share: u64, huge: u64) -> io::Result<bool> {
    ftruncate(copy, share)?;
    if huge > 0 {
        // Before it is filled: pages that are filled and then moved are copied twice. Only what has a byte is moved.
        for page in (0..huge).step_by(HUGE_PAGE_BYTES) {
            copy.write_all_at(&[0], page)?;
        }
        // Where there are none it is sent from common pages, at more cost.
        let _ = move_to_huge_pages(copy, usize::try_from(huge).unwrap_or(0));
    }
    let mut at = 0;
    while at < length {
        let left = usize::try_from(length - at).unwrap_or(usize::MAX);
        if sendfile(copy, file, Some(&mut at), left)? == 0 {
            return Ok(false);
        }
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
    /// When it was first asked for, and how many bytes, of those times that are no more than
    /// [`IDLE_TIME`] apart.
    since: Option<Instant>,
    bytes: u64,
    last: Option<Instant>,
    /// Until then nobody is told to have it copied.
    rests_until: Option<Instant>,
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
    /// Notes that so many bytes of this state of the file are to be sent.
    pub(crate) fn ask(&self, state: &FileState, bytes: u64, now: Instant) -> Source {
        let mut known = lock(&self.0);
        if let Some(copy) = known.copy.upgrade().filter(|copy| copy.origin.state == *state) {
            copy.ask(bytes, now);
            return Source::Copy(copy);
        }
        if !FILE_BYTES.contains(&state.length) {
            return Source::File;
        }
        let within = |time: Option<Instant>, at_most: Duration| {
            time.is_some_and(|time| now.saturating_duration_since(time) < at_most)
        };
        if !within(known.last.replace(now), IDLE_TIME) {
            (known.since, known.bytes) = (Some(now), 0);
        }
        let before = known.bytes;
        known.bytes = before.saturating_add(bytes);
        let enough = if within(known.since, AGAIN_TIME) { state.length.saturating_mul(OFTEN) } else { state.length };
        if before < enough || known.rests_until.is_some_and(|at| now < at) {
            return Source::File;
        }
        known.rests_until = Some(now + AGAIN_TIME);
        Source::FileWorthCopying
    }

    /// Has the file sent from a copy from now on, if one can be had. It takes as long as reading
    /// the file.
    pub(crate) fn make(&self, file: &File) -> io::Result<()> {
        self.make_among(&COPIES, file, Instant::now())
    }

    fn make_among(&self, copies: &'static Copies, file: &File, now: Instant) -> io::Result<()> {
        let made = copies.get(file, now);
        match &made {
            Ok(Made::Copy(copy)) => lock(&self.0).copy = Arc::downgrade(copy),
            Ok(Made::NotNow) => {}
            // What has failed once is not asked of a disk twice a second.
            Ok(Made::NoRoom) | Err(_) => lock(&self.0).rests_until = Some(now + IDLE_TIME),
        }
        made.map(drop)
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
        Box::leak(Box::new(Copies::new(ROOM, 4)))
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
        while !FileFacts::from(&file.metadata().unwrap()).has_rested(RESTED_TIME) {
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
        const MIB: u64 = 1 << 20;
        let state = |length| FileState { length, modified: (0, 0) };
        let began = Instant::now();
        for (length, bytes, asked_at_ms, worth) in [
            (MIB, MIB, &[0, 1, 499][..], &[][..]),
            (MIB, MIB, &[0, 500], &[500]),
            (MIB, MIB, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2], &[1]),
            (MIB, MIB / 8, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2], &[]),
            (MIB, MIB, &[0, 600, 700, 1099, 1100], &[600, 1100]),
            (MIB, MIB, &[0, 10_000, 20_000], &[]),
            (MIB, MIB, &[0, 9_999], &[9_999]),
            // Parts of it count for what they are.
            (MIB, 1, &[0, 600, 1_200, 1_800], &[]),
            (MIB, MIB / 2, &[0, 600, 1_200, 1_800], &[1_200, 1_800]),
            (*FILE_BYTES.start() - 1, MIB, &[0, 600], &[]),
            (*FILE_BYTES.end(), *FILE_BYTES.end(), &[0, 600], &[600]),
            (*FILE_BYTES.end() + 1, *FILE_BYTES.end() + 1, &[0, 600], &[]),
        ] {
            let copied = Copied::default();
            let is_worth = |&&ms: &&u64| {
                matches!(copied.ask(&state(length), bytes, began + Duration::from_millis(ms)), Source::FileWorthCopying)
            };
            let found: Vec<u64> = asked_at_ms.iter().filter(is_worth).copied().collect();
            assert_eq!(found, worth, "{bytes} of {length} {asked_at_ms:?}");
        }
    }

    #[test]
    fn a_copy_is_of_one_state_and_all_who_open_the_file_share_it() {
        let (copies, file, now) = (copies(), settled(3 << 20), Instant::now());
        let (one, other) = (Copied::default(), Copied::default());
        one.make_among(copies, &file, now).unwrap();
        other.make_among(copies, &file.try_clone().unwrap(), now).unwrap();
        assert_eq!(*lock(&copies.taken), Taken { bytes: 4 << 20, copies: 1 }, "two huge pages, once");
        let state = FileState::of(&file).unwrap();
        let (Source::Copy(a), Source::Copy(b)) = (one.ask(&state, 1, now), other.ask(&state, 1, now)) else {
            panic!("there is a copy")
        };
        assert!(Arc::ptr_eq(&a, &b) && a.file.write_at(b"x", 0).is_err());
        let changed = FileState { length: state.length, modified: (state.modified.0 + 1, 0) };
        assert!(matches!(one.ask(&changed, 1, now), Source::File));
        // Whoever has it open sends what it was; the next copy is another.
        file.write_at(b"x", 0).unwrap();
        one.make_among(copies, &file, now).unwrap();
        assert!(matches!(one.ask(&state, 1, now), Source::Copy(copy) if Arc::ptr_eq(&copy, &a)), "it has just changed");
        settle(&file);
        one.make_among(copies, &file, now).unwrap();
        let state = FileState::of(&file).unwrap();
        assert!(matches!(one.ask(&state, 1, now), Source::Copy(copy) if !Arc::ptr_eq(&copy, &a)));
    }

    /// Files of this size, and whether each has a copy.
    struct Files {
        copies: &'static Copies,
        all: Vec<(File, Copied)>,
        began: Instant,
    }

    impl Files {
        fn new(count: usize, length: u64) -> Self {
            let all = (0..count).map(|_| (settled(length), Copied::default())).collect();
            Self { copies: copies(), all, began: Instant::now() }
        }

        fn is_copied(&self, at: usize) -> bool {
            self.all[at].1.is_of(&FileState::of(&self.all[at].0).unwrap())
        }

        /// Asks for a copy after so many seconds; whether there is one.
        fn has_room(&self, at: usize, seconds: u64) -> bool {
            let (file, copied) = &self.all[at];
            copied.make_among(self.copies, file, self.began + Duration::from_secs(seconds)).unwrap();
            self.is_copied(at)
        }

        /// Asks for so many bytes after so many seconds.
        fn ask(&self, at: usize, bytes: u64, seconds: u64) -> Source {
            let (file, copied) = &self.all[at];
            copied.ask(&FileState::of(file).unwrap(), bytes, self.began + Duration::from_secs(seconds))
        }
    }

    #[test]
    fn copies_have_a_bound_and_those_that_nobody_uses_make_room() {
        let files = Files::new(3, ROOM / 2);
        assert!(files.has_room(0, 0) && files.has_room(1, 1));
        assert!(!files.has_room(2, 9), "the oldest was used lately");
        let Source::Copy(sent) = files.ask(0, ROOM, 5) else { panic!("it is copied") };
        assert!(!files.has_room(2, 10));
        assert!(files.has_room(2, 11) && files.is_copied(0) && !files.is_copied(1), "the other one was idle");
        // One that is being sent has its room until it is sent.
        assert!(!files.has_room(1, 15));
        drop(sent);
        assert!(files.has_room(1, 16) && !files.is_copied(0));
        assert_eq!(*lock(&files.copies.taken), Taken { bytes: ROOM, copies: 2 });
        // A file that nobody has open any more keeps its copy until the sweep.
        assert!(files.copies.sweep(files.began + KEPT_TIME + Duration::from_secs(15)) && files.is_copied(1));
        assert!(!files.copies.sweep(files.began + KEPT_TIME + Duration::from_secs(16)));
        assert_eq!(*lock(&files.copies.taken), Taken::default());
    }

    #[test]
    fn what_would_not_make_enough_room_stays() {
        let files = Files::new(2, ROOM / 2);
        let large = settled(ROOM);
        assert!(files.has_room(0, 0) && files.has_room(1, 5));
        let copied = Copied::default();
        copied.make_among(files.copies, &large, files.began + Duration::from_secs(12)).unwrap();
        assert!(files.is_copied(0) && files.is_copied(1) && !copied.is_of(&FileState::of(&large).unwrap()));
    }

    #[test]
    fn descriptors_have_a_bound() {
        let files = Files::new(5, 64 << 10);
        assert!((0..4).all(|at| files.has_room(at, at as u64)) && !files.has_room(4, 9));
        assert!(files.has_room(4, 10) && !files.is_copied(0));
    }

    #[test]
    fn a_byte_now_and_then_keeps_no_copy_in_its_place() {
        let files = Files::new(3, ROOM / 2);
        assert!(files.has_room(0, 0) && files.has_room(1, 0));
        for seconds in 1..10 {
            drop(files.ask(0, 1, seconds));
            drop(files.ask(1, ROOM / 2 / 8 / 9 + 1, seconds));
        }
        assert!(files.has_room(2, 10) && !files.is_copied(0) && files.is_copied(1));
    }
}
