//! How the server is, as plain data, and how that is written: for people and as JSON.
//!
//! The names in JSON are promised in `docs/service.md`. The text is made of the same data and
//! says all of it, but for what has never happened.

use crate::log::Totals;
use crate::process::Form;
use selvedge::Census;
use selvedge::service::Phase;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::time::Duration;

/// How often something has happened, by its name. What never has is absent.
type Counts = BTreeMap<&'static str, u64>;

/// How the server is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) version: &'static str,
    pub(crate) process_id: u32,
    pub(crate) uptime_seconds: u64,
    /// Serving processes that there were before this one.
    pub(crate) restarts: u64,
    pub(crate) workers: usize,
    /// Those that did not answer, so that of their connections only the number is known.
    pub(crate) workers_silent: usize,
    pub(crate) configuration: InForce,
    pub(crate) listeners: Vec<String>,
    pub(crate) connections: Connections,
    pub(crate) requests: Requests,
    pub(crate) sent: Sent,
    pub(crate) latency_ns: Latency,
    pub(crate) incidents: Counts,
    pub(crate) observed: Vec<Observed>,
    pub(crate) logs: Vec<Log>,
}

/// The configuration in force, and those before it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InForce {
    pub(crate) file: String,
    pub(crate) number: u64,
    pub(crate) earlier: Vec<Earlier>,
}

/// A configuration whose place was taken and that still has connections.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Earlier {
    pub(crate) number: u64,
    pub(crate) connections: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Connections {
    pub(crate) open: usize,
    pub(crate) limit: usize,
    pub(crate) states: States,
    pub(crate) accepted: u64,
    pub(crate) closed: Counts,
}

