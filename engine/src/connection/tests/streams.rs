//! Streamed responses.

use super::pipe::ClientEnd;
use super::scenario::{Scenario, TestServer, advance, is_about, settle, with_virtual_time};
use super::test_app::content;
use crate::limits::Limits;
use crate::service::{
    Body, Chunks, CloseReason, HalfClosed, IncomingBody, Phase, Request, Response, ResponseOutcome, Service,
    StreamError,
};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pub(super) type Piece = Option<Result<Bytes, StreamError>>;

/// A stream whose chunks the test provides.
#[derive(Clone, Default)]
pub(super) struct TestStream(Rc<RefCell<(VecDeque<Piece>, Option<Waker>)>>);

impl TestStream {
    pub(super) fn give(&self, piece: Piece) {
        let mut stream = self.0.borrow_mut();
        stream.0.push_back(piece);
        stream.1.take().inspect(Waker::wake_by_ref);
    }

    pub(super) fn bytes(&self, bytes: impl Into<Bytes>) {
        self.give(Some(Ok(bytes.into())));
    }

    /// Returns a service that responds with this stream.
    pub(super) fn service(&self, length: Option<u64>) -> impl Service {
        let stream = self.clone();
        async move |_: &mut Request| {
            Response::new(StatusCode::OK).body(Body::Stream { length, chunks: Box::pin(stream.clone()) })
        }
    }
}

