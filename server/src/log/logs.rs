//! All logs of the program: the queues that workers write to, and the threads that drain them.

use super::access::Format;
use super::config::{AccessLogConfig, Destination, ErrorFormat, ErrorLogConfig, Level, LogConfig, SiteLogConfig};
use super::error::{ErrorLog, LeveledLines, LogEvent, OverflowEvents};
use super::line_writer::LineWriter;
use super::loss_counter::LossCounter;
use super::rotate::Rotator;
use super::sink::{self, Connect, LogSink, SinkContext};
use super::writer::{AccessWriter, Batch, ErrorWriter, ReopenRequests, WriterCommand, run_to_end};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Batches of access lines that may wait for one thread, usually 32 KiB each.
const BATCHES_MAX: usize = 1024;
/// Events that may wait for an error log.
const ERRORS_MAX: usize = 1024;
/// Threads that share the logs in files. Each other log has its own thread, because its reader may block it.
const FILE_THREADS_MAX: usize = 4;
/// How long the shutdown waits for pending lines. A reader that stopped reading must not keep the program from
/// ending.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);

/// The logs of the program.
#[derive(Debug)]
pub(crate) struct Logs {
    queue: Arc<LogQueues>,
    threads: Vec<JoinHandle<()>>,
}

/// Why the logs cannot be opened: the log, and the error of the system.
#[derive(Debug)]
pub(crate) struct LogProblem {
    pub(crate) log: String,
    /// Path of the log, if it is a file.
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

/// The workers' side of the logs. Sending never waits.
#[derive(Debug)]
pub(super) struct LogQueues {
    access: Vec<AccessQueue>,
    /// The server's error log is first.
    errors: Vec<ErrorQueue>,
    sites: Vec<SiteLogConfig>,
    reopen_requests: Arc<AtomicU64>,
}

/// The queue of one error log.
#[derive(Debug)]
struct ErrorQueue {
    events: SyncSender<WriterCommand<LogEvent>>,
    overflow: Arc<OverflowEvents>,
    loss_counter: Arc<LossCounter>,
    level: Level,
}

/// The queue of one access log.
#[derive(Debug)]
struct AccessQueue {
    format: Format,
    batches: SyncSender<WriterCommand<Batch>>,
    /// Index among the logs of its thread.
    index: usize,
    loss_counter: Arc<LossCounter>,
}

impl LogQueues {
    /// Returns the formats of the access logs, in order.
    pub(super) fn formats(&self) -> impl Iterator<Item = Format> {
        self.access.iter().map(|access| access.format.clone())
    }

    /// Returns the log configuration of a site tag.
    pub(super) fn site(&self, number: u32) -> &SiteLogConfig {
        self.sites.get(number as usize).unwrap_or(&self.sites[0])
    }

    /// Sends whole lines to an access log, or counts them as lost.
    pub(super) fn send_lines(&self, log: usize, lines: Vec<u8>, count: u64) {
        let AccessQueue { batches, index, loss_counter, .. } = &self.access[log];
        if batches.try_send(WriterCommand::Write(Batch { index: *index, lines, count })).is_err() {
            loss_counter.count_lost(count);
        }
    }

    /// Whether the server's error log records this level.
    pub(super) fn wants(&self, level: Level) -> bool {
        level <= self.errors[0].level
    }

    /// Sends an event to the server's error log.
    pub(super) fn send_event(&self, event: LogEvent) {
        self.errors[0].send(event);
    }

