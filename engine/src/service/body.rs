//! Request content (`IncomingBody`) and response content (`Body`).

use crate::file::FileContent;
use crate::peer::Duplex;
use crate::splice_pipe::SplicePipe;
use bytes::Bytes;
use selvedge_proto::field::Fields;
use selvedge_proto::{Reject, StatusCode};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Weak;
use std::task::{Context, Poll};

/// The content of a response.
#[derive(Default)]
pub enum Body {
    /// No content.
    #[default]
    Empty,
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of an open file. The engine sends it without copying it into user space.
    File(Box<FileContent>),
    /// A stream of chunks.
    Stream {
        /// The length of all chunks in bytes, if known. If the chunks have another total length,
        /// the engine closes the connection, since the client could not detect the error otherwise.
        length: Option<u64>,
        /// The chunks.
        chunks: Pin<Box<dyn Chunks>>,
    },
    /// No content: the connection switches to another protocol. Only valid with
    /// [`selvedge_proto::StatusCode::SWITCHING_PROTOCOLS`]. In response to an extended CONNECT of HTTP/2, the stream
    /// switches, and a status code of 2xx is valid, too; the client gets 200.
    Upgrade(Box<UpgradeResponse>),
}

/// The protocol that a connection switches to, and its handler.
pub struct UpgradeResponse {
    /// The value of the response's Upgrade field (RFC 9110 §7.8). HTTP/2 has no such field.
    pub protocol: Bytes,
    /// Receives the connection after the response was sent.
    pub handler: UpgradeHandler,
}

/// Handles a connection after the switch to another protocol.
pub type UpgradeHandler = Box<dyn FnOnce(Box<dyn Duplex>)>;

impl fmt::Debug for UpgradeResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpgradeResponse({:?})", self.protocol)
    }
}

impl Body {
    /// Returns the length in bytes, if known.
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

/// A stream of response chunks.
pub trait Chunks {
    /// Polls the next chunk; `None` at the end. The engine skips empty chunks.
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>>;

    /// Moves the next bytes of the content into an empty pipe, so that the kernel passes them on without a copy. Returns
    /// how many. 0 means that the next bytes are a chunk, or that the content ends: the engine polls the next chunk.
    ///
    /// The engine calls it only for content that leaves as it is. Content that wraps other content and changes nothing in
    /// it may call that of the other. Default: all content is in chunks.
    ///
    /// # Errors
    /// As those of a chunk.
    fn poll_splice(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        _pipe: &mut SplicePipe,
    ) -> Poll<Result<usize, StreamError>> {
        Poll::Ready(Ok(0))
    }

    /// Moves what does not depend on the recipient while the recipient takes no chunk, such as the request of a gateway
    /// while its client does not read the response. Wakes the context when more can move. It may be called at any time
    /// before the end, and holds no more memory by itself. Default: nothing.
    fn poll_progress(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Returns the trailer fields. Called once, after the last chunk. HTTP/1.1 has them only in chunked content, which
    /// content of known length becomes for a client with `TE: trailers` if [`Chunks::may_have_trailers`].
    fn trailers(self: Pin<&mut Self>) -> Fields {
        Fields::new()
    }

    /// Returns whether trailer fields may follow content whose length was known in advance, as HTTP/2 permits. Then the
    /// engine polls once more after the last byte, and sends no Content-Length to a client of HTTP/1.1 that accepts
    /// trailers. Default: they may not.
    fn may_have_trailers(&self) -> bool {
        false
    }
}

/// Why a streamed response failed. The engine closes the connection, or over HTTP/2 resets the
/// stream, so that the client detects the incomplete content, and logs the text.
#[derive(Debug)]
pub struct StreamError(pub String);

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StreamError {}

/// Why request content cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentError {
    /// The framing is invalid or exceeds a framing limit.
    Rejected(Reject),
    /// The content is larger than the application accepts (413).
    TooLarge,
    /// The content arrived too slowly or not at all (408).
    TooSlow,
    /// The client disconnected.
    Disconnected,
    /// The request has ended.
    Ended,
}

impl fmt::Display for ContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rejected(reject) => reject.message(),
            Self::TooLarge => Reject::ContentTooLarge.message(),
            Self::TooSlow => "the request content arrived too slowly",
            Self::Disconnected => "the client disconnected",
            Self::Ended => "the request has ended",
        })
    }
}

impl std::error::Error for ContentError {}

