//! The threads that write, when what they write to panics or fails.

use super::faulty::{Act, Faulty};
use crate::log::error::{Crowd, ErrorLog, Event, Lines};
use crate::log::plan::{ErrorForm, Level};
use crate::log::writer::{AccessWriter, Batch, ErrorWriter, Message, Reopening, run_to_end};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// An access log and an error log with a thread each.
struct Threads {
    batches: SyncSender<Message<Batch>>,
    errors: SyncSender<Message<Event>>,
    crowd: Arc<Crowd>,
    reopen: Arc<AtomicU64>,
    threads: [JoinHandle<()>; 2],
}

impl Threads {
    fn start(access: &Faulty, error: &Faulty) -> Self {
        let (batches, received) = sync_channel(100);
        let (errors, events) = sync_channel(100);
        let reopen = Arc::new(AtomicU64::new(0));
        let crowd = Arc::<Crowd>::default();
        let (access, error) = (access.pen(), error.pen());
        let error_writer = ErrorWriter {
            events,
            crowd: crowd.clone(),
            log: ErrorLog::new(ErrorForm::Text),
            healths: [&access, &error].map(|pen| (pen.health().clone(), None)).to_vec(),
            pen: error,
            reopening: Reopening::new(reopen.clone()),
            lines: Lines::default(),
        };
        let access_writer = AccessWriter {
            batches: received,
            pens: vec![access],
            reopening: Reopening::new(reopen.clone()),
            in_hand: None,
            errors: errors.clone(),
        };
        let threads =
            [thread::spawn(move || run_to_end(access_writer)), thread::spawn(move || run_to_end(error_writer))];
        Self { batches, errors, crowd, reopen, threads }
    }

    fn write(&self, lines: &str) {
        let (lines, count) = (lines.as_bytes().to_vec(), lines.lines().count() as u64);
        self.batches.send(Message::Write(Batch { place: 0, lines, count })).unwrap();
    }

    fn event(&self, name: &'static str) {
        self.errors.send(Message::Write(Event::of_program(Level::Warn, name, "text".to_owned()))).unwrap();
    }

    fn end(self) {
        drop((self.batches, self.errors));
        self.threads.into_iter().for_each(|thread| thread.join().expect("a panic does not end it"));
    }
}

/// The lines of an error log without their times.
fn said(error: &Faulty) -> Vec<String> {
    error.text().lines().map(|line| line.split_once("Z ").unwrap().1.to_owned()).collect()
}

#[test]
fn a_thread_that_panics_goes_on_and_says_so() {
    let (access, error) = (Faulty::default(), Faulty::default());
    access.state().acts.extend([Act::Take(100), Act::Panic]);
    let threads = Threads::start(&access, &error);
    ["1\n", "2\n3\n", "4\n"].iter().for_each(|lines| threads.write(lines));
    threads.end();
    assert_eq!((access.text(), access.state().reopened), ("1\n4\n".to_owned(), 1));
    let said = said(&error);
    assert_eq!(said[0], "error LogLinesLost: lines of the log were lost: a panic count=2");
    assert_eq!(
        said[1..],
        ["error LogWriterRestarted: what writes the log has panicked and goes on: as it was told to"]
    );
}

#[test]
fn an_error_log_that_panics_goes_on_and_says_so() {
    let error = Faulty::default();
    error.state().acts.push_back(Act::Panic);
    let threads = Threads::start(&Faulty::default(), &error);
    ["A", "B"].iter().for_each(|name| threads.event(name));
    threads.end();
    let said = said(&error).join("\n");
    for expected in
        ["warn B: text", "error LogLinesLost: lines of the log were lost: a panic", "error LogWriterRestarted: "]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains(" A: "), "{said}");
}

#[test]
fn what_there_was_no_room_for_is_said_with_its_count() {
    let error = Faulty::default();
    let threads = Threads::start(&Faulty::default(), &error);
    threads.crowd.push(Event { count: 40, ..Event::of_program(Level::Warn, "A", "text".to_owned()) });
    threads.crowd.push(Event { count: 2, ..Event::of_program(Level::Warn, "A", "text".to_owned()) });
    threads.errors.send(Message::Wake).unwrap();
    threads.end();
    let said = said(&error).join("\n");
    let counts = said.lines().map(|line| line.split_once("count=").expect("a count").1.parse::<u64>().unwrap());
    assert_eq!(counts.sum::<u64>(), 42, "{said}");
}

#[test]
fn losses_are_said_when_the_error_log_can_be_written_again() {
    let full = Act::Fail(io::ErrorKind::StorageFull);
    let (access, error) = (Faulty::default(), Faulty::default());
    access.state().acts.push_back(full);
    error.state().acts.extend([full, full, full]);
    let threads = Threads::start(&access, &error);
    threads.event("A");
    threads.write("1\n2\n3\n");
    super::until(|| error.text().contains("LogRecovered"));
    threads.end();
    let said = said(&error);
    let losses: Vec<_> = said.iter().filter(|line| line.contains("LogLinesLost")).collect();
    assert!(losses.iter().any(|line| line.ends_with("count=3")), "{said:?}");
    assert!(losses.iter().any(|line| line.contains("storage") && !line.contains("count=")), "its own: {said:?}");
    assert_eq!(losses.len(), 2, "{said:?}");
    let recovered = said.iter().find(|line| line.contains("LogRecovered")).expect("it was awaited");
    assert!(recovered.ends_with("lost: 1 lines"), "{said:?}");
}

#[test]
fn all_logs_are_opened_anew_when_that_is_asked_for() {
    let (access, error) = (Faulty::default(), Faulty::default());
    let threads = Threads::start(&access, &error);
    threads.reopen.fetch_add(1, Ordering::Relaxed);
    threads.batches.send(Message::Wake).unwrap();
    threads.errors.send(Message::Wake).unwrap();
    threads.end();
    assert_eq!((access.state().reopened, error.state().reopened), (1, 1));
}
