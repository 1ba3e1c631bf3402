//! Every kind of content with every kind of request: HEAD, HTTP/1.0, statuses without content.

use super::scenario::{Scenario, TestServer, with_virtual_time};
use super::test_app::content;
use crate::limits::Limits;
use crate::service::{Body, Chunks, CloseReason, FileContent, Phase, Request, Response, StreamError};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use std::collections::VecDeque;
use std::io::Write;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

struct Pieces(VecDeque<&'static str>);

impl Chunks for Pieces {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(piece.into())))
    }
}

/// Returns a body of five bytes or none, of the kind that the path names.
fn body(kind: &str) -> Body {
    let stream = |length| Body::Stream { length, chunks: Box::pin(Pieces(["he", "", "llo"].into())) };
    match kind {
        "/bytes" => "hello".into(),
        "/large" => content(100_000).into(),
        "/stream" => stream(Some(5)),
        "/unknown" => stream(None),
        "/file" => {
            let mut file = super::files::temporary();
            file.write_all(b"hello").expect("a temporary file takes five bytes");
            Body::File(Box::new(FileContent::new(Rc::new(file.into()), 0, 5).expect("it has facts")))
        }
        _ => Body::Empty,
    }
}

/// Responds with the kind of body in the path and the status in the query.
async fn kinds(request: &mut Request) -> Response {
    let code = request.query().and_then(|query| query.parse().ok()).unwrap_or(200);
    Response::new(StatusCode::new(code).expect("a status")).body(body(request.path()))
}

const KINDS: [(&str, Option<&str>); 6] = [
    ("/empty", Some("0")),
    ("/bytes", Some("5")),
    ("/large", Some("100000")),
    ("/stream", Some("5")),
    ("/unknown", None),
    ("/file", Some("5")),
];

#[test]
fn get_has_the_content_and_its_length() {
    with_virtual_time(async || {
        let server = TestServer::serving(kinds, Limits::default());
        let client = server.connect();
        for (at, (kind, length)) in KINDS.into_iter().enumerate() {
            client.send(Scenario::get(kind).bytes()).await;
            let response = client.responses()[at].clone();
            assert_eq!(response.field("content-length"), length, "{kind}");
            assert_eq!(response.field("transfer-encoding"), length.is_none().then_some("chunked"), "{kind}");
            assert!(response.is_complete && matches!(response.content.len(), 0 | 5 | 100_000), "{kind}");
            assert_eq!(client.finished()[at].content_bytes, response.content.len() as u64, "{kind}");
        }
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn head_has_the_fields_of_get_and_no_content() {
    with_virtual_time(async || {
        let server = TestServer::serving(kinds, Limits::default());
        for (kind, length) in KINDS {
            let client = Scenario::request("HEAD", kind, "HTTP/1.1").sent(&server).await;
            let sent = String::from_utf8(client.pipe.outgoing()).expect("a head is text");
            assert!(sent.ends_with("\r\n\r\n") && sent.matches("\r\n\r\n").count() == 1, "{kind}: {sent}");
            let expected = length.map_or("\r\ntransfer-encoding: chunked\r\n".to_owned(), |length| {
                format!("\r\ncontent-length: {length}\r\n")
            });
            assert!(sent.contains(&expected), "{kind}: {sent}");
            assert_eq!(client.finished()[0].content_bytes, 0, "{kind}");
            assert_eq!(client.phase(), Phase::Idle, "{kind}");
        }
    });
}

#[test]
fn no_content_and_not_modified_have_none() {
    with_virtual_time(async || {
        let server = TestServer::serving(kinds, Limits::default());
        for (kind, _) in KINDS {
            for status in [204, 304] {
                let client = Scenario::get(&format!("{kind}?{status}")).sent(&server).await;
                let sent = String::from_utf8(client.pipe.outgoing()).expect("a head is text");
                assert!(sent.ends_with("\r\n\r\n") && !sent.contains("transfer-encoding"), "{kind}: {sent}");
                assert!(!sent.contains("content-length"), "{kind}: {sent}");
                assert_eq!(client.phase(), Phase::Idle, "{kind}");
            }
        }
    });
}

#[test]
fn http_1_0_is_kept_alive_only_on_request() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let plain = Scenario::request("GET", "/ok", "HTTP/1.0").sent(&server).await;
        assert_eq!((plain.response().status, plain.closed()), (200, Some(CloseReason::CloseRequested)));
        let client = server.connect();
        let kept = Scenario::request("GET", "/ok", "HTTP/1.0").field("Connection", "Keep-Alive").bytes();
        client.send([kept.clone(), kept].concat()).await;
        assert_eq!(client.statuses(), [200, 200]);
        assert_eq!(client.responses()[1].field("connection"), Some("keep-alive"));
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn http_1_0_gets_content_without_a_length_until_close() {
    with_virtual_time(async || {
        let server = TestServer::serving(kinds, Limits::default());
        let scenario = Scenario::request("GET", "/unknown", "HTTP/1.0").field("Connection", "keep-alive");
        let client = scenario.sent(&server).await;
        let response = client.response();
        assert_eq!((response.text(), response.field("content-length"), response.closes()), ("hello", None, true));
        assert_eq!(response.field("transfer-encoding"), None);
        assert_eq!(client.closed(), Some(CloseReason::ClosedAfterResponse));
    });
}

#[test]
fn connection_options() {
    with_virtual_time(async || {
        let server = TestServer::new();
        for (value, closes) in [
            ("close", true),
            ("CLOSE", true),
            ("keep-alive, close", true),
            ("foo,close ,bar", true),
            ("keep-alive", false),
            ("closed", false),
            ("x-close", false),
            ("", false),
        ] {
            let client = Scenario::get("/ok").field("Connection", value).sent(&server).await;
            assert_eq!((client.response().closes(), client.closed().is_some()), (closes, closes), "{value}");
        }
        let twice = Scenario::get("/ok").field("Connection", "foo").field("Connection", "close");
        assert_eq!(twice.sent(&server).await.closed(), Some(CloseReason::CloseRequested));
    });
}

#[test]
fn connect_opens_no_tunnel() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let service = async |_: &mut Request| Response::new(StatusCode::OK).body("hi");
        let other = TestServer::serving(service, Limits::default());
        for server in [&server, &other] {
            let client = server.connect();
            client.send("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n").await;
            let status = client.response().status;
            assert!(status >= 400, "{status}");
        }
    });
}
