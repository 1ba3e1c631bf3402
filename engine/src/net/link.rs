//! A socket with an optional session that encodes its bytes, such as an encrypted one.
//!
//! Without a session, each call goes to the socket and costs one branch more. The session never sees the socket: the
//! link moves received bytes into it, and sends what it returns.

use crate::buffer::{Buffer, Size};
use crate::limits::ENCODED_SLICE_BYTES;
use crate::net::connection_table::ConnectionId;
use crate::net::listen::Endpoint;
use crate::net::raw::{FilePart, FileSource, SendBuffer, SendMode, ShutdownMode};
use crate::net::stream::{Detach, Stream};
use crate::net::turns::{Ticket, Turns};
use crate::net::worker::Worker;
use crate::peer::TlsInfo;
use crate::splice_pipe::SplicePipe;
use bytes::Bytes;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Encodes and decodes the bytes of a connection. Does no I/O.
pub(crate) trait Session: Send {
    /// Takes received bytes. Called only when all decoded bytes were read, so a session holds at most the result of
    /// one receive and an incomplete part before it.
    ///
    /// # Errors
    /// If the bytes are invalid. A message about that may be left for [`Session::take_messages`].
    fn receive(&mut self, encoded: &[u8]) -> Result<(), SessionFailure>;

    /// Whether [`Session::advance`] has to be called before more bytes are received.
    fn needs_turn(&self) -> bool {
        false
    }

