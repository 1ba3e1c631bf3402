//! Tests streams of other protocols on a connection of HTTP/2 (RFC 8441).

use crate::support::http2_client::{Http2Client, OpenRequest, complete, receive, request};
use bytes::Bytes;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http_body_util::Full;
use selvedge::{Body, PlainHttp2, RunningServer, Server, Upgrade, Upgraded};
use std::io::ErrorKind;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

fn server() -> Server {
    Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").plain_http2(PlainHttp2::Always)
}

/// Serves a handler of upgraded streams. Requests that offer no protocol, and those for `/refuse`, get a plain response.
fn serve<T>(handler: impl AsyncFn(Upgraded) -> T + Send + Sync + 'static) -> RunningServer {
    let handler = Arc::new(handler);
    let app = async move |mut request: http::Request<Body>| {
        let upgrade = request.extensions_mut().remove::<Upgrade>();
        match upgrade.filter(|_| request.uri().path() != "/refuse") {
            Some(upgrade) => {
                let handler = handler.clone();
                upgrade.accept("test", async move |stream| drop(handler(stream).await)).map(axum::body::Body::new)
            }
            None => http::Response::new(axum::body::Body::new(Full::new(Bytes::from("plain")))),
        }
    };
    server().serve(app).expect("threads start")
}

/// Opens a stream of the protocol `test`.
async fn open(client: &Http2Client, path: &str) -> OpenRequest {
    assert!(client.may_open_tunnels());
    let mut head = request("CONNECT", path);
    head.extensions_mut().insert(Protocol::from_static("test"));
    client.open(head).await
}

/// Opens a stream that the application accepts.
async fn connect(client: &Http2Client) -> (SendStream<Bytes>, RecvStream) {
    let OpenRequest { content, response } = open(client, "/").await;
    let response = response.await.expect("the server responds");
    assert_eq!(response.status(), 200);
    assert!(["upgrade", "connection", "content-length"].iter().all(|name| !response.headers().contains_key(*name)));
    (content, response.into_body())
}

/// Receives until the end of the stream.
async fn receive_all(mut body: RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(piece) = receive(&mut body).await {
        all.extend_from_slice(&piece?);
    }
    Ok(all)
}

async fn echo(mut stream: Upgraded) {
    let mut buffer = vec![0; 10_000];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        buffer[..count].make_ascii_uppercase();
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    stream.write_all(b"!").await.expect("the client has only ended its own direction");
}

#[tokio::test]
async fn streams_are_independent_connections_in_both_directions() {
    let running = serve(echo);
    let client = Http2Client::connect(&running).await;
    let (mut first, mut first_body) = connect(&client).await;
    let (mut second, second_body) = connect(&client).await;
    first.send_data("one".into(), false).expect("the stream is open");
    assert_eq!(receive(&mut first_body).await.expect("it echoes").expect("the stream is open"), "ONE");
    // Plain requests go on beside them.
    assert_eq!(client.get("/").await.text(), "plain");
    second.send_data("two".into(), true).expect("the stream is open");
    assert_eq!(receive_all(second_body).await.expect("the stream ends well"), b"TWO!");
    first.send_data(Bytes::new(), true).expect("the stream is open");
    assert_eq!(receive_all(first_body).await.expect("the stream ends well"), b"!");
}

#[tokio::test]
async fn handler_on_another_thread_transfers_much_with_small_windows() {
    let running = serve(async |stream: Upgraded| {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
            runtime.block_on(echo(stream));
        });
    });
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(5_000).initial_connection_window_size(70_000);
    let client = Http2Client::connect_with(&running, &builder).await;
    let (mut content, body) = connect(&client).await;
    let sent: Bytes = (0..3_000_000_u32).map(|at| b'a' + (at / 251 % 26) as u8).collect();
    let mut rest = sent.clone();
    let send = async {
        while !rest.is_empty() {
            content.reserve_capacity(rest.len().min(50_000));
            let capacity = std::future::poll_fn(|cx| content.poll_capacity(cx)).await;
            let count = capacity.expect("the stream is open").expect("the window opens");
            content.send_data(rest.split_to(count.min(rest.len())), false).expect("the stream is open");
        }
        content.send_data(Bytes::new(), true).expect("the stream is open");
    };
    let ((), received) = tokio::join!(send, receive_all(body));
    let mut expected = sent.to_ascii_uppercase();
    expected.push(b'!');
    assert!(received.expect("the stream ends well") == expected);
}

#[tokio::test]
async fn response_that_accepts_nothing_is_a_plain_one() {
    let running = serve(echo);
    let client = Http2Client::connect(&running).await;
    let refused = open(&client, "/refuse").await;
    let refused = complete(refused.response.await.expect("the server responds")).await;
    // A success with content would open the stream.
    assert_eq!(refused.head.status, 501);
    assert_eq!(client.get("/refuse").await.text(), "plain");
}

