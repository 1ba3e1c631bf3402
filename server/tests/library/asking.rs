//! Ways to ask an application: over a socket, and by a plain call.

use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt;
use selvedge::Running;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tower_service::Service;

/// Nothing that works takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    pub(crate) content: &'a str,
}

impl<'a> Ask<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: "GET", path, fields: &[], content: "" }
    }

    pub(crate) fn with(self, fields: &'a [(&'a str, &'a str)]) -> Self {
        Self { fields, ..self }
    }
}

/// An answer, without what every server has its own of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In the order of their names.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: Vec<u8>,
}

/// What servers write, and applications do not.
const OF_SERVERS: [&str; 5] = ["date", "server", "connection", "content-length", "keep-alive"];

impl Answer {
    fn of(status: u16, fields: impl Iterator<Item = (String, String)>, content: Vec<u8>) -> Self {
        let mut fields: Vec<_> = fields.filter(|(name, _)| !OF_SERVERS.contains(&name.as_str())).collect();
        fields.sort();
        let mut answer = Self { status, fields, content };
        answer.settle_boundary();
        answer
    }

    /// The boundary between several parts is another one each time.
    fn settle_boundary(&mut self) {
        let Some(boundary) = self.field("content-type").and_then(|kind| kind.split_once("boundary=")) else { return };
        let boundary = boundary.1.to_owned();
        let text = String::from_utf8(std::mem::take(&mut self.content)).expect("the tests' parts are text");
        self.content = text.replace(&boundary, "BOUNDARY").into_bytes();
        self.fields.iter_mut().for_each(|(_, value)| *value = value.replace(&boundary, "BOUNDARY"));
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("it is text")
    }
}

/// Whoever answers.
pub(crate) enum Server {
    Selvedge(Running),
    Axum { address: SocketAddr, _runtime: tokio::runtime::Runtime },
    Plain(Router, tokio::runtime::Runtime),
}

impl Server {
    pub(crate) fn selvedge(app: Router) -> Self {
        let server = selvedge::Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
        Self::Selvedge(server.serve(app).expect("threads start"))
    }

    pub(crate) fn axum(app: Router) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("threads start");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self::Axum { address, _runtime: runtime }
    }

    pub(crate) fn plain(app: Router) -> Self {
        Self::Plain(app, tokio::runtime::Runtime::new().expect("threads start"))
    }

    pub(crate) fn ask(&self, ask: Ask<'_>) -> Answer {
        match self {
            Self::Selvedge(running) => over_socket(running.addresses()[0], ask),
            Self::Axum { address, .. } => over_socket(*address, ask),
            Self::Plain(app, runtime) => runtime.block_on(call(app.clone(), ask)),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(Ask::get(path))
    }
}

/// Asks an application that is called, without a server.
async fn call(mut app: Router, Ask { method, path, fields, content }: Ask<'_>) -> Answer {
    let mut request = http::Request::builder().method(method).uri(path).header("host", "test");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(content.to_owned())).expect("the tests' requests are some");
    let answer: Result<_, Infallible> = app.call(request).await;
    let (head, body) = answer.expect("it cannot fail").into_parts();
    let fields = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), value.to_str().expect("the tests' fields are text").to_owned())
    });
    let mut content = body.collect().await.expect("there is all of it").to_bytes();
    if method == "HEAD" {
        // No server sends it.
        content.clear();
    }
    Answer::of(head.status.as_u16(), fields, content.to_vec())
}

/// Asks over a connection that ends with the answer.
fn over_socket(address: SocketAddr, Ask { method, path, fields, content }: Ask<'_>) -> Answer {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time is set");
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = if content.is_empty() { String::new() } else { format!("content-length: {}\r\n", content.len()) };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{fields}{length}\r\n");
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(content.as_bytes())).expect("the server reads");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the server answers and ends");
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a head ends");
    let head = std::str::from_utf8(&all[..end]).expect("a head is text");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let fields = lines.filter_map(|line| line.split_once(": "));
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    Answer::of(status.expect("a status line"), fields, all[end + 4..].to_vec())
}
