//! Records of finished requests, closed connections and server events, for log, metrics and status.

use crate::service::{PhaseTimes, Request, StreamId, UpstreamRecord};
use selvedge_proto::field::Fields;
use selvedge_proto::field_section::MalformedMessage;
use selvedge_proto::http2::{ConnectionError, StreamError};
use selvedge_proto::{Persistence, Reject, StatusCode};
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A finished request and its response.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The remote end of the connection.
    pub peer: SocketAddr,
    /// Identifies the request on its connection.
    pub stream: StreamId,
    /// The request; `None` if its head was invalid or incomplete.
    pub request: Option<&'a Request>,
    /// The request line as received, possibly incomplete. Arbitrary bytes.
    pub request_line: &'a [u8],
    /// The status code sent; 499 (a logging convention) if the client disconnected before the
    /// application returned a response.
    pub status: StatusCode,
    /// The response's fields from the application, without those that the engine writes.
    pub fields: &'a Fields,
    /// Length of the response head in bytes.
    pub head_bytes: usize,
    /// Content bytes written to the connection.
    pub content_bytes: u64,
    /// Whether the response was sent completely.
    pub outcome: ResponseOutcome,
    /// Why the stream of the request was reset before the response was complete, while its connection continues
    /// (HTTP/2).
    pub reset: Option<CloseReason>,
    /// Whether the connection was to stay open after the response.
    pub persistence: Persistence,
    /// Number of requests on this connection so far, including this one.
    pub requests: u32,
    /// Why the engine rejected the request, if it did.
    pub reject: Option<Reject>,
    /// Why the application returned an error, if it gave a reason.
    pub reason: Option<&'static str>,
    /// Facts about the server that the request was forwarded to, if the application forwards requests.
    pub upstream: Option<&'a UpstreamRecord>,
    /// When the response was complete, in Unix seconds; up to 0.25 seconds old.
    pub unix_time: i64,
    /// Time from the complete request head to the complete response. Only set if
    /// [`crate::service::Observer::wants_elapsed`] returns true.
    pub elapsed: Option<Duration>,
    /// When the response was complete. Set with [`Exchange::elapsed`].
    pub completed_at: Option<Instant>,
    /// How long the phases of the request took. Set with [`Exchange::elapsed`].
    pub phases: PhaseTimes,
}

/// Whether a response was sent completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// All of it was written to the connection.
    Complete,
    /// The connection or the stream ended before the response was complete.
    Aborted,
}

/// A closed connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The remote end of the connection.
    pub peer: SocketAddr,
    /// Why the connection was closed.
    pub reason: CloseReason,
    /// What the connection was doing when it was closed.
    pub phase: Phase,
    /// Number of requests that the connection carried.
    pub requests: u32,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for the next request.
    Idle,
    /// Receiving a request head.
    ReadingHead,
    /// The application is processing the request.
    Processing,
    /// Receiving request content.
    ReadingContent,
    /// Sending a response.
    Sending,
    /// Waiting for the client to close the connection after the final response.
    Lingering,
}

impl Phase {
    /// All phases, in the order in which a connection passes through them.
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::ReadingHead, Self::ReadingContent, Self::Processing, Self::Sending, Self::Lingering];

    /// Describes the phase in one clause.
    pub const fn explain(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::ReadingHead => "receiving a request head",
            Self::Processing => "the application was processing the request",
            Self::ReadingContent => "receiving request content",
            Self::Sending => "sending a response",
            Self::Lingering => "waiting for the client to close",
        }
    }
}

