//! The status of the server as plain data, written as text or JSON.
//!
//! The JSON names are documented in `docs/operations.md` and stay stable. The text contains this data as
//! well, without counts of zero.

use crate::log::{NamedCounts, SiteTotals, Totals};
use crate::process::StatusFormat;
use crate::status_resources::{DescriptorStatus, LimitStatus, MemoryStatus, Rates, bytes};
use crate::traces::SpanCounts;
use crate::upstream_status::GroupStatus;
use selvedge::ConnectionStats;
use selvedge::service::Phase;
use serde::Serialize;
use std::fmt::{self, Display, Write};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Most sites that the text names, those with most requests first.
const SITES_MAX: usize = 10;

/// The status of the server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServerStatus {
    pub(crate) version: &'static str,
    pub(crate) process_id: u32,
    pub(crate) uptime_seconds: u64,
    /// Serving processes before this one that ended unexpectedly.
    pub(crate) restarts: u64,
    /// Serving processes before this one that were replaced.
    pub(crate) replacements: u64,
    pub(crate) workers: usize,
    /// Workers that did not respond, so only the number of their connections is known.
    pub(crate) workers_unresponsive: usize,
    pub(crate) configuration: ConfigurationStatus,
    pub(crate) listeners: Vec<String>,
    pub(crate) limits: LimitStatus,
    pub(crate) connections: ConnectionStatus,
    pub(crate) requests: RequestStatus,
    pub(crate) sent: SentBytes,
    pub(crate) latency_ns: LatencyStatus,
    pub(crate) rates: Vec<Rates>,
    pub(crate) memory: MemoryStatus,
    pub(crate) descriptors: DescriptorStatus,
    pub(crate) sites: Vec<SiteStatus>,
    pub(crate) events: NamedCounts,
    pub(crate) dry_run: Vec<DryRunCount>,
    pub(crate) upstreams: Vec<GroupStatus>,
    /// `None` if the configuration has no traces.
    pub(crate) traces: Option<TraceStatus>,
    pub(crate) logs: Vec<LogStatus>,
}

/// The configuration in force, and earlier ones with connections.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConfigurationStatus {
    pub(crate) file: String,
    pub(crate) number: u64,
    pub(crate) earlier: Vec<ReplacedConfiguration>,
}

/// A replaced configuration that still has connections.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReplacedConfiguration {
    pub(crate) number: u64,
    pub(crate) connections: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConnectionStatus {
    pub(crate) open: usize,
    pub(crate) limit: usize,
    pub(crate) states: ConnectionStates,
    pub(crate) accepted: u64,
    pub(crate) closed: NamedCounts,
}

/// Open connections by phase.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConnectionStates {
    pub(crate) idle: usize,
    pub(crate) receiving_head: usize,
    pub(crate) receiving_content: usize,
    pub(crate) processing: usize,
    pub(crate) sending: usize,
    pub(crate) lingering: usize,
    pub(crate) unknown: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RequestStatus {
    pub(crate) total: u64,
    pub(crate) by_status: StatusClasses,
    /// Responses that were aborted.
    pub(crate) aborted: u64,
    /// Requests that the engine refused.
    pub(crate) refused: NamedCounts,
    /// Errors of sites, by reason, including those in dry-run mode.
    pub(crate) reasons: NamedCounts,
}

/// The requests of one site.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SiteStatus {
    /// The first name; `None` for requests of no site.
    pub(crate) site: Option<String>,
    pub(crate) requests: u64,
    pub(crate) by_status: StatusClasses,
    pub(crate) content_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct StatusClasses {
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
pub(crate) struct SentBytes {
    pub(crate) head_bytes: u64,
    pub(crate) content_bytes: u64,
}

/// Time from the complete request head to the complete response.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LatencyStatus {
    pub(crate) count: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p99_9: u64,
    pub(crate) max: u64,
}

/// Requests that an access rule in dry-run mode would have refused.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DryRunCount {
    /// `None` for the server-wide rule.
    pub(crate) site: Option<String>,
    pub(crate) rule: &'static str,
    pub(crate) count: u64,
}

/// What became of the spans of this process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TraceStatus {
    pub(crate) spans_exported: u64,
    pub(crate) spans_dropped: u64,
}

