//! Responses: their kinds, their ends, and failures that concern one stream only.

use super::super::files::temporary;
use super::super::scenario::{TestServer, advance, settle, with_virtual_time};
use super::super::streams::TestStream;
use super::super::test_app::content;
use super::client::{DATA, HEADERS, Http2Client, INITIAL_WINDOW, INTERNAL_ERROR, LAST, Replies, WINDOW_MAX};
use crate::limits::{COPY_BYTES_MAX, Limits};
use crate::service::{
    Body, Chunks, CloseReason, FileContent, OpenFile, Request, Response, ResponseOutcome, Service, StreamError,
};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

#[test]
fn each_kind_of_response_ends_its_stream_once() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        // Method, path, status, Content-Length, content.
        let rows = [
            ("GET", "/ok", 200, Some(3), 3),
            ("HEAD", "/ok", 200, Some(3), 0),
            ("GET", "/bytes/0", 200, Some(0), 0),
            ("GET", "/status/204", 204, None, 0),
            ("GET", "/status/304", 304, None, 0),
            ("GET", "/status/101", 500, Some(26), 26),
            ("GET", "/bytes/16384", 200, Some(COPY_BYTES_MAX), COPY_BYTES_MAX),
            ("GET", "/bytes/16385", 200, Some(COPY_BYTES_MAX + 1), COPY_BYTES_MAX + 1),
            ("HEAD", "/bytes/1000000", 200, Some(1_000_000), 0),
            ("GET", "/bytes/1000000", 200, Some(1_000_000), 1_000_000),
        ];
        for (method, path, status, length, content_len) in rows {
            let stream = client.request(LAST, method, path, &[]);
            client.send().await;
            let response = client.response(stream);
            let announced = response.field("content-length").map(|length| length.parse().expect("a number"));
            let got = (response.status, announced, response.content.len(), response.is_complete, response.reset);
            let length = if status == 500 { announced } else { length };
            let content_len = if status == 500 { announced.unwrap_or_default() } else { content_len };
            assert_eq!(got, (status, length, content_len, true, None), "{method} {path}");
            assert!(response.field("date").is_some() && response.field("server").is_some());
            let finished = client.client.finished().pop().expect("it is reported");
            assert_eq!((finished.status, finished.content_bytes), (status, content_len as u64), "{method} {path}");
            assert_eq!(finished.outcome, ResponseOutcome::Complete);
            let ends = |kind| client.frames(kind).iter().filter(|f| f.stream == stream && f.flags & LAST != 0).count();
            assert_eq!(ends(HEADERS) + ends(DATA), 1);
        }
        assert_eq!(client.reported().len(), rows.len());
    });
}

#[test]
fn a_stream_with_a_wrong_length_is_reset() {
    with_virtual_time(async || {
        let rows = [(&["hell"][..], "hell"), (&["hello!"], ""), (&["hel", "lo!"], "hel"), (&[], "")];
        for (pieces, sent) in rows {
            let stream = TestStream::default();
            pieces.iter().for_each(|piece| stream.bytes(*piece));
            stream.give(None);
            let server = TestServer::serving(stream.service(Some(5)), Limits::default());
            let mut client = Http2Client::connect(&server).await;
            let response = client.fetch("/").await;
            assert_eq!((response.text(), response.reset), (sent, Some(INTERNAL_ERROR)), "{pieces:?}");
            let finished = client.client.finished();
            assert_eq!((finished.len(), finished[0].outcome), (1, ResponseOutcome::Aborted));
            assert_eq!(finished[0].content_bytes, sent.len() as u64);
            assert_eq!(client.client.closed(), None);
        }
    });
}

