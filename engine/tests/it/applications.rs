//! Tests applications over sockets: axum routers, tower services, and functions.

use crate::support::client::Client;
use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{any, get, post};
use http_body_util::{BodyExt, Full};
use selvedge::Body;
use selvedge::{Application, EarlyHints, IntoListener, RunningServer, SendFile, Server, Upgrade, Upgraded};
use std::convert::Infallible;
use std::future::{Ready, pending, ready};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

fn serve<K>(app: impl Application<K> + Clone + Send) -> RunningServer {
    serve_with(Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port"), app)
}

fn serve_with<K>(server: Server, app: impl Application<K> + Clone + Send) -> RunningServer {
    server.serve(app).expect("threads start")
}

fn connect(running: &RunningServer) -> Client {
    Client::connect(running.addresses()[0])
}

fn text(text: impl Into<bytes::Bytes>) -> http::Response<Full<bytes::Bytes>> {
    http::Response::new(Full::new(text.into()))
}

#[test]
fn router_is_served_with_connect_info() {
    let app = Router::new()
        .route("/", get(async || "hello"))
        .route("/peer", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()));
    let running = serve(app.clone());
    let mut client = connect(&running);
    assert_eq!(client.get("/"), "hello");
    client.send("HEAD / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(client.read_until_close()).expect("the head is text");
    assert!(head.contains("content-length: 5\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let running = serve(app.into_make_service_with_connect_info::<SocketAddr>());
    let mut client = connect(&running);
    let address = client.local_address().to_string();
    assert_eq!((client.get("/peer"), client.get("/peer")), (address.clone(), address));
}

#[test]
fn function_of_http_types_is_served() {
    let running = serve(async |request: http::Request<Body>| text(request.uri().path().to_owned()));
    assert_eq!(connect(&running).get("/a/b?c"), "/a/b");
}

#[test]
fn function_of_engine_types_is_served() {
    let running = serve(async |request: &mut selvedge::Request| {
        selvedge::Response::new(selvedge::StatusCode::OK).body(request.path().to_owned())
    });
    assert_eq!(connect(&running).get("/a"), "/a");
}

/// A tower service that processes one request at a time. It reports `waits` and `called`.
struct OneAtATime {
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    waiting: Option<Waiting>,
    events: Sender<&'static str>,
}

type Waiting = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

impl Clone for OneAtATime {
    fn clone(&self) -> Self {
        Self { semaphore: self.semaphore.clone(), permit: None, waiting: None, events: self.events.clone() }
    }
}

impl tower_service::Service<http::Request<Body>> for OneAtATime {
    type Response = http::Response<Full<bytes::Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.permit.is_some() {
            return Poll::Ready(Ok(()));
        }
        let semaphore = self.semaphore.clone();
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(async move { semaphore.acquire_owned().await.ok() }));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(permit) => {
                (self.permit, self.waiting) = (permit, None);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                self.events.send("waits").expect("the test is running");
                Poll::Pending
            }
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let permit = self.permit.take().expect("the service is ready before a call");
        self.events.send("called").expect("the test is running");
        Box::pin(async move {
            let content = request.into_body().collect().await.map(|content| content.to_bytes());
            drop(permit);
            Ok(text(content.unwrap_or_default()))
        })
    }
}

#[test]
fn request_waits_until_its_service_is_ready() {
    let (events, received) = channel();
    let semaphore = Arc::new(Semaphore::new(1));
    let running = serve(OneAtATime { semaphore, permit: None, waiting: None, events });
    let request = |content: &str| format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\n{content}");
    let [mut first, mut second, mut third] = [(); 3].map(|()| connect(&running));
    first.send(request(""));
    assert_eq!(received.recv(), Ok("called"));
    second.send(request("two"));
    assert_eq!(received.recv(), Ok("waits"));
    third.send(request("tri"));
    assert_eq!(received.recv(), Ok("waits"));
    first.send("one");
    assert_eq!([&mut first, &mut second, &mut third].map(|client| client.read_response().1), ["one", "two", "tri"]);
}

#[test]
fn content_is_read_on_another_thread() {
    let service = async |request: http::Request<Body>| {
        let read = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
            runtime.block_on(request.into_body().collect()).map(|content| content.to_bytes())
        });
        let read = selvedge::spawn_blocking(move || read.join()).await;
        text(read.and_then(Result::ok).and_then(Result::ok).expect("the content is read"))
    };
    let running = serve(service);
    let mut client = connect(&running);
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
        client.send("3\r\ncde\r\n0\r\n\r\n");
        assert_eq!(client.read_response().1, "abcde");
    }
}

