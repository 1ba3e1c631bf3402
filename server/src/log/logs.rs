//! All logs of the program: what is shared by the workers that make lines and the threads
//! that write them.

use super::access::Format;
use super::error::{Crowd, ErrorLog, Event, Lines};
use super::health::Health;
use super::outlet::{self, Connect, Means, Outlet};
use super::pen::Pen;
use super::plan::{AccessPlan, Destination, ErrorForm, ErrorPlan, Level, LogPlan, SitePlan};
use super::rotate::Housekeeper;
use super::writer::{AccessWriter, Batch, ErrorWriter, Message, Reopening, run_to_end};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Batches of access lines that may wait for one thread: as a rule 32 KiB each.
const BATCHES_MAX: usize = 1024;
/// Errors that may wait to be written.
const ERRORS_MAX: usize = 1024;
/// Threads that share the logs that are files. All else has a thread of its own each, since
/// it may wait for somebody.
const FILE_THREADS_MAX: usize = 4;
/// How long the end waits for what is left to be written: whoever reads the log and has
/// stopped to read it must not keep the program from ending.
const FINISH_TIME: Duration = Duration::from_secs(5);

/// The logs of the program.
#[derive(Debug)]
pub(crate) struct Logs {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// Why the logs cannot be started: which of them, and what the system said.
#[derive(Debug)]
pub(crate) struct LogProblem {
    pub(crate) log: String,
    /// Its file, where it is one.
    pub(crate) path: Option<PathBuf>,
    pub(crate) error: io::Error,
}

impl LogProblem {
    fn of(destination: &Destination, log: &str, error: io::Error) -> Self {
        let path = match destination {
            Destination::File { path, .. } => Some(path.clone()),
            _ => None,
        };
        Self { log: log.to_owned(), path, error }
    }
}

impl fmt::Display for LogProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot open {}: {}", self.log, self.error)
    }
}

/// The workers' end of the logs. Sending never waits.
#[derive(Debug)]
pub(super) struct Queue {
    access: Vec<AccessQueue>,
    /// The server's first.
    errors: Vec<ErrorQueue>,
    sites: Vec<SitePlan>,
    reopen_asked: Arc<AtomicU64>,
}

/// The way to one error log.
#[derive(Debug)]
struct ErrorQueue {
    events: SyncSender<Message<Event>>,
    crowd: Arc<Crowd>,
    health: Arc<Health>,
    level: Level,
}

/// The way to one access log.
#[derive(Debug)]
struct AccessQueue {
    format: Format,
    batches: SyncSender<Message<Batch>>,
    /// Which of the logs of its thread.
    place: usize,
    health: Arc<Health>,
}

impl Queue {
    /// The formats of the access logs, in order.
    pub(super) fn formats(&self) -> impl Iterator<Item = Format> {
        self.access.iter().map(|access| access.format.clone())
    }

    /// The site of a number.
    pub(super) fn site(&self, number: u32) -> &SitePlan {
        self.sites.get(number as usize).unwrap_or(&self.sites[0])
    }

    /// Hands on whole lines of an access log, or counts them as lost.
    pub(super) fn access(&self, log: usize, lines: Vec<u8>, count: u64) {
        let AccessQueue { batches, place, health, .. } = &self.access[log];
        if batches.try_send(Message::Write(Batch { place: *place, lines, count })).is_err() {
            health.lose(count);
        }
    }

    /// Whether something as bad as this is written in the server's error log.
    pub(super) fn wants(&self, level: Level) -> bool {
        level <= self.errors[0].level
    }

    /// Hands on something for the server's error log.
    pub(super) fn error(&self, event: Event) {
        self.errors[0].take(event);
    }

    /// Hands on something for the error log of a site.
    pub(super) fn error_of(&self, site: &SitePlan, event: Event) {
        self.errors[site.error.map_or(0, |own| own + 1)].take(event);
    }
}

impl ErrorQueue {
    fn take(&self, event: Event) {
        if event.level > self.level {
            return;
        }
        match self.events.try_send(Message::Write(event)) {
            Err(TrySendError::Full(Message::Write(event))) => self.crowd.push(event),
            Err(_) => self.health.lose(1),
            Ok(()) => {}
        }
    }
}

/// Has the log files opened anew, as after they were moved away.
#[derive(Clone, Debug)]
pub(crate) struct Reopener {
    queue: Weak<Queue>,
}

impl Reopener {
    /// Asks for it; each thread does it before it writes its next line.
    pub(crate) fn reopen(&self) {
        let Some(queue) = self.queue.upgrade() else { return };
        queue.reopen_asked.fetch_add(1, Ordering::Relaxed);
        // A thread whose queue is full looks without being woken.
        for access in &queue.access {
            let _ = access.batches.try_send(Message::Wake);
        }
        for error in &queue.errors {
            let _ = error.events.try_send(Message::Wake);
        }
    }
}

