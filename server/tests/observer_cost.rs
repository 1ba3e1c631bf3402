//! Measures what counters and the flight recorder cost for each request, in processor time of the worker. Asserts that
//! they allocate nothing, and bounds their time.
//!
//! The time is asserted with `--release` only.

#![allow(clippy::print_stdout, reason = "it prints the measurements")]

#[allow(dead_code, unused_imports, reason = "the program uses the rest of it")]
#[path = "../src/durations.rs"]
mod durations;
#[allow(dead_code, unused_imports, reason = "the program uses the rest of it")]
#[path = "../src/log/mod.rs"]
mod log;
#[allow(dead_code, reason = "the program uses the rest of it")]
#[path = "../src/reasons.rs"]
mod reasons;
#[allow(dead_code, unused_imports, reason = "the program uses the rest of it")]
#[path = "../src/recorder/mod.rs"]
mod recorder;
#[allow(dead_code, unused_imports, reason = "the program uses the rest of it")]
#[path = "../src/syntax/mod.rs"]
mod syntax;
#[allow(dead_code, unused_imports, reason = "the program uses the rest of it")]
#[path = "../src/traces/mod.rs"]
mod traces;

/// The part of the program that connects logs to sockets. These logs have none.
mod process {
    use crate::log::LogDatagrams;
    use std::io::{Error, ErrorKind, Result};
    use std::path::Path;

    pub(crate) fn connect(_socket: &Path) -> Result<Box<dyn LogDatagrams>> {
        Err(Error::from(ErrorKind::Unsupported))
    }
}

use log::config::{Destination, ErrorFormat, ErrorLogConfig, Level, LogConfig, SiteLogConfig};
use log::{CounterLabels, Counters, LogObserver, Logs, SiteLabels};
use recorder::{LastQuery, Recorder, select};
use selvedge::service::{Exchange, set_route_tag};
use selvedge::{Limits, Observer, Request, Response, RunningServer, Server, StatusCode};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Requests of a round.
const REQUESTS: usize = if cfg!(debug_assertions) { 6_400 } else { 64_000 };
/// Requests that are sent at once.
const BATCH: usize = 64;
const ROUNDS: usize = 20;
/// The most time for each request, in the fastest round.
const TIME_MAX: Duration = Duration::from_nanos(150);
/// Most additional allocations of a round, by the sweeps of the worker.
const ALLOCATIONS_MAX: u64 = REQUESTS as u64 / 100;

/// Looks at the clock as every observer of the program does, and at nothing else.
#[derive(Clone)]
struct ClockOnly;

impl Observer for ClockOnly {
    fn wants_elapsed(&self) -> bool {
        true
    }

    fn finished(&self, _exchange: &Exchange<'_>) {}
}

async fn respond(request: &mut Request) -> Response {
    request.set_site_tag(1);
    set_route_tag(request, 1);
    Response::new(StatusCode::OK).body("0123456789")
}

fn serve(observer: impl Observer + Clone + Send) -> RunningServer {
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("cannot bind a port").observe(observer);
    server.serve(respond).expect("a thread starts")
}

fn logs() -> Logs {
    let error = ErrorLogConfig { destination: Destination::Discard, format: ErrorFormat::Text, level: Level::Error };
    let config =
        LogConfig { access: Vec::new(), sites: vec![SiteLogConfig::default()], error, site_errors: Vec::new() };
    Logs::start(&config, process::connect).expect("nothing has to be opened")
}

fn main() {
    let (logs, counters) = (logs(), Arc::<Counters>::default());
    let recorder = Arc::new(Recorder::new(1).expect("the system has memory"));
    let site = SiteLabels { site: "a.example".to_owned(), routes: vec!["/*".to_owned()] };
    let labels = Arc::new(CounterLabels::new(vec![SiteLabels::default(), site]));
    let observer = LogObserver::new(&logs, &Limits::default()).with_counters(&counters, &labels);
    let patterns = ["", "", "/*"].map(Box::from);
    let recording = observer.with_recorder(&recorder, &labels, &patterns);
    let mut clients = [Client::new(serve(ClockOnly)), Client::new(serve(recording))];
    // In an optimized build, the first rounds fill the ring, and so use its memory.
    for client in &mut clients {
        for _ in 0..2 {
            client.round();
        }
    }

    let profiler = dhat::Profiler::builder().testing().build();
    let [without, with] = clients.each_mut().map(|client| {
        let before = dhat::HeapStats::get().total_blocks;
        client.round();
        dhat::HeapStats::get().total_blocks - before
    });
    drop(profiler);
    assert!(with < without + ALLOCATIONS_MAX, "{with} allocations in {REQUESTS} requests, {without} without");

    let mut shortest = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (client, shortest) in clients.iter_mut().zip(&mut shortest) {
            *shortest = client.round().min(*shortest);
        }
    }
    let [without, with] = shortest.map(|time| time / REQUESTS as u32);
    println!("without: {without:?} per request; with counters and flight recorder: {with:?}");
    assert!(cfg!(debug_assertions) || with < without + TIME_MAX, "more than {TIME_MAX:?} of additional time");
    let last = select(recorder.numbers(), &LastQuery { count_max: 1, ..LastQuery::default() });
    assert_eq!((last[0].site.as_str(), last[0].route.as_str(), last[0].status), ("a.example", "/*", 200));
    assert_eq!(counters.totals().requests(), (REQUESTS * (ROUNDS + 3)) as u64 + 1);
    for Client { running, stream, .. } in clients {
        drop(stream);
        running.handle().stop_now();
        running.join();
    }
    logs.flush_and_join();
}

/// A client that sends many requests at once over one connection, and allocates nothing.
struct Client {
    running: RunningServer,
    stream: TcpStream,
    batch: String,
    responses: Vec<u8>,
}

impl Client {
    fn new(running: RunningServer) -> Self {
        let request = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let mut stream = TcpStream::connect(running.addresses()[0]).expect("the server listens");
        stream.write_all(request.as_bytes()).expect("the server reads");
        let (mut response, mut piece) = (Vec::new(), [0; 1024]);
        while !response.ends_with(b"\r\n\r\n0123456789") {
            let count = stream.read(&mut piece).expect("the server responds");
            response.extend_from_slice(&piece[..count]);
        }
        Self { running, stream, batch: request.repeat(BATCH), responses: vec![0; response.len() * BATCH] }
    }

    /// Sends the requests of a round. Returns the processor time of the worker.
    fn round(&mut self) -> Duration {
        let before = self.busy();
        for _ in 0..REQUESTS / BATCH {
            self.stream.write_all(self.batch.as_bytes()).expect("the server reads");
            self.stream.read_exact(&mut self.responses).expect("the server responds");
        }
        self.busy() - before
    }

    fn busy(&self) -> Duration {
        let stats = self.running.handle().connection_stats(Duration::from_secs(60));
        stats.busy.first().map(|(_, busy)| *busy).expect("the worker responds")
    }
}
