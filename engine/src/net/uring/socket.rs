//! A connected socket with io_uring.

use crate::buffer::Buffer;
use crate::net::connection_table::ConnectionId;
use crate::net::epoll::EpollSocket;
use crate::net::raw::{self, FilePart, SendMode, ShutdownMode};
use crate::net::stream::{Detach, Stream};
use crate::net::sys::ring::{Op, Ring, Slot};
use crate::net::uring::socket_state::{PendingSend, SocketState};
use crate::net::uring::waiters::WaiterSlot;
use crate::net::uring::worker_ring::{CANCEL_WAIT_MAX, SlotState, Uring};
use crate::net::worker::Worker;
use crate::splice_pipe::SplicePipe;
use bytes::Bytes;
use std::cell::Cell;
use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

thread_local! {
    static SOCKETS: Cell<usize> = const { Cell::new(0) };
}

/// Whether the ring of this worker has sockets. Bytes that they receive are then seen without a look at epoll, so what the
/// runtime knows about the sockets of epoll may be older than a request.
pub(crate) fn ring_has_sockets() -> bool {
    SOCKETS.get() > 0
}

/// A non-blocking connected socket in the worker's ring.
pub(crate) struct UringSocket {
    uring: Rc<Uring>,
    slot: Slot,
}

impl UringSocket {
    pub(crate) fn new(uring: Rc<Uring>, fd: OwnedFd) -> Self {
        let slot = uring.with_core(|core| core.insert(fd, SlotState::Socket(SocketState::default())));
        SOCKETS.set(SOCKETS.get() + 1);
        Self { uring, slot }
    }

    /// Calls `f` with the socket's state. Wakes the ring's task if that started an operation.
    fn with_state<T>(&self, f: impl FnOnce(&mut SocketState, &mut Ring) -> T) -> T {
        self.uring.with_core(|core| {
            let SlotState::Socket(state) = &mut core.states[self.slot as usize] else {
                unreachable!("a socket owns its slot until it is dropped")
            };
            f(state, &mut core.ring)
        })
    }

    /// Sends directly, after earlier output that the socket did not accept.
    fn send_now(&self, send: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>) -> io::Result<usize> {
        self.with_state(|state, ring| {
            state.sending.send_rest(ring.fd(self.slot))?;
            send(ring.fd(self.slot))
        })
    }

    /// Removes the socket from the ring. Returns it with all unread bytes.
    fn remove_from_ring(&self) -> (OwnedFd, Vec<u8>) {
        let ops = [Op::Receive, Op::Readable, Op::Writable, Op::PeerShutdown];
        let _close_waiter = self.with_state(|state, ring| {
            ops.into_iter().for_each(|op| ring.cancel(self.slot, op));
            // With a waiter, the end of the receive would start another operation.
            mem::take(&mut state.close_waiter)
        });
        let (fd, state) = loop {
            let taken = self.uring.with_core(|core| {
                let fd = core.ring.deregister(self.slot)?;
                Some((fd, core.remove(self.slot)))
            });
            match taken {
                Some(taken) => break taken,
                None => self.uring.run_once(Some(CANCEL_WAIT_MAX)),
            }
        };
        // These runs replaced runs of the ring's task, which must now restore the eventfd signals.
        self.uring.wake_run_task();
        match state {
            SlotState::Socket(mut state) => (fd, state.receiving.take_all()),
            _ => (fd, Vec::new()),
        }
    }
}

