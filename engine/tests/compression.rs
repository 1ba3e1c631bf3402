//! The compression layer: what becomes of which answers, and over real sockets.

mod client;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use client::Client;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use selvedge::proto::encoding::Coding;
use selvedge::{Authenticated, CompressedBody, Compression, Running, SendFile, Server};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tower_layer::Layer;
use tower_service::Service;

/// An application with one answer, which tells what it was asked.
#[derive(Clone)]
struct Always {
    answer: Response<Full<Bytes>>,
    asked: std::sync::mpsc::Sender<HeaderMap>,
}

impl Service<Request<()>> for Always {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        self.asked.send(request.headers().clone()).expect("the test lives");
        ready(Ok(self.answer.clone()))
    }
}

/// `name: value | name: value`
fn fields(lines: &str) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines.split('|').map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').expect("a name and a value");
        let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a name");
        map.append(name, HeaderValue::from_str(value.trim()).expect("a value"));
    }
    map
}

/// The same, in the order of names.
fn lines(map: &HeaderMap) -> String {
    let mut lines: Vec<_> =
        map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect();
    lines.sort();
    lines.join(" | ")
}

struct Case<'a> {
    method: Method,
    asked: &'a str,
    status: StatusCode,
    answered: &'a str,
    length: usize,
}

/// The fields of the answer and its content, and the fields that the application saw.
async fn run(layer: &Compression, case: &Case<'_>) -> (HeaderMap, Bytes, HeaderMap) {
    let mut answer = Response::new(Full::from(vec![b'a'; case.length]));
    *answer.status_mut() = case.status;
    *answer.headers_mut() = fields(case.answered);
    let (asked, saw) = std::sync::mpsc::channel();
    let mut service = layer.layer(Always { answer, asked });
    let mut request = Request::new(());
    *request.method_mut() = case.method.clone();
    *request.headers_mut() = fields(case.asked);
    let answer: Response<CompressedBody<_>> = service.call(request).await.expect("it cannot fail");
    assert_eq!(answer.status(), case.status);
    let (parts, body) = answer.into_parts();
    (parts.headers, body.collect().await.expect("content").to_bytes(), saw.recv().expect("it was asked"))
}

fn decode(coding: Option<&str>, content: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    match coding {
        None => return content.to_vec(),
        Some("gzip") => flate2::read::GzDecoder::new(content).read_to_end(&mut decoded).map(drop),
        Some("br") => brotli::Decompressor::new(content, 4096).read_to_end(&mut decoded).map(drop),
        Some("zstd") => zstd::stream::copy_decode(content, &mut decoded),
        Some(other) => panic!("nobody asked for {other}"),
    }
    .expect("complete content");
    decoded
}

/// Each row: what is asked, what the application answers to it, how long that is, and what comes.
async fn check_all(layer: &Compression, rows: &[(&str, &str, usize, &str)]) {
    for (asked, answered, length, expected) in rows {
        let case = |method| Case { method, asked, status: StatusCode::OK, answered, length: *length };
        let (came, content, _) = run(layer, &case(Method::GET)).await;
        assert_eq!(lines(&came), lines(&fields(expected)), "GET with {asked:?}, answered {answered:?} and {length}");
        let coding = came.get("content-encoding").map(|value| value.to_str().expect("text"));
        let coding = coding.filter(|_| !answered.contains("content-encoding"));
        assert_eq!(decode(coding, &content), vec![b'a'; *length]);
        // HEAD has the fields of GET, and an application may leave the content out or not.
        let (came, content, _) = run(layer, &case(Method::HEAD)).await;
        assert_eq!(lines(&came), lines(&fields(expected)), "HEAD with {asked:?}, answered {answered:?} and {length}");
        assert!(coding.is_none() || content.is_empty());
        if answered.contains("content-length") {
            let (came, ..) = run(layer, &Case { length: 0, ..case(Method::HEAD) }).await;
            assert_eq!(lines(&came), lines(&fields(expected)), "HEAD without content of {asked:?}, {answered:?}");
        }
    }
}

