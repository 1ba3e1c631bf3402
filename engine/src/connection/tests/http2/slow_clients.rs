//! Clients that send or receive too little, and the time that they have.

use super::super::scenario::{TestServer, advance, is_about, with_virtual_time};
use super::super::streams::Exchanging;
use super::super::test_app::content;
use super::client::{CANCEL, Http2Client, INITIAL_WINDOW, LAST, PING, PRIORITY_UPDATE, Replies, WINDOW_MAX};
use crate::limits::Limits;
use crate::net::clock::Tick;
use crate::service::{Body, CloseReason, Phase, Request, Response, ResponseOutcome, Service};
use selvedge_proto::StatusCode;
use selvedge_proto::http2::ConnectionError;
use std::rc::Rc;
use tokio::time::Instant;

/// Takes a second at a time until a stream is reset. Returns the code and the time in seconds.
async fn wait_reset(
    client: &mut Http2Client<'_>,
    stream: u32,
    mut each: impl FnMut(&mut Http2Client<'_>),
) -> (u32, u64) {
    let began = Instant::now();
    loop {
        client.send().await;
        if let Some(code) = client.response(stream).reset {
            return (code, began.elapsed().as_secs());
        }
        assert!(began.elapsed().as_secs() < 200, "it is reset");
        advance(1).await;
        each(client);
    }
}

#[test]
fn a_stream_whose_window_stays_closed_is_reset() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &[(INITIAL_WINDOW, 0)]).await;
        let (stalled, empty) = (client.get("/bytes/100"), client.get("/bytes/0"));
        client.send().await;
        assert!(client.response(empty).is_complete);
        assert_eq!(client.client.phase(), Phase::Sending);
        let (code, seconds) = wait_reset(&mut client, stalled, |_| {}).await;
        assert!(code == CANCEL && is_about(seconds, 30), "{code} after {seconds} s");
        let finished = client.client.finished();
        assert_eq!((finished.len(), finished[1].outcome), (2, ResponseOutcome::Aborted));
        assert_eq!([0, 1].map(|at| finished[at].reset), [None, Some(CloseReason::SendTooSlow)]);
        assert_eq!(client.client.phase(), Phase::Idle);
    });
}

#[test]
fn content_arrives_while_the_window_of_its_response_is_closed() {
    with_virtual_time(async || {
        for (setting, window) in [(INITIAL_WINDOW, 5_000), (INITIAL_WINDOW, 1_000_000)] {
            // The window of the stream is closed in one case, and that of the connection in the other.
            let taken = Rc::default();
            let server = TestServer::serving(Exchanging::service(&taken), Limits::default());
            let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &[(setting, window)]).await;
            let stream = client.post("/");
            client.send().await;
            let mut sent = 0;
            for _ in 0..20 {
                client.data(0, stream, &content(10_000));
                client.send().await;
                sent += 10_000;
                assert_eq!(taken.get(), sent, "{window}");
                advance(15).await;
            }
            let received = client.response(stream).content.len();
            assert!((5_000..70_000).contains(&received), "{received}");
            let (code, seconds) = wait_reset(&mut client, stream, |_| {}).await;
            assert!(code == CANCEL && is_about(seconds, 15), "{code} after {seconds} s");
        }
    });
}

#[test]
fn a_window_that_opens_by_single_bytes_is_too_slow() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &[(INITIAL_WINDOW, 0)]).await;
        let (drip, steady) = (client.get("/bytes/1000"), client.get("/bytes/60000"));
        client.send().await;
        let (code, seconds) = wait_reset(&mut client, drip, |client| {
            client.open_window(drip, 1);
            client.open_window(steady, 600);
        })
        .await;
        assert!(code == CANCEL && is_about(seconds, 30), "{code} after {seconds} s");
        for _ in 0..71 {
            client.open_window(steady, 600);
            client.send().await;
            advance(1).await;
        }
        assert!(client.response(steady).is_complete, "it kept the minimum rate");
    });
}

#[test]
fn responses_that_wait_for_the_window_of_the_connection_are_reset() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let windows = [(INITIAL_WINDOW, WINDOW_MAX)];
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &windows).await;
        let (large, small, slow) = (client.get("/bytes/100000"), client.get("/bytes/20000"), client.get("/slow/40"));
        let (code, seconds) = wait_reset(&mut client, large, |_| {}).await;
        assert!(code == CANCEL && is_about(seconds, 30), "{code} after {seconds} s");
        assert_eq!(client.response(small).reset, Some(CANCEL));
        advance(12).await;
        client.open_window(0, 100);
        client.send().await;
        assert!(client.response(slow).is_complete, "the window matters only to content");
        assert_eq!(client.reported().len(), 3);
    });
}

