//! Services of the engine as tower services: on this library's server, on axum's, and called.

mod client;

use axum::Router;
use axum::body::Body;
use client::Client;
use http_body_util::BodyExt;
use selvedge::service::{self, FileContent, OpenFile};
use selvedge::{Embedded, Observer, Request, Response, Running, Server, Service, Status};
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

/// What a thread of its own can have only.
struct Application {
    calls: Rc<Cell<usize>>,
    file: Arc<File>,
    waits: Sender<Wait>,
}

/// What becomes of an answer that is never ready.
#[derive(Debug, PartialEq)]
enum Wait {
    Began,
    Dropped,
}

/// Says so when it is made and when it is dropped.
struct Waiting(Sender<Wait>);

impl Waiting {
    fn begin(says: &Sender<Wait>) -> Self {
        let _ = says.send(Wait::Began);
        Self(says.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.send(Wait::Dropped);
    }
}

/// Content of which nothing comes.
struct Quiet(#[expect(dead_code, reason = "it is dropped with this")] Waiting);

impl service::Chunks for Quiet {
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
        let response = Response::new(Status::OK).field("x-application", "engine");
        match request.path() {
            "/head" => {
                let fields: usize = request.fields().count();
                let text = format!(
                    "{} {} {:?} {:?} {fields}",
                    request.method_text(),
                    request.path(),
                    request.query(),
                    request.authority().map(|host| String::from_utf8_lossy(host).into_owned()),
                );
                response.body(text)
            }
            "/calls" => response.body(self.calls.get().to_string()),
            "/peer" => response.body(request.peer().to_string()),
            "/echo" => response.body(request.body().read().await.unwrap_or_default()),
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
            "/quiet" => {
                let mut response = response;
                let chunks = Box::pin(Quiet(Waiting::begin(&self.waits)));
                response.body = service::Body::Stream { length: None, chunks };
                response
            }
            "/never" => {
                let _waiting = Waiting::begin(&self.waits);
                pending::<()>().await;
                response
            }
            "/file" => {
                let file = self.file.try_clone().expect("there are descriptors");
                let length = file.metadata().expect("it has facts").len();
                let content = FileContent::new(Rc::new(OpenFile::new(file)), 0, length).expect("it has a state");
                let mut response = response;
                response.body = service::Body::File(content);
                response
            }
            "/panic" => panic!("the application broke"),
            _ => Response::error(Status::NOT_FOUND).because("there is no such thing").closing(),
        }
    }
}

const FILE_BYTES: usize = 300_000;

/// An application, how often it was made, and who hears of answers that are never ready.
fn application() -> (Embedded<Application>, Arc<AtomicUsize>, Receiver<Wait>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("selvedge-embedded-{}-{number}", std::process::id()));
    std::fs::write(&path, vec![b'x'; FILE_BYTES]).expect("a file");
    let file = Arc::new(File::open(&path).expect("it opens"));
    std::fs::remove_file(path).expect("it is removed");
    let (says, waits) = channel();
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let make = move || {
        count.fetch_add(1, Ordering::SeqCst);
        Application { calls: Rc::default(), file: file.clone(), waits: says.clone() }
    };
    (Embedded::new(make), made, waits)
}

fn serve(app: Router) -> Running {
    Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").serve(app).expect("threads start")
}

/// The same on axum's server, which has a runtime of many threads.
fn serve_elsewhere(app: Router) -> (SocketAddr, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Runtime::new().expect("threads start");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    runtime.spawn(async move { axum::serve(listener, app).await });
    (address, runtime)
}

fn ask(client: &mut Client, line: &str, content: &str) -> (String, String) {
    client.send(format!("{line} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{content}", content.len()));
    client.reply()
}

