//! Parked connections, and how connections end.

use super::super::pipe::ClientEnd;
use super::super::scenario::{TestServer, advance, settle, with_virtual_time};
use super::client::{CANCEL, GOAWAY, Http2Client, LAST, PING, RST_STREAM, Replies, WINDOW_MAX};
use crate::net::connection_table::DrainScope;
use crate::service::{CloseReason, Phase, ResponseOutcome};
use selvedge_proto::http2::ConnectionError;

#[test]
fn a_parked_connection_loses_nothing() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        for _ in 0..4 {
            assert_eq!(client.fetch("/ok").await.text(), "/ok");
            advance(2).await;
            assert!(client.client.pipe.is_parked());
            assert_eq!(client.client.phase(), Phase::Idle);
        }
        // A frame whose parts arrive before and after it is parked.
        let mut frame = Vec::from([0, 0, 8, PING, 0, 0, 0, 0, 0]);
        frame.extend_from_slice(b"in parts");
        for piece in frame.chunks(6) {
            client.client.send(piece).await;
            advance(2).await;
            assert!(client.client.pipe.is_parked());
        }
        client.send().await;
        assert_eq!(client.frames(PING)[0].payload, b"in parts");
        client.client.end(ClientEnd::Ended).await;
        assert_eq!(client.client.closed(), Some(CloseReason::ClientClosed));
    });
}

#[test]
fn a_connection_with_a_stream_is_not_parked() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        client.fetch("/ok").await;
        let stream = client.get("/slow/20");
        client.send().await;
        for _ in 0..10 {
            server.park().await;
            advance(1).await;
            assert!(!client.client.pipe.is_parked());
        }
        advance(11).await;
        client.send().await;
        assert_eq!(client.response(stream).status, 200);
    });
}

#[test]
fn a_drained_connection_ends_in_two_steps() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect_with(&server, Replies::Nothing, &[]).await;
        client.frame(4, LAST, 0, &[]);
        let slow = client.get("/slow/5");
        client.send().await;
        server.drain();
        // The connection notices it at its next event.
        client.frame(PING, 0, 0, b"an event");
        client.send().await;
        assert_eq!(client.goaways(), [(WINDOW_MAX, 0)]);
        let in_flight = client.get("/ok");
        client.send().await;
        assert_eq!(client.response(in_flight).text(), "/ok", "nothing is lost");
        client.frame(PING, LAST, 0, b"shutdown");
        client.send().await;
        assert_eq!(client.goaways(), [(WINDOW_MAX, 0), (in_flight, 0)]);
        let late = client.get("/ok");
        client.send().await;
        assert!(!client.has_response(late));
        assert_eq!(client.client.closed(), None);
        advance(6).await;
        client.send().await;
        assert_eq!(client.response(slow).text(), "/slow/5");
        assert!(client.client.pipe.is_write_shutdown());
        let (reason, seconds) = client.client.wait_closed().await;
        assert!(reason == CloseReason::Draining && seconds <= 6, "{reason:?} after {seconds} s");
        assert_eq!(client.reported().len(), 2);
    });
}

#[test]
fn idle_connections_end_soon_when_the_server_drains() {
    with_virtual_time(async || {
        for is_parked in [false, true] {
            let server = TestServer::new();
            let mut client = Http2Client::connect(&server).await;
            let mut silent = Http2Client::connect(&server).await;
            let mut new = Http2Client::connect(&server).await;
            client.fetch("/ok").await;
            silent.fetch("/ok").await;
            silent.replies = Replies::Nothing;
            if is_parked {
                server.park().await;
            }
            server.drain();
            client.send().await;
            new.send().await;
            for (client, last) in [(&mut client, 1), (&mut new, 0)] {
                assert_eq!(client.goaways(), [(WINDOW_MAX, 0), (last, 0)]);
                client.client.end(ClientEnd::Ended).await;
                assert_eq!(client.client.closed(), Some(CloseReason::Draining));
            }
            advance(2).await;
            silent.send().await;
            assert_eq!(silent.goaways(), [(WINDOW_MAX, 0), (1, 0)], "it has a second to notice");
            let (reason, seconds) = silent.client.wait_closed().await;
            assert!(reason == CloseReason::Draining && seconds <= 6, "{reason:?} after {seconds} s");
            assert_eq!(server.worker.connections.count(), 0);
        }
    });
}

