//! Streams of other protocols: their time, their buffers, and the end of their connection.

use super::super::scenario::{TestServer, advance, is_about, settle, with_virtual_time};
use super::client::{CANCEL, Http2Client, INITIAL_WINDOW, LAST, NO_ERROR, Replies, WINDOW_UPDATE};
use crate::limits::Limits;
use crate::response_lease::ResponseLease;
use crate::service::{Body, CloseReason, Duplex, Request, Response, Service, UpgradeResponse};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Accepts each extended CONNECT, and keeps its stream for the test.
#[derive(Clone, Default)]
struct Tunnels(Rc<RefCell<Vec<Box<dyn Duplex>>>>);

impl Service for Tunnels {
    async fn call(&self, request: &mut Request) -> Response {
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
        if !request.head().is_extended_connect() {
            return Response::new(StatusCode::OK).body("plain");
        }
        let opened = self.0.clone();
        let handler = Box::new(move |stream| opened.borrow_mut().push(stream));
        response.body = Body::Upgrade(Box::new(UpgradeResponse { protocol: Bytes::from_static(b"test"), handler }));
        response
    }

    fn accepts_extended_connect(&self) -> bool {
        true
    }
}

/// [`Tunnels`] with a lease.
struct LeasedTunnels(Tunnels, ResponseLease);

impl Service for LeasedTunnels {
    async fn call(&self, request: &mut Request) -> Response {
        self.0.call(request).await.lease(self.1.clone())
    }

    fn accepts_extended_connect(&self) -> bool {
        true
    }
}

/// The handler's end of a stream, polled without a task.
struct Opened(Box<dyn Duplex>);

impl Opened {
    fn receive(&mut self) -> Poll<Result<Vec<u8>, ErrorKind>> {
        let mut buffer = vec![0; 1_000];
        self.0.poll_receive(&mut Context::from_waker(Waker::noop()), &mut buffer).map(|received| match received {
            Ok(count) => Ok(buffer[..count].to_vec()),
            Err(error) => Err(error.kind()),
        })
    }

    fn send(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_send(&mut Context::from_waker(Waker::noop()), &[IoSlice::new(bytes)])
    }

    fn is_stopping(&self) -> bool {
        self.0.stopping().as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }
}

/// Opens a stream. Returns its number and the handler's end.
async fn open(client: &mut Http2Client<'_>, tunnels: &Tunnels) -> (u32, Opened) {
    let stream = client.request(0, "CONNECT", "/", &[(":protocol", "test")]);
    client.send().await;
    assert_eq!(client.response(stream).status, 200);
    (stream, Opened(tunnels.0.borrow_mut().pop().expect("the handler has the stream")))
}

#[test]
fn a_silent_tunnel_lasts() {
    with_virtual_time(async || {
        let tunnels = Tunnels::default();
        let server = TestServer::serving(tunnels.clone(), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let (stream, mut opened) = open(&mut client, &tunnels).await;
        assert!(opened.receive().is_pending());
        advance(1_000).await;
        client.data(0, stream, b"hello");
        client.send().await;
        assert_eq!(opened.receive(), Poll::Ready(Ok(b"hello".to_vec())));
        assert!(matches!(opened.send(b"and goodbye"), Poll::Ready(Ok(11))));
        drop(opened);
        client.send().await;
        assert_eq!(client.response(stream).text(), "and goodbye");
        assert_eq!((client.response(stream).is_complete, client.response(stream).reset), (true, Some(NO_ERROR)));
        assert_eq!(client.reported(), [(1, 200)].into());
    });
}

#[test]
fn a_closed_window_has_no_limit_until_the_handler_has_left() {
    with_virtual_time(async || {
        let tunnels = Tunnels::default();
        let server = TestServer::serving(tunnels.clone(), Limits::default());
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &[(INITIAL_WINDOW, 10)]).await;
        let (stream, mut opened) = open(&mut client, &tunnels).await;
        assert!(matches!(opened.send(&[b'x'; 100]), Poll::Ready(Ok(100))));
        advance(1_000).await;
        client.send().await;
        assert_eq!((client.response(stream).text(), client.response(stream).reset), ("xxxxxxxxxx", None));
        drop(opened);
        let mut seconds = 0;
        while client.response(stream).reset.is_none() {
            advance(1).await;
            client.send().await;
            seconds += 1;
            assert!(seconds < 100, "the stream is reset");
        }
        assert!(is_about(seconds, 30), "{seconds}");
        assert_eq!(client.response(stream).reset, Some(CANCEL));
    });
}

