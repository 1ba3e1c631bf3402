//! The cost of an application: of axum on Selvedge and on hyper, and of an equivalent one of actix-web.

use super::throughput::{LatencySource, ThroughputTable};
use crate::bench::{Bench, Measure, Plan, Probe};
use crate::figures::{Figure, Figures, Sample};
use crate::load::mix::{Mix, Persistence};
use crate::load::streams::EventStreams;
use crate::process::server_process::ServerProcess;
use crate::process::tree;
use crate::servers::ContentKind;
use crate::site::{HELLO, MIB};
use anyhow::Result;
use std::time::Duration;

const WORKLOAD: &str = "applications";
/// The length of an upload and of a download.
const LONG_BYTES: usize = 10 * 1024 * 1024;
/// The number of clients that upload or download long content.
const CONNECTIONS: usize = 16;
/// The bytes per second that every server transfers in the tables with a fixed rate.
const BYTES_PER_SECOND: f64 = 256.0 * 1024.0 * 1024.0;
/// The numbers of open event streams.
const FULL: [usize; 2] = [1_000, 10_000];
const QUICK: [usize; 1] = [1_000];
/// How long to wait until servers have freed their buffers.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) fn plans() -> Result<Vec<Plan>> {
    let hello = |connections, title, probe| {
        let mix = Mix::with_response_length("/hello", HELLO.len());
        let plan = throughput(&format!("hello-{connections}"), title, mix, connections, LatencySource::HalfLoad);
        Plan { content: ContentKind::Library, probe, ..plan }
    };
    let mut plans = vec![
        hello(64, "HELLO, WORLD, 64 keep-alive connections", Probe::SystemCallsAndInstructions),
        hello(1_000, "HELLO, WORLD, 1,000 keep-alive connections", Probe::SystemCalls),
    ];
    plans.extend(long_content_plans(
        "upload",
        "10 MiB uploaded to a program that counts them chunk by chunk",
        &Mix::upload("/upload", LONG_BYTES)?,
    ));
    plans.extend(long_content_plans(
        "download",
        "10 MiB that a program generates in chunks of 64 KiB",
        &Mix::with_response_length("/download", LONG_BYTES),
    ));
    let file_of = |path, name, title, latency_source| {
        throughput(name, title, Mix::with_response_length(path, MIB.bytes), CONNECTIONS, latency_source)
    };
    let file = |name, title, latency_source| file_of("/file", name, title, latency_source);
    let title = "A file of 1 MiB, 16 keep-alive connections";
    plans.push(Plan { probe: Probe::SystemCallsOfFewRequests, ..file("file", title, LatencySource::HalfLoad) });
    let rate = BYTES_PER_SECOND / MIB.bytes as f64;
    let title = format!("A file of 1 MiB, {rate} requests per second for every server (256 MiB/s)");
    plans.push(file("file-at-rate", &title, LatencySource::AtRate(rate)));
    let path = format!("/{}", MIB.name);
    plans.push(file_of(
        &path,
        "folder",
        "A file of 1 MiB from a folder, 16 keep-alive connections",
        LatencySource::HalfLoad,
    ));
    plans.push(events());
    Ok(plans)
}

/// Returns two plans: the capacity of each server, and a fixed rate for all servers. At capacity over loopback, the
/// slower side is charged for part of the other side's work.
fn long_content_plans(name: &str, title: &str, mix: &Mix) -> [Plan; 2] {
    let rate = BYTES_PER_SECOND / LONG_BYTES as f64;
    let most = throughput(name, &format!("{title}, 16 at a time"), mix.clone(), CONNECTIONS, LatencySource::ClosedLoop);
    let title = format!("{title}, {rate} requests per second for every server (256 MiB/s)");
    let at_rate = throughput(&format!("{name}-at-rate"), &title, mix.clone(), CONNECTIONS, LatencySource::AtRate(rate));
    [Plan { probe: Probe::SystemCallsOfFewRequests, ..with_memory(most) }, at_rate]
}

fn throughput(name: &str, title: &str, mix: Mix, connections: usize, latency_source: LatencySource) -> Plan {
    ThroughputTable {
        workload: WORKLOAD,
        name: format!("{WORKLOAD}-{name}"),
        title: title.to_owned(),
        content: ContentKind::Application,
        path: "/hello".to_owned(),
        mix,
        connections,
        workers: 1,
        condition: String::new(),
        latency_source,
        probe: Probe::None,
    }
    .plan()
}

/// Adds the private memory per connection at the time when the clients stop in the middle of their requests.
fn with_memory(plan: Plan) -> Plan {
    let (connections, measure) = (plan.connections, plan.measure);
    let measure: Measure = Box::new(move |bench, server| {
        let base = private_mib(server);
        let mut samples = measure(bench, server)?;
        for sample in &mut samples {
            let growth = sample.figures.get(&Figure::PrivateMib).map_or(0.0, |private| (private - base).max(0.0));
            sample.figures.insert(Figure::BytesPerConnection, growth * 1_048_576.0 / connections as f64);
        }
        Ok(samples)
    });
    Plan { measure, ..plan }
}

fn events() -> Plan {
    Plan {
        workload: WORKLOAD,
        name: format!("{WORKLOAD}-events"),
        title: "Private memory per stream of server-sent events, each silent after one event".to_owned(),
        content: ContentKind::Application,
        path: "/hello".to_owned(),
        mix: Mix::one("/events", Persistence::KeepAlive),
        connections: 1,
        workers: 1,
        rounds_min: 1,
        probe: Probe::None,
        upstream: None,
        measure: Box::new(silent_streams),
    }
}

fn silent_streams(bench: &Bench, server: &ServerProcess) -> Result<Vec<Sample>> {
    let base = private_mib(server);
    let (mut streams, mut samples) = (EventStreams::new(server.address(), "/events"), Vec::new());
    for count in bench.effort.pick(&QUICK[..], &FULL[..]) {
        streams.open_until(*count)?;
        std::thread::sleep(bench.effort.pick(SETTLE / 8, SETTLE));
        let private = private_mib(server);
        let figures = Figures::from([
            (Figure::BytesPerConnection, (private - base).max(0.0) * 1_048_576.0 / *count as f64),
            (Figure::PrivateMib, private),
            (Figure::Errors, streams.not_silent_count() as f64),
        ]);
        samples.push(Sample { condition: format!("{count} streams"), figures });
    }
    Ok(samples)
}

fn private_mib(server: &ServerProcess) -> f64 {
    tree::memory(&server.pids()).private as f64 / 1_048_576.0
}
