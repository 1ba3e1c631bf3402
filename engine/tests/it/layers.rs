//! Runs the layers and services of tower-http around an axum application over a socket.
//!
//! They must behave as they do on any other server.

use crate::support::client::Client;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use selvedge::{RunningServer, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tower::{Layer, ServiceBuilder};
use tower_http::add_extension::AddExtensionLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::classify::ServerErrorsFailureClass;
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::metrics::InFlightRequestsLayer;
use tower_http::normalize_path::NormalizePathLayer;
use tower_http::propagate_header::PropagateHeaderLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveHeadersLayer;
use tower_http::services::{ServeDir, ServeFile};
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::set_status::SetStatusLayer;
use tower_http::timeout::{RequestBodyTimeoutLayer, ResponseBodyTimeoutLayer, TimeoutLayer};
use tower_http::trace::TraceLayer;
use tower_http::validate_request::ValidateRequestHeaderLayer;

/// Serves an application on a free port. Returns the server and a connected client.
fn serve(app: Router) -> (RunningServer, Client) {
    let server = Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let running = server.serve(app.into_make_service()).expect("threads start");
    let client = Client::connect(running.addresses()[0]);
    (running, client)
}

/// Sends a request with these field lines. Returns the head and the content of the response.
fn request(client: &mut Client, line: &str, fields: &[&str], content: &str) -> (String, String) {
    let mut request = format!("{line} HTTP/1.1\r\nHost: test\r\n");
    for field in fields {
        request.push_str(field);
        request.push_str("\r\n");
    }
    if !content.is_empty() {
        request.push_str(&format!("Content-Length: {}\r\n", content.len()));
    }
    client.send(format!("{request}\r\n{content}"));
    client.read_response()
}

fn status(head: &str) -> &str {
    &head[9..12]
}

fn has(head: &str, line: &str) -> bool {
    head.contains(&format!("\r\n{line}\r\n"))
}

async fn echo(content: Bytes) -> Bytes {
    content
}

#[test]
fn fields_are_set_propagated_and_marked_sensitive() {
    let app = Router::new().route(
        "/",
        get(async |request: Request<axum::body::Body>| {
            let is_sensitive = request.headers()[header::AUTHORIZATION].is_sensitive();
            let number = request.extensions().get::<u32>().copied();
            format!("{is_sensitive} {number:?}")
        }),
    );
    let app = app.layer((
        SetSensitiveHeadersLayer::new([header::AUTHORIZATION]),
        AddExtensionLayer::new(7_u32),
        PropagateHeaderLayer::new(HeaderName::from_static("x-trace")),
        SetRequestIdLayer::x_request_id(MakeRequestUuid),
        PropagateRequestIdLayer::x_request_id(),
        SetResponseHeaderLayer::overriding(header::SERVER, HeaderValue::from_static("other")),
        SetResponseHeaderLayer::if_not_present(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        SetStatusLayer::new(StatusCode::ACCEPTED),
    ));
    let (_running, mut client) = serve(app);
    let (head, content) = request(&mut client, "GET /", &["Authorization: Basic c2VjcmV0", "X-Trace: 12"], "");
    assert_eq!((status(&head), content.as_str()), ("202", "true Some(7)"));
    assert!(has(&head, "x-trace: 12") && has(&head, "x-frame-options: DENY"), "{head}");
    assert!(head.contains("\r\nx-request-id: "), "{head}");
    // Only the engine sets Server, once.
    assert_eq!(head.matches("server: ").count(), 1, "{head}");
}

#[test]
fn cors_fields_are_sent() {
    let cors = CorsLayer::new().allow_origin(Any).allow_methods([Method::PUT]).max_age(Duration::from_secs(60));
    let (_running, mut client) = serve(Router::new().route("/", get(async || "hello")).layer(cors));
    let fields = ["Origin: https://other.example", "Access-Control-Request-Method: PUT"];
    let (head, content) = request(&mut client, "OPTIONS /", &fields, "");
    assert_eq!((status(&head), content.as_str()), ("200", ""));
    assert!(has(&head, "access-control-allow-methods: PUT") && has(&head, "access-control-max-age: 60"), "{head}");
    let (head, _) = request(&mut client, "GET /", &fields[..1], "");
    assert!(has(&head, "access-control-allow-origin: *"), "{head}");
}

#[test]
fn content_is_bounded_and_decompressed() {
    let app = Router::new().route("/", post(echo));
    let limited = app.clone().layer(RequestBodyLimitLayer::new(10));
    let (_running, mut client) = serve(limited);
    assert_eq!(request(&mut client, "POST /", &[], "0123456789").1, "0123456789");
    assert_eq!(status(&request(&mut client, "POST /", &[], "0123456789a").0), "413");
    // Without Content-Length, the limit applies while the content is read.
    let mut client = Client::connect(_running.addresses()[0]);
    client.send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\n");
    assert_eq!(status(&client.read_response().0), "413");

    let (_running, mut client) = serve(app.layer(RequestDecompressionLayer::new()));
    // "hello" in gzip format, in a stored block.
    let coded = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01\x05\0\xfa\xffhello\x86\xa6\x106\x05\0\0\0";
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        coded.len()
    ));
    client.send(coded);
    assert_eq!(client.read_response().1, "hello");
}

