//! Tests requests that fail: too much content, clients that disconnect, and shutdown.
//!
//! The tests check what the client, the application and the observer see.

use crate::support::client::Client;
use axum::Router;
use axum::routing::{get, post};
use selvedge::service::{Exchange, ResponseOutcome};
use selvedge::{
    Body, Driver, Embedded, Observer, Request, Response, RunningServer, Server, StatusCode, Upgrade, Upgraded,
};
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn bind() -> Server {
    Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port")
}

fn connect(running: &RunningServer) -> Client {
    Client::connect(running.addresses()[0])
}

/// The parts of an exchange that the tests check.
#[derive(Debug, PartialEq, Eq)]
struct ObservedExchange {
    status: u16,
    outcome: ResponseOutcome,
    path: String,
    user: Option<String>,
    site_tag: u32,
}

#[derive(Clone)]
struct SendingObserver(Sender<ObservedExchange>);

impl Observer for SendingObserver {
    fn finished(&self, exchange: &Exchange<'_>) {
        let request = exchange.request.expect("all heads are valid");
        let observed = ObservedExchange {
            status: exchange.status.code(),
            outcome: exchange.outcome,
            path: request.path().to_owned(),
            user: request.user().map(str::to_owned),
            site_tag: request.site_tag(),
        };
        self.0.send(observed).expect("the test receives the exchange");
    }
}

#[test]
fn chunked_content_above_the_limit_gets_413() {
    const LIMIT: usize = 300_000;
    // The first handler does not see the error of the body. The second one responds with its text.
    let app = Router::new()
        .route("/bytes", post(async |content: bytes::Bytes| content.len().to_string()))
        .route(
            "/own",
            post(async |body: axum::body::Body| match http_body_util::BodyExt::collect(body).await {
                Ok(content) => (http::StatusCode::OK, content.to_bytes().len().to_string()),
                Err(error) => (http::StatusCode::BAD_REQUEST, error.to_string()),
            }),
        )
        .layer(axum::extract::DefaultBodyLimit::disable());
    let running = bind().body_bytes_max(LIMIT as u64).serve(app).expect("threads start");
    let chunk = format!("{:x}\r\n{}\r\n", 10_000, "x".repeat(10_000));
    for path in ["/bytes", "/own"] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
        // The client sends more content than the server discards.
        let mut client = connect(&running);
        client.send(&head);
        for _ in 0..90 {
            client.try_send(chunk.as_bytes());
        }
        assert!(client.read_response().0.starts_with("HTTP/1.1 413 "), "{path}");
        client.shutdown_write();
        assert_eq!(client.read_until_close(), b"", "no bytes follow the response");
        // Content slightly above the limit is discarded, and the connection accepts another request.
        let mut client = connect(&running);
        client.send(head + &chunk.repeat(31) + "0\r\n\r\n");
        assert!(client.read_response().0.starts_with("HTTP/1.1 413 "), "{path}");
        client.send(format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nab"));
        assert_eq!(client.read_response().1, "2");
    }
    running.handle().stop_now();
    running.join();
}

#[test]
fn status_400_of_a_handler_is_not_replaced() {
    let app = Router::new().route("/text", post(async |_: String| "text"));
    let running = bind().serve(app).expect("threads start");
    let mut client = connect(&running);
    client.send("POST /text HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\n\u{7f}");
    assert_eq!(client.read_response().1, "text");
    let mut bad = b"POST /text HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\n".to_vec();
    bad.push(0xff);
    client.send(bad);
    assert!(client.read_response().0.starts_with("HTTP/1.1 400 "));
    running.handle().stop_now();
    running.join();
}

