//! Lines as they come out at the end: a server in this process, raw requests over a socket,
//! and the files that the logs were written to.

mod counts;
mod formats;
mod octets;
mod sites;

mod faulty;
mod files;
mod threads;

use super::plan::{AccessPlan, Destination, ErrorForm, ErrorPlan, Level, LogPlan, SitePlan};
use super::{Format, LogObserver, Logs};
use crate::process::connect;
use selvedge::{Limits, Request, Response, Running, Server, Status};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory that is removed with the value.
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("selvedge-log-{}-{number}", std::process::id()));
            if fs::create_dir(&path).is_ok() {
                return Self(path);
            }
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What is in it, by name.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Access logs in files that are named by their number, and an error log `error`.
fn plan(directory: &Directory, formats: impl IntoIterator<Item = Format>, sites: Vec<SitePlan>) -> LogPlan {
    let access = formats.into_iter().enumerate().map(|(number, format)| AccessPlan {
        destination: Destination::file(directory.path(&number.to_string())),
        format,
    });
    let destination = Destination::file(directory.path("error"));
    let error = ErrorPlan { destination, form: ErrorForm::Text, level: Level::Debug };
    LogPlan { access: access.collect(), sites, error, site_errors: Vec::new() }
}

/// A site of that name with these access logs.
fn site(name: &str, access: impl IntoIterator<Item = usize>) -> SitePlan {
    SitePlan { name: name.to_owned(), access: access.into_iter().collect(), error: None }
}

/// A server whose requests are logged.
struct Serving {
    running: Running,
    logs: Logs,
    address: SocketAddr,
}

impl Serving {
    /// The site that a request belongs to, its user and its client are what its fields say;
    /// its status is its path's.
    fn start(plan: &LogPlan) -> Self {
        let logs = Logs::start(plan, connect).unwrap_or_else(|problem| panic!("{problem}"));
        let limits = Limits::default();
        let service = async |request: &mut Request| {
            let text = |name: &str| request.field(name).map(|value| String::from_utf8_lossy(value).into_owned());
            let (site, user, client) = (text("x-site"), text("x-user"), text("x-client"));
            site.inspect(|site| request.set_label(site.parse().unwrap()));
            user.inspect(|user| request.set_user(user.as_str().into()));
            client.inspect(|client| request.set_client(client.parse().unwrap()));
            assert!(request.path() != "/panic", "as it was asked to");
            let code = request.path().trim_start_matches('/').parse().unwrap_or(200);
            let response = Response::new(Status::new(code).unwrap()).field("Cache-Control", "no-store");
            response.field("vary", "a").field("Vary", "b").body("content")
        };
        let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().observe(LogObserver::new(&logs, &limits));
        let running = server.limits(limits).serve(service).unwrap();
        let address = running.addresses()[0];
        Self { running, logs, address }
    }

    /// Sends bytes and what came back by the end of the connection; the port that it came from.
    fn ask(&self, bytes: impl AsRef<[u8]>) -> (Vec<u8>, u16) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(bytes.as_ref()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        (answer, stream.local_addr().unwrap().port())
    }

    /// Ends it when all lines are written.
    fn end(self) {
        self.running.handle().stop();
        self.running.join();
        self.logs.finish();
    }
}

/// Looks until it is so.
fn until(mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < give_up, "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The lines of a file, which are whole.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    text.lines().map(str::to_owned).collect()
}
