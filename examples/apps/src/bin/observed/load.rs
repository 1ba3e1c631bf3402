//! A gentle load: five clients send about 40 requests per second, each over a connection that it keeps.

use crate::print_line;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The longest wait for a connection or for bytes of a response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most failed requests of a client that are printed.
const PRINTED_MAX: usize = 5;
/// What the proxied requests may get: the flaky server's 503, and 502 for one that cannot be repeated.
const PROXIED: &[u16] = &[200, 201, 502, 503];

/// A request of the load.
pub(crate) struct LoadRequest {
    /// The method and the path.
    pub(crate) line: &'static str,
    /// Further fields, each with its line end.
    pub(crate) fields: &'static str,
    pub(crate) content: &'static str,
    /// The statuses that it may have.
    pub(crate) statuses: &'static [u16],
}

/// Returns a request without content.
const fn plain(line: &'static str, statuses: &'static [u16]) -> LoadRequest {
    LoadRequest { line, fields: "", content: "", statuses }
}

/// A client of the load, which sends its requests in turn.
pub(crate) struct LoadClient {
    /// Its address, which it names in X-Forwarded-For as a trusted proxy does.
    pub(crate) address: &'static str,
    /// The time between a response and the next request.
    pub(crate) pause: Duration,
    pub(crate) requests: &'static [LoadRequest],
}

/// The clients: a busy one that exceeds the rate limit, a reader, one at refused paths, an application, and a slow one.
const CLIENTS: &[LoadClient] = &[
    LoadClient {
        address: "192.0.2.7",
        pause: Duration::from_millis(50),
        requests: &[plain("GET /", &[200]), plain("GET /api/orders", PROXIED)],
    },
    LoadClient {
        address: "192.0.2.20",
        pause: Duration::from_millis(125),
        requests: &[
            plain("GET /cloth.html", &[200]),
            plain("GET /style.css", &[200]),
            plain("GET /old/cloth", &[301]),
            plain("GET /none", &[404]),
        ],
    },
    LoadClient {
        address: "198.51.100.3",
        pause: Duration::from_millis(250),
        requests: &[plain("GET /private/ledger", &[403]), plain("GET /drafts/", &[200]), plain("GET /status", &[403])],
    },
    LoadClient {
        address: "198.51.100.9",
        pause: Duration::from_millis(125),
        requests: &[
            plain("GET /api/orders", PROXIED),
            // A POST is sent only once, so that some of them get 502.
            LoadRequest { line: "POST /api/orders", fields: "", content: "twill", statuses: PROXIED },
        ],
    },
    LoadClient {
        address: "203.0.113.5",
        pause: Duration::from_secs(1),
        // The sender has begun the trace, and has chosen it.
        requests: &[LoadRequest {
            line: "GET /api/slow",
            fields: "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n",
            content: "",
            statuses: PROXIED,
        }],
    },
];

/// What has become of the requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    statuses: BTreeMap<u16, u64>,
    /// Requests with an unexpected status, or without a response.
    failed: usize,
}

impl Report {
    /// Returns the number of requests with an unexpected status, or without a response.
    pub(crate) fn failures(&self) -> usize {
        self.failed
    }

    /// Returns a line with the counts.
    pub(crate) fn text(&self) -> String {
        let counts: Vec<String> =
            self.statuses.iter().map(|(status, count)| format!("{count} with {status}")).collect();
        format!("responses: {}; {} requests failed", counts.join(", "), self.failed)
    }

    fn count(&mut self, request: &LoadRequest, outcome: &io::Result<u16>) {
        if let Ok(status) = outcome {
            *self.statuses.entry(*status).or_default() += 1;
            if request.statuses.contains(status) {
                return;
            }
        }
        self.failed += 1;
        if self.failed <= PRINTED_MAX {
            print_line(&format!("observed: {} failed: {outcome:?}", request.line));
        }
    }

    fn add(&mut self, other: Self) {
        self.failed += other.failed;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
    }
}

/// The load while it runs.
pub(crate) struct Load {
    threads: Vec<JoinHandle<Report>>,
    /// Nothing is sent. The clients end when it is dropped.
    stop: Vec<Sender<()>>,
}

impl Load {
    /// Starts all clients.
    pub(crate) fn start(site: &str) -> Self {
        let clients = CLIENTS.iter().map(|client| {
            let (stop, stopped) = channel();
            let site = site.to_owned();
            (stop, thread::spawn(move || client.send_until(&site, &stopped)))
        });
        let (stop, threads) = clients.unzip();
        Self { threads, stop }
    }

    /// Ends the load after the requests in progress, and returns what has become of all.
    pub(crate) fn stop(self) -> Report {
        drop(self.stop);
        let mut report = Report::default();
        for thread in self.threads {
            report.add(thread.join().expect("a client of the load does not panic"));
        }
        report
    }
}

impl LoadClient {
    /// Sends requests until the load is stopped.
    fn send_until(&self, site: &str, stopped: &Receiver<()>) -> Report {
        let (mut report, mut connection) = (Report::default(), None);
        for request in self.requests.iter().cycle() {
            let outcome = self.send(request, site, &mut connection);
            report.count(request, &outcome);
            if !matches!(stopped.recv_timeout(self.pause), Err(RecvTimeoutError::Timeout)) {
                break;
            }
        }
        report
    }

    /// Sends a request, and returns the status of its response.
    pub(crate) fn send(
        &self,
        request: &LoadRequest,
        site: &str,
        connection: &mut Option<BufReader<TcpStream>>,
    ) -> io::Result<u16> {
        let mut stream = match connection.take() {
            Some(stream) => stream,
            None => connect(site)?,
        };
        let LoadRequest { line, fields, content, .. } = request;
        let length = if content.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", content.len()) };
        let text = format!(
            "{line} HTTP/1.1\r\nHost: {site}\r\nX-Forwarded-For: {}\r\n{fields}{length}\r\n{content}",
            self.address
        );
        stream.get_mut().write_all(text.as_bytes())?;
        let (status, persistence) = read_response(&mut stream)?;
        if persistence == ConnectionReuse::KeepAlive {
            *connection = Some(stream);
        }
        Ok(status)
    }
}

/// Whether a connection takes further requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionReuse {
    KeepAlive,
    Close,
}

fn connect(site: &str) -> io::Result<BufReader<TcpStream>> {
    let address = site.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("the site has no address"))?;
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(BufReader::new(stream))
}

/// Reads a response with content of known length. Returns its status.
fn read_response(stream: &mut BufReader<TcpStream>) -> io::Result<(u16, ConnectionReuse)> {
    let status_line = read_line(stream)?;
    let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no status line: {status_line:?}")))?;
    let (mut length, mut persistence) = (None, ConnectionReuse::KeepAlive);
    loop {
        let field = read_line(stream)?.to_ascii_lowercase();
        match field.split_once(": ") {
            Some(("content-length", value)) => length = value.parse().ok(),
            Some(("connection", "close")) => persistence = ConnectionReuse::Close,
            Some(_) => {}
            None => break,
        }
    }
    let length: u64 = length.ok_or_else(|| io::Error::other("a response without a length"))?;
    let read = io::copy(&mut stream.take(length), &mut io::sink())?;
    if read < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((status, persistence)) }
}

fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    match stream.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}