#[test]
fn responses_are_compressed_and_flushed() {
    let text = "many words ".repeat(1_000);
    let app = Router::new().route("/", get(async move || text)).layer(CompressionLayer::new());
    let (_running, mut client) = serve(app);
    client.send("GET / HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n");
    let response = client.read_until_close();
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").expect("the response has a head");
    let head = String::from_utf8_lossy(&response[..end + 4]);
    assert!(has(&head, "content-encoding: gzip") && has(&head, "transfer-encoding: chunked"), "{head}");
    assert!(response.ends_with(b"\r\n0\r\n\r\n") && response.len() < 1_000);
}

#[test]
fn slow_handlers_and_slow_content_time_out() {
    let app = Router::new().route("/", get(std::future::pending::<&str>));
    let app = app
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(50)))
        .layer(ResponseBodyTimeoutLayer::new(Duration::from_secs(60)));
    let (_running, mut client) = serve(app);
    assert_eq!(status(&request(&mut client, "GET /", &[], "").0), "504");
    let app = Router::new().route(
        "/",
        post(async |content: Result<Bytes, BytesRejection>| match content {
            Ok(_) => StatusCode::OK,
            Err(_) => StatusCode::REQUEST_TIMEOUT,
        }),
    );
    let (_running, mut client) = serve(app.layer(RequestBodyTimeoutLayer::new(Duration::from_millis(50))));
    client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf");
    assert_eq!(status(&client.read_response().0), "408");
}

#[test]
fn panic_is_caught_by_a_layer_and_traced() {
    let failures = Arc::new(AtomicUsize::new(0));
    let seen = failures.clone();
    let trace =
        TraceLayer::new_for_http().on_failure(move |_: ServerErrorsFailureClass, _: Duration, _: &tracing::Span| {
            seen.fetch_add(1, Ordering::SeqCst);
        });
    async fn fail() -> StatusCode {
        panic!("the handler fails");
    }
    let app = Router::new().route("/", get(fail)).route("/well", get(async || "well"));
    let (_running, mut client) = serve(app.layer(ServiceBuilder::new().layer(trace).layer(CatchPanicLayer::new())));
    let (head, content) = request(&mut client, "GET /", &[], "");
    assert_eq!((status(&head), content.as_str()), ("500", "Service panicked"));
    assert_eq!(failures.load(Ordering::SeqCst), 1);
    assert_eq!(client.get("/well"), "well", "the connection persists");
}

#[test]
fn requests_are_counted_until_their_content_is_sent() {
    let (layer, counter) = InFlightRequestsLayer::pair();
    let own = counter.clone();
    let app = Router::new().route("/", get(async move || own.get().to_string())).layer(layer);
    let (_running, mut client) = serve(app);
    assert_eq!(client.get("/"), "1");
    assert_eq!(client.get("/"), "1");
}

#[test]
fn paths_are_normalized_and_requests_validated() {
    let app = Router::new().route("/a", get(async || "a"));
    let app = Router::new().fallback_service(NormalizePathLayer::trim_trailing_slash().layer(app));
    let app = app.layer(ValidateRequestHeaderLayer::accept("text/plain"));
    let (_running, mut client) = serve(app);
    assert_eq!(request(&mut client, "GET /a/", &["Accept: text/*"], "").1, "a");
    assert_eq!(status(&request(&mut client, "GET /a", &["Accept: application/json"], "").0), "406");
}

#[test]
fn files_are_served_by_tower_http() {
    let folder = std::env::temp_dir().join(format!("selvedge-layers-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("sub")).expect("the directory is created");
    std::fs::write(folder.join("sub/index.html"), "<p>index</p>").expect("the file is written");
    std::fs::write(folder.join("long.txt"), "0123456789".repeat(50_000)).expect("the file is written");
    let app = Router::new().route_service("/one", ServeFile::new(folder.join("long.txt"))).fallback_service(
        ServeDir::new(&folder).fallback(get(async || (StatusCode::NOT_FOUND, "none").into_response())),
    );
    let (_running, mut client) = serve(app);
    assert_eq!(client.get("/sub/"), "<p>index</p>");
    let (head, content) = request(&mut client, "GET /one", &["Range: bytes=5-14"], "");
    assert_eq!((status(&head), content.as_str()), ("206", "5678901234"));
    assert!(has(&head, "content-range: bytes 5-14/500000"), "{head}");
    assert_eq!(client.get("/long.txt").len(), 500_000);
    let (head, _) = request(&mut client, "GET /long.txt", &["If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"], "");
    assert_eq!(status(&head), "304");
    assert_eq!(request(&mut client, "GET /%2e%2e/Cargo.toml", &[], "").1, "none");
    std::fs::remove_dir_all(&folder).expect("the directory is removed");
}