impl Chunks for TestStream {
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Piece> {
        let mut stream = self.0.borrow_mut();
        match stream.0.pop_front() {
            Some(piece) => Poll::Ready(piece),
            None => {
                stream.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// An endless response, which takes the content of the request while it is not read.
pub(super) struct Exchanging {
    content: IncomingBody,
    taken: Rc<Cell<usize>>,
}

impl Exchanging {
    /// Returns a service that responds so, and counts the bytes of content.
    pub(super) fn service(taken: &Rc<Cell<usize>>) -> impl Service + use<> {
        let taken = taken.clone();
        async move |request: &mut Request| {
            let chunks = Box::pin(Self { content: request.take_body(), taken: taken.clone() });
            Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks })
        }
    }
}

impl Chunks for Exchanging {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Piece> {
        Poll::Ready(Some(Ok(content(1000).into())))
    }

    fn poll_progress(mut self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let this = &mut *self;
        while let Poll::Ready(Some(Ok(piece))) = this.content.poll_chunk(cx) {
            this.taken.set(this.taken.get() + piece.len());
        }
    }
}

#[test]
fn content_arrives_while_its_client_does_not_read() {
    with_virtual_time(async || {
        let taken = Rc::default();
        let server = TestServer::serving(Exchanging::service(&taken), Limits::default());
        let client = server.connect();
        client.pipe.set_window(5000);
        client.send(Scenario::post("/").field("Content-Length", "1000000").head()).await;
        let mut sent = 0;
        for _ in 0..20 {
            client.send(content(10_000)).await;
            sent += 10_000;
            assert_eq!(taken.get(), sent);
            advance(15).await;
        }
        // It reads, and has the usual time for the next bytes.
        client.read(100_000).await;
        advance(25).await;
        assert_eq!(client.closed(), None);
        let (reason, seconds) = client.wait_closed().await;
        assert!(reason == CloseReason::SendTooSlow && seconds <= 10, "{reason:?} after {seconds} s");
    });
}

#[test]
fn content_below_its_minimum_rate_is_no_reason_to_wait_for_a_client() {
    with_virtual_time(async || {
        let taken = Rc::default();
        let server = TestServer::serving(Exchanging::service(&taken), Limits::default());
        let client = server.connect();
        client.pipe.set_window(5000);
        client.send(Scenario::post("/").field("Content-Length", "1000000").head()).await;
        for _ in 0..4 {
            client.send("x").await;
            advance(15).await;
        }
        assert_eq!((client.closed(), taken.get()), (Some(CloseReason::SendTooSlow), 3));
    });
}

/// Content of known length with trailers.
struct WithTrailers(Option<Bytes>);

impl Chunks for WithTrailers {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Piece> {
        Poll::Ready(self.0.take().map(Ok))
    }

    fn trailers(self: Pin<&mut Self>) -> Fields {
        let mut fields = Fields::new();
        fields.append("x-sum", "5").expect("the field is valid");
        fields
    }

    fn may_have_trailers(&self) -> bool {
        true
    }
}

#[test]
fn trailers_after_a_known_length_replace_it_for_clients_that_accept_them() {
    with_virtual_time(async || {
        let service = async |request: &mut Request| {
            let sent = if request.target() == "/short" { "hell" } else { "hello" };
            let chunks = Box::pin(WithTrailers(Some(Bytes::from_static(sent.as_bytes()))));
            Response::new(StatusCode::OK).body(Body::Stream { length: Some(5), chunks })
        };
        let server = TestServer::serving(service, Limits::default());
        for (method, version, te, framing, rest) in [
            ("GET", "HTTP/1.1", "gzip, trailers", "transfer-encoding: chunked", "5\r\nhello\r\n0\r\nx-sum: 5\r\n\r\n"),
            ("GET", "HTTP/1.1", "gzip", "content-length: 5", "\r\n\r\nhello"),
            ("GET", "HTTP/1.0", "trailers", "content-length: 5", "\r\n\r\nhello"),
            ("HEAD", "HTTP/1.1", "trailers", "content-length: 5", "\r\n\r\n"),
        ] {
            let client = Scenario::request(method, "/", version).field("TE", te).sent(&server).await;
            let text = String::from_utf8(client.pipe.outgoing()).expect("it is text");
            assert!(text.contains(&format!("\r\n{framing}\r\n")) && text.ends_with(rest), "{method} {te}: {text}");
        }
        let client = Scenario::get("/short").field("TE", "trailers").sent(&server).await;
        assert_eq!(client.closed(), Some(CloseReason::StreamFailed));
        assert!(!client.pipe.outgoing().ends_with(b"\r\n\r\n"), "no last chunk follows");
    });
}

#[test]
fn chunks_leave_as_they_are_produced() {
    with_virtual_time(async || {
        let stream = TestStream::default();
        let server = TestServer::serving(stream.service(None), Limits::default());
        let client = Scenario::get("/").sent(&server).await;
        assert_eq!(client.response().status, 200, "the head does not wait");
        let mut all = Vec::new();
        for piece in ["one", "", "two", "three"].map(str::to_owned).into_iter().chain([100, 20_000].map(text)) {
            all.extend_from_slice(piece.as_bytes());
            stream.bytes(piece);
            // A stream has no minimum rate: the time of its next chunk is unknown.
            advance(300).await;
            assert_eq!(client.response().content, all);
        }
        stream.give(None);
        settle().await;
        assert!(client.response().is_complete);
        assert_eq!(client.phase(), Phase::Idle);
    });
}

fn text(len: usize) -> String {
    String::from_utf8(content(len)).expect("it is of letters")
}

#[test]
fn available_chunks_leave_in_one_send() {
    with_virtual_time(async || {
        let stream = TestStream::default();
        (0..100).for_each(|_| stream.bytes("piece"));
        stream.give(None);
        let server = TestServer::serving(stream.service(Some(500)), Limits::default());
        let client = Scenario::get("/").sent(&server).await;
        assert_eq!((client.response().content.len(), client.pipe.sends().len()), (500, 1));
    });
}

#[test]
fn a_stream_with_a_wrong_length_ends_the_connection() {
    with_virtual_time(async || {
        for (pieces, sent) in [(&["hell"][..], "hell"), (&["hello!"], ""), (&["hello", "!"], "hello"), (&[], "")] {
            let stream = TestStream::default();
            pieces.iter().for_each(|piece| stream.bytes(*piece));
            stream.give(None);
            let server = TestServer::serving(stream.service(Some(5)), Limits::default());
            let client = Scenario::get("/").sent(&server).await;
            assert_eq!(client.closed(), Some(CloseReason::StreamFailed), "{pieces:?}");
            assert_eq!(client.finished()[0].outcome, ResponseOutcome::Aborted);
            let responses = client.responses();
            assert_eq!(responses.len(), 1, "{pieces:?}: the client learns that a response has begun");
            assert!(sent.starts_with(responses[0].text()), "{pieces:?}: {responses:?}");
        }
    });
}

#[test]
fn a_stream_that_fails_ends_the_connection_without_a_last_chunk() {
    with_virtual_time(async || {
        let stream = TestStream::default();
        let server = TestServer::serving(stream.service(None), Limits::default());
        let client = Scenario::get("/").sent(&server).await;
        stream.bytes("begun");
        settle().await;
        stream.give(Some(Err(StreamError("the source was dropped".to_owned()))));
        settle().await;
        assert_eq!(client.closed(), Some(CloseReason::StreamFailed));
        assert_eq!((client.response().text(), client.response().is_complete), ("begun", false));
        assert_eq!(client.finished()[0].outcome, ResponseOutcome::Aborted);
    });
}

#[test]
fn a_client_that_does_not_read_stops_the_stream() {
    with_virtual_time(async || {
        let stream = TestStream::default();
        (0..1000).for_each(|_| stream.bytes(content(1000)));
        let server = TestServer::serving(stream.service(None), Limits::default());
        let client = Scenario::get("/").at(Phase::Sending, &server).await;
        assert!(stream.0.borrow().0.len() > 980, "a chunk that cannot be sent is not requested");
        assert_eq!(client.wait_closed().await.0, CloseReason::SendTooSlow);
    });
}

#[test]
fn an_echo_responds_while_it_reads() {
    with_virtual_time(async || {
        let server = TestServer::new();
        for scenario in [Scenario::post("/echo").content("hello"), Scenario::post("/echo").chunks("")] {
            let is_chunked = scenario.bytes().len() == scenario.head().len();
            let frame = |piece: &str| match is_chunked {
                true => format!("{:x}\r\n{piece}\r\n", piece.len()),
                false => piece.to_owned(),
            };
            let client = scenario.at_head(&server).await;
            client.send(frame("he")).await;
            assert_eq!(client.response().text(), "he", "it does not wait for the rest");
            client.send(frame("llo")).await;
            if is_chunked {
                client.send("0\r\n\r\n").await;
            }
            assert_eq!((client.response().text(), client.response().is_complete), ("hello", true));
            assert_eq!(client.phase(), Phase::Idle);
        }
    });
}

#[test]
fn a_large_echo_keeps_the_connection() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let all = content(1_000_000);
        let client = Scenario::post("/echo").content(&all).sent(&server).await;
        assert!(client.response().content == all && !client.response().closes());
        client.send(Scenario::get("/ok").bytes()).await;
        assert_eq!(client.statuses(), [200, 200]);
    });
}