#[test]
fn client_receives_100_continue_if_its_content_is_read() {
    let app = Router::new().route("/read", post(async |content: String| content)).route("/not", post(async || "no"));
    let running = serve(app);
    let mut client = connect(&running);
    let request =
        |path| format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    client.send(request("/read"));
    assert_eq!(client.read_response().0, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("ab");
    assert_eq!(client.read_response().1, "ab");
    client.send(request("/not"));
    let (head, content) = client.read_response();
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("connection: close"), "{head}");
    assert_eq!(content, "no");
}

#[test]
fn content_above_the_limit_is_refused() {
    let app = Router::new().route("/", post(async |content: String| content));
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").body_bytes_max(3);
    let running = serve_with(server, app);
    let mut client = connect(&running);
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nabcd");
    assert!(client.read_response().0.starts_with("HTTP/1.1 413 "));
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.read_response().1, "abc");
}

/// A guard that reports when it is dropped.
struct DropGuard(Sender<()>);

impl Drop for DropGuard {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn handler_is_dropped_when_its_client_disconnects() {
    let (entered, enters) = channel();
    let (dropped, drops) = channel();
    let wait = move |body: axum::body::Body| {
        let guard = DropGuard(dropped.clone());
        let _ = entered.send(());
        async move {
            let _guard = guard;
            drop(body.collect().await);
            pending::<()>().await;
        }
    };
    let stream = async || {
        let pieces = one_piece_then(pending::<Infallible>());
        axum::body::Body::from_stream(pieces)
    };
    let running = serve(Router::new().route("/", any(wait)).route("/stream", get(stream)));
    let requests = [
        "GET / HTTP/1.1\r\nHost: test\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\na",
        "GET / HTTP/1.1\r\nHost: test\r\n\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n",
    ];
    for request in requests {
        let mut client = connect(&running);
        client.send(request);
        enters.recv().expect("the application is called");
        drop(client);
        assert_eq!(drops.recv_timeout(Duration::from_secs(60)), Ok(()), "{request}");
    }
}

/// Returns a stream that yields one piece and then waits forever.
fn one_piece_then(
    wait: impl Future<Output = Infallible> + Send + 'static,
) -> impl futures_core::Stream<Item = Result<&'static str, Infallible>> + Send + 'static {
    struct One<F>(bool, Pin<Box<F>>);
    impl<F: Future<Output = Infallible>> futures_core::Stream for One<F> {
        type Item = Result<&'static str, Infallible>;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            if std::mem::replace(&mut self.0, true) {
                return self.1.as_mut().poll(cx).map(|never| match never {});
            }
            Poll::Ready(Some(Ok("first")))
        }
    }
    One(false, Box::pin(wait))
}

#[test]
fn stream_is_dropped_when_its_client_disconnects() {
    let (dropped, drops) = channel();
    let app = move || {
        let guard = DropGuard(dropped.clone());
        let pieces = one_piece_then(async move {
            let _guard = guard;
            pending().await
        });
        ready(axum::body::Body::from_stream(pieces))
    };
    let running = serve(Router::new().route("/", get(app)));
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(client.read_response().0.contains("transfer-encoding: chunked"));
    drop(client);
    assert_eq!(drops.recv_timeout(Duration::from_secs(60)), Ok(()));
}

