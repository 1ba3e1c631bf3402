//! The two servers behind the proxy: one on the Selvedge library, and one that fails by a fixed pattern.
//!
//! The second one is written by hand, because a server library keeps a program from closing a connection without a
//! response.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::{Router, routing::get};
use selvedge::{RunningServer, Server};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// The time that `/api/slow` takes, and each request that [`Behaviour::Slow`] delays.
pub(crate) const SLOW: Duration = Duration::from_millis(700);
const ORDERS: &str = "{\"orders\": [\"twill\", \"satin\"]}\n";
const JSON: &str = "application/json";
/// The most bytes of a request head or content that the second server reads.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;
/// The number of requests after which the pattern begins again.
const PATTERN_LENGTH: u64 = 40;

/// What the second server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Respond,
    /// Closes the connection without a response.
    Close,
    /// Responds with 503.
    Unavailable,
    /// Responds after [`SLOW`].
    Slow,
}

impl Behaviour {
    /// Returns the behaviour for a request by its number, which counts from 0.
    pub(crate) fn of(number: u64) -> Self {
        match number % PATTERN_LENGTH {
            // Three in sequence, so that the proxy takes the server out.
            10..=12 => Self::Close,
            20 => Self::Unavailable,
            30 => Self::Slow,
            _ => Self::Respond,
        }
    }
}

/// Both servers. The first one stops when this is dropped, the second one with the process.
pub(crate) struct Upstreams {
    steady: RunningServer,
    flaky: SocketAddr,
}

impl Upstreams {
    /// Starts both servers at these addresses.
    pub(crate) fn start(steady: &str, flaky: &str) -> Result<Self, String> {
        let at = |address: &str, error: &io::Error| format!("cannot listen on {address}: {error}");
        let running = Server::bind_with_workers(steady, 1).and_then(|server| server.serve(orders()));
        let running = running.map_err(|error| at(steady, &error))?;
        let listener = TcpListener::bind(flaky).map_err(|error| at(flaky, &error))?;
        let address = listener.local_addr().map_err(|error| at(flaky, &error))?;
        thread::spawn(move || accept_connections(&listener));
        Ok(Self { steady: running, flaky: address })
    }

    /// Returns the addresses of the first and the second server.
    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        [self.steady.addresses()[0], self.flaky]
    }
}

impl Drop for Upstreams {
    fn drop(&mut self) {
        self.steady.handle().stop();
    }
}

/// The application of the first server.
fn orders() -> Router {
    let list = async || ([(CONTENT_TYPE, JSON)], ORDERS);
    let add = async || (StatusCode::CREATED, [(CONTENT_TYPE, JSON)], ORDERS);
    let slow = async || {
        tokio::time::sleep(SLOW).await;
        ([(CONTENT_TYPE, JSON)], ORDERS)
    };
    Router::new().route("/api/orders", get(list).post(add)).route("/api/slow", get(slow))
}

/// Serves each connection of the second server on a thread.
fn accept_connections(listener: &TcpListener) {
    let requests = Arc::new(AtomicU64::new(0));
    for stream in listener.incoming().flatten() {
        let requests = requests.clone();
        // The proxy closes idle connections, so an error here is usual.
        thread::spawn(move || serve_connection(stream, &requests));
    }
}

/// Serves a connection of the second server. `requests` counts those of all connections.
fn serve_connection(mut stream: TcpStream, requests: &AtomicU64) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(line) = read_request(&mut reader)? {
        let mut status = if line.starts_with("POST") { "201 Created" } else { "200 OK" };
        match Behaviour::of(requests.fetch_add(1, Relaxed)) {
            Behaviour::Close => return Ok(()),
            Behaviour::Unavailable => status = "503 Service Unavailable",
            Behaviour::Slow => thread::sleep(SLOW),
            Behaviour::Respond if line.contains("/api/slow") => thread::sleep(SLOW),
            Behaviour::Respond => {}
        }
        let length = ORDERS.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {JSON}\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + ORDERS).as_bytes())?;
    }
    Ok(())
}

/// Reads a request with content of known length. Returns its first line, or `None` at the end of the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut head = reader.by_ref().take(REQUEST_BYTES_MAX);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut content_bytes: u64 = 0;
    loop {
        let mut field = String::new();
        // The end before an empty line is that of an incomplete head.
        if head.read_line(&mut field)? == 0 {
            return Ok(None);
        }
        if field.trim_end().is_empty() {
            break;
        }
        if let Some(("content-length", value)) = field.to_ascii_lowercase().split_once(':') {
            content_bytes = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    // Content that stays unread would turn the close into a reset.
    io::copy(&mut reader.take(content_bytes.min(REQUEST_BYTES_MAX)), &mut io::sink())?;
    Ok(Some(line))
}
