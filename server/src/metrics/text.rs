//! The text of all metrics.

use super::MetricsData;
use super::families::Families;
use crate::log::NamedCounts;
use crate::site::MetricsFormat;
use crate::traces::SpanCounts;
use crate::upstream_status::UpstreamServerStatus;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;
use selvedge::ConnectionProtocol;
use selvedge::proto::head::Version;
use selvedge::service::{Phase, RequestPhase};
use std::fmt;

/// The classes of status codes, as label values.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The usual length of the metrics of a route, and that of all others. Longer texts are copied while they grow.
const ROUTE_BYTES: usize = 1600;
const BYTES: usize = 32 << 10;

impl MetricsData {
    /// Returns the text of all metrics.
    pub(crate) fn format(self, format: MetricsFormat) -> String {
        let length = BYTES + self.routes.len() * ROUTE_BYTES;
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut out = String::with_capacity(length);
        let written = match format {
            MetricsFormat::OpenMetrics => text::encode(&mut out, &registry),
            MetricsFormat::Prometheus => prometheus_text::encode(&mut out, &registry),
        };
        written.expect("writing to a text cannot fail");
        out
    }

    fn write_requests(&self, families: &mut Families<'_>) -> fmt::Result {
        let of_routes = self.routes.iter().flat_map(|((site, route), totals)| {
            let counted = CLASSES.into_iter().zip(totals.requests.classes).filter(|(_, count)| *count > 0);
            counted.map(move |(class, count)| ([("site", &**site), ("route", &**route), ("status", class)], count))
        });
        families.counters(("selvedge_requests", "Responses by site, route and class of status."), of_routes)?;
        let content = self
            .routes
            .iter()
            .map(|((site, route), totals)| ([("site", &**site), ("route", &**route)], totals.requests.content_bytes));
        families.counters(("selvedge_response_content_bytes", "Bytes of response content."), content)?;
        let durations = self
            .routes
            .iter()
            .map(|((site, route), totals)| ([("site", &**site), ("route", &**route)], &totals.durations));
        families.histograms(
            (
                "selvedge_request_duration_seconds",
                "Time from the complete request head to the complete response, of complete responses.",
            ),
            durations,
        )?;
        families.counter(("selvedge_response_head_bytes", "Bytes of response heads."), self.totals.head_bytes)?;
        families.counter(
            ("selvedge_requests_aborted", "Responses whose connection or stream ended before they were complete."),
            self.totals.aborted,
        )?;
        families.counters(
            ("selvedge_requests_refused", "Requests that were refused before a site got them, by reason."),
            named("reason", &self.totals.rejects),
        )?;
        families.counters(
            ("selvedge_request_errors", "Responses with a reason in the error log, by reason."),
            named("reason", &self.totals.reasons),
        )?;
        let versions = Version::ALL.into_iter().zip(self.details.versions).filter(|(_, count)| *count > 0);
        families.counters(
            ("selvedge_protocol_requests", "Requests by protocol version."),
            versions.map(|(version, count)| ([("protocol", version.as_str())], count)),
        )?;
        families.histograms(
            ("selvedge_request_phase_seconds", "Time of each phase that requests had to wait in."),
            RequestPhase::ALL.into_iter().map(|phase| [("phase", phase.name())]).zip(&self.details.phases),
        )?;
        let dry_run = self
            .dry_run
            .iter()
            .map(|((site, rule), count)| ([("site", site.as_deref().unwrap_or_default()), ("rule", *rule)], *count));
        families.counters(
            ("selvedge_dry_run_refusals", "Requests that rules in dry-run mode would have refused."),
            dry_run,
        )?;
        let cache = [([("result", "hit")], self.details.cache_hits), ([("result", "miss")], self.details.cache_misses)];
        families.counters(
            ("selvedge_file_cache_requests", "Requests for files, by whether the path alone found the response."),
            cache,
        )
    }

