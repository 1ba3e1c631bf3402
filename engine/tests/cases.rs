//! Every row of the case files over a real socket: whole, in two pieces, byte by byte.
//!
//! The rows say what the protocol crate makes of bytes; here the engine has to say the
//! same on the wire, and to its observer.

mod client;

use client::Client;
use selvedge::proto::head::RequestHead;
use selvedge::proto::method::Method;
use selvedge::proto::{Afterwards, Reject, Status};
use selvedge::service::{CloseReason, Closed, Exchange};
use selvedge::{Observer, Request, Response, Running, Server};
use selvedge_cases::verdict::{WAIT, answer};
use selvedge_cases::{Case, check, load, model};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// Longer rows are not sent byte by byte.
const BYTE_BY_BYTE_MAX: usize = 2048;

/// What the engine reports of one answer.
#[derive(Clone, Copy)]
struct Answered {
    method: Method,
    reject: Option<Reject>,
}

/// A connection that has ended, and its answers.
struct Ended {
    peer: SocketAddr,
    reason: CloseReason,
    answers: Vec<Answered>,
}

#[derive(Clone)]
struct Reports {
    open: Arc<Mutex<HashMap<SocketAddr, Vec<Answered>>>>,
    ended: Sender<Ended>,
}

impl Observer for Reports {
    fn finished(&self, exchange: &Exchange<'_>) {
        let method = exchange.request.map_or(Method::Other, Request::method);
        let answered = Answered { method, reject: exchange.reject };
        self.open.lock().expect("nobody panicked with it").entry(exchange.peer).or_default().push(answered);
    }

    fn closed(&self, closed: &Closed) {
        let answers = self.open.lock().expect("nobody panicked with it").remove(&closed.peer).unwrap_or_default();
        // At the end of the test nobody listens any more.
        let _ = self.ended.send(Ended { peer: closed.peer, reason: closed.reason, answers });
    }
}

/// Answers as the model does, or with the line that tells how the request was understood.
async fn respond(request: &mut Request) -> Response {
    request.body().limit(u64::MAX);
    let content = match request.body().read().await {
        Ok(content) => content,
        Err(error) => return error.into(),
    };
    let trailers = request.body().trailers().unwrap_or_default();
    let (head, bytes): (&RequestHead, &[u8]) = (request.head(), request.head_bytes());
    let answer = model::respond(head, bytes, &content, &trailers);
    let mut response = Response::new(answer.status).body(answer.body);
    for (name, value) in &answer.fields {
        response.append(name, value).expect("the model sets fields that an application may set");
    }
    response
}

/// What the client saw of one answer.
struct Seen {
    status: u16,
    fields: Vec<(String, String)>,
    content: Vec<u8>,
}

impl Seen {
    fn afterwards(&self) -> Afterwards {
        match self.field("connection") {
            Some("close") => Afterwards::Close,
            _ => Afterwards::KeepOpen,
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The line for an answer that is no refusal.
    fn line(&self) -> String {
        let told = self.field("x-verdict").map(str::to_owned);
        let told =
            told.or_else(|| String::from_utf8(self.content.clone()).ok()).filter(|text| text.starts_with("accept "));
        match told {
            // What the application was told about the connection is what the wire has to say.
            Some(line) => match (line.ends_with(" close"), self.afterwards()) {
                (true, Afterwards::Close) | (false, Afterwards::KeepOpen) => line,
                _ => format!("{line}, but the wire says otherwise"),
            },
            None => {
                let own = |name: &str| matches!(name, "server" | "date" | "connection");
                let fields: Vec<_> = self.fields.iter().filter(|(name, _)| !own(name)).cloned().collect();
                answer(Status::new(self.status).expect("a status"), &fields, &self.content, self.afterwards())
            }
        }
    }
}

/// Divides what came into the answers that were reported, and leaves interim ones out.
fn divide(mut bytes: &[u8], answers: &[Answered]) -> Option<Vec<Seen>> {
    let mut seen = Vec::new();
    let mut answers = answers.iter();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let mut lines = std::str::from_utf8(&bytes[..end]).ok()?.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let fields = lines.map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())));
        let mut one = Seen { status, fields: fields.collect::<Option<_>>()?, content: Vec::new() };
        bytes = &bytes[end + 4..];
        if one.status == 100 {
            continue;
        }
        let length = match (answers.next()?.method, one.status) {
            (Method::Head, _) | (_, 204 | 304) => 0,
            _ => one.field("content-length")?.parse().ok()?,
        };
        one.content = bytes.get(..length)?.to_vec();
        bytes = &bytes[length..];
        seen.push(one);
    }
    Some(seen).filter(|_| answers.next().is_none())
}

/// The lines for what came over one connection.
fn lines(bytes: &[u8], ended: &Ended) -> Vec<String> {
    let Some(seen) = divide(bytes, &ended.answers) else {
        return vec![format!("not the answers that were reported: {}", bytes.escape_ascii())];
    };
    let mut lines: Vec<String> = Vec::new();
    for (one, answered) in seen.iter().zip(&ended.answers) {
        let is_last = lines.len() + 1 == seen.len();
        let reject = answered.reject.or(match ended.reason {
            CloseReason::ContentRejected(reject) if is_last => Some(reject),
            _ => None,
        });
        lines.push(match reject {
            Some(reject) if one.afterwards() == Afterwards::Close => {
                format!("reject {} {} close", reject.name(), one.status)
            }
            // A client that ends in the middle of content is answered, but nothing is decided.
            _ if is_last && ended.reason == CloseReason::ContentCut => WAIT.to_owned(),
            _ => one.line(),
        });
    }
    if ended.reason == CloseReason::HeadCut {
        lines.push(WAIT.to_owned());
    }
    lines
}

struct Site {
    running: Running,
    ended: Receiver<Ended>,
}

impl Site {
    fn start() -> Self {
        let (send, ended) = channel();
        let reports = Reports { open: Arc::default(), ended: send };
        let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
        let running = server.observe(reports).serve(respond).expect("a thread starts");
        Self { running, ended }
    }

    /// Sends a row in pieces: the lines for what came of it.
    fn run<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
        let mut client = Client::connect(self.running.addresses()[0]);
        let address = client.address();
        pieces.for_each(|piece| client.try_send(piece));
        client.finish();
        let bytes = client.rest();
        let ended = self.ended.recv().expect("every connection is reported");
        assert_eq!(ended.peer, address, "one after the other");
        lines(&bytes, &ended)
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
fn every_row_holds_over_a_socket() {
    let (site, cases) = (Site::start(), load());
    let failures: Vec<String> = cases.iter().filter_map(|case| site.check(case).err()).collect();
    assert!(failures.is_empty(), "{} of {} rows\n{}", failures.len(), cases.len(), failures.join("\n"));
    site.running.handle().stop_now();
    site.running.join();
}

#[test]
fn lines_of_answers() {
    let answers = [Answered { method: Method::Head, reject: None }; 2];
    let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nHTTP/1.1 204 No Content\r\nx: y\r\n\r\n";
    let seen = divide(bytes, &answers).expect("two answers");
    assert_eq!(seen[1].line(), "answer 204 [x: y] body=\"\" keep");
    assert!(divide(bytes, &answers[..1]).is_none() && divide(&bytes[..20], &answers).is_none());
}
