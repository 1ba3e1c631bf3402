//! Request content: its deadlines, its framing, its limits, and what is left unread.

use super::pipe::Ending;
use super::scenario::{Scenario, World, is_about, pass, settle, virtually};
use super::site::content;
use crate::limits::Limits;
use crate::service::{CloseReason, ContentError, HalfClosed, IncomingBody, Phase, Request, Response, Service};
use selvedge_proto::{Reject, Status};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[test]
fn silence_is_answered_with_408() {
    virtually(async {
        let world = World::new();
        let client = Scenario::post("/read").content(content(50_000)).at(Phase::ReadingContent, &world).await;
        pass(29).await;
        for _ in 0..2 {
            client.send(content(20_000)).await;
            pass(29).await;
            assert_eq!(client.statuses(), [0_u16; 0], "what comes ends the silence");
        }
        pass(2).await;
        assert_eq!((client.reply().status, client.reply().closes()), (408, true));
        assert_eq!(client.ends().await.0, CloseReason::ContentTooSlow);
        assert_eq!(client.finished()[0].reason, None, "the close has it");
    });
}

/// Sends content at a rate for so many seconds.
async fn send_at(bytes_each_second: usize, seconds: usize) -> Vec<u16> {
    let world = World::new();
    let all = content(1_000_000);
    let client = Scenario::post("/read").content(&all).at(Phase::ReadingContent, &world).await;
    for piece in all.chunks(bytes_each_second).take(seconds) {
        client.send(piece).await;
        pass(1).await;
    }
    client.statuses()
}

#[test]
fn content_has_to_come_at_the_floor_on_the_average() {
    virtually(async {
        assert_eq!(send_at(400, 25).await, [0_u16; 0], "the first silence is allowed to everybody");
        assert_eq!(send_at(400, 200).await, [408]);
        assert_eq!(send_at(1, 60).await, [408]);
        assert_eq!(send_at(600, 1_000).await, [0_u16; 0]);
    });
}

#[test]
fn framing_does_not_count_as_content_twice() {
    virtually(async {
        // Bytes of a line that is not complete stay where they are until it is; they have
        // to be counted once.
        let world = World::new();
        let client = Scenario::post("/read").chunks("").at(Phase::ReadingContent, &world).await;
        client.send("0\r\nX: ").await;
        for _ in 0..300 {
            client.send([b'x'; 20]).await;
            pass(1).await;
        }
        assert_eq!(client.statuses(), [408]);
    });
}

#[test]
fn the_application_s_own_time_is_not_the_client_s() {
    virtually(async {
        let world = World::new();
        let client = Scenario::post("/late/100").content("hello").at_head(&world).await;
        pass(110).await;
        assert_eq!(client.statuses(), [0_u16; 0], "the client has the time that it always has");
        client.send("hello").await;
        assert_eq!(client.reply().text(), "hello");
    });
}

#[test]
fn a_pause_of_the_application_is_not_the_client_s() {
    virtually(async {
        let service = async |request: &mut Request| {
            let first = request.body().chunk().await;
            pass(100).await;
            match (first, request.body().read().await) {
                (Some(Ok(first)), Ok(rest)) => Response::new(Status::OK).body([first.to_vec(), rest].concat()),
                (_, other) => other.map(|_| Response::error(Status::BAD_REQUEST)).unwrap_or_else(Response::from),
            }
        };
        let world = World::serving(service, Limits::default());
        let client = Scenario::post("/").content("hello").at(Phase::ReadingContent, &world).await;
        client.send("he").await;
        pass(110).await;
        client.send("llo").await;
        assert_eq!(client.reply().text(), "hello");
    });
}

#[test]
fn a_client_that_ends_in_the_middle() {
    virtually(async {
        let world = World::new();
        let ended = Scenario::post("/read").content("hello").at(Phase::ReadingContent, &world).await;
        ended.send("he").await;
        ended.end(Ending::Ended).await;
        assert_eq!(ended.closed(), Some(CloseReason::ContentCut));
        let reset = Scenario::post("/read").content("hello").at(Phase::ReadingContent, &world).await;
        reset.end(Ending::Reset).await;
        assert!(matches!(reset.closed(), Some(CloseReason::Reset | CloseReason::ContentCut)));
        let ignored = Scenario::post("/ok").content("hello").at_head(&world).await;
        assert_eq!(ignored.reply().text(), "/ok");
        ignored.end(Ending::Ended).await;
        assert_eq!(ignored.closed(), Some(CloseReason::ContentCut));
    });
}

#[test]
fn broken_chunks_reach_the_application_and_close() {
    virtually(async {
        for (chunks, reject) in [
            ("5\nhello", Reject::BareLineFeed),
            ("5\r\nhello!!\r\n", Reject::ChunkDataUnterminated),
            ("x\r\n", Reject::ChunkSizeInvalid),
            ("0\r\nHost: a\r\n\r\n", Reject::TrailerForbidden),
        ] {
            let world = World::new();
            let behind = Scenario::get("/ok").bytes();
            let client = world.connect();
            client.send([Scenario::post("/read").chunks(chunks).bytes(), behind].concat()).await;
            assert_eq!(client.statuses(), [reject.status().code()], "what is behind is not looked at");
            assert!(client.reply().closes());
            assert_eq!(client.finished()[0].reason, None, "the close has it");
            assert_eq!(client.ends().await.0, CloseReason::ContentRejected(reject));
        }
    });
}

