//! Applications of the ecosystem's types over real sockets: axum's, tower's, and functions.

mod client;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{any, get, post};
use client::Client;
use http_body_util::{BodyExt, Full};
use selvedge::Body;
use selvedge::{Application, EarlyHints, IntoListener, Running, SendFile, Server, Upgrade, Upgraded};
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

fn serve<K>(app: impl Application<K> + Clone + Send) -> Running {
    serve_with(Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port"), app)
}

fn serve_with<K>(server: Server, app: impl Application<K> + Clone + Send) -> Running {
    server.serve(app).expect("threads start")
}

fn connect(running: &Running) -> Client {
    Client::connect(running.addresses()[0])
}

fn text(text: impl Into<bytes::Bytes>) -> http::Response<Full<bytes::Bytes>> {
    http::Response::new(Full::new(text.into()))
}

#[test]
fn a_router_is_served_with_the_peer_that_it_asks_for() {
    let app = Router::new()
        .route("/", get(async || "hello"))
        .route("/peer", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()));
    let running = serve(app.clone());
    let mut client = connect(&running);
    assert_eq!(client.get("/"), "hello");
    client.send("HEAD / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(client.rest()).expect("a head is text");
    assert!(head.contains("content-length: 5\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let running = serve(app.into_make_service_with_connect_info::<SocketAddr>());
    let mut client = connect(&running);
    let own = client.address().to_string();
    assert_eq!((client.get("/peer"), client.get("/peer")), (own.clone(), own));
}

#[test]
fn a_function_is_served() {
    let running = serve(async |request: http::Request<Body>| text(request.uri().path().to_owned()));
    assert_eq!(connect(&running).get("/a/b?c"), "/a/b");
}

#[test]
fn functions_of_the_librarys_own_are_served_as_before() {
    let running = serve(async |request: &mut selvedge::Request| {
        selvedge::Response::new(selvedge::Status::OK).body(request.path().to_owned())
    });
    assert_eq!(connect(&running).get("/a"), "/a");
}

/// A tower service that takes one request at a time, and says who has come and who waits.
struct OneAtATime {
    places: Arc<Semaphore>,
    place: Option<OwnedSemaphorePermit>,
    waiting: Option<Waiting>,
    says: Sender<&'static str>,
}

type Waiting = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

impl Clone for OneAtATime {
    fn clone(&self) -> Self {
        Self { places: self.places.clone(), place: None, waiting: None, says: self.says.clone() }
    }
}

impl tower_service::Service<http::Request<Body>> for OneAtATime {
    type Response = http::Response<Full<bytes::Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.place.is_some() {
            return Poll::Ready(Ok(()));
        }
        let places = self.places.clone();
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(async move { places.acquire_owned().await.ok() }));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(place) => {
                (self.place, self.waiting) = (place, None);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                self.says.send("waits").expect("the test lives");
                Poll::Pending
            }
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let place = self.place.take().expect("it is ready before it is called");
        self.says.send("came").expect("the test lives");
        Box::pin(async move {
            let content = request.into_body().collect().await.map(|content| content.to_bytes());
            drop(place);
            Ok(text(content.unwrap_or_default()))
        })
    }
}

#[test]
fn a_service_that_is_not_ready_makes_its_request_wait_and_no_other() {
    let (says, said) = channel();
    let running = serve(OneAtATime { places: Arc::new(Semaphore::new(1)), place: None, waiting: None, says });
    let request = |content: &str| format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\n{content}");
    let [mut first, mut second, mut third] = [(); 3].map(|()| connect(&running));
    first.send(request(""));
    assert_eq!(said.recv(), Ok("came"));
    second.send(request("two"));
    assert_eq!(said.recv(), Ok("waits"));
    third.send(request("tri"));
    assert_eq!(said.recv(), Ok("waits"));
    first.send("one");
    assert_eq!([&mut first, &mut second, &mut third].map(|client| client.reply().1), ["one", "two", "tri"]);
}

#[test]
fn content_is_read_as_it_comes_and_on_other_threads_too() {
    let away = async |request: http::Request<Body>| {
        let read = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(request.into_body().collect()).map(|content| content.to_bytes())
        });
        let read = selvedge::offload(move || read.join()).await;
        text(read.and_then(Result::ok).and_then(Result::ok).expect("it is read"))
    };
    let running = serve(away);
    let mut client = connect(&running);
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
        client.send("3\r\ncde\r\n0\r\n\r\n");
        assert_eq!(client.reply().1, "abcde");
    }
}

