//! The status of a running server, and what its processes have counted.

use super::LiveServer;
use crate::log::Totals;
use crate::metrics::{MetricsData, ProcessFacts};
use crate::process::{all_counts, hand_over_counts};
use crate::snapshot::certificate_expiry;
use crate::status::{
    ConfigurationStatus, ConnectionStatus, DryRunCount, LatencyStatus, LogStatus, RequestStatus, SentBytes,
    ServerStatus, SiteStatus, TraceStatus,
};
use crate::status_page::{CertificateExpiry, PageFacts};
use crate::status_resources::{DescriptorStatus, LimitStatus, MemoryStatus};
use std::time::{Duration, Instant};

/// How long workers may take to report their connections. A slower one is reported as unresponsive.
const STATS_TIMEOUT: Duration = Duration::from_secs(1);

impl LiveServer {
    /// Returns the status. Waits for workers at most one second.
    pub(crate) fn status(&self) -> ServerStatus {
        let stats = self.handle.connection_stats(STATS_TIMEOUT);
        let own = self.totals();
        let rates = self.rates.rates(&own, Instant::now());
        let totals = all_counts(&self.serving_process, own);
        let all = |site: &Option<String>, rule: &str, own| {
            let sites = totals.dry_run.get(rule);
            sites.and_then(|sites| sites.get(site.as_deref().unwrap_or_default())).copied().unwrap_or(own)
        };
        let dry_run = self.snapshot.dry_run_counts().into_iter();
        let dry_run =
            dry_run.map(|(site, rule, own)| DryRunCount { count: all(&site, rule, own), site, rule }).collect();
        let losses = self.snapshot.logs.losses();
        let start_info = self.serving_process.start_info();
        ServerStatus {
            version: env!("CARGO_PKG_VERSION"),
            process_id: std::process::id(),
            uptime_seconds: self.started_at.elapsed().as_secs(),
            restarts: start_info.restarts,
            replacements: start_info.replacements,
            workers: self.workers,
            workers_unresponsive: stats.unresponsive_workers,
            configuration: ConfigurationStatus::of(
                self.file.display().to_string(),
                start_info.configuration_before + 1..=self.snapshot.number,
                &stats,
            ),
            listeners: self.listeners.endpoints().map(ToString::to_string).collect(),
            limits: LimitStatus::of(self.snapshot.limits()),
            connections: ConnectionStatus::of(&stats, self.connections_max, &totals),
            requests: RequestStatus::of(&totals),
            sent: SentBytes { head_bytes: totals.head_bytes, content_bytes: totals.content_bytes },
            latency_ns: LatencyStatus::of(&totals),
            rates,
            memory: MemoryStatus::now(),
            descriptors: DescriptorStatus::now(),
            sites: SiteStatus::all(&totals),
            events: totals.events.clone(),
            dry_run,
            upstreams: self.snapshot.upstream_status(),
            traces: self.snapshot.span_counts().map(TraceStatus::of),
            logs: losses.map(|(name, lines_lost)| LogStatus { name: name.to_owned(), lines_lost }).collect(),
        }
    }

    /// Returns what metrics are made of. Waits for workers at most one second.
    pub(crate) fn metrics(&self) -> MetricsData {
        let start_info = self.serving_process.start_info();
        let process = ProcessFacts {
            started: self.started,
            restarts: start_info.restarts,
            replacements: start_info.replacements,
            connections_max: self.connections_max,
        };
        MetricsData::of(&self.snapshot, process, self.handle.connection_stats(STATS_TIMEOUT))
    }

    /// Returns what the live page shows. Waits for workers at most one second.
    pub(crate) fn page_facts(&self) -> PageFacts {
        PageFacts { status: self.status(), request_rates: self.rates.request_rates() }
    }

    /// Returns when certificates expire.
    pub(crate) fn certificate_expiry(&self) -> CertificateExpiry {
        certificate_expiry(&self.snapshot)
    }

    /// Returns what this process has counted.
    fn totals(&self) -> Totals {
        let mut totals = self.snapshot.counters.totals();
        totals.accepted = self.handle.accepted_connections();
        for (site, rule, count) in self.snapshot.dry_run_counts() {
            totals.dry_run.entry(rule.to_owned()).or_default().insert(site.unwrap_or_default(), count);
        }
        totals
    }

    /// Hands the counts to the supervisor, and records them for the rates.
    pub(crate) fn record_counts(&mut self) {
        let totals = self.totals();
        hand_over_counts(&self.serving_process, &totals);
        self.panics.observe(totals.panics(), &self.serving_process);
        self.rates.record(&totals, Instant::now());
    }
}