#[test]
fn half_closed_client_receives_the_response_if_configured() {
    let (entered, enters) = channel();
    let (release, released) = tokio::sync::watch::channel(false);
    let app = Router::new().route(
        "/",
        get(move || {
            let (mut released, _) = (released.clone(), entered.send(()));
            async move { released.wait_for(|released| *released).await.map(|_| "response").unwrap_or_default() }
        }),
    );
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let running = serve_with(server.half_closed(selvedge::HalfClosed::Continue), app);
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    enters.recv().expect("the application is called");
    client.shutdown_write();
    release.send_replace(true);
    assert_eq!(client.read_response().1, "response");
}

#[test]
fn client_that_does_not_read_stops_the_production_of_content() {
    const PIECE_BYTES: usize = 1 << 20;
    // More than fits into the buffers of a connection, and fewer than without backpressure.
    const PIECES_MAX: usize = 100;
    let produced = Arc::new(AtomicUsize::new(0));
    let count = produced.clone();
    let pieces = move || {
        let (count, piece) = (count.clone(), bytes::Bytes::from(vec![b'x'; PIECE_BYTES]));
        let piece = move || {
            count.fetch_add(1, Ordering::SeqCst);
            Some(Ok::<_, Infallible>(piece.clone()))
        };
        ready(axum::body::Body::from_stream(Always(piece)))
    };
    let app = Router::new().route("/", get(async || "hello")).route("/endless", get(pieces));
    let running = serve(app);
    let mut slow = connect(&running);
    slow.send("GET /endless HTTP/1.1\r\nHost: test\r\n\r\n");
    slow.read_response();
    // Meanwhile the worker polls the stream many times.
    let mut other = connect(&running);
    (0..1_000).for_each(|_| assert_eq!(other.get("/"), "hello"));
    assert!((1..PIECES_MAX).contains(&produced.load(Ordering::SeqCst)), "{produced:?} pieces");
}

/// A stream that is always ready.
struct Always<F>(F);

impl<T, F: FnMut() -> Option<T> + Unpin> futures_core::Stream for Always<F> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<T>> {
        Poll::Ready((self.0)())
    }
}

#[test]
fn handler_that_does_not_read_stops_its_client() {
    const BYTES_MAX: usize = 100 << 20;
    let (release, released) = tokio::sync::watch::channel(false);
    let app = async move |request: http::Request<Body>| {
        released.clone().wait_for(|released| *released).await.expect("the test is running");
        let mut body = request.into_body();
        let first = body.frame().await.expect("the content has a piece").expect("the content is read");
        text(format!("{}", first.into_data().is_ok_and(|data| data.len() <= 64 * 1024)))
    };
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").body_bytes_max(u64::MAX);
    let running = serve_with(server, app);
    let mut stream = std::net::TcpStream::connect(running.addresses()[0]).expect("the listener is bound");
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000000\r\n\r\n")
        .expect("the request is sent");
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("the timeout is set");
    let piece = vec![b'x'; 1 << 20];
    let mut taken = 0;
    while let Ok(count) = stream.write(&piece) {
        taken += count;
        assert!(taken < BYTES_MAX, "the server accepts content that the handler does not read");
    }
    release.send_replace(true);
    let mut response = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("the timeout is set");
    let _ = stream.read_to_string(&mut response);
    assert!(response.ends_with("\r\n\r\ntrue"), "{response}");
}

