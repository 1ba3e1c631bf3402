//! Connections after the switch to another protocol.

use super::*;
use crate::peer::{Duplex, StoppingFuture};
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// The client's end of an upgraded connection, which a test drives.
#[derive(Clone, Default)]
pub(super) struct TestDuplex(pub(super) Arc<Mutex<DuplexState>>);

#[derive(Default)]
pub(super) struct DuplexState {
    /// From the client to the upstream.
    pub(super) sent: VecDeque<u8>,
    pub(super) has_ended: bool,
    /// From the upstream to the client.
    received: Vec<u8>,
    /// Bytes that the client takes.
    pub(super) room: usize,
    pub(super) is_shut_down: bool,
    is_stopping: bool,
    wakers: Vec<Waker>,
}

impl TestDuplex {
    pub(super) fn change(&self, act: impl FnOnce(&mut DuplexState)) {
        let mut state = self.0.lock().unwrap();
        act(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn received(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().received.clone()).unwrap()
    }
}

impl Duplex for TestDuplex {
    fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock().unwrap();
        let count = state.sent.len().min(into.len());
        if count == 0 && !state.has_ended {
            state.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        for (into, byte) in into.iter_mut().zip(state.sent.drain(..count)) {
            *into = byte;
        }
        Poll::Ready(Ok(count))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock().unwrap();
        let count = slices[0].len().min(state.room);
        if count == 0 {
            state.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        state.room -= count;
        state.received.extend_from_slice(&slices[0][..count]);
        Poll::Ready(Ok(count))
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.0.lock().unwrap().is_shut_down = true;
        Ok(())
    }

    fn stopping(&self) -> StoppingFuture {
        let state = self.0.clone();
        Box::pin(poll_fn(move |cx| {
            let mut state = state.lock().unwrap();
            if state.is_stopping {
                return Poll::Ready(());
            }
            state.wakers.push(cx.waker().clone());
            Poll::Pending
        }))
    }
}

/// Switches a connection. Returns the upstream's end and the tunnel.
async fn switch(upstream: &Upstream, client: &Client) -> (Peer, Tunnel) {
    let (to, client) = (upstream.destination(), client.clone());
    let sending = spawn_local(async move {
        let head = OutgoingHead { upgrade: Some("websocket".into()), ..request("GET") };
        let mut content = OutgoingContent::empty();
        client.send(&to, &head, &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await
    });
    let mut peer = upstream.accept().await;
    let head = peer.take_head().await;
    assert!(head.contains("\r\nconnection: upgrade\r\nupgrade: websocket\r\n"), "{head}");
    peer.send(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\nX-A: b\r\n\r\nfirst").await;
    let response = sending.await.unwrap().unwrap();
    assert_eq!(response.fields.lines(), b"x-a: b\r\n");
    let tunnel = response.upgrade.unwrap();
    assert_eq!(tunnel.protocol(), "websocket");
    (peer, tunnel)
}

#[test]
fn both_directions_are_copied_until_both_have_ended() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let (mut peer, tunnel) = switch(&upstream, &client).await;
        let duplex = TestDuplex::default();
        duplex.change(|state| state.room = usize::MAX);
        let copying = spawn_local(tunnel.run(Box::new(duplex.clone())));
        duplex.change(|state| state.sent.extend(b"hello"));
        assert_eq!(peer.take_until("hello").await, "hello");
        peer.send(b" second").await;
        settle().await;
        assert_eq!(duplex.received(), "first second");
        // The end of one direction leaves the other one open.
        duplex.change(|state| state.has_ended = true);
        assert!(peer.is_closed().await);
        peer.send(b" third").await;
        drop(peer);
        copying.await.unwrap().unwrap();
        assert_eq!(duplex.received(), "first second third");
        assert!(duplex.0.lock().unwrap().is_shut_down);
        assert_eq!(client.connections(), 0);
    });
}

#[test]
fn a_stop_ends_the_direction_to_the_upstream_which_sends_its_last_bytes() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let (mut peer, tunnel) = switch(&upstream, &client).await;
        let duplex = TestDuplex::default();
        duplex.change(|state| state.room = usize::MAX);
        let copying = spawn_local(tunnel.run(Box::new(duplex.clone())));
        settle().await;
        duplex.change(|state| state.is_stopping = true);
        assert!(peer.is_closed().await);
        peer.send(b" last").await;
        drop(peer);
        copying.await.unwrap().unwrap();
        assert_eq!(duplex.received(), "first last");
        assert!(duplex.0.lock().unwrap().is_shut_down);
    });
}

#[test]
fn much_passes_in_order_and_a_slow_client_makes_the_upstream_wait() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let (mut peer, tunnel) = switch(&upstream, &client).await;
        let duplex = TestDuplex::default();
        let copying = spawn_local(tunnel.run(Box::new(duplex.clone())));
        let content: Vec<u8> = (0..3_000_000_u32).map(|at| b'a' + (at % 26) as u8).collect();
        let sent = content.clone();
        let sending = spawn_local(async move {
            peer.send(&sent).await;
            peer
        });
        settle().await;
        assert!(!sending.is_finished(), "nothing buffers all of it");
        duplex.change(|state| state.room = usize::MAX);
        let mut peer = sending.await.unwrap();
        settle().await;
        assert!(duplex.received().as_bytes() == [b"first", &content[..]].concat());
        duplex.change(|state| state.sent.extend(&content));
        while peer.received.len() < content.len() {
            assert!(peer.receive().await);
        }
        assert!(peer.received == content);
        copying.abort();
        assert!(peer.is_closed().await);
    });
}

#[test]
fn an_upgrade_is_offered_without_content_only() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let head = OutgoingHead { upgrade: Some("websocket".into()), ..request("POST") };
        for (content, offer) in [("", "\r\nconnection: upgrade\r\nupgrade: websocket\r\n"), ("a", "")] {
            let (to, client, head) = (upstream.destination(), client.clone(), head.clone());
            let sending = spawn_local(async move {
                let mut content = OutgoingContent::bytes(content.into());
                client.send(&to, &head, &mut content, &ClientTimeouts::default(), &mut |_, _| {}).await
            });
            let mut peer = upstream.accept().await;
            let received = peer.take_head().await;
            assert!(received.starts_with("POST /path?query HTTP/1.1\r\n"), "{received}");
            assert_eq!(received.contains("upgrade"), !offer.is_empty(), "{received}");
            assert!(received.contains(offer), "{received}");
            peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
            assert!(sending.await.unwrap().unwrap().upgrade.is_none());
        }
    });
}

#[test]
fn silence_ends_a_tunnel() {
    run(async {
        let (upstream, client) = (Upstream::new(), client());
        let (mut peer, tunnel) = switch(&upstream, &client).await;
        let duplex = TestDuplex::default();
        duplex.change(|state| state.room = usize::MAX);
        let began = Instant::now();
        let error = tunnel.run(Box::new(duplex.clone())).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!((3600..3602).contains(&began.elapsed().as_secs()));
        assert!(peer.is_closed().await);
    });
}
