//! Waiting for a head: the first head's time starts at accept, a later one's at its first byte; a connection without
//! a partial head is idle.

use super::pipe::ClientEnd;
use super::scenario::{Scenario, TestServer, advance, is_about, settle, with_virtual_time};
use crate::limits::Limits;
use crate::service::{CloseReason, Phase};
use selvedge_proto::http2::ConnectionError;
use std::time::Duration;

#[test]
fn one_byte_each_second_does_not_extend_the_first_header_timeout() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        let bytes = Scenario::get("/ok").field("X", &"x".repeat(60)).bytes();
        for (second, byte) in bytes[..60].iter().enumerate() {
            client.send([*byte]).await;
            advance(1).await;
            let expected: &[u16] = if second < 9 { &[] } else { &[408] };
            assert!(client.statuses() == expected || second == 9, "{:?} in second {second}", client.statuses());
        }
        assert_eq!(client.closed(), Some(CloseReason::HeadTooSlow));
        assert!(client.response().closes());
        let finished = client.finished();
        assert_eq!((finished[0].status, finished[0].is_request, &finished[0].line[..8]), (408, false, "GET /ok "));
    });
}

#[test]
fn silence_after_connecting_closes_without_a_response() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        let (reason, seconds) = client.wait_closed().await;
        assert_eq!(reason, CloseReason::NothingReceived);
        assert!(is_about(seconds, 10), "{seconds}");
        assert_eq!(client.pipe.outgoing(), b"");
        assert_eq!(client.finished(), []);
    });
}

#[test]
fn a_later_header_timeout_starts_at_the_first_byte() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &server).await;
        advance(50).await;
        let second = Scenario::get("/ok/2").bytes();
        client.send(&second[..5]).await;
        advance(9).await;
        assert_eq!(client.phase(), Phase::ReadingHead);
        client.send(&second[5..]).await;
        assert_eq!(client.statuses(), [200, 200]);
        client.send(&second[..5]).await;
        let (reason, seconds) = client.wait_closed().await;
        // The connection lingers after the response, because the client does not close.
        assert_eq!((reason, is_about(seconds, 10 + 5)), (CloseReason::HeadTooSlow, true), "{seconds}");
        assert_eq!(client.statuses(), [200, 200, 408]);
    });
}

#[test]
fn a_partial_pipelined_head_has_the_header_timeout() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let first = Scenario::get("/ok").bytes();
        let client = server.connect();
        client.send([&first[..], &first[..7]].concat()).await;
        assert_eq!(client.statuses(), [200], "the response does not wait for the next head");
        assert_eq!(client.phase(), Phase::ReadingHead);
        advance(11).await;
        assert_eq!(client.statuses(), [200, 408]);
    });
}

#[test]
fn an_idle_connection_closes_after_the_keep_alive_timeout() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::get("/ok").at(Phase::Idle, &server).await;
        let (reason, seconds) = client.wait_closed().await;
        assert_eq!(reason, CloseReason::KeepAliveTimeout);
        assert!(is_about(seconds, 60), "{seconds}");
        assert_eq!(client.phase_at_close(), Phase::Idle);
        assert_eq!(client.statuses(), [200], "nothing is sent to an idle client");
    });
}

#[test]
fn each_request_restarts_the_keep_alive_timeout() {
    with_virtual_time(async || {
        let server = TestServer::with(Limits { keep_alive_timeout: Duration::from_secs(7), ..Limits::default() });
        let client = server.connect();
        for _ in 0..20 {
            client.send(Scenario::get("/ok").bytes()).await;
            advance(6).await;
        }
        assert_eq!(client.closed(), None);
        assert_eq!(client.wait_closed().await.0, CloseReason::KeepAliveTimeout);
        assert_eq!(client.statuses(), [200; 20]);
    });
}

