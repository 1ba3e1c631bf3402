//! Streamed content that passes through a pipe, unless a session encodes the connection.

use super::pipe::ClientEnd;
use super::scenario::{Client, Scenario, TestServer, is_about, settle, with_virtual_time};
use super::test_app::content;
use crate::limits::Limits;
use crate::service::{Body, Chunks, CloseReason, Phase, Request, Response, ResponseOutcome, Service, StreamError};
use crate::splice_pipe::{SplicePipe, pipe_counts};
use bytes::Bytes;
use rustix::io::Errno;
use selvedge_proto::StatusCode;
use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// An upstream whose content arrives at a socket.
struct Upstream {
    sender: RefCell<Option<UnixStream>>,
    receiver: UnixStream,
    waiter: RefCell<Option<Waker>>,
    /// Bytes that passed through a pipe.
    piped: Cell<usize>,
}

impl Upstream {
    fn new() -> Rc<Self> {
        let (sender, receiver) = UnixStream::pair().unwrap();
        receiver.set_nonblocking(true).unwrap();
        let (waiter, piped) = (RefCell::default(), Cell::new(0));
        Rc::new(Self { sender: RefCell::new(Some(sender)), receiver, waiter, piped })
    }

    fn wake(&self) {
        let waiter = self.waiter.take();
        waiter.inspect(Waker::wake_by_ref);
    }

    /// Sends content, and runs what follows at once.
    async fn send(&self, bytes: &[u8]) {
        self.sender.borrow().as_ref().unwrap().write_all(bytes).unwrap();
        self.wake();
        settle().await;
    }

    async fn end(&self) {
        self.sender.take();
        self.wake();
        settle().await;
    }

    /// Returns a service that responds with `length` bytes of it, or with all.
    fn service(self: &Rc<Self>, length: Option<u64>) -> impl Service {
        let upstream = self.clone();
        async move |_: &mut Request| {
            let chunks = Box::pin(Received { upstream: upstream.clone(), remaining: length });
            Response::new(StatusCode::OK).body(Body::Stream { length, chunks })
        }
    }
}

/// The content of one response.
struct Received {
    upstream: Rc<Upstream>,
    remaining: Option<u64>,
}

impl Received {
    fn count(&self) -> usize {
        self.remaining.map_or(usize::MAX, |remaining| remaining as usize)
    }

    fn wait(&self, cx: &Context<'_>) {
        *self.upstream.waiter.borrow_mut() = Some(cx.waker().clone());
    }

    fn moved(&mut self, count: usize) {
        self.remaining = self.remaining.map(|remaining| remaining - count as u64);
    }
}

impl Chunks for Received {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        if self.count() == 0 {
            return Poll::Ready(None);
        }
        let mut bytes = vec![0; self.count().min(20_000)];
        match (&self.upstream.receiver).read(&mut bytes) {
            Ok(0) if self.remaining.is_some_and(|remaining| remaining > 0) => {
                Poll::Ready(Some(Err(StreamError("it ended early".to_owned()))))
            }
            Ok(0) => Poll::Ready(None),
            Ok(count) => {
                self.moved(count);
                bytes.truncate(count);
                Poll::Ready(Some(Ok(bytes.into())))
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                self.wait(cx);
                Poll::Pending
            }
        }
    }

    fn poll_splice(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pipe: &mut SplicePipe,
    ) -> Poll<Result<usize, StreamError>> {
        if self.count() == 0 {
            return Poll::Ready(Ok(0));
        }
        match pipe.fill(self.upstream.receiver.as_fd(), self.count()) {
            Err(error) => {
                assert_eq!(error, Errno::AGAIN);
                self.wait(cx);
                Poll::Pending
            }
            Ok(count) => {
                self.moved(count);
                self.upstream.piped.set(self.upstream.piped.get() + count);
                Poll::Ready(Ok(count))
            }
        }
    }
}

/// Checks that all content passed in the way that the connection requires, and that no pipe is in use.
fn check_way(client: &Client<'_>, upstream: &Upstream, bytes: usize) {
    assert_eq!(upstream.piped.get(), if client.has_session() { 0 } else { bytes });
    let (open, empty) = pipe_counts();
    assert_eq!(open, empty);
}

