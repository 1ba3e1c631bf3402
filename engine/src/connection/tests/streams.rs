//! Answers that come piece by piece.

use super::pipe::Ending;
use super::scenario::{Scenario, World, is_about, pass, settle, virtually};
use super::site::content;
use crate::limits::Limits;
use crate::service::{Body, Chunks, CloseReason, HalfClosed, Outcome, Phase, Request, Response, Service, StreamError};
use bytes::Bytes;
use selvedge_proto::Status;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

type Piece = Option<Result<Bytes, StreamError>>;

/// A stream whose pieces the test gives it, one by one.
#[derive(Clone, Default)]
struct Fed(Rc<RefCell<(VecDeque<Piece>, Option<Waker>)>>);

impl Fed {
    fn give(&self, piece: Piece) {
        let mut fed = self.0.borrow_mut();
        fed.0.push_back(piece);
        fed.1.take().inspect(Waker::wake_by_ref);
    }

    fn bytes(&self, bytes: impl Into<Bytes>) {
        self.give(Some(Ok(bytes.into())));
    }

    /// Answers everything with it.
    fn service(&self, length: Option<u64>) -> impl Service {
        let fed = self.clone();
        async move |_: &mut Request| {
            Response::new(Status::OK).body(Body::Stream { length, chunks: Box::pin(fed.clone()) })
        }
    }
}

