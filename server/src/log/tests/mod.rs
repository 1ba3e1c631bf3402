//! Complete logging: a server in this process, raw requests over a socket, and the log files.

mod any_bytes;
mod counts;
mod formats;
mod sites;

mod faulty;
mod files;
mod threads;

use super::config::{AccessLogConfig, Destination, ErrorFormat, ErrorLogConfig, Level, LogConfig, SiteLogConfig};
use super::{Format, LogObserver, Logs};
use crate::process::connect;
use selvedge::{Limits, Request, Response, RunningServer, Server, StatusCode};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory that is removed on drop.
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

    /// Returns the names in it, sorted.
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

/// Configures access logs in numbered files, and an error log `error`.
fn config(directory: &Directory, formats: impl IntoIterator<Item = Format>, sites: Vec<SiteLogConfig>) -> LogConfig {
    let access = formats.into_iter().enumerate().map(|(number, format)| AccessLogConfig {
        destination: Destination::file(directory.path(&number.to_string())),
        format,
    });
    let destination = Destination::file(directory.path("error"));
    let error = ErrorLogConfig { destination, format: ErrorFormat::Text, level: Level::Debug };
    LogConfig { access: access.collect(), sites, error, site_errors: Vec::new() }
}

/// Configures a site with these access logs.
fn site(name: &str, access: impl IntoIterator<Item = usize>) -> SiteLogConfig {
    SiteLogConfig { name: name.to_owned(), access: access.into_iter().collect(), error: None }
}

/// A server whose requests are logged.
struct Serving {
    running: RunningServer,
    logs: Logs,
    address: SocketAddr,
}

impl Serving {
    /// Site tag, user and client of a request are in its fields; its status is in its path.
    fn start(config: &LogConfig) -> Self {
        let logs = Logs::start(config, connect).unwrap_or_else(|problem| panic!("{problem}"));
        let limits = Limits::default();
        let service = async |request: &mut Request| {
            let text = |name: &str| request.field(name).map(|value| String::from_utf8_lossy(value).into_owned());
            let (site, user, client) = (text("x-site"), text("x-user"), text("x-client"));
            site.inspect(|site| request.set_site_tag(site.parse().unwrap()));
            user.inspect(|user| request.set_user(user.as_str().into()));
            client.inspect(|client| request.set_client(client.parse().unwrap()));
            assert!(request.path() != "/panic", "as requested");
            let code = request.path().trim_start_matches('/').parse().unwrap_or(200);
            let response = Response::new(StatusCode::new(code).unwrap()).field("Cache-Control", "no-store");
            response.field("vary", "a").field("Vary", "b").body("content")
        };
        let server = Server::bind_with_workers("127.0.0.1:0", 1).unwrap().observe(LogObserver::new(&logs, &limits));
        let running = server.limits(limits).serve(service).unwrap();
        let address = running.addresses()[0];
        Self { running, logs, address }
    }

    /// Sends bytes. Returns the response until the end of the connection, and the client's port.
    fn request(&self, bytes: impl AsRef<[u8]>) -> (Vec<u8>, u16) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(bytes.as_ref()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        (response, stream.local_addr().unwrap().port())
    }

    /// Stops when all lines are written.
    fn end(self) {
        self.running.handle().stop();
        self.running.join();
        self.logs.flush_and_join();
    }
}

/// Waits until a condition holds.
fn until(mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < give_up, "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the lines of a file, which are complete.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    text.lines().map(str::to_owned).collect()
}