#[test]
fn it_is_part_of_a_router_here_and_elsewhere() {
    let (embedded, made, _) = application();
    let app = Router::new().nest_service("/app", embedded);
    let running = serve(app.clone());
    let (elsewhere, _runtime) = serve_elsewhere(app);
    for address in [running.addresses()[0], elsewhere] {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/app/head?a=b"), "GET /head Some(\"a=b\") Some(\"test\") 1");
        assert_eq!((client.get("/app/wait"), client.get("/app/calls")), ("waited".to_owned(), "3".to_owned()));
        assert_eq!(ask(&mut client, "POST /app/echo", "content").1, "content");
        assert_eq!(client.get("/app/file").len(), FILE_BYTES);
        client.send("HEAD /app/file HTTP/1.1\r\nHost: test\r\n\r\n");
        client.send("GET /app/none HTTP/1.1\r\nHost: test\r\n\r\n");
        let both = String::from_utf8(client.rest()).expect("it is text").to_ascii_lowercase();
        let (head, rest) = both.split_once("\r\n\r\n").expect("a head ends");
        assert!(head.contains(&format!("content-length: {FILE_BYTES}")), "{head}");
        assert!(head.contains("x-application: engine") && rest.starts_with("http/1.1 404 "), "{head} {rest}");
        assert!(rest.contains("connection: close"), "{rest}");
        let mut client = Client::connect(address);
        client.send("POST /app/stream HTTP/1.0\r\nHost: test\r\nContent-Length: 5\r\n\r\nabcde");
        assert!(client.rest().ends_with(b"\r\n\r\nabcde"));
    }
    assert_eq!(made.load(Ordering::SeqCst), 2, "one for the worker, and one for all other threads");
}

#[test]
fn who_asks_is_known_here_alone() {
    let (embedded, ..) = application();
    let told = embedded.clone().peers(|extensions| extensions.get::<SocketAddr>().copied());
    let somebody: SocketAddr = "192.0.2.1:7".parse().expect("an address");
    let tell = move |request: &mut http::Request<Body>| {
        request.extensions_mut().insert(somebody);
    };
    let told = Changed { inner: told, change: tell };
    let app = Router::new().nest_service("/app", embedded).nest_service("/told", told);
    let running = serve(app.clone());
    let (elsewhere, _runtime) = serve_elsewhere(app);
    let mut client = Client::connect(running.addresses()[0]);
    assert_eq!(client.get("/app/peer"), client.address().to_string());
    assert_eq!(client.get("/told/peer"), "192.0.2.1:7");
    let mut client = Client::connect(elsewhere);
    assert_eq!((client.get("/app/peer"), client.get("/told/peer")), ("0.0.0.0:0".to_owned(), "192.0.2.1:7".to_owned()));
}

/// A service whose requests are changed on their way.
#[derive(Clone)]
struct Changed<S, F> {
    inner: S,
    change: F,
}

impl<S, F> tower_service::Service<http::Request<Body>> for Changed<S, F>
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
        (self.change)(&mut request);
        self.inner.call(request)
    }
}

#[test]
fn it_ends_with_whoever_waits_for_it() {
    let (embedded, _, waits) = application();
    let app = Router::new().fallback_service(embedded);
    let running = serve(app.clone());
    let (elsewhere, _runtime) = serve_elsewhere(app);
    for address in [running.addresses()[0], elsewhere] {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/head").split(' ').next(), Some("GET"));
        client.send("GET /never HTTP/1.1\r\nHost: test\r\n\r\n");
        let next = || waits.recv_timeout(Duration::from_secs(60));
        assert_eq!(next(), Ok(Wait::Began));
        drop(client);
        assert_eq!(next(), Ok(Wait::Dropped));
    }
}

