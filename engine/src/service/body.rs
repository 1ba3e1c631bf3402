//! Content, both ways: what a request carries and what a response is made of.

use super::file::FileContent;
use bytes::Bytes;
use selvedge_proto::field::Fields;
use selvedge_proto::{Reject, Status};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Weak;
use std::task::{Context, Poll};

/// What a response is made of.
#[derive(Default)]
pub enum Body {
    /// Nothing.
    #[default]
    Empty,
    /// Bytes that are at hand.
    Bytes(Bytes),
    /// Part of an open file, which the engine sends without reading it.
    File(FileContent),
    /// Bytes that come piece by piece.
    Stream {
        /// The length of all pieces, where it is known. Pieces that do not come to it end the
        /// connection, since the client could not tell otherwise.
        length: Option<u64>,
        /// The pieces.
        chunks: Pin<Box<dyn Chunks>>,
    },
    /// No content: the connection goes on with another protocol. Only with
    /// [`selvedge_proto::Status::SWITCHING_PROTOCOLS`].
    Upgrade(Box<Switch>),
}

/// Another protocol for a connection to go on with.
pub struct Switch {
    /// The value of the answer's Upgrade field (RFC 9110 §7.8).
    pub protocol: Bytes,
    /// Is given the connection once the answer has left.
    pub then: GoesOn,
}

/// Goes on with a connection that has left HTTP.
pub type GoesOn = Box<dyn FnOnce(Box<dyn Duplex>)>;

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Switch({:?})", self.protocol)
    }
}

/// A wait for a server to stop, on any thread.
pub type Stopping = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Both directions of a connection that has left HTTP. It may go to any thread; dropping it
/// ends the connection.
pub trait Duplex: Send {
    /// Receives what is there; 0 at the end of the stream.
    fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Sends the pieces one after the other, or as much as can be sent now.
    fn poll_send(&mut self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// When the connection is gone.
    fn finish(&mut self) -> io::Result<()>;

    /// Waits until the server stops, or has another application by now, and so will end the
    /// connection soon.
    fn stopping(&self) -> Stopping;
}

impl Body {
    /// The length, where it is known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Empty | Self::Upgrade(_) => Some(0),
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::File(file) => Some(file.length),
            Self::Stream { length, .. } => *length,
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Empty => "Empty",
            Self::Bytes(_) => "Bytes",
            Self::File(_) => "File",
            Self::Stream { .. } => "Stream",
            Self::Upgrade(_) => "Upgrade",
        };
        write!(f, "{kind}({:?})", self.length())
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::Bytes(bytes.into())
    }
}

/// The pieces of a streamed response.
pub trait Chunks {
    /// The next piece; `None` at the end. Empty pieces are passed over.
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>>;

    /// The fields behind the last piece, asked for once there is no more. They are sent where
    /// the content's length was not known before.
    fn trailers(self: Pin<&mut Self>) -> Fields {
        Fields::new()
    }
}

/// Why a streamed response cannot go on. The connection is closed, so that the client
/// sees that content is missing; the log has the reason.
#[derive(Debug)]
pub struct StreamError(pub String);

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StreamError {}

/// Why request content cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentError {
    /// Its framing is broken, or it breaks a limit of framing.
    Rejected(Reject),
    /// There is more of it than the application takes: 413.
    TooLarge,
    /// It came too slowly, or not at all: 408.
    TooSlow,
    /// The client went away.
    Disconnected,
    /// The request that it belonged to is over.
    Ended,
}

impl fmt::Display for ContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rejected(reject) => reject.text(),
            Self::TooLarge => Reject::ContentTooLarge.text(),
            Self::TooSlow => "the request content came too slowly",
            Self::Disconnected => "the client went away",
            Self::Ended => "the request is over",
        })
    }
}

impl std::error::Error for ContentError {}

