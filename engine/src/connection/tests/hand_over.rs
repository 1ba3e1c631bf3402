//! A hand-over to another server, seen from connections in every phase.

use super::scenario::{Scenario, TestServer, advance, settle, with_virtual_time};
use super::streams::TestStream;
use crate::limits::Limits;
use crate::net::connection_table::DrainScope;
use crate::response_lease::ResponseLease;
use crate::service::{Body, CloseReason, Phase, Request, Response, Service};
use selvedge_proto::StatusCode;
use std::time::Duration;
use tokio::time::sleep;

/// Longer than the shutdown timeout.
pub(super) const AFTER_TIMEOUT: u64 = 40;

/// Responds with a stream: with the lease at `/leased`, without one at `/unleased`. Other requests take a second.
#[derive(Clone, Default)]
pub(super) struct LeasedStreams {
    pub(super) leased: TestStream,
    pub(super) lease: ResponseLease,
    unleased: TestStream,
}

impl Service for LeasedStreams {
    async fn call(&self, request: &mut Request) -> Response {
        let response = |stream: &TestStream| {
            Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks: Box::pin(stream.clone()) })
        };
        match request.path() {
            "/leased" => response(&self.leased).lease(self.lease.clone()),
            "/unleased" => response(&self.unleased),
            _ => {
                sleep(Duration::from_secs(1)).await;
                Response::new(StatusCode::OK).body("late")
            }
        }
    }
}

#[test]
fn a_lease_keeps_a_stream_until_its_end() {
    with_virtual_time(async || {
        let streams = LeasedStreams::default();
        let server = TestServer::serving(streams.clone(), Limits::default());
        let leased = Scenario::get("/leased").sent(&server).await;
        let unleased = Scenario::get("/unleased").sent(&server).await;
        let idle = Scenario::get("/").sent(&server).await;
        advance(1).await;
        assert_eq!(idle.phase(), Phase::Idle);
        let busy = Scenario::get("/").sent(&server).await;
        server.hand_over();
        advance(3).await;
        assert_eq!(idle.closed(), Some(CloseReason::Draining));
        assert!(busy.response().closes());
        assert_eq!(busy.closed(), Some(CloseReason::Draining));
        assert_eq!(unleased.closed(), None);
        advance(AFTER_TIMEOUT).await;
        assert_eq!(unleased.closed(), Some(CloseReason::ShutdownTimeout));
        // Each further time, too.
        advance(10 * AFTER_TIMEOUT).await;
        streams.leased.bytes("event");
        settle().await;
        assert_eq!((leased.response().text(), leased.closed()), ("event", None));
        streams.leased.give(None);
        settle().await;
        assert!(leased.response().is_complete);
        let (reason, seconds) = leased.wait_closed().await;
        assert!(reason == CloseReason::Draining && seconds <= 3, "{reason:?} after {seconds} s");
        assert_eq!(server.worker.connections.count(), 0);
    });
}

#[test]
fn a_stream_that_begins_during_a_hand_over_lasts() {
    with_virtual_time(async || {
        let streams = LeasedStreams::default();
        let server = TestServer::serving(streams.clone(), Limits::default());
        let client = Scenario::get("/leased").at(Phase::ReadingHead, &server).await;
        server.hand_over();
        client.send("\n").await;
        advance(AFTER_TIMEOUT).await;
        streams.leased.bytes("event");
        settle().await;
        assert_eq!((client.response().text(), client.response().closes()), ("event", true));
        streams.leased.give(None);
        settle().await;
        assert_eq!(client.closed(), Some(CloseReason::Draining));
    });
}

#[test]
fn a_stream_ends_with_its_lease_or_at_a_stop() {
    with_virtual_time(async || {
        let streams = LeasedStreams::default();
        let server = TestServer::serving(streams.clone(), Limits::default());
        let client = Scenario::get("/leased").sent(&server).await;
        streams.lease.end();
        server.hand_over();
        advance(AFTER_TIMEOUT).await;
        assert_eq!(client.closed(), Some(CloseReason::ShutdownTimeout));

        let server = TestServer::serving(LeasedStreams::default(), Limits::default());
        let client = Scenario::get("/leased").sent(&server).await;
        server.hand_over();
        advance(AFTER_TIMEOUT).await;
        server.drain();
        advance(1).await;
        assert_eq!(client.closed(), None, "its time begins now");
        server.worker.connections.abort(DrainScope::All);
        settle().await;
        assert_eq!(client.closed(), Some(CloseReason::ShutdownTimeout));
    });
}
