//! Tests services of the engine as tower services: on this library's server, on axum's server, and
//! called directly.

use crate::support::client::Client;
use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt;
use selvedge::service::{self, FileContent, OpenFile};
use selvedge::{Embedded, Observer, Request, Response, RunningServer, Server, Service, StatusCode};
use std::cell::Cell;
use std::fs::File;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service as _;

/// A service that is not `Send`, so it must stay on its thread.
struct Application {
    calls: Rc<Cell<usize>>,
    file: Arc<File>,
    waits: Sender<Wait>,
}

/// An event of a response that is never complete.
#[derive(Debug, PartialEq)]
enum Wait {
    Started,
    Dropped,
}

/// A guard that reports when it is created and when it is dropped.
struct WaitGuard(Sender<Wait>);

impl WaitGuard {
    fn new(sender: &Sender<Wait>) -> Self {
        let _ = sender.send(Wait::Started);
        Self(sender.clone())
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let _ = self.0.send(Wait::Dropped);
    }
}

/// Content that never yields a chunk.
struct PendingContent(#[expect(dead_code, reason = "the guard reports the drop of this content")] WaitGuard);

impl service::Chunks for PendingContent {
    fn poll_chunk(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<bytes::Bytes, service::StreamError>>> {
        Poll::Pending
    }
}

impl Service for Application {
    async fn call(&self, request: &mut Request) -> Response {
        self.calls.set(self.calls.get() + 1);
        let response = Response::new(StatusCode::OK).field("x-application", "engine");
        match request.path() {
            "/head" => {
                let fields: usize = request.fields().count();
                let text = format!(
                    "{} {} {:?} {:?} {fields}",
                    request.method_text(),
                    request.path(),
                    request.query(),
                    service::authority(request).map(|host| String::from_utf8_lossy(host).into_owned()),
                );
                response.body(text)
            }
            "/calls" => response.body(self.calls.get().to_string()),
            "/peer" => response.body(request.peer().to_string()),
            "/echo" => response.body(request.body().read_all().await.unwrap_or_default()),
            "/stream" => {
                let chunks = Box::pin(request.take_body());
                let mut response = response;
                response.body = service::Body::Stream { length: None, chunks };
                response
            }
            "/wait" => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                response.body("waited")
            }
            "/pending-content" => {
                let mut response = response;
                let chunks = Box::pin(PendingContent(WaitGuard::new(&self.waits)));
                response.body = service::Body::Stream { length: None, chunks };
                response
            }
            "/never" => {
                let _guard = WaitGuard::new(&self.waits);
                pending::<()>().await;
                response
            }
            "/file" => {
                let file = self.file.try_clone().expect("a file descriptor is available");
                let length = file.metadata().expect("the file has metadata").len();
                let content = FileContent::new(Rc::new(OpenFile::new(file)), 0, length).expect("the file has metadata");
                let mut response = response;
                response.body = service::Body::File(Box::new(content));
                response
            }
            "/panic" => panic!("the application broke"),
            _ => Response::error(StatusCode::NOT_FOUND).log_reason("no such resource").close_connection(),
        }
    }
}

const FILE_BYTES: usize = 300_000;

/// Returns an application, the number of its instances, and the events of its incomplete responses.
fn application() -> (Embedded<Application>, Arc<AtomicUsize>, Receiver<Wait>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("selvedge-embedded-{}-{number}", std::process::id()));
    std::fs::write(&path, vec![b'x'; FILE_BYTES]).expect("the file is written");
    let file = Arc::new(File::open(&path).expect("the file opens"));
    std::fs::remove_file(path).expect("the file is removed");
    let (sender, waits) = channel();
    let created = Arc::new(AtomicUsize::new(0));
    let count = created.clone();
    let make = move || {
        count.fetch_add(1, Ordering::SeqCst);
        Application { calls: Rc::default(), file: file.clone(), waits: sender.clone() }
    };
    (Embedded::new(make), created, waits)
}

fn serve(app: Router) -> RunningServer {
    Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").serve(app).expect("threads start")
}

/// Serves an application on axum's server, which has a runtime with several threads.
fn serve_with_axum(app: Router) -> (SocketAddr, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Runtime::new().expect("threads start");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("the listener has an address");
    runtime.spawn(async move { axum::serve(listener, app).await });
    (address, runtime)
}

