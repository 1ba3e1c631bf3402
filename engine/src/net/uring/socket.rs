//! A connected socket with io_uring.

use crate::buffer::Buffer;
use crate::file::OpenFile;
use crate::net::connection_table::ConnectionId;
use crate::net::raw::{self, SendBuffer, SendMode};
use crate::net::stream::{self, SendState, Stream};
use crate::net::sys;
use crate::net::sys::ring::{Op, Ring, Slot};
use crate::net::upgrade::{self, UpgradeControl};
use crate::net::uring::socket_state::{PendingSend, SocketState};
use crate::net::uring::waiters::WaiterSlot;
use crate::net::uring::worker_ring::{CANCEL_WAIT_MAX, SlotState, Uring};
use crate::net::worker::Worker;
use crate::peer::Duplex;
use bytes::Bytes;
use rustix::net::Shutdown;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

/// A non-blocking connected socket in the worker's ring.
pub(crate) struct UringSocket {
    uring: Rc<Uring>,
    slot: Slot,
}

impl UringSocket {
    pub(crate) fn new(uring: Rc<Uring>, fd: OwnedFd) -> Self {
        let slot = uring.with_core(|core| core.insert(fd, SlotState::Socket(SocketState::default())));
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

    /// Sends directly, unless earlier output is pending in the ring.
    fn send_now(&self, send: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>) -> io::Result<usize> {
        self.with_state(|state, ring| match state.sending {
            PendingSend::Nothing => send(ring.fd(self.slot)),
            PendingSend::InFlight | PendingSend::Unsent(_) => Err(io::ErrorKind::WouldBlock.into()),
            PendingSend::Failed(error) => Err(error.into()),
        })
    }

    /// Removes the socket from the ring. Returns it with all unread bytes.
    fn detach(&self) -> (OwnedFd, Vec<u8>) {
        let ops = [Op::Receive, Op::Readable, Op::Writable, Op::PeerShutdown];
        self.with_state(|_, ring| ops.into_iter().for_each(|op| ring.cancel(self.slot, op)));
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
            _ => state.receiving.poll(cx, into, (ring, self.slot)),
        })
    }

    fn send(&self, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
        self.send_now(|fd| raw::send(fd, parts, mode))
    }

    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        self.send_now(|fd| raw::send_file(fd, file, offset, len))
    }

    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        self.send_now(|fd| raw::send_copy(fd, first, file, offset, len))
    }

    fn send_deferred(&self, output: &mut SendBuffer) -> io::Result<SendState> {
        if self.uring.has_single_client() && self.with_state(|state, _| matches!(state.sending, PendingSend::Nothing)) {
            return stream::send_all(self, output);
        }
        self.with_state(|state, ring| {
            let at = output.at;
            match (&state.sending, output.buffer.take_if(|buffer| at < buffer.len())) {
                (_, None) => {}
                (PendingSend::Nothing, Some(buffer)) => {
                    *output = SendBuffer::default();
                    state.sending = PendingSend::InFlight;
                    ring.submit_send(self.slot, buffer, at);
                }
                (_, Some(buffer)) => {
                    output.buffer = Some(buffer);
                    return Ok(SendState::InFlight);
                }
            }
            Ok(SendState::Idle)
        })
    }

    fn take_unsent(&self, output: &mut SendBuffer) -> SendState {
        self.with_state(|state, _| match mem::take(&mut state.sending) {
            PendingSend::Nothing => SendState::Idle,
            PendingSend::Unsent(rest) => {
                let later = mem::replace(output, *rest);
                output.bytes().extend_from_slice(later.rest());
                SendState::Idle
            }
            other => {
                state.sending = other;
                SendState::InFlight
            }
        })
    }

    fn has_unsent(&self) -> bool {
        self.with_state(|state, _| state.has_unsent())
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_state(|state, ring| {
            match state.sending {
                PendingSend::Failed(error) => return Poll::Ready(Err(error.into())),
                PendingSend::Unsent(_) => return Poll::Ready(Ok(())),
                PendingSend::Nothing if mem::take(&mut state.is_writable) => return Poll::Ready(Ok(())),
                PendingSend::Nothing => ring.start(self.slot, Op::Writable),
                PendingSend::InFlight => {}
            }
            state.writer.set(cx);
            Poll::Pending
        })
    }

    async fn prefetch(&self, file: &File, at: u64, len: u64) -> Option<()> {
        self.uring.prefetch(file, at, len).await
    }

    fn set_notsent_lowat(&self, bytes_max: i32) {
        self.with_state(|_, ring| raw::set_notsent_lowat(ring.fd(self.slot), bytes_max));
    }

    fn notsent_bytes(&self) -> usize {
        self.with_state(|_, ring| sys::notsent_bytes(ring.fd(self.slot)))
    }

    fn shutdown_write(&self) {
        // Fails only if the connection is already closed.
        let _ = self.with_state(|_, ring| rustix::net::shutdown(ring.fd(self.slot), Shutdown::Write));
    }

    fn reset_on_close(&self) {
        self.with_state(|_, ring| raw::reset_on_close(ring.fd(self.slot)));
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

    fn has_pending_edge(&self) -> bool {
        false
    }

    fn is_registered(&self) -> bool {
        self.with_state(|state, ring| state.receiving.has_bytes() || ring.is_in_flight(self.slot, Op::Receive))
    }

    fn unpark(&mut self, _worker: &Worker) {
        self.with_state(|state, _| state.receiving.reader = WaiterSlot::default());
    }

    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, UpgradeControl)> {
        let (fd, rest) = self.detach();
        let first = if rest.is_empty() { first } else { [&first[..], &rest].concat().into() };
        upgrade::split(sys::register(fd)?, first)
    }
}

impl Drop for UringSocket {
    fn drop(&mut self) {
        // The state is dropped when nothing is borrowed: its wakers may own this connection.
        let _state = self.uring.with_core(|core| {
            let state = core.remove(self.slot);
            // A detached socket has no state here.
            if let SlotState::Socket(_) = state {
                let is_in_flight = |op| core.ring.is_in_flight(self.slot, op);
                if is_in_flight(Op::Receive) && !is_in_flight(Op::Send) {
                    // The client sees the close now, not one run later.
                    let _ = rustix::net::shutdown(core.ring.fd(self.slot), Shutdown::Both);
                }
                core.ring.release(self.slot);
            }
            state
        });
    }
}
