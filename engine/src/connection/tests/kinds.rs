//! Every kind of content to every kind of request: HEAD, HTTP/1.0, statuses without
//! content.

use super::scenario::{Scenario, World, virtually};
use super::site::content;
use crate::limits::Limits;
use crate::service::{Body, Chunks, CloseReason, FileContent, Phase, Request, Response, StreamError};
use bytes::Bytes;
use selvedge_proto::Status;
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

/// A body of five bytes, or of none, of the kind that the path names.
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
            Body::File(FileContent::new(Rc::new(file.into()), 0, 5).expect("it has facts"))
        }
        _ => Body::Empty,
    }
}

/// Answers with the kind of the path, and the status of the query.
async fn kinds(request: &mut Request) -> Response {
    let code = request.query().and_then(|query| query.parse().ok()).unwrap_or(200);
    Response::new(Status::new(code).expect("a status")).body(body(request.path()))
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
    virtually(async {
        let world = World::serving(kinds, Limits::default());
        let client = world.connect();
        for (at, (kind, length)) in KINDS.into_iter().enumerate() {
            client.send(Scenario::get(kind).bytes()).await;
            let reply = client.replies()[at].clone();
            assert_eq!(reply.field("content-length"), length, "{kind}");
            assert_eq!(reply.field("transfer-encoding"), length.is_none().then_some("chunked"), "{kind}");
            assert!(reply.is_complete && matches!(reply.content.len(), 0 | 5 | 100_000), "{kind}");
            assert_eq!(client.finished()[at].content_bytes, reply.content.len() as u64, "{kind}");
        }
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn head_has_the_fields_of_get_and_no_content() {
    virtually(async {
        let world = World::serving(kinds, Limits::default());
        for (kind, length) in KINDS {
            let client = Scenario::request("HEAD", kind, "HTTP/1.1").sent(&world).await;
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
    virtually(async {
        let world = World::serving(kinds, Limits::default());
        for (kind, _) in KINDS {
            for status in [204, 304] {
                let client = Scenario::get(&format!("{kind}?{status}")).sent(&world).await;
                let sent = String::from_utf8(client.pipe.outgoing()).expect("a head is text");
                assert!(sent.ends_with("\r\n\r\n") && !sent.contains("transfer-encoding"), "{kind}: {sent}");
                assert!(!sent.contains("content-length"), "{kind}: {sent}");
                assert_eq!(client.phase(), Phase::Idle, "{kind}");
            }
        }
    });
}

#[test]
fn http_1_0_lives_on_only_when_asked() {
    virtually(async {
        let world = World::new();
        let plain = Scenario::request("GET", "/ok", "HTTP/1.0").sent(&world).await;
        assert_eq!((plain.reply().status, plain.closed()), (200, Some(CloseReason::Asked)));
        let client = world.connect();
        let kept = Scenario::request("GET", "/ok", "HTTP/1.0").field("Connection", "Keep-Alive").bytes();
        client.send([kept.clone(), kept].concat()).await;
        assert_eq!(client.statuses(), [200, 200]);
        assert_eq!(client.replies()[1].field("connection"), Some("keep-alive"));
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn http_1_0_gets_what_has_no_length_until_the_end() {
    virtually(async {
        let world = World::serving(kinds, Limits::default());
        let scenario = Scenario::request("GET", "/unknown", "HTTP/1.0").field("Connection", "keep-alive");
        let client = scenario.sent(&world).await;
        let reply = client.reply();
        assert_eq!((reply.text(), reply.field("content-length"), reply.closes()), ("hello", None, true));
        assert_eq!(reply.field("transfer-encoding"), None);
        assert_eq!(client.closed(), Some(CloseReason::AnswerEnded));
    });
}

#[test]
fn connection_options() {
    virtually(async {
        let world = World::new();
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
            let client = Scenario::get("/ok").field("Connection", value).sent(&world).await;
            assert_eq!((client.reply().closes(), client.closed().is_some()), (closes, closes), "{value}");
        }
        let twice = Scenario::get("/ok").field("Connection", "foo").field("Connection", "close");
        assert_eq!(twice.sent(&world).await.closed(), Some(CloseReason::Asked));
    });
}

#[test]
fn there_is_no_tunnel() {
    virtually(async {
        let world = World::new();
        let service = async |_: &mut Request| Response::new(Status::OK).body("hi");
        let other = World::serving(service, Limits::default());
        for world in [&world, &other] {
            let client = world.connect();
            client.send("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n").await;
            let status = client.reply().status;
            assert!(status >= 400, "{status}");
        }
    });
}