    /// Sends an event to the error log of a site.
    pub(super) fn send_site_event(&self, site: &SiteLogConfig, event: LogEvent) {
        self.errors[site.error.map_or(0, |own| own + 1)].send(event);
    }
}

impl ErrorQueue {
    fn send(&self, event: LogEvent) {
        if event.level > self.level {
            return;
        }
        match self.events.try_send(WriterCommand::Write(event)) {
            Err(TrySendError::Full(WriterCommand::Write(event))) => self.overflow.push(event),
            Err(_) => self.loss_counter.count_lost(1),
            Ok(()) => {}
        }
    }
}

/// Reopens the log files, for example after they were moved.
#[derive(Clone, Debug)]
pub(crate) struct Reopener {
    queue: Weak<LogQueues>,
}

impl Reopener {
    /// Requests it. Each thread reopens its files before it writes its next line.
    pub(crate) fn reopen(&self) {
        let Some(queue) = self.queue.upgrade() else { return };
        queue.reopen_requests.fetch_add(1, Ordering::Relaxed);
        // A thread with a full queue checks without a wake-up.
        for access in &queue.access {
            let _ = access.batches.try_send(WriterCommand::Wake);
        }
        for error in &queue.errors {
            let _ = error.events.try_send(WriterCommand::Wake);
        }
    }
}

impl Logs {
    /// Opens all logs and starts their threads. `connect` connects to the system's log sockets. If one log cannot be
    /// opened, none stays open.
    pub(crate) fn start(config: &LogConfig, connect: Connect) -> Result<Self, LogProblem> {
        check_destinations(config)?;
        let rotator = Rotator::default();
        let context = SinkContext { connect, rotator: &rotator };
        let errors = [&config.error].into_iter().chain(&config.site_errors);
        let errors: Vec<OpenErrorLog> =
            errors.map(|error| OpenErrorLog::of(error, context)).collect::<Result<_, _>>()?;
        let opened: Vec<OpenAccessLog> =
            config.access.iter().map(|access| OpenAccessLog::of(access, context)).collect::<Result<_, _>>()?;

        let reopen_requests = Arc::new(AtomicU64::new(0));
        let loss_counters =
            opened.iter().map(|opened| &opened.loss_counter).chain(errors.iter().map(|error| &error.loss_counter));
        // The server's error log reports the losses of all logs.
        let mut loss_counters: Vec<_> = loss_counters.cloned().map(|loss_counter| (loss_counter, None)).collect();
        let (mut threads, mut error_queues) = (Vec::new(), Vec::<ErrorQueue>::new());
        for OpenErrorLog { sink, loss_counter, format, level } in errors {
            let (sender, events) = sync_channel(ERRORS_MAX);
            let overflow = Arc::new(OverflowEvents::default());
            let writer = ErrorWriter {
                events,
                overflow: overflow.clone(),
                log: ErrorLog::new(format),
                loss_counters: std::mem::take(&mut loss_counters),
                writer: LineWriter::new(sink, loss_counter.clone()),
                reopen_requests: ReopenRequests::new(reopen_requests.clone()),
                lines: LeveledLines::default(),
            };
            // Keeps the server's error log open until this one has ended.
            let servers = error_queues.first().map(|first| first.events.clone());
            threads.push(start_thread("selvedge-error", move || {
                run_to_end(writer);
                drop(servers);
            })?);
            error_queues.push(ErrorQueue { events: sender, overflow, loss_counter, level });
        }
        let mut groups = Vec::new();
        let access = assign_threads(opened, &mut groups);
        for WriterGroup { receiver: batches, writers, .. } in groups {
            let (reopening, errors) = (ReopenRequests::new(reopen_requests.clone()), error_queues[0].events.clone());
            let writer = AccessWriter { batches, writers, reopen_requests: reopening, in_progress: None, errors };
            threads.push(start_thread("selvedge-access", move || run_to_end(writer))?);
        }
        let mut sites = config.sites.clone();
        if sites.is_empty() {
            sites.push(SiteLogConfig::default());
        }
        let queue = LogQueues { access, errors: error_queues, sites, reopen_requests };
        Ok(Self { queue: Arc::new(queue), threads })
    }

    /// Returns a handle that reopens the log files and keeps nothing open.
    pub(crate) fn reopener(&self) -> Reopener {
        Reopener { queue: Arc::downgrade(&self.queue) }
    }

    /// Writes an event of the program itself to the server's error log.
    pub(crate) fn log(&self, level: Level, name: &'static str, text: String) {
        self.queue.send_event(LogEvent::from_program(level, name, text));
    }

    /// Returns each log with the number of lines lost since it was opened.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&str, u64)> {
        let access = self.queue.access.iter().map(|access| &access.loss_counter);
        let all = access.chain(self.queue.errors.iter().map(|error| &error.loss_counter));
        all.map(|loss_counter| (loss_counter.name(), loss_counter.lost_total()))
    }

    pub(super) fn queue(&self) -> Arc<LogQueues> {
        self.queue.clone()
    }