macro_rules! close_reasons {
    ($($(#[$doc:meta])* $name:ident $text:literal;)+) => {
        /// Why a connection was closed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CloseReason {
            $($(#[$doc])* $name,)+
            /// A request head was rejected with an error response.
            Rejected(Reject),
            /// Request content was rejected, since its end is ambiguous.
            ContentRejected(Reject),
            /// The client violated the rules of HTTP/2 for the whole connection.
            Http2(ConnectionError),
            /// The client violated the rules of HTTP/2 for one stream. Only the stream ends.
            StreamInvalid(StreamError),
            /// A request of HTTP/2 was malformed. Only its stream ends.
            MessageMalformed(MalformedMessage),
            /// The site requires a client certificate, and the client sent none or an invalid one. The text gives the
            /// reason.
            ClientCertificateInvalid(&'static str),
            /// The client refused the handshake, for example because it does not trust the certificate. The text gives the
            /// reason.
            HandshakeRefused(&'static str),
        }

        impl CloseReason {
            /// Describes the reason in one clause.
            pub const fn explain(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                    Self::Rejected(reject) | Self::ContentRejected(reject) => reject.message(),
                    Self::Http2(error) => error.message(),
                    Self::StreamInvalid(error) => error.message(),
                    Self::MessageMalformed(malformed) => malformed.message(),
                    Self::ClientCertificateInvalid(_) => "the client certificate was refused",
                    Self::HandshakeRefused(_) => "the client refused the TLS handshake",
                }
            }

            /// Returns what the clause of [`CloseReason::explain`] leaves open, if that is known.
            pub const fn detail(self) -> Option<&'static str> {
                match self {
                    Self::ClientCertificateInvalid(detail) | Self::HandshakeRefused(detail) => Some(detail),
                    _ => None,
                }
            }

            /// Returns the name of the variant, or of the rejection, as it appears in the log.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                    Self::Rejected(reject) | Self::ContentRejected(reject) => reject.name(),
                    Self::Http2(error) => error.name(),
                    Self::StreamInvalid(error) => error.name(),
                    Self::MessageMalformed(malformed) => malformed.name(),
                    Self::ClientCertificateInvalid(_) => "ClientCertificateInvalid",
                    Self::HandshakeRefused(_) => "HandshakeRefused",
                }
            }
        }
    };
}

close_reasons! {
    /// The client closed the connection between requests.
    ClientClosed "the client closed the connection between requests";
    /// The request or its HTTP version requested that the connection is closed.
    CloseRequested "the client requested that the connection is closed";
    /// The application's response or unread request content made it necessary.
    ClosedAfterResponse "the connection was closed after the response";
    /// The application did not admit another connection of this client.
    ClientOverLimit "the client has too many connections";
    /// The connection is not one of a trusted proxy, or does not begin with a valid header of the PROXY protocol.
    ProxyHeaderInvalid "the connection has no valid header of the PROXY protocol from a trusted proxy";
    /// The connection was idle for the keep-alive timeout.
    KeepAliveTimeout "idle for the keep-alive timeout";
    /// The connection was idle and was evicted for a new connection.
    Evicted "idle, and evicted for a new connection";
    /// The client sent no bytes after connecting.
    NothingReceived "the client sent nothing after connecting";
    /// The request head was not complete in time.
    HeadTooSlow "the request head was not complete in time";
    /// The session of the connection refused the client's handshake.
    HandshakeFailed "the client's handshake was invalid";
    /// The client sent plain HTTP to a listener with TLS.
    PlainHttp "the client sent plain HTTP to a TLS port";
    /// The client offers no TLS version, cipher suite, signature or protocol that the server has.
    HandshakeIncompatible "the client's TLS has nothing in common with the server's";
    /// No site has the server name of the handshake.
    UnknownServerName "no site has the server name of the TLS handshake";
    /// The client closed the connection within the handshake.
    HandshakeIncomplete "the client closed the connection within the handshake";
    /// The handshake was not complete in time.
    HandshakeTooSlow "the handshake was not complete in time";
    /// Request content stalled or arrived below the minimum rate.
    ContentTooSlow "the request content arrived too slowly";
    /// The client received the response below the minimum rate.
    SendTooSlow "the client received the response too slowly";
    /// The client closed the connection within a request head.
    HeadIncomplete "the client closed the connection within a request head";
    /// The client closed the connection within request content.
    ContentIncomplete "the client closed the connection within request content";
    /// More request content was unread than the engine discards.
    ContentUnread "too much request content was unread";
    /// The client disconnected or shut down its sending side while the request was processed.
    ClientDisconnected "the client disconnected before the response";
    /// The client reset the stream of the request (HTTP/2).
    ClientCancelled "the client cancelled the request";
    /// The connection was upgraded, and the other protocol has ended.
    Upgraded "the connection was upgraded to another protocol";
    /// The connection failed.
    Reset "the connection was reset";
    /// A file changed while it was sent.
    FileChanged "a file changed while it was sent";
    /// A file could not be read while it was sent.
    FileReadFailed "a file could not be read while it was sent";
    /// A streamed response failed or had another length than announced.
    StreamFailed "a streamed response failed or had another length than announced";
    /// The response of an upstream ended early or was malformed. The facts of the upstream have the reason.
    UpstreamFailed "the response of an upstream is incomplete";
    /// The application panicked.
    Panicked "the application panicked";
    /// The server is shutting down, and the connection was idle or has completed its response.
    Draining "the server is shutting down";
    /// The application that the connection uses was replaced.
    AppReplaced "the configuration of the connection was replaced";
    /// The application was replaced, and the connection did not finish in time.
    AppReplacedTimeout "still open when the shutdown timeout of the replaced configuration expired";
    /// The server was stopped without a graceful shutdown.
    StoppedImmediately "the server was stopped immediately";
    /// The server is shutting down, and the connection did not finish in time.
    ShutdownTimeout "still busy when the shutdown timeout expired";
}

impl CloseReason {
    /// Returns whether the connection was closed, or a stream reset, in an orderly way.
    pub const fn is_ordinary(self) -> bool {
        matches!(
            self,
            Self::ClientCancelled
                | Self::ClientClosed
                | Self::CloseRequested
                | Self::ClosedAfterResponse
                | Self::KeepAliveTimeout
                | Self::Evicted
                | Self::Draining
                | Self::Upgraded
                | Self::AppReplaced
        )
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.explain())?;
        self.detail().map_or(Ok(()), |detail| write!(f, ": {detail}"))
    }
}

/// An event of the server, not of one request.
#[derive(Clone, Debug)]
pub enum ServerEvent {
    /// The application or the engine panicked while serving a connection.
    Panic {
        /// The remote end of the connection.
        peer: SocketAddr,
        /// The panic message and its location.
        message: String,
    },
    /// A connection could not be accepted; accepting is paused.
    AcceptFailed {
        /// The error of the operating system.
        error: String,
    },
    /// Accepting works again after [`ServerEvent::AcceptFailed`].
    AcceptRecovered,
    /// The connection limit is reached and no connection is idle. New connections wait in the
    /// accept queue.
    ConnectionLimitReached {
        /// The connection limit.
        limit: usize,
    },
    /// io_uring is unavailable, so epoll is used instead.
    UringUnavailable {
        /// The error of the operating system.
        error: String,
    },
    /// The number of connections is below the limit again after [`ServerEvent::ConnectionLimitReached`].
    ConnectionLimitCleared,
    /// A client of HTTP/2 violated a rule for streams without a request in progress, which were reset or refused. Above
    /// all, it opened more streams than it may ([`StreamError::StreamsTooMany`]).
    StreamsRefused {
        /// The remote end of the connection.
        peer: SocketAddr,
        /// The violated rule.
        error: StreamError,
        /// The number of streams that were reset at once.
        count: u32,
    },
    /// A connection is served although its client has too many connections, since the limit per
    /// client is a dry run.
    ClientOverLimit {
        /// The remote end of the connection.
        peer: SocketAddr,
    },
}
