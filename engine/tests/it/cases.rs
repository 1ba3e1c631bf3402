//! Sends all rows of the case files over a socket: whole, in two pieces, and byte by byte.
//!
//! The engine's responses and the reports of its observer must match the verdicts of the rows.

use crate::support::client::Client;
use selvedge::proto::head::RequestHead;
use selvedge::proto::method::Method;
use selvedge::proto::{Persistence, Reject, StatusCode};
use selvedge::service::{CloseReason, Closed, Exchange};
use selvedge::{Observer, Request, Response, RunningServer, Server};
use selvedge_cases::verdict::{WAIT, response_line};
use selvedge_cases::{Case, check, load_cases, model};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// Longest row that is sent byte by byte, in bytes.
const BYTE_BY_BYTE_MAX: usize = 2048;

/// The facts that the engine observer about one response.
#[derive(Clone, Copy)]
struct ReportedResponse {
    method: Method,
    reject: Option<Reject>,
}

/// A closed connection and its responses.
struct ClosedConnection {
    peer: SocketAddr,
    reason: CloseReason,
    responses: Vec<ReportedResponse>,
}

#[derive(Clone)]
struct RecordingObserver {
    open: Arc<Mutex<HashMap<SocketAddr, Vec<ReportedResponse>>>>,
    closed: Sender<ClosedConnection>,
}

impl Observer for RecordingObserver {
    fn finished(&self, exchange: &Exchange<'_>) {
        // A refused request is reported by its line only.
        let by_line = if exchange.request_line.starts_with(b"HEAD ") { Method::Head } else { Method::Other };
        let method = exchange.request.map_or(by_line, Request::method);
        let reported = ReportedResponse { method, reject: exchange.reject };
        self.open.lock().expect("no thread panicked with the lock").entry(exchange.peer).or_default().push(reported);
    }

    fn closed(&self, closed: &Closed) {
        let responses =
            self.open.lock().expect("no thread panicked with the lock").remove(&closed.peer).unwrap_or_default();
        // At the end of the test, the receiver is dropped.
        let _ = self.closed.send(ClosedConnection { peer: closed.peer, reason: closed.reason, responses });
    }
}

/// Responds as the model, or with the verdict line that describes the request.
async fn respond(request: &mut Request) -> Response {
    request.body().set_bytes_max(u64::MAX);
    let content = match request.body().read_all().await {
        Ok(content) => content,
        Err(error) => return error.into(),
    };
    let trailers = request.body().trailers().unwrap_or_default();
    let (head, bytes): (&RequestHead, &[u8]) = (request.head(), request.head_bytes());
    let expected = model::respond(head, bytes, &content, &trailers);
    let mut response = Response::new(expected.status).body(expected.body);
    for (name, value) in &expected.fields {
        response.append(name, value).expect("the fields of the model are not reserved");
    }
    response
}

/// One response that the client received.
struct ReceivedResponse {
    status: u16,
    fields: Vec<(String, String)>,
    content: Vec<u8>,
}

impl ReceivedResponse {
    fn persistence(&self) -> Persistence {
        match self.field("connection") {
            Some("close") => Persistence::Close,
            _ => Persistence::KeepAlive,
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the verdict line of a response that is not a refusal.
    fn line(&self) -> String {
        let verdict = self.field("x-verdict").map(str::to_owned);
        let verdict =
            verdict.or_else(|| String::from_utf8(self.content.clone()).ok()).filter(|text| text.starts_with("accept "));
        match verdict {
            // The response must have the persistence that the application has seen.
            Some(line) => match (line.ends_with(" close"), self.persistence()) {
                (true, Persistence::Close) | (false, Persistence::KeepAlive) => line,
                _ => format!("{line}, but the response has the other persistence"),
            },
            None => {
                let is_reserved = |name: &str| matches!(name, "server" | "date" | "connection");
                let fields: Vec<_> = self.fields.iter().filter(|(name, _)| !is_reserved(name)).cloned().collect();
                response_line(
                    StatusCode::new(self.status).expect("the status code is valid"),
                    &fields,
                    &self.content,
                    self.persistence(),
                )
            }
        }
    }
}

/// Splits the received bytes into the reported responses, without interim responses.
fn split_responses(mut bytes: &[u8], responses: &[ReportedResponse]) -> Option<Vec<ReceivedResponse>> {
    let mut received = Vec::new();
    let mut responses = responses.iter();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let mut lines = std::str::from_utf8(&bytes[..end]).ok()?.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let fields = lines.map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())));
        let mut response = ReceivedResponse { status, fields: fields.collect::<Option<_>>()?, content: Vec::new() };
        bytes = &bytes[end + 4..];
        if response.status == 100 {
            continue;
        }
        let length = match (responses.next()?.method, response.status) {
            (Method::Head, _) | (_, 204 | 304) => 0,
            _ => response.field("content-length")?.parse().ok()?,
        };
        response.content = bytes.get(..length)?.to_vec();
        bytes = &bytes[length..];
        received.push(response);
    }
    Some(received).filter(|_| responses.next().is_none())
}