#[test]
fn early_hints_are_sent_before_the_response() {
    let (release, released) = tokio::sync::watch::channel(false);
    let app = async move |request: http::Request<Body>| {
        let hints = request.extensions().get::<EarlyHints>().cloned();
        let mut fields = http::HeaderMap::new();
        fields.insert("link", http::HeaderValue::from_static("</style.css>; rel=preload"));
        let sent = hints.as_ref().map(|hints| hints.send(&fields));
        released.clone().wait_for(|released| *released).await.expect("the test is running");
        text(format!("{sent:?}"))
    };
    let running = serve_with(Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").early_hints(), app);
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n";
    assert_eq!(client.read_response(), (hints.to_owned(), String::new()));
    release.send_replace(true);
    assert_eq!(client.read_response().1, "Some(Ok(()))");
    client.send("GET / HTTP/1.0\r\nHost: test\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.read_response().1, "None");
}

#[test]
fn trailers_are_received_and_sent() {
    let app = async |request: http::Request<Body>| {
        let accepts_trailers = request.headers().contains_key("te");
        let read = request.into_body().collect().await.expect("the content is read");
        let trailers = read.trailers().cloned().unwrap_or_default();
        let body = Full::new(read.to_bytes()).with_trailers(ready(Some(Ok::<_, Infallible>(trailers))));
        let mut response = http::Response::new(body);
        if accepts_trailers {
            response.headers_mut().insert("trailer", http::HeaderValue::from_static("x-sum"));
        }
        response
    };
    let running = serve(app);
    let content = "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 7\r\n\r\n";
    let mut client = connect(&running);
    client.send(format!("POST / HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nConnection: close\r\n{content}"));
    let response = String::from_utf8(client.read_until_close()).expect("the response is text");
    assert!(response.ends_with("\r\n\r\n2\r\nab\r\n0\r\nx-sum: 7\r\n\r\n"), "{response}");
    let mut client = connect(&running);
    client.send(format!("POST / HTTP/1.1\r\nHost: test\r\n{content}"));
    assert_eq!(client.read_response().1, "ab");
}

#[test]
fn connection_is_upgraded_to_another_protocol() {
    let app = async |mut request: http::Request<Body>| {
        let upgrade = request.extensions_mut().remove::<Upgrade>().expect("the client offers an upgrade");
        upgrade.accept("upper", async |mut connection: Upgraded| {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut piece = [0; 16];
            while let Ok(count @ 1..) = connection.read(&mut piece).await {
                piece.make_ascii_uppercase();
                connection.write_all(&piece[..count]).await.expect("the client reads");
            }
        })
    };
    let running = serve(app);
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: upper\r\n\r\nearly");
    let (head, _) = client.read_response();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("connection: upgrade\r\nupgrade: upper\r\n"), "{head}");
    client.send(" bird");
    client.shutdown_write();
    assert_eq!(client.read_until_close(), b"EARLY BIRD");
    // An immediate stop closes an upgraded connection.
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: upper\r\n\r\n");
    client.read_response();
    running.handle().stop_now();
    assert_eq!(client.read_until_close(), b"");
    running.join();
}

#[test]
fn file_is_sent_completely_in_part_and_through_layers() {
    let path = std::env::temp_dir().join(format!("selvedge-applications-{}", std::process::id()));
    let content: String = (0..200_000).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
    std::fs::write(&path, &content).expect("the file is written");
    let (file, read) = (path.clone(), path.clone());
    let app = Router::new()
        .route(
            "/file",
            get(async move |headers: http::HeaderMap| {
                SendFile::open(&file).await.expect("the file opens").respond_to(&headers)
            }),
        )
        .route(
            "/read",
            get(async move || {
                let body = SendFile::open(&read).await.expect("the file opens").map_frame(|frame| frame);
                axum::body::Body::new(body)
            }),
        );
    let running = serve(app);
    let mut client = connect(&running);
    assert!(client.get("/file") == content, "the file is sent");
    client.send("GET /file HTTP/1.1\r\nHost: test\r\nRange: bytes=70000-70009\r\n\r\n");
    let (head, part) = client.read_response();
    assert!(head.contains("content-range: bytes 70000-70009/200000\r\n"), "{head}");
    assert_eq!(part, content[70_000..70_010]);
    let mut asking = connect(&running);
    asking.send("HEAD /file HTTP/1.1\r\nHost: test\r\nRange: bytes=0-9\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(asking.read_until_close()).expect("the response is text");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-length: 200000\r\n"), "{head}");
    client.send("GET /read HTTP/1.0\r\nHost: test\r\n\r\n");
    let response = String::from_utf8(client.read_until_close()).expect("the response is text");
    assert!(response.ends_with(&content), "a body that a layer has wrapped is read");
    std::fs::remove_file(path).expect("the file is removed");
}

