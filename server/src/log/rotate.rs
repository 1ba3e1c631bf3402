//! Renames log files when they are rotated, compresses them on a separate thread, and removes the oldest.
//!
//! `access.log` becomes `access.log.20261122T002405.123Z`, then `….123Z.gz`. The thread finds its work by listing the
//! directory, so the next start finishes what was interrupted.

use super::config::{Level, RotatedFormat, Rotation};
use super::loss_counter::LossCounter;
use super::time::TimePattern;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a rotated file is left alone. Another process that shares the log checks once a second for the rotation
/// and may write until then.
const SETTLE_TIME: Duration = Duration::from_secs(3);
/// Names that are tried, one millisecond apart, before a rotation fails.
const NAMES_MAX: usize = 1000;
/// Length of a time stamp such as `20261122T002405.123Z`.
const STAMP_BYTES: usize = 20;

/// Jobs that may wait. A job handles all files of its log, so a dropped job is covered by the next one.
const JOBS_MAX: usize = 256;

/// The clean-up thread. It starts with the first log that needs it and ends with the last. The next start finishes
/// what remains.
#[derive(Default)]
pub(super) struct Rotator {
    jobs: OnceLock<SyncSender<CleanupJob>>,
}

/// One log's handle to the clean-up thread.
pub(super) struct RotationHandle {
    rotation: Rotation,
    job: CleanupJob,
    jobs: SyncSender<CleanupJob>,
}

#[derive(Clone)]
struct CleanupJob {
    path: PathBuf,
    rotation: Rotation,
    loss_counter: Arc<LossCounter>,
    /// Earliest start.
    due: Instant,
}

impl Rotator {
    /// Registers a log.
    pub(super) fn register(
        &self,
        path: &Path,
        rotation: Rotation,
        loss_counter: &Arc<LossCounter>,
    ) -> io::Result<RotationHandle> {
        let jobs = match self.jobs.get() {
            Some(jobs) => jobs.clone(),
            None => {
                let (jobs, received) = sync_channel(JOBS_MAX);
                thread::Builder::new().name("selvedge-rotate".to_owned()).spawn(move || run(&received))?;
                self.jobs.get_or_init(|| jobs).clone()
            }
        };
        let job =
            CleanupJob { path: path.to_owned(), rotation, loss_counter: loss_counter.clone(), due: Instant::now() };
        Ok(RotationHandle { rotation, job, jobs })
    }
}

impl RotationHandle {
    /// Whether a file has to be rotated before `len` bytes are written.
    pub(super) fn is_due(&self, size: u64, written: SystemTime, len: usize, now: SystemTime) -> bool {
        let too_large = self.rotation.bytes.is_some_and(|most| size.saturating_add(len as u64) > most);
        too_large || self.rotation.every.is_some_and(|span| period(now, span) > period(written, span))
    }

    /// Renames a file to a name with the current time.
    pub(super) fn rotate(&self, path: &Path, now: SystemTime) -> io::Result<()> {
        for millis in (since_epoch(now).as_millis()..).take(NAMES_MAX) {
            let rotated = with_suffix(path, &format!(".{}", stamp(millis)));
            if !rotated.exists() && !with_suffix(&rotated, ".gz").exists() {
                return fs::rename(path, rotated);
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "no free name for the rotated file"))
    }

    /// Schedules a clean-up for when no process writes to the rotated file any more.
    pub(super) fn schedule_cleanup(&self) {
        let due = Instant::now() + SETTLE_TIME;
        let _ = self.jobs.try_send(CleanupJob { due, ..self.job.clone() });
    }

    /// Schedules an immediate clean-up of what an earlier run left.
    pub(super) fn schedule_cleanup_now(&self) {
        let _ = self.jobs.try_send(self.job.clone());
    }

    /// Reports that a file could not be rotated.
    pub(super) fn failed(&self, error: &io::Error) {
        let text = format!("cannot put {} aside, it grows on: {error}", self.job.loss_counter.name());
        self.job.loss_counter.add_event(Level::Error, "LogRotationFailed", text);
    }
}

fn run(jobs: &Receiver<CleanupJob>) {
    while let Ok(job) = jobs.recv() {
        // Jobs arrive nearly in the order of their start times.
        thread::sleep(job.due.saturating_duration_since(Instant::now()));
        let problem = match catch_unwind(AssertUnwindSafe(|| clean_up(&job.path, job.rotation))) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a panic, printed on standard error".to_owned(),
        };
        let text = format!("cannot deal with what was put aside of {}: {problem}", job.loss_counter.name());
        job.loss_counter.add_event(Level::Error, "LogRotationFailed", text);
    }
}

