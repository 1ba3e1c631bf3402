//! Pipelining: order of responses, how many leave together, and yielding.

use super::scenario::{Scenario, TestServer, advance, settle, with_virtual_time};
use crate::limits::{ENCODED_SLICE_BYTES, REQUESTS_PER_YIELD};
use crate::service::{CloseReason, Phase};

/// GETs of `/ok/0`, `/ok/1` and so on, in one piece.
fn batch(count: usize) -> Vec<u8> {
    (0..count).flat_map(|number| Scenario::get(&format!("/ok/{number}")).bytes()).collect()
}

#[test]
fn responses_have_the_order_of_their_requests() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        client.send(batch(500)).await;
        let texts: Vec<String> = client.responses().iter().map(|response| response.text().to_owned()).collect();
        let expected: Vec<String> = (0..500).map(|number| format!("/ok/{number}")).collect();
        assert_eq!(texts, expected);
        assert_eq!(client.phase(), Phase::Idle);
        assert_eq!(client.finished().len(), 500);
    });
}

#[test]
fn responses_of_a_batch_leave_in_one_send() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        client.send(batch(20)).await;
        assert_eq!(client.statuses().len(), 20);
        assert_eq!(client.pipe.sends().len(), 1);
        client.send(Scenario::get("/ok").bytes()).await;
        assert_eq!(client.pipe.sends().len(), 2, "a response has nothing to wait for");
    });
}

#[test]
fn large_content_leaves_with_its_head() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/bytes/100000").sent(&server).await;
        assert_eq!(client.response().content.len(), 100_000);
        let sends = if client.has_session() { 100_000_usize.div_ceil(ENCODED_SLICE_BYTES) } else { 1 };
        assert_eq!(client.pipe.sends().len(), sends);
    });
}

#[test]
fn a_slow_application_does_not_delay_earlier_responses() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        let requests = [batch(3), Scenario::get("/slow/100").bytes(), Scenario::get("/ok").bytes()].concat();
        client.send(requests).await;
        assert_eq!(client.statuses(), [200; 3]);
        assert_eq!(client.phase(), Phase::Processing);
        advance(101).await;
        assert_eq!(client.statuses(), [200; 5]);
        assert_eq!(client.responses()[3].text(), "/slow/100");
    });
}

#[test]
fn waiting_content_does_not_delay_earlier_responses() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        client.send([batch(1), Scenario::post("/read").content("hello").head()].concat()).await;
        assert_eq!(client.statuses(), [200]);
        client.send("hello").await;
        assert_eq!(client.responses()[1].text(), "hello");
    });
}

#[test]
fn other_connections_are_served_between_many_requests() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let (first, second) = (server.connect(), server.connect());
        settle().await;
        let count = 4 * REQUESTS_PER_YIELD as usize;
        first.pipe.push(&batch(count));
        second.pipe.push(&batch(1));
        settle().await;
        assert_eq!((first.statuses().len(), second.statuses().len()), (count, 1));
        let before = server.recorder.before(second.peer);
        assert!(before <= REQUESTS_PER_YIELD as usize, "{before}");
    });
}

#[test]
fn a_client_that_does_not_read_stops_the_reading_of_its_requests() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        client.pipe.set_window(0);
        client.send(batch(10_000)).await;
        // One buffer of requests, and one of responses.
        let served = client.finished().len();
        assert!(served < 200, "{served}");
        assert_eq!(client.phase(), Phase::Sending);
        assert!(client.pipe.unreceived() > 10_000 * 30 - 32 * 1024);
        for _ in 0..10_000 {
            client.read(1000).await;
        }
        assert_eq!(client.statuses().len(), 10_000);
    });
}

#[test]
fn no_response_follows_a_close() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        let called = Scenario::get("/ok/last").field("Connection", "foo, Close").bytes();
        client.send([batch(1), called, batch(3)].concat()).await;
        assert_eq!(client.statuses(), [200, 200]);
        assert_eq!(client.responses()[1].text(), "/ok/last");
        assert!(client.responses()[1].closes() && !client.responses()[0].closes());
        assert_eq!(client.phase(), Phase::Lingering, "what is behind is discarded, not reset");
        assert_eq!(client.wait_closed().await.0, CloseReason::CloseRequested);
    });
}

#[test]
fn a_refusal_follows_earlier_responses() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        client.send([batch(2), b"GET / HTTP/1.1\r\nBroken\r\n\r\n".to_vec(), batch(1)].concat()).await;
        assert_eq!(client.statuses(), [200, 200, 400]);
        assert!(client.responses()[2].closes());
        let finished = client.finished();
        assert_eq!(finished[2].reject.map(|reject| reject.name()), Some("ColonMissing"));
        assert_eq!((finished[2].line.as_str(), finished[2].is_request), ("GET / HTTP/1.1", false));
    });
}