#[test]
fn a_client_that_closes_before_a_complete_head() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let silent = server.connect();
        silent.end(ClientEnd::Ended).await;
        assert_eq!(silent.closed(), Some(CloseReason::ClientClosed));
        let idle = Scenario::get("/ok").at(Phase::Idle, &server).await;
        idle.end(ClientEnd::Ended).await;
        assert_eq!(idle.closed(), Some(CloseReason::ClientClosed));
        let begun = Scenario::get("/ok").at(Phase::ReadingHead, &server).await;
        begun.end(ClientEnd::Ended).await;
        assert_eq!(begun.closed(), Some(CloseReason::HeadIncomplete));
        assert_eq!(begun.pipe.outgoing(), b"");
        let reset = Scenario::get("/ok").at(Phase::ReadingHead, &server).await;
        reset.end(ClientEnd::Reset).await;
        assert_eq!(reset.closed(), Some(CloseReason::Reset));
    });
}

#[test]
fn a_client_that_half_closes_at_once_gets_its_response() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        client.pipe.push(&Scenario::get("/slow/20").bytes());
        client.end(ClientEnd::Ended).await;
        advance(21).await;
        assert_eq!(client.response().text(), "/slow/20");
        assert_eq!(client.closed(), Some(CloseReason::ClientClosed));
    });
}

#[test]
fn splitting_the_bytes_does_not_change_the_responses() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let bytes = [
            Scenario::get("/ok").bytes(),
            Scenario::post("/read").content("hello").bytes(),
            Scenario::post("/read").chunks("5;x=y\r\nhello\r\n3\r\nyou\r\n0\r\nT: v\r\n\r\n").bytes(),
            Scenario::get("/bytes/20000").field("Connection", "close").bytes(),
        ]
        .concat();
        for (receive_bytes_max, send_bytes_max) in [(1, 1), (2, 100), (7, 8192), (1000, 1), (usize::MAX, usize::MAX)] {
            let client = server.connect();
            client.pipe.receive_bytes_max.set(receive_bytes_max);
            client.pipe.send_bytes_max.set(send_bytes_max);
            client.send(&bytes).await;
            let contents: Vec<usize> = client.responses().iter().map(|response| response.content.len()).collect();
            assert_eq!(contents, [3, 5, 8, 20_000]);
            assert_eq!(client.closed(), Some(CloseReason::CloseRequested));
            settle().await;
        }
    });
}

#[test]
fn each_of_many_split_heads_has_its_own_timeout() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let head = Scenario::get("/ok").bytes();
        let client = server.connect();
        client.send([&head[..], &head[..1]].concat()).await;
        for _ in 0..15 {
            advance(1).await;
            client.send([&head[1..], &head[..1]].concat()).await;
        }
        assert_eq!(client.statuses(), [200; 16]);
        advance(11).await;
        assert_eq!(client.statuses().last(), Some(&408));
    });
}

#[test]
fn an_empty_line_begins_no_head() {
    with_virtual_time(async || {
        let server = TestServer::new();
        for request in [Scenario::get("/ok"), Scenario::post("/read").content("hello")] {
            let client = server.connect();
            client.send([&request.bytes()[..], b"\r\n"].concat()).await;
            assert_eq!(client.phase(), Phase::Idle);
            let (reason, seconds) = client.wait_closed().await;
            assert_eq!((reason, client.statuses()), (CloseReason::KeepAliveTimeout, vec![200]));
            assert!(is_about(seconds, 60), "{seconds}");
        }
    });
}

#[test]
fn a_first_request_line_that_is_refused_before_its_version_gets_a_status() {
    with_virtual_time(async || {
        // Its clients may begin with HTTP/2.
        let server = TestServer::new();
        let long = "a".repeat(9000);
        for (line, status) in [
            (format!("GET /{long} HTTP/1.1\r\n"), 414),
            (format!("GET http://a/{long} HTTP/1.1\r\n"), 414),
            ("GET /a\x01".to_owned(), 400),
            ("GET /a\r\n".to_owned(), 400),
        ] {
            let client = server.connect();
            client.send(line.as_bytes()).await;
            assert_eq!(client.statuses(), [status], "{}", &line[..6]);
            assert!(client.response().closes());
        }
        let client = server.connect();
        client.send(b"PRI * HTTP/2.1\r\n").await;
        assert_eq!(client.wait_closed().await.0, CloseReason::Http2(ConnectionError::PrefaceInvalid));
    });
}
