//! Replaces the application of a running server while clients are connected.

use crate::support::client::Client;
use crate::support::http2_client::{Http2Client, request};
use selvedge::{
    AppHandle, AppVersion, Limits, NoObserver, PlainHttp2, Request, Response, RunningServer, Server, Service,
    StatusCode,
};
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
