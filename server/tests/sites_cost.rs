//! Measures the cost of many sites with routes and fields for a file request, against the single site of
//! `selvedge serve`. Asserts that it allocates nothing and bounds the additional time.
//!
//! The time is asserted with `--release` only.

#![allow(clippy::print_stdout, reason = "it prints the measurements")]

#[allow(dead_code, unused_imports, reason = "the program uses the rest of it")]
#[path = "../src/durations.rs"]
mod durations;
#[allow(dead_code, reason = "the program uses the rest of it")]
#[path = "../src/reasons.rs"]
mod reasons;
#[allow(dead_code, unused_imports, reason = "the program uses the rest of it")]
#[path = "../src/site/mod.rs"]
mod site;
#[allow(dead_code, unused_imports, reason = "the program uses the rest of it")]
#[path = "../src/syntax/mod.rs"]
mod syntax;
#[cfg(feature = "configuration")]
#[allow(dead_code, unused_imports, reason = "the program uses the rest of it")]
#[path = "../src/traces/mod.rs"]
mod traces;

use selvedge::proto::path::SafePath;
use selvedge::service::FileStamp;
use selvedge::{RunningServer, Server, Service};
use site::{
    Action, Condition, DenyResponse, FileFieldRules, FilesRules, HeaderEdits, IndexNames, Listing, Root, Route,
    RouteTable, SiteRules, SiteService,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use syntax::{CaseSensitivity, Pattern, ResponseSelector, TextTemplate};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const SITES: usize = 10_000;
const REQUESTS: usize = 5_000;
const ROUNDS: usize = 5;
/// The number of hosts that the requests alternate between, so that consecutive requests name different hosts.
const HOSTS: usize = 4;
/// The maximum additional time of a request with routes and fields, in the fastest round.
const ADDITIONAL_TIME_MAX: Duration = Duration::from_micros(1);
/// The maximum number of allocations, by sweeps and by the check of the file twice per second.
const BACKGROUND_ALLOCATIONS_MAX: u64 = REQUESTS as u64 / 5;

fn main() {
    let folder = std::env::temp_dir().join(format!("selvedge-cost-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("cannot create the folder");
    std::fs::write(folder.join("a.txt"), "0123456789").expect("cannot write the file");
    // A file is cached only when its modification time is old enough to show the next change.
    let file = std::fs::File::open(folder.join("a.txt")).expect("cannot open the file");
    while FileStamp::of(&file).expect("cannot read the file's times").changed_recently(SystemTime::now()) {
        std::thread::yield_now();
    }
    let root = || Arc::new(Root::open(&folder).expect("cannot open the root"));

    let single = RouteTable::new(vec![SiteRules::for_directory(root(), Listing::Off, site::PageAddresses::default())])
        .expect("the site is valid");
    let (single, table) = (Arc::new(single), Arc::new(table(&root())));
    let one = serve(move || SiteService::new(single.clone(), 1));
    let many = serve(move || SiteService::new(table.clone(), 1));
    let mut clients = [Client::new(&one), Client::new(&many)];
    // The first round fills the caches.
    for client in &mut clients {
        client.time_of(REQUESTS);
    }

    let profiler = dhat::Profiler::builder().testing().build();
    for client in &mut clients {
        let before = dhat::HeapStats::get().total_blocks;
        client.time_of(REQUESTS);
        let allocations = dhat::HeapStats::get().total_blocks - before;
        assert!(
            allocations < BACKGROUND_ALLOCATIONS_MAX,
            "{}: {allocations} allocations in {REQUESTS} requests",
            client.requests[0]
        );
    }
    drop(profiler);

    let mut shortest = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (client, shortest) in clients.iter_mut().zip(&mut shortest) {
            *shortest = client.time_of(REQUESTS).min(*shortest);
        }
    }
    let [of_one, of_many] = shortest.map(|time| time / REQUESTS as u32);
    println!("one site: {of_one:?} per request; {SITES} sites with routes and fields: {of_many:?}");
    // Only an optimized build has a meaningful time.
    assert!(
        cfg!(debug_assertions) || of_many < of_one + ADDITIONAL_TIME_MAX,
        "more than {ADDITIONAL_TIME_MAX:?} of additional time"
    );
    drop(clients);
    for running in [one, many] {
        running.handle().stop_now();
        running.join();
    }
    std::fs::remove_dir_all(folder).expect("cannot remove the folder");
}

fn serve<T: Service>(make: impl Fn() -> T + Send + Sync + 'static) -> RunningServer {
    Server::bind_with_workers("127.0.0.1:0", 1)
        .expect("cannot bind a port")
        .serve_each(make)
        .expect("cannot start threads")
}

fn text(text: &str) -> TextTemplate {
    TextTemplate::parse(text).expect("it has no placeholder")
}

/// Creates sites with some routes before the matching one, and with header fields.
fn table(root: &Arc<Root>) -> RouteTable {
    let rule = |pattern: &str, action| Route {
        tag: 1,
        pattern: Pattern::parse(pattern).expect("the pattern is valid"),
        conditions: Vec::new(),
        access: None,
        body_bytes_max: 10 << 20,
        body_dry_run: None,
        file_fields: FileFieldRules::default(),
        cors: None,
        error_pages: Vec::new(),
        headers: HeaderEdits::default(),
        compress: site::Compress::Off,
        lease: None,
        log_rule: selvedge::service::LogRule::All,
        action,
    };
    let files = FilesRules {
        path_prefix: site::PathPrefix::Kept,
        root: root.clone(),
        index: IndexNames::new(["index.html"]).expect("the name is valid"),
        try_files: Vec::new(),
        fallback: SafePath::decode(b"/index.html").ok(),
        listing: Listing::Off,
        precompressed: site::Precompressed::On,
        addresses: site::PageAddresses::default(),
    };
    let posts = vec![Condition::Method(vec!["POST".into()])];
    let mut headers = HeaderEdits::default();
    headers.set("X-Content-Type-Options", text("nosniff"), None).expect("the field is valid");
    headers.set("Strict-Transport-Security", text("max-age=31536000"), None).expect("the field is valid");
    let mut file_fields = FileFieldRules::default();
    let texts = ResponseSelector::parse("*.txt", CaseSensitivity::Sensitive).expect("the pattern is valid");
    file_fields.add(texts, "max-age=60").expect("the field is valid");
    let one = |number| SiteRules {
        names: [format!("site-{number}.example.com"), format!("*.site-{number}.example.com")]
            .map(|name| name.parse().expect("the name is valid"))
            .to_vec(),
        routes: vec![
            rule("/private/*", Action::Deny(DenyResponse::new(403).expect("the status is an error"))),
            Route {
                conditions: posts.clone(),
                ..rule("/form", Action::Deny(DenyResponse::new(404).expect("the status is an error")))
            },
            rule("/*", Action::Files(files.clone())),
        ],
        headers: headers.clone(),
        file_fields: file_fields.clone(),
        ..SiteRules::default()
    };
    let began = Instant::now();
    let table = RouteTable::new((0..SITES).map(one).collect()).expect("the sites are consistent");
    println!("{SITES} sites compiled in {:?}", began.elapsed());
    table
}

/// A client that requests one file of several hosts over one connection, and allocates nothing.
struct Client {
    stream: TcpStream,
    requests: Vec<String>,
    response: [u8; 2048],
}

impl Client {
    fn new(running: &RunningServer) -> Self {
        let stream = TcpStream::connect(running.addresses()[0]).expect("the server listens");
        stream.set_nodelay(true).expect("cannot set TCP_NODELAY");
        let hosts = (0..HOSTS).map(|number| format!("www.site-{}.example.com", number * SITES / HOSTS));
        let requests = hosts.map(|host| format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n")).collect();
        Self { stream, requests, response: [0; 2048] }
    }

    fn time_of(&mut self, requests: usize) -> Duration {
        let began = Instant::now();
        for request in self.requests.iter().cycle().take(requests) {
            self.stream.write_all(request.as_bytes()).expect("the server reads");
            let mut have = 0;
            while !self.response[..have].ends_with(b"0123456789") {
                have += self.stream.read(&mut self.response[have..]).expect("the server responds");
            }
            assert!(self.response.starts_with(b"HTTP/1.1 200"));
        }
        began.elapsed()
    }
}