impl Chunks for Fed {
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Piece> {
        let mut fed = self.0.borrow_mut();
        match fed.0.pop_front() {
            Some(piece) => Poll::Ready(piece),
            None => {
                fed.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[test]
fn pieces_leave_as_they_come() {
    virtually(async {
        let fed = Fed::default();
        let world = World::serving(fed.service(None), Limits::default());
        let client = Scenario::get("/").sent(&world).await;
        assert_eq!(client.reply().status, 200, "the head does not wait");
        let mut all = Vec::new();
        for piece in ["one", "", "two", "three"].map(str::to_owned).into_iter().chain([100, 20_000].map(text)) {
            all.extend_from_slice(piece.as_bytes());
            fed.bytes(piece);
            // A stream has no floor: nobody knows when the next piece comes.
            pass(300).await;
            assert_eq!(client.reply().content, all);
        }
        fed.give(None);
        settle().await;
        assert!(client.reply().is_complete);
        assert_eq!(client.phase(), Phase::Idle);
    });
}

fn text(len: usize) -> String {
    String::from_utf8(content(len)).expect("it is of letters")
}

#[test]
fn pieces_that_are_there_leave_together() {
    virtually(async {
        let fed = Fed::default();
        (0..100).for_each(|_| fed.bytes("piece"));
        fed.give(None);
        let world = World::serving(fed.service(Some(500)), Limits::default());
        let client = Scenario::get("/").sent(&world).await;
        assert_eq!((client.reply().content.len(), client.pipe.sends().len()), (500, 1));
    });
}

#[test]
fn a_stream_that_does_not_keep_its_length_ends_the_connection() {
    virtually(async {
        for (pieces, sent) in [(&["hell"][..], "hell"), (&["hello!"], ""), (&["hello", "!"], "hello"), (&[], "")] {
            let fed = Fed::default();
            pieces.iter().for_each(|piece| fed.bytes(*piece));
            fed.give(None);
            let world = World::serving(fed.service(Some(5)), Limits::default());
            let client = Scenario::get("/").sent(&world).await;
            assert_eq!(client.closed(), Some(CloseReason::StreamFailed), "{pieces:?}");
            assert_eq!(client.finished()[0].outcome, Outcome::Cut);
            let replies = client.replies();
            assert!(replies.iter().all(|reply| sent.starts_with(reply.text())), "{pieces:?}: {replies:?}");
        }
    });
}

#[test]
fn a_stream_that_fails_ends_the_connection_without_a_last_chunk() {
    virtually(async {
        let fed = Fed::default();
        let world = World::serving(fed.service(None), Limits::default());
        let client = Scenario::get("/").sent(&world).await;
        fed.bytes("begun");
        settle().await;
        fed.give(Some(Err(StreamError("the source is gone".to_owned()))));
        settle().await;
        assert_eq!(client.closed(), Some(CloseReason::StreamFailed));
        assert_eq!((client.reply().text(), client.reply().is_complete), ("begun", false));
        assert_eq!(client.finished()[0].outcome, Outcome::Cut);
    });
}

#[test]
fn a_client_that_does_not_read_stops_the_stream() {
    virtually(async {
        let fed = Fed::default();
        (0..1000).for_each(|_| fed.bytes(content(1000)));
        let world = World::serving(fed.service(None), Limits::default());
        let client = Scenario::get("/").at(Phase::Sending, &world).await;
        assert!(fed.0.borrow().0.len() > 980, "what cannot leave is not asked for");
        assert_eq!(client.ends().await.0, CloseReason::SendTooSlow);
    });
}

#[test]
fn an_echo_answers_while_it_reads() {
    virtually(async {
        let world = World::new();
        for scenario in [Scenario::post("/echo").content("hello"), Scenario::post("/echo").chunks("")] {
            let is_chunked = scenario.bytes().len() == scenario.head().len();
            let frame = |piece: &str| match is_chunked {
                true => format!("{:x}\r\n{piece}\r\n", piece.len()),
                false => piece.to_owned(),
            };
            let client = scenario.at_head(&world).await;
            client.send(frame("he")).await;
            assert_eq!(client.reply().text(), "he", "it does not wait for the rest");
            client.send(frame("llo")).await;
            if is_chunked {
                client.send("0\r\n\r\n").await;
            }
            assert_eq!((client.reply().text(), client.reply().is_complete), ("hello", true));
            assert_eq!(client.phase(), Phase::Idle);
        }
    });
}

#[test]
fn a_large_echo_keeps_the_connection() {
    virtually(async {
        let world = World::new();
        let all = content(1_000_000);
        let client = Scenario::post("/echo").content(&all).sent(&world).await;
        assert!(client.reply().content == all && !client.reply().closes());
        client.send(Scenario::get("/ok").bytes()).await;
        assert_eq!(client.statuses(), [200, 200]);
    });
}

#[test]
fn an_echo_of_broken_content_is_cut() {
    virtually(async {
        let world = World::new();
        let broken = Scenario::post("/echo").chunks("2\r\nhe\r\nx").sent(&world).await;
        assert!(broken.closed().is_some_and(|reason| !reason.is_ordinary()));
        assert!(broken.replies().iter().all(|reply| !reply.is_complete));
        let cut = Scenario::post("/echo").content("hello").at_head(&world).await;
        cut.send("he").await;
        cut.end(Ending::Ended).await;
        assert!(cut.closed().is_some_and(|reason| !reason.is_ordinary()));
        assert!(!cut.reply().is_complete);
        let silent = Scenario::post("/echo").content("hello").at_head(&world).await;
        assert!(!silent.ends().await.0.is_ordinary());
    });
}

/// Answers with what a task of its own reads, and with nothing where the client has gone.
struct Relay;

impl Service for Relay {
    async fn call(&self, request: &mut Request) -> Response {
        let (mut body, fed) = (request.take_body(), Fed::default());
        let into = fed.clone();
        drop(tokio::task::spawn_local(async move {
            loop {
                let piece = body.chunk().await;
                let goes_on = matches!(piece, Some(Ok(_)));
                into.give(piece.map(|piece| piece.map_err(|error| StreamError(format!("{error:?}")))));
                if !goes_on {
                    return;
                }
            }
        }));
        Response::new(Status::OK).body(Body::Stream { length: None, chunks: Box::pin(fed) })
    }

    fn half_closed(&self) -> HalfClosed {
        HalfClosed::GivenUp
    }
}

#[test]
fn a_task_that_reads_for_an_answer_is_told_what_comes() {
    virtually(async {
        let world = World::serving(Relay, Limits::default());
        let client = Scenario::post("/").content("hello").at_head(&world).await;
        for (piece, all) in [("he", "he"), ("l", "hel"), ("l", "hell")] {
            client.send(piece).await;
            assert_eq!(client.reply().text(), all);
        }
        client.send("o").await;
        assert!(client.reply().text() == "hello" && client.reply().is_complete);
        assert_eq!(client.phase(), Phase::Idle);
        let cut = Scenario::post("/").content("hello").at_head(&world).await;
        cut.send("he").await;
        cut.end(Ending::Ended).await;
        assert!(cut.closed().is_some_and(|reason| !reason.is_ordinary()));
    });
}

#[test]
fn a_client_that_stalls_between_a_task_that_reads_and_its_answer_ends() {
    virtually(async {
        let world = World::serving(Relay, Limits::default());
        let silent = Scenario::post("/").content("hello").at_head(&world).await;
        silent.send("he").await;
        let (reason, seconds) = silent.ends().await;
        assert!(!reason.is_ordinary() && is_about(seconds, 30), "{reason:?} after {seconds} s");
        let deaf = Scenario::post("/").content("hello").at_head(&world).await;
        deaf.pipe.set_room(0);
        deaf.send("he").await;
        deaf.send("l").await;
        assert_eq!(deaf.phase(), Phase::Sending, "the answer counts");
        assert_eq!(deaf.ends().await.0, CloseReason::SendTooSlow);
    });
}

/// Streams to one client; whether another one, who asks behind it, has its answer before the stream ends.
async fn lets_others_in(chunks: impl Chunks + Clone + 'static, bytes: usize) -> bool {
    let service = async move |request: &mut Request| match request.path() {
        "/stream" => Response::new(Status::OK).body(Body::Stream { length: None, chunks: Box::pin(chunks.clone()) }),
        _ => Response::new(Status::OK),
    };
    let world = World::serving(service, Limits::default());
    let (first, second) = (world.connect(), world.connect());
    settle().await;
    first.pipe.push(&Scenario::get("/stream").bytes());
    second.pipe.push(&Scenario::get("/").bytes());
    settle().await;
    assert_eq!((first.reply().content.len(), second.statuses()), (bytes, vec![200]));
    world.recorder.before(second.peer) == 0
}

#[test]
fn others_get_their_turn_between_pieces_that_are_always_there() {
    virtually(async {
        let fed = Fed::default();
        (0..100_000).for_each(|_| fed.bytes("x"));
        fed.give(None);
        assert!(lets_others_in(fed, 100_000).await);
    });
}

/// Has others have their turn before each of its pieces.
#[derive(Clone)]
struct Yielding {
    left: usize,
    has_yielded: bool,
}

impl Chunks for Yielding {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Piece> {
        self.has_yielded = !self.has_yielded;
        if self.has_yielded {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.left = self.left.saturating_sub(1);
        Poll::Ready((self.left > 0).then(|| Ok(Bytes::from_static(b"x"))))
    }
}

#[test]
fn a_stream_that_lets_others_have_their_turn_does() {
    virtually(async { assert!(lets_others_in(Yielding { left: 20, has_yielded: false }, 19).await) });
}

#[test]
fn answers_before_a_stream_that_fails_are_not_lost() {
    virtually(async {
        let fed = Fed::default();
        fed.give(Some(Err(StreamError("the source is gone".to_owned()))));
        let service = async move |request: &mut Request| match request.path() {
            "/stream" => Response::new(Status::OK).body(Body::Stream { length: None, chunks: Box::pin(fed.clone()) }),
            _ => Response::new(Status::OK).body("whole"),
        };
        let world = World::serving(service, Limits::default());
        let client = world.connect();
        client.send([Scenario::get("/").bytes(), Scenario::get("/stream").bytes()].concat()).await;
        assert_eq!(client.closed(), Some(CloseReason::StreamFailed));
        let replies = client.replies();
        assert!(replies[0].is_complete && replies[0].text() == "whole", "{replies:?}");
        assert!(replies[1..].iter().all(|reply| !reply.is_complete));
    });
}

/// Answers with a piece each second, until a task of its own could not read the content to its end.
struct Ticking;

impl Service for Ticking {
    async fn call(&self, request: &mut Request) -> Response {
        let (mut body, fed) = (request.take_body(), Fed::default());
        let (into, ticks) = (fed.clone(), fed.clone());
        drop(tokio::task::spawn_local(async move {
            while let Some(Ok(_)) = body.chunk().await {}
            into.give(Some(Err(StreamError("the content has ended".to_owned()))));
        }));
        drop(tokio::task::spawn_local(async move {
            loop {
                pass(1).await;
                ticks.bytes("tick");
            }
        }));
        Response::new(Status::OK).body(Body::Stream { length: None, chunks: Box::pin(fed) })
    }
}

#[test]
fn an_answer_that_goes_on_is_no_reason_to_wait_longer_for_content() {
    virtually(async {
        let world = World::serving(Ticking, Limits::default());
        let client = Scenario::post("/").content(content(1_000_000)).at_head(&world).await;
        client.send(content(500_000)).await;
        let (reason, seconds) = client.ends().await;
        assert!(!reason.is_ordinary() && is_about(seconds, 30), "{reason:?} after {seconds} s");
    });
}