#[test]
fn an_echo_of_malformed_content_is_aborted() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let broken = Scenario::post("/echo").chunks("2\r\nhe\r\nx").sent(&server).await;
        assert!(broken.closed().is_some_and(|reason| !reason.is_ordinary()));
        assert!(broken.responses().iter().all(|response| !response.is_complete));
        let incomplete = Scenario::post("/echo").content("hello").at_head(&server).await;
        incomplete.send("he").await;
        incomplete.end(ClientEnd::Ended).await;
        assert!(incomplete.closed().is_some_and(|reason| !reason.is_ordinary()));
        assert!(!incomplete.response().is_complete);
        let silent = Scenario::post("/echo").content("hello").at_head(&server).await;
        assert!(!silent.wait_closed().await.0.is_ordinary());
    });
}

/// Responds with what a task of its own reads, and with nothing if the client disconnected.
struct Relay;

impl Service for Relay {
    async fn call(&self, request: &mut Request) -> Response {
        let (mut body, stream) = (request.take_body(), TestStream::default());
        let into = stream.clone();
        drop(tokio::task::spawn_local(async move {
            loop {
                let piece = body.chunk().await;
                let is_open = matches!(piece, Some(Ok(_)));
                into.give(piece.map(|piece| piece.map_err(|error| StreamError(format!("{error:?}")))));
                if !is_open {
                    return;
                }
            }
        }));
        Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks: Box::pin(stream) })
    }

    fn half_closed(&self) -> HalfClosed {
        HalfClosed::Cancel
    }
}

#[test]
fn a_task_that_reads_for_a_response_gets_the_content() {
    with_virtual_time(async || {
        let server = TestServer::serving(Relay, Limits::default());
        let client = Scenario::post("/").content("hello").at_head(&server).await;
        for (piece, all) in [("he", "he"), ("l", "hel"), ("l", "hell")] {
            client.send(piece).await;
            assert_eq!(client.response().text(), all);
        }
        client.send("o").await;
        assert!(client.response().text() == "hello" && client.response().is_complete);
        assert_eq!(client.phase(), Phase::Idle);
        let incomplete = Scenario::post("/").content("hello").at_head(&server).await;
        incomplete.send("he").await;
        incomplete.end(ClientEnd::Ended).await;
        assert!(incomplete.closed().is_some_and(|reason| !reason.is_ordinary()));
    });
}

