//! A connection that has left HTTP: both directions for whoever speaks the other protocol, on
//! any thread, and a rope by which the worker still holds it.

use crate::service::{Duplex, Stopping};
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

type Watched = Arc<AsyncFd<OwnedFd>>;

/// A socket for another protocol, and the rope to it. `first` was received already.
pub(super) fn begin(socket: AsyncFd<OwnedFd>, first: Bytes) -> io::Result<(Box<dyn Duplex>, Rope)> {
    let socket = Arc::new(socket);
    let (held, over) = oneshot::channel();
    let (stop, stopping) = watch::channel(());
    let line = Line { socket: socket.clone(), first, stopping, _held: held };
    Ok((Box::new(line), Rope { socket, over, stop: Some(stop) }))
}

/// What the worker keeps of such a connection.
pub(crate) struct Rope {
    socket: Watched,
    over: oneshot::Receiver<()>,
    /// Until the other end has been told that the server stops.
    stop: Option<watch::Sender<()>>,
}

impl Rope {
    /// Waits until the other end has been let go of.
    pub(crate) fn poll_loose(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        std::pin::Pin::new(&mut self.over).poll(cx).map(drop)
    }

    /// Tells the other end that the server stops.
    pub(crate) fn announce_stop(&mut self) {
        self.stop = None;
    }

    /// Ends the connection under whoever uses it.
    pub(crate) fn cut(&self) {
        // One that is gone needs no ending.
        let _ = rustix::net::shutdown(self.socket.get_ref(), Shutdown::Both);
    }
}

/// The other end of the rope.
struct Line {
    socket: Watched,
    first: Bytes,
    /// Closed as soon as the server stops.
    stopping: watch::Receiver<()>,
    _held: oneshot::Sender<()>,
}

impl Line {
    /// Tries until it can be done, or has to be waited for.
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
                done => return Poll::Ready(Ok(done?)),
            }
        }
    }
}

impl Duplex for Line {
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

    fn finish(&mut self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self.socket.get_ref(), Shutdown::Write)?)
    }

    fn stopping(&self) -> Stopping {
        let mut stopping = self.stopping.clone();
        // Nothing is ever sent on it: it is closed.
        Box::pin(async move { while stopping.changed().await.is_ok() {} })
    }
}
