//! Sends requests to an application over a socket or by a direct call.

use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt;
use selvedge::RunningServer;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tower_service::Service;

/// The time after which a test fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    pub(crate) content: &'a str,
}

impl<'a> TestRequest<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: "GET", path, fields: &[], content: "" }
    }

    pub(crate) fn with(self, fields: &'a [(&'a str, &'a str)]) -> Self {
        Self { fields, ..self }
    }
}

/// A response without the fields that each server sets on its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    /// Sorted by name.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: Vec<u8>,
}

/// Fields that servers set, not applications.
const SERVER_FIELDS: [&str; 5] = ["date", "server", "connection", "content-length", "keep-alive"];

impl TestResponse {
    fn new(status: u16, fields: impl Iterator<Item = (String, String)>, content: Vec<u8>) -> Self {
        let mut fields: Vec<_> = fields.filter(|(name, _)| !SERVER_FIELDS.contains(&name.as_str())).collect();
        fields.sort();
        let mut response = Self { status, fields, content };
        response.normalize_boundary();
        response
    }

    /// Replaces the random multipart boundary by a fixed one.
    fn normalize_boundary(&mut self) {
        let Some(boundary) = self.field("content-type").and_then(|kind| kind.split_once("boundary=")) else { return };
        let boundary = boundary.1.to_owned();
        let text = String::from_utf8(std::mem::take(&mut self.content)).expect("the tested parts are UTF-8");
        self.content = text.replace(&boundary, "BOUNDARY").into_bytes();
        self.fields.iter_mut().for_each(|(_, value)| *value = value.replace(&boundary, "BOUNDARY"));
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("the content is UTF-8")
    }
}

/// A server, or an application that is called directly.
pub(crate) enum TestServer {
    Selvedge(RunningServer),
    Axum { address: SocketAddr, _runtime: tokio::runtime::Runtime },
    Plain(Router, tokio::runtime::Runtime),
}

impl TestServer {
    pub(crate) fn selvedge(app: Router) -> Self {
        let server = selvedge::Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
        Self::Selvedge(server.serve(app).expect("threads start"))
    }

    pub(crate) fn axum(app: Router) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("threads start");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self::Axum { address, _runtime: runtime }
    }

    pub(crate) fn plain(app: Router) -> Self {
        Self::Plain(app, tokio::runtime::Runtime::new().expect("threads start"))
    }

    pub(crate) fn send(&self, request: TestRequest<'_>) -> TestResponse {
        match self {
            Self::Selvedge(running) => over_socket(running.addresses()[0], request),
            Self::Axum { address, .. } => over_socket(*address, request),
            Self::Plain(app, runtime) => runtime.block_on(call(app.clone(), request)),
        }
    }

    pub(crate) fn get(&self, path: &str) -> TestResponse {
        self.send(TestRequest::get(path))
    }
}

/// Calls an application without a server.
async fn call(mut app: Router, TestRequest { method, path, fields, content }: TestRequest<'_>) -> TestResponse {
    let mut request = http::Request::builder().method(method).uri(path).header("host", "test");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(content.to_owned())).expect("the tested requests are valid");
    let response: Result<_, Infallible> = app.call(request).await;
    let (head, body) = response.expect("the error type is Infallible").into_parts();
    let fields = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), value.to_str().expect("the tested field values are ASCII").to_owned())
    });
    let mut content = body.collect().await.expect("the body is complete").to_bytes();
    if method == "HEAD" {
        // Servers do not send the content of a response to HEAD.
        content.clear();
    }
    TestResponse::new(head.status.as_u16(), fields, content.to_vec())
}

/// Sends a request on a connection that closes after the response.
fn over_socket(address: SocketAddr, TestRequest { method, path, fields, content }: TestRequest<'_>) -> TestResponse {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("the timeout can be set");
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = if content.is_empty() { String::new() } else { format!("content-length: {}\r\n", content.len()) };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{fields}{length}\r\n");
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(content.as_bytes())).expect("the server reads");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the server responds and closes");
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("the response has a complete head");
    let head = std::str::from_utf8(&all[..end]).expect("a response head is UTF-8");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let fields = lines.filter_map(|line| line.split_once(": "));
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    TestResponse::new(status.expect("a status line"), fields, all[end + 4..].to_vec())
}