#[test]
fn a_stalled_client_ends_a_response_made_of_its_content() {
    with_virtual_time(async || {
        let server = TestServer::serving(Relay, Limits::default());
        let silent = Scenario::post("/").content("hello").at_head(&server).await;
        silent.send("he").await;
        let (reason, seconds) = silent.wait_closed().await;
        assert!(!reason.is_ordinary() && is_about(seconds, 30), "{reason:?} after {seconds} s");
        let not_reading = Scenario::post("/").content("hello").at_head(&server).await;
        not_reading.pipe.set_window(0);
        not_reading.send("he").await;
        not_reading.send("l").await;
        assert_eq!(not_reading.phase(), Phase::Sending, "the response counts");
        assert_eq!(not_reading.wait_closed().await.0, CloseReason::SendTooSlow);
    });
}

/// Streams to one client, and returns whether a later client gets its response before the stream ends.
async fn yields_to_others(chunks: impl Chunks + Clone + 'static, bytes: usize) -> bool {
    let service = async move |request: &mut Request| match request.path() {
        "/stream" => {
            Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks: Box::pin(chunks.clone()) })
        }
        _ => Response::new(StatusCode::OK),
    };
    let server = TestServer::serving(service, Limits::default());
    let (first, second) = (server.connect(), server.connect());
    settle().await;
    first.pipe.push(&Scenario::get("/stream").bytes());
    second.pipe.push(&Scenario::get("/").bytes());
    settle().await;
    assert_eq!((first.response().content.len(), second.statuses()), (bytes, vec![200]));
    server.recorder.before(second.peer) == 0
}

#[test]
fn other_connections_are_served_between_available_chunks() {
    with_virtual_time(async || {
        let stream = TestStream::default();
        (0..100_000).for_each(|_| stream.bytes("x"));
        stream.give(None);
        assert!(yields_to_others(stream, 100_000).await);
    });
}

/// Yields before each of its chunks.
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
fn a_stream_that_yields_lets_other_connections_run() {
    with_virtual_time(async || assert!(yields_to_others(Yielding { left: 20, has_yielded: false }, 19).await));
}

#[test]
fn responses_before_a_failing_stream_are_sent() {
    with_virtual_time(async || {
        let stream = TestStream::default();
        stream.give(Some(Err(StreamError("the source was dropped".to_owned()))));
        let service = async move |request: &mut Request| match request.path() {
            "/stream" => {
                Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks: Box::pin(stream.clone()) })
            }
            _ => Response::new(StatusCode::OK).body("whole"),
        };
        let server = TestServer::serving(service, Limits::default());
        let client = server.connect();
        client.send([Scenario::get("/").bytes(), Scenario::get("/stream").bytes()].concat()).await;
        assert_eq!(client.closed(), Some(CloseReason::StreamFailed));
        let responses = client.responses();
        assert!(responses[0].is_complete && responses[0].text() == "whole", "{responses:?}");
        assert!(responses[1..].iter().all(|response| !response.is_complete));
    });
}

/// Responds with one chunk per second, until a task of its own fails to read the content.
struct Ticking;

impl Service for Ticking {
    async fn call(&self, request: &mut Request) -> Response {
        let (mut body, stream) = (request.take_body(), TestStream::default());
        let (into, ticks) = (stream.clone(), stream.clone());
        drop(tokio::task::spawn_local(async move {
            while let Some(Ok(_)) = body.chunk().await {}
            into.give(Some(Err(StreamError("the content has ended".to_owned()))));
        }));
        drop(tokio::task::spawn_local(async move {
            loop {
                advance(1).await;
                ticks.bytes("tick");
            }
        }));
        Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks: Box::pin(stream) })
    }
}

#[test]
fn a_running_response_does_not_extend_the_content_timeout() {
    with_virtual_time(async || {
        let server = TestServer::serving(Ticking, Limits::default());
        let client = Scenario::post("/").content(content(1_000_000)).at_head(&server).await;
        client.send(content(500_000)).await;
        let (reason, seconds) = client.wait_closed().await;
        assert!(!reason.is_ordinary() && is_about(seconds, 30), "{reason:?} after {seconds} s");
    });
}