#[test]
fn a_response_that_waits_for_more_urgent_ones_is_not_stalled() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let windows = [(INITIAL_WINDOW, WINDOW_MAX)];
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &windows).await;
        let (urgent, other) = (client.get("/bytes/400000"), client.get("/bytes/20000"));
        client.frame(PRIORITY_UPDATE, 0, 0, &[&other.to_be_bytes()[..], b"u=7"].concat());
        client.send().await;
        for _ in 0..100 {
            client.open_window(0, 4_000);
            client.send().await;
            advance(1).await;
        }
        assert!(client.response(urgent).is_complete);
        assert_eq!(client.response(other).reset, None, "the client was never too slow");
        client.open_window(0, 20_000);
        client.send().await;
        assert!(client.response(other).is_complete);
    });
}

#[test]
fn a_client_that_does_not_read_its_socket_is_disconnected() {
    with_virtual_time(async || {
        // Bytes that it reads after it has stopped.
        for more in [0, 30_000] {
            let server = TestServer::new();
            let windows = [(INITIAL_WINDOW, WINDOW_MAX)];
            let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &windows).await;
            client.client.pipe.set_window(10);
            client.get("/bytes/65000");
            client.get("/never");
            client.send().await;
            client.client.read(more).await;
            assert_eq!(client.client.phase(), Phase::Sending);
            let (reason, seconds) = client.client.wait_closed().await;
            assert!(reason == CloseReason::SendTooSlow && is_about(seconds, 30), "{reason:?} after {seconds} s");
            assert!(client.client.pipe.is_reset());
            let finished = client.client.finished();
            assert!(finished.len() == 2 && finished.iter().all(|finished| finished.reset.is_none()));
        }
    });
}

/// Echoes content with this Content-Type.
fn echo_as(content_type: &'static str) -> impl Service {
    async move |request: &mut Request| {
        let chunks = Box::pin(request.take_body());
        let mut response = Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks });
        response.fields_mut().append("content-type", content_type).expect("the field is valid");
        response
    }
}

#[test]
fn content_that_a_response_waits_for_has_a_time_limit() {
    with_virtual_time(async || {
        let server = TestServer::serving(echo_as("text/plain"), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let (silent, drip, steady) = (client.post("/"), client.post("/"), client.post("/"));
        client.data(0, silent, b"begun");
        client.send().await;
        let began = Instant::now();
        let mut ended = [0, 0];
        while ended.contains(&0) {
            assert!(began.elapsed().as_secs() < 100, "they are reset");
            advance(1).await;
            client.data(0, drip, b"x");
            client.data(0, steady, &[0; 1_000]);
            client.send().await;
            for (at, stream) in [silent, drip].into_iter().enumerate() {
                if ended[at] == 0 && client.response(stream).reset == Some(CANCEL) {
                    ended[at] = began.elapsed().as_secs();
                }
            }
        }
        assert!(ended.iter().all(|&seconds| is_about(seconds, 30)), "{ended:?}");
        client.data(LAST, steady, b"");
        client.send().await;
        assert!(client.response(steady).is_complete);
        let resets: Vec<_> = client.client.finished().iter().map(|finished| finished.reset).collect();
        assert_eq!(resets, [Some(CloseReason::ContentTooSlow), Some(CloseReason::ContentTooSlow), None]);
    });
}

#[test]
fn a_call_of_grpc_may_pause() {
    with_virtual_time(async || {
        let server = TestServer::serving(echo_as("application/grpc+proto"), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let stream = client.post("/");
        for _ in 0..5 {
            client.data(0, stream, b"message");
            client.send().await;
            advance(100).await;
        }
        client.data(LAST, stream, b"");
        client.send().await;
        assert!(client.response(stream).is_complete);
        assert_eq!(client.response(stream).content.len(), 35);
    });
}

#[test]
fn a_client_whose_content_the_response_does_not_read_is_not_late() {
    with_virtual_time(async || {
        let server = TestServer::serving(echo_as("text/plain"), Limits::default());
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &[(INITIAL_WINDOW, 100)]).await;
        let stream = client.post("/");
        client.data(0, stream, &[0; 1_000]);
        client.send().await;
        // The response waits for its own window, which opens fast enough.
        for _ in 0..60 {
            advance(1).await;
            client.open_window(stream, 600);
            client.data(0, stream, &[0; 600]);
            client.send().await;
        }
        client.data(LAST, stream, b"");
        client.open_window(stream, 1_000);
        client.send().await;
        assert!(client.response(stream).is_complete);
    });
}

#[test]
fn a_client_that_reads_slowly_gets_every_byte() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        client.client.pipe.set_window(10);
        let stream = client.get("/bytes/100000");
        client.send().await;
        for _ in 0..120 {
            client.client.read(1_000).await;
            client.send().await;
            advance(1).await;
        }
        assert!(client.response(stream).is_complete);
        assert_eq!(client.client.phase(), Phase::Idle);
    });
}

