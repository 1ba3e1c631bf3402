//! A panic of the application ends one connection and affects no other.

use super::scenario::{Scenario, TestServer, advance, with_virtual_time};
use crate::limits::Limits;
use crate::service::{Body, Chunks, CloseReason, HalfClosed, Phase, Request, Response, Service, StreamError};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use std::pin::Pin;
use std::task::{Context, Poll};

#[test]
fn a_panic_gets_500_and_closes_its_connection() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let other = Scenario::get("/slow/5").at(Phase::Processing, &server).await;
        let client = Scenario::get("/panic").sent(&server).await;
        assert_eq!((client.response().status, client.response().closes()), (500, true));
        assert!(!client.response().text().contains("the application broke"), "the client is not told why");
        assert_eq!(client.closed(), Some(CloseReason::Panicked));
        let finished = client.finished();
        assert_eq!((finished[0].status, finished[0].reason), (500, Some("the application panicked")));
        let [message] = &server.recorder.panics()[..] else { panic!("one panic") };
        assert!(
            message.starts_with("the application broke at ") && message.contains("tests/test_app.rs:"),
            "{message}"
        );
        advance(6).await;
        assert_eq!(other.statuses(), [200]);
        assert_eq!(other.phase(), Phase::Idle);
    });
}

#[test]
fn a_panic_is_the_close_reason_even_with_unread_content() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::post("/panic").content("hello").at_head(&server).await;
        assert_eq!(client.response().status, 500);
        assert_eq!(client.wait_closed().await.0, CloseReason::Panicked);
    });
}

#[test]
fn responses_before_a_panic_are_sent() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        client.send([Scenario::get("/ok").bytes(), Scenario::get("/panic").bytes()].concat()).await;
        assert_eq!(client.statuses(), [200, 500]);
    });
}

/// A service that panics outside of `call`.
struct PanickingHalfClosed;

impl Service for PanickingHalfClosed {
    async fn call(&self, _: &mut Request) -> Response {
        Response::new(StatusCode::OK)
    }

    fn half_closed(&self) -> HalfClosed {
        panic!("no result for that")
    }
}

#[test]
fn a_panic_before_the_first_request_ends_its_connection() {
    with_virtual_time(async || {
        let server = TestServer::serving(PanickingHalfClosed, Limits::default());
        let client = Scenario::get("/").sent(&server).await;
        assert_eq!(client.closed(), Some(CloseReason::Panicked));
        assert!(server.recorder.panics()[0].starts_with("no result for that at "));
    });
}

struct Broken;

impl Chunks for Broken {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        panic!("the stream broke")
    }
}

#[test]
fn a_panic_in_a_stream_aborts_the_response() {
    with_virtual_time(async || {
        let service = async |request: &mut Request| match request.path() {
            "/stream" => Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks: Box::pin(Broken) }),
            _ => Response::new(StatusCode::OK),
        };
        let server = TestServer::serving(service, Limits::default());
        let client = Scenario::get("/stream").sent(&server).await;
        assert_eq!(client.closed(), Some(CloseReason::Panicked));
        assert!(client.responses().iter().all(|response| !response.is_complete));
        assert!(server.recorder.panics()[0].starts_with("the stream broke at "));
        assert_eq!(Scenario::get("/").sent(&server).await.statuses(), [200]);
    });
}