impl Logs {
    /// Opens all logs and starts the threads that write them; `connect` is how the system's
    /// log is reached. When one cannot be opened, none is left open.
    pub(crate) fn start(plan: &LogPlan, connect: Connect) -> Result<Self, LogProblem> {
        check(plan)?;
        let housekeeper = Housekeeper::default();
        let means = Means { connect, housekeeper: &housekeeper };
        let errors = [&plan.error].into_iter().chain(&plan.site_errors);
        let errors: Vec<OpenedError> = errors.map(|error| OpenedError::of(error, means)).collect::<Result<_, _>>()?;
        let opened: Vec<Opened> =
            plan.access.iter().map(|access| Opened::of(access, means)).collect::<Result<_, _>>()?;

        let reopen_asked = Arc::new(AtomicU64::new(0));
        let healths = opened.iter().map(|opened| &opened.health).chain(errors.iter().map(|error| &error.health));
        // The server's error log says how all of them fare.
        let mut healths: Vec<_> = healths.cloned().map(|health| (health, None)).collect();
        let (mut threads, mut error_queues) = (Vec::new(), Vec::<ErrorQueue>::new());
        for OpenedError { outlet, health, form, level } in errors {
            let (sender, events) = sync_channel(ERRORS_MAX);
            let crowd = Arc::new(Crowd::default());
            let writer = ErrorWriter {
                events,
                crowd: crowd.clone(),
                log: ErrorLog::new(form),
                healths: std::mem::take(&mut healths),
                pen: Pen::new(outlet, health.clone()),
                reopening: Reopening::new(reopen_asked.clone()),
                lines: Lines::default(),
            };
            // Keeps the server's open until this one has ended.
            let servers = error_queues.first().map(|first| first.events.clone());
            threads.push(start_thread("selvedge-error", move || {
                run_to_end(writer);
                drop(servers);
            })?);
            error_queues.push(ErrorQueue { events: sender, crowd, health, level });
        }
        let mut groups = Vec::new();
        let access = group(opened, &mut groups);
        for Group { receiver: batches, pens, .. } in groups {
            let (reopening, errors) = (Reopening::new(reopen_asked.clone()), error_queues[0].events.clone());
            let writer = AccessWriter { batches, pens, reopening, in_hand: None, errors };
            threads.push(start_thread("selvedge-access", move || run_to_end(writer))?);
        }
        let mut sites = plan.sites.clone();
        if sites.is_empty() {
            sites.push(SitePlan::default());
        }
        let queue = Queue { access, errors: error_queues, sites, reopen_asked };
        Ok(Self { queue: Arc::new(queue), threads })
    }

    /// What has the log files opened anew. It keeps nothing open.
    pub(crate) fn reopener(&self) -> Reopener {
        Reopener { queue: Arc::downgrade(&self.queue) }
    }

    /// Writes a line about the program itself to the server's error log.
    pub(crate) fn say(&self, level: Level, name: &'static str, text: String) {
        self.queue.error(Event::of_program(level, name, text));
    }

    /// Each log, and how many lines of it were lost since it was opened.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&str, u64)> {
        let access = self.queue.access.iter().map(|access| &access.health);
        let all = access.chain(self.queue.errors.iter().map(|error| &error.health));
        all.map(|health| (health.name(), health.lost_in_all()))
    }

    pub(super) fn queue(&self) -> Arc<Queue> {
        self.queue.clone()
    }

    /// Waits until what is left is written, within bounds. The workers have ended, so the
    /// queues end with this end of them.
    pub(crate) fn finish(self) {
        let Self { queue, threads } = self;
        drop(queue);
        let deadline = Instant::now() + FINISH_TIME;
        while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An error log that is open.
struct OpenedError {
    outlet: Box<dyn Outlet>,
    health: Arc<Health>,
    form: ErrorForm,
    level: Level,
}

impl OpenedError {
    fn of(plan: &ErrorPlan, means: Means<'_>) -> Result<Self, LogProblem> {
        let health = Arc::new(Health::new(format!("the error log {}", plan.destination.describe())));
        let outlet = outlet::open(&plan.destination, "error", &health, means)
            .map_err(|error| LogProblem::of(&plan.destination, health.name(), error))?;
        Ok(Self { outlet, health, form: plan.form, level: plan.level })
    }
}

/// An access log that is open.
struct Opened {
    outlet: Box<dyn Outlet>,
    health: Arc<Health>,
    format: Format,
    sharing: Sharing,
}

/// Whether a log may share a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Shared,
    Alone,
}

