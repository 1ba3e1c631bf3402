//! Tests the compression layer: which responses it compresses, called directly and over sockets.

use crate::support::client::Client;
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use selvedge::proto::encoding::Coding;
use selvedge::{Authenticated, CompressedBody, Compression, RunningServer, SendFile, Server};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tower_layer::Layer;
use tower_service::Service;

/// An application with one response. It reports the fields of its requests.
#[derive(Clone)]
struct FixedResponse {
    response: Response<Full<Bytes>>,
    request_fields: std::sync::mpsc::Sender<HeaderMap>,
}

impl Service<Request<()>> for FixedResponse {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        self.request_fields.send(request.headers().clone()).expect("the test is running");
        ready(Ok(self.response.clone()))
    }
}

/// Parses `name: value | name: value`.
fn fields(lines: &str) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines.split('|').map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').expect("a line has name and value");
        let name = http::HeaderName::from_bytes(name.as_bytes()).expect("the name is valid");
        map.append(name, HeaderValue::from_str(value.trim()).expect("the value is valid"));
    }
    map
}

/// Formats fields as `name: value | name: value`, sorted by name.
fn lines(map: &HeaderMap) -> String {
    let mut lines: Vec<_> =
        map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("the value is text"))).collect();
    lines.sort();
    lines.join(" | ")
}

struct Case<'a> {
    method: Method,
    request_fields: &'a str,
    status: StatusCode,
    response_fields: &'a str,
    length: usize,
}

/// Returns the fields and the content of the response, and the fields that the application received.
async fn run(layer: &Compression, case: &Case<'_>) -> (HeaderMap, Bytes, HeaderMap) {
    let mut response = Response::new(Full::from(vec![b'a'; case.length]));
    *response.status_mut() = case.status;
    *response.headers_mut() = fields(case.response_fields);
    let (request_fields, forwarded) = std::sync::mpsc::channel();
    let mut service = layer.layer(FixedResponse { response, request_fields });
    let mut request = Request::new(());
    *request.method_mut() = case.method.clone();
    *request.headers_mut() = fields(case.request_fields);
    let response: Response<CompressedBody<_>> = service.call(request).await.expect("the layer cannot fail");
    assert_eq!(response.status(), case.status);
    let (parts, body) = response.into_parts();
    let content = body.collect().await.expect("the content is read").to_bytes();
    (parts.headers, content, forwarded.recv().expect("the application was called"))
}

fn decode(coding: Option<&str>, content: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    match coding {
        None => return content.to_vec(),
        Some("gzip") => flate2::read::GzDecoder::new(content).read_to_end(&mut decoded).map(drop),
        Some("br") => brotli::Decompressor::new(content, 4096).read_to_end(&mut decoded).map(drop),
        Some("zstd") => zstd::stream::copy_decode(content, &mut decoded),
        Some(other) => panic!("unexpected coding {other}"),
    }
    .expect("the content decodes");
    decoded
}

/// Checks rows of request fields, fields and length of the application's response, and expected
/// fields of the sent response.
async fn check_all(layer: &Compression, rows: &[(&str, &str, usize, &str)]) {
    for (request_fields, response_fields, length, expected) in rows {
        let row = format!("{request_fields:?}, response {response_fields:?} of {length} bytes");
        let case = |method| Case { method, request_fields, status: StatusCode::OK, response_fields, length: *length };
        let (sent, content, _) = run(layer, &case(Method::GET)).await;
        assert_eq!(lines(&sent), lines(&fields(expected)), "GET with {row}");
        let coding = sent.get("content-encoding").map(|value| value.to_str().expect("the value is text"));
        let coding = coding.filter(|_| !response_fields.contains("content-encoding"));
        assert_eq!(decode(coding, &content), vec![b'a'; *length]);
        // HEAD has the fields of GET. The application may omit the content.
        let (sent, content, _) = run(layer, &case(Method::HEAD)).await;
        assert_eq!(lines(&sent), lines(&fields(expected)), "HEAD with {row}");
        assert!(coding.is_none() || content.is_empty());
        if response_fields.contains("content-length") {
            let (sent, ..) = run(layer, &Case { length: 0, ..case(Method::HEAD) }).await;
            assert_eq!(lines(&sent), lines(&fields(expected)), "HEAD with {row}, without content");
        }
    }
}

