//! The state of a connected socket in the ring.

use crate::buffer::Buffer;
use crate::net::raw::{self, SendBuffer, SendMode};
use crate::net::sys::buffer_ring::ProvidedBuffer;
use crate::net::sys::ring::{Multishot, Op, Ring, Slot};
use crate::net::uring::receive::ReceiveState;
use crate::net::uring::waiters::{WaiterSlot, Wakeups};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;

/// The state of a connected socket.
#[derive(Default)]
pub(super) struct SocketState {
    pub(super) receiving: ReceiveState,
    pub(super) sending: PendingSend,
    pub(super) writer: WaiterSlot,
    /// The socket may have become writable since the writer last checked.
    pub(super) is_writable: bool,
    /// The client has shut down its sending side.
    pub(super) is_read_closed: bool,
    /// The waiter for that.
    pub(super) close_waiter: WaiterSlot,
}

/// Progress of deferred output.
#[derive(Default)]
pub(super) enum PendingSend {
    /// No output is pending.
    #[default]
    Nothing,
    /// The ring sends it.
    InFlight,
    /// The socket did not accept this part.
    Unsent(Box<SendBuffer>),
    Failed(Errno),
}

impl PendingSend {
    /// Sends the part that the socket did not accept before.
    ///
    /// # Errors
    /// `WouldBlock` while output is pending; otherwise that of the failed send.
    pub(super) fn send_rest(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::InFlight => Err(io::ErrorKind::WouldBlock.into()),
            Self::Failed(error) => Err((*error).into()),
            Self::Unsent(rest) => {
                while rest.len() > 0 {
                    rest.at += raw::send(fd, [rest.rest(), &[]], SendMode::Flush)?;
                }
                *self = Self::Nothing;
                Ok(())
            }
        }
    }
}

impl SocketState {
    /// Records a receive completion.
    pub(super) fn on_received(
        &mut self,
        result: Result<Option<ProvidedBuffer>, Errno>,
        multishot: Multishot,
        (ring, slot): (&mut Ring, Slot),
    ) -> Wakeups {
        let reader = self.receiving.on_received(result, multishot, (ring, slot));
        if self.close_waiter.is_set() && multishot == Multishot::Ended && self.receiving.end().is_none() {
            ring.start(slot, Op::PeerShutdown);
        }
        [reader, self.receiving.end().and_then(|_| self.close_waiter.take())]
    }

    /// Records a send completion and the unsent rest.
    pub(super) fn on_sent(&mut self, rest: Option<(Buffer, usize)>, result: Result<(), Errno>) -> Wakeups {
        self.sending = match (result, rest) {
            (Ok(()) | Err(Errno::AGAIN | Errno::INTR), Some((buffer, at))) => {
                PendingSend::Unsent(Box::new(SendBuffer { buffer: Some(buffer), at }))
            }
            (Ok(()), None) => PendingSend::Nothing,
            (Err(error), _) => PendingSend::Failed(error),
        };
        self.is_writable = self.writer.is_set();
        // The task that waits for the next request must learn that its response is not sent completely.
        let reader = if self.has_unsent() { self.receiving.reader.take() } else { None };
        [self.writer.take(), reader]
    }

    /// Records a readiness completion.
    pub(super) fn on_ready(&mut self, op: Op) -> Wakeups {
        match op {
            Op::Writable => {
                self.is_writable = self.writer.is_set();
                [self.writer.take(), None]
            }
            Op::PeerShutdown => {
                self.is_read_closed = true;
                [self.close_waiter.take(), None]
            }
            _ => [self.receiving.on_readable(), None],
        }
    }

    fn has_unsent(&self) -> bool {
        matches!(self.sending, PendingSend::Unsent(_) | PendingSend::Failed(_))
    }
}
