//! Makes what axum's WebSocket extractor looks for: hyper's `OnUpgrade`.
//!
//! Only a connection of hyper's can make one. So a request that wants to upgrade gets a hyper
//! connection of its own, which never sees a socket: it reads one request that is always the
//! same, and its answer is thrown away. When the application has accepted, and the engine's own
//! answer has left, hyper hands its connection over to whoever waits for the upgrade; behind it
//! is the real one from then on, without any copying between.

use crate::service::Duplex;
use crate::tower::Body;
use http::{Extensions, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, on};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::oneshot;

/// What the hyper connection is made to read.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: a\r\n\r\n";

/// A hyper connection that waits for its cue.
pub(super) struct Puppet {
    connection: Pin<Box<dyn Future<Output = ()>>>,
    accept: oneshot::Sender<()>,
    stage: Arc<Mutex<Stage>>,
}

/// Where the real connection is put, and whom to wake then.
#[derive(Default)]
struct Stage {
    real: Option<Box<dyn Duplex>>,
    waiting: Vec<Waker>,
}

impl Puppet {
    /// Puts hyper's upgrade into the extensions.
    pub(super) fn begin(extensions: &mut Extensions) -> Option<Self> {
        let stage: Arc<Mutex<Stage>> = Arc::default();
        let mask = Mask { to_read: REQUEST, said: Vec::new(), stage: stage.clone(), real: None, scratch: Vec::new() };
        let (accept, accepted) = oneshot::channel();
        let (found, mut finding) = oneshot::channel();
        let once = Cell::new(Some((found, accepted)));
        let service = service_fn(move |request: Request<Incoming>| {
            let once = once.take();
            async move {
                let mut response = Response::new(Body::empty());
                let Some((found, accepted)) = once else { return Ok::<_, Infallible>(response) };
                let _ = found.send(on(request));
                if accepted.await.is_ok() {
                    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                    let fields = response.headers_mut();
                    fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                    fields.insert(header::UPGRADE, HeaderValue::from_static("a"));
                }
                Ok(response)
            }
        });
        let connection = http1::Builder::new().serve_connection(mask, service).with_upgrades();
        let mut connection = Box::pin(async move { drop(connection.await) });
        // It has all that it reads at hand, so the first turn brings it to the application.
        let _ = connection.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let upgrade: OnUpgrade = finding.try_recv().ok()?;
        extensions.insert(upgrade);
        Some(Self { connection, accept, stage })
    }

    /// Puts the real connection behind hyper's.
    pub(super) fn become_real(self, real: Box<dyn Duplex>) {
        let Self { connection, accept, stage } = self;
        let _ = accept.send(());
        tokio::task::spawn_local(async move {
            connection.await;
            let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
            stage.real = Some(real);
            let waiting = std::mem::take(&mut stage.waiting);
            drop(stage);
            waiting.iter().for_each(Waker::wake_by_ref);
        });
    }
}

/// What hyper takes for a socket.
struct Mask {
    to_read: &'static [u8],
    /// The end of what hyper has written as its answer's head.
    said: Vec<u8>,
    stage: Arc<Mutex<Stage>>,
    real: Option<Box<dyn Duplex>>,
    /// What is received goes through it, since hyper's own room can be filled only by copying.
    scratch: Vec<u8>,
}

impl Mask {
    /// The real connection, once it is there.
    fn poll_real(&mut self, cx: &mut Context<'_>) -> Poll<&mut dyn Duplex> {
        if self.real.is_none() {
            let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
            match stage.real.take() {
                Some(real) => self.real = Some(real),
                None => stage.waiting.push(cx.waker().clone()),
            }
        }
        match &mut self.real {
            Some(real) => Poll::Ready(&mut **real),
            None => Poll::Pending,
        }
    }

    /// Whether hyper has said all that it has to say before the upgrade.
    fn has_said_all(&self) -> bool {
        self.said.ends_with(b"\r\n\r\n")
    }
}

impl Read for Mask {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if !self.to_read.is_empty() {
            let count = self.to_read.len().min(into.remaining());
            let (now, later) = self.to_read.split_at(count);
            into.put_slice(now);
            self.to_read = later;
            return Poll::Ready(Ok(()));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(READ_BYTES, 0);
        let room = into.remaining().min(READ_BYTES);
        let received = match self.poll_real(cx) {
            Poll::Ready(real) => real.poll_receive(cx, &mut scratch[..room]),
            Poll::Pending => Poll::Pending,
        };
        if let Poll::Ready(Ok(count)) = received {
            into.put_slice(&scratch[..count]);
            self.scratch = scratch;
        }
        // Who has to wait keeps no room for what will come.
        received.map_ok(drop)
    }
}

/// Most that is received at once on the way through hyper's buffer.
const READ_BYTES: usize = 16 * 1024;

impl Write for Mask {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.as_mut().poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.has_said_all() {
            return match self.poll_real(cx) {
                Poll::Ready(real) => real.poll_send(cx, pieces),
                Poll::Pending => Poll::Pending,
            };
        }
        pieces.iter().for_each(|piece| self.said.extend_from_slice(piece));
        Poll::Ready(Ok(pieces.iter().map(|piece| piece.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_real(cx).map(|real| real.finish())
    }
}