const TEXT: &str = "content-type: text/plain";
const CODED: &str = "content-type: text/plain | vary: accept-encoding | content-encoding: ";
const VARIES: &str = "content-type: text/plain | vary: accept-encoding";

#[tokio::test]
async fn coding_is_negotiated() {
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
    check_all(&Compression::new(), &rows.map(|(request, expected)| (request, TEXT, 5000, expected))).await;
    let layer = Compression::new().codings([Coding::Gzip, Coding::Brotli]);
    for (accepted, expected) in [("zstd, br, gzip", &*gzip), ("br", &*br), ("zstd", VARIES), ("*", &*gzip)] {
        let request = format!("accept-encoding: {accepted}");
        check_all(&layer, &[(&request, TEXT, 5000, expected)]).await;
    }
}

#[tokio::test]
async fn unsuitable_responses_are_not_compressed() {
    const ALL: &str = "accept-encoding: gzip";
    let unchanged = [
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
    check_all(&Compression::new(), &unchanged.map(|response| (ALL, response, 5000, response))).await;
    for kind in ["text/html; charset=utf-8", "image/svg+xml", "application/json", "application/ld+json", "font/ttf"] {
        let response = format!("content-type: {kind}");
        let expected = format!("{response} | content-encoding: gzip | vary: accept-encoding");
        check_all(&Compression::new(), &[(ALL, &response, 5000, &expected)]).await;
    }
    let gzip = format!("{CODED}gzip");
    let around_minimum = [(ALL, TEXT, 1023, TEXT), (ALL, TEXT, 1024, &*gzip), (ALL, TEXT, 0, TEXT)];
    // Content without a known length may be long, so its head is that of long content.
    check_all(&Compression::new(), &around_minimum[..2]).await;
    check_all(&Compression::new().bytes_min(1), &[(ALL, TEXT, 1, &*gzip)]).await;
    let (method, status) = (Method::GET, StatusCode::OK);
    let empty = Case { method, request_fields: ALL, status, response_fields: TEXT, length: 0 };
    assert_eq!(lines(&run(&Compression::new().bytes_min(0), &empty).await.0), TEXT);
    for (status, response, expected) in [
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
            ("", 416) => format!("{response} | vary: accept-encoding"),
            ("", _) => response.to_owned(),
            _ => expected.to_owned(),
        };
        let status = StatusCode::from_u16(status).unwrap();
        let case = Case { method: Method::GET, request_fields: ALL, status, response_fields: response, length: 5000 };
        assert_eq!(lines(&run(&Compression::new(), &case).await.0), lines(&fields(&expected)), "{status} {response}");
    }
}

#[tokio::test]
async fn authenticated_responses_are_not_compressed_by_default() {
    let gzip = format!("{CODED}gzip");
    let (secret, coded) = (format!("{TEXT} | set-cookie: a=b"), format!("{gzip} | set-cookie: a=b"));
    let varies = format!("{VARIES} | set-cookie: a=b");
    let rows = [
        ("accept-encoding: gzip | cookie: a=b", TEXT, VARIES, &*gzip),
        ("accept-encoding: gzip | authorization: Basic YTpi", TEXT, VARIES, &*gzip),
        ("accept-encoding: gzip", &*secret, &*varies, &*coded),
    ];
    for (request, response, unchanged, compressed) in rows {
        check_all(&Compression::new(), &[(request, response, 5000, unchanged)]).await;
        let layer = Compression::new().authenticated(Authenticated::Compress);
        check_all(&layer, &[(request, response, 5000, compressed)]).await;
    }
}

#[tokio::test]
async fn fields_are_adapted_to_the_coding() {
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
    for (response, expected) in rows {
        let response = format!("{TEXT} | {response}");
        let vary = if expected.contains("vary") { "" } else { "vary: accept-encoding" };
        let expected = format!("{TEXT} | content-encoding: gzip | {expected} | {vary}");
        check_all(&Compression::new(), &[(ALL, &response, 5000, &expected)]).await;
    }
    let whole = format!("{TEXT} | etag: \"abc\" | content-length: 5000 | accept-ranges: bytes");
    check_all(&Compression::new(), &[("", &whole, 5000, &format!("{whole} | vary: accept-encoding"))]).await;
}