    /// Waits, within bounds, until pending lines are written. The workers have ended, so dropping this side closes
    /// the queues.
    pub(crate) fn flush_and_join(self) {
        let Self { queue, threads } = self;
        drop(queue);
        let deadline = Instant::now() + FLUSH_TIME_MAX;
        while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An open error log.
struct OpenErrorLog {
    sink: Box<dyn LogSink>,
    loss_counter: Arc<LossCounter>,
    format: ErrorFormat,
    level: Level,
}

impl OpenErrorLog {
    fn of(config: &ErrorLogConfig, context: SinkContext<'_>) -> Result<Self, LogProblem> {
        let loss_counter = Arc::new(LossCounter::new(format!("the error log {}", config.destination.describe())));
        let sink = sink::open(&config.destination, "error", &loss_counter, context)
            .map_err(|error| LogProblem::of(&config.destination, loss_counter.name(), error))?;
        Ok(Self { sink, loss_counter, format: config.format, level: config.level })
    }
}

/// An open access log.
struct OpenAccessLog {
    sink: Box<dyn LogSink>,
    loss_counter: Arc<LossCounter>,
    format: Format,
    sharing: ThreadUse,
}

/// Whether a log may share a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadUse {
    Shared,
    OwnThread,
}

impl OpenAccessLog {
    fn of(config: &AccessLogConfig, context: SinkContext<'_>) -> Result<Self, LogProblem> {
        let loss_counter = Arc::new(LossCounter::new(format!("the access log {}", config.destination.describe())));
        let sink = sink::open(&config.destination, "access", &loss_counter, context)
            .map_err(|error| LogProblem::of(&config.destination, loss_counter.name(), error))?;
        let sharing = match config.destination {
            Destination::File { .. } => ThreadUse::Shared,
            _ => ThreadUse::OwnThread,
        };
        Ok(Self { sink, loss_counter, format: config.format.clone(), sharing })
    }
}

/// The logs of one thread.
struct WriterGroup {
    sender: SyncSender<WriterCommand<Batch>>,
    receiver: Receiver<WriterCommand<Batch>>,
    writers: Vec<LineWriter>,
    sharing: ThreadUse,
}

/// Distributes logs to threads and returns their queues.
fn assign_threads(opened: Vec<OpenAccessLog>, groups: &mut Vec<WriterGroup>) -> Vec<AccessQueue> {
    let mut assign = |OpenAccessLog { sink, loss_counter, format, sharing }| {
        let shared = groups.iter().filter(|group| group.sharing == ThreadUse::Shared).count();
        if sharing == ThreadUse::OwnThread || shared < FILE_THREADS_MAX {
            let (sender, receiver) = sync_channel(BATCHES_MAX);
            groups.push(WriterGroup { sender, receiver, writers: Vec::new(), sharing });
        }
        let fits = groups.iter_mut().filter(|group| group.sharing == sharing);
        let group = fits.min_by_key(|group| group.writers.len()).expect("a group was added above");
        group.writers.push(LineWriter::new(sink, loss_counter.clone()));
        AccessQueue { format, batches: group.sender.clone(), index: group.writers.len() - 1, loss_counter }
    };
    opened.into_iter().map(&mut assign).collect()
}

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LogProblem> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map_err(|error| LogProblem { log: format!("the logs: no thread {name}"), path: None, error })
}

/// Refuses two logs in one file: they would break each other's lines and rotate twice.
fn check_destinations(config: &LogConfig) -> Result<(), LogProblem> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
    let mut files = std::collections::HashSet::new();
    let errors = [&config.error].into_iter().chain(&config.site_errors).map(|error| &error.destination);
    for destination in config.access.iter().map(|access| &access.destination).chain(errors) {
        if let Destination::File { path, .. } = destination
            && !files.insert(path)
        {
            let log = format!("the log {}", path.display());
            return Err(LogProblem::of(destination, &log, invalid("another log is written there")));
        }
    }
    let lacks = |site: &&SiteLogConfig| {
        let no_access = site.access.iter().any(|&log| log >= config.access.len());
        no_access || site.error.is_some_and(|log| log >= config.site_errors.len())
    };
    match config.sites.iter().find(lacks) {
        Some(site) => {
            let log = format!("the logs of {}", site.name);
            Err(LogProblem { log, path: None, error: invalid("no such log") })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_counted_and_sending_never_waits() {
        let (batches, received) = sync_channel(2);
        let (errors, events) = sync_channel(1);
        let overflow = Arc::<OverflowEvents>::default();
        let [loss_counter, error_loss_counter] = [(); 2].map(|()| Arc::new(LossCounter::new("the log".to_owned())));
        let format = Format::named("common").unwrap();
        let queue = LogQueues {
            access: vec![AccessQueue { format, batches, index: 0, loss_counter: loss_counter.clone() }],
            errors: vec![ErrorQueue {
                events: errors,
                overflow: overflow.clone(),
                loss_counter: error_loss_counter.clone(),
                level: Level::Warn,
            }],
            sites: vec![SiteLogConfig::default()],
            reopen_requests: Arc::default(),
        };
        for count in 1..=5 {
            queue.send_lines(0, b"line\n".repeat(count), count as u64);
            queue.send_event(LogEvent::from_program(Level::Warn, "X", String::new()));
            queue.send_event(LogEvent::from_program(Level::Info, "X", String::new()));
        }
        queue.send_event(LogEvent { count: 3, ..LogEvent::from_program(Level::Warn, "Y", String::new()) });
        let loss = loss_counter.loss().expect("the third batch did not fit");
        assert_eq!(loss.count, 3 + 4 + 5);
        assert_eq!(loss.text, "lines of the log were lost: they arrived faster than they were written");
        assert_eq!(error_loss_counter.loss().map(|loss| loss.count), None);
        let mut overflow: Vec<_> = overflow.take().map(|event| (event.key, event.count)).collect();
        overflow.sort_unstable();
        assert_eq!(overflow, [("X", 4), ("Y", 3)], "what is not wanted is not counted");
        assert_eq!((received.try_iter().count(), events.try_iter().count()), (2, 1));
        // Only the reported count is subtracted; later losses stay.
        loss_counter.count_lost(7);
        loss_counter.acknowledge(loss.count);
        assert_eq!(loss_counter.loss().map(|loss| loss.count), Some(7));
    }
}