impl Stream for UringSocket {
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        self.with_state(|state, ring| match state.sending {
            PendingSend::Failed(error) => Poll::Ready(Err(error.into())),
            PendingSend::Nothing | PendingSend::InFlight => state.receiving.poll(cx, into, (ring, self.slot)),
            PendingSend::Unsent(_) => match state.receiving.poll(cx, into, (ring, self.slot)) {
                Poll::Pending => Poll::Ready(Err(io::ErrorKind::WouldBlock.into())),
                ready => ready,
            },
        })
    }

    fn send(&self, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
        if mode != SendMode::Deferred || self.uring.has_single_client() {
            return self.send_now(|fd| match parts {
                [[], []] => Ok(0),
                parts => raw::send(fd, parts, mode),
            });
        }
        self.with_state(|state, ring| match (&state.sending, parts) {
            (_, [[], []]) => Ok(0),
            (PendingSend::Nothing, [first, second]) => {
                let mut output = Buffer::of(first);
                output.extend_from_slice(second);
                let accepted = output.len();
                state.sending = PendingSend::InFlight;
                ring.submit_send(self.slot, output, 0);
                Ok(accepted)
            }
            _ => Err(io::ErrorKind::WouldBlock.into()),
        })
    }

    fn send_file(&self, first: &[u8], part: FilePart<'_>) -> io::Result<usize> {
        self.send_now(|fd| raw::send_file(fd, first, part))
    }

    fn send_pipe(&self, pipe: &mut SplicePipe) -> io::Result<usize> {
        self.send_now(|fd| pipe.send(fd))
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_state(|state, ring| {
            match state.sending.send_rest(ring.fd(self.slot)) {
                Ok(()) if mem::take(&mut state.is_writable) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
                _ if matches!(state.sending, PendingSend::InFlight) => {}
                _ => ring.start(self.slot, Op::Writable),
            }
            state.writer.set(cx);
            Poll::Pending
        })
    }

    fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.with_state(|state, ring| {
            if state.is_read_closed || state.receiving.end().is_some() {
                return Poll::Ready(());
            }
            // The multishot receive reports the end, too.
            if !ring.is_in_flight(self.slot, Op::Receive) {
                ring.start(self.slot, Op::PeerShutdown);
            }
            state.close_waiter.set(cx);
            Poll::Pending
        })
    }

    fn shutdown(&self, how: ShutdownMode) {
        self.with_state(|_, ring| raw::shutdown(ring.fd(self.slot), how));
    }

    fn unsent_bytes(&self, limit: Option<i32>) -> usize {
        self.with_state(|_, ring| raw::unsent_bytes(ring.fd(self.slot), limit))
    }

    fn park(&mut self, _worker: &Rc<Worker>, id: ConnectionId) -> bool {
        let (is_idle, _wakers) = self.with_state(|state, ring| {
            let is_idle = matches!(state.sending, PendingSend::Nothing)
                && !state.receiving.has_bytes()
                && state.receiving.end().is_none()
                && [Op::Receive, Op::Readable].into_iter().any(|op| ring.is_in_flight(self.slot, op));
            if !is_idle {
                return (false, None);
            }
            // The waiting task is about to end. Its wakers are dropped when nothing is borrowed.
            let reader = mem::replace(&mut state.receiving.reader, WaiterSlot::parked(id));
            (true, Some((reader, mem::take(&mut state.close_waiter), mem::take(&mut state.writer))))
        });
        is_idle
    }

    fn unpark(&mut self, _worker: &Worker) {
        self.with_state(|state, _| state.receiving.reader = WaiterSlot::default());
    }
}

impl Detach for UringSocket {
    type Detached = EpollSocket;

    fn detach(self) -> io::Result<(EpollSocket, Bytes)> {
        let (fd, received) = self.remove_from_ring();
        let (socket, _) = EpollSocket::new(fd).detach()?;
        Ok((socket, received.into()))
    }
}

impl Drop for UringSocket {
    fn drop(&mut self) {
        SOCKETS.set(SOCKETS.get() - 1);
        // The state is dropped when nothing is borrowed: its wakers may own this connection.
        let _state = self.uring.with_core(|core| {
            let state = core.remove(self.slot);
            // A detached socket has no state here.
            if let SlotState::Socket(_) = state {
                let is_in_flight = |op| core.ring.is_in_flight(self.slot, op);
                if is_in_flight(Op::Receive) && !is_in_flight(Op::Send) {
                    // The client sees the close now, not one run later.
                    raw::shutdown(core.ring.fd(self.slot), ShutdownMode::Both);
                }
                core.ring.release(self.slot);
            }
            state
        });
    }
}