#[test]
fn chunks_leave_as_they_are_produced() {
    with_virtual_time(async || {
        let stream = TestStream::default();
        let server = TestServer::serving(stream.service(None), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let id = client.get("/");
        client.send().await;
        assert_eq!(client.response(id).status, 200, "the head does not wait");
        let mut all = Vec::new();
        for length in [1, 0, 20_000, 300_000] {
            let piece = content(length);
            all.extend_from_slice(&piece);
            stream.bytes(piece);
            client.send().await;
            assert!(client.response(id).content == all, "{length}");
            // The time of the next chunk is unknown, so it has no limit.
            advance(300).await;
        }
        stream.give(None);
        client.send().await;
        assert!(client.response(id).is_complete);
    });
}

/// One chunk and trailers.
struct WithTrailers(Option<Bytes>);

impl Chunks for WithTrailers {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        Poll::Ready(self.0.take().map(Ok))
    }

    fn trailers(self: Pin<&mut Self>) -> Fields {
        let mut fields = Fields::new();
        fields.append("grpc-status", "0").expect("the field is valid");
        fields
    }
}

#[test]
fn trailers_follow_content() {
    with_virtual_time(async || {
        let service = async |_: &mut Request| {
            let chunks = Box::pin(WithTrailers(Some(Bytes::from_static(b"hello"))));
            Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks })
        };
        let server = TestServer::serving(service, Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let response = client.fetch("/").await;
        assert_eq!((response.text(), response.is_complete), ("hello", true));
        assert_eq!(response.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    });
}

#[test]
fn the_end_of_a_response_needs_no_window() {
    with_virtual_time(async || {
        for (window, pieces) in [(5, &["hello"][..]), (5, &["he", "llo"]), (0, &[]), (2, &["he"])] {
            for ends_at_once in [true, false] {
                let stream = TestStream::default();
                pieces.iter().for_each(|piece| stream.bytes(*piece));
                if ends_at_once {
                    stream.give(None);
                }
                let server = TestServer::serving(stream.service(None), Limits::default());
                let mut client =
                    Http2Client::connect_with(&server, Replies::NoWindows, &[(INITIAL_WINDOW, window)]).await;
                let id = client.get("/");
                client.send().await;
                assert_eq!(client.response(id).text(), pieces.concat());
                if !ends_at_once {
                    assert!(!client.response(id).is_complete);
                    // A client that has no window left is no obstacle while the application has nothing.
                    advance(100).await;
                    stream.give(None);
                    client.send().await;
                }
                assert!(client.response(id).is_complete, "{pieces:?}");
            }
        }
        // Trailers, and content that waits for a window.
        let service = async |request: &mut Request| {
            let first = request.target().strip_prefix('/').map(|text| Bytes::from(text.to_owned()));
            let chunks = Box::pin(WithTrailers(first.filter(|first| !first.is_empty())));
            Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks })
        };
        let server = TestServer::serving(service, Limits::default());
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &[(INITIAL_WINDOW, 0)]).await;
        let (only_trailers, waits) = (client.get("/"), client.get("/content"));
        client.send().await;
        assert_eq!(client.response(only_trailers).trailers.len(), 1);
        assert_eq!((client.response(waits).text(), client.response(waits).is_complete), ("", false));
        client.open_window(waits, 7);
        client.send().await;
        assert_eq!((client.response(waits).text(), client.response(waits).trailers.len()), ("content", 1));
    });
}

/// Creates a server that responds with parts of a file of `len` bytes.
fn file_server(len: usize) -> (Rc<OpenFile>, TestServer) {
    let mut file = temporary();
    file.write_all(&content(len)).expect("a temporary file takes the bytes");
    let file = Rc::new(OpenFile::new(file));
    let sent = file.clone();
    let service = async move |request: &mut Request| {
        let mut numbers = request.target()[1..].split('-').map(|number| number.parse().expect("a number"));
        let (offset, length) = (numbers.next().expect("an offset"), numbers.next().expect("a length"));
        Response::new(StatusCode::OK)
            .body(Body::File(Box::new(FileContent::new(sent.clone(), offset, length).expect("it has facts"))))
    };
    (file, TestServer::serving(service, Limits::default()))
}