#[test]
fn one_that_panics_is_answered_for() {
    let (embedded, ..) = application();
    let app = Router::new().fallback_service(embedded);
    let running = serve(app.clone());
    let (elsewhere, _runtime) = serve_elsewhere(app);
    for address in [running.addresses()[0], elsewhere] {
        let mut client = Client::connect(address);
        client.send("GET /panic HTTP/1.1\r\nHost: test\r\n\r\n");
        assert!(client.reply().0.starts_with("HTTP/1.1 500 "));
        assert_eq!(Client::connect(address).get("/wait"), "waited");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_called_without_a_server() {
    let (mut embedded, ..) = application();
    let request = http::Request::get("https://user@example.com:8443/head").version(http::Version::HTTP_2);
    let Ok(answer) = embedded.call(request.body(Body::empty()).expect("it is one")).await;
    let text = answer.into_body().collect().await.expect("there is all of it").to_bytes();
    assert_eq!(text, "GET /head None Some(\"example.com:8443\") 1");
    let request = http::Request::options("http://example.com?a").body(Body::empty()).expect("it is one");
    let Ok(answer) = embedded.call(request).await;
    assert_eq!(answer.status(), 404, "an empty path is the root's");
    let request = http::Request::post("/echo").body(Body::from_stream(Pieces(3))).expect("it is one");
    let Ok(answer) = embedded.call(request).await;
    assert_eq!(answer.status(), 400, "content of no length belongs to a host that nobody has named");
    let request = http::Request::post("/echo").header("host", "test").body(Body::from_stream(Pieces(3)));
    let Ok(answer) = embedded.call(request.expect("it is one")).await;
    assert_eq!(answer.into_body().collect().await.expect("there is all of it").to_bytes(), "321");
}

/// Counts down.
struct Pieces(u8);

impl futures_core::Stream for Pieces {
    type Item = Result<String, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let now = self.0;
        self.0 = now.saturating_sub(1);
        Poll::Ready((now > 0).then(|| Ok(now.to_string())))
    }
}

/// Keeps the reasons that it is told.
#[derive(Clone, Default)]
struct Reasons(Arc<Mutex<Vec<Option<&'static str>>>>);

impl Observer for Reasons {
    fn finished(&self, exchange: &service::Exchange<'_>) {
        self.0.lock().expect("no test panics with it").push(exchange.reason);
    }
}

#[test]
fn why_it_is_an_error_is_told_to_the_log() {
    let (embedded, ..) = application();
    let reasons = Reasons::default();
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").observe(reasons.clone());
    let running = server.serve(Router::new().fallback_service(embedded)).expect("threads start");
    let mut client = Client::connect(running.addresses()[0]);
    client.get("/head");
    client.get("/none");
    drop(client.rest());
    running.handle().stop();
    running.join();
    assert_eq!(*reasons.0.lock().expect("nobody has it"), [None, Some("there is no such thing")]);
}

#[test]
fn those_that_nobody_can_ask_any_more_are_let_go() {
    let live = Arc::new(());
    let make = |live: &Arc<()>| {
        let live = live.clone();
        Embedded::new(move || {
            let live = live.clone();
            async move |_: &mut Request| {
                let _live = &live;
                Response::new(Status::OK).body("here")
            }
        })
    };
    let other = live.clone();
    // One for each request, as careless handlers do.
    let app = Router::new().fallback(async move |request: http::Request<Body>| {
        let Ok(answer) = make(&other).call(request).await;
        answer
    });
    let running = serve(app);
    let mut client = Client::connect(running.addresses()[0]);
    (0..100).for_each(|_| assert_eq!(client.get("/"), "here"));
    assert!(Arc::strong_count(&live) < 10, "{} are kept", Arc::strong_count(&live));
}

#[test]
fn content_of_which_nothing_comes_ends_with_its_client() {
    let (embedded, _, waits) = application();
    let running = serve(Router::new().fallback_service(embedded));
    let mut client = Client::connect(running.addresses()[0]);
    client.send("GET /quiet HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(waits.recv_timeout(Duration::from_secs(60)), Ok(Wait::Began));
    drop(client);
    assert_eq!(waits.recv_timeout(Duration::from_secs(60)), Ok(Wait::Dropped));
}
