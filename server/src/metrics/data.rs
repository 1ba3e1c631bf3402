//! What metrics are made of, as plain data.

use crate::log::{CounterDetails, RouteSums, Totals};
use crate::snapshot::{Snapshot, certificate_expiry};
use crate::status_resources::{DescriptorStatus, MemoryStatus};
use crate::traces::SpanCounts;
use crate::upstream_status::GroupStatus;
use rustix::time::{ClockId, clock_gettime};
use selvedge::ConnectionStats;
use std::collections::BTreeMap;
use std::time::Duration;

/// The state of the server and its counts.
#[derive(Clone, Debug)]
pub(crate) struct MetricsData {
    pub(super) process: ProcessFacts,
    pub(super) memory: MemoryStatus,
    pub(super) descriptors: DescriptorStatus,
    /// The processor time of the process.
    pub(super) processor_time: Duration,
    /// The number of the configuration in force.
    pub(super) configuration: u64,
    pub(super) connections: ConnectionStats,
    /// Sums of this process, without those of routes.
    pub(super) totals: Totals,
    pub(super) routes: RouteSums,
    pub(super) details: CounterDetails,
    /// Names of certificates, and the last second in which each is valid, in Unix time.
    pub(super) certificates: BTreeMap<String, i64>,
    pub(super) upstreams: Vec<GroupStatus>,
    /// Requests that a rule in dry-run mode would have refused, by site and rule. The server has no site.
    pub(super) dry_run: BTreeMap<(Option<String>, &'static str), u64>,
    /// Lines that logs have lost, by the name of the log.
    pub(super) lines_lost: BTreeMap<String, u64>,
    /// What became of spans, if the configuration has traces.
    pub(super) spans: Option<SpanCounts>,
}

/// What of a process does not depend on its configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessFacts {
    /// When the process began to serve, since 1970.
    pub(crate) started: Duration,
    /// Serving processes before this one that ended unexpectedly.
    pub(crate) restarts: u64,
    /// Serving processes before this one that were replaced.
    pub(crate) replacements: u64,
    /// The limit of connections.
    pub(crate) connections_max: usize,
}

impl MetricsData {
    /// Collects what belongs to a configuration and to the process beside these facts.
    pub(crate) fn of(snapshot: &Snapshot, process: ProcessFacts, connections: ConnectionStats) -> Self {
        let (mut dry_run, mut lines_lost) = (BTreeMap::new(), BTreeMap::new());
        for (site, rule, count) in snapshot.dry_run_counts() {
            *dry_run.entry((site, rule)).or_default() += count;
        }
        for (name, lost) in snapshot.logs.losses() {
            *lines_lost.entry(name.to_owned()).or_default() += lost;
        }
        let used = snapshot.upstream_status().into_iter().filter(GroupStatus::is_in_use);
        Self {
            process,
            memory: MemoryStatus::now(),
            descriptors: DescriptorStatus::now(),
            processor_time: Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default(),
            configuration: snapshot.number,
            totals: snapshot.counters.totals_without_routes(),
            connections,
            routes: snapshot.counters.routes(),
            details: snapshot.counters.details(),
            certificates: certificate_expiry(snapshot),
            upstreams: used.collect(),
            dry_run,
            lines_lost,
            spans: snapshot.span_counts(),
        }
    }
}
