//! The workloads: each a list of plans, each plan a table. Never starts anything by itself.

mod applications;
mod beside;
mod idle;
mod load_curve;
mod throughput;

use crate::bench::{Bench, Plan, Probe};
use crate::load::mix::{Afterwards, Mix};
use crate::servers::Content;
use crate::site::{SIZES, SMALL};
use anyhow::Result;
use throughput::{Throughput, Times};

/// A workload by its name.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Where it comes from, and what it asks.
    pub(crate) about: &'static str,
    pub(crate) plans: fn(&Bench) -> Result<Vec<Plan>>,
}

/// All of them, in the order in which they run and are reported.
pub(crate) const WORKLOADS: [Workload; 10] = [
    Workload {
        name: "small-file",
        about: "the Warp article's: 151 bytes over keep-alive connections",
        plans: |_| Ok(small_file()),
    },
    Workload {
        name: "hello",
        about: "the F# article's: a program answers HELLO, WORLD to 1,000 clients",
        plans: |_| Ok(hello()),
    },
    Workload {
        name: "applications",
        about: "axum on Selvedge and on hyper, and actix-web: hello, uploads, downloads, a file, streams of events",
        plans: |_| applications::plans(),
    },
    Workload {
        name: "load-curve",
        about: "the Haskell Web Server's Figure 1: the reply rate when more is asked than can be done",
        plans: |_| Ok(load_curve::plans()),
    },
    Workload { name: "sizes", about: "files from 1 KiB to 100 MiB", plans: |bench| Ok(sizes(bench)) },
    Workload {
        name: "cold",
        about: "hot files beside files that are not in the page cache",
        plans: |_| Ok(beside::cold()),
    },
    Workload { name: "idle", about: "what a connection costs that says nothing", plans: |_| Ok(idle::plans()) },
    Workload { name: "slow", about: "ordinary traffic beside slow clients", plans: |_| Ok(beside::slow()) },
    Workload { name: "cores", about: "one worker and two", plans: |bench| Ok(cores(bench)) },
    Workload { name: "many-files", about: "the Rust documentation, in a zipf order", plans: many_files },
];

fn small_file() -> Vec<Plan> {
    let path = format!("/{}", SMALL.name);
    let small = |name: &str, title: &str, mix: Mix, connections| Throughput {
        workload: "small-file",
        name: name.to_owned(),
        title: title.to_owned(),
        content: Content::File,
        path: path.clone(),
        mix,
        connections,
        workers: 1,
        at: String::new(),
        times: if connections == 1 { Times::AsMeasured } else { Times::HalfLoad },
        // Under callgrind instructions are counted over 16 connections at the most, whatever the table.
        probe: if connections > 64 { Probe::SystemCalls } else { Probe::SystemCallsAndInstructions },
    };
    let one = Mix::one(&path, Afterwards::KeepAlive);
    let close = Mix::one(&path, Afterwards::Close);
    let batch = Mix::pipelined(&path, 16);
    vec![
        small("small-file-1000", "151 bytes, 1,000 keep-alive connections", one.clone(), 1_000).plan(),
        small("small-file-256", "151 bytes, 256 keep-alive connections", one.clone(), 256).plan(),
        small("small-file-64", "151 bytes, 64 keep-alive connections", one.clone(), 64).plan(),
        small("small-file-1", "151 bytes, one keep-alive connection (its times are from the same run)", one, 1).plan(),
        small("small-file-pipelined", "151 bytes, 64 connections, 16 pipelined requests (times are for 16)", batch, 64)
            .plan(),
        small("small-file-close", "151 bytes, a new connection for each request, 64 at a time", close, 64).plan(),
    ]
}

fn hello() -> Vec<Plan> {
    let hello = |name: &str, title: &str, afterwards| Throughput {
        workload: "hello",
        name: name.to_owned(),
        title: title.to_owned(),
        content: Content::Hello,
        path: "/hello".to_owned(),
        mix: Mix::one("/hello", afterwards),
        connections: 1_000,
        workers: 1,
        at: String::new(),
        times: Times::HalfLoad,
        probe: Probe::SystemCallsAndInstructions,
    };
    let keep = "HELLO, WORLD from a program, 1,000 keep-alive connections (as ab -k -c 1000)";
    let close = "HELLO, WORLD from a program, a new connection for each request, 1,000 at a time (as ab -c 1000)";
    vec![
        hello("hello-keep-alive", keep, Afterwards::KeepAlive).plan(),
        hello("hello-close", close, Afterwards::Close).plan(),
    ]
}

