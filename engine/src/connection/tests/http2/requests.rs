//! Requests: at once on one connection, with content, cancelled, or refused.

use super::super::pipe::ClientEnd;
use super::super::scenario::{TestServer, advance, is_about, settle, with_virtual_time};
use super::super::streams::TestStream;
use super::super::test_app::content;
use super::client::{
    CONTINUATION, END_HEADERS, FLOW_CONTROL_ERROR, HEADERS, Http2Client, LAST, NO_ERROR, PROTOCOL_ERROR,
    REFUSED_STREAM, RST_STREAM, WINDOW_UPDATE, block,
};
use crate::limits::Limits;
use crate::service::{
    Body, CloseReason, ContentError, Phase, Request, Response, ResponseOutcome, Service, StreamError,
};
use selvedge_proto::field_section::MalformedMessage;
use selvedge_proto::{Reject, StatusCode, http2};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// The window of a stream at the server, in bytes.
const STREAM_WINDOW: usize = 262_144;

#[test]
fn requests_are_served_at_once_and_reported_once() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let (slow, ok, missing) = (client.get("/slow/5"), client.get("/ok"), client.get("/"));
        client.send().await;
        assert_eq!((client.response(ok).status, client.response(ok).text()), (200, "/ok"));
        assert_eq!(client.response(missing).status, 404);
        assert!(!client.has_response(slow));
        advance(6).await;
        client.send().await;
        assert_eq!(client.response(slow).text(), "/slow/5");
        assert_eq!(client.reported(), [(slow.into(), 200), (ok.into(), 200), (missing.into(), 404)].into());
        assert!(client.client.finished().iter().all(|finished| finished.outcome == ResponseOutcome::Complete));
        assert_eq!(client.client.phase(), Phase::Idle);
    });
}

#[test]
fn content_arrives_whole_also_if_it_exceeds_the_windows() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let all = content(3_000_000);
        let (large, small, empty) = (client.post("/read"), client.post("/read"), client.post("/read"));
        client.data(LAST, empty, b"");
        client.data(0, small, b"he");
        client.data(LAST, large, &all);
        client.send().await;
        client.data(LAST, small, b"llo");
        client.send().await;
        assert!(client.response(large).content == all);
        assert_eq!((client.response(small).text(), client.response(empty).text()), ("hello", ""));
        assert_eq!(client.client.phase(), Phase::Idle);
    });
}

#[test]
fn content_that_is_not_read_is_bounded_by_its_window() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let (unread, slow) = (client.post("/never"), client.get("/slow/1"));
        client.data(0, unread, &content(STREAM_WINDOW));
        client.send().await;
        assert!(!client.has_response(unread), "the window permits it");
        assert!(client.frames(WINDOW_UPDATE).iter().all(|frame| frame.stream != unread));
        client.data(0, unread, b"x");
        client.send().await;
        assert_eq!(client.response(unread).reset, Some(FLOW_CONTROL_ERROR));
        advance(2).await;
        client.send().await;
        assert_eq!(client.reported(), [(unread.into(), 499), (slow.into(), 200)].into());
        // Its bytes are returned to the window of the connection, again and again.
        for _ in 0..8 {
            let next = client.post("/slow/1");
            client.data(0, next, &content(STREAM_WINDOW));
            client.send().await;
            advance(2).await;
            client.send().await;
            assert_eq!(client.response(next).status, 200);
        }
        assert_eq!(client.client.closed(), None);
    });
}