/// Returns the verdict lines of one connection.
fn lines(bytes: &[u8], closed: &ClosedConnection) -> Vec<String> {
    let Some(received) = split_responses(bytes, &closed.responses) else {
        return vec![format!("these are not the reported responses: {}", bytes.escape_ascii())];
    };
    let mut lines: Vec<String> = Vec::new();
    for (response, reported) in received.iter().zip(&closed.responses) {
        let is_last = lines.len() + 1 == received.len();
        let reject = reported.reject.or(match closed.reason {
            CloseReason::ContentRejected(reject) if is_last => Some(reject),
            _ => None,
        });
        lines.push(match reject {
            Some(reject) if response.persistence() == Persistence::Close => {
                format!("reject {} {} close", reject.name(), response.status)
            }
            // The client has shut down before the end of the content: the request has no verdict.
            _ if is_last && closed.reason == CloseReason::ContentIncomplete => WAIT.to_owned(),
            _ => response.line(),
        });
    }
    if closed.reason == CloseReason::HeadIncomplete {
        lines.push(WAIT.to_owned());
    }
    lines
}

struct TestServer {
    running: RunningServer,
    closed: Receiver<ClosedConnection>,
}

impl TestServer {
    fn start() -> Self {
        let (send, closed) = channel();
        let observer = RecordingObserver { open: Arc::default(), closed: send };
        let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
        let running = server.observe(observer).serve(respond).expect("a thread starts");
        Self { running, closed }
    }

    /// Sends a row in pieces. Returns the verdict lines.
    fn run<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
        let mut client = Client::connect(self.running.addresses()[0]);
        let address = client.local_address();
        pieces.for_each(|piece| client.try_send(piece));
        client.shutdown_write();
        let bytes = client.read_until_close();
        let closed = self.closed.recv().expect("each connection is reported");
        assert_eq!(closed.peer, address, "connections are opened one after the other");
        lines(&bytes, &closed)
    }

    fn check(&self, case: &Case) -> Result<(), String> {
        let raw = &case.raw[..];
        check(case, &self.run([raw].into_iter())).map_err(|error| error + "  sent whole\n")?;
        let (first, second) = raw.split_at(raw.len() / 2);
        check(case, &self.run([first, second].into_iter())).map_err(|error| error + "  sent in two pieces\n")?;
        if raw.len() <= BYTE_BY_BYTE_MAX {
            check(case, &self.run(raw.chunks(1))).map_err(|error| error + "  sent byte by byte\n")?;
        }
        Ok(())
    }
}

#[test]
fn rows_hold_over_a_socket() {
    let (server, cases) = (TestServer::start(), load_cases());
    let failures: Vec<String> = cases.iter().filter_map(|case| server.check(case).err()).collect();
    assert!(failures.is_empty(), "{} of {} rows\n{}", failures.len(), cases.len(), failures.join("\n"));
    server.running.handle().stop_now();
    server.running.join();
}

#[test]
fn responses_are_split_and_described() {
    let responses = [ReportedResponse { method: Method::Head, reject: None }; 2];
    let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nHTTP/1.1 204 No Content\r\nx: y\r\n\r\n";
    let received = split_responses(bytes, &responses).expect("two responses");
    assert_eq!(received[1].line(), "answer 204 [x: y] body=\"\" keep");
    assert!(split_responses(bytes, &responses[..1]).is_none() && split_responses(&bytes[..20], &responses).is_none());
}
