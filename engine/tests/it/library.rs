//! What an application gets beyond requests: an observer, the stop, own errors, and own connect info.

use crate::support::client::Client;
use crate::support::http2_client::{Http2Client, request};
use axum::Router;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::routing::{get, post};
use selvedge::proto::Persistence;
use selvedge::service::{Exchange, ServerEvent};
use selvedge::tower::{ConnectionInfo, WithConnection};
use selvedge::{Body, Observer, PlainHttp2, Response, Server, stopping};
use std::net::TcpListener;
use std::sync::mpsc::{Sender, channel};

fn free_listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a free port")
}

/// Reports refusals and panics.
#[derive(Clone)]
struct Reporter(Sender<String>);

impl Observer for Reporter {
    fn finished(&self, exchange: &Exchange<'_>) {
        if exchange.reject.is_some() || exchange.request.is_none() {
            let _ = self.0.send(exchange.status.code().to_string());
        }
    }

    fn event(&self, event: &ServerEvent) {
        if let ServerEvent::Panic { message, .. } = event {
            let _ = self.0.send(message.clone());
        }
    }

    fn reports_panics(&self) -> bool {
        true
    }
}

#[test]
fn an_observer_of_serve_sees_refusals_and_panics() {
    let (sender, reports) = channel();
    let app = Router::new().route("/", get(async || -> &'static str { panic!("the handler broke") }));
    let server = selvedge::serve(free_listener(), app.into_make_service()).observe(Reporter(sender)).workers(1);
    let address = server.local_addr().expect("it is a TCP listener");
    let running = server.start().expect("threads start");
    assert_eq!(running.addresses(), [address]);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert!(client.read_head().starts_with("HTTP/1.1 400 "));
    assert_eq!(reports.recv().as_deref(), Ok("400"));
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(client.read_head().starts_with("HTTP/1.1 500 "));
    assert!(reports.recv().expect("the panic is reported").starts_with("the handler broke at "));
}

#[test]
fn a_unix_socket_has_no_tcp_address() {
    let path = std::env::temp_dir().join(format!("selvedge-library-{}.sock", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("the socket is bound");
    let server = selvedge::serve(listener, async |_: http::Request<Body>| http::Response::new(Body::empty()));
    let error = server.local_addr().expect_err("it has none");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable);
    std::fs::remove_file(path).expect("the file is removed");
}

#[test]
fn errors_of_the_engine_have_the_form_of_the_application() {
    let app = Router::new()
        .route("/panic", get(async || -> &'static str { panic!("the handler broke") }))
        .route("/upload", post(async |_: axum::body::Bytes| "received"));
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").body_bytes_max(3);
    let server = server.error_responses(|error| {
        let origin = error.request.and_then(|request| request.field("origin")).unwrap_or(b"none");
        let document = format!(r#"{{"status":{},"detail":"{}"}}"#, error.status.code(), error.text);
        // Another status is not for the hook to choose.
        let response = Response::new(selvedge::StatusCode::OK).field("content-type", "application/problem+json");
        Some(response.field("access-control-allow-origin", origin).body(document))
    });
    let running = server.serve(app.into_make_service()).expect("threads start");
    let origin = "Origin: https://a.example\r\n";
    for (request, status, allowed, detail) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, "none", "Host"),
        (format!("GET /panic HTTP/1.1\r\nHost: test\r\n{origin}\r\n"), 500, "https://a.example", r#""""#),
        (
            format!("POST /upload HTTP/1.1\r\nHost: test\r\n{origin}Content-Length: 4\r\n\r\nlong"),
            413,
            "https://a.example",
            "content",
        ),
    ] {
        let mut client = Client::connect(running.addresses()[0]);
        client.send(&request);
        let (head, content) = client.read_response();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {head}");
        assert!(head.contains(&format!("access-control-allow-origin: {allowed}\r\n")), "{request}: {head}");
        assert!(head.contains("content-type: application/problem+json\r\n"), "{request}: {head}");
        assert!(content.contains(&format!(r#""status":{status}"#)) && content.contains(detail), "{request}: {content}");
    }
    // Errors of the application are its own.
    let mut client = Client::connect(running.addresses()[0]);
    client.send("GET /missing HTTP/1.1\r\nHost: test\r\n\r\n");
    let (head, _) = client.read_response();
    assert!(head.starts_with("HTTP/1.1 404 ") && !head.contains("problem+json"), "{head}");
}

#[tokio::test]
async fn errors_over_http2_have_the_form_of_the_application() {
    let app = Router::new().route("/", get(async || -> &'static str { panic!("the handler broke") }));
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").plain_http2(PlainHttp2::Always);
    let server = server.request_line_bytes_max(64).error_responses(|error| {
        let text = format!("{} {}", error.status.code(), error.request.is_some());
        Some(Response::new(error.status).field("content-type", "text/own").body(text))
    });
    let running = server.serve(app.into_make_service()).expect("threads start");
    let client = Http2Client::connect(&running).await;
    let long = format!("/{}", "a".repeat(100));
    for (path, status, expected) in [("/", 500, "500 true"), (&*long, 414, "414 false"), ("/", 500, "500 true")] {
        let response = client.send(request("GET", path)).await;
        assert_eq!((response.head.status.as_u16(), response.text()), (status, expected), "{path}");
        assert_eq!(response.head.headers["content-type"], "text/own", "{path}");
    }
}

#[test]
fn a_panic_of_the_function_for_errors_keeps_the_page_of_the_engine() {
    let app = Router::new().route("/", get(async || "still here"));
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let server = server.error_responses(|_| panic!("the function for errors broke"));
    let running = server.serve(app.into_make_service()).expect("threads start");
    let mut other = Client::connect(running.addresses()[0]);
    assert_eq!(other.get("/"), "still here");
    let mut client = Client::connect(running.addresses()[0]);
    client.send("GET / HTTP/1.1\r\n\r\n");
    let (head, content) = client.read_response();
    assert!(head.starts_with("HTTP/1.1 400 ") && content.contains("<h1><b>400</b>"), "{head}{content}");
    assert_eq!(other.get("/"), "still here", "other connections of the worker go on");
}

#[test]
fn head_of_a_response_of_unknown_length_has_no_length() {
    let stream = async || axum::body::Body::from_stream(tokio_stream_of(vec!["a", "b"]));
    let app = Router::new().route("/stream", get(stream)).route("/known", get(async || "hello"));
    let running = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").serve(app).expect("threads start");
    let mut client = Client::connect(running.addresses()[0]);
    client.send("HEAD /stream HTTP/1.1\r\nHost: test\r\n\r\nHEAD /known HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = client.read_head();
    assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("content-length"), "{head}");
    let head = client.read_head();
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-length: 5\r\n"), "{head}");
}

/// Returns a stream of these pieces.
fn tokio_stream_of(
    pieces: Vec<&'static str>,
) -> impl futures_core::Stream<Item = Result<&'static str, std::io::Error>> + Send + Unpin {
    struct Pieces(std::vec::IntoIter<&'static str>);
    impl futures_core::Stream for Pieces {
        type Item = Result<&'static str, std::io::Error>;

        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Self::Item>> {
            std::task::Poll::Ready(self.0.next().map(Ok))
        }
    }
    Pieces(pieces.into_iter())
}

#[test]
fn a_handler_learns_of_the_stop() {
    let (sender, waits) = channel();
    let app = Router::new().route(
        "/",
        get(async move || {
            let stop = stopping();
            sender.send(()).expect("the test waits");
            // The future works on another thread and runtime, too.
            stop.await;
            "the server stops"
        }),
    );
    let server = selvedge::serve(free_listener(), app.into_make_service()).workers(1);
    let address = server.local_addr().expect("it is a TCP listener");
    let running = server.start().expect("threads start");
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    waits.recv().expect("the handler is called");
    running.handle().stop();
    assert_eq!(client.read_response().1, "the server stops");
    running.join();
}

/// Own connect info.
#[derive(Clone)]
struct Who(String);

impl Connected<ConnectionInfo> for Who {
    fn connect_info(connection: ConnectionInfo) -> Self {
        let local = connection.local().expect("the listener has an address");
        Self(format!("{} at {local} {}", connection.peer(), connection.tls().is_some()))
    }
}

#[test]
fn connect_info_may_be_a_type_of_the_application() {
    let app = Router::new().route("/", get(async |ConnectInfo(Who(who)): ConnectInfo<Who>| who));
    let app = WithConnection(app.into_make_service_with_connect_info::<Who>());
    let running = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").serve(app).expect("threads start");
    let mut client = Client::connect(running.addresses()[0]);
    let expected = format!("{} at {} false", client.local_address(), running.addresses()[0]);
    assert_eq!((client.get("/"), client.get("/")), (expected.clone(), expected));
}

/// Events of the target `selvedge`, as `level message reason`.
#[cfg(feature = "tracing")]
#[derive(Clone, Default)]
struct Events(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

#[cfg(feature = "tracing")]
impl tracing::Subscriber for Events {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "selvedge"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!(" {field}={value:?}");
            }
        }
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.0.lock().expect("no thread panics while it has the lock").push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[cfg(feature = "tracing")]
#[test]
fn refusals_and_panics_are_events_of_tracing() {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    let events = Events::default();
    // No other test of this program has a subscriber.
    tracing::subscriber::set_global_default(events.clone()).expect("it is the first one");
    let app = Router::new()
        .route("/", get(async || -> &'static str { panic!("the handler of the event broke") }))
        .route("/upload", post(async |_: axum::body::Bytes| "received"));
    let server =
        selvedge::serve(free_listener(), app.into_make_service()).observe(selvedge::TracingObserver).workers(1);
    let server = server.header_timeout(std::time::Duration::from_millis(1)).head_bytes_max(8 * 1024).body_bytes_max(3);
    let address = server.local_addr().expect("it is a TCP listener");
    let running = server.start().expect("threads start");
    let many = format!("GET / HTTP/1.1\r\nHost: test\r\nA: {}\r\n\r\n", "a".repeat(9000));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: test\r\n", 408),
        ("POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlong", 413),
        (&*many, 431),
        ("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n", 500),
    ] {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.write_all(request.as_bytes()).expect("the server reads");
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        assert!(response.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{status}: {response:?}");
    }
    running.handle().stop();
    running.join();
    let events = events.0.lock().expect("no thread panics while it has the lock").join("\n");
    for expected in ["INFO", "status=400", "status=408", "status=413", "status=431", "ERROR", "the handler of the event broke"] {
        assert!(events.contains(expected), "{expected}: {events}");
    }
}

#[test]
fn a_replaced_error_keeps_the_end_of_its_connection() {
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let server = server.error_responses(|error| {
        let response = Response::new(error.status).body("own page");
        assert_eq!(response.persistence(), Persistence::KeepAlive);
        Some(response)
    });
    let app = async |_: http::Request<Body>| http::Response::new(Body::empty());
    let running = server.serve(app).expect("threads start");
    let mut client = Client::connect(running.addresses()[0]);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    let response = String::from_utf8(client.read_until_close()).expect("the response is text");
    assert!(response.contains("connection: close\r\n") && response.ends_with("own page"), "{response}");
}