#[test]
fn content_after_the_response_is_discarded_up_to_a_limit() {
    with_virtual_time(async || {
        let limits = Limits::default();
        let discarded_max = limits.discard_bytes_max as usize;
        let server = TestServer::with(limits);
        let mut client = Http2Client::connect(&server).await;
        let (whole, endless, trailers) = (client.post("/ok"), client.post("/limit/100"), client.post("/slow/1"));
        client.data(0, endless, &content(1_000));
        client.data(0, trailers, &content(STREAM_WINDOW));
        client.send().await;
        advance(2).await;
        client.send().await;
        for (stream, status) in [(whole, 200), (endless, 413), (trailers, 200)] {
            let response = client.response(stream);
            assert_eq!((response.status, response.is_complete, response.reset), (status, true, None));
        }
        assert_eq!(client.reported().len(), 3);
        // The windows open again for all that is discarded.
        for (stream, before) in [(whole, 0), (trailers, STREAM_WINDOW), (endless, 1_000)] {
            let first = discarded_max / 2;
            client.data(0, stream, &content(first));
            client.send().await;
            let updates = client.frames(WINDOW_UPDATE);
            assert!(updates.iter().any(|update| update.stream == stream), "{before}");
            client.data(0, stream, &content(discarded_max - first));
            client.send().await;
            assert_eq!(client.response(stream).reset, None);
        }
        assert_eq!(client.client.phase(), Phase::ReadingContent);
        client.data(LAST, whole, b"");
        client.trailers(trailers, &[]);
        client.data(0, endless, b"x");
        client.send().await;
        let resets = [whole, trailers, endless].map(|stream| client.response(stream).reset);
        assert_eq!(resets, [None, None, Some(NO_ERROR)]);
        client.data(0, endless, b"in flight");
        client.data(LAST, endless, b"");
        client.send().await;
        assert_eq!(client.fetch("/ok").await.status, 200, "that is no violation");
        assert_eq!((client.reported().len(), client.client.phase()), (4, Phase::Idle));
    });
}

#[test]
fn content_after_the_response_has_the_time_of_content() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let (open, drip) = (client.post("/ok"), client.post("/ok"));
        let large = client.request(0, "POST", "/ok", &[("a", "b"); 200]);
        client.send().await;
        assert_eq!(client.response(large).status, 431);
        let began = tokio::time::Instant::now();
        while client.response(drip).reset.is_none() {
            assert!(began.elapsed().as_secs() < 100, "it is reset");
            advance(1).await;
            client.data(0, drip, b"a few bytes");
            client.send().await;
        }
        assert!(is_about(began.elapsed().as_secs(), 30), "{:?}", began.elapsed());
        assert_eq!([open, drip, large].map(|stream| client.response(stream).reset), [Some(NO_ERROR); 3]);
        assert_eq!((client.reported().len(), client.client.phase()), (3, Phase::Idle));
    });
}

#[test]
fn a_client_may_stop_within_its_content_after_the_response() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let stream = client.request(0, "POST", "/ok", &[("content-length", "1000")]);
        client.send().await;
        client.data(LAST, stream, b"not all");
        client.send().await;
        assert!(client.response(stream).is_complete);
        assert_eq!((client.fetch("/ok").await.status, server.recorder.refused()), (200, vec![]));
    });
}

#[test]
fn nothing_is_discarded_if_the_limit_is_zero() {
    with_virtual_time(async || {
        let server = TestServer::with(Limits { discard_bytes_max: 0, ..Limits::default() });
        let mut client = Http2Client::connect(&server).await;
        let stream = client.post("/ok");
        client.send().await;
        assert_eq!((client.response(stream).is_complete, client.response(stream).reset), (true, Some(NO_ERROR)));
    });
}

#[test]
fn a_drain_waits_for_content_that_is_discarded() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let stream = client.post("/ok");
        client.send().await;
        server.drain();
        client.send().await;
        client.data(LAST, stream, b"the rest");
        assert_eq!(client.client.closed(), None);
        client.send().await;
        let (reason, seconds) = client.client.wait_closed().await;
        assert_eq!((client.response(stream).reset, reason), (None, CloseReason::Draining));
        assert!(seconds <= 6, "{seconds} s");
    });
}