#[test]
fn files_and_parts_of_them_arrive_whole() {
    with_virtual_time(async || {
        let (_file, server) = file_server(3_000_000);
        let mut client = Http2Client::connect(&server).await;
        let parts = [(0, 3_000_000), (7, 1), (1_000_000, 500_000), (2_999_999, 1), (0, 0)];
        let streams = parts.map(|(offset, length)| client.get(&format!("/{offset}-{length}")));
        client.send().await;
        let all = content(3_000_000);
        for (stream, (offset, length)) in streams.into_iter().zip(parts) {
            let response = client.response(stream);
            assert!(response.content == all[offset..offset + length] && response.is_complete, "{offset}-{length}");
        }
        assert_eq!(client.reported().len(), parts.len());
    });
}

#[test]
fn a_file_that_changes_or_shrinks_fails_its_stream() {
    with_virtual_time(async || {
        for shrinks in [true, false] {
            let (file, server) = file_server(1_000_000);
            let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &[]).await;
            let (first, other) = (client.get("/0-1000000"), client.get("/0-10"));
            client.send().await;
            assert_eq!(client.response(first).content.len() + client.response(other).content.len(), 65_535);
            if shrinks {
                file.set_len(70_000).expect("it is open for writing");
            } else {
                file.set_modified(SystemTime::now() + Duration::from_secs(5)).expect("it is ours");
            }
            client.replies = Replies::All;
            client.open_window(0, 1_000_000);
            client.open_window(first, 1_000_000);
            client.send().await;
            let response = client.response(first);
            assert_eq!((response.is_complete, response.reset), (false, Some(INTERNAL_ERROR)));
            assert!(response.content.len() < 100_000 && content(1_000_000).starts_with(&response.content));
            let finished = client.client.finished();
            let aborted = finished.iter().find(|finished| finished.stream == u64::from(first)).expect("it is reported");
            assert_eq!(aborted.outcome, ResponseOutcome::Aborted);
            assert_eq!(aborted.content_bytes, response.content.len() as u64);
            assert_eq!(client.client.closed(), None);
        }
    });
}

#[test]
fn a_panic_fails_one_stream() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let (slow, panics, upload) = (client.get("/slow/2"), client.get("/panic"), client.post("/panic"));
        client.send().await;
        assert_eq!(client.response(panics).status, 500);
        assert_eq!((client.response(upload).status, client.response(upload).reset), (500, None));
        client.data(LAST, upload, b"");
        advance(3).await;
        client.send().await;
        assert_eq!(client.response(slow).status, 200);
        assert_eq!(client.fetch("/ok").await.status, 200);
        assert_eq!(server.recorder.panics().len(), 2);
        assert_eq!(client.reported().len(), 4);
        assert_eq!(client.client.closed(), None);
    });
}

/// Panics in chosen places.
struct Panics;

impl Service for Panics {
    fn call(&self, request: &mut Request) -> impl Future<Output = Response> {
        assert_ne!(request.target(), "/call", "the call panics");
        async {
            let chunks: Pin<Box<dyn Chunks>> = match request.target() {
                "/chunk" => Box::pin(PanickingChunks(0)),
                "/second-chunk" => Box::pin(PanickingChunks(1)),
                _ => return Response::new(StatusCode::OK).body("ok"),
            };
            Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks })
        }
    }
}

/// Panics after a number of chunks.
struct PanickingChunks(usize);

impl Chunks for PanickingChunks {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        self.0 = self.0.checked_sub(1).expect("chunks are left");
        Poll::Ready(Some(Ok(Bytes::from_static(b"chunk"))))
    }
}

#[test]
fn a_panic_outside_of_a_call_fails_one_stream() {
    with_virtual_time(async || {
        // The window is open, exhausted by the first chunk, or closed.
        for window in [65_535, 5, 0] {
            let server = TestServer::serving(Panics, Limits::default());
            let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &[(INITIAL_WINDOW, window)]).await;
            let streams = ["/call", "/chunk", "/second-chunk"].map(|path| client.get(path));
            client.send().await;
            assert_eq!(client.response(streams[0]).status, 500);
            assert_eq!(client.response(streams[1]).reset, Some(INTERNAL_ERROR));
            client.open_window(streams[0], 1_000);
            client.open_window(streams[2], 10);
            client.send().await;
            assert_eq!(client.response(streams[2]).reset, Some(INTERNAL_ERROR));
            assert_eq!((client.client.closed(), client.reported().len()), (None, 3));
            assert_eq!(server.recorder.panics().len(), 3);
        }
    });
}