#[test]
fn buffers_are_bounded_in_both_directions() {
    with_virtual_time(async || {
        let tunnels = Tunnels::default();
        let server = TestServer::serving(tunnels.clone(), Limits::default());
        let mut client = Http2Client::connect_with(&server, Replies::NoWindows, &[(INITIAL_WINDOW, 0)]).await;
        let (stream, mut opened) = open(&mut client, &tunnels).await;
        let mut accepted = 0;
        while let Poll::Ready(sent) = opened.send(&[b'x'; 10_000]) {
            accepted += sent.expect("the stream is open");
            assert!(accepted <= 64 * 1024, "{accepted}");
        }
        assert_eq!(accepted, 64 * 1024);
        // The window opens for what the handler reads, and for what its buffer has room.
        client.data(0, stream, &vec![b'y'; 200_000]);
        client.send().await;
        let opened_windows = |client: &Http2Client<'_>| {
            let windows = client.frames(WINDOW_UPDATE).into_iter().filter(|frame| frame.stream == stream);
            windows.map(|frame| u32::from_be_bytes(*frame.payload.first_chunk().expect("four bytes"))).sum::<u32>()
        };
        assert!(opened_windows(&client) <= 32 * 1024, "{}", opened_windows(&client));
        let mut read = 0;
        while let Poll::Ready(received) = opened.receive() {
            read += received.expect("the stream is open").len();
            settle().await;
        }
        assert_eq!(read, 200_000);
        client.send().await;
        assert!(opened_windows(&client) >= 128 * 1024, "{}", opened_windows(&client));
        client.frame(3, 0, stream, &CANCEL.to_be_bytes());
        client.send().await;
        assert_eq!(opened.receive(), Poll::Ready(Err(ErrorKind::ConnectionReset)));
        assert!(matches!(opened.send(b"x"), Poll::Ready(Err(error)) if error.kind() == ErrorKind::BrokenPipe));
    });
}

#[test]
fn a_drain_is_announced_and_waits_for_the_handler() {
    with_virtual_time(async || {
        let tunnels = Tunnels::default();
        let server = TestServer::serving(tunnels.clone(), Limits::default());
        let mut client = Http2Client::connect(&server).await;
        let (stream, mut opened) = open(&mut client, &tunnels).await;
        assert!(!opened.is_stopping());
        server.drain();
        client.send().await;
        assert!(opened.is_stopping());
        assert!(!client.goaways().is_empty());
        assert!(matches!(opened.send(b"bye"), Poll::Ready(Ok(3))));
        advance(5).await;
        client.data(LAST, stream, b"bye");
        client.send().await;
        assert_eq!(opened.receive(), Poll::Ready(Ok(b"bye".to_vec())));
        assert_eq!(opened.receive(), Poll::Ready(Ok(Vec::new())));
        opened.0.shutdown_write().expect("the stream is open");
        client.send().await;
        assert_eq!(client.response(stream).text(), "bye");
        assert_eq!(client.client.wait_closed().await.0, CloseReason::Draining);
    });
}

#[test]
fn a_hand_over_is_announced_to_a_tunnel_without_a_lease_only() {
    with_virtual_time(async || {
        for has_ended in [false, true] {
            let (tunnels, lease) = (Tunnels::default(), ResponseLease::new());
            let service = LeasedTunnels(tunnels.clone(), lease.clone());
            let server = TestServer::serving(service, Limits::default());
            let mut client = Http2Client::connect(&server).await;
            let (stream, mut opened) = open(&mut client, &tunnels).await;
            if has_ended {
                lease.end();
            }
            server.hand_over();
            client.send().await;
            assert_eq!((client.goaways().is_empty(), opened.is_stopping()), (false, has_ended));
            if has_ended {
                continue;
            }
            advance(1_000).await;
            client.data(0, stream, b"hello");
            client.send().await;
            assert_eq!(opened.receive(), Poll::Ready(Ok(b"hello".to_vec())));
            assert!(!opened.is_stopping());
            server.drain();
            settle().await;
            assert!(opened.is_stopping(), "a stop follows");
            drop(opened);
            client.send().await;
            assert_eq!(client.client.wait_closed().await.0, CloseReason::Draining);
        }
    });
}