/// Open connections by what they are doing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct States {
    pub(crate) idle: usize,
    pub(crate) receiving_head: usize,
    pub(crate) receiving_content: usize,
    pub(crate) answering: usize,
    pub(crate) sending: usize,
    pub(crate) lingering: usize,
    pub(crate) unknown: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Requests {
    pub(crate) total: u64,
    pub(crate) by_status: Classes,
    /// Answers that the end of their connection has cut.
    pub(crate) cut: u64,
    /// Refused by the engine.
    pub(crate) refused: Counts,
    /// Why requests were answered with an error, or would have been.
    pub(crate) reasons: Counts,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Classes {
    #[serde(rename = "1xx")]
    pub(crate) informational: u64,
    #[serde(rename = "2xx")]
    pub(crate) successful: u64,
    #[serde(rename = "3xx")]
    pub(crate) redirection: u64,
    #[serde(rename = "4xx")]
    pub(crate) client_error: u64,
    #[serde(rename = "5xx")]
    pub(crate) server_error: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sent {
    pub(crate) head_bytes: u64,
    pub(crate) content_bytes: u64,
}

/// From the complete head of a request to the complete answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p99_9: u64,
    pub(crate) max: u64,
}

/// What a gate would have refused if it did more than observe.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Observed {
    /// `None` for the gate before all sites.
    pub(crate) site: Option<String>,
    pub(crate) gate: &'static str,
    pub(crate) count: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Log {
    pub(crate) name: String,
    pub(crate) lines_lost: u64,
}

impl InForce {
    /// Configurations are counted from 1, generations of connections from 0; otherwise they
    /// are the same.
    pub(crate) fn of(file: String, number: u64, census: &Census) -> Self {
        let mut earlier = Vec::<Earlier>::new();
        for group in &census.groups {
            let of_group = u64::from(group.generation) + 1;
            match earlier.last_mut() {
                _ if of_group == number => {}
                Some(last) if last.number == of_group => last.connections += group.connections,
                _ => earlier.push(Earlier { number: of_group, connections: group.connections }),
            }
        }
        Self { file, number, earlier }
    }
}

impl Connections {
    pub(crate) fn of(census: &Census, limit: usize, totals: &Totals) -> Self {
        let states = States {
            idle: census.doing(Phase::Idle),
            receiving_head: census.doing(Phase::ReadingHead),
            receiving_content: census.doing(Phase::ReadingContent),
            answering: census.doing(Phase::Answering),
            sending: census.doing(Phase::Sending),
            lingering: census.doing(Phase::Lingering),
            unknown: census.unknown,
        };
        let closed = totals.closes.iter().copied().collect();
        Self { open: census.open(), limit, states, accepted: census.accepted, closed }
    }
}

impl Requests {
    pub(crate) fn of(totals: &Totals) -> Self {
        let [informational, successful, redirection, client_error, server_error] = totals.classes;
        Self {
            total: totals.requests(),
            by_status: Classes { informational, successful, redirection, client_error, server_error },
            cut: totals.cut,
            refused: totals.rejects.iter().copied().collect(),
            reasons: totals.reasons.iter().copied().collect(),
        }
    }
}

impl Latency {
    pub(crate) fn of(totals: &Totals) -> Self {
        let times = &totals.latencies;
        let [p50, p90, p99, p99_9] = [500, 900, 990, 999].map(|per_mille| times.within_ns(per_mille));
        Self { count: times.count(), p50, p90, p99, p99_9, max: times.max_ns() }
    }
}

impl Status {
    pub(crate) fn write(&self, form: Form) -> String {
        match form {
            Form::Text => self.to_string(),
            Form::Json => serde_json::to_string_pretty(self).expect("names are text, and all else is numbers"),
        }
    }
}

/// For people.
impl Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, process_id, restarts, workers, .. } = self;
        let uptime = uptime(self.uptime_seconds);
        write!(f, "selvedge {version}, process {process_id}, up {uptime}, {}", counted(*workers as u64, "worker"))?;
        match self.workers_silent {
            0 => {}
            silent => write!(f, " ({silent} held up)")?,
        }
        writeln!(f, ", {}", counted(*restarts, "restart"))?;
        row(f, "configuration", &self.configuration)?;
        row(f, "listens at", self.listeners.join(", "))?;
        self.connections.rows(f)?;
        self.requests.rows(f)?;
        let Sent { head_bytes, content_bytes } = self.sent;
        row(f, "sent", format_args!("{} of heads, {} of content", bytes(head_bytes), bytes(content_bytes)))?;
        row(f, "latency", &self.latency_ns)?;
        row(f, "incidents", if self.incidents.is_empty() { "none".to_owned() } else { by_count(&self.incidents) })?;
        for (first, Observed { site, gate, count }) in with_first(&self.observed) {
            let site = site.as_deref().unwrap_or("the server");
            row(f, first.label("observed"), format_args!("{count} by {gate} of {site}"))?;
        }
        for (first, Log { name, lines_lost }) in with_first(&self.logs) {
            row(f, first.label("lines lost"), format_args!("{lines_lost} of {name}"))?;
        }
        Ok(())
    }
}

impl Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number, self.file)?;
        self.earlier.iter().try_for_each(|Earlier { number, connections }| {
            write!(f, "; {} with {number}", counted(*connections as u64, "connection"))
        })
    }
}

impl Connections {
    fn rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { open, limit, states, accepted, closed } = self;
        let states = [
            (states.idle, "idle"),
            (states.receiving_head, "receiving a head"),
            (states.receiving_content, "receiving content"),
            (states.answering, "the application at work"),
            (states.sending, "sending"),
            (states.lingering, "lingering"),
            (states.unknown, "unknown"),
        ];
        let states = states.iter().filter(|(count, _)| *count > 0);
        let states = states.fold(String::new(), |text, (count, state)| text + &format!(", {count} {state}"));
        row(f, "connections", format_args!("{open} of {limit}{states}"))?;
        row(f, "", format_args!("{accepted} accepted, closed: {}", by_count(closed)))
    }
}

