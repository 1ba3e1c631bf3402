//! Tests applications over HTTP/2: what they get of a request, and all that a response can be.

use crate::support::http2_client::{Http2Client, complete, interim, receive, request};
use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, HeaderValue, Version, header};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use selvedge::{Application, Body, EarlyHints, Embedded, PlainHttp2, RunningServer, SendFile, Server};
use std::convert::Infallible;
use std::future::{pending, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, watch};

fn server() -> Server {
    Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port").plain_http2(PlainHttp2::Always)
}

fn serve<K>(app: impl Application<K> + Clone + Send) -> RunningServer {
    server().serve(app).expect("threads start")
}

fn text(text: impl Into<Bytes>) -> http::Response<Full<Bytes>> {
    http::Response::new(Full::new(text.into()))
}

fn sum_trailer() -> HeaderMap {
    HeaderMap::from_iter([(header::HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))])
}

#[tokio::test]
async fn requests_are_as_on_hyper() {
    let app = async |request: http::Request<Body>| {
        assert_eq!(request.version(), Version::HTTP_2);
        text(format!("{} {} {:?}", request.method(), request.uri(), request.headers()))
    };
    let running = serve(app);
    let client = Http2Client::connect(&running).await;
    // A repeated head is converted from a copy.
    for _ in 0..3 {
        assert_eq!(client.get("/a?b=c").await.text(), "GET http://test/a?b=c {}");
    }
    let https = http::Request::builder().uri("https://test:8443/").header("accept", "a").body(());
    let response = client.send(https.expect("the request is valid")).await;
    assert_eq!(response.text(), r#"GET https://test:8443/ {"accept": "a"}"#);
    // `h2` sends no authority with a Host of the application.
    let host = http::Request::builder().uri("/").header("host", "test").body(());
    assert_eq!(client.send(host.expect("the request is valid")).await.text(), r#"GET / {"host": "test"}"#);
    let options = client.send(request("OPTIONS", "/*")).await;
    assert_eq!(options.text(), "OPTIONS http://test/* {}");
}

#[tokio::test]
async fn services_of_a_connection_serve_all_its_streams() {
    let app = Router::new().route("/", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.port().to_string()));
    let running = serve(app.into_make_service_with_connect_info::<SocketAddr>());
    let client = Http2Client::connect(&running).await;
    let other = Http2Client::connect(&running).await;
    let (first, second) = tokio::join!(client.get("/"), client.get("/"));
    assert_eq!(first.text(), second.text());
    assert_ne!(first.text(), other.get("/").await.text());
}

#[tokio::test]
async fn trailers_are_received_and_sent() {
    let app = async |request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        let content = request.into_body();
        let read = if path == "/other-thread" {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
                let read = runtime.block_on(content.collect());
                let _ = sender.send(read.map(|read| (read.trailers().cloned(), read.to_bytes())));
            });
            receiver.await.expect("the thread ends").expect("the content is read")
        } else {
            let read = content.collect().await.expect("the content is read");
            (read.trailers().cloned(), read.to_bytes())
        };
        let (trailers, bytes) = (Some(Ok::<_, Infallible>(read.0.unwrap_or_default())), read.1);
        let body = match &*path {
            // Content of known length, of unknown length, and none.
            "/stream" => {
                let frames = tokio_stream_of(bytes).with_trailers(ready(trailers));
                frames.boxed_unsync()
            }
            "/empty" => Empty::new().with_trailers(ready(trailers)).boxed_unsync(),
            _ => Full::new(bytes).with_trailers(ready(trailers)).boxed_unsync(),
        };
        http::Response::new(body)
    };
    let running = serve(app);
    let client = Http2Client::connect(&running).await;
    let long = vec![b'a'; 100_000];
    for (path, content, length) in [
        ("/", &b"ab"[..], Some("2")),
        ("/", &long, Some("100000")),
        ("/stream", b"ab", None),
        ("/empty", b"", Some("0")),
        ("/other-thread", b"ab", Some("2")),
    ] {
        for trailers in [Some(sum_trailer()), None] {
            let mut open = client.open(request("POST", path)).await;
            let is_last = trailers.is_none();
            open.content.send_data(Bytes::copy_from_slice(content), is_last).expect("the stream is open");
            if let Some(trailers) = &trailers {
                open.content.send_trailers(trailers.clone()).expect("the stream is open");
            }
            let response = complete(open.response.await.expect("the server responds")).await;
            let announced = response.head.headers.get("content-length").map(|value| value.to_str().expect("digits"));
            let length = length.filter(|&length| length != "0" || trailers.is_none());
            let got = (response.content == content, announced, response.trailers);
            assert_eq!(got, (true, length, trailers), "{path} {}", content.len());
        }
    }
}

