//! Log threads whose sinks panic or fail.

use super::faulty::{Act, Faulty};
use super::until;
use crate::log::config::{ErrorFormat, Level};
use crate::log::error::{LogEvent, OverflowEvents};
use crate::log::line_batch::LineBatch;
use crate::log::queue::{LogEntry, LogQueue, ThreadHandle, thread_channel};
use crate::log::writer::{LogThread, ThreadLog};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Two access logs on one thread, and an error log on another.
struct Threads {
    access: [LogQueue; 2],
    errors: LogQueue,
    overflow: Arc<OverflowEvents>,
    handles: [ThreadHandle; 2],
    threads: [JoinHandle<()>; 2],
}

impl Threads {
    fn start(access: [&Faulty; 2], error: &Faulty) -> Self {
        let [(handle, inbox), (error_handle, error_inbox)] = [(); 2].map(|()| thread_channel());
        let overflow = Arc::<OverflowEvents>::default();
        let (access, error) = (access.map(Faulty::writer), error.writer());
        let counters = access.iter().chain([&error]).map(|writer| writer.loss_counter().clone()).collect::<Vec<_>>();
        let [first, second, of_error] = [0, 1, 2].map(|number| counters[number].clone());
        let queues = [handle.queue(0, 1 << 20, first), handle.queue(1, 1 << 20, second)];
        let errors = error_handle.queue(0, 1 << 20, of_error);
        let thread = LogThread::new(inbox, access.into_iter().map(|writer| ThreadLog::access(writer, 0)).collect());
        let error = ThreadLog::error(error, ErrorFormat::Text, overflow.clone());
        let error_thread = LogThread::new(error_inbox, vec![error]).with_losses_of(counters, ErrorFormat::Text);
        let servers = error_handle.clone();
        let run = move || {
            thread.run();
            drop(servers);
        };
        let threads = [thread::spawn(run), thread::spawn(move || error_thread.run())];
        Self { access: queues, errors, overflow, handles: [handle, error_handle], threads }
    }

    fn write(&self, log: usize, lines: &str) {
        let mut batch = LineBatch::default();
        for line in lines.split_inclusive('\n') {
            batch.text.extend_from_slice(line.as_bytes());
            batch.end_line(0);
        }
        assert!(self.access[log].send(LogEntry::Lines(batch)).is_none(), "it has room");
    }

    fn event(&self, name: &'static str) {
        let event = LogEvent::from_program(Level::Warn, name, "text".to_owned());
        assert!(self.errors.send(LogEntry::Event(event)).is_none(), "it has room");
    }

    fn end(self) {
        drop((self.access, self.errors, self.handles));
        self.threads.into_iter().for_each(|thread| thread.join().expect("a panic does not end it"));
    }
}

/// Returns the lines of an error log without their times.
fn reported(error: &Faulty) -> Vec<String> {
    error.text().lines().map(|line| line.split_once("Z ").unwrap().1.to_owned()).collect()
}

#[test]
fn a_panic_is_reported_and_concerns_one_log() {
    let [access, other, error] = [(); 3].map(|()| Faulty::default());
    access.state().acts.extend([Act::Take(100), Act::Panic]);
    let threads = Threads::start([&access, &other], &error);
    threads.write(0, "1\n");
    threads.write(0, "2\n3\n");
    threads.write(1, "other\n");
    // The log is written again after a pause.
    until(|| {
        threads.write(0, "4\n");
        access.text().ends_with("4\n")
    });
    let lost_total = threads.access[0].loss_counter.lost_total();
    assert!(lost_total >= 2);
    threads.end();
    assert_eq!((access.state().reopened, other.state().reopened), (1, 0));
    assert!(access.text().starts_with("1\n4\n"), "{}", access.text());
    assert_eq!(other.text(), "other\n");
    let reported = reported(&error).join("\n");
    assert!(reported.contains("error LogLinesLost: lines of the log were lost: a panic count="), "{reported}");
    let restarted = "error LogWriterRestarted: the writer of the log panicked and was restarted: as it was told to";
    assert!(reported.contains(restarted), "{reported}");
    let recovered = reported.lines().find(|line| line.contains("LogRecovered")).expect(&reported);
    assert!(recovered.ends_with(&format!("lost: {lost_total} lines")), "{reported}");
}

#[test]
fn a_log_that_always_panics_loses_no_line_of_others() {
    let [access, other, error] = [(); 3].map(|()| Faulty::default());
    access.state().acts.extend([Act::Panic; 1000]);
    let threads = Threads::start([&access, &other], &error);
    let mut expected = String::new();
    for number in 0..1000 {
        let line = format!("{number}\n");
        threads.write(0, &line);
        threads.write(1, &line);
        expected.push_str(&line);
    }
    let counter = threads.access[0].loss_counter.clone();
    threads.end();
    assert_eq!((access.text(), other.text()), (String::new(), expected));
    assert_eq!(counter.lost_total(), 1000);
}

#[test]
fn a_panicking_error_log_restarts_and_reports_it() {
    let error = Faulty::default();
    error.state().acts.push_back(Act::Panic);
    let threads = Threads::start([&Faulty::default(); 2], &error);
    threads.event("A");
    until(|| {
        threads.event("B");
        error.text().contains(" B: ")
    });
    // The losses are reported at the end, too.
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
    let threads = Threads::start([&Faulty::default(); 2], &error);
    threads.overflow.push(LogEvent { count: 40, ..LogEvent::from_program(Level::Warn, "A", "text".to_owned()) });
    threads.overflow.push(LogEvent { count: 2, ..LogEvent::from_program(Level::Warn, "A", "text".to_owned()) });
    threads.event("A");
    threads.end();
    let reported = reported(&error).join("\n");
    let counts = reported.lines().map(|line| line.split_once("count=").map_or(1, |(_, count)| count.parse().unwrap()));
    assert_eq!(counts.sum::<u64>(), 43, "{reported}");
}

#[test]
fn losses_are_reported_when_the_error_log_recovers() {
    let full = Act::Fail(io::ErrorKind::StorageFull);
    let [access, error] = [(); 2].map(|()| Faulty::default());
    access.state().acts.push_back(full);
    error.state().acts.extend([full, full, full]);
    let threads = Threads::start([&access, &Faulty::default()], &error);
    threads.event("A");
    threads.write(0, "1\n2\n3\n");
    until(|| error.text().contains("LogRecovered"));
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
    let [access, other, error] = [(); 3].map(|()| Faulty::default());
    let threads = Threads::start([&access, &other], &error);
    threads.handles.iter().for_each(ThreadHandle::reopen);
    until(|| [&access, &other, &error].iter().all(|log| log.state().reopened == 1));
    threads.end();
}