/// Sends a request with content. Returns the head and the content of the response.
fn request(client: &mut Client, line: &str, content: &str) -> (String, String) {
    client.send(format!("{line} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{content}", content.len()));
    client.read_response()
}

#[test]
fn embedded_service_is_part_of_a_router_on_both_servers() {
    let (embedded, created, _) = application();
    let app = Router::new().nest_service("/app", embedded);
    let running = serve(app.clone());
    let (axum_address, _runtime) = serve_with_axum(app);
    for address in [running.addresses()[0], axum_address] {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/app/head?a=b"), "GET /head Some(\"a=b\") Some(\"test\") 1");
        assert_eq!((client.get("/app/wait"), client.get("/app/calls")), ("waited".to_owned(), "3".to_owned()));
        assert_eq!(request(&mut client, "POST /app/echo", "content").1, "content");
        assert_eq!(client.get("/app/file").len(), FILE_BYTES);
        client.send("HEAD /app/file HTTP/1.1\r\nHost: test\r\n\r\n");
        client.send("GET /app/none HTTP/1.1\r\nHost: test\r\n\r\n");
        let both = String::from_utf8(client.read_until_close()).expect("the response is text").to_ascii_lowercase();
        let (head, rest) = both.split_once("\r\n\r\n").expect("the head is complete");
        assert!(head.contains(&format!("content-length: {FILE_BYTES}")), "{head}");
        assert!(head.contains("x-application: engine") && rest.starts_with("http/1.1 404 "), "{head} {rest}");
        assert!(rest.contains("connection: close"), "{rest}");
        let mut client = Client::connect(address);
        client.send("POST /app/stream HTTP/1.0\r\nHost: test\r\nContent-Length: 5\r\n\r\nabcde");
        assert!(client.read_until_close().ends_with(b"\r\n\r\nabcde"));
    }
    assert_eq!(created.load(Ordering::SeqCst), 2, "one for the worker, one for all other threads");
}

#[test]
fn peer_address_is_known_on_this_server_or_with_find_peer() {
    let (embedded, ..) = application();
    let with_peer = embedded.clone().find_peer(|extensions| extensions.get::<SocketAddr>().copied());
    let peer: SocketAddr = "192.0.2.1:7".parse().expect("the address is valid");
    let insert_peer = move |request: &mut http::Request<Body>| {
        request.extensions_mut().insert(peer);
    };
    let with_peer = MapRequest { inner: with_peer, map: insert_peer };
    let app = Router::new().nest_service("/app", embedded).nest_service("/with-peer", with_peer);
    let running = serve(app.clone());
    let (axum_address, _runtime) = serve_with_axum(app);
    let mut client = Client::connect(running.addresses()[0]);
    assert_eq!(client.get("/app/peer"), client.local_address().to_string());
    assert_eq!(client.get("/with-peer/peer"), "192.0.2.1:7");
    let mut client = Client::connect(axum_address);
    assert_eq!(
        (client.get("/app/peer"), client.get("/with-peer/peer")),
        ("0.0.0.0:0".to_owned(), "192.0.2.1:7".to_owned())
    );
}

/// A service that modifies requests before it calls the inner service.
#[derive(Clone)]
struct MapRequest<S, F> {
    inner: S,
    map: F,
}

impl<S, F> tower_service::Service<http::Request<Body>> for MapRequest<S, F>
where
    S: tower_service::Service<http::Request<Body>>,
    F: Fn(&mut http::Request<Body>),
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> S::Future {
        (self.map)(&mut request);
        self.inner.call(request)
    }
}

#[test]
fn call_is_dropped_when_its_client_disconnects() {
    let (embedded, _, waits) = application();
    let app = Router::new().fallback_service(embedded);
    let running = serve(app.clone());
    let (axum_address, _runtime) = serve_with_axum(app);
    for address in [running.addresses()[0], axum_address] {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/head").split(' ').next(), Some("GET"));
        client.send("GET /never HTTP/1.1\r\nHost: test\r\n\r\n");
        let next_event = || waits.recv_timeout(Duration::from_secs(60));
        assert_eq!(next_event(), Ok(Wait::Started));
        drop(client);
        assert_eq!(next_event(), Ok(Wait::Dropped));
    }
}

