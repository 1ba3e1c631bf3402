//! Why an exchange with an upstream failed, and whether it may be repeated.

use crate::net::link::SessionFailure;
use crate::service::ContentError;
use selvedge_proto::field_section::SectionError;
use selvedge_proto::http1::MalformedResponse;
use selvedge_proto::http1::write_request::InvalidRequest;
use selvedge_proto::http2::{ConnectionError, ErrorCode};
use std::fmt;
use std::io::{self, ErrorKind};

/// What an exchange was doing when it failed. Later phases are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientPhase {
    /// It opened a connection.
    Connect,
    /// It was in the handshake of TLS.
    Tls,
    /// It sent the request.
    SendRequest,
    /// It waited for the head of the response.
    AwaitHead,
    /// It received the content of the response.
    ReadContent,
}

impl ClientPhase {
    /// Returns the phase in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "TLS handshake",
            Self::SendRequest => "send request",
            Self::AwaitHead => "await response",
            Self::ReadContent => "read content",
        }
    }
}

/// Whether a request may be sent again after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RetrySafety {
    /// The upstream has not processed the request: any method may be repeated.
    NotSent,
    /// The upstream may have processed it, and no byte of a response was received: idempotent methods may be repeated
    /// (RFC 9110 §9.2.2).
    NoResponse,
    /// A response has begun, or the request itself failed.
    Never,
}

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientErrorKind {
    /// Nothing listens at the address.
    Refused,
    /// The network has no way to the address.
    Unreachable,
    /// The path of the Unix socket does not exist.
    SocketMissing,
    /// The system does not permit the connection.
    PermissionDenied,
    /// File descriptors, ports or memory have run out.
    ResourcesExhausted,
    /// All streams of HTTP/2 that the upstream permits are in use, and too many requests wait for one, or this one waited
    /// for too long.
    StreamsExhausted,
    /// A timeout of [`super::ClientTimeouts`] has passed.
    TimedOut,
    /// The upstream reset the connection.
    Reset,
    /// The upstream closed the connection before the response was complete.
    Closed,
    /// The head or the framing of the response is malformed.
    Malformed(MalformedResponse),
    /// The fields of a response of HTTP/2 are malformed.
    MalformedSection(SectionError),
    /// More than 8 interim responses arrived before the response.
    InterimTooMany,
    /// The upstream's certificate is not valid. The text gives the reason.
    Certificate(&'static str),
    /// The upstream refused the certificate of this client, or its absence. The text gives the reason.
    ClientCertificate(&'static str),
    /// The TLS handshake failed. The text gives the reason.
    Handshake(&'static str),
    /// The upstream does not support the protocol of the destination.
    ProtocolUnsupported,
    /// The upstream of HTTP/2 does not accept extended CONNECT (RFC 8441), by which a WebSocket reaches it. Nothing was sent.
    UpgradeUnsupported,
    /// The upstream reset the stream of HTTP/2.
    StreamReset(ErrorCode),
    /// The connection of HTTP/2 failed.
    Http2(ConnectionError),
    /// The content of the request could not be read.
    RequestContent(ContentError),
    /// The content of the request is shorter or longer than its announced length.
    RequestLength,
    /// A part of the request is invalid. Nothing was sent.
    InvalidRequest(InvalidRequest),
    /// Another error of the system.
    System(ErrorKind),
}

impl fmt::Display for ClientErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::Unreachable => "address unreachable",
            Self::SocketMissing => "the socket does not exist",
            Self::PermissionDenied => "permission denied",
            Self::ResourcesExhausted => "no descriptor, port or memory is left",
            Self::StreamsExhausted => "all streams that the upstream permits are in use",
            Self::TimedOut => "timed out",
            Self::Reset => "connection reset",
            Self::Closed => "connection closed before the end of the response",
            Self::Malformed(reason) => return write!(f, "malformed response: {reason}"),
            Self::MalformedSection(reason) => return write!(f, "malformed response: {reason}"),
            Self::InterimTooMany => "too many interim responses",
            Self::Certificate(reason) => return write!(f, "invalid certificate: {reason}"),
            Self::ClientCertificate(reason) => {
                return write!(f, "the upstream refused the client certificate: {reason}");
            }
            Self::Handshake(reason) => return write!(f, "handshake failed: {reason}"),
            Self::ProtocolUnsupported => "the upstream does not support the protocol",
            Self::UpgradeUnsupported => "the upstream does not accept WebSockets over HTTP/2 (extended CONNECT)",
            Self::StreamReset(code) => return write!(f, "stream reset: {code:?}"),
            Self::Http2(error) => return write!(f, "HTTP/2 error: {}", error.message()),
            Self::RequestContent(error) => return write!(f, "request content: {error}"),
            Self::RequestLength => "the request content differs from its announced length",
            Self::InvalidRequest(error) => return error.fmt(f),
            Self::System(kind) => return kind.fmt(f),
        })
    }
}

impl ClientErrorKind {
    /// Classifies an error of a socket.
    pub(super) fn of_io(error: &io::Error) -> Self {
        if let Some(failure) = SessionFailure::of(error) {
            return Self::of_session(failure);
        }
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => {
                Self::Unreachable
            }
            ErrorKind::NotFound => Self::SocketMissing,
            ErrorKind::PermissionDenied => Self::PermissionDenied,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => Self::Reset,
            ErrorKind::UnexpectedEof | ErrorKind::NotConnected => Self::Closed,
            ErrorKind::OutOfMemory | ErrorKind::QuotaExceeded => Self::ResourcesExhausted,
            // A Unix socket whose accept queue is full.
            ErrorKind::WouldBlock => Self::Refused,
            kind => match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS) => Self::ResourcesExhausted,
                _ => Self::System(kind),
            },
        }
    }

    fn of_session(failure: SessionFailure) -> Self {
        match failure {
            SessionFailure::ServerCertificate(reason) => Self::Certificate(reason),
            SessionFailure::Incompatible => Self::Handshake("no common version or cipher suite"),
            SessionFailure::Invalid => Self::Handshake("the upstream's bytes are not valid TLS"),
            SessionFailure::PlainText => Self::Handshake("the upstream does not use TLS"),
            SessionFailure::RefusedByPeer(_) => Self::Handshake("the upstream refused the handshake"),
            SessionFailure::UnknownServerName => Self::Handshake("the upstream does not know the server name"),
            SessionFailure::ClientCertificate(reason) => Self::ClientCertificate(reason),
            SessionFailure::Abandoned => Self::Closed,
        }
    }
}

/// Why an exchange with an upstream failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientError {
    /// What the exchange was doing.
    pub phase: ClientPhase,
    /// What went wrong.
    pub kind: ClientErrorKind,
    /// Whether the request may be sent again.
    pub retry: RetrySafety,
    /// Whether the connection had served another request. Its end is no sign of a failing upstream.
    pub connection: ConnectionUse,
}

/// Whether a connection had served a request before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionUse {
    /// It was opened for this request.
    First,
    /// It was idle in the pool, or serves other requests at once.
    Reused,
}

impl ClientError {
    pub(super) const fn new(phase: ClientPhase, kind: ClientErrorKind, retry: RetrySafety) -> Self {
        Self { phase, kind, retry, connection: ConnectionUse::First }
    }

    /// Sets whether the connection had served a request before.
    pub(super) const fn on(self, connection: ConnectionUse) -> Self {
        Self { connection, ..self }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.phase.name(), self.kind)
    }
}

impl std::error::Error for ClientError {}
