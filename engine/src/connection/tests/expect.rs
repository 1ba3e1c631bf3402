//! `Expect: 100-continue` (RFC 9110 §10.1.1): the interim response is sent only when the application reads the
//! content.

use super::scenario::{Scenario, TestServer, advance, with_virtual_time};
use crate::service::{CloseReason, Phase};

fn waiting(target: &str) -> Scenario {
    Scenario::post(target).field("Expect", "100-continue").content("hello")
}

#[test]
fn continue_is_sent_when_content_is_read() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = waiting("/late/5").at_head(&server).await;
        advance(4).await;
        assert_eq!(client.pipe.outgoing(), b"", "the application does not read yet");
        advance(2).await;
        assert_eq!(client.pipe.outgoing(), b"HTTP/1.1 100 Continue\r\n\r\n");
        client.send("hello").await;
        assert_eq!(client.statuses(), [100, 200]);
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn no_100_continue_for_a_client_that_sends_at_once() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = waiting("/read").sent(&server).await;
        assert_eq!(client.statuses(), [200]);
        let late = waiting("/late/5").at_head(&server).await;
        late.send("hello").await;
        advance(6).await;
        assert!(late.statuses().ends_with(&[200]));
        assert_eq!(late.phase(), Phase::Idle);
    });
}

#[test]
fn a_final_response_without_reading_closes() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = waiting("/ok").at_head(&server).await;
        assert_eq!((client.response().status, client.response().closes()), (200, true));
        // Content that is sent nevertheless is no request.
        client.send(Scenario::get("/ok").bytes()).await;
        assert_eq!(client.statuses(), [200]);
        assert_eq!(client.wait_closed().await.0, CloseReason::ClosedAfterResponse);
    });
}

#[test]
fn content_above_the_limit_is_refused_without_100_continue() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = waiting("/limit/4").at_head(&server).await;
        assert_eq!((client.response().status, client.response().closes()), (413, true));
        assert_eq!(client.wait_closed().await.0, CloseReason::ClosedAfterResponse);
    });
}

#[test]
fn no_100_continue_within_a_response() {
    with_virtual_time(async || {
        // The echo reads while it responds.
        let server = TestServer::new();
        let client = waiting("/echo").at_head(&server).await;
        assert!(client.pipe.outgoing().starts_with(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"));
        client.send("hello").await;
        assert_eq!(client.statuses(), [100, 200]);
        assert_eq!(client.responses()[1].text(), "hello");
        assert_eq!(client.phase(), Phase::Idle);
    });
}

#[test]
fn http_1_0_never_gets_100_continue() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let scenario = Scenario::request("POST", "/read", "HTTP/1.0").field("Expect", "100-continue").content("hello");
        let client = scenario.at(Phase::ReadingContent, &server).await;
        client.send("hello").await;
        assert_eq!(client.statuses(), [200]);
    });
}
