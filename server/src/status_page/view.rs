//! What the page shows, as texts. The page has it as HTML, and each event as JSON, so both always agree.

use super::facts::{CertificateExpiry, PageFacts};
use super::requests::RecentRequests;
use super::tables::{self, ViewTable, duration};
use crate::log::Latencies;
use crate::status::{ServerStatus, uptime};
use crate::status_resources::{Rates, bytes};
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// The most rates that the chart shows: those of a minute.
const CHART_RATES_MAX: usize = 60;
/// The size of the chart in units of its own.
pub(super) const CHART_SIZE: (f64, f64) = (600.0, 80.0);
/// The space above and beneath the line of the chart.
const CHART_MARGIN: f64 = 2.0;

/// What the page shows.
#[derive(Debug, Serialize)]
pub(super) struct StatusView {
    /// An open page of another version loads itself again.
    pub(super) version: &'static str,
    /// When it was made, in milliseconds since 1970.
    pub(super) time: u64,
    pub(super) chart: RateChart,
    pub(super) facts: Vec<Fact>,
    pub(super) tables: Vec<ViewTable>,
}

/// One number with its name.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Fact {
    #[serde(skip)]
    pub(super) label: &'static str,
    pub(super) value: String,
}

/// The requests per second of the last minute as a line.
#[derive(Debug, Serialize)]
pub(super) struct RateChart {
    /// The points of an SVG polyline.
    pub(super) points: String,
    pub(super) highest: String,
}

impl StatusView {
    /// `now` is since 1970. Without a flight recorder, no requests are known.
    pub(super) fn of(
        facts: &PageFacts,
        certificates: &CertificateExpiry,
        (requests, now): (Option<&RecentRequests>, Duration),
    ) -> Self {
        let PageFacts { status, request_rates } = facts;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let (slowest, failed) = requests.map_or((&[][..], &[][..]), |requests| (&*requests.slowest, &*requests.failed));
        let failed_count = requests.map_or(0, |requests| requests.failed_count);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            time: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            chart: RateChart::of(request_rates),
            facts: all_facts(status, requests),
            tables: vec![
                tables::requests(&tables::FAILED, failed, failed_count),
                tables::requests(&tables::SLOWEST, slowest, 0),
                tables::upstreams(&status.upstreams),
                tables::dry_run(status),
                tables::certificates(certificates, seconds),
                tables::connections(&status.connections.states),
                tables::sites(&status.sites),
                tables::reasons(&status.requests),
            ],
        }
    }

    /// Returns the data of an event, in one line.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers")
    }
}

impl RateChart {
    fn of(rates: &[f64]) -> Self {
        let rates = &rates[rates.len().saturating_sub(CHART_RATES_MAX)..];
        let highest = rates.iter().copied().fold(0.0, f64::max);
        let (width, height) = CHART_SIZE;
        let step = width / (CHART_RATES_MAX - 1) as f64;
        let mut points = String::new();
        for (number, rate) in rates.iter().enumerate() {
            let x = width - step * (rates.len() - 1 - number) as f64;
            let y = height - CHART_MARGIN - (height - 2.0 * CHART_MARGIN) * rate / highest.max(1.0);
            let space = if number == 0 { "" } else { " " };
            // Writing to a text cannot fail.
            let _ = write!(points, "{space}{x:.1},{y:.1}");
        }
        Self { points, highest: format!("{highest:.1}") }
    }
}