#[test]
fn observer_receives_a_request_whose_client_disconnected() {
    let (sender, observed) = channel();
    let (entered, enters) = channel();
    let app = Router::new().route(
        "/wait",
        get(async move || {
            let _ = entered.send(());
            pending::<&str>().await
        }),
    );
    let running = bind().observe(SendingObserver(sender)).serve(app).expect("threads start");
    let mut client = connect(&running);
    client.send("GET /wait HTTP/1.1\r\nHost: test\r\n\r\n");
    enters.recv().expect("the handler is called");
    drop(client);
    let exchange = observed.recv().expect("the exchange is reported");
    assert_eq!((exchange.status, exchange.outcome, &*exchange.path), (499, ResponseOutcome::Aborted, "/wait"));
    running.handle().stop_now();
    running.join();
}

#[test]
fn log_info_of_an_embedded_application_reaches_the_observer() {
    let (sender, observed) = channel();
    let embedded = Embedded::new(|| {
        async |request: &mut Request| {
            if request.path() == "/known" {
                request.set_user("ann".into());
                request.set_site_tag(3);
            }
            Response::new(StatusCode::OK).body("content")
        }
    });
    let app = Router::new().fallback_service(embedded);
    let running = bind().observe(SendingObserver(sender)).serve(app).expect("threads start");
    let mut client = connect(&running);
    for (path, user, site_tag) in [("/known", Some("ann"), 3), ("/", None, 0)] {
        assert_eq!(client.get(path), "content");
        let exchange = observed.recv().expect("the exchange is reported");
        assert_eq!((&*exchange.path, exchange.user.as_deref(), exchange.site_tag), (path, user, site_tag));
    }
    running.handle().stop_now();
    running.join();
}

#[test]
fn upgraded_connection_is_notified_of_shutdown() {
    let (entered, enters) = channel();
    let app = async move |mut request: http::Request<Body>| {
        let upgrade = request.extensions_mut().remove::<Upgrade>().expect("the client offers an upgrade");
        let entered = entered.clone();
        upgrade.accept("talk", async move |mut connection: Upgraded| {
            let mut stopping = connection.stopping();
            let mut piece = [0; 16];
            let _ = entered.send(());
            loop {
                tokio::select! {
                    Ok(count @ 1..) = connection.read(&mut piece) => {
                        connection.write_all(&piece[..count]).await.expect("the client reads");
                    }
                    () = &mut stopping => break,
                }
            }
            connection.write_all(b"bye").await.expect("the client reads");
        })
    };
    let running = bind().serve(app).expect("threads start");
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: talk\r\n\r\nhello");
    assert!(client.read_response().0.starts_with("HTTP/1.1 101 "));
    enters.recv().expect("the upgrade handler starts");
    running.handle().stop();
    // Without the notification, the server would close the connection at the shutdown timeout, and
    // the client would not receive `bye`.
    assert_eq!(client.read_until_close(), b"hellobye");
    running.join();
}

#[test]
fn upgraded_connection_is_closed_at_the_shutdown_timeout() {
    let app = async |mut request: http::Request<Body>| {
        let upgrade = request.extensions_mut().remove::<Upgrade>().expect("the client offers an upgrade");
        upgrade.accept("deaf", async |connection: Upgraded| {
            let _connection = connection;
            pending::<()>().await;
        })
    };
    let running = bind().shutdown_timeout(Duration::from_millis(300)).serve(app).expect("threads start");
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: deaf\r\n\r\n");
    assert!(client.read_response().0.starts_with("HTTP/1.1 101 "));
    running.handle().stop();
    assert_eq!(client.read_until_close(), b"");
    running.join();
}

