//! The processor time of a reverse proxy. Its upstream is the raw epoll loop, which does not count.

use super::throughput::{LatencySource, ThroughputTable};
use crate::bench::{Bench, Plan, Probe};
use crate::load::mix::Mix;
use crate::servers::{ContentKind, UpstreamProgram};
use crate::site::{MIB, SIZES, SMALL, SizedFile};
use anyhow::Result;

const WORKLOAD: &str = "proxy";
/// The bytes per second that every proxy forwards in the tables with a fixed rate.
const BYTES_PER_SECOND: f64 = 256.0 * 1024.0 * 1024.0;

/// Returns the plans, and builds the upstream.
pub(super) fn plans(bench: &Bench) -> Result<Vec<Plan>> {
    let upstream = UpstreamProgram::build(&bench.scratch)?;
    let plan = |name: &str, title: String, file: &SizedFile, connections, latency_source, probe| {
        let path = format!("/{}", file.name);
        let table = ThroughputTable {
            workload: WORKLOAD,
            name: format!("{WORKLOAD}-{name}"),
            title,
            content: ContentKind::Proxied,
            mix: Mix::with_response_length(&path, file.bytes),
            path,
            connections,
            workers: 1,
            condition: String::new(),
            latency_source,
            probe,
        };
        Plan { upstream: Some(upstream.clone()), ..table.plan() }
    };
    let title = "151 bytes through a proxy, 64 keep-alive connections".to_owned();
    let probe = Probe::SystemCallsAndInstructions;
    let mut plans = vec![plan("small", title, &SMALL, 64, LatencySource::HalfLoad, probe)];
    for (file, name, length, connections) in [(&SIZES[2], "64k", "64 KiB", 16), (&MIB, "1m", "1 MiB", 8)] {
        let title = format!("{length} through a proxy, {connections} keep-alive connections");
        let probe = Probe::SystemCallsOfFewRequests;
        plans.push(plan(name, title, file, connections, LatencySource::HalfLoad, probe));
        let rate = BYTES_PER_SECOND / file.bytes as f64;
        let title = format!("{length} through a proxy, {rate} requests per second for every proxy (256 MiB/s)");
        let source = LatencySource::AtRate(rate);
        plans.push(plan(&format!("{name}-at-rate"), title, file, connections, source, Probe::None));
    }
    Ok(plans)
}
