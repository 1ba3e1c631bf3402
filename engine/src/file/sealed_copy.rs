//! Sealed in-memory copies (memfd) of frequently requested files.
//!
//! A copy cannot change, so a response is sent from it without checking the file and without
//! copying bytes. All workers share a copy, independent of which worker opened the file. The total
//! size and number of copies is limited: a copy that is unused for [`IDLE_AFTER`] can be evicted for
//! another copy, and one that is unused for [`EXPIRE_AFTER`] is dropped.

use crate::file::{FileStamp, memory_limit};
use crate::net::sys::{HUGE_PAGE_BYTES, move_to_huge_pages};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, sendfile};
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

/// Maximum total size of all copies, if the process may use at least eight times as much memory.
const POOL_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of copies, if the file descriptor limit permits; each copy needs one descriptor.
const COPIES_MAX: usize = 2048;
/// Copying a smaller file saves nothing; a larger one would use more than half of the budget.
const FILE_BYTES_RANGE: RangeInclusive<u64> = 32 << 10..=POOL_BYTES_MAX / 2;
/// A file that is requested again after this time, and within [`IDLE_AFTER`], is copied.
const REUSE_INTERVAL_MIN: Duration = Duration::from_millis(500);
/// A file that is requested this often within [`REUSE_INTERVAL_MIN`] is copied at once, since each
/// response without a copy copies the file's bytes.
const USES_FOR_IMMEDIATE_COPY: u64 = 8;
/// A copy that is unused for this time may be evicted for another copy.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// A copy that is unused for this time is dropped.
const EXPIRE_AFTER: Duration = Duration::from_secs(60);
/// Interval between sweeps for expired copies.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// A file changed less than this ago is not copied: a file that is being written in place may
/// keep the times of the first write, and the cache would retain an incomplete copy.
const UNCHANGED_TIME_MIN: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(10) };

/// The copies of this process.
static COPIES: LazyLock<SealedCopies> = LazyLock::new(|| {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let copies_max = usize::try_from(descriptors / 32).unwrap_or(usize::MAX).clamp(1, COPIES_MAX);
    SealedCopies::new(POOL_BYTES_MAX.min(memory_limit::bytes_max() / 8), copies_max)
});

/// Returns the maximum total size of all copies in bytes.
pub(crate) fn bytes_max() -> u64 {
    COPIES.bytes_max
}

/// A sealed copy of one state of a file.
#[derive(Debug)]
pub(crate) struct SealedCopy {
    file: File,
    /// The file and state that was copied.
    origin: FileStamp,
    last_use: Mutex<LastUse>,
    /// Returned when the file is closed, so it must be declared after `file`.
    budget_share: BudgetShare,
}

/// When a copy was last used, and the bytes requested since then.
#[derive(Debug)]
struct LastUse {
    at: Instant,
    bytes_since: u64,
}

impl SealedCopy {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Records a response from this copy. The copy counts as used after one eighth of it was
    /// requested, so that single-byte requests do not protect it from eviction.
    fn record_use(&self, bytes: u64, now: Instant) {
        let mut used = lock(&self.last_use);
        used.bytes_since = used.bytes_since.saturating_add(bytes);
        if used.bytes_since >= self.origin.length / 8 {
            *used = LastUse { at: now, bytes_since: 0 };
        }
    }

    fn was_used_within(&self, time: Duration, now: Instant) -> bool {
        now.saturating_duration_since(lock(&self.last_use).at) < time
    }
}

/// The copies and their budget.
#[derive(Debug)]
struct SealedCopies {
    all: Mutex<Vec<Arc<SealedCopy>>>,
    budget_used: Mutex<BudgetUsed>,
    bytes_max: u64,
    copies_max: usize,
    /// Locked while a copy is made: one at a time, since each occupies a thread and memory bandwidth.
    copying: Mutex<()>,
}

/// Budget in use, including evicted copies that are still being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BudgetUsed {
    bytes: u64,
    copies: usize,
}

/// The budget of one copy; returned on drop.
#[derive(Debug)]
struct BudgetShare {
    owner: &'static SealedCopies,
    bytes: u64,
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        let mut used = lock(&self.owner.budget_used);
        used.bytes -= self.bytes;
        used.copies -= 1;
    }
}

