//! Replaces the application of a running server while clients are connected.

use crate::support::client::Client;
use crate::support::http2_client::receive;
use crate::support::http2_client::{Http2Client, request};
use bytes::Bytes;
use selvedge::service::{Body, Duplex, ResponseLease, UpgradeResponse};
use selvedge::{
    AppHandle, AppVersion, Limits, NoObserver, PlainHttp2, Request, Response, RunningServer, Server, Service,
    StatusCode,
};
use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Responds to each request with one word, after its content.
struct RespondWith(Arc<str>);

impl Service for RespondWith {
    async fn call(&self, request: &mut Request) -> Response {
        request.body().discard(1_000).await.expect("the content is complete");
        Response::new(StatusCode::OK).body(self.0.to_string())
    }
}

/// Returns a factory of the service for each worker, and a weak reference that lives as long as one
/// of the services.
fn respond_with(word: &str) -> (impl Fn() -> RespondWith + Send + Sync + 'static, Weak<str>) {
    let word: Arc<str> = word.into();
    let alive = Arc::downgrade(&word);
    (move || RespondWith(word.clone()), alive)
}

fn start(word: &str) -> (RunningServer, AppHandle<RespondWith, NoObserver>, Weak<str>) {
    let (make, alive) = respond_with(word);
    let server = Server::bind_with_workers("127.0.0.1:0", 2).expect("a free port");
    let (running, app_handle) = server.serve_replaceable(make).expect("threads start");
    (running, app_handle, alive)
}

fn connect(running: &RunningServer) -> Client {
    Client::connect(running.addresses()[0])
}

fn limits(shutdown_timeout: Duration) -> Limits {
    Limits { shutdown_timeout, ..Limits::default() }
}

/// Waits until all services of an application are dropped.
fn wait_until_dropped(alive: &Weak<str>) {
    for _ in 0..10_000 {
        if alive.strong_count() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the application is never dropped");
}

#[tokio::test]
async fn streams_of_a_replaced_application_are_completed() {
    let (make, first) = respond_with("first");
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").plain_http2(PlainHttp2::Always);
    let (running, app_handle) = server.serve_replaceable(make).expect("threads start");
    let (busy, idle) = (Http2Client::connect(&running).await, Http2Client::connect(&running).await);
    assert_eq!(idle.get("/").await.text(), "first");
    let open = busy.open(request("POST", "/")).await;
    let (make, _) = respond_with("second");
    app_handle.replace(&AppVersion::new(make, NoObserver).plain_http2(PlainHttp2::Always));
    idle.connection.await.expect("the client does not panic").expect("the server ends the connection well");
    assert_eq!(Http2Client::connect(&running).await.get("/").await.text(), "second");
    assert_eq!(open.finish("content").await.text(), "first");
    busy.connection.await.expect("the client does not panic").expect("the server ends the connection well");
    wait_until_dropped(&first);
    running.handle().stop();
    running.join();
}

#[test]
fn connections_of_a_replaced_application_close_after_their_next_response() {
    let (running, app_handle, first) = start("first");
    let (mut early, mut idle) = (connect(&running), connect(&running));
    assert_eq!((&*early.get("/"), &*idle.get("/")), ("first", "first"));
    let (make, second) = respond_with("second");
    app_handle.replace(&AppVersion::new(make, NoObserver));
    assert_eq!(connect(&running).get("/"), "second");
    assert_eq!(early.get("/"), "first");
    assert!(early.read_until_close().is_empty());
    assert!(first.strong_count() > 0 && second.strong_count() > 0);
    drop(idle);
    wait_until_dropped(&first);
    running.handle().stop();
    running.join();
}

#[test]
fn connections_of_a_replaced_application_close_at_its_shutdown_timeout() {
    let (running, app_handle, _) = start("first");
    let next = |word, time| {
        let (make, alive) = respond_with(word);
        app_handle.replace(&AppVersion::new(make, NoObserver).limits(limits(time)));
        alive
    };
    let second = next("second", Duration::from_millis(200));
    let (mut idle, mut reading_head) = (connect(&running), connect(&running));
    assert_eq!((&*idle.get("/"), &*reading_head.get("/")), ("second", "second"));
    reading_head.send("GET / HTTP/1.1\r\n");
    let third = next("third", Duration::from_secs(600));
    let mut current = connect(&running);
    assert_eq!(current.get("/"), "third");
    wait_until_dropped(&second);
    assert!(idle.read_until_close().is_empty() && reading_head.read_until_close().is_empty());
    assert_eq!(current.get("/"), "third");
    assert!(third.strong_count() > 0);
    running.handle().stop_now();
    running.join();
}

/// Sends content back while it arrives, or bytes after an upgrade: with a lease, unless the path is `/without`.
struct Echo(ResponseLease);

impl Service for Echo {
    async fn call(&self, request: &mut Request) -> Response {
        if request.path() == "/upgrade" {
            let handler = Box::new(|duplex| drop(tokio::task::spawn_local(echo(duplex))));
            let upgrade = UpgradeResponse { protocol: Bytes::from_static(b"echo"), handler };
            let response = Response::new(StatusCode::SWITCHING_PROTOCOLS).body(Body::Upgrade(Box::new(upgrade)));
            return response.lease(self.0.clone());
        }
        let has_lease = request.path() != "/without";
        let chunks = Box::pin(request.take_body());
        let response = Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks });
        if has_lease { response.lease(self.0.clone()) } else { response }
    }

    fn accepts_extended_connect(&self) -> bool {
        true
    }
}

