//! An application that panics loses one connection and nothing else.

use super::scenario::{Scenario, World, pass, virtually};
use crate::limits::Limits;
use crate::service::{Body, Chunks, CloseReason, HalfClosed, Phase, Request, Response, Service, StreamError};
use bytes::Bytes;
use selvedge_proto::Status;
use std::pin::Pin;
use std::task::{Context, Poll};

#[test]
fn a_panic_is_a_500_and_the_end_of_its_connection() {
    virtually(async {
        let world = World::new();
        let other = Scenario::get("/slow/5").at(Phase::Answering, &world).await;
        let client = Scenario::get("/panic").sent(&world).await;
        assert_eq!((client.reply().status, client.reply().closes()), (500, true));
        assert!(!client.reply().text().contains("the site broke"), "the client is not told why");
        assert_eq!(client.closed(), Some(CloseReason::Panicked));
        let finished = client.finished();
        assert_eq!((finished[0].status, finished[0].reason), (500, Some("the application panicked")));
        let [message] = &world.recorder.panics()[..] else { panic!("one panic") };
        assert!(message.starts_with("the site broke at ") && message.contains("tests/site.rs:"), "{message}");
        pass(6).await;
        assert_eq!(other.statuses(), [200]);
        assert_eq!(other.phase(), Phase::Idle);
    });
}

#[test]
fn a_panic_is_the_reason_even_with_content_unread() {
    virtually(async {
        let world = World::new();
        let client = Scenario::post("/panic").content("hello").at_head(&world).await;
        assert_eq!(client.reply().status, 500);
        assert_eq!(client.ends().await.0, CloseReason::Panicked);
    });
}

#[test]
fn answers_before_a_panic_are_not_lost() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        client.send([Scenario::get("/ok").bytes(), Scenario::get("/panic").bytes()].concat()).await;
        assert_eq!(client.statuses(), [200, 500]);
    });
}

/// A service that cannot even be asked how it serves.
struct Unanswerable;

impl Service for Unanswerable {
    async fn call(&self, _: &mut Request) -> Response {
        Response::new(Status::OK)
    }

    fn half_closed(&self) -> HalfClosed {
        panic!("there is no answer to that")
    }
}

#[test]
fn a_panic_before_the_first_request_ends_its_connection() {
    virtually(async {
        let world = World::serving(Unanswerable, Limits::default());
        let client = Scenario::get("/").sent(&world).await;
        assert_eq!(client.closed(), Some(CloseReason::Panicked));
        assert!(world.recorder.panics()[0].starts_with("there is no answer to that at "));
    });
}

struct Broken;

impl Chunks for Broken {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        panic!("the stream broke")
    }
}

#[test]
fn a_panic_in_a_stream_cuts_it() {
    virtually(async {
        let service = async |request: &mut Request| match request.path() {
            "/stream" => Response::new(Status::OK).body(Body::Stream { length: None, chunks: Box::pin(Broken) }),
            _ => Response::new(Status::OK),
        };
        let world = World::serving(service, Limits::default());
        let client = Scenario::get("/stream").sent(&world).await;
        assert_eq!(client.closed(), Some(CloseReason::Panicked));
        assert!(client.replies().iter().all(|reply| !reply.is_complete));
        assert!(world.recorder.panics()[0].starts_with("the stream broke at "));
        assert_eq!(Scenario::get("/").sent(&world).await.statuses(), [200]);
    });
}
