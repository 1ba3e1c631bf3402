//! What a worker gathers for the logs.

use super::access::Combined;
use super::error::Event;
use super::sink::{Logs, Queue};
use selvedge::service::{CloseReason, Closed, Exchange, Incident, Phase};
use selvedge::{Limits, Observer, Reject};
use std::cell::RefCell;
use std::sync::Arc;

/// Lines are handed on when so many bytes have come together, and a few times a second.
const BATCH_BYTES: usize = 32 * 1024;

/// One worker's end of the logs.
#[derive(Debug)]
pub(crate) struct LogObserver {
    queue: Queue,
    access: Option<RefCell<Gathered>>,
    limits: Arc<Limits>,
}

#[derive(Debug)]
struct Gathered {
    format: Combined,
    lines: Vec<u8>,
    count: u64,
}

impl Gathered {
    fn new() -> Self {
        Self { format: Combined::new(), lines: Vec::new(), count: 0 }
    }
}

impl Clone for LogObserver {
    fn clone(&self) -> Self {
        let access = self.access.as_ref().map(|_| RefCell::new(Gathered::new()));
        Self { queue: self.queue.clone(), access, limits: self.limits.clone() }
    }
}

impl LogObserver {
    pub(crate) fn new(logs: &Logs, limits: &Limits) -> Self {
        let access = logs.wants_access().then(|| RefCell::new(Gathered::new()));
        Self { queue: logs.queue(), access, limits: Arc::new(limits.clone()) }
    }

    fn hand_on(&self, gathered: &mut Gathered) {
        if gathered.count > 0 {
            let lines = std::mem::replace(&mut gathered.lines, Vec::with_capacity(BATCH_BYTES + 1024));
            self.queue.access(lines, gathered.count);
            gathered.count = 0;
        }
    }

    fn error(&self, event: Event) {
        self.queue.error(event);
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

fn with_bound(text: &str, bound: Option<String>) -> String {
    bound.map_or_else(|| text.to_owned(), |bound| format!("{text} (bound: {bound})"))
}

impl Observer for LogObserver {
    fn finished(&self, exchange: &Exchange<'_>) {
        if let Some(gathered) = &self.access {
            let gathered = &mut *gathered.borrow_mut();
            gathered.format.append(exchange, &mut gathered.lines);
            gathered.count += 1;
            if gathered.lines.len() >= BATCH_BYTES {
                self.hand_on(gathered);
            }
        }
        let (name, text) = match (exchange.reject, exchange.reason) {
            (Some(reject), _) => (reject.name(), with_bound(reject.text(), self.bound(reject))),
            (None, Some(reason)) => ("Answered", reason.to_owned()),
            _ => return,
        };
        let text = format!("{} {text}", exchange.status.code());
        // 501 and 505 are about what the client asked for.
        let level = if matches!(exchange.status.code(), 500 | 502..=504) { "error" } else { "warn" };
        let (peer, line) = (Some(exchange.peer), exchange.line.to_vec());
        let key = exchange.reason.unwrap_or(name);
        self.error(Event { level, key, name, text, peer, line, count: 1 });
    }

    fn closed(&self, closed: &Closed) {
        // A refused head was logged with its answer.
        let answered = matches!(closed.reason, CloseReason::Rejected(_));
        let idle_at_stop = closed.reason == CloseReason::StoppedAtOnce && closed.phase == Phase::Idle;
        if closed.reason.is_ordinary() || answered || idle_at_stop {
            return;
        }
        let text = with_bound(closed.reason.explain(), self.bound_of_close(closed.reason));
        let text = format!("{text}, while {}, after {} requests", closed.phase.explain(), closed.requests);
        let name = closed.reason.name();
        self.error(Event { level: "warn", key: name, name, text, peer: Some(closed.peer), line: vec![], count: 1 });
    }

    fn incident(&self, incident: &Incident) {
        let (level, name, peer, text) = match incident {
            Incident::Panic { peer, message } => ("error", "Panic", Some(*peer), message.clone()),
            Incident::AcceptFailed { error } => {
                ("error", "AcceptFailed", None, format!("cannot accept connections, pausing: {error}"))
            }
            Incident::AcceptRecovered => ("info", "AcceptRecovered", None, "accepting connections again".to_owned()),
            Incident::ConnectionsFull { limit } => {
                ("warn", "ConnectionsFull", None, format!("all connections are in use, new ones wait (bound: {limit})"))
            }
            Incident::TooManyFromClient { peer } => {
                let text = "the client has too many connections (only observed)".to_owned();
                ("warn", "TooManyFromClient", Some(*peer), text)
            }
            Incident::ConnectionsFree => ("info", "ConnectionsFree", None, "connections are free again".to_owned()),
        };
        self.error(Event { level, key: name, name, text, peer, line: vec![], count: 1 });
    }

    fn tick(&self) {
        if let Some(gathered) = &self.access {
            self.hand_on(&mut gathered.borrow_mut());
        }
    }
}
