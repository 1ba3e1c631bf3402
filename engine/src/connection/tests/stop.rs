//! A graceful shutdown, seen from connections in every phase.

use super::pipe::ClientEnd;
use super::scenario::{Scenario, TestServer, advance, settle, with_virtual_time};
use crate::net::connection_table::DrainScope;
use crate::service::{CloseReason, Phase};

#[test]
fn an_idle_connection_has_a_moment_for_a_last_request() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let silent = Scenario::get("/ok").at(Phase::Idle, &server).await;
        let requesting = Scenario::get("/ok").at(Phase::Idle, &server).await;
        let first = server.connect();
        server.drain();
        advance(1).await;
        assert_eq!([&silent, &requesting, &first].map(|client| client.closed()), [None; 3]);
        for client in [&requesting, &first] {
            client.send(Scenario::get("/ok").bytes()).await;
            let last = client.responses().pop().unwrap();
            assert_eq!((last.status, last.closes()), (200, true));
            assert_eq!(client.closed(), Some(CloseReason::Draining));
        }
        server.pass_notice().await;
        assert_eq!(silent.closed(), Some(CloseReason::Draining));
        assert_eq!(server.worker.connections.count(), 0);
    });
}

#[test]
fn a_connection_that_becomes_idle_during_a_stop_has_its_own_moment() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/bytes/100000").at(Phase::Sending, &server).await;
        server.drain();
        server.pass_notice().await;
        client.read(200_000).await;
        advance(1).await;
        assert_eq!(client.closed(), None, "the client may have begun its next request");
        client.send(Scenario::get("/ok").bytes()).await;
        assert!(client.responses().pop().unwrap().closes());
        assert_eq!(client.closed(), Some(CloseReason::Draining));
    });
}

#[test]
fn a_request_in_progress_finishes_with_connection_close() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let busy = Scenario::get("/slow/5").at(Phase::Processing, &server).await;
        let head = Scenario::get("/ok").at(Phase::ReadingHead, &server).await;
        let new = server.connect();
        let content = Scenario::post("/read").content("hello").at(Phase::ReadingContent, &server).await;
        settle().await;
        server.drain();
        advance(6).await;
        head.send("\n").await;
        content.send("hello").await;
        server.worker.end_notice();
        settle().await;
        assert_eq!(new.closed(), Some(CloseReason::Draining), "nothing was received in time");
        for client in [busy, head, content] {
            assert_eq!((client.response().status, client.response().closes()), (200, true));
            assert_eq!(client.closed(), Some(CloseReason::Draining));
        }
    });
}

#[test]
fn a_response_begun_before_the_stop_is_the_last() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/bytes/100000").at(Phase::Sending, &server).await;
        server.drain();
        settle().await;
        assert_eq!(client.phase(), Phase::Sending);
        client.read(200_000).await;
        assert!(client.response().is_complete && !client.response().closes());
        advance(3).await;
        assert_eq!(client.closed(), Some(CloseReason::Draining), "it is not waited for until the limit");
    });
}

#[test]
fn open_connections_are_aborted_at_the_shutdown_timeout() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let clients = [
            Scenario::get("/ok").at(Phase::ReadingHead, &server).await,
            Scenario::get("/never").at(Phase::Processing, &server).await,
            Scenario::post("/read").content("hello").at(Phase::ReadingContent, &server).await,
            Scenario::get("/bytes/100000").at(Phase::Sending, &server).await,
            Scenario::get("/\\").at(Phase::Lingering, &server).await,
        ];
        let phases: Vec<Phase> = clients.iter().map(|client| client.phase()).collect();
        server.drain();
        settle().await;
        assert!(clients.iter().all(|client| client.closed().is_none()));
        server.worker.connections.abort(DrainScope::All);
        settle().await;
        for (client, phase) in clients.iter().zip(phases) {
            assert_eq!((client.closed(), client.phase_at_close()), (Some(CloseReason::ShutdownTimeout), phase));
        }
        assert_eq!(server.worker.connections.count(), 0);
    });
}

#[test]
fn content_that_arrives_during_a_stop_is_discarded() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::post("/slow/5").content("hello").at_head(&server).await;
        server.drain();
        advance(6).await;
        assert!(client.response().closes());
        client.send("hello").await;
        client.end(ClientEnd::Ended).await;
        assert_eq!(client.closed(), Some(CloseReason::Draining));
    });
}

#[test]
fn a_silent_connection_of_a_stopping_server_is_closed() {
    with_virtual_time(async || {
        let server = TestServer::new();
        server.drain();
        let (silent, requesting) = (server.connect(), server.connect());
        requesting.pipe.push(&Scenario::get("/ok").bytes());
        server.pass_notice().await;
        assert_eq!(silent.closed(), Some(CloseReason::Draining));
        assert_eq!((requesting.statuses(), requesting.closed()), (vec![200], Some(CloseReason::Draining)));
    });
}
