//! Whole sites, asked over a socket.

mod fields;
mod files;
mod gates;
mod hosts;
mod routes;
mod short_way;

use super::*;
use selvedge::proto::path::SafePath;
use selvedge::service::Exchange;
use selvedge::{Observer, Running, Server};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A directory with files that goes away with the test.
struct Folder(PathBuf);

impl Folder {
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

    /// A file that was last changed long enough ago to be kept.
    fn write(&self, name: &str, content: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn root(&self) -> Arc<Root> {
        Arc::new(Root::open(&self.0).unwrap())
    }

    fn files(&self) -> FilesRules {
        files_of(self.root())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn files_of(root: Arc<Root>) -> FilesRules {
    FilesRules {
        root,
        index: IndexNames::new(["index.html"]).unwrap(),
        attempts: Vec::new(),
        fallback: None,
        listing: Listing::Off,
        sidecars: Sidecars::On,
    }
}

fn route(pattern: &str, action: Action) -> Route {
    Route {
        pattern: Pattern::parse(pattern).unwrap(),
        conditions: Vec::new(),
        gates: None,
        body_bytes_max: 10 << 20,
        cache: CacheRules::default(),
        pages: Vec::new(),
        headers: HeaderEdits::default(),
        action,
    }
}

fn say(text: &'static str) -> Action {
    Action::Respond(Reply::new(200, "text/plain", text).unwrap())
}

fn path(text: &str) -> SafePath {
    SafePath::decode(text.as_bytes()).unwrap()
}

fn site(name: &str, routes: Vec<Route>) -> SiteRules {
    SiteRules { names: vec![name.parse().unwrap()], routes, ..SiteRules::default() }
}

/// What the log would know of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Logged {
    status: u16,
    reason: Option<&'static str>,
    user: Option<String>,
    client: String,
    label: u32,
}

#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<Logged>>>);

impl Observer for Log {
    fn finished(&self, exchange: &Exchange<'_>) {
        let Some(request) = exchange.request else { return };
        self.0.lock().unwrap().push(Logged {
            status: exchange.status.code(),
            reason: exchange.reason,
            user: request.user().map(str::to_owned),
            client: request.client().to_string(),
            label: request.label(),
        });
    }
}

/// Sites that are served until the test ends.
struct Served {
    running: Option<Running>,
    log: Log,
}

impl Served {
    fn new(sites: Vec<SiteRules>) -> Self {
        let table = Arc::new(SiteTable::new(sites).unwrap());
        let log = Log::default();
        let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().observe(log.clone());
        let running = server.serve_each(move || Sites::new(table.clone(), 1)).unwrap();
        Self { running: Some(running), log }
    }

    fn one(routes: Vec<Route>) -> Self {
        Self::new(vec![site("*", routes)])
    }

    /// Sends these octets and reads one connection to its end.
    fn exchange(&self, octets: &str) -> Answer {
        let address = self.running.as_ref().unwrap().addresses()[0];
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(octets.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Answer::read(&bytes)
    }

    /// One request with these lines behind its Host.
    fn ask(&self, method: &str, target: &str, host: &str, lines: &[&str]) -> Answer {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.exchange(&format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n"))
    }

    fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, "test", &[])
    }

    fn get_with(&self, target: &str, lines: &[&str]) -> Answer {
        self.ask("GET", target, "test", lines)
    }

    /// What was logged of the last exchange.
    fn logged(&self) -> Logged {
        // The answer leaves before it is reported.
        for _ in 0..100 {
            if let Some(last) = self.log.0.lock().unwrap().pop() {
                return last;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nothing was logged")
    }

    fn clear_log(&self) {
        let _ = self.logged();
        self.log.0.lock().unwrap().clear();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let running = self.running.take().unwrap();
        running.handle().stop_now();
        running.join();
    }
}

/// An answer, taken apart.
#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    fields: Vec<(String, String)>,
    content: String,
}

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, content) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
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

    fn said(&self) -> (u16, &str) {
        (self.status, &self.content)
    }
}

/// Files are kept once their times would show the next change.
fn settle() {
    std::thread::sleep(Duration::from_millis(150));
}

fn swap(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}