const TEXT: &str = "content-type: text/plain";
const CODED: &str = "content-type: text/plain | vary: accept-encoding | content-encoding: ";
const VARIES: &str = "content-type: text/plain | vary: accept-encoding";

#[tokio::test]
async fn codings_are_negotiated() {
    let coded = |coding: &str| format!("{CODED}{coding}");
    let (zstd, br, gzip) = (coded("zstd"), coded("br"), coded("gzip"));
    let rows = [
        ("", VARIES),
        ("accept-encoding: ", VARIES),
        ("accept-encoding: gzip, deflate, br, zstd", &*zstd),
        ("accept-encoding: gzip, deflate, br", &*br),
        ("accept-encoding: gzip", &*gzip),
        ("accept-encoding: x-gzip", &*gzip),
        ("accept-encoding: br;q=0.5 | accept-encoding: gzip;q=0.8", &*gzip),
        ("accept-encoding: zstd;q=0, br;q=0, *", &*gzip),
        ("accept-encoding: *", &*zstd),
        ("accept-encoding: *;q=0", VARIES),
        ("accept-encoding: identity;q=0", VARIES),
        ("accept-encoding: identity;q=0, gzip;q=0.1", &*gzip),
        ("accept-encoding: identity;q=0, *;q=0.1", &*zstd),
        ("accept-encoding: identity, gzip;q=0.5", VARIES),
        ("accept-encoding: deflate, compress", VARIES),
        ("accept-encoding: gzip;q=2", VARIES),
    ];
    check_all(&Compression::new(), &rows.map(|(asked, expected)| (asked, TEXT, 5000, expected))).await;
    let layer = Compression::new().codings([Coding::Gzip, Coding::Brotli]);
    for (accepted, expected) in [("zstd, br, gzip", &*gzip), ("br", &*br), ("zstd", VARIES), ("*", &*gzip)] {
        let asked = format!("accept-encoding: {accepted}");
        check_all(&layer, &[(&asked, TEXT, 5000, expected)]).await;
    }
}

#[tokio::test]
async fn answers_are_left_alone() {
    const ALL: &str = "accept-encoding: gzip";
    let untouched = [
        "content-type: text/plain | content-encoding: br",
        "content-type: text/plain | cache-control: max-age=5, No-Transform",
        "content-type: text/plain | repr-digest: sha-256=:AAAA:",
        "content-type: image/png",
        "content-type: IMAGE/PNG",
        "content-type: audio/ogg",
        "content-type: video/mp4; codecs=x",
        "content-type: application/zip",
        "content-type: application/epub+zip",
        "content-type: font/woff2",
        "content-type: font/woff",
        "content-type: application/grpc+proto",
        "content-type: application/octet-stream",
        "content-type: image/png | etag: \"abc\" | accept-ranges: bytes",
        "content-length: 5000",
        "",
    ];
    check_all(&Compression::new(), &untouched.map(|answered| (ALL, answered, 5000, answered))).await;
    for kind in ["text/html; charset=utf-8", "image/svg+xml", "application/json", "application/ld+json", "font/ttf"] {
        let answered = format!("content-type: {kind}");
        let expected = format!("{answered} | content-encoding: gzip | vary: accept-encoding");
        check_all(&Compression::new(), &[(ALL, &answered, 5000, &expected)]).await;
    }
    let gzip = format!("{CODED}gzip");
    let least = [(ALL, TEXT, 1023, TEXT), (ALL, TEXT, 1024, &*gzip), (ALL, TEXT, 0, TEXT)];
    // The head of content without a length is that of content that may be long.
    check_all(&Compression::new(), &least[..2]).await;
    check_all(&Compression::new().bytes_min(1), &[(ALL, TEXT, 1, &*gzip)]).await;
    let nothing = Case { method: Method::GET, asked: ALL, status: StatusCode::OK, answered: TEXT, length: 0 };
    assert_eq!(lines(&run(&Compression::new().bytes_min(0), &nothing).await.0), TEXT);
    for (status, answered, expected) in [
        (100, TEXT, TEXT),
        (204, TEXT, TEXT),
        (205, TEXT, TEXT),
        (206, TEXT, VARIES),
        (206, "content-type: image/png | content-range: bytes 0-4999/9999", ""),
        (416, "content-type: text/plain | content-range: bytes */9999", ""),
        (304, "etag: \"abc\"", "etag: \"abc\" | vary: accept-encoding"),
        (304, "content-type: image/png", ""),
        (404, TEXT, &*gzip),
    ] {
        let expected = match (expected, status) {
            ("", 416) => format!("{answered} | vary: accept-encoding"),
            ("", _) => answered.to_owned(),
            _ => expected.to_owned(),
        };
        let status = StatusCode::from_u16(status).unwrap();
        let case = Case { method: Method::GET, asked: ALL, status, answered, length: 5000 };
        assert_eq!(lines(&run(&Compression::new(), &case).await.0), lines(&fields(&expected)), "{status} {answered}");
    }
}