/// Sends interim responses before its response.
struct Hints(usize);

impl Service for Hints {
    async fn call(&self, request: &mut Request) -> Response {
        let sender = request.inner.interim_sender.clone().expect("it is wanted");
        let mut fields = Fields::new();
        fields.append("link", "</style.css>; rel=preload").expect("the field is valid");
        let hints = StatusCode::new(103).expect("it has three digits");
        for _ in 0..self.0 {
            sender.send(hints, &fields).expect("the client receives");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        Response::new(StatusCode::OK).body("ok")
    }

    fn sends_interim(&self) -> bool {
        true
    }
}

#[test]
fn interim_responses_precede_the_response() {
    with_virtual_time(async || {
        let server = TestServer::serving(Hints(10), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        // Together, they are more than a batch of responses of HTTP/1.
        let streams: Vec<u32> = (0..100).map(|_| client.get("/")).collect();
        client.send().await;
        for &stream in &streams {
            assert_eq!((&client.response(stream).interim[..], client.response(stream).status), (&[103; 10][..], 0));
        }
        advance(2).await;
        client.send().await;
        assert!(streams.iter().all(|&stream| client.response(stream).text() == "ok"));
    });
}

#[test]
fn a_response_that_closes_the_connection_is_followed_by_the_others() {
    with_virtual_time(async || {
        let service = async |request: &mut Request| match request.target() {
            "/close" => Response::new(StatusCode::OK).body("last").close_connection(),
            _ => {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Response::new(StatusCode::OK).body("slow")
            }
        };
        let server = TestServer::serving(service, Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let (slow, close) = (client.get("/slow"), client.get("/close"));
        client.send().await;
        assert_eq!(client.response(close).text(), "last");
        assert_eq!(client.goaways(), [(WINDOW_MAX, 0), (close, 0)]);
        let ignored = client.get("/slow");
        client.send().await;
        advance(4).await;
        client.send().await;
        assert_eq!(client.response(slow).text(), "slow");
        assert!(!client.has_response(ignored));
        assert!(client.client.pipe.is_write_shutdown(), "the client may read the end");
        client.client.end(super::super::pipe::ClientEnd::Ended).await;
        settle().await;
        assert_eq!(client.client.closed(), Some(CloseReason::ClosedAfterResponse));
        assert_eq!(client.reported().len(), 2);
    });
}

#[test]
fn a_refused_head_gets_json_where_the_client_prefers_it() {
    with_virtual_time(async || {
        let server = TestServer::new();
        let mut client = Http2Client::connect(&server).await;
        let fields = |accept| [&[("accept", accept)][..], &[("a", "b"); 200]].concat();
        let json = client.request(LAST, "GET", "/ok", &fields("application/json"));
        let page = client.request(LAST, "GET", "/ok", &fields("text/html"));
        client.send().await;
        for (stream, kind) in [(json, "application/problem+json"), (page, "text/html; charset=utf-8")] {
            let response = client.response(stream);
            assert_eq!((response.status, response.field("content-type")), (431, Some(kind)));
            assert_eq!(response.field("vary"), Some("accept"));
        }
        assert!(client.response(json).text().contains("\"status\":431"));
    });
}

/// Leaves Server out of refusals.
struct Unnamed;

impl Service for Unnamed {
    async fn call(&self, _: &mut Request) -> Response {
        Response::new(StatusCode::OK)
    }

    fn has_server_field_in_refusals(&self) -> bool {
        false
    }
}

#[test]
fn a_service_leaves_the_server_field_out_of_refusals() {
    with_virtual_time(async || {
        let server = TestServer::serving(Unnamed, Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let (refused, served) = (client.request(LAST, "GET", "/", &[("a", "b"); 200]), client.get("/"));
        client.send().await;
        for (stream, status, name) in [(refused, 431, None), (served, 200, Some("selvedge"))] {
            let response = client.response(stream);
            assert_eq!((response.status, response.field("server")), (status, name));
            assert!(response.field("date").is_some());
        }
    });
}