#[test]
fn broken_chunks_that_nobody_read_close_too() {
    virtually(async {
        let world = World::new();
        let client = Scenario::post("/ok").chunks("5\nhello").sent(&world).await;
        assert_eq!(client.statuses(), [200]);
        assert_eq!(client.ends().await.0, CloseReason::ContentRejected(Reject::BareLineFeed));
    });
}

#[test]
fn trailers_are_there_at_the_end() {
    virtually(async {
        let service = async |request: &mut Request| {
            assert_eq!(request.body().trailers(), None, "not before the end");
            let _ = request.body().read().await;
            let trailers = request.body().trailers().expect("at the end");
            Response::new(Status::OK).body(trailers.get("digest").unwrap_or_default().to_vec())
        };
        let world = World::serving(service, Limits::default());
        let client = Scenario::post("/").chunks("1\r\na\r\n0\r\nDigest: 42\r\n\r\n").sent(&world).await;
        assert_eq!(client.reply().text(), "42");
    });
}

#[test]
fn content_above_the_limit_is_413() {
    virtually(async {
        let world = World::new();
        let announced = Scenario::post("/limit/4").content("hello").sent(&world).await;
        assert_eq!(announced.statuses(), [413]);
        assert_eq!(announced.phase(), Phase::Idle, "what is small is drained");
        let chunked = Scenario::post("/limit/4").chunks("3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n").sent(&world).await;
        assert_eq!(chunked.statuses(), [413]);
        let allowed = Scenario::post("/limit/5").chunks("3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n").sent(&world).await;
        assert_eq!(allowed.reply().text(), "hello");
        let usual = Scenario::post("/read").field("Content-Length", "10485761").sent(&world).await;
        assert_eq!((usual.reply().status, usual.reply().closes()), (413, true));
        assert_eq!(usual.ends().await.0, CloseReason::ContentUnread);
    });
}

#[test]
fn content_that_nobody_read_is_drained_within_a_bound() {
    virtually(async {
        let bound = Limits::default().drain_bytes_max as usize;
        let behind = Scenario::get("/ok/behind").bytes();
        let world = World::new();
        for scenario in
            [Scenario::post("/ok").content(content(bound)), Scenario::post("/ok").chunks(chunks(bound / 1000))]
        {
            let client = world.connect();
            client.send([scenario.bytes(), behind.clone()].concat()).await;
            assert_eq!(client.statuses(), [200, 200]);
            assert_eq!(client.replies()[1].text(), "/ok/behind");
        }
        let long = world.connect();
        long.send([Scenario::post("/ok").content(content(bound + 1)).bytes(), behind.clone()].concat()).await;
        assert_eq!((long.reply().status, long.reply().closes()), (200, true), "it says so beforehand");
        assert_eq!((long.phase(), long.pipe.is_finished()), (Phase::Lingering, true));
        long.end(Ending::Ended).await;
        assert_eq!(long.closed(), Some(CloseReason::ContentUnread));
        let endless = world.connect();
        endless.send([Scenario::post("/ok").chunks(chunks(bound / 1000 + 1)).bytes(), behind].concat()).await;
        assert_eq!(endless.statuses(), [200]);
        assert_eq!(endless.ends().await.0, CloseReason::ContentUnread);
    });
}

/// So many thousand bytes, in chunks.
fn chunks(thousands: usize) -> Vec<u8> {
    [[&b"3e8\r\n"[..], &content(1000), b"\r\n"].concat().repeat(thousands), b"0\r\n\r\n".to_vec()].concat()
}

#[test]
fn draining_has_the_deadlines_of_content() {
    virtually(async {
        let world = World::new();
        let client = Scenario::post("/ok").content(content(1000)).at_head(&world).await;
        assert_eq!(client.statuses(), [200], "the answer does not wait for the content");
        assert_eq!(client.phase(), Phase::ReadingContent);
        let (reason, seconds) = client.ends().await;
        assert_eq!((reason, is_about(seconds, 30 + 5)), (CloseReason::ContentTooSlow, true), "{seconds}");
    });
}

#[test]
fn a_client_that_neither_reads_nor_sends_ends() {
    virtually(async {
        let world = World::new();
        let client = world.connect();
        client.pipe.set_room(0);
        // The first answer waits to leave while the second request waits for its content.
        let requests = [Scenario::get("/ok").bytes(), Scenario::post("/read").content("hello").head()].concat();
        client.send(requests).await;
        let (reason, seconds) = client.ends().await;
        assert!(matches!(reason, CloseReason::SendTooSlow | CloseReason::ContentTooSlow), "{reason:?}");
        assert!(seconds <= 70, "{seconds}");
    });
}

