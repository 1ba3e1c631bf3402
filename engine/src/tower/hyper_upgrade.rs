//! Creates hyper's `OnUpgrade`, which axum's WebSocket extractor requires.
//!
//! Only a hyper connection can create an `OnUpgrade`. So a request for an upgrade gets its own hyper
//! connection, which has no socket. It reads a constant request, and its response is discarded. After
//! the application has accepted the upgrade and the engine has sent its own response, hyper passes
//! its connection to the owner of the `OnUpgrade`. From then on, the shim forwards reads and writes to
//! the real connection.

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

/// The constant request that the hyper connection reads.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: a\r\n\r\n";

/// A hyper connection that waits until the application accepts the upgrade.
pub(super) struct HyperUpgrade {
    connection: Pin<Box<dyn Future<Output = ()>>>,
    accept: oneshot::Sender<()>,
    slot: Arc<Mutex<IoSlot>>,
}

/// Receives the real connection; has the wakers that wait for it.
#[derive(Default)]
struct IoSlot {
    duplex: Option<Box<dyn Duplex>>,
    wakers: Vec<Waker>,
}

impl HyperUpgrade {
    /// Starts a hyper connection and adds its `OnUpgrade` to the extensions.
    pub(super) fn start(extensions: &mut Extensions) -> Option<Self> {
        let slot: Arc<Mutex<IoSlot>> = Arc::default();
        let shim = IoShim {
            unread_request: REQUEST,
            written_head: Vec::new(),
            slot: slot.clone(),
            duplex: None,
            scratch: Vec::new(),
        };
        let (accept, accepted) = oneshot::channel();
        let (upgrade_sender, mut upgrade_receiver) = oneshot::channel();
        let once = Cell::new(Some((upgrade_sender, accepted)));
        let service = service_fn(move |request: Request<Incoming>| {
            let once = once.take();
            async move {
                let mut response = Response::new(Body::empty());
                let Some((upgrade_sender, accepted)) = once else { return Ok::<_, Infallible>(response) };
                let _ = upgrade_sender.send(on(request));
                if accepted.await.is_ok() {
                    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                    let fields = response.headers_mut();
                    fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                    fields.insert(header::UPGRADE, HeaderValue::from_static("a"));
                }
                Ok(response)
            }
        });
        let connection = http1::Builder::new().serve_connection(shim, service).with_upgrades();
        let mut connection = Box::pin(async move { drop(connection.await) });
        // The whole request is available, so the first poll calls the service.
        let _ = connection.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let upgrade: OnUpgrade = upgrade_receiver.try_recv().ok()?;
        extensions.insert(upgrade);
        Some(Self { connection, accept, slot })
    }

    /// Connects the hyper connection to the real one.
    pub(super) fn connect(self, duplex: Box<dyn Duplex>) {
        let Self { connection, accept, slot } = self;
        let _ = accept.send(());
        tokio::task::spawn_local(async move {
            connection.await;
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.duplex = Some(duplex);
            let wakers = std::mem::take(&mut slot.wakers);
            drop(slot);
            wakers.iter().for_each(Waker::wake_by_ref);
        });
    }
}

/// The I/O object that hyper uses as a socket.
struct IoShim {
    unread_request: &'static [u8],
    /// The end of the response head that hyper has written.
    written_head: Vec<u8>,
    slot: Arc<Mutex<IoSlot>>,
    duplex: Option<Box<dyn Duplex>>,
    /// Receive buffer, since safe code can only fill hyper's buffer by copying.
    scratch: Vec<u8>,
}

impl IoShim {
    /// Returns the real connection, once connected.
    fn poll_duplex(&mut self, cx: &mut Context<'_>) -> Poll<&mut dyn Duplex> {
        if self.duplex.is_none() {
            let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
            match slot.duplex.take() {
                Some(duplex) => self.duplex = Some(duplex),
                None => slot.wakers.push(cx.waker().clone()),
            }
        }
        match &mut self.duplex {
            Some(duplex) => Poll::Ready(&mut **duplex),
            None => Poll::Pending,
        }
    }

    /// Returns whether hyper has written its complete response head.
    fn head_is_written(&self) -> bool {
        self.written_head.ends_with(b"\r\n\r\n")
    }
}

impl Read for IoShim {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if !self.unread_request.is_empty() {
            let count = self.unread_request.len().min(into.remaining());
            let (now, later) = self.unread_request.split_at(count);
            into.put_slice(now);
            self.unread_request = later;
            return Poll::Ready(Ok(()));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(READ_BYTES, 0);
        let bytes_max = into.remaining().min(READ_BYTES);
        let received = match self.poll_duplex(cx) {
            Poll::Ready(duplex) => duplex.poll_receive(cx, &mut scratch[..bytes_max]),
            Poll::Pending => Poll::Pending,
        };
        if let Poll::Ready(Ok(count)) = received {
            into.put_slice(&scratch[..count]);
            self.scratch = scratch;
        }
        // If the read is pending, the buffer is freed: an idle connection needs no memory for it.
        received.map_ok(drop)
    }
}

/// Maximum number of bytes per read through hyper's buffer.
const READ_BYTES: usize = 16 * 1024;

impl Write for IoShim {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.as_mut().poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.head_is_written() {
            return match self.poll_duplex(cx) {
                Poll::Ready(duplex) => duplex.poll_send(cx, slices),
                Poll::Pending => Poll::Pending,
            };
        }
        slices.iter().for_each(|slice| self.written_head.extend_from_slice(slice));
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_duplex(cx).map(|duplex| duplex.shutdown_write())
    }
}
