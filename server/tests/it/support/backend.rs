//! An application behind a proxy: a small server of HTTP/1.1 on threads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// The application. It responds to each request with the head that it received, echoes after an upgrade, and keeps the
/// connections of `/events` open. `/text` is a long text.
pub(crate) struct Backend {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Connections so far.
    connections: AtomicUsize,
    /// Connections that get events.
    subscribers: Mutex<Vec<TcpStream>>,
    /// The response to requests for `/prepared`.
    prepared: &'static str,
}

impl Backend {
    pub(crate) fn start() -> Self {
        Self::with_prepared("")
    }

    /// An application that sends these bytes in response to a request for `/prepared`.
    pub(crate) fn with_prepared(prepared: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State { prepared, ..State::default() });
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let state = shared.clone();
                thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Sends an event to all subscribers.
    pub(crate) fn publish(&self, text: &str) {
        let mut subscribers = self.state.subscribers.lock().expect("no thread panics while it has the lock");
        for subscriber in &mut *subscribers {
            write!(subscriber, "{:x}\r\n{text}\r\n", text.len()).expect("the proxy reads");
        }
    }
}

/// Serves a connection until the proxy closes it.
fn serve(mut stream: TcpStream, state: &State) {
    let mut input = BufReader::new(stream.try_clone().expect("the socket can be shared"));
    while let Some(head) = read_head(&mut input) {
        let first = head.lines().next().unwrap_or_default();
        if head.contains("\r\nupgrade: ") {
            let response = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
            let _ = stream.write_all(response.as_bytes());
            return echo(input, stream);
        }
        if first.starts_with("GET /events ") {
            let response = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            let _ = stream.write_all(response.as_bytes());
            let mut subscribers = state.subscribers.lock().expect("no thread panics while it has the lock");
            subscribers.push(stream.try_clone().expect("the socket can be shared"));
            continue;
        }
        if first.split(' ').nth(1) == Some("/prepared") {
            let _ = stream.write_all(state.prepared.as_bytes());
            continue;
        }
        let response = match first.starts_with("GET /text") {
            true => {
                let text = "a line of text\n".repeat(2_000);
                let fields = "Content-Type: text/plain\r\nETag: \"1\"\r\n";
                format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{text}", text.len())
            }
            false => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()),
        };
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Returns the next head, with names in lower case; `None` at the end.
fn read_head(input: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    loop {
        let before = head.len();
        input.read_line(&mut head).ok().filter(|&count| count > 0)?;
        match head[before..].split_once(": ") {
            Some((name, value)) => {
                let line = format!("{}: {value}", name.to_ascii_lowercase());
                head.replace_range(before.., &line);
            }
            None if head[before..] == *"\r\n" => return Some(head),
            None => {}
        }
    }
}

fn echo(mut input: BufReader<TcpStream>, mut output: TcpStream) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = input.read(&mut buffer) {
        if output.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}