#[tokio::test]
async fn content_of_known_length_ends_after_its_trailers() {
    let app = async |request: http::Request<Body>| {
        let mut content = request.into_body();
        let mut ends = Vec::new();
        while let Some(frame) = content.frame().await {
            let kind = if frame.expect("the content is read").is_data() { "data" } else { "trailers" };
            ends.push((kind, http_body::Body::is_end_stream(&content)));
        }
        text(format!("{ends:?}"))
    };
    let running = serve(app);
    let client = Http2Client::connect(&running).await;
    let mut head = request("POST", "/");
    head.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("2"));
    let mut open = client.open(head).await;
    open.content.send_data("ab".into(), false).expect("the stream is open");
    open.content.send_trailers(sum_trailer()).expect("the stream is open");
    let response = complete(open.response.await.expect("the server responds")).await;
    assert_eq!(response.text(), r#"[("data", false), ("trailers", true)]"#);
}

/// Content of unknown length with one piece.
fn tokio_stream_of(bytes: Bytes) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send {
    StreamBody::new(OneFrame(Some(bytes)))
}

struct OneFrame(Option<Bytes>);

impl futures_core::Stream for OneFrame {
    type Item = Result<http_body::Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

#[tokio::test]
async fn both_directions_are_open_at_once() {
    let running = serve(async |request: http::Request<Body>| http::Response::new(request.into_body()));
    let client = Http2Client::connect(&running).await;
    let mut open = client.open(request("POST", "/")).await;
    let response = (&mut open.response).await.expect("the head leaves before the content has arrived");
    let mut body = response.into_body();
    for piece in ["one", "two", "three"] {
        open.content.send_data(piece.into(), false).expect("the stream is open");
        let received = receive(&mut body).await.expect("the response goes on").expect("the stream is open");
        assert_eq!(received, piece);
    }
    open.content.send_data(Bytes::new(), true).expect("the stream is open");
    assert!(receive(&mut body).await.is_none());
}

#[tokio::test]
async fn long_content_passes_small_windows_in_both_directions() {
    let running = server()
        .body_bytes_max(u64::MAX)
        .serve(async |request: http::Request<Body>| http::Response::new(request.into_body()));
    let running = running.expect("threads start");
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(10_000).initial_connection_window_size(70_000).max_send_buffer_size(100_000);
    let client = Http2Client::connect_with(&running, &builder).await;
    let mut open = client.open(request("POST", "/")).await;
    let content: Bytes = (0..4_000_000_u32).map(|at| (at / 253) as u8).collect();
    let sent = content.clone();
    let send = async {
        let mut rest = sent;
        while !rest.is_empty() {
            open.content.reserve_capacity(rest.len().min(50_000));
            let capacity = std::future::poll_fn(|cx| open.content.poll_capacity(cx)).await;
            let count = capacity.expect("the stream is open").expect("the window opens");
            let piece = rest.split_to(count.min(rest.len()));
            open.content.send_data(piece, rest.is_empty()).expect("the stream is open");
        }
    };
    let receive = async { complete(open.response.await.expect("the server responds")).await };
    let ((), response) = tokio::join!(send, receive);
    assert!(response.content == content);
}

/// Sends a message when it is dropped.
struct NotifyOnDrop(mpsc::UnboundedSender<&'static str>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        // It fails if the test has ended.
        let _ = self.0.send("dropped");
    }
}

#[tokio::test]
async fn futures_and_content_are_dropped_when_the_client_resets_the_stream() {
    let (sender, mut events) = mpsc::unbounded_channel();
    let app = async move |request: http::Request<Body>| {
        let guard = NotifyOnDrop(sender.clone());
        sender.send("called").expect("the test is running");
        if request.uri().path() == "/call" {
            pending::<()>().await;
        }
        let frames = std::future::poll_fn(move |_| {
            let _guard = &guard;
            Poll::<Option<Result<http_body::Frame<Bytes>, Infallible>>>::Pending
        });
        http::Response::new(StreamBody::new(PollFrames(Box::pin(frames))))
    };
    let running = serve(app);
    let client = Http2Client::connect(&running).await;
    for path in ["/call", "/content"] {
        let mut open = client.open(request("POST", path)).await;
        assert_eq!(events.recv().await, Some("called"));
        if path == "/content" {
            (&mut open.response).await.expect("the server responds");
        }
        open.content.send_reset(Reason::CANCEL);
        assert_eq!(events.recv().await, Some("dropped"), "{path}");
    }
}

type NextFrame = Pin<Box<dyn Future<Output = Option<Result<http_body::Frame<Bytes>, Infallible>>> + Send>>;