#[test]
fn content_of_a_known_length_passes_and_the_connection_stays_open() {
    with_virtual_time(async || {
        let (upstream, all) = (Upstream::new(), content(100_000));
        let server = TestServer::serving(upstream.service(Some(100_000)), Limits::default());
        let client = Scenario::get("/").sent(&server).await;
        assert_eq!(client.response().status, 200, "the head does not wait");
        for piece in all.chunks(30_000) {
            upstream.send(piece).await;
        }
        assert!(client.response().content == all && client.response().is_complete);
        assert_eq!(client.phase(), Phase::Idle);
        client.send(Scenario::get("/").bytes()).await;
        let other: Vec<u8> = all.iter().rev().copied().collect();
        upstream.send(&other).await;
        assert!(client.responses()[1].content == other);
        assert_eq!(client.finished()[1].content_bytes, 100_000);
        check_way(&client, &upstream, 200_000);
    });
}

#[test]
fn content_of_an_unknown_length_passes_in_chunks() {
    with_virtual_time(async || {
        let (upstream, all) = (Upstream::new(), content(50_000));
        let server = TestServer::serving(upstream.service(None), Limits::default());
        let client = Scenario::get("/").sent(&server).await;
        client.pipe.send_bytes_max.set(1_000);
        for piece in all.chunks(17_000) {
            upstream.send(piece).await;
            assert!(all.starts_with(&client.response().content), "nothing is held back");
        }
        upstream.end().await;
        assert!(client.response().content == all && client.response().is_complete);
        assert_eq!((client.phase(), client.finished()[0].content_bytes), (Phase::Idle, 50_000));
        check_way(&client, &upstream, 50_000);
    });
}

#[test]
fn an_early_end_closes_the_connection_with_its_reason() {
    with_virtual_time(async || {
        let (upstream, sent) = (Upstream::new(), content(60_000));
        let server = TestServer::serving(upstream.service(Some(100_000)), Limits::default());
        let client = Scenario::get("/").sent(&server).await;
        upstream.send(&sent).await;
        upstream.end().await;
        assert_eq!(client.closed(), Some(CloseReason::StreamFailed));
        let finished = &client.finished()[0];
        assert_eq!((finished.outcome, finished.content_bytes), (ResponseOutcome::Aborted, 60_000));
        assert!(client.response().content == sent && !client.response().is_complete);
    });
}

#[test]
fn a_client_that_reads_nothing_is_closed_with_its_pipe() {
    with_virtual_time(async || {
        let upstream = Upstream::new();
        let server = TestServer::serving(upstream.service(Some(100_000)), Limits::default());
        let client = Scenario::get("/").sent(&server).await;
        client.pipe.set_window(10_000);
        upstream.send(&content(50_000)).await;
        if !client.has_session() {
            assert_eq!(pipe_counts().0 - pipe_counts().1, 1, "the pipe holds what the client has not read");
        }
        let (reason, seconds) = client.wait_closed().await;
        assert_eq!(reason, CloseReason::SendTooSlow);
        assert!(is_about(seconds, 30), "{seconds}");
        assert_eq!(client.finished()[0].outcome, ResponseOutcome::Aborted);
        let (open, empty) = pipe_counts();
        assert_eq!(open, empty, "a pipe with bytes is closed");
    });
}

#[test]
fn a_slow_client_gets_everything_and_holds_back_the_upstream() {
    with_virtual_time(async || {
        let (upstream, all) = (Upstream::new(), content(150_000));
        let server = TestServer::serving(upstream.service(Some(150_000)), Limits::default());
        let client = Scenario::get("/").sent(&server).await;
        client.pipe.set_window(1_000);
        upstream.send(&all[..100_000]).await;
        upstream.send(&all[100_000..]).await;
        if !client.has_session() {
            assert_eq!(upstream.piped.get(), 100_000, "nothing more is received while the pipe has bytes");
        }
        for _ in 0..16 {
            client.read(10_000).await;
        }
        assert!(client.response().content == all && client.response().is_complete);
        check_way(&client, &upstream, 150_000);
    });
}

#[test]
fn a_client_that_leaves_ends_the_exchange() {
    with_virtual_time(async || {
        let upstream = Upstream::new();
        let server = TestServer::serving(upstream.service(Some(100_000)), Limits::default());
        let client = Scenario::get("/").sent(&server).await;
        client.pipe.set_window(10_000);
        upstream.send(&content(50_000)).await;
        client.end(ClientEnd::Reset).await;
        assert_eq!(client.closed(), Some(CloseReason::Reset));
        assert_eq!(client.finished()[0].outcome, ResponseOutcome::Aborted);
        assert_eq!(Rc::strong_count(&upstream), 2, "the content is dropped");
        let (open, empty) = pipe_counts();
        assert_eq!(open, empty);
    });
}
