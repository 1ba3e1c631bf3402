//! What one client can make the server keep, and what one response can take from the others.

use super::super::files::temporary;
use super::super::scenario::{TestServer, advance, settle, with_virtual_time};
use super::super::test_app::content;
use super::client::{Http2Client, INITIAL_WINDOW, LAST, PING, Replies, WINDOW_MAX};
use crate::limits::{LONG_BUFFER_BYTES, Limits};
use crate::service::{Body, CloseReason, FileContent, OpenFile, Phase, Request, Response};
use selvedge_proto::StatusCode;
use std::rc::Rc;

#[test]
fn responses_to_a_client_that_does_not_read_are_bounded() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let windows = [(INITIAL_WINDOW, WINDOW_MAX)];
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &windows).await;
        client.open_window(0, WINDOW_MAX - 65_535);
        client.send().await;
        client.client.pipe.set_window(0);
        let streams: Vec<u32> = (0..2_000).map(|_| client.get("/bytes/16000")).collect();
        client.send().await;
        let written = client.client.finished().len() * 16_000;
        assert!(written <= 2 * LONG_BUFFER_BYTES, "{written} bytes wait");
        // All arrive when it reads, without further bytes of the client.
        client.client.read(usize::MAX).await;
        client.send().await;
        assert!(streams.iter().all(|&stream| client.response(stream).content.len() == 16_000));
        assert_eq!(client.reported().len(), streams.len());
        assert_eq!(client.client.phase(), Phase::Idle);
    });
}

#[test]
fn responses_that_are_ready_at_once_are_bounded() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let windows = [(INITIAL_WINDOW, WINDOW_MAX)];
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &windows).await;
        client.open_window(0, WINDOW_MAX - 65_535);
        let streams: Vec<u32> = (0..60).map(|_| client.post("/late/1")).collect();
        streams.iter().for_each(|&stream| client.data(LAST, stream, &content(16_000)));
        client.send().await;
        client.client.pipe.set_window(0);
        advance(2).await;
        let written = client.client.finished().len() * 16_000;
        assert!(written <= 2 * LONG_BUFFER_BYTES, "{written} bytes wait");
        client.client.read(usize::MAX).await;
        client.send().await;
        assert!(streams.iter().all(|&stream| client.response(stream).content == content(16_000)));
    });
}

#[test]
fn requests_that_arrive_while_the_client_does_not_read_are_served() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let windows = [(INITIAL_WINDOW, WINDOW_MAX)];
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &windows).await;
        client.open_window(0, WINDOW_MAX - 65_535);
        client.send().await;
        client.client.pipe.set_window(0);
        for _ in 0..100 {
            client.get("/bytes/16000");
        }
        client.send().await;
        let late = client.get("/ok");
        client.send().await;
        assert!(!client.has_response(late));
        client.client.read(usize::MAX).await;
        client.send().await;
        assert_eq!(client.response(late).text(), "/ok");
    });
}

#[test]
fn replies_to_a_client_that_does_not_read_are_bounded() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        client.client.pipe.set_window(0);
        client.get("/never");
        for _ in 0..40 {
            (0..1_000).for_each(|_| client.frame(PING, 0, 0, b"read me!"));
            client.send().await;
            advance(1).await;
            if client.client.closed().is_some() {
                break;
            }
        }
        let reason = client.client.closed().expect("it ends");
        assert!(matches!(reason, CloseReason::SendTooSlow | CloseReason::Http2(_)), "{reason:?}");
    });
}

#[test]
fn urgent_responses_precede_others() {
    with_virtual_time(async || {
        let rows = [("u=7", "u=1", [5_535, 60_000]), ("u=1", "u=7", [60_000, 5_535]), ("", "", [60_000, 5_535])];
        for (first, second, expected) in rows {
            let server = TestServer::new();
            let windows = [(INITIAL_WINDOW, WINDOW_MAX)];
            let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &windows).await;
            let streams =
                [first, second].map(|priority| client.request(LAST, "GET", "/bytes/60000", &[("priority", priority)]));
            client.send().await;
            // The window of the connection permits 65,535 bytes.
            let received = streams.map(|stream| client.response(stream).content.len());
            assert_eq!(received, expected, "{first} {second}");
        }
    });
}

#[test]
fn small_responses_finish_beside_a_large_one() {
    with_virtual_time(async || {
        const LARGE_BYTES: u64 = 1 << 30;
        let file = temporary();
        file.set_len(LARGE_BYTES).expect("it is sparse");
        let file = Rc::new(OpenFile::new(file));
        let small = content(20_000);
        let service = async move |request: &mut Request| {
            let body: Body = match request.target() {
                "/large" => Body::File(Box::new(FileContent::new(file.clone(), 0, LARGE_BYTES).expect("it has facts"))),
                _ => small.clone().into(),
            };
            Response::new(StatusCode::OK).body(body)
        };
        let server = TestServer::serving(service, Limits::default());
        let windows = [(INITIAL_WINDOW, WINDOW_MAX)];
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &windows).await;
        client.open_window(0, WINDOW_MAX - 65_535);
        client.client.pipe.set_window(100_000);
        let large = client.get("/large");
        client.send().await;
        let before = client.response(large).content.len();
        let streams: Vec<u32> = (0..99).map(|_| client.get("/small")).collect();
        client.send().await;
        let is_complete = |client: &Http2Client<'_>| {
            streams.iter().all(|&stream| client.has_response(stream) && client.response(stream).is_complete)
        };
        while !is_complete(&client) {
            client.client.read(50_000).await;
            client.send().await;
        }
        // The content of full buffers, and one turn.
        let between = client.response(large).content.len() - before;
        assert!(between <= 2 * LONG_BUFFER_BYTES + 2 * 65_536, "{between} bytes of the large response were between");
        client.client.read(1_000_000).await;
        client.send().await;
        assert!(client.response(large).content.len() > before + between, "it continues");
        settle().await;
        assert_eq!(client.client.closed(), None);
    });
}