#[test]
fn a_client_continues_when_the_application_reads() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let expect = [("expect", "100-continue"), ("content-length", "5")];
        let post = |client: &mut Http2Client<'_>, path| client.request(0, "POST", path, &expect);
        let (late, early) = (post(&mut client, "/late/5"), post(&mut client, "/late/5"));
        let (unread, refused) = (post(&mut client, "/ok"), post(&mut client, "/limit/4"));
        client.data(0, early, b"he");
        client.send().await;
        assert!(!client.has_response(late));
        for (stream, status) in [(unread, 200), (refused, 413)] {
            let response = client.response(stream);
            assert_eq!((&response.interim[..], response.status, response.reset), (&[][..], status, Some(NO_ERROR)));
        }
        advance(6).await;
        client.send().await;
        assert_eq!((&client.response(late).interim[..], client.response(late).status), (&[100][..], 0));
        assert!(!client.has_response(early), "it has begun without");
        client.data(LAST, early, b"llo");
        client.data(LAST, late, b"world");
        client.send().await;
        assert_eq!((&client.response(early).interim[..], client.response(early).text()), (&[][..], "hello"));
        assert_eq!((&client.response(late).interim[..], client.response(late).text()), (&[100][..], "world"));
    });
}

#[test]
fn trailers_follow_content_and_are_judged() {
    with_virtual_time(async || {
        let service = async |request: &mut Request| match request.body().read_all().await {
            Ok(content) => {
                let trailers = request.body().trailers().unwrap_or_default();
                let text = [&content[..], b" ", trailers.lines()].concat();
                Response::new(StatusCode::OK).body(text)
            }
            Err(error) => error.into(),
        };
        let server = TestServer::serving(service, Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let long = "x".repeat(20_000);
        let rows: [(&[(&str, &str)], _); 5] = [
            (&[("digest", "abc")], Ok("hello digest: abc\r\n")),
            (&[], Ok("hello ")),
            (&[("content-length", "5")], Err(400)),
            (&[("long", &long)], Err(431)),
            (&[(":path", "/")], Err(0)),
        ];
        for (fields, expected) in rows {
            let stream = client.post("/");
            client.data(0, stream, b"hello");
            if fields.iter().all(|(_, value)| value.len() < 16_000) {
                client.trailers(stream, fields);
            } else {
                let block = block(fields.iter());
                client.frame(HEADERS, LAST, stream, &block[..16_000]);
                client.frame(9, 4, stream, &block[16_000..]);
            }
            client.send().await;
            let response = client.response(stream);
            match expected {
                Ok(text) => assert_eq!((response.status, response.text()), (200, text)),
                Err(0) => assert_eq!(response.reset, Some(PROTOCOL_ERROR), "the message is malformed"),
                Err(status) => assert_eq!(response.status, status, "{response:?}"),
            }
        }
        assert_eq!(client.reported().len(), 5);
        assert_eq!(client.client.closed(), None);
    });
}

/// Counts itself as long as it exists.
struct Counted(Rc<Cell<usize>>);

impl Counted {
    fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[test]
fn a_reset_cancels_its_request_and_no_other() {
    with_virtual_time(async || {
        let (count, stream) = (Rc::new(Cell::new(0)), TestStream::default());
        stream.bytes("begun");
        let (counted, chunks) = (count.clone(), stream.clone());
        let service = async move |request: &mut Request| {
            let _counted = Counted::new(&counted);
            match request.target() {
                "/call" => std::future::pending().await,
                _ => {
                    Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks: Box::pin(chunks.clone()) })
                }
            }
        };
        let server = TestServer::serving(service, Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let (first, second, response) = (client.get("/call"), client.get("/call"), client.get("/response"));
        client.send().await;
        assert_eq!((count.get(), client.response(response).text()), (2, "begun"));
        for (stream, left) in [(first, 1), (response, 1)] {
            client.frame(RST_STREAM, 0, stream, &8u32.to_be_bytes());
            client.send().await;
            assert_eq!(count.get(), left);
            assert_eq!(client.response(response).reset, None, "a reset is no reason for another");
        }
        assert_eq!(client.reported(), [(first.into(), 499), (response.into(), 200)].into());
        assert!(client.client.finished().iter().all(|finished| finished.outcome == ResponseOutcome::Aborted));
        client.client.end(ClientEnd::Reset).await;
        assert_eq!((count.get(), client.reported().get(&second.into())), (0, Some(&499)));
        assert_eq!(client.client.closed(), Some(CloseReason::Reset));
    });
}

#[test]
fn content_that_is_too_slow_ends_only_its_request() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let (silent, drip, slow) = (client.post("/read"), client.post("/read"), client.get("/slow/50"));
        client.send().await;
        assert_eq!(client.client.phase(), Phase::ReadingContent);
        let began = tokio::time::Instant::now();
        let mut ended = [0, 0];
        for second in 0..40 {
            if second % 10 == 9 && !client.has_response(drip) {
                client.data(0, drip, b"a few bytes");
            }
            client.send().await;
            for (at, stream) in [silent, drip].into_iter().enumerate() {
                if ended[at] == 0 && client.has_response(stream) {
                    ended[at] = began.elapsed().as_secs();
                    let response = client.response(stream);
                    assert_eq!((response.status, response.reset), (408, Some(NO_ERROR)));
                }
            }
            advance(1).await;
        }
        assert!(ended.iter().all(|&seconds| is_about(seconds, 30)), "{ended:?}");
        advance(15).await;
        client.send().await;
        assert_eq!(client.response(slow).status, 200);
        assert_eq!(client.client.phase(), Phase::Idle);
    });
}