#[test]
fn content_that_arrives_while_the_application_does_not_read_is_complete() {
    use http_body_util::BodyExt;
    const BYTES: usize = 100_000;
    let go = Arc::new(tokio::sync::Notify::new());
    let (release, upload) = (go.clone(), go);
    let app = Router::new()
        .route("/go", get(async move || release.notify_one()))
        .route("/look", get(async || "looked"))
        .route(
            "/",
            post(async move |mut body: axum::body::Body| {
                let mut bytes = 0;
                while let Some(Ok(frame)) = body.frame().await {
                    if bytes == 0 {
                        upload.notified().await;
                    }
                    bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
                }
                bytes.to_string()
            }),
        );
    let running = bind().serve(app).expect("threads start");
    let (mut client, mut other) = (connect(&running), connect(&running));
    client.send(format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {BYTES}\r\n\r\nx"));
    assert_eq!(other.get("/look"), "looked");
    client.send("x".repeat(BYTES - 1));
    // After these responses, the worker has seen the readiness of all content. No more bytes arrive.
    assert_eq!((other.get("/look"), other.get("/look")), ("looked".to_owned(), "looked".to_owned()));
    other.get("/go");
    assert_eq!(client.read_response().1, BYTES.to_string());
    running.handle().stop_now();
    running.join();
}

#[test]
fn content_read_on_another_thread_fails_when_the_server_stops() {
    use http_body_util::BodyExt;
    let (send_body, bodies) = channel();
    let app = Router::new().route("/look", get(async || "looked")).route(
        "/",
        post(async move |body: axum::body::Body| {
            send_body.send(body).expect("the test receives the body");
            pending::<()>().await;
        }),
    );
    let running = bind().serve(app).expect("threads start");
    let (mut client, mut other) = (connect(&running), connect(&running));
    client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut read = bodies.recv().expect("the handler sends the body");
    let mut late_client = connect(&running);
    late_client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n");
    let mut late = bodies.recv().expect("the handler sends the body");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
    let next = |body: &mut axum::body::Body| runtime.block_on(body.frame()).map(|frame| frame.map(|_| "a piece").ok());
    client.send("1\r\na\r\n");
    assert_eq!(next(&mut read), Some(Some("a piece")));
    // When the server stops, one piece is in the channel and the other one waits for space in it.
    for piece in ["1\r\nb\r\n", "1\r\nc\r\n"] {
        client.send(piece);
        assert_eq!((other.get("/look"), other.get("/look")), ("looked".to_owned(), "looked".to_owned()));
    }
    running.handle().stop_now();
    running.join();
    assert_eq!((next(&mut read), next(&mut read)), (Some(Some("a piece")), Some(None)));
    // The worker that could read this content has ended.
    let polled = pin!(late.frame()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Some(Err(_)))));
}

#[test]
fn response_from_invalid_request_content_gets_400() {
    let running =
        bind().serve(Router::new().route("/", post(async |body: axum::body::Body| body))).expect("threads start");
    for (fields, content, status) in
        [("Transfer-Encoding: chunked", "zz\r\n", "400 "), ("Content-Length: 5", "hello", "200 ")]
    {
        let mut client = connect(&running);
        client.send(format!("POST / HTTP/1.1\r\nHost: test\r\n{fields}\r\n\r\n{content}"));
        let (head, _) = client.read_response();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
    }
    running.handle().stop_now();
    running.join();
}

#[test]
fn a_client_that_does_not_read_is_reset() {
    const CONTENT: &[u8] = &[b'x'; 16 << 20];
    for driver in [Driver::Epoll, Driver::IoUring] {
        for is_stopped in [false, true] {
            let (sender, observed) = channel();
            let send_timeout = Duration::from_secs(if is_stopped { 60 } else { 1 });
            let server = bind().driver(driver).send_timeout(send_timeout).observe(SendingObserver(sender));
            let running = server
                .serve(async |_: &mut Request| Response::new(StatusCode::OK).body(CONTENT))
                .expect("threads start");
            let mut client = connect(&running);
            client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            client.read_head();
            if is_stopped {
                running.handle().stop_now();
            }
            assert_eq!(observed.recv().expect("the exchange is reported").outcome, ResponseOutcome::Aborted);
            running.handle().stop_now();
            running.join();
            assert!(client.read_until_reset(), "{driver:?}, stopped: {is_stopped}");
        }
    }
}
