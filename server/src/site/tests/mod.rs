//! Tests of whole sites over a socket.

#[cfg(feature = "configuration")]
mod access;
mod explanations;
mod fields;
mod file_cache;
mod files;
mod hosts;
#[cfg(feature = "configuration")]
mod proxy;
mod routes;

use super::*;
use crate::syntax::{CaseSensitivity, Pattern, ResponseSelector, Template, TextPattern, TextTemplate, TryPath};
use selvedge::proto::path::{EncodedSlash, SafePath};
use selvedge::service::{Exchange, FileStamp, LogRule};
use selvedge::{Observer, RunningServer, Server};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// A text without placeholders.
fn text(text: &str) -> TextTemplate {
    TextTemplate::parse(text).unwrap()
}

/// A directory with files that is deleted with the test.
struct SiteDirectory(PathBuf);

impl SiteDirectory {
    fn new(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Self(std::env::temp_dir().join(format!("selvedge-sites-{}-{number}", std::process::id())));
        fs::create_dir_all(&folder.0).unwrap();
        for (name, content) in files {
            folder.write(name, content);
        }
        folder
    }

    /// Writes a file. It is cacheable after [`wait_until_stable`].
    fn write(&self, name: &str, content: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn root(&self) -> Arc<Root> {
        Arc::new(Root::open(&self.0).unwrap())
    }

    fn files(&self) -> FilesRules {
        files_rules(self.root())
    }
}

impl Drop for SiteDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn files_rules(root: Arc<Root>) -> FilesRules {
    FilesRules {
        path_prefix: PathPrefix::Kept,
        root,
        index: IndexNames::new(["index.html"]).unwrap(),
        try_files: Vec::new(),
        fallback: None,
        listing: Listing::Off,
        precompressed: Precompressed::On,
        addresses: PageAddresses::default(),
    }
}

fn route(pattern: &str, action: Action) -> Route {
    Route {
        tag: 1,
        pattern: Pattern::parse(pattern).unwrap(),
        conditions: Vec::new(),
        access: None,
        body_bytes_max: 10 << 20,
        body_dry_run: None,
        file_fields: FileFieldRules::default(),
        cors: None,
        error_pages: Vec::new(),
        headers: HeaderEdits::default(),
        action,
        compress: Compress::Off,
        lease: None,
        log_rule: LogRule::All,
    }
}

fn respond_with(text: &'static str) -> Action {
    Action::Respond(FixedResponse::new(200, "text/plain", TextTemplate::parse(text).unwrap()).unwrap())
}

fn path(text: &str) -> SafePath {
    SafePath::decode(text.as_bytes()).unwrap()
}

fn site(name: &str, routes: Vec<Route>) -> SiteRules {
    SiteRules { names: vec![name.parse().unwrap()], routes, ..SiteRules::default() }
}

/// The data of an exchange that the log gets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LoggedExchange {
    status: u16,
    reason: Option<&'static str>,
    user: Option<String>,
    client: String,
    site_tag: u32,
    /// Group, tries, status and failure of a forwarded request.
    upstream: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct RecordingObserver(Arc<Mutex<Vec<LoggedExchange>>>);

impl Observer for RecordingObserver {
    fn finished(&self, exchange: &Exchange<'_>) {
        let Some(request) = exchange.request else { return };
        self.0.lock().unwrap().push(LoggedExchange {
            status: exchange.status.code(),
            reason: exchange.reason,
            user: request.user().map(str::to_owned),
            client: request.client().to_string(),
            site_tag: request.site_tag(),
            upstream: exchange.upstream.map(|upstream| {
                let facts = upstream.facts();
                let status = facts.status.map_or_else(|| "-".to_owned(), |status| status.code().to_string());
                format!("{} {} {status} {}", facts.group, facts.tries, facts.failure.as_deref().unwrap_or("-"))
            }),
        });
    }
}

/// A server of sites that stops with the test.
struct TestServer {
    running: Option<RunningServer>,
    log: RecordingObserver,
}

impl TestServer {
    fn new(sites: Vec<SiteRules>) -> Self {
        let table = Arc::new(RouteTable::new(sites).unwrap());
        let log = RecordingObserver::default();
        let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().observe(log.clone());
        let running = server.serve_each(move || SiteService::new(table.clone(), 1)).unwrap();
        Self { running: Some(running), log }
    }

    fn one(routes: Vec<Route>) -> Self {
        Self::new(vec![site("*", routes)])
    }

    /// Sends these bytes and reads the connection to its end.
    fn exchange(&self, bytes_sent: &str) -> TestResponse {
        let address = self.running.as_ref().unwrap().addresses()[0];
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(bytes_sent.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        TestResponse::read(&bytes)
    }

    /// Sends a request with these lines after its Host.
    fn request(&self, method: &str, target: &str, host: &str, lines: &[&str]) -> TestResponse {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.exchange(&format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n"))
    }

    fn get(&self, target: &str) -> TestResponse {
        self.request("GET", target, "test", &[])
    }

    fn get_with(&self, target: &str, lines: &[&str]) -> TestResponse {
        self.request("GET", target, "test", lines)
    }

    /// Removes and returns the last logged exchange.
    fn logged(&self) -> LoggedExchange {
        // The response is sent before the exchange is logged.
        until("an exchange is logged", || !self.log.0.lock().unwrap().is_empty());
        self.log.0.lock().unwrap().pop().unwrap()
    }

    fn clear_log(&self) {
        let _ = self.logged();
        self.log.0.lock().unwrap().clear();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let running = self.running.take().unwrap();
        running.handle().stop_now();
        running.join();
    }
}

/// A parsed response.
#[derive(Clone, Debug)]
struct TestResponse {
    status: u16,
    fields: Vec<(String, String)>,
    content: String,
}

impl TestResponse {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, content) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text}"));
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let fields = lines.map(|line| line.split_once(": ").unwrap());
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { status, fields, content: content.to_owned() }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| &**value)
    }

    fn values(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(own, _)| own == name).map(|(_, value)| &**value).collect()
    }

    fn status_and_text(&self) -> (u16, &str) {
        (self.status, &self.content)
    }
}

/// Waits until all files that exist now are old enough to be cached.
fn wait_until_stable() {
    let newest = SiteDirectory::new(&[("newest", "")]);
    until("the files are old enough", || {
        let stamp = FileStamp::of(fs::File::open(newest.0.join("newest")).unwrap()).unwrap();
        !stamp.changed_recently(SystemTime::now())
    });
}

/// Waits until a condition holds.
fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn rename_over(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}