/// Sends back what it receives, until the server requests the stop.
async fn echo(mut duplex: Box<dyn Duplex>) {
    let mut buffer = [0; 100];
    let mut stopping = duplex.stopping();
    loop {
        let received = poll_fn(|cx| match stopping.as_mut().poll(cx) {
            std::task::Poll::Ready(()) => std::task::Poll::Ready(Ok(0)),
            std::task::Poll::Pending => duplex.poll_receive(cx, &mut buffer),
        });
        let Ok(count @ 1..) = received.await else { return };
        // A few bytes always fit.
        poll_fn(|cx| duplex.poll_send(cx, &[IoSlice::new(&buffer[..count])])).await.expect("the client reads");
    }
}

/// Sends one chunk, and waits until it returns.
fn exchange_chunk(client: &mut Client, text: &str) {
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    client.send(&chunk);
    client.read_past(&chunk);
}

/// Sends bytes on an upgraded connection, and waits until they return.
fn exchange_bytes(client: &mut Client, text: &str) {
    client.send(text);
    client.read_past(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_keeps_streams_and_upgraded_connections_until_it_ends() {
    let lease = ResponseLease::new();
    let version = || {
        let lease = lease.clone();
        let version = AppVersion::new(move || Echo(lease.clone()), NoObserver);
        version.limits(limits(Duration::from_millis(200))).plain_http2(PlainHttp2::Always)
    };
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let server = server.limits(limits(Duration::from_millis(200))).plain_http2(PlainHttp2::Always);
    let first = lease.clone();
    let (running, app_handle) = server.serve_replaceable(move || Echo(first.clone())).expect("threads start");

    let begin = |path: &str| {
        let mut client = connect(&running);
        client.send(format!("POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"));
        exchange_chunk(&mut client, "begun");
        client
    };
    let (mut stream, without) = (begin("/stream"), begin("/without"));
    let mut upgraded = connect(&running);
    upgraded.send("GET /upgrade HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert!(upgraded.read_head().starts_with("HTTP/1.1 101 "));
    exchange_bytes(&mut upgraded, "begun");
    let http2 = Http2Client::connect(&running).await;
    let mut open = http2.open(request("POST", "/stream")).await;
    open.content.send_data("begun".into(), false).expect("the stream is open");
    let mut body = open.response.await.expect("the server responds").into_body();
    assert_eq!(receive(&mut body).await.expect("content follows").expect("it arrives"), "begun");

    assert!(http2.may_open_tunnels());
    let mut head = request("CONNECT", "/upgrade");
    head.extensions_mut().insert(h2::ext::Protocol::from_static("echo"));
    let mut tunnel = http2.open(head).await;
    let mut echoed = tunnel.response.await.expect("the server responds").into_body();

    for text in ["after the first replacement", "after the second"] {
        let waits = begin("/without");
        app_handle.replace(&version());
        // The server ends it when the time of the replacement has passed.
        waits.read_until_close();
        exchange_chunk(&mut stream, text);
        exchange_bytes(&mut upgraded, text);
        open.content.send_data(text.into(), false).expect("the stream is open");
        assert_eq!(receive(&mut body).await.expect("content follows").expect("it arrives"), text);
        tunnel.content.send_data(text.into(), false).expect("the stream is open");
        assert_eq!(receive(&mut echoed).await.expect("bytes follow").expect("they arrive"), text);
    }
    without.read_until_close();

    lease.end();
    app_handle.replace(&version());
    assert!(upgraded.read_until_close().is_empty());
    assert!(receive(&mut echoed).await.is_none(), "the handler ends when it learns of the stop");
    stream.read_until_close();
    assert!(receive(&mut body).await.is_none_or(|received| received.is_err()));
    running.handle().stop_now();
    running.join();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_keeps_streams_and_upgraded_connections_through_a_hand_over() {
    let lease = ResponseLease::new();
    let leased = lease.clone();
    let server = Server::bind_with_workers("127.0.0.1:0", 2).expect("a free port");
    let server = server.limits(limits(Duration::from_millis(200))).plain_http2(PlainHttp2::Always);
    let (running, _) = server.serve_replaceable(move || Echo(leased.clone())).expect("threads start");
    let begin = |path: &str| {
        let mut client = connect(&running);
        client.send(format!("POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"));
        exchange_chunk(&mut client, "begun");
        client
    };
    let (mut stream, without) = (begin("/stream"), begin("/without"));
    let mut upgraded = connect(&running);
    upgraded.send("GET /upgrade HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert!(upgraded.read_head().starts_with("HTTP/1.1 101 "));
    exchange_bytes(&mut upgraded, "begun");
    let http2 = Http2Client::connect(&running).await;
    let mut head = request("CONNECT", "/upgrade");
    head.extensions_mut().insert(h2::ext::Protocol::from_static("echo"));
    assert!(http2.may_open_tunnels());
    let mut tunnel = http2.open(head).await;
    let mut echoed = tunnel.response.await.expect("the server responds").into_body();

    let handle = running.handle();
    assert_eq!(handle.leased_responses(), 3);
    handle.hand_over();
    // Nothing keeps it, so its time has passed.
    without.read_until_close();
    exchange_chunk(&mut stream, "after the hand-over");
    exchange_bytes(&mut upgraded, "after the hand-over");
    tunnel.content.send_data("after the hand-over".into(), false).expect("the stream is open");
    assert_eq!(receive(&mut echoed).await.expect("bytes follow").expect("they arrive"), "after the hand-over");

    handle.stop();
    assert!(upgraded.read_until_close().is_empty(), "its handler learns of the stop");
    assert!(receive(&mut echoed).await.is_none());
    stream.read_until_close();
    running.join();
    assert_eq!(handle.leased_responses(), 0);
}

#[test]
fn a_server_that_hands_over_ends_with_its_last_response() {
    let (running, _) = Server::bind_with_workers("127.0.0.1:0", 2)
        .expect("a free port")
        .limits(limits(Duration::from_millis(200)))
        .serve_replaceable(|| Echo(ResponseLease::new()))
        .expect("threads start");
    let mut stream = connect(&running);
    stream.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    exchange_chunk(&mut stream, "begun");
    running.handle().hand_over();
    exchange_chunk(&mut stream, "after the hand-over");
    stream.send("0\r\n\r\n");
    stream.read_past("0\r\n\r\n");
    running.join();
    assert!(stream.read_until_close().is_empty());
}
