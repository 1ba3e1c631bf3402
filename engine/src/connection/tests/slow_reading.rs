//! A client that reads its response slowly, or not at all.

use super::pipe::ClientEnd;
use super::scenario::{Client, Scenario, TestServer, advance, is_about, with_virtual_time};
use crate::service::{CloseReason, Phase, ResponseOutcome};

#[test]
fn a_client_that_reads_nothing_closes_after_the_send_timeout() {
    with_virtual_time(async || {
        let server = TestServer::new();
        for target in ["/ok", "/bytes/10000", "/bytes/100000"] {
            let client = Scenario::get(target).at(Phase::Sending, &server).await;
            let (reason, seconds) = client.wait_closed().await;
            assert_eq!(reason, CloseReason::SendTooSlow, "{target}");
            assert!(is_about(seconds, 30), "{seconds}");
            assert_eq!(client.pipe.outgoing().len(), 10);
            assert!(client.pipe.is_reset(), "the kernel keeps no unsent bytes");
        }
    });
}

/// Reads a response of a million bytes at a rate. Returns how long the connection lived.
async fn read_at(bytes_each_second: usize, seconds: u64) -> (Option<CloseReason>, ResponseOutcome) {
    let server = TestServer::new();
    let client = Scenario::get("/bytes/1000000").at(Phase::Sending, &server).await;
    for _ in 0..seconds {
        client.read(bytes_each_second).await;
        advance(1).await;
        if client.closed().is_some() {
            break;
        }
    }
    let outcome = client.finished().first().map_or(ResponseOutcome::Complete, |finished| finished.outcome);
    (client.closed(), outcome)
}

#[test]
fn a_response_read_below_the_minimum_average_rate_times_out() {
    with_virtual_time(async || {
        assert_eq!(read_at(100, 25).await.0, None, "the first silence is allowed to everybody");
        assert_eq!(read_at(100, 60).await, (Some(CloseReason::SendTooSlow), ResponseOutcome::Aborted));
        assert_eq!(read_at(400, 200).await, (Some(CloseReason::SendTooSlow), ResponseOutcome::Aborted));
        assert_eq!(read_at(600, 1_500).await, (None, ResponseOutcome::Complete));
    });
}

#[test]
fn a_slow_client_gets_the_complete_response() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/bytes/50000").at(Phase::Sending, &server).await;
        client.pipe.send_bytes_max.set(7);
        for _ in 0..51 {
            client.read(1000).await;
        }
        assert_eq!(client.response().content, super::test_app::content(50_000));
        assert_eq!(client.phase(), Phase::Idle);
        assert_eq!(client.wait_closed().await.0, CloseReason::KeepAliveTimeout);
        assert!(!client.pipe.is_reset(), "a reset could destroy bytes that the client has not read");
    });
}

/// Returns how many responses were reported as incomplete.
fn aborted_count(client: &Client<'_>) -> usize {
    client.finished().iter().filter(|finished| finished.outcome == ResponseOutcome::Aborted).count()
}

#[test]
fn a_client_that_disconnects_during_its_response() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/bytes/100000").at(Phase::Sending, &server).await;
        client.end(ClientEnd::Reset).await;
        assert_eq!(client.closed(), Some(CloseReason::Reset));
        assert_eq!(aborted_count(&client), 1);
        let while_called = Scenario::get("/slow/5").at(Phase::Processing, &server).await;
        while_called.end(ClientEnd::Reset).await;
        advance(6).await;
        assert_eq!(while_called.closed(), Some(CloseReason::Reset));
    });
}
