//! A hand-over to another server: new streams are refused, and those with a lease last.

use super::super::hand_over::{AFTER_TIMEOUT, LeasedStreams};
use super::super::pipe::ClientEnd;
use super::super::scenario::{TestServer, advance, with_virtual_time};
use super::client::{CANCEL, Http2Client, WINDOW_MAX};
use crate::limits::Limits;
use crate::service::CloseReason;

#[test]
fn a_lease_keeps_its_connection_until_the_end_of_the_stream() {
    with_virtual_time(async || {
        let streams = LeasedStreams::default();
        let server = TestServer::serving(streams.clone(), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let mut unleased = Http2Client::connect(&server).await;
        let (events, late) = (client.get("/leased"), client.get("/"));
        unleased.get("/unleased");
        client.send().await;
        unleased.send().await;
        server.hand_over();
        client.send().await;
        unleased.send().await;
        assert_eq!(client.goaways(), [(WINDOW_MAX, 0), (late, 0)], "it opens no more streams");
        advance(AFTER_TIMEOUT).await;
        client.send().await;
        assert_eq!(client.response(late).text(), "late");
        assert_eq!(unleased.client.closed(), Some(CloseReason::ShutdownTimeout));
        advance(10 * AFTER_TIMEOUT).await;
        streams.leased.bytes("event");
        client.send().await;
        assert_eq!((client.response(events).text(), client.client.closed()), ("event", None));
        streams.leased.give(None);
        client.send().await;
        assert!(client.response(events).is_complete);
        client.client.end(ClientEnd::Ended).await;
        assert_eq!(client.client.closed(), Some(CloseReason::Draining));
        assert_eq!(server.worker.connections.count(), 0);
    });
}

#[test]
fn a_stream_without_a_lease_is_reset_at_the_timeout_beside_one_with_a_lease() {
    with_virtual_time(async || {
        let streams = LeasedStreams::default();
        let server = TestServer::serving(streams.clone(), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let (events, others) = (client.get("/leased"), client.get("/unleased"));
        client.send().await;
        server.hand_over();
        advance(20).await;
        client.send().await;
        assert_eq!(client.response(others).reset, None);
        advance(20).await;
        client.send().await;
        assert_eq!(client.response(others).reset, Some(CANCEL));
        streams.leased.bytes("event");
        client.send().await;
        let response = client.response(events);
        assert_eq!((response.text(), response.reset, client.client.closed()), ("event", None, None));
        // The last stream ends the connection.
        streams.lease.end();
        advance(AFTER_TIMEOUT).await;
        assert_eq!(client.client.closed(), Some(CloseReason::ShutdownTimeout));
    });
}

#[test]
fn a_connection_whose_lease_was_ended_has_the_shutdown_timeout() {
    with_virtual_time(async || {
        let streams = LeasedStreams::default();
        let server = TestServer::serving(streams.clone(), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        client.get("/leased");
        client.send().await;
        streams.lease.end();
        server.hand_over();
        client.send().await;
        advance(20).await;
        assert_eq!(client.client.closed(), None);
        advance(20).await;
        assert_eq!(client.client.closed(), Some(CloseReason::ShutdownTimeout));
    });
}