impl TraceStatus {
    pub(crate) fn of(counts: SpanCounts) -> Self {
        Self { spans_exported: counts.exported, spans_dropped: counts.dropped }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct LogStatus {
    pub(crate) name: String,
    pub(crate) lines_lost: u64,
}

impl ConfigurationStatus {
    /// `numbers` are those of the configurations of this process. App versions are numbered from 0.
    pub(crate) fn of(file: String, numbers: RangeInclusive<u64>, stats: &ConnectionStats) -> Self {
        let (first, number) = numbers.into_inner();
        let mut earlier = Vec::<ReplacedConfiguration>::new();
        for group in &stats.counts {
            let of_group = first + u64::from(group.generation);
            match earlier.last_mut() {
                _ if of_group == number => {}
                Some(last) if last.number == of_group => last.connections += group.connections,
                _ => earlier.push(ReplacedConfiguration { number: of_group, connections: group.connections }),
            }
        }
        Self { file, number, earlier }
    }
}

impl SiteStatus {
    /// Returns the sites that had requests, by name.
    pub(crate) fn all(totals: &Totals) -> Vec<Self> {
        let of = |(name, site): (&String, &SiteTotals)| Self {
            site: Some(name.clone()).filter(|name| !name.is_empty()),
            requests: site.requests(),
            by_status: StatusClasses::of(site.classes),
            content_bytes: site.content_bytes,
        };
        totals.sites.iter().map(of).collect()
    }
}

impl StatusClasses {
    fn of(classes: [u64; 5]) -> Self {
        let [informational, successful, redirection, client_error, server_error] = classes;
        Self { informational, successful, redirection, client_error, server_error }
    }
}

impl Display for StatusClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { successful, redirection, client_error, server_error, .. } = self;
        write!(f, "{successful} 2xx, {redirection} 3xx, {client_error} 4xx, {server_error} 5xx")
    }
}

impl ConnectionStatus {
    pub(crate) fn of(stats: &ConnectionStats, limit: usize, totals: &Totals) -> Self {
        let states = ConnectionStates {
            idle: stats.in_phase(Phase::Idle),
            receiving_head: stats.in_phase(Phase::ReadingHead),
            receiving_content: stats.in_phase(Phase::ReadingContent),
            processing: stats.in_phase(Phase::Processing),
            sending: stats.in_phase(Phase::Sending),
            lingering: stats.in_phase(Phase::Lingering),
            unknown: stats.unknown,
        };
        Self { open: stats.open(), limit, states, accepted: totals.accepted, closed: totals.closes.clone() }
    }
}

impl RequestStatus {
    pub(crate) fn of(totals: &Totals) -> Self {
        Self {
            total: totals.requests(),
            by_status: StatusClasses::of(totals.classes),
            aborted: totals.aborted,
            refused: totals.rejects.clone(),
            reasons: totals.reasons.clone(),
        }
    }
}

impl LatencyStatus {
    pub(crate) fn of(totals: &Totals) -> Self {
        let times = &totals.latencies;
        let [p50, p90, p99, p99_9] = [500, 900, 990, 999].map(|per_mille| times.within_ns(per_mille));
        Self { count: times.count(), p50, p90, p99, p99_9, max: times.max_ns() }
    }
}

impl ServerStatus {
    pub(crate) fn format(&self, format: StatusFormat) -> String {
        match format {
            StatusFormat::Text => self.to_string(),
            StatusFormat::Json => serde_json::to_string_pretty(self).expect("names are text, and all else is numbers"),
        }
    }
}

/// Text for people.
impl Display for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, process_id, restarts, replacements, workers, .. } = self;
        let uptime = uptime(self.uptime_seconds);
        write!(f, "selvedge {version}, process {process_id}, up {uptime}, {}", counted(*workers as u64, "worker"))?;
        match self.workers_unresponsive {
            0 => {}
            unresponsive => write!(f, " ({unresponsive} unresponsive)")?,
        }
        writeln!(f, ", {}, {}", counted(*restarts, "restart"), counted(*replacements, "replacement"))?;
        row(f, "configuration", &self.configuration)?;
        row(f, "listeners", self.listeners.join(", "))?;
        self.connections.rows(f)?;
        self.requests.rows(f)?;
        let SentBytes { head_bytes, content_bytes } = self.sent;
        row(f, "sent", format_args!("{} of heads, {} of content", bytes(head_bytes), bytes(content_bytes)))?;
        row(f, "latency", &self.latency_ns)?;
        for (first, rates) in with_first(&self.rates) {
            row(f, first.label("rates"), rates)?;
        }
        row(f, "memory", &self.memory)?;
        row(f, "descriptors", &self.descriptors)?;
        self.site_rows(f)?;
        row(f, "events", if self.events.is_empty() { "none".to_owned() } else { by_count(&self.events) })?;
        for (first, DryRunCount { site, rule, count }) in with_first(&self.dry_run) {
            let site = site.as_deref().unwrap_or("the server");
            row(f, first.label("dry run"), format_args!("{count} by {rule} of {site}"))?;
        }
        let lines: Vec<_> = self.upstreams.iter().flat_map(GroupStatus::lines).collect();
        for (first, line) in with_first(&lines) {
            row(f, first.label("upstreams"), line)?;
        }
        if let Some(TraceStatus { spans_exported, spans_dropped }) = self.traces {
            row(f, "spans", format_args!("{spans_exported} exported, {spans_dropped} dropped"))?;
        }
        for (first, LogStatus { name, lines_lost }) in with_first(&self.logs) {
            row(f, first.label("lines lost"), format_args!("{lines_lost} of {name}"))?;
        }
        Ok(())
    }
}

