//! How requests end that do not go as they were meant to: too much content, clients that go away,
//! and stops, as the client, the application and the observer see it.

mod client;

use axum::Router;
use axum::routing::{get, post};
use client::Client;
use selvedge::service::{Exchange, Outcome};
use selvedge::{Body, Embedded, Observer, Request, Response, Running, Server, Status, Upgrade, Upgraded};
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

fn connect(running: &Running) -> Client {
    Client::connect(running.addresses()[0])
}

/// What is kept of an exchange.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    status: u16,
    outcome: Outcome,
    path: String,
    user: Option<String>,
    label: u32,
}

#[derive(Clone)]
struct Teller(Sender<Told>);

impl Observer for Teller {
    fn finished(&self, exchange: &Exchange<'_>) {
        let request = exchange.request.expect("every head is a good one");
        let told = Told {
            status: exchange.status.code(),
            outcome: exchange.outcome,
            path: request.path().to_owned(),
            user: request.user().map(str::to_owned),
            label: request.label(),
        };
        self.0.send(told).expect("somebody is told");
    }
}

#[test]
fn content_that_passes_the_limit_amid_its_chunks_is_answered_with_413_and_an_end() {
    const LIMIT: usize = 300_000;
    // The first knows only that it could not read; the second says what the error was.
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
        // Much more than is drained follows.
        let mut client = connect(&running);
        client.send(&head);
        for _ in 0..90 {
            client.try_send(chunk.as_bytes());
        }
        assert!(client.reply().0.starts_with("HTTP/1.1 413 "), "{path}");
        client.finish();
        assert_eq!(client.rest(), b"", "nothing is behind the answer");
        // A little more than the limit, and another request behind it: the framing is whole.
        let mut client = connect(&running);
        client.send(head + &chunk.repeat(31) + "0\r\n\r\n");
        assert!(client.reply().0.starts_with("HTTP/1.1 413 "), "{path}");
        client.send(format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nab"));
        assert_eq!(client.reply().1, "2");
    }
    running.handle().stop_now();
    running.join();
}

#[test]
fn a_bad_request_that_is_no_fault_of_content_stays_one() {
    let app = Router::new().route("/text", post(async |_: String| "text"));
    let running = bind().serve(app).expect("threads start");
    let mut client = connect(&running);
    client.send("POST /text HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\n\u{7f}");
    assert_eq!(client.reply().1, "text");
    let mut bad = b"POST /text HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\n".to_vec();
    bad.push(0xff);
    client.send(bad);
    assert!(client.reply().0.starts_with("HTTP/1.1 400 "));
    running.handle().stop_now();
    running.join();
}

#[test]
fn an_observer_is_told_of_a_request_whose_client_went_away() {
    let (sender, told) = channel();
    let (entered, enters) = channel();
    let app = Router::new().route(
        "/wait",
        get(async move || {
            let _ = entered.send(());
            pending::<&str>().await
        }),
    );
    let running = bind().observe(Teller(sender)).serve(app).expect("threads start");
    let mut client = connect(&running);
    client.send("GET /wait HTTP/1.1\r\nHost: test\r\n\r\n");
    enters.recv().expect("the handler is asked");
    drop(client);
    let told = told.recv().expect("the observer is told");
    assert_eq!((told.status, told.outcome, &*told.path), (499, Outcome::Cut, "/wait"));
    running.handle().stop_now();
    running.join();
}

#[test]
fn what_an_embedded_application_found_out_reaches_the_observer() {
    let (sender, told) = channel();
    let embedded = Embedded::new(|| {
        async |request: &mut Request| {
            if request.path() == "/known" {
                request.set_user("ann".into());
                request.set_label(3);
            }
            Response::new(Status::OK).body("content")
        }
    });
    let app = Router::new().fallback_service(embedded);
    let running = bind().observe(Teller(sender)).serve(app).expect("threads start");
    let mut client = connect(&running);
    for (path, user, label) in [("/known", Some("ann"), 3), ("/", None, 0)] {
        assert_eq!(client.get(path), "content");
        let told = told.recv().expect("the observer is told");
        assert_eq!((&*told.path, told.user.as_deref(), told.label), (path, user, label));
    }
    running.handle().stop_now();
    running.join();
}

