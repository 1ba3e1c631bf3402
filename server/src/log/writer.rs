//! The threads that write. A thread that panics is caught, says so, and goes on; what it
//! had in hand is counted as lost.

use super::error::{Crowd, ErrorLog, Event, Lines};
use super::health::Health;
use super::pen::Pen;
use super::plan::Level;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread rests after a panic.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
/// How long an error may wait for its second to be over, beyond that second.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// How often it is looked whether other logs have something to say.
const LISTEN_INTERVAL: Duration = Duration::from_secs(1);
/// How often the same log says that it loses lines.
const LOSS_INTERVAL: Duration = Duration::from_secs(1);

/// What a thread is sent.
#[derive(Debug)]
pub(super) enum Message<T> {
    /// Something to write.
    Write(T),
    /// Nothing; there is something to be looked at.
    Wake,
}

/// Whole lines of an access log.
#[derive(Debug)]
pub(super) struct Batch {
    /// Which of the thread's logs.
    pub(super) place: usize,
    pub(super) lines: Vec<u8>,
    pub(super) count: u64,
}

/// How often it was asked to open the logs anew, and how often a thread has done so.
#[derive(Debug)]
pub(super) struct Reopening {
    asked: Arc<AtomicU64>,
    done: u64,
}

impl Reopening {
    pub(super) fn new(asked: Arc<AtomicU64>) -> Self {
        let done = asked.load(Ordering::Relaxed);
        Self { asked, done }
    }

    /// Whether it is to be done now.
    fn is_due(&mut self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        std::mem::replace(&mut self.done, asked) != asked
    }
}

/// What a thread does until whoever sends has gone.
pub(super) trait Writer {
    fn run(&mut self);

    /// After a panic: brings what it writes to in order, and says so.
    fn recover(&mut self, panic: &str);
}

/// Runs a writer to its end, through any panic.
pub(super) fn run_to_end(mut writer: impl Writer) {
    while let Err(payload) = catch_unwind(AssertUnwindSafe(|| writer.run())) {
        let message = panic_message(&*payload);
        // Bringing things in order may panic too.
        let _ = catch_unwind(AssertUnwindSafe(|| writer.recover(message)));
        thread::sleep(RESTART_PAUSE);
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic without a message",
    }
}

/// Writes access logs.
pub(super) struct AccessWriter {
    pub(super) batches: Receiver<Message<Batch>>,
    pub(super) pens: Vec<Pen>,
    pub(super) reopening: Reopening,
    /// The batch that is being written: its log, and its lines.
    pub(super) in_hand: Option<(usize, u64)>,
    /// Keeps the error log open until this thread has ended.
    pub(super) errors: SyncSender<Message<Event>>,
}

impl Writer for AccessWriter {
    fn run(&mut self) {
        while let Ok(message) = self.batches.recv() {
            let now = Instant::now();
            if self.reopening.is_due() {
                self.pens.iter_mut().for_each(|pen| pen.reopen(now));
            }
            if let Message::Write(Batch { place, lines, count }) = message {
                self.in_hand = Some((place, count));
                let pen = &mut self.pens[place];
                let lost = pen.write(&lines, Level::Info, now);
                self.in_hand = None;
                if lost > 0 {
                    pen.health().lose(lost);
                    // So that the loss is said within a second; a full queue is awake.
                    let _ = self.errors.try_send(Message::Wake);
                }
            }
        }
    }

    fn recover(&mut self, panic: &str) {
        let (place, count) = self.in_hand.take().unwrap_or_default();
        let pen = &mut self.pens[place];
        pen.health().lose(count);
        say_restart(pen.health(), panic);
        pen.reopen(Instant::now());
    }
}

fn say_restart(health: &Health, panic: &str) {
    let text = format!("what writes {} has panicked and goes on: {panic}", health.name());
    health.because("a panic".to_owned());
    health.recovered();
    health.note(Level::Error, "LogWriterRestarted", text);
}

/// Writes the error log, and says there how the others fare.
pub(super) struct ErrorWriter {
    pub(super) events: Receiver<Message<Event>>,
    pub(super) crowd: Arc<Crowd>,
    pub(super) log: ErrorLog,
    pub(super) pen: Pen,
    pub(super) reopening: Reopening,
    /// Every log's, this one's among them, and when it last said that it loses lines.
    pub(super) healths: Vec<(Arc<Health>, Option<Instant>)>,
    pub(super) lines: Lines,
}

impl Writer for ErrorWriter {
    fn run(&mut self) {
        loop {
            let interval = if self.log.is_waiting() { FLUSH_INTERVAL } else { LISTEN_INTERVAL };
            let message = self.events.recv_timeout(interval);
            let now = Instant::now();
            if self.reopening.is_due() {
                self.pen.reopen(now);
            }
            let is_end = matches!(message, Err(RecvTimeoutError::Disconnected));
            if let Ok(Message::Write(event)) = message {
                self.log.take(event, now, &mut self.lines);
            }
            self.crowd.take().for_each(|event| self.log.take(event, now, &mut self.lines));
            // At the end every second counts as over.
            self.log.flush(if is_end { now + Duration::from_secs(2) } else { now }, &mut self.lines);
            self.write(now);
            self.say_losses(now, if is_end { Duration::ZERO } else { LOSS_INTERVAL });
            if is_end {
                return;
            }
        }
    }

    fn recover(&mut self, panic: &str) {
        // What was in hand was one group of lines, at least of one.
        self.pen.health().lose(1);
        say_restart(self.pen.health(), panic);
        self.pen.reopen(Instant::now());
    }
}

impl ErrorWriter {
    fn write(&mut self, now: Instant) {
        for (level, lines) in self.lines.take() {
            let lost = self.pen.write(&lines, level, now);
            self.pen.health().lose(lost);
        }
    }

    /// Says what the logs have lost and left to say, each at most once in `interval`. Waits
    /// with that while this log cannot be written itself.
    fn say_losses(&mut self, now: Instant, interval: Duration) {
        for (health, said) in &mut self.healths {
            let is_early = said.is_some_and(|said| now.saturating_duration_since(said) < interval);
            if is_early || !self.pen.may_write(now) {
                continue;
            }
            let mut lines = Lines::default();
            let loss = health.loss();
            loss.iter().for_each(|loss| lines.push(loss, self.log.form()));
            let lost = lines.take().iter().map(|(level, bytes)| self.pen.write(bytes, *level, now)).sum::<u64>();
            self.pen.forgive(lost);
            if let Some(loss) = loss.filter(|_| lost == 0) {
                *said = Some(now);
                health.said(loss.count);
            }
            while self.pen.may_write(now) {
                let Some(note) = health.next_note() else { break };
                lines.push(&note, self.log.form());
                for (level, bytes) in lines.take() {
                    let lost = self.pen.write(&bytes, level, now);
                    self.pen.health().lose(lost);
                }
            }
        }
    }
}