impl Opened {
    fn of(plan: &AccessPlan, means: Means<'_>) -> Result<Self, LogProblem> {
        let health = Arc::new(Health::new(format!("the access log {}", plan.destination.describe())));
        let outlet = outlet::open(&plan.destination, "access", &health, means)
            .map_err(|error| LogProblem::of(&plan.destination, health.name(), error))?;
        let sharing = match plan.destination {
            Destination::File { .. } => Sharing::Shared,
            _ => Sharing::Alone,
        };
        Ok(Self { outlet, health, format: plan.format.clone(), sharing })
    }
}

/// The logs of one thread.
struct Group {
    sender: SyncSender<Message<Batch>>,
    receiver: Receiver<Message<Batch>>,
    pens: Vec<Pen>,
    sharing: Sharing,
}

/// Deals logs out to threads; the way to each.
fn group(opened: Vec<Opened>, groups: &mut Vec<Group>) -> Vec<AccessQueue> {
    let mut deal = |Opened { outlet, health, format, sharing }| {
        let shared = groups.iter().filter(|group| group.sharing == Sharing::Shared).count();
        if sharing == Sharing::Alone || shared < FILE_THREADS_MAX {
            let (sender, receiver) = sync_channel(BATCHES_MAX);
            groups.push(Group { sender, receiver, pens: Vec::new(), sharing });
        }
        let fits = groups.iter_mut().filter(|group| group.sharing == sharing);
        let group = fits.min_by_key(|group| group.pens.len()).expect("one was made when there was none");
        group.pens.push(Pen::new(outlet, health.clone()));
        AccessQueue { format, batches: group.sender.clone(), place: group.pens.len() - 1, health }
    };
    opened.into_iter().map(&mut deal).collect()
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LogProblem> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map_err(|error| LogProblem { log: format!("the logs: no thread {name}"), path: None, error })
}

/// Two logs in one file would tear each other's lines and put it aside twice.
fn check(plan: &LogPlan) -> Result<(), LogProblem> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
    let mut files = std::collections::HashSet::new();
    let errors = [&plan.error].into_iter().chain(&plan.site_errors).map(|error| &error.destination);
    for destination in plan.access.iter().map(|access| &access.destination).chain(errors) {
        if let Destination::File { path, .. } = destination
            && !files.insert(path)
        {
            let log = format!("the log {}", path.display());
            return Err(LogProblem::of(destination, &log, invalid("another log is written there")));
        }
    }
    let lacks = |site: &&SitePlan| {
        let no_access = site.access.iter().any(|&log| log >= plan.access.len());
        no_access || site.error.is_some_and(|log| log >= plan.site_errors.len())
    };
    match plan.sites.iter().find(lacks) {
        Some(site) => {
            let log = format!("the logs of {}", site.name);
            Err(LogProblem { log, path: None, error: invalid("there is no such log") })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_nobody_waits() {
        let (batches, received) = sync_channel(2);
        let (errors, events) = sync_channel(1);
        let crowd = Arc::<Crowd>::default();
        let [health, error_health] = [(); 2].map(|()| Arc::new(Health::new("the log".to_owned())));
        let format = Format::named("common").unwrap();
        let queue = Queue {
            access: vec![AccessQueue { format, batches, place: 0, health: health.clone() }],
            errors: vec![ErrorQueue {
                events: errors,
                crowd: crowd.clone(),
                health: error_health.clone(),
                level: Level::Warn,
            }],
            sites: vec![SitePlan::default()],
            reopen_asked: Arc::default(),
        };
        for count in 1..=5 {
            queue.access(0, b"line\n".repeat(count), count as u64);
            queue.error(Event::of_program(Level::Warn, "X", String::new()));
            queue.error(Event::of_program(Level::Info, "X", String::new()));
        }
        queue.error(Event { count: 3, ..Event::of_program(Level::Warn, "Y", String::new()) });
        let loss = health.loss().expect("the third batch did not fit");
        assert_eq!(loss.count, 3 + 4 + 5);
        assert_eq!(loss.text, "lines of the log were lost: they came faster than they were taken");
        assert_eq!(error_health.loss().map(|loss| loss.count), None);
        let mut crowd: Vec<_> = crowd.take().map(|event| (event.key, event.count)).collect();
        crowd.sort_unstable();
        assert_eq!(crowd, [("X", 4), ("Y", 3)], "what is not wanted is not counted");
        assert_eq!((received.try_iter().count(), events.try_iter().count()), (2, 1));
        // What is said is said once, and what was lost meanwhile stays.
        health.lose(7);
        health.said(loss.count);
        assert_eq!(health.loss().map(|loss| loss.count), Some(7));
    }
}