/// Each row: method, precondition of the client, precondition that the application receives, entity
/// tag of its 304 response, entity tag of the sent response.
#[tokio::test]
async fn entity_tags_in_preconditions_are_translated() {
    let rows = [
        ("GET", r#"if-none-match: "a-gzip""#, r#"if-none-match: "a-gzip", "a""#, r#""a""#, r#""a-gzip""#),
        ("HEAD", r#"if-none-match: "a-gzip""#, r#"if-none-match: "a-gzip", "a""#, r#""a""#, r#""a-gzip""#),
        ("GET", r#"if-none-match: "a""#, r#"if-none-match: "a""#, r#""a""#, r#""a""#),
        ("GET", r#"if-none-match: W/"a-gzip""#, r#"if-none-match: W/"a-gzip", W/"a""#, r#""a""#, r#""a-gzip""#),
        ("GET", r#"if-none-match: W/"a-gzip""#, r#"if-none-match: W/"a-gzip", W/"a""#, r#"W/"a""#, r#"W/"a""#),
        ("GET", r#"if-none-match: "b", "a-gzip""#, r#"if-none-match: "b", "a-gzip", "a""#, r#""b""#, r#""b""#),
        // A client that does not accept this coding must not get 304 for it.
        ("GET", r#"if-none-match: "a-br""#, r#"if-none-match: "a-br""#, r#""a""#, r#""a""#),
        ("GET", r#"if-match: "a-br""#, r#"if-match: "a-br", "a""#, r#""a""#, r#""a""#),
        ("PUT", r#"if-match: "a-br""#, r#"if-match: "a-br", "a""#, r#""a""#, r#""a""#),
        ("PUT", r#"if-none-match: "a-br""#, r#"if-none-match: "a-br", "a""#, r#""a""#, r#""a""#),
        ("GET", "if-none-match: *", "if-none-match: *", r#""a""#, r#""a""#),
        // A range of coded content cannot be completed by a range of identity content.
        ("GET", r#"if-range: "a-gzip""#, r#"if-range: "a-gzip""#, r#""a""#, r#""a""#),
    ];
    for (method, request, expected_forwarded, response, expected) in rows {
        let request = format!("accept-encoding: gzip | {request}");
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let response = format!("etag: {response}");
        let status = StatusCode::NOT_MODIFIED;
        let case = Case { method, request_fields: &request, status, response_fields: &response, length: 0 };
        let (sent, _, forwarded) = run(&Compression::new(), &case).await;
        let expected_forwarded = fields(&format!("accept-encoding: gzip | {expected_forwarded}"));
        assert_eq!(lines(&forwarded), lines(&expected_forwarded), "{request}");
        assert_eq!(lines(&sent), lines(&fields(&format!("etag: {expected} | vary: accept-encoding"))), "{request}");
    }
}

/// A body whose frames the test sends.
struct ChannelBody(UnboundedReceiver<Frame<Bytes>>);

impl http_body::Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

fn serve(app: Router) -> RunningServer {
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    server.serve(app.into_make_service()).expect("threads start")
}

/// Sends a request on a new connection. Returns the head and the decoded content of the response.
fn request(running: &RunningServer, request: &str) -> (String, Vec<u8>) {
    let mut client = Client::connect(running.addresses()[0]);
    client.send(format!("{request}\r\nHost: test\r\nConnection: close\r\n\r\n"));
    let all = client.read_until_close();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("the response has a head") + 4;
    let head = String::from_utf8(all[..end].to_vec()).expect("the head is text");
    let content = if head.contains("transfer-encoding: chunked") && !request.starts_with("HEAD") {
        decode_chunks(&all[end..])
    } else {
        all[end..].to_vec()
    };
    let coding = head.split("content-encoding: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let content = if request.starts_with("HEAD") { content } else { decode(coding, &content) };
    (head, content)
}

/// Returns the content of complete chunks.
fn decode_chunks(mut chunks: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let line = chunks.windows(2).position(|two| two == b"\r\n").expect("a chunk has a size");
        let size = usize::from_str_radix(std::str::from_utf8(&chunks[..line]).expect("the size is ASCII"), 16)
            .expect("the size is hexadecimal");
        if size == 0 {
            return content;
        }
        content.extend_from_slice(&chunks[line + 2..line + 2 + size]);
        chunks = &chunks[line + 2 + size + 2..];
    }
}

#[test]
fn router_compresses_over_a_socket() {
    let page: &'static str = Box::leak("<p>Hello, hello, hello!</p>\n".repeat(40_000).into_boxed_str());
    let app = Router::new()
        .route("/page", get(async move || ([("content-type", "text/html"), ("etag", "\"1\"")], page)))
        .route("/small", get(async || "small"))
        .layer(Compression::new());
    let running = serve(app);
    for coding in ["gzip", "br", "zstd"] {
        let (head, content) = request(&running, &format!("GET /page HTTP/1.1\r\nAccept-Encoding: {coding}"));
        assert!(head.starts_with("HTTP/1.1 200") && content == page.as_bytes(), "{head}");
        assert!(head.contains(&format!("etag: \"1-{coding}\"\r\n")), "{head}");
        assert!(head.contains("vary: accept-encoding\r\n") && !head.contains("content-length"), "{head}");
        let (head_response, content) = request(&running, &format!("HEAD /page HTTP/1.1\r\nAccept-Encoding: {coding}"));
        assert!(content.is_empty());
        let without_date = |head: &str| -> Vec<String> {
            head.lines().filter(|line| !line.starts_with("date")).map(str::to_owned).collect()
        };
        assert_eq!(without_date(&head_response), without_date(&head));
    }
    let (head, content) = request(&running, "GET /page HTTP/1.1");
    assert!(head.contains(&format!("content-length: {}\r\n", page.len())) && content == page.as_bytes(), "{head}");
    let (head, content) = request(&running, "GET /small HTTP/1.1\r\nAccept-Encoding: gzip");
    assert!(head.contains("content-length: 5\r\n") && !head.contains("vary") && content == b"small", "{head}");
    let (head, content) = request(&running, "GET /page HTTP/1.0\r\nAccept-Encoding: gzip");
    assert!(!head.contains("chunked") && content == page.as_bytes(), "{head}");
}

#[test]
fn each_event_is_sent_before_the_next_one_is_produced() {
    let (send, receive) = unbounded_channel();
    let receive = std::sync::Arc::new(std::sync::Mutex::new(Some(receive)));
    let events = get(async move || {
        let receive = receive.lock().unwrap().take().expect("the response is taken once");
        ([("content-type", "text/event-stream")], axum::body::Body::new(ChannelBody(receive))).into_response()
    });
    let running = serve(Router::new().route("/events", events).layer(Compression::new().codings([Coding::Gzip])));
    let mut stream = std::net::TcpStream::connect(running.addresses()[0]).expect("the server listens");
    let request = "GET /events HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut stream, request.as_bytes()).expect("the server reads");
    // The reader waits forever if an event is not flushed.
    let mut chunks = Some(Chunks::after_head(stream));
    let mut reader = None;
    for number in 0..3 {
        let event = format!("data: {number}\n\n");
        send.send(Frame::data(Bytes::from(event.clone()))).expect("the handler reads the content");
        // The decoder reads when it is created, so it is created after the first event.
        let reader = reader
            .get_or_insert_with(|| flate2::read::GzDecoder::new(chunks.take().expect("the reader is created once")));
        let mut received = vec![0; event.len()];
        reader.read_exact(&mut received).expect("the event arrives");
        assert_eq!(received, event.as_bytes());
    }
    drop(send);
    let mut reader = reader.expect("the reader was created");
    assert_eq!(reader.read_to_end(&mut Vec::new()).expect("the content ends"), 0);
}

/// A reader of chunked content that arrives chunk by chunk.
struct Chunks {
    stream: std::net::TcpStream,
    remaining: usize,
}

impl Chunks {
    fn after_head(mut stream: std::net::TcpStream) -> Self {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("the timeout is set");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(Self::byte(&mut stream));
        }
        let head = String::from_utf8(head).expect("the head is text");
        assert!(head.contains("content-encoding: gzip") && head.contains("chunked"), "{head}");
        Self { stream, remaining: 0 }
    }

    fn byte(stream: &mut std::net::TcpStream) -> u8 {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the server sends more");
        byte[0]
    }
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.remaining == 0 {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(Self::byte(&mut self.stream));
            }
            self.remaining = usize::from_str_radix(std::str::from_utf8(&line).expect("the size is ASCII").trim(), 16)
                .expect("the size is hexadecimal");
        }
        if self.remaining == 0 {
            return Ok(0);
        }
        let count = into.len().min(self.remaining);
        let count = self.stream.read(&mut into[..count])?;
        self.remaining -= count;
        if self.remaining == 0 {
            let _ = (Self::byte(&mut self.stream), Self::byte(&mut self.stream));
        }
        Ok(count)
    }
}

#[test]
fn files_that_are_not_cached_are_sent_completely() {
    let scratch = |name: &str, content: &[u8]| {
        let path = std::env::temp_dir().join(format!("selvedge-compression-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("the file is written");
        path
    };
    let large = "A line of many.\n".repeat(50_000);
    // Random bytes, which no coding makes smaller.
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
            let file = SendFile::open(&path).await.expect("the file exists");
            ([("content-type", "text/plain")], file.respond_to(&headers)).into_response()
        })
    };
    let app = Router::new().route("/large", route(of_large)).route("/noise", route(of_noise));
    let running = serve(app.layer(Compression::new().cache_file_bytes_max(100_000)));
    for coding in ["gzip", "br", "zstd"] {
        let (head, content) = request(&running, &format!("GET /large HTTP/1.1\r\nAccept-Encoding: {coding}"));
        assert!(content == large.as_bytes() && head.contains(&format!("content-encoding: {coding}\r\n")), "{head}");
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let (head, content) = request(&running, &format!("GET /noise HTTP/1.1\r\nAccept-Encoding: {coding}"));
        assert!(content == noise && !head.contains("content-encoding"), "{head}");
        assert!(head.contains("content-length: 20000\r\n") && head.contains("accept-ranges: bytes\r\n"), "{head}");
        assert!(head.contains("vary: accept-encoding\r\n") && !head.contains(&format!("-{coding}\"")), "{head}");
    }
    for path in paths {
        std::fs::remove_file(path).expect("the file exists");
    }
}

#[test]
fn compressed_files_are_cached() {
    let path = std::env::temp_dir().join(format!("selvedge-compression-{}.txt", std::process::id()));
    let content = "A line of many.\n".repeat(10_000);
    std::fs::write(&path, &content).expect("the file is written");
    let served = path.clone();
    let file = get(async move |headers: HeaderMap| {
        let file = SendFile::open(&served).await.expect("the file exists");
        ([("content-type", "text/plain")], file.respond_to(&headers)).into_response()
    });
    let running = serve(Router::new().route("/file", file).layer(Compression::new()));
    let request_line = "GET /file HTTP/1.1\r\nAccept-Encoding: br";
    let tag_of = |head: &str| head.split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    let length_of = |head: &str| {
        head.split("content-length: ").nth(1).map(|rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap())
    };
    let (first, received) = request(&running, request_line);
    assert!(received == content.as_bytes() && first.contains("content-encoding: br\r\n"), "{first}");
    assert!(length_of(&first).is_some() && !first.contains("accept-ranges"), "{first}");
    // The length of a cached file is known without compressing it.
    let started = std::time::Instant::now();
    loop {
        assert!(started.elapsed().as_secs() < 60, "the file is cached when its modification time is old enough");
        let (head, received) = request(&running, request_line);
        assert!(received == content.as_bytes(), "{head}");
        let (head_response, _) = request(&running, "HEAD /file HTTP/1.1\r\nAccept-Encoding: br");
        if length_of(&head_response).is_some() {
            break;
        }
    }
    let tag = tag_of(&first);
    assert!(tag.ends_with("-br\""), "{tag}");
    let (head, _) = request(&running, &format!("{request_line}\r\nIf-None-Match: {tag}"));
    assert!(head.starts_with("HTTP/1.1 304") && tag_of(&head) == tag, "{head}");
    let (head, received) = request(&running, &format!("{request_line}\r\nRange: bytes=2-5"));
    assert!(head.starts_with("HTTP/1.1 206") && received == b"line" && !head.contains("content-encoding"), "{head}");
    let (head, received) = request(&running, "GET /file HTTP/1.1");
    assert!(head.contains("accept-ranges: bytes") && received == content.as_bytes(), "{head}");
    let other = "Another line of many.\n".repeat(9_000);
    std::fs::write(&path, &other).expect("the file is written");
    let (head, received) = request(&running, &format!("{request_line}\r\nIf-None-Match: {tag}"));
    assert!(head.starts_with("HTTP/1.1 200") && received == other.as_bytes(), "{head}");
    std::fs::remove_file(path).expect("the file exists");
}