fn sizes(_: &Bench) -> Vec<Plan> {
    const IN_MEMORY_MAX: usize = 1024 * 1024;
    /// From here on a request takes so many calls that few show what it takes.
    const MANY_CALLS_MIN: usize = 64 * 1024;
    /// What every server sends at the same rate: so much a second.
    const BYTES_PER_SECOND: f64 = 256.0 * 1024.0 * 1024.0;
    let mut plans = Vec::new();
    for size in &SIZES {
        let path = format!("/{}", size.name);
        let long = size.bytes > IN_MEMORY_MAX;
        let connections = if long { 4 } else { 16 };
        let (name, kib) = (size.name.trim_end_matches(".html"), size.bytes / 1024);
        let plan = |name, title, times, probe| {
            Throughput {
                workload: "sizes",
                name,
                title,
                content: if long { Content::LongFile } else { Content::File },
                mix: Mix::one(&path, Afterwards::KeepAlive),
                path: path.clone(),
                connections,
                workers: 1,
                at: String::new(),
                times,
                probe,
            }
            .plan()
        };
        plans.push(plan(
            format!("sizes-{name}"),
            format!("{kib} KiB, {connections} keep-alive connections"),
            if long { Times::AsMeasured } else { Times::HalfLoad },
            match size.bytes {
                _ if long => Probe::Nothing,
                0..MANY_CALLS_MIN => Probe::SystemCalls,
                _ => Probe::SystemCallsOfFew,
            },
        ));
        if size.bytes > 16 * 1024 {
            let rate = BYTES_PER_SECOND / size.bytes as f64;
            let title = format!("{kib} KiB, {rate} requests a second for every server (256 MiB/s)");
            plans.push(plan(format!("sizes-{name}-at-rate"), title, Times::AtRate(rate), Probe::Nothing));
        }
    }
    plans
}

fn cores(bench: &Bench) -> Vec<Plan> {
    /// What every worker is asked for where it is the same for all: a sixth of what one can do.
    const REQUESTS_PER_SECOND: usize = 20_000;
    const WHAT: &str = "151 bytes, 64 keep-alive connections, one worker and two";
    const SHARED: &str = "with two, the load shares a core with the server: compare the processor time";
    let path = format!("/{}", SMALL.name);
    let plan = |name: &str, title, workers, times| {
        Throughput {
            workload: "cores",
            name: name.to_owned(),
            title,
            content: Content::File,
            path: path.clone(),
            mix: Mix::one(&path, Afterwards::KeepAlive),
            connections: 64,
            workers,
            at: if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") },
            times,
            probe: Probe::Nothing,
        }
        .plan()
    };
    let most = |workers| plan("cores", format!("{WHAT} ({SHARED}, not the rate)"), workers, Times::AsMeasured);
    let at_rate = |workers| {
        let title = format!("{WHAT}, {REQUESTS_PER_SECOND} requests a second for each worker ({SHARED})");
        plan("cores-at-rate", title, workers, Times::AtRate((REQUESTS_PER_SECOND * workers) as f64))
    };
    let workers = 1..=bench.cores.len().min(2);
    workers.clone().map(most).chain(workers.map(at_rate)).collect()
}

fn many_files(bench: &Bench) -> Result<Vec<Plan>> {
    let (paths, order) = bench.site.documents()?;
    let count = paths.len();
    let plan = Throughput {
        workload: "many-files",
        name: "many-files".to_owned(),
        title: format!("The Rust documentation: {count} files in a zipf order, 64 keep-alive connections"),
        content: Content::Tree,
        path: paths[0].clone(),
        mix: Mix::many(&paths, order),
        connections: 64,
        workers: 1,
        at: String::new(),
        times: Times::HalfLoad,
        probe: Probe::Nothing,
    };
    Ok(vec![plan.plan()])
}
