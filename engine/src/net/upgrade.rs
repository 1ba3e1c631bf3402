//! Upgraded connections: a connection that has switched from HTTP to another protocol. The handler of that
//! protocol owns an [`UpgradedStream`] and may use it on any thread. The worker keeps an [`UpgradeControl`] to
//! stop or abort it.

use crate::buffer::Buffer;
use crate::net::raw::{SendMode, ShutdownMode};
use crate::net::stop_notice::{StopNotice, StopSender, stop_notice};
use crate::net::stream::{Detach, Stream};
use crate::peer::{Duplex, StoppingFuture};
use bytes::{Buf, Bytes};
use std::io::{self, ErrorKind, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// A stream that the worker and the handler share. Each locks it for single calls only.
struct SharedStream<S>(Arc<Mutex<S>>);

impl<S> SharedStream<S> {
    fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Detaches a stream, and creates both ends of the upgraded connection. `first` holds bytes that were already
/// received.
///
/// # Errors
/// When file descriptors or memory run out.
pub(crate) fn split<S: Detach>(stream: S, first: Bytes) -> io::Result<(Box<dyn Duplex>, UpgradeControl<S>)> {
    let (stream, rest) = stream.detach()?;
    let first = if rest.is_empty() { first } else { [first, rest].concat().into() };
    let stream = Arc::new(Mutex::new(stream));
    let (open, closed) = oneshot::channel();
    let (stop, stopping) = stop_notice();
    let upgraded = UpgradedStream {
        stream: SharedStream(stream.clone()),
        received: Received::First(first),
        stopping,
        _open: open,
    };
    Ok((Box::new(upgraded), UpgradeControl { stream: SharedStream(stream), closed, stop }))
}

/// The worker's end of an upgraded connection.
pub(crate) struct UpgradeControl<S: Detach> {
    stream: SharedStream<S::Detached>,
    closed: oneshot::Receiver<()>,
    stop: StopSender,
}

impl<S: Detach> UpgradeControl<S> {
    /// Waits until the handler drops the connection.
    pub(crate) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        std::pin::Pin::new(&mut self.closed).poll(cx).map(drop)
    }

    /// Informs the handler that the server stops.
    pub(crate) fn announce_stop(&mut self) {
        self.stop.announce();
    }

    /// Shuts down the connection, even while the handler uses it.
    pub(crate) fn abort(&self) {
        self.stream.lock().shutdown(ShutdownMode::Both);
    }
}

/// The handler's end of an upgraded connection.
struct UpgradedStream<S> {
    stream: SharedStream<S>,
    received: Received,
    stopping: StopNotice,
    _open: oneshot::Sender<()>,
}

/// Received bytes that the handler has not read.
enum Received {
    /// With the request, or before the stream was detached.
    First(Bytes),
    /// Since then. Those before the index are read.
    Later(Option<Buffer>, usize),
}

impl Received {
    /// Moves bytes to the handler. Returns how many.
    fn read(&mut self, into: &mut [u8]) -> usize {
        match self {
            Self::First(bytes) => {
                let count = bytes.len().min(into.len());
                bytes.copy_to_slice(&mut into[..count]);
                count
            }
            Self::Later(None, _) => 0,
            Self::Later(Some(buffer), at) => {
                let count = (buffer.len() - *at).min(into.len());
                into[..count].copy_from_slice(&buffer[*at..*at + count]);
                *at += count;
                count
            }
        }
    }
}

impl<S: Stream + Send> Duplex for UpgradedStream<S> {
    fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            let count = self.received.read(into);
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
            let mut buffer = None;
            let polled = self.stream.lock().poll_receive(cx, &mut buffer);
            self.received = Received::Later(buffer, 0);
            match ready!(polled) {
                Ok(0) => return Poll::Ready(Ok(0)),
                Ok(_) => {}
                // Accepted output waits for the client.
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(self.stream.lock().poll_writable(cx))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut pieces = pieces.iter().filter(|piece| !piece.is_empty());
        let parts = [pieces.next(), pieces.next()].map(|piece| piece.map_or(&[][..], |piece| piece));
        let stream = self.stream.lock();
        loop {
            match stream.send(parts, SendMode::Flush) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(stream.poll_writable(cx))?,
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.stream.lock().shutdown(ShutdownMode::Write);
        Ok(())
    }

    fn stopping(&self) -> StoppingFuture {
        self.stopping.future()
    }
}