#[tokio::test]
async fn answers_to_somebody_are_left_alone() {
    let gzip = format!("{CODED}gzip");
    let (secret, coded) = (format!("{TEXT} | set-cookie: a=b"), format!("{gzip} | set-cookie: a=b"));
    let varies = format!("{VARIES} | set-cookie: a=b");
    let rows = [
        ("accept-encoding: gzip | cookie: a=b", TEXT, VARIES, &*gzip),
        ("accept-encoding: gzip | authorization: Basic YTpi", TEXT, VARIES, &*gzip),
        ("accept-encoding: gzip", &*secret, &*varies, &*coded),
    ];
    for (asked, answered, alone, compressed) in rows {
        check_all(&Compression::new(), &[(asked, answered, 5000, alone)]).await;
        let layer = Compression::new().authenticated(Authenticated::Compressed);
        check_all(&layer, &[(asked, answered, 5000, compressed)]).await;
    }
}

#[tokio::test]
async fn fields_follow_the_coding() {
    const ALL: &str = "accept-encoding: gzip";
    let rows = [
        ("content-length: 5000 | accept-ranges: bytes", ""),
        ("etag: \"abc\"", "etag: \"abc-gzip\""),
        ("etag: W/\"abc\"", "etag: W/\"abc\""),
        ("vary: origin", "vary: origin, accept-encoding"),
        ("vary: origin, cookie | vary: accept", "vary: origin, cookie, accept, accept-encoding"),
        ("vary: Accept-Encoding", "vary: Accept-Encoding"),
        ("vary: *", "vary: *"),
        ("cache-control: max-age=5", "cache-control: max-age=5"),
    ];
    for (answered, expected) in rows {
        let answered = format!("{TEXT} | {answered}");
        let vary = if expected.contains("vary") { "" } else { "vary: accept-encoding" };
        let expected = format!("{TEXT} | content-encoding: gzip | {expected} | {vary}");
        check_all(&Compression::new(), &[(ALL, &answered, 5000, &expected)]).await;
    }
    let whole = format!("{TEXT} | etag: \"abc\" | content-length: 5000 | accept-ranges: bytes");
    check_all(&Compression::new(), &[("", &whole, 5000, &format!("{whole} | vary: accept-encoding"))]).await;
}

