//! What many sites with routes and fields cost a request for a file, held against the one
//! site of `selvedge serve`: no allocation, and how much time.
//!
//! Run it with `--release` for the time that counts.

#![allow(clippy::print_stdout, reason = "it is run to be read")]

#[allow(dead_code, unused_imports, reason = "the program uses the rest of it")]
#[path = "../src/site/mod.rs"]
mod site;

use selvedge::proto::path::SafePath;
use selvedge::{Running, Server, Service};
use site::{
    Action, CacheRules, Condition, Denial, FilesRules, HeaderEdits, IndexNames, Listing, Pattern, Root, Route,
    SiteRules, SiteTable, Sites,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const SITES: usize = 10_000;
const REQUESTS: usize = 5_000;
const ROUNDS: usize = 5;
/// Hosts that are asked for in turn, so that none is that of the request before.
const HOSTS: usize = 4;
/// What routes and fields may cost a request, as the shortest of the rounds has it.
const TIME_MORE_MAX: Duration = Duration::from_micros(1);
/// What sweeps and the look at the file twice a second may allocate meanwhile.
const MEANWHILE_MAX: u64 = REQUESTS as u64 / 5;

fn main() {
    let folder = std::env::temp_dir().join(format!("selvedge-cost-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("a.txt"), "0123456789").expect("a file");
    // Until its times would show the next change, a file is not kept.
    std::thread::sleep(Duration::from_millis(200));
    let root = || Arc::new(Root::open(&folder).expect("a root"));

    let single = SiteTable::new(vec![SiteRules::of_directory(root(), Listing::Off)]).expect("a site");
    let (single, table) = (Arc::new(single), Arc::new(table(&root())));
    let one = serve(move || Sites::new(single.clone(), 1));
    let many = serve(move || Sites::new(table.clone(), 1));
    let mut clients = [Client::new(&one), Client::new(&many)];
    // The first round warms up what is kept.
    for client in &mut clients {
        client.time_of(REQUESTS);
    }

    let profiler = dhat::Profiler::builder().testing().build();
    for client in &mut clients {
        let before = dhat::HeapStats::get().total_blocks;
        client.time_of(REQUESTS);
        let allocations = dhat::HeapStats::get().total_blocks - before;
        assert!(
            allocations < MEANWHILE_MAX,
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
    println!("one site: {of_one:?} a request; {SITES} sites with routes and fields: {of_many:?}");
    // Only an optimized build has a time that counts.
    assert!(cfg!(debug_assertions) || of_many < of_one + TIME_MORE_MAX, "more than {TIME_MORE_MAX:?} more");
    drop(clients);
    for running in [one, many] {
        running.handle().stop_now();
        running.join();
    }
    std::fs::remove_dir_all(folder).expect("it was ours");
}

fn serve<T: Service>(make: impl Fn() -> T + Send + Sync + 'static) -> Running {
    Server::bind_with_workers("127.0.0.1:0", 1).expect("a port").serve_each(make).expect("a thread")
}

/// Sites with some routes before the one that counts, and with fields of their own.
fn table(root: &Arc<Root>) -> SiteTable {
    let rule = |pattern: &str, action| Route {
        pattern: Pattern::parse(pattern).expect("a pattern"),
        conditions: Vec::new(),
        gates: None,
        body_bytes_max: 10 << 20,
        cache: CacheRules::default(),
        pages: Vec::new(),
        headers: HeaderEdits::default(),
        action,
    };
    let files = FilesRules {
        root: root.clone(),
        index: IndexNames::new(["index.html"]).expect("a name"),
        attempts: Vec::new(),
        fallback: SafePath::decode(b"/index.html").ok(),
        listing: Listing::Off,
        sidecars: site::Sidecars::On,
    };
    let posts = vec![Condition::Method(vec!["POST".into()])];
    let mut headers = HeaderEdits::default();
    headers.set("X-Content-Type-Options", "nosniff").expect("a field");
    headers.set("Strict-Transport-Security", "max-age=31536000").expect("a field");
    let mut cache = CacheRules::default();
    cache.add(Pattern::parse("*.txt").expect("a pattern"), "max-age=60").expect("a field");
    let one = |number| SiteRules {
        names: [format!("site-{number}.example.com"), format!("*.site-{number}.example.com")]
            .map(|name| name.parse().expect("a name"))
            .to_vec(),
        routes: vec![
            rule("/private/*", Action::Deny(Denial::new(403).expect("an error"))),
            Route { conditions: posts.clone(), ..rule("/form", Action::Deny(Denial::new(404).expect("an error"))) },
            rule("/*", Action::Files(files.clone())),
        ],
        headers: headers.clone(),
        cache: cache.clone(),
        ..SiteRules::default()
    };
    let began = Instant::now();
    let table = SiteTable::new((0..SITES).map(one).collect()).expect("sites that go together");
    println!("{SITES} sites put together in {:?}", began.elapsed());
    table
}

/// A connection that asks for the same file of one host after the other, and allocates nothing.
struct Client {
    stream: TcpStream,
    requests: Vec<String>,
    answer: [u8; 2048],
}

impl Client {
    fn new(running: &Running) -> Self {
        let stream = TcpStream::connect(running.addresses()[0]).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        let hosts = (0..HOSTS).map(|number| format!("www.site-{}.example.com", number * SITES / HOSTS));
        let requests = hosts.map(|host| format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n")).collect();
        Self { stream, requests, answer: [0; 2048] }
    }

    fn time_of(&mut self, requests: usize) -> Duration {
        let began = Instant::now();
        for request in self.requests.iter().cycle().take(requests) {
            self.stream.write_all(request.as_bytes()).expect("it reads");
            let mut have = 0;
            while !self.answer[..have].ends_with(b"0123456789") {
                have += self.stream.read(&mut self.answer[have..]).expect("it answers");
            }
            assert!(self.answer.starts_with(b"HTTP/1.1 200"));
        }
        began.elapsed()
    }
}