/// Identifies a request on its connection. For HTTP/1, it is the number of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// A source of request content. A connection implements it.
pub trait ContentSource {
    /// Polls the next chunk of the content of a stream; `None` at its end.
    fn poll_content(&self, stream: StreamId, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>>;

    /// Returns the trailer fields of a stream, after the content has ended.
    fn trailers(&self, stream: StreamId) -> Option<Fields>;

    /// Records that the application reads no more of this content.
    fn stop_reading(&self, _stream: StreamId) {}

    /// Returns why the content could not be read to its end, if reading failed.
    fn failure(&self, _stream: StreamId) -> Option<ContentError> {
        None
    }

    /// Sends an interim (1xx) response to a stream, before its final response.
    ///
    /// # Errors
    /// If the client does not read what was already sent, or the request has ended.
    fn send_interim(&self, stream: StreamId, status: StatusCode, fields: &Fields) -> Result<(), ContentError>;
}

/// The content of a request. The engine discards unread content up to a limit; beyond the
/// limit it closes the connection.
#[derive(Default)]
pub struct IncomingBody {
    // Weak: content that outlives its connection must not keep the connection alive.
    source: Option<Weak<dyn ContentSource>>,
    stream: StreamId,
    length: Option<u64>,
    bytes_max: u64,
    bytes_read: u64,
    observed: Option<Box<ObservedLength>>,
}

/// What to do about content beyond a length that is permitted.
struct ObservedLength {
    bytes: u64,
    report: Box<dyn FnOnce() + Send>,
}

impl IncomingBody {
    /// Creates the content of a stream on the connection `source`.
    pub(crate) fn new(source: Weak<dyn ContentSource>, stream: StreamId, length: Option<u64>, bytes_max: u64) -> Self {
        Self { source: Some(source), stream, length, bytes_max, bytes_read: 0, observed: None }
    }

    /// Returns a second handle to this content, to check later whether it was read.
    pub(crate) fn clone_handle(&self) -> Self {
        let Self { stream, length, bytes_max, bytes_read, .. } = *self;
        Self { source: self.source.clone(), stream, length, bytes_max, bytes_read, observed: None }
    }

    /// Returns the maximum content length in bytes that the application accepts.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns why the content could not be read to its end, if reading failed.
    pub(crate) fn failure(&self) -> Option<ContentError> {
        self.source.as_ref()?.upgrade()?.failure(self.stream)
    }

    /// Returns whether the request has no content.
    pub fn is_empty(&self) -> bool {
        self.source.is_none()
    }

    /// Returns the length in bytes, if the request head states it.
    pub fn length(&self) -> Option<u64> {
        if self.source.is_none() { Some(0) } else { self.length }
    }

    /// Sets the maximum length of this content in bytes, in place of the server's default.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// Calls a function once, when the content is known to have more bytes than this: at once by the length in the request
    /// head, else when they are read. Such content is permitted. Replaces the function of an earlier call.
    pub fn report_beyond(&mut self, bytes: u64, report: impl FnOnce() + Send + 'static) {
        if self.length().is_some_and(|length| length > bytes) || self.bytes_read > bytes {
            return report();
        }
        self.observed = Some(Box::new(ObservedLength { bytes, report: Box::new(report) }));
    }

    /// Polls the next chunk; `None` at the end. The first call sends `100 Continue` if the client
    /// expects it.
    ///
    /// # Errors
    /// See [`ContentError`]. After an error, no more content can be read.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        let Some(source) = &self.source else { return Poll::Ready(None) };
        if self.length.is_some_and(|length| length > self.bytes_max) {
            return Poll::Ready(Some(Err(ContentError::TooLarge)));
        }
        let Some(source) = source.upgrade() else { return Poll::Ready(Some(Err(ContentError::Ended))) };
        let polled = source.poll_content(self.stream, cx);
        if let Poll::Ready(Some(Ok(bytes))) = &polled {
            self.bytes_read += bytes.len() as u64;
            if let Some(observed) = self.observed.take_if(|observed| self.bytes_read > observed.bytes) {
                (observed.report)();
            }
            if self.bytes_read > self.bytes_max {
                source.stop_reading(self.stream);
                return Poll::Ready(Some(Err(ContentError::TooLarge)));
            }
        }
        polled
    }

    /// Reads the next chunk; `None` at the end.
    ///
    /// # Errors
    /// See [`ContentError`]. After an error, no more content can be read.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, ContentError>> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Reads all content into memory. [`Self::set_bytes_max`] bounds its size.
    ///
    /// # Errors
    /// See [`ContentError`].
    pub async fn read_all(&mut self) -> Result<Vec<u8>, ContentError> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await {
            all.extend_from_slice(&chunk?);
        }
        Ok(all)
    }

    /// Reads and discards the content, unless it is longer than `bytes_max`. An application that
    /// does not use the content still learns whether its framing is valid.
    ///
    /// # Errors
    /// See [`ContentError`].
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

    /// Returns the trailer fields, after the content was read to its end.
    pub fn trailers(&self) -> Option<Fields> {
        self.source.as_ref()?.upgrade()?.trailers(self.stream)
    }
}

impl fmt::Debug for IncomingBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IncomingBody(length {:?})", self.length())
    }
}

/// Lets a response consist of the request's content (echo).
impl Chunks for IncomingBody {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        Self::poll_chunk(&mut self, cx)
            .map(|next| next.map(|chunk| chunk.map_err(|error| StreamError(error.to_string()))))
    }
}