#[test]
fn ready_service_distinguishes_head_requests() {
    let path = std::env::temp_dir().join(format!("selvedge-applications-at-once-{}", std::process::id()));
    std::fs::write(&path, "content").expect("the file is written");
    let file = path.clone();
    let app = tower::service_fn(move |request: http::Request<Body>| {
        let file = std::fs::File::open(&file).and_then(SendFile::from_file).expect("the file exists");
        ready(Ok::<_, Infallible>(file.respond_to(request.headers())))
    });
    let mut client = connect(&serve(app));
    client.send("HEAD / HTTP/1.1\r\nHost: test\r\nRange: bytes=0-1\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(client.read_until_close()).expect("the response is text");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-length: 7\r\n"), "{head}");
    std::fs::remove_file(path).expect("the file is removed");
}

#[test]
fn several_listeners_and_a_unix_socket_are_served() {
    let path = std::env::temp_dir().join(format!("selvedge-applications-{}.sock", std::process::id()));
    let unix = std::os::unix::net::UnixListener::bind(&path).expect("the socket is bound");
    let [one, other] = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let app = async |request: http::Request<Body>| text(request.uri().path().to_owned());
    let running = selvedge::serve(one, app)
        .add_listener(other)
        .add_listener(unix.into_listener().expect("the listener is bound"))
        .start();
    let running = running.expect("threads start");
    for &address in running.addresses() {
        assert_eq!(Client::connect(address).get("/"), "/");
    }
    assert_eq!(running.addresses().len(), 2);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("the listener is bound");
    stream.write_all(b"GET /unix HTTP/1.0\r\n\r\n").expect("the server reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the server responds");
    assert!(response.ends_with("/unix"), "{response}");
    std::fs::remove_file(path).expect("the file is removed");
}

#[test]
fn panic_and_invalid_response_get_500() {
    let app = Router::new()
        .route("/panic", get(async || -> &'static str { panic!("the application broke") }))
        .route("/switch", get(async || http::StatusCode::SWITCHING_PROTOCOLS))
        .route("/odd", get(async || http::StatusCode::from_u16(999).expect("the code is valid")));
    let running = serve(app);
    for path in ["/panic", "/switch", "/odd"] {
        let mut client = connect(&running);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        assert!(client.read_response().0.starts_with("HTTP/1.1 500 "), "{path}");
    }
}

/// Counts the calls of `poll_ready`.
#[derive(Clone)]
struct Reserving(Arc<AtomicUsize>);

impl tower_service::Service<http::Request<Body>> for Reserving {
    type Response = http::Response<Full<bytes::Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        ready(Ok(text("called")))
    }
}

#[test]
fn refused_request_does_not_poll_readiness() {
    let polls = Arc::new(AtomicUsize::new(0));
    let mut client = connect(&serve(Reserving(polls.clone())));
    client.send("GET /< HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(client.read_response().0.starts_with("HTTP/1.1 400 "));
    assert_eq!(polls.load(Ordering::SeqCst), 0);
    assert_eq!(client.get("/"), "called");
    assert_eq!(polls.load(Ordering::SeqCst), 1);
}

// The worker reuses the parse results of an equal field section, also for another client.
#[test]
fn each_request_has_its_own_fields() {
    let service = async |request: http::Request<Body>| {
        let fields: Vec<_> = request.headers().iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        text(format!("{} {}", request.uri(), fields.join(", ")))
    };
    let running = serve(service);
    let [mut one, mut other] = [(); 2].map(|()| connect(&running));
    let plain = ("Host: test\r\n", "host: \"test\"");
    let twice = ("A: 1\r\nHost: test\r\nB:\r\na: 2\r\n", "a: \"1\", a: \"2\", host: \"test\", b: \"\"");
    let rows = [plain, plain, plain, twice, plain, twice, twice, twice, plain, plain, twice];
    for (number, (sent, expected)) in rows.iter().enumerate() {
        let target = format!("/{}", "x".repeat(number * 7));
        let client = if number % 3 == 1 { &mut other } else { &mut one };
        client.send(format!("GET {target} HTTP/1.1\r\n{sent}\r\n"));
        assert_eq!(client.read_response().1, format!("{target} {expected}"), "row {number}");
    }
}

/// A service that responds immediately with delayed content. Its future owns a drop guard.
#[derive(Clone)]
struct GuardedService {
    dropped: Sender<()>,
    content: Arc<Mutex<Option<oneshot::Receiver<bytes::Bytes>>>>,
}

struct GuardedFuture(
    #[expect(dead_code, reason = "the guard reports the drop of this future")] DropGuard,
    Option<DelayedBody>,
);

/// A body of five bytes that the test sends.
struct DelayedBody(oneshot::Receiver<bytes::Bytes>);

impl tower_service::Service<http::Request<Body>> for GuardedService {
    type Response = http::Response<DelayedBody>;
    type Error = Infallible;
    type Future = GuardedFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> GuardedFuture {
        let content = self.content.lock().expect("no thread panicked with the lock").take();
        GuardedFuture(DropGuard(self.dropped.clone()), content.map(DelayedBody))
    }
}

impl Future for GuardedFuture {
    type Output = Result<http::Response<DelayedBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(http::Response::new(self.1.take().expect("the response is taken once"))))
    }
}

