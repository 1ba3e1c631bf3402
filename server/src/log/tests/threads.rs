//! Log threads whose sinks panic or fail.

use super::faulty::{Act, Faulty};
use crate::log::config::{ErrorFormat, Level};
use crate::log::error::{ErrorLog, LeveledLines, LogEvent, OverflowEvents};
use crate::log::writer::{AccessWriter, Batch, ErrorWriter, ReopenRequests, WriterCommand, run_to_end};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// An access log and an error log with a thread each.
struct Threads {
    batches: SyncSender<WriterCommand<Batch>>,
    errors: SyncSender<WriterCommand<LogEvent>>,
    overflow: Arc<OverflowEvents>,
    reopen: Arc<AtomicU64>,
    threads: [JoinHandle<()>; 2],
}

impl Threads {
    fn start(access: &Faulty, error: &Faulty) -> Self {
        let (batches, received) = sync_channel(100);
        let (errors, events) = sync_channel(100);
        let reopen = Arc::new(AtomicU64::new(0));
        let overflow = Arc::<OverflowEvents>::default();
        let (access, error) = (access.writer(), error.writer());
        let error_writer = ErrorWriter {
            events,
            overflow: overflow.clone(),
            log: ErrorLog::new(ErrorFormat::Text),
            loss_counters: [&access, &error].map(|writer| (writer.loss_counter().clone(), None)).to_vec(),
            writer: error,
            reopen_requests: ReopenRequests::new(reopen.clone()),
            lines: LeveledLines::default(),
        };
        let access_writer = AccessWriter {
            batches: received,
            writers: vec![access],
            reopen_requests: ReopenRequests::new(reopen.clone()),
            in_progress: None,
            errors: errors.clone(),
        };
        let threads =
            [thread::spawn(move || run_to_end(access_writer)), thread::spawn(move || run_to_end(error_writer))];
        Self { batches, errors, overflow, reopen, threads }
    }

    fn write(&self, lines: &str) {
        let (lines, count) = (lines.as_bytes().to_vec(), lines.lines().count() as u64);
        self.batches.send(WriterCommand::Write(Batch { index: 0, lines, count })).unwrap();
    }

    fn event(&self, name: &'static str) {
        self.errors.send(WriterCommand::Write(LogEvent::from_program(Level::Warn, name, "text".to_owned()))).unwrap();
    }

    fn end(self) {
        drop((self.batches, self.errors));
        self.threads.into_iter().for_each(|thread| thread.join().expect("a panic does not end it"));
    }
}

/// Returns the lines of an error log without their times.
fn reported(error: &Faulty) -> Vec<String> {
    error.text().lines().map(|line| line.split_once("Z ").unwrap().1.to_owned()).collect()
}

#[test]
fn a_panicking_thread_restarts_and_reports_it() {
    let (access, error) = (Faulty::default(), Faulty::default());
    access.state().acts.extend([Act::Take(100), Act::Panic]);
    let threads = Threads::start(&access, &error);
    ["1\n", "2\n3\n", "4\n"].iter().for_each(|lines| threads.write(lines));
    threads.end();
    assert_eq!((access.text(), access.state().reopened), ("1\n4\n".to_owned(), 1));
    let reported = reported(&error);
    assert_eq!(reported[0], "error LogLinesLost: lines of the log were lost: a panic count=2");
    assert_eq!(
        reported[1..],
        ["error LogWriterRestarted: what writes the log has panicked and goes on: as it was told to"]
    );
}

#[test]
fn a_panicking_error_log_restarts_and_reports_it() {
    let error = Faulty::default();
    error.state().acts.push_back(Act::Panic);
    let threads = Threads::start(&Faulty::default(), &error);
    ["A", "B"].iter().for_each(|name| threads.event(name));
    threads.end();
    let reported = reported(&error).join("\n");
    for expected in
        ["warn B: text", "error LogLinesLost: lines of the log were lost: a panic", "error LogWriterRestarted: "]
    {
        assert!(reported.contains(expected), "{expected}: {reported}");
    }
    assert!(!reported.contains(" A: "), "{reported}");
}

#[test]
fn overflow_is_reported_with_its_count() {
    let error = Faulty::default();
    let threads = Threads::start(&Faulty::default(), &error);
    threads.overflow.push(LogEvent { count: 40, ..LogEvent::from_program(Level::Warn, "A", "text".to_owned()) });
    threads.overflow.push(LogEvent { count: 2, ..LogEvent::from_program(Level::Warn, "A", "text".to_owned()) });
    threads.errors.send(WriterCommand::Wake).unwrap();
    threads.end();
    let reported = reported(&error).join("\n");
    let counts = reported.lines().map(|line| line.split_once("count=").expect("a count").1.parse::<u64>().unwrap());
    assert_eq!(counts.sum::<u64>(), 42, "{reported}");
}

#[test]
fn losses_are_reported_when_the_error_log_recovers() {
    let full = Act::Fail(io::ErrorKind::StorageFull);
    let (access, error) = (Faulty::default(), Faulty::default());
    access.state().acts.push_back(full);
    error.state().acts.extend([full, full, full]);
    let threads = Threads::start(&access, &error);
    threads.event("A");
    threads.write("1\n2\n3\n");
    super::until(|| error.text().contains("LogRecovered"));
    threads.end();
    let reported = reported(&error);
    let losses: Vec<_> = reported.iter().filter(|line| line.contains("LogLinesLost")).collect();
    assert!(losses.iter().any(|line| line.ends_with("count=3")), "{reported:?}");
    assert!(losses.iter().any(|line| line.contains("storage") && !line.contains("count=")), "its own: {reported:?}");
    assert_eq!(losses.len(), 2, "{reported:?}");
    let recovered = reported.iter().find(|line| line.contains("LogRecovered")).expect("it was awaited");
    assert!(recovered.ends_with("lost: 1 lines"), "{reported:?}");
}

#[test]
fn all_logs_are_reopened_on_request() {
    let (access, error) = (Faulty::default(), Faulty::default());
    let threads = Threads::start(&access, &error);
    threads.reopen.fetch_add(1, Ordering::Relaxed);
    threads.batches.send(WriterCommand::Wake).unwrap();
    threads.errors.send(WriterCommand::Wake).unwrap();
    threads.end();
    assert_eq!((access.state().reopened, error.state().reopened), (1, 1));
}