impl Requests {
    fn rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Classes { informational, successful, redirection, client_error, server_error } = self.by_status;
        let mut text =
            format!("{}: {successful} 2xx, {redirection} 3xx, {client_error} 4xx, {server_error} 5xx", self.total);
        for (count, what) in [(informational, "1xx"), (self.cut, "cut")] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        row(f, "requests", text)?;
        if !self.refused.is_empty() {
            row(f, "", format_args!("refused: {}", by_count(&self.refused)))?;
        }
        sorted(&self.reasons).into_iter().try_for_each(|(reason, count)| row(f, "", format_args!("{count} {reason}")))
    }
}

impl Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, p50, p90, p99, p99_9, max } = *self;
        for (name, ns) in [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p99_9), ("max", max)] {
            // Written as everybody can read it, in whatever character set.
            write!(f, "{name} {}, ", format!("{:.1?}", Duration::from_nanos(ns)).replace('µ', "u"))?;
        }
        write!(f, "of {}", counted(count, "answer"))
    }
}

/// A line of the text: what it is about, and what there is to say.
fn row(f: &mut fmt::Formatter<'_>, label: &str, text: impl Display) -> fmt::Result {
    writeln!(f, "{label:<14} {text}")
}

/// Whether a line is the first of its kind.
#[derive(Clone, Copy)]
struct First(usize);

impl First {
    /// What stands in front of it.
    fn label(self, label: &'static str) -> &'static str {
        if self.0 == 0 { label } else { "" }
    }
}

fn with_first<T>(rows: &[T]) -> impl Iterator<Item = (First, &T)> {
    rows.iter().enumerate().map(|(number, row)| (First(number), row))
}

/// The most frequent first.
fn sorted(counts: &Counts) -> Vec<(&'static str, u64)> {
    let mut sorted: Vec<_> = counts.iter().map(|(name, count)| (*name, *count)).collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sorted
}

fn by_count(counts: &Counts) -> String {
    let all: Vec<_> = sorted(counts).iter().map(|(name, count)| format!("{count} {name}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let clock = format!("{hours}:{minutes:02}:{:02}", seconds % 60);
    if days == 0 { clock } else { format!("{}, {clock}", counted(days, "day")) }
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return counted(count, "byte");
    }
    let power = (count.ilog2() / 10) as usize;
    format!("{:.1} {}", count as f64 / 1024_f64.powi(power as i32), UNITS[power - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge::Group;

    #[test]
    fn earlier_configurations_have_the_connections_of_their_generation() {
        let group = |generation, phase, connections| Group { generation, phase, connections };
        let groups = vec![
            group(0, Phase::Sending, 1),
            group(2, Phase::Idle, 2),
            group(2, Phase::Sending, 3),
            group(3, Phase::Idle, 4),
        ];
        let census = Census { groups, ..Census::default() };
        let text = |number| InForce::of("a.kdl".to_owned(), number, &census).to_string();
        assert_eq!(text(4), "4 (a.kdl); 1 connection with 1; 5 connections with 3");
    }

    #[test]
    fn figures_are_written_for_people() {
        let written = [0, 59, 3_600, 86_399, 86_400, 200_000].map(uptime);
        assert_eq!(written, ["0:00:00", "0:00:59", "1:00:00", "23:59:59", "1 day, 0:00:00", "2 days, 7:33:20"]);
        let written = [0, 1, 1023, 1024, 1_600_000, u64::MAX].map(bytes);
        assert_eq!(written, ["0 bytes", "1 byte", "1023 bytes", "1.0 KiB", "1.5 MiB", "16.0 EiB"]);
        let counts = Counts::from([("Idle", 3), ("Asked", 1), ("Reset", 3), ("ClientDone", 7)]);
        assert_eq!(by_count(&counts), "7 ClientDone, 3 Idle, 3 Reset, 1 Asked");
        let latency = Latency { count: 2, p50: 4_250, p90: 1_300_000, p99: 2_000_000_000, p99_9: 0, max: 1 };
        assert_eq!(latency.to_string(), "p50 4.2us, p90 1.3ms, p99 2.0s, p99.9 0.0ns, max 1.0ns, of 2 answers");
    }
}