impl http_body::Body for DelayedBody {
    type Data = bytes::Bytes;
    type Error = oneshot::error::RecvError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        if self.0.is_terminated() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.0).poll(cx).map(|content| Some(content.map(http_body::Frame::data)))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(5)
    }
}

// The future may own a permit of a semaphore for which the content of another response waits.
#[test]
fn future_of_a_call_is_dropped_before_the_content_is_sent() {
    let ((dropped, drops), (send_content, content)) = (channel(), oneshot::channel());
    let mut client = connect(&serve(GuardedService { dropped, content: Arc::new(Mutex::new(Some(content))) }));
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    drops.recv().expect("the call ends");
    send_content.send(bytes::Bytes::from_static(b"later")).expect("the body waits for the content");
    assert_eq!(client.read_response().1, "later");
}

#[test]
fn content_that_ends_immediately_is_empty() {
    /// An empty stream that panics if it is polled after its end.
    struct Once(bool);
    impl futures_core::Stream for Once {
        type Item = Result<bytes::Bytes, Infallible>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            assert!(!std::mem::replace(&mut self.0, true), "the stream is polled after its end");
            Poll::Ready(None)
        }
    }
    let empty = || axum::body::Body::from_stream(Once(false));
    let app = Router::new()
        .route("/", get(async move || empty()))
        .route("/304", get(async move || (http::StatusCode::NOT_MODIFIED, [("content-length", "1234")], empty())))
        .route("/0", get(async move || ([("content-length", "0")], empty())));
    let running = serve(app);
    let mut client = connect(&running);
    for (path, status) in [("/", "200"), ("/304", "304"), ("/0", "200")] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        let (head, content) = client.read_response();
        assert_eq!((&head[9..12], content.as_str()), (status, ""), "{path}: {head}");
    }
}

/// A file body in a wrapper that does not change it and owns a drop guard.
struct WrappedFile(SendFile, #[expect(dead_code, reason = "the guard reports the drop of this body")] DropGuard);

impl http_body::Body for WrappedFile {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, std::io::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.size_hint()
    }
}

#[test]
fn wrapper_of_a_file_lives_until_the_file_is_sent() {
    const FILE_BYTES: usize = 64 << 20;
    let path = std::env::temp_dir().join(format!("selvedge-applications-around-{}", std::process::id()));
    std::fs::write(&path, vec![b'x'; FILE_BYTES]).expect("the file is written");
    let (dropped, drops) = channel();
    let file = path.clone();
    let app = tower::service_fn(move |_: http::Request<Body>| {
        let file = std::fs::File::open(&file).and_then(SendFile::from_file).expect("the file exists");
        ready(Ok::<_, Infallible>(http::Response::new(WrappedFile(file, DropGuard(dropped.clone())))))
    });
    let mut client = connect(&serve(app));
    client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    client.read_head();
    assert_eq!(
        drops.try_recv(),
        Err(std::sync::mpsc::TryRecvError::Empty),
        "the file is larger than the socket buffers"
    );
    assert_eq!(client.read_until_close().len(), FILE_BYTES);
    assert_eq!(drops.recv_timeout(Duration::from_secs(60)), Ok(()));
    std::fs::remove_file(path).expect("the file is removed");
}