/// Returns the numbers of the page, which are always the ones with these names in this order.
fn all_facts(status: &ServerStatus, requests: Option<&RecentRequests>) -> Vec<Fact> {
    let rate = |window: usize, of: fn(&Rates) -> String| status.rates.get(window).map_or(UNKNOWN.to_owned(), of);
    let within = |per_mille| time_within(requests.map(|requests| &requests.times), per_mille);
    let lines_lost: u64 = status.logs.iter().map(|log| log.lines_lost).sum();
    let facts = [
        ("Requests per second, last 10 s", rate(0, |rates| rates.requests_per_second.to_string())),
        ("Requests per second, last 60 s", rate(1, |rates| rates.requests_per_second.to_string())),
        ("Sent per second, last 10 s", rate(0, |rates| bytes(rates.sent_bytes_per_second as u64))),
        ("Connections per second, last 10 s", rate(0, |rates| rates.connections_per_second.to_string())),
        ("50 % of responses within, last 60 s", within(500)),
        ("90 % of responses within, last 60 s", within(900)),
        ("99 % of responses within, last 60 s", within(990)),
        ("Slowest response, last 60 s", within(1000)),
        ("Open connections", format!("{} of {}", status.connections.open, status.connections.limit)),
        ("Requests since the start", status.requests.total.to_string()),
        ("Responses with 5xx since the start", status.requests.by_status.server_error.to_string()),
        ("Lost lines of logs", lines_lost.to_string()),
        ("Memory", status.memory.resident_bytes.map_or(UNKNOWN.to_owned(), bytes)),
        ("File descriptors", status.descriptors.to_string()),
        ("Workers", workers(status)),
        ("Configuration", status.configuration.number.to_string()),
        ("Uptime of the process", uptime(status.uptime_seconds)),
        ("Restarts after crashes", status.restarts.to_string()),
    ];
    facts.into_iter().map(|(label, value)| Fact { label, value }).collect()
}

const UNKNOWN: &str = "unknown";

/// Returns the time within which `per_mille` of a thousand responses began.
fn time_within(times: Option<&Latencies>, per_mille: u64) -> String {
    match times {
        None => UNKNOWN.to_owned(),
        Some(times) if times.count() == 0 => "no request".to_owned(),
        Some(times) if per_mille >= 1000 => duration(Duration::from_nanos(times.max_ns())),
        Some(times) => duration(Duration::from_nanos(times.within_ns(per_mille))),
    }
}