    /// Completes when what the next step needs is ready. It may take long.
    fn poll_prepared(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Takes the next step of the handshake, which costs much time.
    ///
    /// # Errors
    /// If the handshake fails. A message about that may be left for [`Session::take_messages`].
    fn advance(&mut self) -> Result<(), SessionFailure> {
        Ok(())
    }

    /// Returns the number of decoded bytes that can be read.
    fn decoded_len(&self) -> usize;

    /// Appends `count` decoded bytes to `into`.
    fn read(&mut self, count: usize, into: &mut Vec<u8>);

    /// Whether the peer has ended its direction, after all decoded bytes.
    fn is_read_closed(&self) -> bool;

    /// Encodes bytes and appends them to `output`.
    fn write(&mut self, bytes: &[u8], output: &mut Vec<u8>);

    /// Appends what the session itself has to send to `output`.
    fn take_messages(&mut self, output: &mut Vec<u8>);

    /// Whether the handshake is incomplete. Bytes can be written only after it.
    fn is_handshaking(&self) -> bool;

    /// Appends the message that ends the sending direction to `output`.
    fn close_write(&mut self, output: &mut Vec<u8>);

    /// Returns what the handshake agreed on.
    fn info(&self) -> Option<TlsInfo> {
        None
    }
}

/// Creates the sessions of new connections.
pub(crate) trait MakeSession: fmt::Debug + Send + Sync {
    /// Returns the session of a connection at a listener; `None` if its bytes are not encoded. `plain_text_response` is
    /// sent to a client that encodes nothing.
    fn make(&self, endpoint: &Endpoint, plain_text_response: &'static [u8]) -> Option<Box<dyn Session>>;
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS, no session fails in most ways"))]
pub(crate) enum SessionFailure {
    /// The bytes are invalid.
    Invalid,
    /// The client does not encode its bytes.
    PlainText,
    /// Nothing that the client offers is supported.
    Incompatible,
    /// No host has the name that the client wants.
    UnknownServerName,
    /// The client's certificate is missing or invalid, with the reason.
    ClientCertificate(&'static str),
    /// The peer refused what this end sent, such as its certificate. The text is the reason that it gave.
    RefusedByPeer(&'static str),
    /// The server's certificate is invalid, with the reason.
    ServerCertificate(&'static str),
    /// The client ended the handshake.
    Abandoned,
}

impl SessionFailure {
    /// Returns the failure that an error of a link carries.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl fmt::Display for SessionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the session failed: {self:?}")
    }
}

impl std::error::Error for SessionFailure {}

impl From<SessionFailure> for io::Error {
    fn from(failure: SessionFailure) -> Self {
        Self::new(ErrorKind::InvalidData, failure)
    }
}

/// A socket and its session, if it has one.
pub(crate) struct Link<S> {
    socket: S,
    session: Option<Box<RefCell<SessionState>>>,
}

/// A session and its encoded output.
struct SessionState {
    session: Box<dyn Session>,
    /// Encoded bytes that the socket has not accepted.
    output: SendBuffer,
    /// The place in the queue of expensive steps.
    ticket: Option<Ticket>,
    /// Whether the closing message was written.
    is_closed: bool,
    /// Whether the handshake has failed.
    has_failed: bool,
    /// Whether received bytes are no longer decoded.
    is_input_discarded: bool,
}

impl SessionState {
    /// Notes that the handshake has failed, and sends the message about that if the socket accepts it at once.
    fn fail(&mut self, socket: &impl Stream) {
        self.has_failed = true;
        self.is_input_discarded = true;
        let _ = self.flush_messages(socket);
    }

    /// Sends the encoded output.
    ///
    /// # Errors
    /// `WouldBlock` if the socket does not accept all of it now.
    fn flush(&mut self, socket: &impl Stream, mode: SendMode) -> io::Result<()> {
        while self.output.len() > 0 {
            self.output.at += socket.send([self.output.rest(), &[]], mode)?;
        }
        self.output = SendBuffer::default();
        Ok(())
    }

    /// Sends the encoded output, messages of the session included. Returns false if some has to wait.
    fn flush_messages(&mut self, socket: &impl Stream) -> io::Result<bool> {
        self.session.take_messages(self.output.bytes());
        match self.flush(socket, SendMode::Flush) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Encodes and sends slices until the socket accepts no more. Returns how many bytes were encoded.
    fn send(&mut self, socket: &impl Stream, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
        self.flush(socket, mode)?;
        let mut remaining = parts[0].len() + parts[1].len();
        let (mut accepted, mut unsent) = (0, 0);
        for slice in parts.into_iter().flat_map(|part| part.chunks(ENCODED_SLICE_BYTES)) {
            self.session.write(slice, self.output.bytes());
            (accepted, unsent, remaining) = (accepted + slice.len(), unsent + slice.len(), remaining - slice.len());
            if unsent < ENCODED_SLICE_BYTES && remaining > 0 {
                continue;
            }
            unsent = 0;
            match self.flush(socket, if remaining > 0 { SendMode::MoreFollows } else { mode }) {
                // The rest of this output leaves before the next.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(accepted),
                result => result?,
            }
        }
        Ok(accepted)
    }

    /// Sends the closing message. A failed handshake has none: its last message is the one about the failure.
    fn close(&mut self, socket: &impl Stream) {
        if !self.has_failed && !std::mem::replace(&mut self.is_closed, true) {
            self.session.close_write(self.output.bytes());
        }
        // The socket has accepted all output before, so it refuses this short message only if the connection has failed.
        let _ = self.flush(socket, SendMode::MoreFollows);
    }

    /// Appends decoded bytes to `into`. Returns how many.
    fn read(&mut self, into: &mut Option<Buffer>) -> usize {
        let decoded = self.session.decoded_len();
        if decoded == 0 {
            return 0;
        }
        let buffer = into.get_or_insert_with(Buffer::take);
        buffer.reserve();
        let count = decoded.min(buffer.capacity() - buffer.len());
        self.session.read(count, buffer);
        count
    }

    /// Receives encoded bytes into the session. Returns false at the end of the stream.
    fn poll_receive(&mut self, socket: &impl Stream, cx: &mut Context<'_>, size: Size) -> Poll<io::Result<bool>> {
        // A usual buffer is taken only when bytes are available.
        let mut encoded = (size == Size::Long).then(|| Buffer::of_size(size));
        let count = ready!(socket.poll_receive(cx, &mut encoded))?;
        if count > 0
            && let Some(encoded) = encoded
        {
            let is_handshaking = self.session.is_handshaking();
            self.session.receive(&encoded).inspect_err(|_| {
                // The peer may learn why. The connection ends in any case.
                match is_handshaking {
                    true => self.fail(socket),
                    false => drop(self.flush_messages(socket)),
                }
            })?;
        }
        Poll::Ready(Ok(count > 0))
    }
}

impl<S> Link<S> {
    /// Whether the bytes of the connection are encoded, as with TLS.
    pub(crate) fn has_session(&self) -> bool {
        self.session.is_some()
    }
}

impl<S: Stream> Link<S> {
    pub(crate) fn new(socket: S, session: Option<Box<dyn Session>>) -> Self {
        let session = session.map(|session| SessionState {
            session,
            output: SendBuffer::default(),
            ticket: None,
            is_closed: false,
            has_failed: false,
            is_input_discarded: false,
        });
        Self { socket, session: session.map(|state| Box::new(RefCell::new(state))) }
    }

    /// Returns the socket below the session.
    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    /// Whether the handshake of the session is incomplete.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_some_and(|state| state.borrow().session.is_handshaking())
    }

    /// Returns what the handshake of the session agreed on.
    #[inline]
    pub(crate) fn tls_info(&self) -> Option<TlsInfo> {
        self.session.as_ref().and_then(|state| info_of(state))
    }

    /// Sends the closing message of the session, if it has one and the socket accepts it at once.
    pub(crate) fn close_session(&self) {
        if let Some(state) = &self.session
            && !state.borrow().session.is_handshaking()
        {
            state.borrow_mut().close(&self.socket);
        }
    }

    /// Whether the end of the stream was announced by the session, if it has one. Otherwise bytes may be missing.
    pub(crate) fn has_ended_cleanly(&self) -> bool {
        self.session.as_ref().is_none_or(|state| state.borrow().session.is_read_closed())
    }

    /// Decodes no further bytes: the caller discards them. An alert about an invalid one would follow the closing message.
    pub(crate) fn discard_input(&self) {
        if let Some(state) = &self.session {
            state.borrow_mut().is_input_discarded = true;
        }
    }

    /// Completes the handshake of the session. Its last message may leave with the first response.
    ///
    /// # Errors
    /// If the connection fails or ends, or the peer's messages are invalid. Bytes that are received afterwards are not
    /// decoded: discard them.
    pub(crate) fn poll_handshake(&self, cx: &mut Context<'_>, turns: &Turns) -> Poll<io::Result<()>> {
        let Some(state) = &self.session else { return Poll::Ready(Ok(())) };
        let state = &mut *state.borrow_mut();
        loop {
            if !state.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if state.session.needs_turn() {
                ready!(state.session.poll_prepared(cx));
                ready!(turns.poll_turn(&mut state.ticket, cx));
                state.session.advance().inspect_err(|_| state.fail(&self.socket))?;
                continue;
            }
            let is_flushed = state.flush_messages(&self.socket)?;
            if !is_flushed {
                ready!(self.socket.poll_writable(cx))?;
            } else if !ready!(state.poll_receive(&self.socket, cx, Size::Usual))? {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    #[inline(never)]
    fn poll_receive_decoded(
        &self,
        state: &mut SessionState,
        cx: &mut Context<'_>,
        into: &mut Option<Buffer>,
    ) -> Poll<io::Result<usize>> {
        let size = if into.as_ref().is_some_and(Buffer::is_long) { Size::Long } else { Size::Usual };
        loop {
            let count = state.read(into);
            if count > 0 || state.session.is_read_closed() {
                return Poll::Ready(Ok(count));
            }
            let is_flushed = state.flush_messages(&self.socket)?;
            match state.poll_receive(&self.socket, cx, size) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(Ok(0)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if is_flushed => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Err(ErrorKind::WouldBlock.into())),
            }
        }
    }
}

/// Returns what a handshake agreed on. A plain connection does not pay for it.
#[inline(never)]
fn info_of(state: &RefCell<SessionState>) -> Option<TlsInfo> {
    state.borrow().session.info()
}

impl<S: Stream> Stream for Link<S> {
    #[inline]
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        match &self.session {
            None => self.socket.poll_receive(cx, into),
            // The connection lingers, so its caller discards these bytes.
            Some(state) if state.borrow().is_input_discarded => self.socket.poll_receive(cx, into),
            Some(state) => self.poll_receive_decoded(&mut state.borrow_mut(), cx, into),
        }
    }

    #[inline]
    fn send(&self, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
        let Some(state) = &self.session else { return self.socket.send(parts, mode) };
        let state = &mut *state.borrow_mut();
        match parts {
            [[], []] => {
                state.flush(&self.socket, mode)?;
                self.socket.send(parts, mode)
            }
            parts => state.send(&self.socket, parts, mode),
        }
    }

    #[inline]
    fn send_file(&self, first: &[u8], part: FilePart<'_>) -> io::Result<usize> {
        let Some(state) = &self.session else { return self.socket.send_file(first, part) };
        let mut content = Buffer::take();
        let count = part.length.min(content.capacity());
        content.resize(count, 0);
        let read = match part.source {
            FileSource::PageCache(file) => file.read_at(&mut content, part.offset)?,
            FileSource::Copied(file) => file.read_at(&mut content, part.offset)?,
        };
        if read == 0 {
            return Ok(0);
        }
        let mode = if read == part.length { part.mode } else { SendMode::MoreFollows };
        state.borrow_mut().send(&self.socket, [first, &content[..read]], mode)
    }

    fn send_pipe(&self, pipe: &mut SplicePipe) -> io::Result<usize> {
        match &self.session {
            None => self.socket.send_pipe(pipe),
            // A session encodes bytes, which it has to have.
            Some(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_writable(cx))?;
            let Some(state) = &self.session else { return Poll::Ready(Ok(())) };
            match state.borrow_mut().flush(&self.socket, SendMode::Flush) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    #[inline]
    fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_read_closed(cx)
    }

    fn shutdown(&self, how: ShutdownMode) {
        if let Some(state) = &self.session
            && how == ShutdownMode::Write
        {
            state.borrow_mut().close(&self.socket);
        }
        self.socket.shutdown(how);
    }

    fn unsent_bytes(&self, limit: Option<i32>) -> usize {
        let encoded = self.session.as_ref().map_or(0, |state| state.borrow().output.len());
        encoded + self.socket.unsent_bytes(limit)
    }

    fn park(&mut self, worker: &Rc<Worker>, id: ConnectionId) -> bool {
        let is_idle = self.session.as_ref().is_none_or(|state| {
            let state = state.borrow();
            state.output.len() == 0 && state.session.decoded_len() == 0 && !state.session.is_read_closed()
        });
        is_idle && self.socket.park(worker, id)
    }

    fn unpark(&mut self, worker: &Worker) {
        self.socket.unpark(worker);
    }
}

impl<S: Detach> Detach for Link<S> {
    type Detached = Link<S::Detached>;

    fn detach(self) -> io::Result<(Self::Detached, Bytes)> {
        let (socket, mut received) = self.socket.detach()?;
        if let Some(state) = &self.session {
            let state = &mut *state.borrow_mut();
            let mut decoded = Vec::new();
            state.session.read(state.session.decoded_len(), &mut decoded);
            state.session.receive(&received)?;
            state.session.read(state.session.decoded_len(), &mut decoded);
            received = decoded.into();
        }
        Ok((Link { socket, session: self.session }, received))
    }
}

#[cfg(test)]
pub(crate) mod xor_session;