#[test]
fn panic_gets_500_and_the_server_continues() {
    let (embedded, ..) = application();
    let app = Router::new().fallback_service(embedded);
    let running = serve(app.clone());
    let (axum_address, _runtime) = serve_with_axum(app);
    for address in [running.addresses()[0], axum_address] {
        let mut client = Client::connect(address);
        client.send("GET /panic HTTP/1.1\r\nHost: test\r\n\r\n");
        assert!(client.read_response().0.starts_with("HTTP/1.1 500 "));
        assert_eq!(Client::connect(address).get("/wait"), "waited");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_service_can_be_called_without_a_server() {
    let (mut embedded, ..) = application();
    let request = http::Request::get("https://user@example.com:8443/head").version(http::Version::HTTP_2);
    let Ok(response) = embedded.call(request.body(Body::empty()).expect("the request is valid")).await;
    let text = response.into_body().collect().await.expect("the content is complete").to_bytes();
    assert_eq!(text, "GET /head None Some(\"example.com:8443\") 1");
    let request = http::Request::options("http://example.com?a").body(Body::empty()).expect("the request is valid");
    let Ok(response) = embedded.call(request).await;
    assert_eq!(response.status(), 404, "an empty path is the root");
    let request = http::Request::post("/echo").body(Body::from_stream(Pieces(3))).expect("the request is valid");
    let Ok(response) = embedded.call(request).await;
    assert_eq!(response.status(), 400, "a chunked request without Host is refused");
    for version in [http::Version::HTTP_11, http::Version::HTTP_2] {
        let request = http::Request::post("/echo").version(version).header("host", "test");
        let request = request.body(Body::from_stream(Pieces(3))).expect("the request is valid");
        let Ok(response) = embedded.call(request).await;
        assert_eq!(response.into_body().collect().await.expect("the content is complete").to_bytes(), "321");
    }
}

/// A stream of decreasing numbers.
struct Pieces(u8);

impl futures_core::Stream for Pieces {
    type Item = Result<String, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let now = self.0;
        self.0 = now.saturating_sub(1);
        Poll::Ready((now > 0).then(|| Ok(now.to_string())))
    }
}

/// An observer that records log reasons.
#[derive(Clone, Default)]
struct ReasonRecorder(Arc<Mutex<Vec<Option<&'static str>>>>);

impl Observer for ReasonRecorder {
    fn finished(&self, exchange: &service::Exchange<'_>) {
        self.0.lock().expect("no thread panicked with the lock").push(exchange.reason);
    }
}

#[test]
fn log_reason_is_reported_to_the_observer() {
    let (embedded, ..) = application();
    let reasons = ReasonRecorder::default();
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").observe(reasons.clone());
    let running = server.serve(Router::new().fallback_service(embedded)).expect("threads start");
    let mut client = Client::connect(running.addresses()[0]);
    client.get("/head");
    client.get("/none");
    drop(client.read_until_close());
    running.handle().stop();
    running.join();
    assert_eq!(*reasons.0.lock().expect("no thread panicked with the lock"), [None, Some("no such resource")]);
}

#[test]
fn unreachable_services_are_dropped() {
    let live = Arc::new(());
    let make = |live: &Arc<()>| {
        let live = live.clone();
        Embedded::new(move || {
            let live = live.clone();
            async move |_: &mut Request| {
                let _live = &live;
                Response::new(StatusCode::OK).body("here")
            }
        })
    };
    let other = live.clone();
    // The handler creates one service for each request, as a careless handler does.
    let app = Router::new().fallback(async move |request: http::Request<Body>| {
        let Ok(response) = make(&other).call(request).await;
        response
    });
    let running = serve(app);
    let mut client = Client::connect(running.addresses()[0]);
    (0..100).for_each(|_| assert_eq!(client.get("/"), "here"));
    assert!(Arc::strong_count(&live) < 10, "{} services are alive", Arc::strong_count(&live));
}

#[test]
fn pending_content_is_dropped_when_its_client_disconnects() {
    let (embedded, _, waits) = application();
    let running = serve(Router::new().fallback_service(embedded));
    let mut client = Client::connect(running.addresses()[0]);
    client.send("GET /pending-content HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(client.read_head().starts_with("HTTP/1.1 200 "));
    assert_eq!(waits.recv_timeout(Duration::from_secs(60)), Ok(Wait::Started));
    drop(client);
    assert_eq!(waits.recv_timeout(Duration::from_secs(60)), Ok(Wait::Dropped));
}
