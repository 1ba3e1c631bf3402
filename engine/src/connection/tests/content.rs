//! Request content: deadlines, framing, limits, and unread content.

use super::pipe::ClientEnd;
use super::scenario::{Scenario, TestServer, advance, is_about, settle, with_virtual_time};
use super::test_app::content;
use crate::limits::Limits;
use crate::net::connection_table::DrainScope;
use crate::net::stop_state::StopState;
use crate::service::{CloseReason, ContentError, HalfClosed, IncomingBody, Phase, Request, Response, Service};
use selvedge_proto::{Reject, StatusCode};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[test]
fn silence_gets_408() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::post("/read").content(content(50_000)).at(Phase::ReadingContent, &server).await;
        advance(29).await;
        for _ in 0..2 {
            client.send(content(20_000)).await;
            advance(29).await;
            assert_eq!(client.statuses(), [0_u16; 0], "received bytes end the silence");
        }
        advance(2).await;
        assert_eq!((client.response().status, client.response().closes()), (408, true));
        assert_eq!(client.wait_closed().await.0, CloseReason::ContentTooSlow);
        assert_eq!(client.finished()[0].reason, None, "the close has it");
    });
}

/// Sends content at a rate for a number of seconds.
async fn send_at(bytes_each_second: usize, seconds: usize) -> Vec<u16> {
    let server = TestServer::new();
    let all = content(1_000_000);
    let client = Scenario::post("/read").content(&all).at(Phase::ReadingContent, &server).await;
    for piece in all.chunks(bytes_each_second).take(seconds) {
        client.send(piece).await;
        advance(1).await;
    }
    client.statuses()
}

#[test]
fn content_below_the_minimum_average_rate_times_out() {
    with_virtual_time(async || {
        assert_eq!(send_at(400, 25).await, [0_u16; 0], "the first silence is allowed to everybody");
        assert_eq!(send_at(400, 200).await, [408]);
        assert_eq!(send_at(1, 60).await, [408]);
        assert_eq!(send_at(600, 1_000).await, [0_u16; 0]);
    });
}

#[test]
fn framing_does_not_count_as_content_twice() {
    with_virtual_time(async || {
        // The bytes of an incomplete line stay in the buffer and have to be counted once.
        let server = TestServer::new();
        let client = Scenario::post("/read").chunks("").at(Phase::ReadingContent, &server).await;
        client.send("0\r\nX: ").await;
        for _ in 0..300 {
            client.send([b'x'; 20]).await;
            advance(1).await;
        }
        assert_eq!(client.statuses(), [408]);
    });
}

#[test]
fn time_of_the_application_does_not_count_against_the_client() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::post("/late/100").content("hello").at_head(&server).await;
        advance(110).await;
        assert_eq!(client.statuses(), [0_u16; 0], "the client has the time that it always has");
        client.send("hello").await;
        assert_eq!(client.response().text(), "hello");
    });
}

#[test]
fn a_pause_of_the_application_does_not_count_against_the_client() {
    with_virtual_time(async || {
        let service = async |request: &mut Request| {
            let first = request.body().chunk().await;
            advance(100).await;
            match (first, request.body().read_all().await) {
                (Some(Ok(first)), Ok(rest)) => Response::new(StatusCode::OK).body([first.to_vec(), rest].concat()),
                (_, other) => other.map(|_| Response::error(StatusCode::BAD_REQUEST)).unwrap_or_else(Response::from),
            }
        };
        let server = TestServer::serving(service, Limits::default());
        let client = Scenario::post("/").content("hello").at(Phase::ReadingContent, &server).await;
        client.send("he").await;
        advance(110).await;
        client.send("llo").await;
        assert_eq!(client.response().text(), "hello");
    });
}

#[test]
fn a_client_that_ends_within_its_content() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let ended = Scenario::post("/read").content("hello").at(Phase::ReadingContent, &server).await;
        ended.send("he").await;
        ended.end(ClientEnd::Ended).await;
        assert_eq!(ended.closed(), Some(CloseReason::ContentIncomplete));
        let reset = Scenario::post("/read").content("hello").at(Phase::ReadingContent, &server).await;
        reset.end(ClientEnd::Reset).await;
        assert!(matches!(reset.closed(), Some(CloseReason::Reset | CloseReason::ContentIncomplete)));
        let ignored = Scenario::post("/ok").content("hello").at_head(&server).await;
        assert_eq!(ignored.response().text(), "/ok");
        ignored.end(ClientEnd::Ended).await;
        assert_eq!(ignored.closed(), Some(CloseReason::ContentIncomplete));
    });
}

#[test]
fn malformed_chunks_reach_the_application_and_close() {
    with_virtual_time(async || {
        for (chunks, reject) in [
            ("5\nhello", Reject::BareLineFeed),
            ("5\r\nhello!!\r\n", Reject::ChunkDataNotTerminated),
            ("x\r\n", Reject::ChunkSizeInvalid),
            ("0\r\nHost: a\r\n\r\n", Reject::TrailerForbidden),
        ] {
            let server = TestServer::new();
            let next_request = Scenario::get("/ok").bytes();
            let client = server.connect();
            client.send([Scenario::post("/read").chunks(chunks).bytes(), next_request].concat()).await;
            assert_eq!(client.statuses(), [reject.status().code()], "what is behind is not looked at");
            assert!(client.response().closes());
            assert_eq!(client.finished()[0].reason, None, "the close has it");
            assert_eq!(client.wait_closed().await.0, CloseReason::ContentRejected(reject));
        }
    });
}