    fn write_connections(&self, families: &mut Families<'_>) -> fmt::Result {
        let protocols = [(ConnectionProtocol::Http1, "http1"), (ConnectionProtocol::Http2, "http2")];
        let of_state = Phase::ALL.into_iter().flat_map(|phase| {
            protocols.into_iter().map(move |(protocol, name)| {
                let counts = self.connections.counts.iter();
                let same = counts.filter(|count| (count.phase, count.protocol) == (phase, protocol));
                let count: usize = same.map(|count| count.connections).sum();
                ([("state", state(phase)), ("protocol", name)], count)
            })
        });
        families.gauges(("selvedge_connections", "Open connections by state and protocol."), of_state)?;
        families.gauge(
            ("selvedge_connections_unknown", "Open connections of workers that did not respond."),
            self.connections.unknown,
        )?;
        families.gauge(("selvedge_connections_max", "The limit of connections."), self.process.connections_max)?;
        families.counter(("selvedge_connections_accepted", "Accepted connections."), self.connections.accepted)?;
        families.counters(
            ("selvedge_connections_closed", "Closed connections by reason."),
            named("reason", &self.totals.closes),
        )?;
        fn rows<'c>(
            counts: &'c NamedCounts,
            resumed: &'static str,
        ) -> impl Iterator<Item = ([(&'static str, &'c str); 2], u64)> {
            counts.iter().map(move |(version, count)| ([("version", &**version), ("resumed", resumed)], *count))
        }
        let handshakes = rows(&self.details.handshakes, "false");
        families.counters(
            ("selvedge_tls_handshakes", "Complete TLS handshakes by version."),
            handshakes.chain(rows(&self.details.resumptions, "true")),
        )?;
        let certificates = self.certificates.iter().map(|(name, at)| ([("name", &**name)], *at));
        families.gauges(
            ("selvedge_certificate_expiry_timestamp_seconds", "The last second in which a certificate is valid."),
            certificates,
        )
    }

    fn write_upstreams(&self, families: &mut Families<'_>) -> fmt::Result {
        let servers =
            || self.upstreams.iter().flat_map(|group| group.servers.iter().map(move |server| (&*group.name, server)));
        families.gauges(
            ("selvedge_upstream_healthy", "Whether a server gets its share of requests."),
            servers().map(|(group, server)| (labels(group, server), u32::from(server.state == "healthy"))),
        )?;
        families.gauges(
            ("selvedge_upstream_requests_at_work", "Requests that a server processes."),
            servers().map(|(group, server)| (labels(group, server), server.requests)),
        )?;
        families.gauges(
            ("selvedge_upstream_requests_waiting", "Requests that wait for a place at any server of an upstream."),
            self.upstreams.iter().map(|group| ([("upstream", &*group.name)], group.waiting)),
        )?;
        families.counters(
            ("selvedge_upstream_tries", "Requests that were sent to a server, repetitions included."),
            servers().map(|(group, server)| (labels(group, server), server.counts.tries)),
        )?;
        families.counters(
            ("selvedge_upstream_failures", "Failed requests and checks of a server."),
            servers().map(|(group, server)| (labels(group, server), server.failures)),
        )?;
        families.counters(
            ("selvedge_upstream_dry_run_refusals", "Requests beyond an adaptive limit that only observes."),
            servers().map(|(group, server)| (labels(group, server), server.counts.beyond_limit)),
        )?;
        families.histograms(
            ("selvedge_upstream_response_seconds", "Time from the choice of a server to the head of its response."),
            servers().map(|(group, server)| (labels(group, server), &server.counts.response_times)),
        )
    }

    fn write_spans(&self, families: &mut Families<'_>) -> fmt::Result {
        let Some(SpanCounts { exported, dropped }) = self.spans else { return Ok(()) };
        families.counter(("selvedge_trace_spans_exported", "Spans that the collector has accepted."), exported)?;
        families.counter(
            (
                "selvedge_trace_spans_dropped",
                "Spans that were dropped, because the collector was slow, down or refused them.",
            ),
            dropped,
        )
    }

    fn write_server(&self, families: &mut Families<'_>) -> fmt::Result {
        families.info(("selvedge_build", "The program."), &[("version", env!("CARGO_PKG_VERSION"))])?;
        families.gauge(
            (
                "selvedge_configuration_number",
                "The number of the configuration in force: one more for each reload and each new process.",
            ),
            self.configuration,
        )?;
        families.counter(
            ("selvedge_process_restarts", "Serving processes before this one that ended unexpectedly."),
            self.process.restarts,
        )?;
        families.counter(
            ("selvedge_process_replacements", "Serving processes before this one that were replaced."),
            self.process.replacements,
        )?;
        families.seconds(
            ("selvedge_worker_busy_seconds", "Processor time of each worker."),
            self.connections.busy.iter().map(|(worker, busy)| ([("worker", worker.to_string())], busy.as_secs_f64())),
        )?;
        families.gauge(
            ("selvedge_workers_unresponsive", "Workers that did not respond within a second."),
            self.connections.unresponsive_workers,
        )?;
        families.counters(("selvedge_events", "Events of the server."), named("event", &self.totals.events))?;
        families.counters(
            ("selvedge_log_lines_lost", "Lines that a log has lost, because its file or its reader was too slow."),
            self.lines_lost.iter().map(|(name, lost)| ([("log", &**name)], *lost)),
        )?;
        self.write_spans(families)?;
        families.gauge(
            ("process_start_time_seconds", "Start of the serving process, in seconds since 1970."),
            self.process.started.as_secs_f64(),
        )?;
        families.seconds(
            ("process_cpu_seconds", "Processor time of the serving process."),
            [([("", ""); 0], self.processor_time.as_secs_f64())],
        )?;
        let some = |value: Option<u64>| value.map(|value| ([("", ""); 0], value));
        families.gauges(
            ("process_resident_memory_bytes", "Resident memory of the serving process."),
            some(self.memory.resident_bytes),
        )?;
        families.gauges(("process_open_fds", "Open file descriptors."), some(self.descriptors.open))?;
        families.gauges(("process_max_fds", "The limit of file descriptors."), some(self.descriptors.limit))
    }
}

/// Returns the labels of a server.
fn labels<'s>(group: &'s str, server: &'s UpstreamServerStatus) -> [(&'static str, &'s str); 2] {
    [("upstream", group), ("server", &*server.name)]
}

impl Collector for MetricsData {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        self.write_server(&mut families)?;
        self.write_connections(&mut families)?;
        self.write_requests(&mut families)?;
        self.write_upstreams(&mut families)
    }
}

fn named<'c>(
    label: &'static str,
    counts: &'c NamedCounts,
) -> impl Iterator<Item = ([(&'static str, &'c str); 1], u64)> {
    counts.iter().map(move |(name, count)| ([(label, &**name)], *count))
}

/// Returns the state of a connection as a label value.
fn state(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::ReadingHead => "receiving_head",
        Phase::ReadingContent => "receiving_content",
        Phase::Processing => "processing",
        Phase::Sending => "sending",
        Phase::Lingering => "lingering",
    }
}
