//! Parking of idle connections, and what resumes them.

use super::pipe::ClientEnd;
use super::scenario::{Scenario, TestServer, advance, is_about, settle, with_virtual_time};
use crate::net::connection_table::DrainScope;
use crate::service::{CloseReason, Phase};

#[test]
fn an_idle_connection_is_parked_until_bytes_arrive() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let begun = Scenario::get("/ok").at(Phase::ReadingHead, &server).await;
        let slow = Scenario::get("/never").at(Phase::Processing, &server).await;
        let client = Scenario::get("/ok").at(Phase::Idle, &server).await;
        assert!(!client.pipe.is_parked());
        advance(2).await;
        assert!(client.pipe.is_parked());
        assert_eq!(client.phase(), Phase::Idle);
        assert!(!begun.pipe.is_parked() && !slow.pipe.is_parked());
        for count in 2..5 {
            client.send(Scenario::get("/ok").bytes()).await;
            assert_eq!(client.statuses(), vec![200; count]);
            assert!(!client.pipe.is_parked());
            advance(2).await;
            assert!(client.pipe.is_parked());
        }
        client.end(ClientEnd::Ended).await;
        assert_eq!(client.closed(), Some(CloseReason::ClientClosed));
    });
}

#[test]
fn parking_does_not_extend_the_keep_alive_timeout() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &server).await;
        let (reason, seconds) = client.wait_closed().await;
        assert_eq!(reason, CloseReason::KeepAliveTimeout);
        assert!(is_about(seconds, 60), "{seconds}");
        assert_eq!(client.phase_at_close(), Phase::Idle);
    });
}

#[test]
fn a_head_after_parking_has_its_own_timeout() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &server).await;
        advance(50).await;
        client.send("GET /ok HTTP/1.1\r\n").await;
        assert_eq!(client.phase(), Phase::ReadingHead);
        advance(9).await;
        assert_eq!(client.statuses(), [200]);
        advance(2).await;
        assert_eq!(client.statuses(), [200, 408]);
    });
}

#[test]
fn parked_connections_end_as_idle_ones_do() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let evicted = Scenario::get("/ok").at(Phase::Idle, &server).await;
        advance(1).await;
        let closed = Scenario::get("/ok").at(Phase::Idle, &server).await;
        let drained = Scenario::get("/ok").at(Phase::Idle, &server).await;
        let aborted = Scenario::get("/ok").at(Phase::Idle, &server).await;
        advance(2).await;
        assert!([&evicted, &closed, &drained, &aborted].iter().all(|client| client.pipe.is_parked()));
        assert!(server.worker.connections.evict_idlest());
        closed.end(ClientEnd::Reset).await;
        assert_eq!(evicted.closed(), Some(CloseReason::Evicted));
        assert_eq!(closed.closed(), Some(CloseReason::Reset));
        aborted.pipe.push(b"GET /never HTTP/1.1\r\nHost: test\r\n\r\n");
        server.drain();
        server.pass_notice().await;
        assert_eq!(drained.closed(), Some(CloseReason::Draining));
        assert_eq!(aborted.phase(), Phase::Processing, "received bytes are served");
        server.worker.connections.abort(DrainScope::All);
        settle().await;
        assert_eq!(aborted.closed(), Some(CloseReason::ShutdownTimeout));
        assert_eq!(server.worker.connections.count(), 0);
    });
}

#[test]
fn an_abort_ends_parked_connections() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &server).await;
        server.park().await;
        assert!(client.pipe.is_parked());
        server.worker.connections.abort(DrainScope::All);
        settle().await;
        assert_eq!(client.closed(), Some(CloseReason::AppReplacedTimeout));
    });
}

#[test]
fn a_stop_together_with_park_ends_the_connection() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &server).await;
        server.worker.connections.park_idle();
        server.drain();
        server.pass_notice().await;
        assert_eq!(client.closed(), Some(CloseReason::Draining));
    });
}

#[test]
fn bytes_received_together_with_park_are_served() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &server).await;
        for count in 2..5 {
            client.pipe.push(&Scenario::get("/ok").bytes());
            server.worker.connections.park_idle();
            settle().await;
            assert_eq!(client.statuses(), vec![200; count]);
            assert_eq!(client.phase(), Phase::Idle);
        }
    });
}