/// Compresses and removes rotated files of `path`, as configured.
fn clean_up(path: &Path, rotation: Rotation) -> io::Result<()> {
    let mut stamps = Vec::new();
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name() else { return Ok(()) };
    for entry in fs::read_dir(directory)? {
        let entry = entry?.file_name();
        let Some(rest) = entry.as_encoded_bytes().strip_prefix(name.as_encoded_bytes()) else { continue };
        let Some((stamp, state)) = std::str::from_utf8(rest).ok().and_then(parse_name) else { continue };
        if state == Some(".gz.part") {
            fs::remove_file(with_suffix(path, &format!(".{stamp}.gz.part")))?;
        } else {
            stamps.push(stamp.to_owned());
        }
    }
    stamps.sort_unstable();
    // A file and its compressed form have one time stamp.
    stamps.dedup();
    let keep_from = stamps.len().saturating_sub(rotation.keep);
    for (number, stamp) in stamps.iter().enumerate() {
        let rotated = with_suffix(path, &format!(".{stamp}"));
        if number < keep_from {
            remove_if_there(&rotated)?;
            remove_if_there(&with_suffix(&rotated, ".gz"))?;
        } else if rotation.format == RotatedFormat::Gzip {
            compress(&rotated)?;
        }
    }
    Ok(())
}

/// Compresses a file, unless that was done, and removes the original.
fn compress(rotated: &Path) -> io::Result<()> {
    let (compressed, part) = (with_suffix(rotated, ".gz"), with_suffix(rotated, ".gz.part"));
    if compressed.exists() {
        // The compressed file gets this name only when it is complete.
        return remove_if_there(rotated);
    }
    let mut source = File::open(rotated)?;
    let facts = source.metadata()?;
    let target = OpenOptions::new().write(true).create_new(true).mode(facts.mode() & 0o777).open(&part)?;
    keep_access(&target, &facts);
    let mut encoder = GzEncoder::new(target, Compression::default());
    let outcome = io::copy(&mut source, &mut encoder).and_then(|_| encoder.finish()).and_then(|target| {
        target.set_modified(facts.modified()?)?;
        target.sync_all()
    });
    // Another process wrote to it meanwhile, so the next clean-up handles it.
    if outcome.is_err() || fs::metadata(rotated)?.size() != facts.size() {
        fs::remove_file(&part)?;
        return outcome;
    }
    fs::rename(&part, &compressed)?;
    fs::remove_file(rotated)
}

/// Gives a file the owner, the group and the mode of the one that it follows, as far as this process may: a collector
/// that reads one reads the other.
pub(super) fn keep_access(file: &File, earlier: &fs::Metadata) {
    let Ok(now) = file.metadata() else { return };
    if (now.uid(), now.gid()) != (earlier.uid(), earlier.gid())
        && fchown(file, Some(earlier.uid()), Some(earlier.gid())).is_err()
    {
        // Only root may change the owner; a member of the group may set that.
        let _ = fchown(file, None, Some(earlier.gid()));
    }
    let _ = file.set_permissions(fs::Permissions::from_mode(earlier.mode() & 0o777));
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Parses `.STAMP` or `.STAMP.gz`. Other names are not ours.
fn parse_name(rest: &str) -> Option<(&str, Option<&str>)> {
    let (stamp, state) = rest.strip_prefix('.')?.split_at_checked(STAMP_BYTES)?;
    let shape = b"00000000T000000.000Z";
    let is_stamp = stamp.bytes().zip(shape).all(|(byte, &like)| match like {
        b'0' => byte.is_ascii_digit(),
        like => byte == like,
    });
    match state {
        _ if !is_stamp => None,
        "" => Some((stamp, None)),
        ".gz" | ".gz.part" => Some((stamp, Some(state))),
        _ => None,
    }
}

/// Returns a stamp such as `20261122T002405.123Z`, which sorts by time.
fn stamp(millis: u128) -> String {
    let mut pattern = TimePattern::parse("%Y%m%dT%H%M%S").expect("a test makes stamps");
    let second = pattern.at(i64::try_from(millis / 1000).unwrap_or(i64::MAX));
    format!("{}.{:03}Z", String::from_utf8_lossy(second), millis % 1000)
}

/// Returns the number of the period that contains a time.
fn period(time: SystemTime, span: Duration) -> u128 {
    since_epoch(time).as_millis() / span.as_millis().max(1)
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
