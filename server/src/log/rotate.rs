//! Puts log files aside under names that tell the time, and deals with them: compresses
//! them on a thread of its own, and removes the oldest.
//!
//! `access.log` becomes `access.log.20261122T002405.123Z`, then `….123Z.gz`. What is done
//! with what was put aside is found by looking at the directory, so whatever an earlier run
//! was interrupted in is finished by the next.

use super::health::Health;
use super::plan::{Level, Packing, Rotation};
use super::time::TimePattern;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a file that was put aside is left alone: another process that shares the log
/// looks once a second whether it was, and may write to it until then.
const SETTLE_TIME: Duration = Duration::from_secs(3);
/// Names that are tried, a millisecond apart, before putting a file aside fails.
const NAMES_MAX: usize = 1000;
/// The length of a stamp such as `20261122T002405.123Z`.
const STAMP_BYTES: usize = 20;

/// Jobs that may wait. Each does all there is to do for its log, so one that finds no room
/// is done by the next.
const JOBS_MAX: usize = 256;

/// The thread that deals with what was put aside. It starts with the first log that needs it
/// and ends with the last; what it has not finished by the end of the program is finished
/// by the next one.
#[derive(Default)]
pub(super) struct Housekeeper {
    jobs: OnceLock<SyncSender<Job>>,
}

/// One log's way to have its files dealt with.
pub(super) struct Rotating {
    rotation: Rotation,
    job: Job,
    jobs: SyncSender<Job>,
}

#[derive(Clone)]
struct Job {
    path: PathBuf,
    rotation: Rotation,
    health: Arc<Health>,
    /// Not to be begun before.
    due: Instant,
}

impl Housekeeper {
    /// Takes a log on.
    pub(super) fn take_on(&self, path: &Path, rotation: Rotation, health: &Arc<Health>) -> io::Result<Rotating> {
        let jobs = match self.jobs.get() {
            Some(jobs) => jobs.clone(),
            None => {
                let (jobs, received) = sync_channel(JOBS_MAX);
                thread::Builder::new().name("selvedge-rotate".to_owned()).spawn(move || keep_house(&received))?;
                self.jobs.get_or_init(|| jobs).clone()
            }
        };
        let job = Job { path: path.to_owned(), rotation, health: health.clone(), due: Instant::now() };
        Ok(Rotating { rotation, job, jobs })
    }
}

impl Rotating {
    /// Whether a file has to be put aside before `len` bytes are written to it.
    pub(super) fn is_due(&self, size: u64, written: SystemTime, len: usize, now: SystemTime) -> bool {
        let too_large = self.rotation.bytes.is_some_and(|most| size.saturating_add(len as u64) > most);
        too_large || self.rotation.every.is_some_and(|span| span_of(now, span) > span_of(written, span))
    }

    /// Gives a file a name that tells the time.
    pub(super) fn put_aside(&self, path: &Path, now: SystemTime) -> io::Result<()> {
        for millis in (since_epoch(now).as_millis()..).take(NAMES_MAX) {
            let aside = with_suffix(path, &format!(".{}", stamp(millis)));
            if !aside.exists() && !with_suffix(&aside, ".gz").exists() {
                return fs::rename(path, aside);
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is no free name to put the file aside"))
    }

    /// Has what was put aside dealt with, once nobody writes to it any more.
    pub(super) fn tidy_soon(&self) {
        let due = Instant::now() + SETTLE_TIME;
        let _ = self.jobs.try_send(Job { due, ..self.job.clone() });
    }

    /// The same, for what an earlier run has left.
    pub(super) fn tidy_now(&self) {
        let _ = self.jobs.try_send(self.job.clone());
    }

    /// Says that a file could not be put aside.
    pub(super) fn failed(&self, error: &io::Error) {
        let text = format!("cannot put {} aside, it grows on: {error}", self.job.health.name());
        self.job.health.note(Level::Error, "LogRotationFailed", text);
    }
}

fn keep_house(jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        // Jobs come in the order in which they are due, or nearly so.
        thread::sleep(job.due.saturating_duration_since(Instant::now()));
        let problem = match catch_unwind(AssertUnwindSafe(|| tidy(&job.path, job.rotation))) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a panic, said on standard error".to_owned(),
        };
        let text = format!("cannot deal with what was put aside of {}: {problem}", job.health.name());
        job.health.note(Level::Error, "LogRotationFailed", text);
    }
}

/// Compresses and removes what is to be compressed and removed of the files that were put
/// aside of `path`.
fn tidy(path: &Path, rotation: Rotation) -> io::Result<()> {
    let mut stamps = Vec::new();
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name() else { return Ok(()) };
    for entry in fs::read_dir(directory)? {
        let entry = entry?.file_name();
        let Some(rest) = entry.as_encoded_bytes().strip_prefix(name.as_encoded_bytes()) else { continue };
        let Some((stamp, state)) = std::str::from_utf8(rest).ok().and_then(taken_apart) else { continue };
        if state == Some(".gz.part") {
            fs::remove_file(with_suffix(path, &format!(".{stamp}.gz.part")))?;
        } else {
            stamps.push(stamp.to_owned());
        }
    }
    stamps.sort_unstable();
    // A file and its compressed self have one stamp.
    stamps.dedup();
    let keep_from = stamps.len().saturating_sub(rotation.keep);
    for (number, stamp) in stamps.iter().enumerate() {
        let aside = with_suffix(path, &format!(".{stamp}"));
        if number < keep_from {
            remove_if_there(&aside)?;
            remove_if_there(&with_suffix(&aside, ".gz"))?;
        } else if rotation.packing == Packing::Gzip {
            pack(&aside)?;
        }
    }
    Ok(())
}

/// Compresses a file, unless that is done; then the file itself goes.
fn pack(aside: &Path) -> io::Result<()> {
    let (packed, part) = (with_suffix(aside, ".gz"), with_suffix(aside, ".gz.part"));
    if packed.exists() {
        // A file is given this name when it is complete.
        return remove_if_there(aside);
    }
    let mut source = File::open(aside)?;
    let facts = source.metadata()?;
    let target = OpenOptions::new().write(true).create_new(true).mode(facts.mode() & 0o777).open(&part)?;
    let mut encoder = GzEncoder::new(target, Compression::default());
    let outcome = io::copy(&mut source, &mut encoder).and_then(|_| encoder.finish()).and_then(|target| {
        target.set_modified(facts.modified()?)?;
        target.sync_all()
    });
    // Somebody wrote to it meanwhile: it is left for the next time.
    if outcome.is_err() || fs::metadata(aside)?.size() != facts.size() {
        fs::remove_file(&part)?;
        return outcome;
    }
    fs::rename(&part, &packed)?;
    fs::remove_file(aside)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Takes `.STAMP` or `.STAMP.gz` apart; other names are not ours.
fn taken_apart(rest: &str) -> Option<(&str, Option<&str>)> {
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

/// `20261122T002405.123Z`, which sorts as time does.
fn stamp(millis: u128) -> String {
    let mut pattern = TimePattern::parse("%Y%m%dT%H%M%S").expect("a test makes stamps");
    let second = pattern.at(i64::try_from(millis / 1000).unwrap_or(i64::MAX));
    format!("{}.{:03}Z", String::from_utf8_lossy(second), millis % 1000)
}

/// The number of the span that a moment is in.
fn span_of(time: SystemTime, span: Duration) -> u128 {
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