#[test]
fn a_response_that_is_being_sent_is_completed() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        client.client.pipe.set_window(1_000);
        let stream = client.get("/bytes/300000");
        client.send().await;
        server.drain();
        client.client.read(400_000).await;
        client.send().await;
        assert!(client.response(stream).is_complete);
        assert_eq!(client.goaways().len(), 2);
        client.client.end(ClientEnd::Ended).await;
        assert_eq!(client.client.closed(), Some(CloseReason::Draining));
    });
}

#[test]
fn an_evicted_connection_learns_its_last_stream() {
    with_virtual_time(async || {
        for is_parked in [false, true] {
            let server = TestServer::new();
            let mut busy = Http2Client::connect(&server).await;
            busy.get("/never");
            busy.send().await;
            let mut idle = Http2Client::connect(&server).await;
            idle.fetch("/ok").await;
            if is_parked {
                server.park().await;
            }
            assert!(server.worker.connections.evict_idlest());
            idle.send().await;
            assert_eq!(idle.client.closed(), Some(CloseReason::Evicted));
            assert_eq!(idle.goaways(), [(1, 0)]);
            assert!(!server.worker.connections.evict_idlest(), "no other connection is idle");
            assert_eq!(busy.client.closed(), None);
        }
    });
}

#[test]
fn a_request_that_arrives_with_an_interrupt_is_served() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        client.fetch("/ok").await;
        let interrupts: [fn(&TestServer); 2] = [
            |server| server.worker.connections.park_idle(),
            |server| assert!(server.worker.connections.evict_idlest()),
        ];
        for interrupt in interrupts {
            let stream = client.get("/slow/1");
            client.push();
            interrupt(&server);
            client.send().await;
            assert!(!client.client.pipe.is_parked());
            advance(2).await;
            client.send().await;
            assert_eq!(client.response(stream).text(), "/slow/1");
        }
        assert_eq!(client.client.closed(), None);
    });
}

#[test]
fn an_abort_ends_everything_and_reports_it_once() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &[]).await;
        let streams = [client.get("/never"), client.get("/bytes/100000"), client.post("/read")];
        client.send().await;
        server.drain();
        server.worker.connections.abort(DrainScope::All);
        settle().await;
        assert_eq!(client.client.closed(), Some(CloseReason::ShutdownTimeout));
        let statuses = [499, 200, 499];
        assert_eq!(client.reported(), streams.into_iter().map(u64::from).zip(statuses).collect());
        assert!(client.client.finished().iter().all(|finished| finished.outcome == ResponseOutcome::Aborted));
        assert_eq!(server.worker.connections.count(), 0);
    });
}

#[test]
fn a_client_ends_its_connection() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut polite = Http2Client::connect(&server).await;
        let slow = polite.get("/slow/3");
        polite.frame(GOAWAY, 0, 0, &[0; 8]);
        polite.send().await;
        assert_eq!(polite.client.closed(), None);
        advance(4).await;
        polite.send().await;
        assert_eq!(polite.response(slow).text(), "/slow/3");
        // It may still send frames for what it receives, and a reset would destroy that.
        assert_eq!(polite.client.closed(), None);
        polite.client.end(ClientEnd::Ended).await;
        assert_eq!(polite.client.closed(), Some(CloseReason::ClientClosed));
        let mut abrupt = Http2Client::connect(&server).await;
        let stream = abrupt.get("/never");
        abrupt.send().await;
        abrupt.client.end(ClientEnd::Ended).await;
        assert_eq!(abrupt.client.closed(), Some(CloseReason::ClientDisconnected));
        assert_eq!(abrupt.reported(), [(stream.into(), 499)].into());
    });
}

#[test]
fn a_violation_ends_the_connection_with_its_code() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let stream = client.get("/never");
        client.send().await;
        // The stream of a response cannot be one that was never opened.
        client.frame(RST_STREAM, 0, 99, &CANCEL.to_be_bytes());
        client.send().await;
        assert_eq!(client.goaways(), [(stream, 1)]);
        assert!(client.client.pipe.is_write_shutdown(), "the client may read it");
        client.client.end(ClientEnd::Ended).await;
        assert_eq!(client.client.closed(), Some(CloseReason::Http2(ConnectionError::StreamIdle)));
        assert_eq!(client.reported(), [(stream.into(), 499)].into());
    });
}
