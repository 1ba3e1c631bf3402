//! The workloads: each is a list of plans, and each plan a table. Never starts a process itself.

mod applications;
mod idle;
mod interference;
mod load_curve;
mod protocols;
mod proxy;
mod throughput;

use crate::bench::{Bench, Plan, Probe};
use crate::load::mix::{Mix, Persistence};
use crate::servers::ContentKind;
use crate::site::{SIZES, SMALL};
use anyhow::Result;
use throughput::{LatencySource, ThroughputTable};

/// A named workload.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Its origin, and the requests that it sends.
    pub(crate) about: &'static str,
    pub(crate) plans: fn(&Bench) -> Result<Vec<Plan>>,
}

/// All workloads, in the order in which they run and are reported.
pub(crate) const WORKLOADS: [Workload; 13] = [
    Workload {
        name: "small-file",
        about: "as in the Warp article: 151 bytes over keep-alive connections",
        plans: |_| Ok(small_file()),
    },
    Workload {
        name: "hello",
        about: "as in the F# article: a program sends HELLO, WORLD to 1,000 clients",
        plans: |_| Ok(hello()),
    },
    Workload {
        name: "applications",
        about: "axum on Selvedge and on hyper, and actix-web: hello, uploads, downloads, a file, event streams",
        plans: |_| applications::plans(),
    },
    Workload {
        name: "load-curve",
        about: "Figure 1 of the Haskell web server paper: the response rate under overload",
        plans: |_| Ok(load_curve::plans()),
    },
    Workload { name: "sizes", about: "files from 1 KiB to 100 MiB", plans: |bench| Ok(sizes(bench)) },
    Workload {
        name: "cold",
        about: "hot files beside files that are not in the page cache",
        plans: |_| Ok(interference::cold()),
    },
    Workload { name: "idle", about: "memory per idle connection", plans: |_| Ok(idle::plans()) },
    Workload { name: "slow", about: "ordinary traffic beside slow clients", plans: |_| Ok(interference::slow()) },
    Workload { name: "cores", about: "one worker and two", plans: |bench| Ok(cores(bench)) },
    Workload { name: "many-files", about: "the Rust documentation, in Zipf order", plans: many_files },
    Workload {
        name: "http2",
        about: "HTTP/2 with and without TLS: 151 bytes, 1 MiB, and memory of idle connections",
        plans: protocols::http2,
    },
    Workload { name: "tls", about: "HTTP/1.1 over TLS: 151 bytes to 1 MiB, and handshakes", plans: protocols::tls },
    Workload {
        name: "proxy",
        about: "a reverse proxy before one fast upstream: 151 bytes, 64 KiB, 1 MiB",
        plans: proxy::plans,
    },
];

fn small_file() -> Vec<Plan> {
    let path = format!("/{}", SMALL.name);
    let small = |name: &str, title: &str, mix: Mix, connections| ThroughputTable {
        workload: "small-file",
        name: name.to_owned(),
        title: title.to_owned(),
        content: ContentKind::File,
        path: path.clone(),
        mix,
        connections,
        workers: 1,
        condition: String::new(),
        latency_source: if connections == 1 { LatencySource::ClosedLoop } else { LatencySource::HalfLoad },
        // Callgrind counts instructions over at most 16 connections, independently of the table.
        probe: if connections > 64 { Probe::SystemCalls } else { Probe::SystemCallsAndInstructions },
    };
    let one = Mix::one(&path, Persistence::KeepAlive);
    let close = Mix::one(&path, Persistence::Close);
    let batch = Mix::pipelined(&path, 16);
    vec![
        small("small-file-1000", "151 bytes, 1,000 keep-alive connections", one.clone(), 1_000).plan(),
        small("small-file-256", "151 bytes, 256 keep-alive connections", one.clone(), 256).plan(),
        small("small-file-64", "151 bytes, 64 keep-alive connections", one.clone(), 64).plan(),
        small("small-file-1", "151 bytes, one keep-alive connection (latencies are from the closed loop)", one, 1)
            .plan(),
        small(
            "small-file-pipelined",
            "151 bytes, 64 connections, 16 pipelined requests (latencies are of 16 requests)",
            batch,
            64,
        )
        .plan(),
        small("small-file-close", "151 bytes, a new connection for each request, 64 at a time", close, 64).plan(),
    ]
}