#[test]
fn the_first_request_has_the_time_of_a_head() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        assert_eq!(client.client.phase(), Phase::ReadingHead);
        for _ in 0..9 {
            advance(1).await;
            client.frame(PING, 0, 0, b"no stops");
            client.send().await;
        }
        assert_eq!(client.goaways(), []);
        let mut silent = Http2Client::connect(&server).await;
        silent.replies = Replies::Nothing;
        let (reason, seconds) = client.client.wait_closed().await;
        assert_eq!(reason, CloseReason::NothingReceived);
        assert!((1..4).contains(&seconds), "{seconds}");
        let (reason, seconds) = silent.client.wait_closed().await;
        assert_eq!(reason, CloseReason::NothingReceived);
        assert!((8..12).contains(&seconds), "{seconds}");
    });
}

#[test]
fn an_idle_connection_ends_after_its_last_request() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        client.fetch("/ok").await;
        advance(50).await;
        assert_eq!(client.fetch("/ok").await.status, 200);
        let began = Instant::now();
        // A client that only sends PING, which resumes the connection each time, is idle.
        while client.goaways().is_empty() {
            assert!(began.elapsed().as_secs() < 100, "it ends");
            client.frame(PING, 0, 0, b"my ping.");
            client.send().await;
            advance(5).await;
        }
        assert!((55..=70).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        client.send().await;
        assert_eq!(client.client.wait_closed().await.0, CloseReason::KeepAliveTimeout);
        assert_eq!(client.goaways(), [(WINDOW_MAX, 0), (3, 0)]);
    });
}

#[test]
fn a_request_that_arrives_with_the_timeout_continues_the_connection() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        client.fetch("/ok").await;
        let stream = client.get("/ok");
        client.push();
        server.worker.connections.shorten_idle(server.worker.clock.tick(), Tick::MAX, 0);
        client.send().await;
        assert_eq!((client.response(stream).status, client.goaways()), (200, vec![]));
        server.worker.connections.shorten_idle(server.worker.clock.tick(), Tick::MAX, 0);
        client.send().await;
        assert_eq!(client.goaways(), [(WINDOW_MAX, 0), (stream, 0)]);
        assert_eq!(client.client.closed(), Some(CloseReason::KeepAliveTimeout));
    });
}

#[test]
fn a_connection_with_requests_is_not_parked() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        for _ in 0..50 {
            client.fetch("/ok").await;
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            assert!(!client.client.pipe.is_parked());
        }
        advance(2).await;
        assert!(client.client.pipe.is_parked());
    });
}

#[test]
fn settings_are_acknowledged_in_time() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect_with(&server, Replies::Nothing, &[]).await;
        let busy = client.get("/never");
        client.send().await;
        let mut idle = Http2Client::connect_with(&server, Replies::Nothing, &[]).await;
        assert_eq!(idle.fetch("/ok").await.status, 200);
        for client in [&mut client, &mut idle] {
            let (reason, seconds) = client.client.wait_closed().await;
            assert_eq!(reason, CloseReason::Http2(ConnectionError::SettingsTimeout));
            assert!(seconds <= 16, "{seconds}");
            client.send().await;
            let goaways = client.goaways();
            assert_eq!((goaways.len(), goaways[0].1), (1, 4));
        }
        assert_eq!(client.reported(), [(busy.into(), 499)].into());
    });
}