/// Each row: how is asked; what the application sees of it; what it answers with 304; what comes.
#[tokio::test]
async fn conditions_are_of_what_the_application_knows() {
    let rows = [
        ("GET", r#"if-none-match: "a-gzip""#, r#"if-none-match: "a-gzip", "a""#, r#""a""#, r#""a-gzip""#),
        ("HEAD", r#"if-none-match: "a-gzip""#, r#"if-none-match: "a-gzip", "a""#, r#""a""#, r#""a-gzip""#),
        ("GET", r#"if-none-match: "a""#, r#"if-none-match: "a""#, r#""a""#, r#""a""#),
        ("GET", r#"if-none-match: W/"a-gzip""#, r#"if-none-match: W/"a-gzip", W/"a""#, r#""a""#, r#""a-gzip""#),
        ("GET", r#"if-none-match: W/"a-gzip""#, r#"if-none-match: W/"a-gzip", W/"a""#, r#"W/"a""#, r#"W/"a""#),
        ("GET", r#"if-none-match: "b", "a-gzip""#, r#"if-none-match: "b", "a-gzip", "a""#, r#""b""#, r#""b""#),
        // What this client does not take must not be found unchanged.
        ("GET", r#"if-none-match: "a-br""#, r#"if-none-match: "a-br""#, r#""a""#, r#""a""#),
        ("GET", r#"if-match: "a-br""#, r#"if-match: "a-br", "a""#, r#""a""#, r#""a""#),
        ("PUT", r#"if-match: "a-br""#, r#"if-match: "a-br", "a""#, r#""a""#, r#""a""#),
        ("PUT", r#"if-none-match: "a-br""#, r#"if-none-match: "a-br", "a""#, r#""a""#, r#""a""#),
        ("GET", "if-none-match: *", "if-none-match: *", r#""a""#, r#""a""#),
        // A part of what was coded is no part of what is not.
        ("GET", r#"if-range: "a-gzip""#, r#"if-range: "a-gzip""#, r#""a""#, r#""a""#),
    ];
    for (method, asked, seen, answered, expected) in rows {
        let asked = format!("accept-encoding: gzip | {asked}");
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let answered = format!("etag: {answered}");
        let case = Case { method, asked: &asked, status: StatusCode::NOT_MODIFIED, answered: &answered, length: 0 };
        let (came, _, saw) = run(&Compression::new(), &case).await;
        assert_eq!(lines(&saw), lines(&fields(&format!("accept-encoding: gzip | {seen}"))), "{asked}");
        assert_eq!(lines(&came), lines(&fields(&format!("etag: {expected} | vary: accept-encoding"))), "{asked}");
    }
}

/// Content that the test sends.
struct Sent(UnboundedReceiver<Frame<Bytes>>);

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

fn serve(app: Router) -> Running {
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    server.serve(app.into_make_service()).expect("threads start")
}

/// The head and the decoded content of the answer to a request on a connection of its own.
fn ask(running: &Running, request: &str) -> (String, Vec<u8>) {
    let mut client = Client::connect(running.addresses()[0]);
    client.send(format!("{request}\r\nHost: test\r\nConnection: close\r\n\r\n"));
    let all = client.rest();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8(all[..end].to_vec()).expect("a head is text");
    let content = if head.contains("transfer-encoding: chunked") && !request.starts_with("HEAD") {
        unchunked(&all[end..])
    } else {
        all[end..].to_vec()
    };
    let coding = head.split("content-encoding: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let content = if request.starts_with("HEAD") { content } else { decode(coding, &content) };
    (head, content)
}

/// What complete chunks have.
fn unchunked(mut chunks: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let line = chunks.windows(2).position(|two| two == b"\r\n").expect("a chunk has a size");
        let size = usize::from_str_radix(std::str::from_utf8(&chunks[..line]).expect("digits"), 16).expect("a size");
        if size == 0 {
            return content;
        }
        content.extend_from_slice(&chunks[line + 2..line + 2 + size]);
        chunks = &chunks[line + 2 + size + 2..];
    }
}

#[test]
fn a_router_compresses_over_a_socket() {
    let page: &'static str = Box::leak("<p>Hello, hello, hello!</p>\n".repeat(40_000).into_boxed_str());
    let app = Router::new()
        .route("/page", get(async move || ([("content-type", "text/html"), ("etag", "\"1\"")], page)))
        .route("/small", get(async || "small"))
        .layer(Compression::new());
    let running = serve(app);
    for coding in ["gzip", "br", "zstd"] {
        let (head, content) = ask(&running, &format!("GET /page HTTP/1.1\r\nAccept-Encoding: {coding}"));
        assert!(head.starts_with("HTTP/1.1 200") && content == page.as_bytes(), "{head}");
        assert!(head.contains(&format!("etag: \"1-{coding}\"\r\n")), "{head}");
        assert!(head.contains("vary: accept-encoding\r\n") && !head.contains("content-length"), "{head}");
        let (of_head, content) = ask(&running, &format!("HEAD /page HTTP/1.1\r\nAccept-Encoding: {coding}"));
        assert!(content.is_empty());
        let without_date = |head: &str| -> Vec<String> {
            head.lines().filter(|line| !line.starts_with("date")).map(str::to_owned).collect()
        };
        assert_eq!(without_date(&of_head), without_date(&head));
    }
    let (head, content) = ask(&running, "GET /page HTTP/1.1");
    assert!(head.contains(&format!("content-length: {}\r\n", page.len())) && content == page.as_bytes(), "{head}");
    let (head, content) = ask(&running, "GET /small HTTP/1.1\r\nAccept-Encoding: gzip");
    assert!(head.contains("content-length: 5\r\n") && !head.contains("vary") && content == b"small", "{head}");
    let (head, content) = ask(&running, "GET /page HTTP/1.0\r\nAccept-Encoding: gzip");
    assert!(!head.contains("chunked") && content == page.as_bytes(), "{head}");
}

#[test]
fn events_arrive_over_a_socket_before_the_next_happens() {
    let (send, receive) = unbounded_channel();
    let receive = std::sync::Arc::new(std::sync::Mutex::new(Some(receive)));
    let events = get(async move || {
        let receive = receive.lock().unwrap().take().expect("it is asked once");
        ([("content-type", "text/event-stream")], axum::body::Body::new(Sent(receive))).into_response()
    });
    let running = serve(Router::new().route("/events", events).layer(Compression::new().codings([Coding::Gzip])));
    let mut stream = std::net::TcpStream::connect(running.addresses()[0]).expect("the server listens");
    let request = "GET /events HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut stream, request.as_bytes()).expect("the server reads");
    // A reader that decodes as bytes come waits for ever if an event does not come by itself.
    let mut chunks = Some(Chunks::after_head(stream));
    let mut reader = None;
    for number in 0..3 {
        let event = format!("data: {number}\n\n");
        send.send(Frame::data(Bytes::from(event.clone()))).expect("the handler lives");
        // It reads as soon as it is made.
        let reader = reader.get_or_insert_with(|| flate2::read::GzDecoder::new(chunks.take().expect("made once")));
        let mut came = vec![0; event.len()];
        reader.read_exact(&mut came).expect("the event comes");
        assert_eq!(came, event.as_bytes());
    }
    drop(send);
    let mut reader = reader.expect("it was made");
    assert_eq!(reader.read_to_end(&mut Vec::new()).expect("it ends well"), 0);
}

/// The content of chunks that come one by one.
struct Chunks {
    stream: std::net::TcpStream,
    left: usize,
}

impl Chunks {
    fn after_head(mut stream: std::net::TcpStream) -> Self {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("a time is set");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(Self::byte(&mut stream));
        }
        let head = String::from_utf8(head).expect("a head is text");
        assert!(head.contains("content-encoding: gzip") && head.contains("chunked"), "{head}");
        Self { stream, left: 0 }
    }

    fn byte(stream: &mut std::net::TcpStream) -> u8 {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the server goes on");
        byte[0]
    }
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(Self::byte(&mut self.stream));
            }
            self.left = usize::from_str_radix(std::str::from_utf8(&line).expect("digits").trim(), 16).expect("a size");
        }
        if self.left == 0 {
            return Ok(0);
        }
        let count = into.len().min(self.left);
        let count = self.stream.read(&mut into[..count])?;
        self.left -= count;
        if self.left == 0 {
            let _ = (Self::byte(&mut self.stream), Self::byte(&mut self.stream));
        }
        Ok(count)
    }
}

#[test]
fn files_that_are_not_for_keeping_come_whole() {
    let scratch = |name: &str, content: &[u8]| {
        let path = std::env::temp_dir().join(format!("selvedge-compression-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a scratch file");
        path
    };
    let large = "A line of many.\n".repeat(50_000);
    // What no coding makes smaller.
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    };
    let noise: Vec<u8> = (0..20_000).map(|_| random()).collect();
    let paths = [scratch("large", large.as_bytes()), scratch("noise", &noise)];
    let [of_large, of_noise] = paths.clone();
    let route = |path: std::path::PathBuf| {
        get(async move |headers: HeaderMap| {
            let file = SendFile::open(&path).await.expect("it is there");
            ([("content-type", "text/plain")], file.answer(&headers)).into_response()
        })
    };
    let app = Router::new().route("/large", route(of_large)).route("/noise", route(of_noise));
    let running = serve(app.layer(Compression::new().kept_file_bytes_max(100_000)));
    for coding in ["gzip", "br", "zstd"] {
        let (head, content) = ask(&running, &format!("GET /large HTTP/1.1\r\nAccept-Encoding: {coding}"));
        assert!(content == large.as_bytes() && head.contains(&format!("content-encoding: {coding}\r\n")), "{head}");
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let (head, content) = ask(&running, &format!("GET /noise HTTP/1.1\r\nAccept-Encoding: {coding}"));
        assert!(content == noise && !head.contains("content-encoding"), "{head}");
        assert!(head.contains("content-length: 20000\r\n") && head.contains("accept-ranges: bytes\r\n"), "{head}");
        assert!(head.contains("vary: accept-encoding\r\n") && !head.contains(&format!("-{coding}\"")), "{head}");
    }
    for path in paths {
        std::fs::remove_file(path).expect("it is there");
    }
}

#[test]
fn files_are_kept_compressed() {
    let path = std::env::temp_dir().join(format!("selvedge-compression-{}.txt", std::process::id()));
    let content = "A line of many.\n".repeat(10_000);
    std::fs::write(&path, &content).expect("a scratch file");
    let served = path.clone();
    let file = get(async move |headers: HeaderMap| {
        let file = SendFile::open(&served).await.expect("it is there");
        ([("content-type", "text/plain")], file.answer(&headers)).into_response()
    });
    let running = serve(Router::new().route("/file", file).layer(Compression::new()));
    let request = "GET /file HTTP/1.1\r\nAccept-Encoding: br";
    let tag_of = |head: &str| head.split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    let length_of = |head: &str| {
        head.split("content-length: ").nth(1).map(|rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap())
    };
    let (first, came) = ask(&running, request);
    assert!(came == content.as_bytes() && first.contains("content-encoding: br\r\n"), "{first}");
    assert!(length_of(&first).is_some() && !first.contains("accept-ranges"), "{first}");
    // Once it is kept, its length is known without making it.
    let asked = std::time::Instant::now();
    loop {
        assert!(asked.elapsed().as_secs() < 60, "it is kept once its times show its next change");
        let (head, came) = ask(&running, request);
        assert!(came == content.as_bytes(), "{head}");
        let (of_head, _) = ask(&running, "HEAD /file HTTP/1.1\r\nAccept-Encoding: br");
        if length_of(&of_head).is_some() {
            break;
        }
    }
    let tag = tag_of(&first);
    assert!(tag.ends_with("-br\""), "{tag}");
    let (head, _) = ask(&running, &format!("{request}\r\nIf-None-Match: {tag}"));
    assert!(head.starts_with("HTTP/1.1 304") && tag_of(&head) == tag, "{head}");
    let (head, came) = ask(&running, &format!("{request}\r\nRange: bytes=2-5"));
    assert!(head.starts_with("HTTP/1.1 206") && came == b"line" && !head.contains("content-encoding"), "{head}");
    let (head, came) = ask(&running, "GET /file HTTP/1.1");
    assert!(head.contains("accept-ranges: bytes") && came == content.as_bytes(), "{head}");
    let other = "Another line of many.\n".repeat(9_000);
    std::fs::write(&path, &other).expect("a scratch file");
    let (head, came) = ask(&running, &format!("{request}\r\nIf-None-Match: {tag}"));
    assert!(head.starts_with("HTTP/1.1 200") && came == other.as_bytes(), "{head}");
    std::fs::remove_file(path).expect("it is there");
}