fn workers(status: &ServerStatus) -> String {
    match status.workers_unresponsive {
        0 => status.workers.to_string(),
        unresponsive => format!("{}, {unresponsive} unresponsive", status.workers),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::log::{SiteTotals, Totals};
    use crate::recorder::RequestRecord;
    use crate::status::{
        ConfigurationStatus, ConnectionStatus, DryRunCount, LatencyStatus, LogStatus, RequestStatus, SentBytes,
        SiteStatus, TraceStatus,
    };
    use crate::status_resources::{DescriptorStatus, LimitStatus, MemoryStatus};
    use crate::upstream_status::{GroupStatus, TryCounts, UpstreamServerStatus};
    use selvedge::proto::head::Version;
    use selvedge::service::PhaseTimes;
    use selvedge::{ConnectionStats, Limits};

    const HOSTILE: &str = "</script><script>alert(1)</script>&\"'\u{202e}\u{0}";

    pub(in crate::status_page) fn record() -> RequestRecord {
        RequestRecord {
            id: (0, 1),
            completed_micros: 1_700_000_000_500_000,
            client: [192, 0, 2, 7].into(),
            status: 502,
            version: Some(Version::Http11),
            method: "GET".to_owned(),
            host: "a.example".to_owned(),
            target: format!("/{HOSTILE}"),
            is_target_cut: true,
            is_aborted: false,
            is_reset: false,
            is_tls: true,
            is_cached: false,
            is_dry_run_refused: false,
            site: "a.example".to_owned(),
            route: "/*".to_owned(),
            pattern: "/*".to_owned(),
            reason: HOSTILE.to_owned(),
            upstream: "app http://10.0.0.1:80".to_owned(),
            upstream_status: None,
            tries: 2,
            content_bytes: 0,
            requests: 1,
            elapsed_micros: 1_500,
            phases: PhaseTimes::default(),
        }
    }

    /// Returns a view with every table filled.
    pub(in crate::status_page) fn filled() -> StatusView {
        let server = UpstreamServerStatus {
            name: "http://10.0.0.1:80".to_owned(),
            state: "out",
            out_seconds: Some(4.2),
            requests: 3,
            waiting: 1,
            failures: 5,
            counts: TryCounts { beyond_limit: 6, tries: 7, ..TryCounts::default() },
        };
        let stats = ConnectionStats::default();
        let mut totals = Totals::default();
        totals.sites.insert("a.example".to_owned(), SiteTotals { classes: [0, 8, 0, 1, 1], content_bytes: 2048 });
        totals.classes = [0, 8, 0, 1, 1];
        totals.reasons.insert(HOSTILE.into(), 2);
        totals.rejects.insert("HeadTooLarge".into(), 3);
        let rates = Rates {
            seconds: 10.0,
            requests_per_second: 12.5,
            connections_per_second: 1.0,
            sent_bytes_per_second: 2048.0,
        };
        let status = ServerStatus {
            version: "0",
            process_id: 1,
            uptime_seconds: 61,
            restarts: 0,
            replacements: 0,
            workers: 2,
            workers_unresponsive: 1,
            configuration: ConfigurationStatus::of("a.kdl".to_owned(), 1..=4, &stats),
            listeners: Vec::new(),
            connections: ConnectionStatus::of(&stats, 1000, &totals),
            requests: RequestStatus::of(&totals),
            sent: SentBytes { head_bytes: 0, content_bytes: 0 },
            latency_ns: LatencyStatus::of(&totals),
            rates: vec![rates.clone(), Rates { requests_per_second: 7.0, ..rates }],
            memory: MemoryStatus { resident_bytes: Some(5 << 20), peak_bytes: None },
            descriptors: DescriptorStatus { open: Some(9), limit: Some(1024) },
            limits: LimitStatus::of(&Limits::default()),
            traces: Some(TraceStatus { spans_exported: 0, spans_dropped: 0 }),
            sites: SiteStatus::all(&totals),
            events: totals.events.clone(),
            dry_run: vec![DryRunCount { site: None, rule: "connections-per-client-max", count: 4 }],
            upstreams: vec![GroupStatus { name: "app".to_owned(), waiting: 2, servers: vec![server] }],
            logs: vec![LogStatus { name: "x".to_owned(), lines_lost: 3 }],
        };
        let mut times = Latencies::default();
        times.count_time(Duration::from_micros(1_500));
        let requests = RecentRequests { times, slowest: vec![record()], failed: vec![record()], failed_count: 12 };
        let certificates = [("a.example".to_owned(), 1_700_100_000), ("b.example".to_owned(), 1_690_000_000)];
        let facts = PageFacts { status, request_rates: vec![0.0, 10.0, 5.0] };
        StatusView::of(&facts, &certificates.into(), (Some(&requests), Duration::from_secs(1_700_000_001)))
    }

    #[test]
    fn an_event_is_one_line_of_json_with_the_texts_of_the_page() {
        let view = filled();
        let json = view.json();
        assert!(!json.contains('\n') && !json.contains('\r'));
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["time"], 1_700_000_001_000_u64);
        assert_eq!(parsed["facts"].as_array().unwrap().len(), view.facts.len());
        // Rates and times are of a window that their label states.
        assert!(view.facts[..8].iter().all(|fact| fact.label.contains(", last ")), "{:?}", view.facts);
        assert_eq!((&parsed["facts"][0], &parsed["facts"][14]), (&"12.5".into(), &"2, 1 unresponsive".into()));
        assert_eq!(parsed["chart"]["highest"], "10.0");
        let failed = &parsed["tables"][0];
        assert_eq!((&failed["more"], &failed["rows"][0]["bad"]), (&11.into(), &true.into()));
        let cells = failed["rows"][0]["cells"].as_array().unwrap();
        // What could change the direction of a line, or end a text, is written as in source text.
        let target = cells[0].as_str().unwrap();
        assert!(target.starts_with("GET /</script>") && target.ends_with("\\u{202e}\\0…"), "{target}");
        assert_eq!(cells.last().unwrap()["time"], 1_700_000_000_500_u64);
        for (number, table) in view.tables.iter().enumerate() {
            assert_eq!(parsed["tables"][number]["rows"].as_array().unwrap().len(), table.rows.len());
            let columns = table.kind.columns.len();
            assert!(table.rows.iter().all(|row| row.cells.len() == columns), "{}", table.kind.title);
            assert!(!table.rows.is_empty(), "{}", table.kind.title);
        }
    }

    #[test]
    fn the_chart_ends_at_the_right_with_the_newest_rate() {
        let chart = RateChart::of(&[0.0, 50.0, 100.0]);
        assert_eq!((chart.points.as_str(), chart.highest.as_str()), ("579.7,78.0 589.8,40.0 600.0,2.0", "100.0"));
        let long: Vec<f64> = (0..64).map(f64::from).collect();
        let chart = RateChart::of(&long);
        assert_eq!(chart.points.split(' ').count(), CHART_RATES_MAX);
        assert!(chart.points.starts_with("0.0,73."), "{}", chart.points);
        assert_eq!(RateChart::of(&[]).points, "");
        assert_eq!(RateChart::of(&[0.0]).points, "600.0,78.0");
    }
}