#[tokio::test]
async fn each_end_learns_how_the_other_one_ends() {
    let (sender, mut ends) = mpsc::unbounded_channel();
    let running = serve(async move |mut stream: Upgraded| {
        let mut buffer = [0; 100];
        match stream.read(&mut buffer).await {
            Ok(1..) if buffer.starts_with(b"drop") => {
                stream.write_all(b"last words").await.expect("the stream is open");
                return;
            }
            Ok(1..) if buffer.starts_with(b"shut down") => {
                stream.write_all(b"last words").await.expect("the stream is open");
                stream.shutdown().await.expect("the stream is open");
                let error = stream.write_all(b"more").await.expect_err("its direction has ended");
                assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            }
            received => panic!("{received:?}"),
        }
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest).await.map_err(|error| error.kind());
        sender.send(end).expect("the test is running");
    });
    let client = Http2Client::connect(&running).await;
    // A dropped handler ends both directions, after its last bytes.
    let (mut content, body) = connect(&client).await;
    content.send_data("drop".into(), false).expect("the stream is open");
    assert_eq!(receive_all(body).await.expect("the stream ends well"), b"last words");
    let reset = std::future::poll_fn(|cx| content.poll_reset(cx)).await;
    assert_eq!(reset.expect("the stream is reset"), Reason::NO_ERROR);
    // A handler that has shut down its direction still receives.
    let (mut content, body) = connect(&client).await;
    content.send_data("shut down".into(), false).expect("the stream is open");
    assert_eq!(receive_all(body).await.expect("the stream ends well"), b"last words");
    content.send_data("rest".into(), true).expect("the stream is open");
    assert_eq!(ends.recv().await, Some(Ok(4)));
    // A reset is an error for the handler.
    let (mut content, body) = connect(&client).await;
    content.send_data("shut down".into(), false).expect("the stream is open");
    assert_eq!(receive_all(body).await.expect("the stream ends well"), b"last words");
    content.send_reset(Reason::CANCEL);
    assert_eq!(ends.recv().await, Some(Err(ErrorKind::ConnectionReset)));
}

/// Serves a handler that reports when the server stops, and how its stream ends.
fn serve_until_stop(events: UnboundedSender<Result<usize, ErrorKind>>) -> RunningServer {
    serve(async move |mut stream: Upgraded| {
        stream.write_all(b"ready").await.expect("the stream is open");
        stream.stopping().await;
        events.send(Ok(0)).expect("the test is running");
        let end = stream.read(&mut [0; 100]).await.map_err(|error| error.kind());
        events.send(end).expect("the test is running");
    })
}

async fn next(events: &mut UnboundedReceiver<Result<usize, ErrorKind>>) -> Result<usize, ErrorKind> {
    events.recv().await.expect("the handler exists")
}

#[tokio::test]
async fn stop_is_announced_and_waits_for_the_stream() {
    let (sender, mut events) = mpsc::unbounded_channel();
    let running = serve_until_stop(sender);
    let client = Http2Client::connect(&running).await;
    let (mut content, mut body) = connect(&client).await;
    assert_eq!(receive(&mut body).await.expect("it greets").expect("the stream is open"), "ready");
    running.handle().stop();
    assert_eq!(next(&mut events).await, Ok(0));
    content.send_data("bye".into(), true).expect("the stream is open");
    assert_eq!(next(&mut events).await, Ok(3));
    assert_eq!(receive_all(body).await.expect("the stream ends well"), b"");
    drop((content, client));
    running.join();
}

#[tokio::test]
async fn immediate_stop_ends_the_stream() {
    let (sender, mut events) = mpsc::unbounded_channel();
    let running = serve_until_stop(sender);
    let client = Http2Client::connect(&running).await;
    let (_content, mut body) = connect(&client).await;
    assert_eq!(receive(&mut body).await.expect("it greets").expect("the stream is open"), "ready");
    running.handle().stop_now();
    assert_eq!(next(&mut events).await, Ok(0));
    assert_eq!(next(&mut events).await, Err(ErrorKind::ConnectionReset));
    let _ = client.connection.await.expect("the connection ends");
}

#[tokio::test]
async fn server_offers_nothing_to_an_application_that_takes_no_upgrades() {
    async fn respond(request: &mut selvedge::Request) -> selvedge::Response {
        selvedge::Response::new(selvedge::StatusCode::OK).body(request.method_text().to_owned())
    }
    let running = server().serve(respond).expect("threads start");
    let client = Http2Client::connect(&running).await;
    assert!(!client.may_open_tunnels());
    let mut head = request("CONNECT", "/");
    head.extensions_mut().insert(Protocol::from_static("test"));
    let error = client.open(head).await.response.await.expect_err("the request is malformed");
    assert_eq!(error.reason(), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(client.get("/").await.text(), "GET");
}