#[test]
fn a_protocol_of_its_own_hears_of_the_stop() {
    let (entered, enters) = channel();
    let app = async move |mut request: http::Request<Body>| {
        let upgrade = request.extensions_mut().remove::<Upgrade>().expect("the client offers one");
        let entered = entered.clone();
        upgrade.to("talk", async move |mut connection: Upgraded| {
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
    assert!(client.reply().0.starts_with("HTTP/1.1 101 "));
    enters.recv().expect("the connection is handed over");
    running.handle().stop();
    // Without the notice the stop would wait until its limit cuts the connection, without a word.
    assert_eq!(client.rest(), b"hellobye");
    running.join();
}

#[test]
fn a_protocol_that_does_not_listen_is_cut_when_the_stop_has_waited_long_enough() {
    let app = async |mut request: http::Request<Body>| {
        let upgrade = request.extensions_mut().remove::<Upgrade>().expect("the client offers one");
        upgrade.to("deaf", async |connection: Upgraded| {
            let _connection = connection;
            pending::<()>().await;
        })
    };
    let running = bind().drain_time(Duration::from_millis(300)).serve(app).expect("threads start");
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: deaf\r\n\r\n");
    assert!(client.reply().0.starts_with("HTTP/1.1 101 "));
    running.handle().stop();
    assert_eq!(client.rest(), b"");
    running.join();
}

#[test]
fn content_that_came_while_the_application_was_at_something_else_is_read_to_its_end() {
    use http_body_util::BodyExt;
    const BYTES: usize = 100_000;
    let go = Arc::new(tokio::sync::Notify::new());
    let (gone, upload) = (go.clone(), go);
    let app =
        Router::new().route("/go", get(async move || gone.notify_one())).route("/look", get(async || "looked")).route(
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
    // The worker has been told of all of it by the time that it has answered again, and nothing more comes.
    assert_eq!((other.get("/look"), other.get("/look")), ("looked".to_owned(), "looked".to_owned()));
    other.get("/go");
    assert_eq!(client.reply().1, BYTES.to_string());
    running.handle().stop_now();
    running.join();
}

#[test]
fn content_that_is_read_elsewhere_is_not_complete_because_the_server_has_ended() {
    use http_body_util::BodyExt;
    let (hand_over, handed_over) = channel();
    let app = Router::new().route("/look", get(async || "looked")).route(
        "/",
        post(async move |body: axum::body::Body| {
            hand_over.send(body).expect("the test waits for it");
            pending::<()>().await;
        }),
    );
    let running = bind().serve(app).expect("threads start");
    let (mut client, mut other) = (connect(&running), connect(&running));
    client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut read = handed_over.recv().expect("it comes");
    let mut late_client = connect(&running);
    late_client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n");
    let mut late = handed_over.recv().expect("it comes");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let next = |body: &mut axum::body::Body| runtime.block_on(body.frame()).map(|frame| frame.map(|_| "a piece").ok());
    client.send("1\r\na\r\n");
    assert_eq!(next(&mut read), Some(Some("a piece")));
    // One is on its way and the other waits for it, when the server ends.
    for piece in ["1\r\nb\r\n", "1\r\nc\r\n"] {
        client.send(piece);
        assert_eq!((other.get("/look"), other.get("/look")), ("looked".to_owned(), "looked".to_owned()));
    }
    running.handle().stop_now();
    running.join();
    assert_eq!((next(&mut read), next(&mut read)), (Some(Some("a piece")), Some(None)));
    // Nobody is left who could be asked for this.
    let polled = pin!(late.frame()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Some(Err(_)))));
}

#[test]
fn an_answer_that_is_made_of_broken_content_blames_the_client() {
    let running =
        bind().serve(Router::new().route("/", post(async |body: axum::body::Body| body))).expect("threads start");
    for (fields, content, status) in
        [("Transfer-Encoding: chunked", "zz\r\n", "400 "), ("Content-Length: 5", "hello", "200 ")]
    {
        let mut client = connect(&running);
        client.send(format!("POST / HTTP/1.1\r\nHost: test\r\n{fields}\r\n\r\n{content}"));
        let (head, _) = client.reply();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
    }
    running.handle().stop_now();
    running.join();
}
