//! What a worker gathers for the logs, and counts.

use super::access::Format;
use super::error::Event;
use super::logs::{Logs, Queue};
use super::plan::Level;
use super::tallies::{Keeper, Tallies};
use selvedge::service::{CloseReason, Closed, Exchange, Incident, Phase};
use selvedge::{Limits, Observer, Reject, Request};
use std::cell::RefCell;
use std::sync::Arc;

/// Lines are handed on when so many bytes have come together, and a few times a second.
const BATCH_BYTES: usize = 32 * 1024;

/// One worker's end of the logs.
#[derive(Debug)]
pub(crate) struct LogObserver {
    queue: Arc<Queue>,
    gathered: RefCell<Vec<Gathered>>,
    /// Access logs that have lines to be handed on, at least those.
    waiting: RefCell<Vec<usize>>,
    /// Whether any of the formats says how long an answer took.
    wants_elapsed: bool,
    limits: Arc<Limits>,
    /// Where somebody may ask what was counted.
    keeper: Option<Keeper>,
}

/// The lines of one access log.
#[derive(Debug)]
struct Gathered {
    format: Format,
    lines: Vec<u8>,
    count: u64,
}

impl Clone for LogObserver {
    fn clone(&self) -> Self {
        let mut clone = Self::with_queue(self.queue.clone(), self.limits.clone());
        clone.keeper = self.keeper.clone();
        clone
    }
}

impl LogObserver {
    pub(crate) fn new(logs: &Logs, limits: &Limits) -> Self {
        Self::with_queue(logs.queue(), Arc::new(limits.clone()))
    }

    /// One that counts, too.
    #[must_use]
    pub(crate) fn counting(mut self, tallies: &Arc<Tallies>) -> Self {
        self.keeper = Some(Keeper::new(tallies));
        self
    }

    fn with_queue(queue: Arc<Queue>, limits: Arc<Limits>) -> Self {
        let gathered =
            queue.formats().map(|format| Gathered { format, lines: Vec::new(), count: 0 }).collect::<Vec<_>>();
        let wants_elapsed = gathered.iter().any(|gathered| gathered.format.wants_elapsed());
        Self {
            queue,
            gathered: RefCell::new(gathered),
            waiting: RefCell::default(),
            wants_elapsed,
            limits,
            keeper: None,
        }
    }

    fn hand_on(&self, log: usize, gathered: &mut Gathered) {
        if gathered.count > 0 {
            // The next ones will need about as much.
            let room = gathered.lines.len() + gathered.lines.len() / 4;
            let lines = std::mem::replace(&mut gathered.lines, Vec::with_capacity(room));
            self.queue.access(log, lines, std::mem::take(&mut gathered.count));
        }
    }

    fn access(&self, exchange: &Exchange<'_>) {
        let site = self.queue.site(exchange.request.map_or(0, Request::label));
        let all = &mut *self.gathered.borrow_mut();
        for &log in &site.access {
            let gathered = &mut all[log];
            if gathered.count == 0 {
                self.waiting.borrow_mut().push(log);
            }
            gathered.format.append(exchange, &site.name, &mut gathered.lines);
            gathered.count += 1;
            if gathered.lines.len() >= BATCH_BYTES {
                self.hand_on(log, gathered);
            }
        }
    }

    /// The bound that a refusal was about, for the log.
    fn bound(&self, reject: Reject) -> Option<String> {
        let message = &self.limits.message;
        Some(match reject {
            Reject::RequestLineTooLong => format!("{} bytes", message.request_line_bytes_max),
            Reject::HeadTooLarge => format!("{} bytes", message.head_bytes_max),
            Reject::TooManyFields => format!("{} fields", message.fields_max),
            Reject::MethodTooLong => format!("{} bytes", selvedge::proto::limits::METHOD_BYTES_MAX),
            Reject::ChunkExtensionTooLong => format!("{} bytes", message.chunk_extension_bytes_max),
            Reject::ChunkOverhead => format!("{} bytes more than content", message.chunk_overhead_bytes_free),
            Reject::TrailersTooLarge => format!("{} bytes", message.trailer_bytes_max),
            Reject::ContentTooLarge => format!("{} bytes", self.limits.body_bytes_max),
            _ => return None,
        })
    }