struct PollFrames(NextFrame);

impl futures_core::Stream for PollFrames {
    type Item = Result<http_body::Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll(cx)
    }
}

#[tokio::test]
async fn interim_responses_precede_the_response() {
    let (release, released) = watch::channel(false);
    let app = async move |request: http::Request<Body>| {
        let hints = request.extensions().get::<EarlyHints>().cloned();
        let link = HeaderMap::from_iter([(header::LINK, HeaderValue::from_static("</style.css>; rel=preload"))]);
        let sent = hints.map(|hints| hints.send(&link));
        released.clone().wait_for(|released| *released).await.expect("the test is running");
        let content = request.into_body().collect().await.expect("the content is read").to_bytes();
        text(format!("{sent:?} {}", content.len()))
    };
    let running = server().early_hints().serve(app).expect("threads start");
    let client = Http2Client::connect(&running).await;
    let mut head = request("POST", "/");
    head.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
    let mut open = client.open(head).await;
    let hints = interim(&mut open.response).await;
    assert_eq!((hints.status().as_u16(), hints.headers()["link"].as_bytes()), (103, &b"</style.css>; rel=preload"[..]));
    release.send_replace(true);
    // Reading the content requests it.
    assert_eq!(interim(&mut open.response).await.status(), 100);
    assert_eq!(open.finish("abc").await.text(), "Some(Ok(())) 3");
}

#[tokio::test]
async fn content_is_sent_or_omitted_as_the_method_and_the_status_demand() {
    let path = std::env::temp_dir().join(format!("selvedge-http2-{}", std::process::id()));
    let file: Vec<u8> = (0..500_000_u32).map(|at| (at / 100) as u8).collect();
    std::fs::write(&path, &file).expect("the file is written");
    let opened = path.clone();
    let open = async move || SendFile::open(&opened).await.expect("the file opens");
    let app = Router::new()
        .route("/file", get(async move || http::Response::new(axum::body::Body::new(open().await))))
        .route("/text", get(async || "text"))
        .route("/none", get(async || http::StatusCode::NO_CONTENT));
    let running = serve(app.into_make_service());
    let client = Http2Client::connect(&running).await;
    let response = client.get("/file").await;
    assert!(response.content == file && response.head.headers["content-length"] == "500000");
    std::fs::remove_file(path).expect("the file is removed");
    let head = client.send(request("HEAD", "/text")).await;
    assert_eq!((head.text(), &head.head.headers["content-length"]), ("", &HeaderValue::from_static("4")));
    assert_eq!(client.get("/text").await.text(), "text");
    let none = client.get("/none").await;
    assert_eq!((none.head.status.as_u16(), none.head.headers.get("content-length")), (204, None));
}

#[tokio::test]
async fn embedded_application_gets_the_host_and_the_content() {
    struct Engine;
    impl selvedge::Service for Engine {
        async fn call(&self, request: &mut selvedge::Request) -> selvedge::Response {
            let content = request.body().read_all().await.expect("the content is read");
            let host = selvedge::service::authority(request).map(|host| String::from_utf8_lossy(host).into_owned());
            let line = format!("{} {} {host:?} {}", request.method_text(), request.target(), content.len());
            selvedge::Response::new(selvedge::StatusCode::OK).body(line).close_connection()
        }
    }
    let app = Router::new().fallback_service(Embedded::new(|| Engine));
    let running = serve(app.into_make_service());
    let client = Http2Client::connect(&running).await;
    let open = client.open(request("POST", "/a?b")).await;
    assert_eq!(open.finish("abc").await.text(), r#"POST /a?b Some("test") 3"#);
    assert_eq!(client.get("/").await.text(), r#"GET / Some("test") 0"#);
    // The application gets an extended CONNECT, but can only refuse it.
    let mut connect = request("CONNECT", "/chat");
    connect.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    let refused = client.send(connect).await;
    assert_eq!((refused.head.status.as_u16(), refused.head.headers.get("connection")), (501, None));
}

#[cfg(feature = "compression")]
#[tokio::test]
async fn compressed_content_has_no_length() {
    let app = Router::new().route("/", get(async || "text ".repeat(10_000))).layer(selvedge::Compression::new());
    let running = serve(app.into_make_service());
    let client = Http2Client::connect(&running).await;
    let mut head = request("GET", "/");
    head.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let response = client.send(head).await;
    assert_eq!(response.head.headers["content-encoding"], "gzip");
    assert!(response.content.starts_with(&[0x1f, 0x8b]) && response.content.len() < 1_000);
    assert!(!response.head.headers.contains_key("content-length"));
    assert_eq!(client.get("/").await.content.len(), 50_000);
}