#[test]
fn content_within_the_minimum_rate_may_last() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let stream = client.post("/read");
        for _ in 0..100 {
            client.data(0, stream, &content(600));
            client.send().await;
            advance(1).await;
        }
        client.data(LAST, stream, b"");
        client.send().await;
        assert_eq!((client.response(stream).status, client.response(stream).content.len()), (200, 60_000));
    });
}

/// Reads content in a task of its own, which the connection does not poll.
#[derive(Clone, Default)]
struct Reader {
    read: Rc<Cell<usize>>,
    result: Rc<RefCell<Option<Result<(), ContentError>>>>,
}

impl Service for Reader {
    async fn call(&self, request: &mut Request) -> Response {
        let (mut body, reader) = (request.take_body(), self.clone());
        let target = request.target().to_owned();
        drop(tokio::task::spawn_local(async move {
            let result = loop {
                match body.chunk().await {
                    Some(Ok(chunk)) => reader.read.set(reader.read.get() + chunk.len()),
                    Some(Err(error)) => break Err(error),
                    None => break Ok(()),
                }
                match target.as_str() {
                    "/slowly" => sleep(Duration::from_millis(10)).await,
                    "/half" if reader.read.get() > STREAM_WINDOW / 2 => std::future::pending().await,
                    _ => {}
                }
            };
            *reader.result.borrow_mut() = Some(result);
        }));
        std::future::pending().await
    }
}

#[test]
fn a_task_of_the_application_reads_content() {
    with_virtual_time(async || {
        for path in ["/", "/slowly"] {
            let reader = Reader::default();
            let server = TestServer::serving(reader.clone(), Limits::default());
            let mut client = Http2Client::connect(&server).await;
            let stream = client.post(path);
            for part in 1..5 {
                client.data(0, stream, &content(STREAM_WINDOW));
                client.send().await;
                advance(1).await;
                // Only what the task reads opens the window.
                assert_eq!(reader.read.get(), part * STREAM_WINDOW, "{path}");
                client.send().await;
                assert!(client.frames(WINDOW_UPDATE).iter().any(|frame| frame.stream == stream));
            }
            client.data(LAST, stream, b"");
            client.send().await;
            assert_eq!(reader.result.take(), Some(Ok(())));
        }
    });
}