/// Keeps the content of each request, with the answer on its way.
fn keeper() -> (Rc<RefCell<Vec<IncomingBody>>>, impl AsyncFn(&mut Request) -> Response + 'static) {
    let kept = Rc::new(RefCell::new(Vec::new()));
    let into = kept.clone();
    let service = async move |request: &mut Request| {
        into.borrow_mut().push(request.take_body());
        Response::new(Status::OK)
    };
    (kept, service)
}

#[test]
fn content_that_outlives_its_request_has_ended() {
    virtually(async {
        let (kept, service) = keeper();
        let world = World::serving(service, Limits::default());
        let client = world.connect();
        let post = Scenario::post("/").content("hello").bytes();
        client.send([post.clone(), post].concat()).await;
        assert_eq!(client.statuses(), [200, 200]);
        let mut first = kept.borrow_mut().remove(0);
        assert_eq!(first.chunk().await, Some(Err(ContentError::Ended)));
        assert_eq!(client.phase(), Phase::Idle, "the connection did not notice");
    });
}

#[test]
fn content_that_outlives_its_connection_has_ended() {
    virtually(async {
        let (kept, service) = keeper();
        let world = World::serving(service, Limits::default());
        let client = Scenario::post("/").content("hello").at_head(&world).await;
        client.end(Ending::Reset).await;
        assert!(client.closed().is_some());
        // The place in the notes is another's by now.
        let other = Scenario::get("/").at(Phase::Idle, &world).await;
        let mut body = kept.borrow_mut().remove(0);
        assert_eq!(body.chunk().await, Some(Err(ContentError::Ended)));
        assert_eq!(other.phase(), Phase::Idle);
    });
}

#[test]
fn a_task_that_reads_content_learns_that_its_connection_was_cut() {
    virtually(async {
        let learnt = Rc::new(Cell::new(None));
        let into = learnt.clone();
        let service = async move |request: &mut Request| {
            let (mut body, into) = (request.take_body(), into.clone());
            drop(tokio::task::spawn_local(async move { into.set(Some(body.read().await.map(|_| ()))) }));
            std::future::pending::<Response>().await
        };
        let world = World::serving(service, Limits::default());
        let client = Scenario::post("/").content("hello").at(Phase::ReadingContent, &world).await;
        client.send("he").await;
        world.worker.draining.set(true);
        world.worker.notes.cut();
        settle().await;
        assert_eq!(client.closed(), Some(CloseReason::DrainLimit));
        assert!(matches!(learnt.get(), Some(Err(ContentError::Ended | ContentError::Disconnected))));
    });
}

#[test]
fn a_task_gets_no_part_of_content_that_is_drained() {
    virtually(async {
        let learnt = Rc::new(RefCell::new(Vec::new()));
        let into = learnt.clone();
        let service = async move |request: &mut Request| {
            let (mut body, into) = (request.take_body(), into.clone());
            drop(tokio::task::spawn_local(async move {
                pass(1).await;
                let read = body.read().await.map(|bytes| bytes.len());
                into.borrow_mut().push(read);
            }));
            Response::new(Status::new(202).expect("a status"))
        };
        let world = World::serving(service, Limits::default());
        let post = Scenario::post("/").content("x".repeat(30));
        let client = post.clone().at_head(&world).await;
        client.send("x".repeat(20)).await;
        pass(2).await;
        assert_eq!(client.statuses(), [202]);
        client.send([&"x".repeat(10).into_bytes()[..], &post.bytes()].concat()).await;
        pass(2).await;
        assert_eq!(client.statuses(), [202, 202], "the connection goes on");
        assert_eq!(*learnt.borrow(), [Err(ContentError::Ended), Err(ContentError::Ended)]);
    });
}

/// Reads for a second at most, and then waits for ever; or only waits; or does neither.
struct Impatient;

impl Service for Impatient {
    async fn call(&self, request: &mut Request) -> Response {
        if request.path() == "/read" {
            let _ = tokio::time::timeout(std::time::Duration::from_secs(1), request.body().read()).await;
        }
        if request.path() != "/ok" {
            std::future::pending::<()>().await;
        }
        Response::new(Status::OK)
    }

    fn half_closed(&self) -> HalfClosed {
        HalfClosed::GivenUp
    }
}

#[test]
fn a_client_that_goes_away_is_seen_to_whatever_was_read_before() {
    virtually(async {
        let world = World::serving(Impatient, Limits::default());
        let given_up = Scenario::post("/read").content("hello").at_head(&world).await;
        given_up.send("h").await;
        pass(2).await;
        assert_eq!(given_up.closed(), None);
        given_up.end(Ending::Ended).await;
        assert_eq!(given_up.closed(), Some(CloseReason::ClientGone));
        let drained = Scenario::post("/ok").content("hello").at_head(&world).await;
        assert_eq!(drained.statuses(), [200]);
        drained.send([&b"hello"[..], &Scenario::get("/never").bytes()].concat()).await;
        drained.end(Ending::Ended).await;
        assert_eq!(drained.closed(), Some(CloseReason::ClientGone));
    });
}