fn hello() -> Vec<Plan> {
    let hello = |name: &str, title: &str, persistence| ThroughputTable {
        workload: "hello",
        name: name.to_owned(),
        title: title.to_owned(),
        content: ContentKind::Hello,
        path: "/hello".to_owned(),
        mix: Mix::one("/hello", persistence),
        connections: 1_000,
        workers: 1,
        condition: String::new(),
        latency_source: LatencySource::HalfLoad,
        probe: Probe::SystemCallsAndInstructions,
    };
    let keep = "HELLO, WORLD from a program, 1,000 keep-alive connections (as ab -k -c 1000)";
    let close = "HELLO, WORLD from a program, a new connection for each request, 1,000 at a time (as ab -c 1000)";
    vec![
        hello("hello-keep-alive", keep, Persistence::KeepAlive).plan(),
        hello("hello-close", close, Persistence::Close).plan(),
    ]
}

fn sizes(_: &Bench) -> Vec<Plan> {
    const IN_MEMORY_MAX: usize = 1024 * 1024;
    /// From this size on, a request makes enough system calls that a few requests suffice to count them.
    const MANY_CALLS_MIN: usize = 64 * 1024;
    /// The bytes per second that every server sends in the tables with a fixed rate.
    const BYTES_PER_SECOND: f64 = 256.0 * 1024.0 * 1024.0;
    let mut plans = Vec::new();
    for size in &SIZES {
        let path = format!("/{}", size.name);
        let long = size.bytes > IN_MEMORY_MAX;
        let connections = if long { 4 } else { 16 };
        let (name, kib) = (size.name.trim_end_matches(".html"), size.bytes / 1024);
        let plan = |name, title, latency_source, probe| {
            ThroughputTable {
                workload: "sizes",
                name,
                title,
                content: if long { ContentKind::LongFile } else { ContentKind::File },
                mix: Mix::one(&path, Persistence::KeepAlive),
                path: path.clone(),
                connections,
                workers: 1,
                condition: String::new(),
                latency_source,
                probe,
            }
            .plan()
        };
        plans.push(plan(
            format!("sizes-{name}"),
            format!("{kib} KiB, {connections} keep-alive connections"),
            if long { LatencySource::ClosedLoop } else { LatencySource::HalfLoad },
            match size.bytes {
                _ if long => Probe::None,
                0..MANY_CALLS_MIN => Probe::SystemCalls,
                _ => Probe::SystemCallsOfFewRequests,
            },
        ));
        if size.bytes > 16 * 1024 {
            let rate = BYTES_PER_SECOND / size.bytes as f64;
            let title = format!("{kib} KiB, {rate} requests per second for every server (256 MiB/s)");
            plans.push(plan(format!("sizes-{name}-at-rate"), title, LatencySource::AtRate(rate), Probe::None));
        }
    }
    plans
}

fn cores(bench: &Bench) -> Vec<Plan> {
    /// The rate of each worker in the table with a fixed rate: a sixth of a worker's capacity.
    const REQUESTS_PER_SECOND: usize = 20_000;
    const SUBJECT: &str = "151 bytes, 64 keep-alive connections, one worker and two";
    const SHARED: &str =
        "with two workers, the load generator shares a core with the server: compare the processor time";
    let path = format!("/{}", SMALL.name);
    let plan = |name: &str, title, workers, latency_source| {
        ThroughputTable {
            workload: "cores",
            name: name.to_owned(),
            title,
            content: ContentKind::File,
            path: path.clone(),
            mix: Mix::one(&path, Persistence::KeepAlive),
            connections: 64,
            workers,
            condition: if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") },
            latency_source,
            probe: Probe::None,
        }
        .plan()
    };
    let at_capacity =
        |workers| plan("cores", format!("{SUBJECT} ({SHARED}, not the rate)"), workers, LatencySource::ClosedLoop);
    let at_rate = |workers| {
        let title = format!("{SUBJECT}, {REQUESTS_PER_SECOND} requests per second for each worker ({SHARED})");
        plan("cores-at-rate", title, workers, LatencySource::AtRate((REQUESTS_PER_SECOND * workers) as f64))
    };
    let workers = 1..=bench.cores.len().min(2);
    workers.clone().map(at_capacity).chain(workers.map(at_rate)).collect()
}

fn many_files(bench: &Bench) -> Result<Vec<Plan>> {
    let (paths, order) = bench.site.documents()?;
    let count = paths.len();
    let plan = ThroughputTable {
        workload: "many-files",
        name: "many-files".to_owned(),
        title: format!("The Rust documentation: {count} files in Zipf order, 64 keep-alive connections"),
        content: ContentKind::Tree,
        path: paths[0].clone(),
        mix: Mix::many(&paths, order),
        connections: 64,
        workers: 1,
        condition: String::new(),
        latency_source: LatencySource::HalfLoad,
        probe: Probe::None,
    };
    Ok(vec![plan.plan()])
}