#[test]
fn a_client_is_told_to_go_on_when_its_content_is_wanted() {
    let app = Router::new().route("/read", post(async |content: String| content)).route("/not", post(async || "no"));
    let running = serve(app);
    let mut client = connect(&running);
    let request =
        |path| format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    client.send(request("/read"));
    assert_eq!(client.reply().0, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("ab");
    assert_eq!(client.reply().1, "ab");
    client.send(request("/not"));
    let (head, content) = client.reply();
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
    assert!(client.reply().0.starts_with("HTTP/1.1 413 "));
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.reply().1, "abc");
}

/// Says so when it is dropped.
struct Dropped(Sender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_handler_is_dropped_when_its_client_goes_away() {
    let (entered, enters) = channel();
    let (dropped, drops) = channel();
    let wait = move |body: axum::body::Body| {
        let guard = Dropped(dropped.clone());
        let _ = entered.send(());
        async move {
            let _guard = guard;
            drop(body.collect().await);
            pending::<()>().await;
        }
    };
    let stream = async || {
        let pieces = tokio_stream(pending::<Infallible>());
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
        enters.recv().expect("the application is asked");
        drop(client);
        assert_eq!(drops.recv_timeout(Duration::from_secs(60)), Ok(()), "{request}");
    }
}

/// A stream that gives a piece, and then waits for what never comes.
fn tokio_stream(
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
fn a_stream_is_dropped_when_its_client_goes_away() {
    let (dropped, drops) = channel();
    let app = move || {
        let guard = Dropped(dropped.clone());
        let pieces = tokio_stream(async move {
            let _guard = guard;
            pending().await
        });
        ready(axum::body::Body::from_stream(pieces))
    };
    let running = serve(Router::new().route("/", get(app)));
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(client.reply().0.contains("transfer-encoding: chunked"));
    drop(client);
    assert_eq!(drops.recv_timeout(Duration::from_secs(60)), Ok(()));
}

#[test]
fn who_says_that_nothing_more_comes_is_answered_where_that_is_wanted() {
    let (entered, enters) = channel();
    let (go, gone) = tokio::sync::watch::channel(false);
    let app = Router::new().route(
        "/",
        get(move || {
            let (mut gone, _) = (gone.clone(), entered.send(()));
            async move { gone.wait_for(|gone| *gone).await.map(|_| "answer").unwrap_or_default() }
        }),
    );
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let running = serve_with(server.half_closed(selvedge::HalfClosed::Answered), app);
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    enters.recv().expect("the application is asked");
    client.finish();
    go.send_replace(true);
    assert_eq!(client.reply().1, "answer");
}

#[test]
fn a_client_that_does_not_read_holds_up_whoever_makes_its_content() {
    const PIECE_BYTES: usize = 1 << 20;
    // More than the buffers of a connection hold, and less than what is made of no bound.
    const PIECES_MAX: usize = 100;
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
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
    slow.reply();
    // The worker has many turns meanwhile.
    let mut other = connect(&running);
    (0..1_000).for_each(|_| assert_eq!(other.get("/"), "hello"));
    assert!((1..PIECES_MAX).contains(&made.load(Ordering::SeqCst)), "{made:?} pieces");
}

/// A stream whose pieces are always at hand.
struct Always<F>(F);

impl<T, F: FnMut() -> Option<T> + Unpin> futures_core::Stream for Always<F> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<T>> {
        Poll::Ready((self.0)())
    }
}

#[test]
fn a_handler_that_does_not_read_holds_up_its_client() {
    const BYTES_MAX: usize = 100 << 20;
    let (go, gone) = tokio::sync::watch::channel(false);
    let app = async move |request: http::Request<Body>| {
        gone.clone().wait_for(|gone| *gone).await.expect("the test lives");
        let mut body = request.into_body();
        let first = body.frame().await.expect("a piece").expect("it is read");
        text(format!("{}", first.into_data().is_ok_and(|data| data.len() <= 64 * 1024)))
    };
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").body_bytes_max(u64::MAX);
    let running = serve_with(server, app);
    let mut stream = std::net::TcpStream::connect(running.addresses()[0]).expect("it listens");
    stream.write_all(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000000\r\n\r\n").expect("it is sent");
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a time is set");
    let piece = vec![b'x'; 1 << 20];
    let mut taken = 0;
    while let Ok(count) = stream.write(&piece) {
        taken += count;
        assert!(taken < BYTES_MAX, "the server takes what nobody reads");
    }
    go.send_replace(true);
    let mut answer = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time is set");
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.ends_with("\r\n\r\ntrue"), "{answer}");
}

#[test]
fn hints_leave_before_the_answer() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let app = async move |request: http::Request<Body>| {
        let hints = request.extensions().get::<EarlyHints>().cloned();
        let mut fields = http::HeaderMap::new();
        fields.insert("link", http::HeaderValue::from_static("</style.css>; rel=preload"));
        let sent = hints.as_ref().map(|hints| hints.send(&fields));
        gone.clone().wait_for(|gone| *gone).await.expect("the test lives");
        text(format!("{sent:?}"))
    };
    let running = serve_with(Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").early_hints(), app);
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n";
    assert_eq!(client.reply(), (hints.to_owned(), String::new()));
    go.send_replace(true);
    assert_eq!(client.reply().1, "Some(Ok(()))");
    client.send("GET / HTTP/1.0\r\nHost: test\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.reply().1, "None");
}

#[test]
fn trailers_go_both_ways() {
    let app = async |request: http::Request<Body>| {
        let takes = request.headers().contains_key("te");
        let read = request.into_body().collect().await.expect("it is read");
        let trailers = read.trailers().cloned().unwrap_or_default();
        let body = Full::new(read.to_bytes()).with_trailers(ready(Some(Ok::<_, Infallible>(trailers))));
        let mut response = http::Response::new(body);
        if takes {
            response.headers_mut().insert("trailer", http::HeaderValue::from_static("x-sum"));
        }
        response
    };
    let running = serve(app);
    let content = "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 7\r\n\r\n";
    let mut client = connect(&running);
    client.send(format!("POST / HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nConnection: close\r\n{content}"));
    let answer = String::from_utf8(client.rest()).expect("it is text");
    assert!(answer.ends_with("\r\n\r\n2\r\nab\r\n0\r\nx-sum: 7\r\n\r\n"), "{answer}");
    let mut client = connect(&running);
    client.send(format!("POST / HTTP/1.1\r\nHost: test\r\n{content}"));
    assert_eq!(client.reply().1, "ab");
}

#[test]
fn a_connection_goes_on_with_a_protocol_of_its_own() {
    let app = async |mut request: http::Request<Body>| {
        let upgrade = request.extensions_mut().remove::<Upgrade>().expect("the client offers one");
        upgrade.to("upper", async |mut connection: Upgraded| {
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
    let (head, _) = client.reply();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("connection: upgrade\r\nupgrade: upper\r\n"), "{head}");
    client.send(" bird");
    client.finish();
    assert_eq!(client.rest(), b"EARLY BIRD");
    // A connection that stays is cut when a stop has waited long enough.
    let mut client = connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: upper\r\n\r\n");
    client.reply();
    running.handle().stop_now();
    assert_eq!(client.rest(), b"");
    running.join();
}

#[test]
fn a_file_is_sent_whole_in_part_and_through_layers() {
    let path = std::env::temp_dir().join(format!("selvedge-library-{}", std::process::id()));
    let content: String = (0..200_000).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
    std::fs::write(&path, &content).expect("a file");
    let (file, read) = (path.clone(), path.clone());
    let app = Router::new()
        .route(
            "/file",
            get(async move |headers: http::HeaderMap| SendFile::open(&file).await.expect("it opens").answer(&headers)),
        )
        .route(
            "/read",
            get(async move || {
                let body = SendFile::open(&read).await.expect("it opens").map_frame(|frame| frame);
                axum::body::Body::new(body)
            }),
        );
    let running = serve(app);
    let mut client = connect(&running);
    assert!(client.get("/file") == content, "the file is sent");
    client.send("GET /file HTTP/1.1\r\nHost: test\r\nRange: bytes=70000-70009\r\n\r\n");
    let (head, part) = client.reply();
    assert!(head.contains("content-range: bytes 70000-70009/200000\r\n"), "{head}");
    assert_eq!(part, content[70_000..70_010]);
    let mut asking = connect(&running);
    asking.send("HEAD /file HTTP/1.1\r\nHost: test\r\nRange: bytes=0-9\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(asking.rest()).expect("it is text");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-length: 200000\r\n"), "{head}");
    client.send("GET /read HTTP/1.0\r\nHost: test\r\n\r\n");
    let answer = String::from_utf8(client.rest()).expect("it is text");
    assert!(answer.ends_with(&content), "what a layer has changed is read");
    std::fs::remove_file(path).expect("it is removed");
}

#[test]
fn a_service_that_answers_at_once_knows_a_head() {
    let path = std::env::temp_dir().join(format!("selvedge-library-at-once-{}", std::process::id()));
    std::fs::write(&path, "content").expect("a file");
    let file = path.clone();
    let app = tower::service_fn(move |request: http::Request<Body>| {
        let file = std::fs::File::open(&file).and_then(SendFile::of).expect("it is there");
        ready(Ok::<_, Infallible>(file.answer(request.headers())))
    });
    let mut client = connect(&serve(app));
    client.send("HEAD / HTTP/1.1\r\nHost: test\r\nRange: bytes=0-1\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(client.rest()).expect("it is text");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-length: 7\r\n"), "{head}");
    std::fs::remove_file(path).expect("it is removed");
}

#[test]
fn several_listeners_and_unix_sockets() {
    let path = std::env::temp_dir().join(format!("selvedge-library-{}.sock", std::process::id()));
    let unix = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let [one, other] = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    let app = async |request: http::Request<Body>| text(request.uri().path().to_owned());
    let running = selvedge::serve(one, app).also(other).also(unix.into_listener().expect("it listens")).start();
    let running = running.expect("threads start");
    for &address in running.addresses() {
        assert_eq!(Client::connect(address).get("/"), "/");
    }
    assert_eq!(running.addresses().len(), 2);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    stream.write_all(b"GET /unix HTTP/1.0\r\n\r\n").expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    assert!(answer.ends_with("/unix"), "{answer}");
    std::fs::remove_file(path).expect("it is removed");
}

#[test]
fn an_application_that_panics_or_breaks_its_word_is_answered_for() {
    let app = Router::new()
        .route("/panic", get(async || -> &'static str { panic!("the application broke") }))
        .route("/switch", get(async || http::StatusCode::SWITCHING_PROTOCOLS))
        .route("/odd", get(async || http::StatusCode::from_u16(999).expect("a number")));
    let running = serve(app);
    for path in ["/panic", "/switch", "/odd"] {
        let mut client = connect(&running);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        assert!(client.reply().0.starts_with("HTTP/1.1 500 "), "{path}");
    }
}

/// Counts how often it was asked whether it is ready.
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
fn a_request_that_is_refused_reserves_no_place() {
    let asked = Arc::new(AtomicUsize::new(0));
    let mut client = connect(&serve(Reserving(asked.clone())));
    client.send("GET /< HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(client.reply().0.starts_with("HTTP/1.1 400 "));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(client.get("/"), "called");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

// What was made of a field section is used again while the same comes, whoever sends it.
#[test]
fn each_request_has_its_own_fields_whatever_came_before() {
    let say = async |request: http::Request<Body>| {
        let fields: Vec<_> = request.headers().iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        text(format!("{} {}", request.uri(), fields.join(", ")))
    };
    let running = serve(say);
    let [mut one, mut other] = [(); 2].map(|()| connect(&running));
    let plain = ("Host: test\r\n", "host: \"test\"");
    let twice = ("A: 1\r\nHost: test\r\nB:\r\na: 2\r\n", "a: \"1\", a: \"2\", host: \"test\", b: \"\"");
    let rows = [plain, plain, plain, twice, plain, twice, twice, twice, plain, plain, twice];
    for (number, (sent, seen)) in rows.iter().enumerate() {
        let target = format!("/{}", "x".repeat(number * 7));
        let client = if number % 3 == 1 { &mut other } else { &mut one };
        client.send(format!("GET {target} HTTP/1.1\r\n{sent}\r\n"));
        assert_eq!(client.reply().1, format!("{target} {seen}"), "row {number}");
    }
}

/// Answers at once, with content that comes later, and holds something until it is dropped.
#[derive(Clone)]
struct Holding {
    held: Sender<()>,
    content: Arc<Mutex<Option<oneshot::Receiver<bytes::Bytes>>>>,
}

struct Answering(#[expect(dead_code, reason = "it is held")] Dropped, Option<Later>);

/// Five bytes.
struct Later(oneshot::Receiver<bytes::Bytes>);

impl tower_service::Service<http::Request<Body>> for Holding {
    type Response = http::Response<Later>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Answering {
        let content = self.content.lock().expect("nobody panicked").take();
        Answering(Dropped(self.held.clone()), content.map(Later))
    }
}

impl Future for Answering {
    type Output = Result<http::Response<Later>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(http::Response::new(self.1.take().expect("it is asked once"))))
    }
}

impl http_body::Body for Later {
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

// Such as a place that others wait for: the content may wait for one of them.
#[test]
fn what_a_call_holds_it_does_not_hold_for_its_content() {
    let ((held, dropped), (says, content)) = (channel(), oneshot::channel());
    let mut client = connect(&serve(Holding { held, content: Arc::new(Mutex::new(Some(content))) }));
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    dropped.recv().expect("the call is over");
    says.send(bytes::Bytes::from_static(b"later")).expect("the content is waited for");
    assert_eq!(client.reply().1, "later");
}

#[test]
fn content_that_ends_at_once_is_none() {
    /// Ends, and is never to be asked again.
    struct Once(bool);
    impl futures_core::Stream for Once {
        type Item = Result<bytes::Bytes, Infallible>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            assert!(!std::mem::replace(&mut self.0, true), "it has ended");
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
        let (head, content) = client.reply();
        assert_eq!((&head[9..12], content.as_str()), (status, ""), "{path}: {head}");
    }
}

/// A file with something around it that changes nothing of it.
struct Around(SendFile, #[expect(dead_code, reason = "it is dropped with this")] Dropped);

impl http_body::Body for Around {
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
fn what_is_around_a_file_lives_until_the_file_was_sent() {
    const FILE_BYTES: usize = 64 << 20;
    let path = std::env::temp_dir().join(format!("selvedge-library-around-{}", std::process::id()));
    std::fs::write(&path, vec![b'x'; FILE_BYTES]).expect("a file");
    let (dropped, drops) = channel();
    let file = path.clone();
    let app = tower::service_fn(move |_: http::Request<Body>| {
        let file = std::fs::File::open(&file).and_then(SendFile::of).expect("it is there");
        ready(Ok::<_, Infallible>(http::Response::new(Around(file, Dropped(dropped.clone())))))
    });
    let mut client = connect(&serve(app));
    client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    client.head();
    assert_eq!(drops.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty), "more is to come than sockets hold");
    assert_eq!(client.rest().len(), FILE_BYTES);
    assert_eq!(drops.recv_timeout(Duration::from_secs(60)), Ok(()));
    std::fs::remove_file(path).expect("it is removed");
}