#[test]
fn unread_malformed_chunks_close_the_connection() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::post("/ok").chunks("5\nhello").sent(&server).await;
        assert_eq!(client.statuses(), [200]);
        assert_eq!(client.wait_closed().await.0, CloseReason::ContentRejected(Reject::BareLineFeed));
    });
}

#[test]
fn trailers_are_available_after_the_content() {
    with_virtual_time(async || {
        let service = async |request: &mut Request| {
            assert_eq!(request.body().trailers(), None, "not before the end");
            let _ = request.body().read_all().await;
            let trailers = request.body().trailers().expect("at the end");
            Response::new(StatusCode::OK).body(trailers.get("digest").unwrap_or_default().to_vec())
        };
        let server = TestServer::serving(service, Limits::default());
        let client = Scenario::post("/").chunks("1\r\na\r\n0\r\nDigest: 42\r\n\r\n").sent(&server).await;
        assert_eq!(client.response().text(), "42");
    });
}

#[test]
fn content_above_the_limit_gets_413() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let announced = Scenario::post("/limit/4").content("hello").sent(&server).await;
        assert_eq!(announced.statuses(), [413]);
        assert_eq!(announced.phase(), Phase::Idle, "what is small is drained");
        let chunked = Scenario::post("/limit/4").chunks("3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n").sent(&server).await;
        assert_eq!(chunked.statuses(), [413]);
        let allowed = Scenario::post("/limit/5").chunks("3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n").sent(&server).await;
        assert_eq!(allowed.response().text(), "hello");
        let usual = Scenario::post("/read").field("Content-Length", "10485761").sent(&server).await;
        assert_eq!((usual.response().status, usual.response().closes()), (413, true));
        assert_eq!(usual.wait_closed().await.0, CloseReason::ContentUnread);
    });
}

#[test]
fn unread_content_is_discarded_up_to_the_limit() {
    with_virtual_time(async || {
        let bound = Limits::default().discard_bytes_max as usize;
        let next_request = Scenario::get("/ok/behind").bytes();
        let server = TestServer::new();
        for scenario in
            [Scenario::post("/ok").content(content(bound)), Scenario::post("/ok").chunks(chunks(bound / 1000))]
        {
            let client = server.connect();
            client.send([scenario.bytes(), next_request.clone()].concat()).await;
            assert_eq!(client.statuses(), [200, 200]);
            assert_eq!(client.responses()[1].text(), "/ok/behind");
        }
        let long = server.connect();
        long.send([Scenario::post("/ok").content(content(bound + 1)).bytes(), next_request.clone()].concat()).await;
        assert_eq!((long.response().status, long.response().closes()), (200, true), "it announces the close");
        assert_eq!((long.phase(), long.pipe.is_write_shutdown()), (Phase::Lingering, true));
        long.end(ClientEnd::Ended).await;
        assert_eq!(long.closed(), Some(CloseReason::ContentUnread));
        let endless = server.connect();
        endless.send([Scenario::post("/ok").chunks(chunks(bound / 1000 + 1)).bytes(), next_request].concat()).await;
        assert_eq!(endless.statuses(), [200]);
        assert_eq!(endless.wait_closed().await.0, CloseReason::ContentUnread);
    });
}

/// Returns thousands of bytes, in chunks.
fn chunks(thousands: usize) -> Vec<u8> {
    [[&b"3e8\r\n"[..], &content(1000), b"\r\n"].concat().repeat(thousands), b"0\r\n\r\n".to_vec()].concat()
}

#[test]
fn discarding_content_has_the_content_deadlines() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = Scenario::post("/ok").content(content(1000)).at_head(&server).await;
        assert_eq!(client.statuses(), [200], "the response does not wait for the content");
        assert_eq!(client.phase(), Phase::ReadingContent);
        let (reason, seconds) = client.wait_closed().await;
        assert_eq!((reason, is_about(seconds, 30 + 5)), (CloseReason::ContentTooSlow, true), "{seconds}");
    });
}

#[test]
fn a_client_that_neither_reads_nor_sends_times_out() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let client = server.connect();
        client.pipe.set_window(0);
        // The first response is buffered while the second request waits for its content.
        let requests = [Scenario::get("/ok").bytes(), Scenario::post("/read").content("hello").head()].concat();
        client.send(requests).await;
        let (reason, seconds) = client.wait_closed().await;
        assert!(matches!(reason, CloseReason::SendTooSlow | CloseReason::ContentTooSlow), "{reason:?}");
        assert!(seconds <= 70, "{seconds}");
    });
}

