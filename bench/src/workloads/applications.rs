//! What an application costs: axum's on Selvedge and on hyper, and one of actix-web's that does
//! the same.

use super::throughput::{Throughput, Times};
use crate::bench::{Bench, Measure, Plan, Probe};
use crate::figures::{Figure, Figures, Sample};
use crate::load::mix::{Afterwards, Mix};
use crate::load::streams::Streams;
use crate::process::running::Running;
use crate::process::tree;
use crate::servers::Content;
use crate::site::{HELLO, MIB};
use anyhow::Result;
use std::time::Duration;

const WORKLOAD: &str = "applications";
/// What is uploaded, and what is downloaded.
const LONG_BYTES: usize = 10 * 1024 * 1024;
/// So many clients send or take long content.
const CONNECTIONS: usize = 16;
/// What every server sends or takes where all have the same rate: so much a second.
const BYTES_PER_SECOND: f64 = 256.0 * 1024.0 * 1024.0;
/// How many streams of events are open.
const FULL: [usize; 2] = [1_000, 10_000];
const QUICK: [usize; 1] = [1_000];
/// Until buffers are given back.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) fn plans() -> Result<Vec<Plan>> {
    let hello = |connections, title, probe| {
        let mix = Mix::exactly("/hello", HELLO.len());
        let plan = throughput(&format!("hello-{connections}"), title, mix, connections, Times::HalfLoad);
        Plan { content: Content::Library, probe, ..plan }
    };
    let mut plans = vec![
        hello(64, "HELLO, WORLD, 64 keep-alive connections", Probe::SystemCallsAndInstructions),
        hello(1_000, "HELLO, WORLD, 1,000 keep-alive connections", Probe::SystemCalls),
    ];
    plans.extend(long(
        "upload",
        "10 MiB sent to a program that counts them piece by piece",
        &Mix::upload("/upload", LONG_BYTES)?,
    ));
    plans.extend(long(
        "download",
        "10 MiB that a program makes in pieces of 64 KiB",
        &Mix::exactly("/download", LONG_BYTES),
    ));
    let of = |path, name, title, times| throughput(name, title, Mix::exactly(path, MIB.bytes), CONNECTIONS, times);
    let file = |name, title, times| of("/file", name, title, times);
    let title = "A file of 1 MiB, 16 keep-alive connections";
    plans.push(Plan { probe: Probe::SystemCallsOfFew, ..file("file", title, Times::HalfLoad) });
    let rate = BYTES_PER_SECOND / MIB.bytes as f64;
    let title = format!("A file of 1 MiB, {rate} requests a second for every server (256 MiB/s)");
    plans.push(file("file-at-rate", &title, Times::AtRate(rate)));
    let path = format!("/{}", MIB.name);
    plans.push(of(&path, "folder", "A file of 1 MiB out of a folder, 16 keep-alive connections", Times::HalfLoad));
    plans.push(events());
    Ok(plans)
}

/// As much of it as a server can do, and the same rate for all: whoever is the limit over loopback
/// is charged for part of what the other side does.
fn long(name: &str, title: &str, mix: &Mix) -> [Plan; 2] {
    let rate = BYTES_PER_SECOND / LONG_BYTES as f64;
    let most = throughput(name, &format!("{title}, 16 at a time"), mix.clone(), CONNECTIONS, Times::AsMeasured);
    let title = format!("{title}, {rate} requests a second for every server (256 MiB/s)");
    let at_rate = throughput(&format!("{name}-at-rate"), &title, mix.clone(), CONNECTIONS, Times::AtRate(rate));
    [Plan { probe: Probe::SystemCallsOfFew, ..with_memory(most) }, at_rate]
}

fn throughput(name: &str, title: &str, mix: Mix, connections: usize, times: Times) -> Plan {
    Throughput {
        workload: WORKLOAD,
        name: format!("{WORKLOAD}-{name}"),
        title: title.to_owned(),
        content: Content::Application,
        path: "/hello".to_owned(),
        mix,
        connections,
        workers: 1,
        at: String::new(),
        times,
        probe: Probe::Nothing,
    }
    .plan()
}

/// With the memory that each connection has, at the moment when the clients fall silent amid their
/// requests.
fn with_memory(plan: Plan) -> Plan {
    let (connections, measure) = (plan.connections, plan.measure);
    let measure: Measure = Box::new(move |bench, server| {
        let base = private_mib(server);
        let mut samples = measure(bench, server)?;
        for sample in &mut samples {
            let more = sample.figures.get(&Figure::PrivateMib).map_or(0.0, |private| (private - base).max(0.0));
            sample.figures.insert(Figure::BytesPerConnection, more * 1_048_576.0 / connections as f64);
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
        content: Content::Application,
        path: "/hello".to_owned(),
        mix: Mix::one("/events", Afterwards::KeepAlive),
        connections: 1,
        workers: 1,
        rounds_min: 1,
        probe: Probe::Nothing,
        measure: Box::new(silent_streams),
    }
}

fn silent_streams(bench: &Bench, server: &Running) -> Result<Vec<Sample>> {
    let base = private_mib(server);
    let (mut streams, mut samples) = (Streams::new(server.address(), "/events"), Vec::new());
    for count in bench.effort.pick(&QUICK[..], &FULL[..]) {
        streams.open_until(*count)?;
        std::thread::sleep(bench.effort.pick(SETTLE / 8, SETTLE));
        let private = private_mib(server);
        let figures = Figures::from([
            (Figure::BytesPerConnection, (private - base).max(0.0) * 1_048_576.0 / *count as f64),
            (Figure::PrivateMib, private),
            (Figure::Errors, streams.disturbed() as f64),
        ]);
        samples.push(Sample { at: format!("{count} streams"), figures });
    }
    Ok(samples)
}

fn private_mib(server: &Running) -> f64 {
    tree::memory(&server.pids()).private as f64 / 1_048_576.0
}
