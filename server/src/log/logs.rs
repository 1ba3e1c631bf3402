//! All logs of the program: the queues that workers write to, and the threads that drain them.

use super::access::Format;
use super::config::{Destination, ErrorFormat, Level, LogConfig, SiteLogConfig};
use super::error::{LogEvent, OverflowEvents, SEPARATE_LINES};
use super::line_batch::LineBatch;
use super::line_writer::LineWriter;
use super::loss_counter::LossCounter;
use super::queue::{LogEntry, LogQueue, ThreadHandle, ThreadInbox, queue_bytes_max, thread_channel};
use super::rotate::Rotator;
use super::sink::{self, Connect, Device, SinkContext};
use super::writer::{LogThread, ThreadLog};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Threads for log files. Logs on further file systems share them.
const FILE_THREADS_MAX: usize = 8;
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
    threads: Vec<ThreadHandle>,
}

/// The queue of one access log.
#[derive(Debug)]
struct AccessQueue {
    queue: LogQueue,
    format: Format,
}

/// The queue of one error log.
#[derive(Debug)]
struct ErrorQueue {
    queue: LogQueue,
    overflow: Arc<OverflowEvents>,
    level: Level,
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
    pub(super) fn send_lines(&self, log: usize, batch: LineBatch) {
        let queue = &self.access[log].queue;
        let count = batch.count();
        if queue.send(LogEntry::Lines(batch)).is_some() {
            queue.loss_counter.count_lost(count);
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
        if let Some(LogEntry::Event(event)) = self.queue.send(LogEntry::Event(event)) {
            self.overflow.push(event);
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
        queue.threads.iter().for_each(ThreadHandle::reopen);
    }
}

impl Logs {
    /// Opens all logs and starts their threads. `connect` connects to the system's log sockets. If one log cannot be
    /// opened, none stays open.
    pub(crate) fn start(config: &LogConfig, connect: Connect) -> Result<Self, LogProblem> {
        check_destinations(config)?;
        let rotator = Rotator::default();
        let context = SinkContext { connect, rotator: &rotator };
        let room = queue_bytes_max(config.count());
        let (mut plans, mut loss_counters) = (Vec::new(), Vec::new());
        let mut add = |destination: &Destination, kind, thread_log: &dyn Fn(LineWriter) -> ThreadLog| {
            let (writer, device) = open_log(destination, kind, context)?;
            let loss_counter = writer.loss_counter().clone();
            loss_counters.push(loss_counter.clone());
            let plan = plan_for(&mut plans, device);
            plan.logs.push(thread_log(writer));
            Ok(plan.handle.queue(plan.logs.len() - 1, room, loss_counter))
        };
        let errors = [&config.error].into_iter().chain(&config.site_errors).map(|error| {
            let overflow = Arc::<OverflowEvents>::default();
            let thread_log = |writer| ThreadLog::error(writer, error.format, overflow.clone());
            let queue = add(&error.destination, "error", &thread_log)?;
            Ok(ErrorQueue { queue, overflow: overflow.clone(), level: error.level })
        });
        let errors = errors.collect::<Result<Vec<_>, _>>()?;
        let access = config.access.iter().map(|access| {
            // The other half is for lines that arrive meanwhile.
            let queue = add(&access.destination, "access", &|writer| ThreadLog::access(writer, room / 2))?;
            Ok(AccessQueue { queue, format: access.format.clone() })
        });
        let access = access.collect::<Result<Vec<_>, _>>()?;
        let mut sites = config.sites.clone();
        if sites.is_empty() {
            sites.push(SiteLogConfig::default());
        }
        let handles = plans.iter().map(|plan| plan.handle.clone()).collect();
        let queue = LogQueues { access, errors, sites, threads: handles };
        let threads = start_threads(plans, &loss_counters, config.error.format)?;
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

    /// Writes an event to the server's error log as a line of its own, although others have its name. The caller bounds
    /// their number.
    pub(crate) fn log_separately(&self, level: Level, name: &'static str, text: String) {
        self.queue.send_event(LogEvent { key: SEPARATE_LINES, ..LogEvent::from_program(level, name, text) });
    }

    /// Returns each log with the number of lines lost since it was opened.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (&str, u64)> {
        let access = self.queue.access.iter().map(|access| &access.queue);
        let all = access.chain(self.queue.errors.iter().map(|error| &error.queue));
        all.map(|queue| (queue.loss_counter.name(), queue.loss_counter.lost_total()))
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

/// Opens a log.
fn open_log(
    destination: &Destination,
    kind: &'static str,
    context: SinkContext<'_>,
) -> Result<(LineWriter, Device), LogProblem> {
    let name = format!("the {kind} log {}", destination.describe());
    let loss_counter = Arc::new(LossCounter::new(name));
    let sink = sink::open(destination, kind, &loss_counter, context)
        .map_err(|error| LogProblem::of(destination, loss_counter.name(), error))?;
    let device = sink.device();
    Ok((LineWriter::new(sink, loss_counter), device))
}

/// A thread that is not started yet, and its logs.
struct ThreadPlan {
    device: Device,
    handle: ThreadHandle,
    inbox: ThreadInbox,
    logs: Vec<ThreadLog>,
}

/// Returns the thread of a device. The first thread has the server's error log alone.
fn plan_for(plans: &mut Vec<ThreadPlan>, device: Device) -> &mut ThreadPlan {
    let shared = || plans.iter().enumerate().skip(1);
    let of_device = shared().find(|(_, plan)| plan.device == device);
    let place = of_device.or_else(|| {
        let files = shared().filter(|(_, plan)| matches!(plan.device, Device::FileSystem(_)));
        let is_full = matches!(device, Device::FileSystem(_)) && files.clone().count() >= FILE_THREADS_MAX;
        files.min_by_key(|(_, plan)| plan.logs.len()).filter(|_| is_full)
    });
    if let Some((place, _)) = place {
        return &mut plans[place];
    }
    let (handle, inbox) = thread_channel();
    plans.push_mut(ThreadPlan { device, handle, inbox, logs: Vec::new() })
}

/// Starts the threads. The first reports the losses of all logs.
fn start_threads(
    plans: Vec<ThreadPlan>,
    loss_counters: &[Arc<LossCounter>],
    format: ErrorFormat,
) -> Result<Vec<JoinHandle<()>>, LogProblem> {
    let mut server_log = None;
    let threads = plans.into_iter().map(|ThreadPlan { handle, inbox, logs, .. }| {
        let thread = LogThread::new(inbox, logs);
        let Some(server_log) = server_log.clone() else {
            server_log = Some(handle);
            let thread = thread.with_losses_of(loss_counters.to_vec(), format);
            return start_thread("selvedge-error", move || thread.run());
        };
        // Keeps the server's error log open until this thread has ended.
        start_thread("selvedge-log", move || {
            thread.run();
            drop(server_log);
        })
    });
    threads.collect()
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
    use crate::log::queue::Command;
    use crate::process::connect;

    /// Two access logs and an error log on one thread, which does not run. Each has room for two batches.
    fn queues() -> (LogQueues, ThreadInbox) {
        let (handle, inbox) = thread_channel();
        let queue = |log| handle.queue(log, 10_000, Arc::new(LossCounter::new("the log".to_owned())));
        let access = |log| AccessQueue { queue: queue(log), format: Format::named("common").unwrap() };
        let error = ErrorQueue { queue: queue(2), overflow: Arc::default(), level: Level::Warn };
        let (access, errors, sites) = (vec![access(0), access(1)], vec![error], vec![SiteLogConfig::default()]);
        (LogQueues { access, errors, sites, threads: vec![handle] }, inbox)
    }

    fn batch() -> Vec<u8> {
        vec![b'x'; 4_000]
    }

    fn lines(count: u64) -> LineBatch {
        let mut lines = LineBatch::default();
        lines.text.extend_from_slice(&batch());
        (0..count).for_each(|at| lines.end_line(at));
        lines
    }

    #[test]
    fn a_full_queue_loses_lines_and_takes_no_room_of_others() {
        let (queues, inbox) = queues();
        for count in 1..=5 {
            queues.send_lines(0, lines(count));
        }
        queues.send_lines(1, lines(1));
        let loss_counter = &queues.access[0].queue.loss_counter;
        let loss = loss_counter.loss().expect("the third batch did not fit");
        assert_eq!(loss.count, 3 + 4 + 5);
        assert_eq!(loss.text, "lines of the log were lost: they arrived faster than they were written");
        assert_eq!(queues.access[1].queue.loss_counter.lost_total(), 0);
        let sent = |command| match command {
            Command::Write { log, entry: LogEntry::Lines(batch), .. } => (log, batch.count()),
            other => panic!("{other:?}"),
        };
        let sent: Vec<_> = inbox.commands.try_iter().map(sent).collect();
        assert_eq!(sent, [(0, 1), (0, 2), (1, 1)]);
        // Written lines make room.
        queues.send_lines(0, lines(6));
        assert_eq!((inbox.commands.try_iter().count(), loss_counter.lost_total()), (1, 12));
        // Only the reported count is subtracted; later losses stay.
        loss_counter.count_lost(7);
        loss_counter.acknowledge(loss.count);
        assert_eq!(loss_counter.loss().map(|loss| loss.count), Some(7));
    }

    #[test]
    fn events_beyond_a_full_queue_are_counted_and_none_is_lost() {
        let (queues, inbox) = queues();
        let event = |level| LogEvent { line: batch(), ..LogEvent::from_program(level, "X", String::new()) };
        for _ in 0..5 {
            queues.send_event(event(Level::Warn));
            queues.send_event(event(Level::Info));
        }
        queues.send_event(LogEvent { count: 3, key: "Y", ..event(Level::Warn) });
        assert_eq!(queues.errors[0].queue.loss_counter.lost_total(), 0);
        let mut overflow: Vec<_> = queues.errors[0].overflow.take().map(|event| (event.key, event.count)).collect();
        overflow.sort_unstable();
        assert_eq!(overflow, [("X", 3), ("Y", 3)], "what is not wanted is not counted");
        assert_eq!(inbox.commands.try_iter().count(), 2);
    }

    #[test]
    fn logs_of_one_device_share_a_thread() {
        let mut plans = Vec::new();
        let disk = Device::FileSystem;
        let context = SinkContext { connect, rotator: &Rotator::default() };
        // The first is the server's error log.
        let add = |plans: &mut Vec<ThreadPlan>, device| {
            let (writer, _) = open_log(&Destination::Discard, "access", context).unwrap();
            plan_for(plans, device).logs.push(ThreadLog::access(writer, 1 << 20));
        };
        for device in [disk(1), disk(1), disk(2), Device::Syslog, disk(1), Device::StandardOutput, disk(2)] {
            add(&mut plans, device);
        }
        let planned =
            |plans: &[ThreadPlan]| plans.iter().map(|plan| (plan.device, plan.logs.len())).collect::<Vec<_>>();
        let (syslog, output) = ((Device::Syslog, 1), (Device::StandardOutput, 1));
        assert_eq!(planned(&plans), [(disk(1), 1), (disk(1), 2), (disk(2), 2), syslog, output]);
        // More file systems than threads.
        (3..20).for_each(|number| add(&mut plans, disk(number)));
        let of_files = plans[1..].iter().filter(|plan| matches!(plan.device, Device::FileSystem(_)));
        let counts: Vec<_> = of_files.map(|plan| plan.logs.len()).collect();
        assert_eq!((counts.len(), counts.iter().sum::<usize>()), (FILE_THREADS_MAX, 4 + 17));
    }
}
