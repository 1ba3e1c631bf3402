//! Upgraded connections: a connection that has switched from HTTP to another protocol. The handler of that
//! protocol owns an [`UpgradedSocket`] and may use it on any thread. The worker keeps an [`UpgradeControl`] to
//! stop or abort it.

use crate::peer::{Duplex, StoppingFuture};
use bytes::{Buf, Bytes};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};

type SharedSocket = Arc<AsyncFd<OwnedFd>>;

/// Creates both ends of an upgraded connection. `first` holds bytes that were already received.
pub(super) fn split(socket: AsyncFd<OwnedFd>, first: Bytes) -> io::Result<(Box<dyn Duplex>, UpgradeControl)> {
    let socket = Arc::new(socket);
    let (open, closed) = oneshot::channel();
    let (stop, stopping) = watch::channel(());
    let upgraded = UpgradedSocket { socket: socket.clone(), first, stopping, _open: open };
    Ok((Box::new(upgraded), UpgradeControl { socket, closed, stop: Some(stop) }))
}

/// The worker's end of an upgraded connection.
pub(crate) struct UpgradeControl {
    socket: SharedSocket,
    closed: oneshot::Receiver<()>,
    /// Dropped when the server stops.
    stop: Option<watch::Sender<()>>,
}

impl UpgradeControl {
    /// Waits until the handler drops the connection.
    pub(crate) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        std::pin::Pin::new(&mut self.closed).poll(cx).map(drop)
    }

    /// Informs the handler that the server stops.
    pub(crate) fn announce_stop(&mut self) {
        self.stop = None;
    }

    /// Shuts down the connection, even while the handler uses it.
    pub(crate) fn abort(&self) {
        // Fails only if the connection is already closed.
        let _ = rustix::net::shutdown(self.socket.get_ref(), Shutdown::Both);
    }
}

/// The handler's end of an upgraded connection.
struct UpgradedSocket {
    socket: SharedSocket,
    first: Bytes,
    /// Closed when the server stops.
    stopping: watch::Receiver<()>,
    _open: oneshot::Sender<()>,
}

impl UpgradedSocket {
    /// Retries `attempt` until it succeeds or fails. Waits for readiness while it would block.
    fn poll_io<T>(
        &self,
        interest: Interest,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(&OwnedFd) -> rustix::io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            let mut guard = ready!(match interest.is_readable() {
                true => self.socket.poll_read_ready(cx),
                false => self.socket.poll_write_ready(cx),
            })?;
            match attempt(guard.get_inner()) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                result => return Poll::Ready(Ok(result?)),
            }
        }
    }
}

impl Duplex for UpgradedSocket {
    fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.first.has_remaining() {
            let count = self.first.len().min(into.len());
            self.first.copy_to_slice(&mut into[..count]);
            return Poll::Ready(Ok(count));
        }
        self.poll_io(Interest::READABLE, cx, |socket| {
            rustix::net::recv(socket, &mut *into, RecvFlags::empty()).map(|(received, _)| received)
        })
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_io(Interest::WRITABLE, cx, |socket| {
            rustix::net::sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
        })
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self.socket.get_ref(), Shutdown::Write)?)
    }

    fn stopping(&self) -> StoppingFuture {
        let mut stopping = self.stopping.clone();
        // No value is ever sent on this channel; it only closes.
        Box::pin(async move { while stopping.changed().await.is_ok() {} })
    }
}