/// Stores the content of each request while its response is sent.
fn body_collector() -> (Rc<RefCell<Vec<IncomingBody>>>, impl AsyncFn(&mut Request) -> Response + 'static) {
    let bodies = Rc::new(RefCell::new(Vec::new()));
    let into = bodies.clone();
    let service = async move |request: &mut Request| {
        into.borrow_mut().push(request.take_body());
        Response::new(StatusCode::OK)
    };
    (bodies, service)
}

#[test]
fn content_read_after_its_request_has_ended() {
    with_virtual_time(async || {
        let (bodies, service) = body_collector();
        let server = TestServer::serving(service, Limits::default());
        let client = server.connect();
        let post = Scenario::post("/").content("hello").bytes();
        client.send([post.clone(), post].concat()).await;
        assert_eq!(client.statuses(), [200, 200]);
        let mut first = bodies.borrow_mut().remove(0);
        assert_eq!(first.chunk().await, Some(Err(ContentError::Ended)));
        assert_eq!(client.phase(), Phase::Idle, "the connection did not notice");
    });
}

#[test]
fn content_read_after_its_connection_has_ended() {
    with_virtual_time(async || {
        let (bodies, service) = body_collector();
        let server = TestServer::serving(service, Limits::default());
        let client = Scenario::post("/").content("hello").at_head(&server).await;
        client.end(ClientEnd::Reset).await;
        assert!(client.closed().is_some());
        // The entry in the connection table belongs to another connection now.
        let other = Scenario::get("/").at(Phase::Idle, &server).await;
        let mut body = bodies.borrow_mut().remove(0);
        assert_eq!(body.chunk().await, Some(Err(ContentError::Ended)));
        assert_eq!(other.phase(), Phase::Idle);
    });
}

#[test]
fn a_task_that_reads_content_gets_an_error_when_its_connection_is_aborted() {
    with_virtual_time(async || {
        let results = Rc::new(Cell::new(None));
        let into = results.clone();
        let service = async move |request: &mut Request| {
            let (mut body, into) = (request.take_body(), into.clone());
            drop(tokio::task::spawn_local(async move { into.set(Some(body.read_all().await.map(|_| ()))) }));
            std::future::pending::<Response>().await
        };
        let server = TestServer::serving(service, Limits::default());
        let client = Scenario::post("/").content("hello").at(Phase::ReadingContent, &server).await;
        client.send("he").await;
        server.worker.stop_state.set(StopState::Drain);
        server.worker.connections.abort(DrainScope::All);
        settle().await;
        assert_eq!(client.closed(), Some(CloseReason::ShutdownTimeout));
        assert!(matches!(results.get(), Some(Err(ContentError::Ended | ContentError::Disconnected))));
    });
}

#[test]
fn a_task_gets_no_part_of_content_that_is_discarded() {
    with_virtual_time(async || {
        let results = Rc::new(RefCell::new(Vec::new()));
        let into = results.clone();
        let service = async move |request: &mut Request| {
            let (mut body, into) = (request.take_body(), into.clone());
            drop(tokio::task::spawn_local(async move {
                advance(1).await;
                let read = body.read_all().await.map(|bytes| bytes.len());
                into.borrow_mut().push(read);
            }));
            Response::new(StatusCode::new(202).expect("a status"))
        };
        let server = TestServer::serving(service, Limits::default());
        let post = Scenario::post("/").content("x".repeat(30));
        let client = post.clone().at_head(&server).await;
        client.send("x".repeat(20)).await;
        advance(2).await;
        assert_eq!(client.statuses(), [202]);
        client.send([&"x".repeat(10).into_bytes()[..], &post.bytes()].concat()).await;
        advance(2).await;
        assert_eq!(client.statuses(), [202, 202], "the connection goes on");
        assert_eq!(*results.borrow(), [Err(ContentError::Ended), Err(ContentError::Ended)]);
    });
}

/// Reads for at most one second and then waits forever, or only waits, or does neither.
struct Impatient;

impl Service for Impatient {
    async fn call(&self, request: &mut Request) -> Response {
        if request.path() == "/read" {
            let _ = tokio::time::timeout(std::time::Duration::from_secs(1), request.body().read_all()).await;
        }
        if request.path() != "/ok" {
            std::future::pending::<()>().await;
        }
        Response::new(StatusCode::OK)
    }

    fn half_closed(&self) -> HalfClosed {
        HalfClosed::Cancel
    }
}

#[test]
fn a_disconnect_is_noticed_after_any_previous_read() {
    with_virtual_time(async || {
        let server = TestServer::serving(Impatient, Limits::default());
        let timed_out = Scenario::post("/read").content("hello").at_head(&server).await;
        timed_out.send("h").await;
        advance(2).await;
        assert_eq!(timed_out.closed(), None);
        timed_out.end(ClientEnd::Ended).await;
        assert_eq!(timed_out.closed(), Some(CloseReason::ClientDisconnected));
        let drained = Scenario::post("/ok").content("hello").at_head(&server).await;
        assert_eq!(drained.statuses(), [200]);
        drained.send([&b"hello"[..], &Scenario::get("/never").bytes()].concat()).await;
        drained.end(ClientEnd::Ended).await;
        assert_eq!(drained.closed(), Some(CloseReason::ClientDisconnected));
    });
}