/// The outcome of an attempt to copy a file.
enum CopyOutcome {
    Copy(Arc<SealedCopy>),
    /// The file was changed recently, or another file is being copied.
    NotNow,
    /// The budget is exhausted, and evicting idle copies would not free enough.
    NoBudget,
}

impl SealedCopies {
    const fn new(bytes_max: u64, copies_max: usize) -> Self {
        let budget_used = Mutex::new(BudgetUsed { bytes: 0, copies: 0 });
        Self { all: Mutex::new(Vec::new()), budget_used, bytes_max, copies_max, copying: Mutex::new(()) }
    }

    /// Returns an existing copy of the file or makes a new one, which takes as long as reading it.
    fn find_or_copy(&'static self, file: &File, now: Instant) -> io::Result<CopyOutcome> {
        let origin = FileStamp::of(file)?;
        if !origin.is_unchanged_for(UNCHANGED_TIME_MIN, SystemTime::now()) {
            return Ok(CopyOutcome::NotNow);
        }
        let Ok(_copying) = self.copying.try_lock() else { return Ok(CopyOutcome::NotNow) };
        if let Some(found) = lock(&self.all).iter().find(|copy| copy.origin == origin) {
            return Ok(CopyOutcome::Copy(found.clone()));
        }
        let huge = huge_bytes(origin.length);
        let Some(share) = self.reserve(origin.length.max(huge), now) else { return Ok(CopyOutcome::NoBudget) };
        let copy = File::from(memfd_create("selvedge-file", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        if !fill(&copy, file, origin.length, share.bytes, huge)? || FileStamp::of(file)? != origin {
            return Ok(CopyOutcome::NotNow);
        }
        let used = Mutex::new(LastUse { at: now, bytes_since: 0 });
        let copy = Arc::new(SealedCopy { file: copy, origin, last_use: used, budget_share: share });
        lock(&self.all).push(copy.clone());
        Ok(CopyOutcome::Copy(copy))
    }

    /// Reserves budget; evicts the least recently used idle copies if necessary.
    fn reserve(&'static self, bytes: u64, now: Instant) -> Option<BudgetShare> {
        let mut all = lock(&self.all);
        // Evicting a copy that is being sent would not free its memory.
        let is_idle = |copy: &&Arc<SealedCopy>| Arc::strong_count(copy) == 1 && !copy.was_used_within(IDLE_AFTER, now);
        let idle = all.iter().filter(is_idle).fold(BudgetUsed::default(), |idle, copy| BudgetUsed {
            bytes: idle.bytes + copy.budget_share.bytes,
            copies: idle.copies + 1,
        });
        let fits = |used: BudgetUsed| used.bytes + bytes <= self.bytes_max && used.copies < self.copies_max;
        let used = *lock(&self.budget_used);
        if !fits(BudgetUsed { bytes: used.bytes - idle.bytes, copies: used.copies - idle.copies }) {
            return None;
        }
        loop {
            let mut used = lock(&self.budget_used);
            if fits(*used) {
                *used = BudgetUsed { bytes: used.bytes + bytes, copies: used.copies + 1 };
                return Some(BudgetShare { owner: self, bytes });
            }
            drop(used);
            let idle = (0..all.len()).filter(|&at| is_idle(&&all[at]));
            let oldest = idle.min_by_key(|&at| lock(&all[at].last_use).at)?;
            drop(all.swap_remove(oldest));
        }
    }

    /// Drops expired copies. Returns whether any copies remain.
    fn sweep(&self, now: Instant) -> bool {
        let mut all = lock(&self.all);
        let expired: Vec<_> = all.extract_if(.., |copy| !copy.was_used_within(EXPIRE_AFTER, now)).collect();
        let has_copies = !all.is_empty();
        drop(all);
        // Freeing memory is slow, so it is done without the lock.
        drop(expired);
        has_copies
    }
}

/// Held by the task that sweeps for expired copies; at most one exists.
pub(crate) struct SweeperGuard(());

static HAS_SWEEPER: AtomicBool = AtomicBool::new(false);

impl SweeperGuard {
    /// Acquires the guard, unless a sweeper is already running.
    pub(crate) fn acquire() -> Option<Self> {
        (!HAS_SWEEPER.swap(true, Ordering::Relaxed)).then_some(Self(()))
    }
}

impl Drop for SweeperGuard {
    fn drop(&mut self) {
        HAS_SWEEPER.store(false, Ordering::Relaxed);
    }
}

/// Drops expired copies. Returns whether any copies remain. May block.
pub(crate) fn sweep() -> bool {
    COPIES.sweep(Instant::now())
}

/// Copies a file and seals the copy. Returns whether the file had `length` bytes.
fn fill(copy: &File, file: &File, length: u64, size: u64, huge: u64) -> io::Result<bool> {
    ftruncate(copy, size)?;
    if huge > 0 {
        // Before filling, since moving filled pages copies them again. Only allocated pages are moved.
        for page in (0..huge).step_by(HUGE_PAGE_BYTES) {
            copy.write_all_at(&[0], page)?;
        }
        // Without huge pages the copy works, but sending it costs more.
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

/// Returns how many bytes of a copy go into huge pages; each huge page is at least half full.
fn huge_bytes(length: u64) -> u64 {
    const HUGE: u64 = HUGE_PAGE_BYTES as u64;
    (length + HUGE / 2) / HUGE * HUGE
}

/// The copy of an open file, and recent requests for the file.
#[derive(Debug, Default)]
pub(crate) struct CopyState(Mutex<CopyRecord>);

#[derive(Debug, Default)]
struct CopyRecord {
    copy: Weak<SealedCopy>,
    /// Time of the first request, and bytes requested since then. Reset after a gap of more than
    /// [`IDLE_AFTER`].
    first_request: Option<Instant>,
    bytes_requested: u64,
    last_request: Option<Instant>,
    /// No copy is requested before this time.
    retry_after: Option<Instant>,
}

/// What to send a response from.
#[derive(Debug)]
pub(crate) enum SendSource {
    Copy(Arc<SealedCopy>),
    File,
    /// The file, which the caller should copy in the background.
    FileWorthCopying,
}

impl CopyState {
    /// Records a request for `bytes` bytes of this file state, and chooses what to send from.
    pub(crate) fn choose_source(&self, stamp: &FileStamp, bytes: u64, now: Instant) -> SendSource {
        let mut record = lock(&self.0);
        if let Some(copy) = record.copy.upgrade().filter(|copy| copy.origin.has_content_of(stamp)) {
            copy.record_use(bytes, now);
            return SendSource::Copy(copy);
        }
        if !FILE_BYTES_RANGE.contains(&stamp.length) {
            return SendSource::File;
        }
        let within = |time: Option<Instant>, limit: Duration| {
            time.is_some_and(|time| now.saturating_duration_since(time) < limit)
        };
        if !within(record.last_request.replace(now), IDLE_AFTER) {
            (record.first_request, record.bytes_requested) = (Some(now), 0);
        }
        let before = record.bytes_requested;
        record.bytes_requested = before.saturating_add(bytes);
        let enough = if within(record.first_request, REUSE_INTERVAL_MIN) {
            stamp.length.saturating_mul(USES_FOR_IMMEDIATE_COPY)
        } else {
            stamp.length
        };
        if before < enough || record.retry_after.is_some_and(|at| now < at) {
            return SendSource::File;
        }
        record.retry_after = Some(now + REUSE_INTERVAL_MIN);
        SendSource::FileWorthCopying
    }

    /// Copies the file if possible; later responses are sent from the copy. Takes as long as
    /// reading the file.
    pub(crate) fn ensure_copied(&self, file: &File) -> io::Result<()> {
        self.ensure_copied_in(&COPIES, file, Instant::now())
    }

    fn ensure_copied_in(&self, copies: &'static SealedCopies, file: &File, now: Instant) -> io::Result<()> {
        let outcome = copies.find_or_copy(file, now);
        match &outcome {
            Ok(CopyOutcome::Copy(copy)) => lock(&self.0).copy = Arc::downgrade(copy),
            Ok(CopyOutcome::NotNow) => {}
            // After a failure, wait longer before trying again.
            Ok(CopyOutcome::NoBudget) | Err(_) => lock(&self.0).retry_after = Some(now + IDLE_AFTER),
        }
        outcome.map(drop)
    }

    /// Returns whether a copy of this file state exists.
    pub(crate) fn has_copy_of(&self, stamp: &FileStamp) -> bool {
        lock(&self.0).copy.upgrade().is_some_and(|copy| copy.origin.has_content_of(stamp))
    }
}

/// Locks a mutex. The code that runs under these locks does not panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const POOL_BYTES: u64 = 8 << 20;

    fn copies() -> &'static SealedCopies {
        Box::leak(Box::new(SealedCopies::new(POOL_BYTES, 4)))
    }

    /// Creates a file of this length that counts as unchanged.
    fn unchanging_file(length: u64) -> File {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(length).unwrap();
        wait_until_stable(&file);
        file
    }

    /// Waits until the file counts as unchanged; depends on the system clock.
    fn wait_until_stable(file: &File) {
        while !FileStamp::of(file).unwrap().is_unchanged_for(UNCHANGED_TIME_MIN, SystemTime::now()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn huge_pages_are_at_least_half_full() {
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
    fn repeatedly_requested_file_is_worth_copying() {
        const MIB: u64 = 1 << 20;
        let stamp = |length| FileStamp { device: 0, inode: 0, length, modified: (0, 0), changed: (0, 0) };
        let began = Instant::now();
        for (length, bytes, requested_at_ms, expected) in [
            (MIB, MIB, &[0, 1, 499][..], &[][..]),
            (MIB, MIB, &[0, 500], &[500]),
            (MIB, MIB, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2], &[1]),
            (MIB, MIB / 8, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2], &[]),
            (MIB, MIB, &[0, 600, 700, 1099, 1100], &[600, 1100]),
            (MIB, MIB, &[0, 10_000, 20_000], &[]),
            (MIB, MIB, &[0, 9_999], &[9_999]),
            // Ranges count in proportion to their length.
            (MIB, 1, &[0, 600, 1_200, 1_800], &[]),
            (MIB, MIB / 2, &[0, 600, 1_200, 1_800], &[1_200, 1_800]),
            (*FILE_BYTES_RANGE.start() - 1, MIB, &[0, 600], &[]),
            (*FILE_BYTES_RANGE.end(), *FILE_BYTES_RANGE.end(), &[0, 600], &[600]),
            (*FILE_BYTES_RANGE.end() + 1, *FILE_BYTES_RANGE.end() + 1, &[0, 600], &[]),
        ] {
            let copy_state = CopyState::default();
            let is_worth = |&&ms: &&u64| {
                matches!(
                    copy_state.choose_source(&stamp(length), bytes, began + Duration::from_millis(ms)),
                    SendSource::FileWorthCopying
                )
            };
            let found: Vec<u64> = requested_at_ms.iter().filter(is_worth).copied().collect();
            assert_eq!(found, expected, "{bytes} of {length} {requested_at_ms:?}");
        }
    }

    #[test]
    fn open_files_share_one_copy_per_file_state() {
        let (copies, file, now) = (copies(), unchanging_file(3 << 20), Instant::now());
        let (one, other) = (CopyState::default(), CopyState::default());
        one.ensure_copied_in(copies, &file, now).unwrap();
        other.ensure_copied_in(copies, &file.try_clone().unwrap(), now).unwrap();
        assert_eq!(*lock(&copies.budget_used), BudgetUsed { bytes: 4 << 20, copies: 1 }, "two huge pages, in one copy");
        let state = FileStamp::of(&file).unwrap();
        let (SendSource::Copy(a), SendSource::Copy(b)) =
            (one.choose_source(&state, 1, now), other.choose_source(&state, 1, now))
        else {
            panic!("the file has no copy")
        };
        assert!(Arc::ptr_eq(&a, &b) && a.file.write_at(b"x", 0).is_err());
        let changed = FileStamp { modified: (state.modified.0 + 1, 0), ..state };
        assert!(matches!(one.choose_source(&changed, 1, now), SendSource::File));
        // Responses already started still send the old state; the next copy is a new one.
        file.write_at(b"x", 0).unwrap();
        one.ensure_copied_in(copies, &file, now).unwrap();
        assert!(
            matches!(one.choose_source(&state, 1, now), SendSource::Copy(copy) if Arc::ptr_eq(&copy, &a)),
            "the file has just changed"
        );
        wait_until_stable(&file);
        one.ensure_copied_in(copies, &file, now).unwrap();
        let state = FileStamp::of(&file).unwrap();
        assert!(matches!(one.choose_source(&state, 1, now), SendSource::Copy(copy) if !Arc::ptr_eq(&copy, &a)));
    }

    /// Files of one size, and their copy states.
    struct FileSet {
        copies: &'static SealedCopies,
        all: Vec<(File, CopyState)>,
        began: Instant,
    }

    impl FileSet {
        fn new(count: usize, length: u64) -> Self {
            let all = (0..count).map(|_| (unchanging_file(length), CopyState::default())).collect();
            Self { copies: copies(), all, began: Instant::now() }
        }

        fn is_copied(&self, at: usize) -> bool {
            self.all[at].1.has_copy_of(&FileStamp::of(&self.all[at].0).unwrap())
        }

        /// Tries to copy a file `seconds` after the start. Returns whether a copy exists.
        fn try_copy(&self, at: usize, seconds: u64) -> bool {
            let (file, copied) = &self.all[at];
            copied.ensure_copied_in(self.copies, file, self.began + Duration::from_secs(seconds)).unwrap();
            self.is_copied(at)
        }

        /// Requests `bytes` bytes of a file `seconds` after the start.
        fn request(&self, at: usize, bytes: u64, seconds: u64) -> SendSource {
            let (file, copied) = &self.all[at];
            copied.choose_source(&FileStamp::of(file).unwrap(), bytes, self.began + Duration::from_secs(seconds))
        }
    }

    #[test]
    fn idle_copies_are_evicted_when_the_byte_limit_is_reached() {
        let files = FileSet::new(3, POOL_BYTES / 2);
        assert!(files.try_copy(0, 0) && files.try_copy(1, 1));
        assert!(!files.try_copy(2, 9), "the oldest copy was used recently");
        let SendSource::Copy(sent) = files.request(0, POOL_BYTES, 5) else { panic!("the file is not copied") };
        assert!(!files.try_copy(2, 10));
        assert!(files.try_copy(2, 11) && files.is_copied(0) && !files.is_copied(1), "only the other copy was idle");
        // A copy that is being sent keeps its budget until it is sent.
        assert!(!files.try_copy(1, 15));
        drop(sent);
        assert!(files.try_copy(1, 16) && !files.is_copied(0));
        assert_eq!(*lock(&files.copies.budget_used), BudgetUsed { bytes: POOL_BYTES, copies: 2 });
        // The copy of a file that is no longer open stays until the sweep.
        assert!(files.copies.sweep(files.began + EXPIRE_AFTER + Duration::from_secs(15)) && files.is_copied(1));
        assert!(!files.copies.sweep(files.began + EXPIRE_AFTER + Duration::from_secs(16)));
        assert_eq!(*lock(&files.copies.budget_used), BudgetUsed::default());
    }

    #[test]
    fn copies_stay_if_evicting_them_would_not_free_enough() {
        let files = FileSet::new(2, POOL_BYTES / 2);
        let large = unchanging_file(POOL_BYTES);
        assert!(files.try_copy(0, 0) && files.try_copy(1, 5));
        let copied = CopyState::default();
        copied.ensure_copied_in(files.copies, &large, files.began + Duration::from_secs(12)).unwrap();
        assert!(files.is_copied(0) && files.is_copied(1) && !copied.has_copy_of(&FileStamp::of(&large).unwrap()));
    }

    #[test]
    fn number_of_copies_is_limited() {
        let files = FileSet::new(5, 64 << 10);
        assert!((0..4).all(|at| files.try_copy(at, at as u64)) && !files.try_copy(4, 9));
        assert!(files.try_copy(4, 10) && !files.is_copied(0));
    }

    #[test]
    fn small_requests_do_not_protect_a_copy_from_eviction() {
        let files = FileSet::new(3, POOL_BYTES / 2);
        assert!(files.try_copy(0, 0) && files.try_copy(1, 0));
        for seconds in 1..10 {
            drop(files.request(0, 1, seconds));
            drop(files.request(1, POOL_BYTES / 2 / 8 / 9 + 1, seconds));
        }
        assert!(files.try_copy(2, 10) && !files.is_copied(0) && files.is_copied(1));
    }
}