#[test]
fn a_window_opens_also_if_the_reader_reads_no_more() {
    with_virtual_time(async || {
        let reader = Reader::default();
        let server = TestServer::serving(reader.clone(), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let stream = client.post("/half");
        client.data(0, stream, &content(STREAM_WINDOW));
        client.send().await;
        assert!((STREAM_WINDOW / 2..STREAM_WINDOW).contains(&reader.read.get()));
        assert_eq!(client.frames(WINDOW_UPDATE).iter().filter(|frame| frame.stream == stream).count(), 1);
    });
}

#[test]
fn a_task_of_the_application_learns_why_content_ends() {
    with_virtual_time(async || {
        for (row, expected) in
            [ContentError::Ended, ContentError::Ended, ContentError::TooSlow, ContentError::Disconnected]
                .into_iter()
                .enumerate()
        {
            let reader = Reader::default();
            let server = TestServer::serving(reader.clone(), Limits::default());
            let mut client = Http2Client::connect(&server).await;
            let stream = client.post("/");
            client.data(0, stream, b"he");
            client.send().await;
            match row {
                0 => client.client.end(ClientEnd::Ended).await,
                1 => client.frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()),
                2 => advance(32).await,
                // A violation. The connection lingers.
                _ => client.frame(RST_STREAM, 0, 99, &8u32.to_be_bytes()),
            }
            if row > 0 {
                client.send().await;
            }
            settle().await;
            assert_eq!((reader.read.get(), reader.result.take()), (2, Some(Err(expected))));
        }
    });
}

#[test]
fn an_echo_responds_while_it_reads() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let (stream, broken) = (client.post("/echo"), client.post("/echo"));
        let all = content(500_000);
        for (at, piece) in all.chunks(50_000).enumerate() {
            client.data(0, stream, piece);
            client.send().await;
            assert_eq!(client.response(stream).content.len(), (at + 1) * 50_000, "it does not wait for the rest");
        }
        client.data(LAST, stream, b"");
        client.data(0, broken, b"begun");
        client.send().await;
        assert!(client.response(stream).is_complete && client.response(stream).content == all);
        client.trailers(broken, &[("Upper-Case", "is malformed")]);
        client.send().await;
        assert_eq!(client.response(broken).reset, Some(PROTOCOL_ERROR));
        assert_eq!(client.reported(), [(stream.into(), 200), (broken.into(), 200)].into());
        let reset = client.client.finished()[1].reset;
        assert!(matches!(reset, Some(CloseReason::MessageMalformed(_))), "{reset:?}");
    });
}

#[test]
fn refused_heads_are_reported_and_keep_the_connection() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let slow = client.get("/slow/1");
        let malformed = client.request(LAST, "GET", "/ok", &[("connection", "close")]);
        let without_content = client.request(LAST, "POST", "/read", &[("content-length", "5")]);
        let many: Vec<(&str, &str)> = vec![("a", "b"); 200];
        let large = client.request(0, "GET", "/ok", &many);
        client.send().await;
        for stream in [malformed, without_content] {
            assert_eq!(client.response(stream).reset, Some(PROTOCOL_ERROR));
        }
        assert_eq!((client.response(large).status, client.response(large).reset), (431, None));
        client.data(LAST, large, b"");
        advance(2).await;
        client.send().await;
        let reported = [(slow, 200), (malformed, 400), (without_content, 400), (large, 431)];
        assert_eq!(client.reported(), reported.map(|(stream, status)| (stream.into(), status)).into());
        let finished = client.client.finished();
        assert_eq!(finished.iter().filter(|finished| finished.is_request).count(), 1);
        assert!(finished.iter().any(|finished| finished.reject == Some(Reject::TooManyFields)));
        let resets: Vec<_> = finished.iter().filter_map(|finished| finished.reset).collect();
        let expected = [MalformedMessage::ConnectionSpecificField, MalformedMessage::ContentMissing];
        assert_eq!(resets, expected.map(CloseReason::MessageMalformed));
    });
}