/// Where request content comes from; a connection implements it.
pub trait ContentSource {
    /// The next piece of the content of request number `request`; `None` at its end.
    fn poll_content(&self, request: u32, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>>;

    /// The trailer fields, once the content has ended.
    fn trailers(&self, request: u32) -> Option<Fields>;

    /// Notes that the application takes no more of it.
    fn refuse(&self, _request: u32) {}

    /// Why it could not be read to its end, if it could not.
    fn failure(&self, _request: u32) -> Option<ContentError> {
        None
    }

    /// Sends an interim answer to request number `request`, whose final answer has not begun.
    ///
    /// # Errors
    /// When the client does not take what it was sent before, or has another request by now.
    fn send_interim(&self, request: u32, status: Status, fields: &Fields) -> Result<(), ContentError>;
}

/// The content of a request. What is left unread is drained within a bound, or the
/// connection is closed.
#[derive(Default)]
pub struct IncomingBody {
    // Whoever keeps content for longer than its connection lives does not keep the connection.
    source: Option<Weak<dyn ContentSource>>,
    request: u32,
    length: Option<u64>,
    bytes_max: u64,
    bytes_read: u64,
}

impl IncomingBody {
    /// The content of request number `request` on that connection.
    pub(crate) fn new(source: Weak<dyn ContentSource>, request: u32, length: Option<u64>, bytes_max: u64) -> Self {
        Self { source: Some(source), request, length, bytes_max, bytes_read: 0 }
    }

    /// The same content once more, for whoever has to see whether it was read.
    pub(crate) fn again(&self) -> Self {
        Self { source: self.source.clone(), ..*self }
    }

    /// Most that the application gets.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Why it could not be read to its end, if it could not.
    pub(crate) fn failure(&self) -> Option<ContentError> {
        self.source.as_ref()?.upgrade()?.failure(self.request)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.source.is_none()
    }

    /// The length, where the head said it.
    pub fn length(&self) -> Option<u64> {
        if self.source.is_none() { Some(0) } else { self.length }
    }

    /// Lets this request carry more, or less, than the server's default.
    pub fn limit(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// The next piece; `None` at the end. The first call tells a client that waits for
    /// `100 Continue` to go on.
    ///
    /// # Errors
    /// See [`ContentError`]; after one there is nothing more to read.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        let Some(source) = &self.source else { return Poll::Ready(None) };
        if self.length.is_some_and(|length| length > self.bytes_max) {
            return Poll::Ready(Some(Err(ContentError::TooLarge)));
        }
        let Some(source) = source.upgrade() else { return Poll::Ready(Some(Err(ContentError::Ended))) };
        let polled = source.poll_content(self.request, cx);
        if let Poll::Ready(Some(Ok(bytes))) = &polled {
            self.bytes_read += bytes.len() as u64;
            if self.bytes_read > self.bytes_max {
                source.refuse(self.request);
                return Poll::Ready(Some(Err(ContentError::TooLarge)));
            }
        }
        polled
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// As [`IncomingBody::poll_chunk`].
    pub async fn chunk(&mut self) -> Option<Result<Bytes, ContentError>> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// All of it, in memory; the limit bounds how much that is.
    ///
    /// # Errors
    /// As [`IncomingBody::poll_chunk`].
    pub async fn read(&mut self) -> Result<Vec<u8>, ContentError> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await {
            all.extend_from_slice(&chunk?);
        }
        Ok(all)
    }

    /// Reads it to its end and keeps nothing, unless it is longer than `bytes_max`. An
    /// application that has no use for content still learns whether it was framed well.
    ///
    /// # Errors
    /// As [`IncomingBody::poll_chunk`].
    pub async fn discard(&mut self, bytes_max: u64) -> Result<(), ContentError> {
        let mut discarded = 0;
        while discarded <= bytes_max && self.length().is_none_or(|length| length <= bytes_max) {
            match self.chunk().await {
                Some(chunk) => discarded += chunk?.len() as u64,
                None => break,
            }
        }
        Ok(())
    }

    /// The trailer fields, once the content has been read to its end.
    pub fn trailers(&self) -> Option<Fields> {
        self.source.as_ref()?.upgrade()?.trailers(self.request)
    }
}

impl fmt::Debug for IncomingBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IncomingBody(length {:?})", self.length())
    }
}

/// A request's content is also what a response can be made of, as for an echo.
impl Chunks for IncomingBody {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        Self::poll_chunk(&mut self, cx)
            .map(|next| next.map(|chunk| chunk.map_err(|error| StreamError(error.to_string()))))
    }
}