    fn bound_of_close(&self, reason: CloseReason) -> Option<String> {
        let limits = &self.limits;
        Some(match reason {
            CloseReason::Silent | CloseReason::HeadTooSlow => format!("{:?}", limits.head_time),
            CloseReason::ContentTooSlow => {
                format!("{:?} or {} B/s", limits.body_silence, limits.body_bytes_per_second_min)
            }
            CloseReason::SendTooSlow => {
                format!("{:?} or {} B/s", limits.send_silence, limits.send_bytes_per_second_min)
            }
            CloseReason::ContentUnread => format!("{} bytes", limits.drain_bytes_max),
            CloseReason::DrainLimit => format!("{:?}", limits.drain_time),
            CloseReason::ContentRejected(reject) => return self.bound(reject),
            _ => return None,
        })
    }
}

/// What was gathered is handed on, whoever ends it.
impl Drop for LogObserver {
    fn drop(&mut self) {
        self.tick();
    }
}

fn with_bound(text: &str, bound: Option<String>) -> String {
    bound.map_or_else(|| text.to_owned(), |bound| format!("{text} (bound: {bound})"))
}

impl Observer for LogObserver {
    fn times(&self) -> bool {
        self.wants_elapsed || self.keeper.is_some()
    }

    fn finished(&self, exchange: &Exchange<'_>) {
        self.keeper.iter().for_each(|keeper| keeper.exchange(exchange));
        self.access(exchange);
        let (name, text) = match (exchange.reject, exchange.reason) {
            (Some(reject), _) => (reject.name(), with_bound(reject.text(), self.bound(reject))),
            (None, Some(reason)) => ("Answered", reason.to_owned()),
            _ => return,
        };
        let text = format!("{} {text}", exchange.status.code());
        // 501 and 505 are about what the client asked for.
        let level = if matches!(exchange.status.code(), 500 | 502..=504) { Level::Error } else { Level::Warn };
        let (peer, line) = (Some(exchange.peer), exchange.line.to_vec());
        let key = exchange.reason.unwrap_or(name);
        let site = self.queue.site(exchange.request.map_or(0, Request::label));
        self.queue.error_of(site, Event { level, key, name, text, peer, line, count: 1 });
    }

    fn closed(&self, closed: &Closed) {
        self.keeper.iter().for_each(|keeper| keeper.close(closed.reason));
        // A refused head was logged with its answer.
        let answered = matches!(closed.reason, CloseReason::Rejected(_));
        let idle_at_stop = closed.reason == CloseReason::StoppedAtOnce && closed.phase == Phase::Idle;
        let is_ordinary = closed.reason.is_ordinary() || answered || idle_at_stop;
        let level = if is_ordinary { Level::Debug } else { Level::Warn };
        if !self.queue.wants(level) {
            return;
        }
        let text = with_bound(closed.reason.explain(), self.bound_of_close(closed.reason));
        let text = format!("{text}, while {}, after {} requests", closed.phase.explain(), closed.requests);
        let event = Event::of_program(level, closed.reason.name(), text);
        self.queue.error(Event { peer: Some(closed.peer), ..event });
    }

    fn incident(&self, incident: &Incident) {
        let (level, name, peer, text) = match incident {
            Incident::Panic { peer, message } => (Level::Error, "Panic", Some(*peer), message.clone()),
            Incident::AcceptFailed { error } => {
                (Level::Error, "AcceptFailed", None, format!("cannot accept connections, pausing: {error}"))
            }
            Incident::AcceptRecovered => {
                (Level::Info, "AcceptRecovered", None, "accepting connections again".to_owned())
            }
            Incident::DriverRefused { error } => {
                let text = format!("no io_uring here, so sockets are driven by epoll: {error}");
                (Level::Warn, "DriverRefused", None, text)
            }
            Incident::ConnectionsFull { limit } => (
                Level::Warn,
                "ConnectionsFull",
                None,
                format!("all connections are in use, new ones wait (bound: {limit})"),
            ),
            Incident::ConnectionsFree => {
                (Level::Info, "ConnectionsFree", None, "connections are free again".to_owned())
            }
            Incident::TooManyFromClient { peer } => {
                let text = "the client has too many connections (only observed)".to_owned();
                (Level::Warn, "TooManyFromClient", Some(*peer), text)
            }
        };
        if level < Level::Info {
            self.keeper.iter().for_each(|keeper| keeper.incident(name));
        }
        self.queue.error(Event { peer, ..Event::of_program(level, name, text) });
    }

    fn tick(&self) {
        let all = &mut *self.gathered.borrow_mut();
        for log in self.waiting.borrow_mut().drain(..) {
            self.hand_on(log, &mut all[log]);
        }
    }
}