#[test]
fn a_path_that_is_too_long_has_one_status() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let fill = "x".repeat(8_000);
        for (length, fields) in [(8_100, 0), (12_000, 0), (12_000, 1), (20_000, 0), (40_000, 0), (2_000, 2)] {
            let path = format!("/{}", "a".repeat(length - 1));
            let stream = client.next_stream();
            let fields = vec![("x-fill", fill.as_str()); fields];
            let block = block(
                [(":method", "GET"), (":scheme", "http"), (":authority", "test"), (":path", &path)]
                    .iter()
                    .chain(&fields),
            );
            let frames: Vec<&[u8]> = block.chunks(16_000).collect();
            for (at, frame) in frames.iter().enumerate() {
                let kind = if at == 0 { HEADERS } else { CONTINUATION };
                let last = if at + 1 == frames.len() { END_HEADERS } else { 0 };
                client.frame(kind, last | if at == 0 { LAST } else { 0 }, stream, frame);
            }
            client.send().await;
            let expected = match length {
                8_100 => 404,
                2_000 => 431,
                _ => 414,
            };
            assert_eq!(client.response(stream).status, expected, "{length} {}", fields.len());
        }
    });
}

#[test]
fn streams_beyond_the_limit_are_counted_and_reported_at_once() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let streams: Vec<u32> = (0..130).map(|_| client.get("/never")).collect();
        client.send().await;
        assert_eq!(client.response(streams[129]).reset, Some(REFUSED_STREAM));
        let refused = server.recorder.refused();
        assert!(refused.len() <= 3 && refused.iter().map(|(_, count)| count).sum::<u32>() == 30, "{refused:?}");
        assert!(refused.iter().all(|(error, _)| *error == http2::StreamError::StreamsTooMany));
        assert_eq!(client.reported(), [].into());
    });
}

/// Returns a number that it stores with the connection when it has none.
#[derive(Default)]
struct Numbering(Cell<u32>);

impl Service for Numbering {
    async fn call(&self, request: &mut Request) -> Response {
        let stored = request.inner.connection_extensions.get_or_insert_with(|| {
            self.0.set(self.0.get() + 1);
            Rc::new(self.0.get())
        });
        let number = stored.downcast_ref::<u32>().expect("it is a number").to_string();
        if request.target() == "/slow" {
            sleep(Duration::from_secs(1)).await;
        }
        Response::new(StatusCode::OK).body(number)
    }

    fn uses_connection_extensions(&self) -> bool {
        true
    }
}

#[test]
fn requests_at_once_share_the_state_of_their_connection() {
    with_virtual_time(async || {
        let server = TestServer::serving(Numbering::default(), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        assert_eq!(client.fetch("/").await.text(), "1");
        let streams = ["/slow", "/", "/slow"].map(|path| client.get(path));
        client.send().await;
        advance(2).await;
        client.send().await;
        assert!(streams.iter().all(|&stream| client.response(stream).text() == "1"));
        advance(10).await;
        assert_eq!(client.fetch("/").await.text(), "1", "it lasts while the connection is parked");
        let mut other = Http2Client::connect(&server).await;
        assert_eq!(other.fetch("/").await.text(), "2");
    });
}

#[test]
fn a_relay_fails_with_its_source() {
    with_virtual_time(async || {
        let stream = TestStream::default();
        let server = TestServer::serving(stream.service(None), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let id = client.get("/");
        stream.bytes("begun");
        client.send().await;
        stream.give(Some(Err(StreamError("the source was dropped".to_owned()))));
        client.send().await;
        let response = client.response(id);
        assert_eq!((response.text(), response.is_complete, response.reset), ("begun", false, Some(2)));
        assert_eq!(client.client.finished()[0].outcome, ResponseOutcome::Aborted);
        assert_eq!(client.client.closed(), None);
    });
}