impl ServerStatus {
    fn site_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut busiest: Vec<_> = self.sites.iter().collect();
        busiest.sort_by_key(|site| std::cmp::Reverse(site.requests));
        let more = busiest.len().saturating_sub(SITES_MAX);
        busiest.truncate(SITES_MAX);
        for (first, SiteStatus { site, requests, by_status, content_bytes }) in with_first(&busiest) {
            let site = site.as_deref().unwrap_or("no site");
            row(f, first.label("sites"), format_args!("{site}: {requests}: {by_status}, {}", bytes(*content_bytes)))?;
        }
        if more > 0 { row(f, "", format_args!("and {}", counted(more as u64, "more site"))) } else { Ok(()) }
    }
}

impl Display for ConfigurationStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number, self.file)?;
        self.earlier.iter().try_for_each(|ReplacedConfiguration { number, connections }| {
            write!(f, "; {} with {number}", counted(*connections as u64, "connection"))
        })
    }
}

impl ConnectionStatus {
    fn rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { open, limit, states, accepted, closed } = self;
        let states = [
            (states.idle, "idle"),
            (states.receiving_head, "receiving a head"),
            (states.receiving_content, "receiving content"),
            (states.processing, "processing"),
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

impl RequestStatus {
    fn rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}: {}", self.total, self.by_status);
        for (count, what) in [(self.by_status.informational, "1xx"), (self.aborted, "aborted")] {
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

impl Display for LatencyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, p50, p90, p99, p99_9, max } = *self;
        for (name, ns) in [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p99_9), ("max", max)] {
            // `u` in place of `µ`, readable in every character set.
            write!(f, "{name} {}, ", format!("{:.1?}", Duration::from_nanos(ns)).replace('µ', "u"))?;
        }
        write!(f, "of {}", counted(count, "response"))
    }
}

/// Writes a line of the text: label and value.
fn row(f: &mut fmt::Formatter<'_>, label: &str, text: impl Display) -> fmt::Result {
    writeln!(f, "{label:<14} {text}")
}

/// Whether a row is the first of its kind.
#[derive(Clone, Copy)]
struct RowPosition(usize);

impl RowPosition {
    /// Returns the label for the first row, and spaces for others.
    fn label(self, label: &'static str) -> &'static str {
        if self.0 == 0 { label } else { "" }
    }
}

fn with_first<T>(rows: &[T]) -> impl Iterator<Item = (RowPosition, &T)> {
    rows.iter().enumerate().map(|(number, row)| (RowPosition(number), row))
}

/// Returns the counts in descending order.
fn sorted(counts: &NamedCounts) -> Vec<(&str, u64)> {
    let mut sorted: Vec<_> = counts.iter().map(|(name, count)| (&**name, *count)).collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sorted
}

fn by_count(counts: &NamedCounts) -> String {
    let all: Vec<_> = sorted(counts).iter().map(|(name, count)| format!("{count} {name}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns a time for people.
pub(crate) fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let clock = format!("{hours}:{minutes:02}:{:02}", seconds % 60);
    if days == 0 { clock } else { format!("{}, {clock}", counted(days, "day")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge::{ConnectionCount, ConnectionProtocol};

    #[test]
    fn earlier_configurations_have_the_connections_of_their_generation() {
        let protocol = ConnectionProtocol::Http1;
        let group = |generation, phase, connections| ConnectionCount { generation, phase, protocol, connections };
        let groups = vec![
            group(0, Phase::Sending, 1),
            group(2, Phase::Idle, 2),
            group(2, Phase::Sending, 3),
            group(3, Phase::Idle, 4),
        ];
        let stats = ConnectionStats { counts: groups, ..ConnectionStats::default() };
        let text = |numbers| ConfigurationStatus::of("a.kdl".to_owned(), numbers, &stats).to_string();
        assert_eq!(text(1..=4), "4 (a.kdl); 1 connection with 1; 5 connections with 3");
        // Earlier processes had 7.
        assert_eq!(text(8..=11), "11 (a.kdl); 1 connection with 8; 5 connections with 10");
    }

    #[test]
    fn figures_are_written_for_people() {
        let written = [0, 59, 3_600, 86_399, 86_400, 200_000].map(uptime);
        assert_eq!(written, ["0:00:00", "0:00:59", "1:00:00", "23:59:59", "1 day, 0:00:00", "2 days, 7:33:20"]);
        let written = [0, 1, 1023, 1024, 1_600_000, u64::MAX].map(bytes);
        assert_eq!(written, ["0 bytes", "1 byte", "1023 bytes", "1.0 KiB", "1.5 MiB", "16.0 EiB"]);
        let counts = [("KeepAliveTimeout", 3), ("CloseRequested", 1), ("Reset", 3), ("ClientClosed", 7)];
        let counts: NamedCounts = counts.into_iter().map(|(name, count)| (name.into(), count)).collect();
        assert_eq!(by_count(&counts), "7 ClientClosed, 3 KeepAliveTimeout, 3 Reset, 1 CloseRequested");
        let latency = LatencyStatus { count: 2, p50: 4_250, p90: 1_300_000, p99: 2_000_000_000, p99_9: 0, max: 1 };
        assert_eq!(latency.to_string(), "p50 4.2us, p90 1.3ms, p99 2.0s, p99.9 0.0ns, max 1.0ns, of 2 responses");
    }
}
