//! What happened, as one record that the log, the metrics and a status page all read.

use crate::service::Request;
use selvedge_proto::field::Fields;
use selvedge_proto::{Afterwards, Reject, Status};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// One request and its answer, when both are over.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The request; `None` when its head could not be read.
    pub request: Option<&'a Request>,
    /// The request line as it came, as far as it was read. Any octets.
    pub line: &'a [u8],
    /// The status that was sent; or 499, as logs have it, when the client went away before the
    /// application had an answer.
    pub status: Status,
    /// The application's fields of the answer; those that the engine writes are not among them.
    pub fields: &'a Fields,
    /// Bytes of the answer's head.
    pub head_bytes: usize,
    /// Bytes of content that were given to the connection.
    pub content_bytes: u64,
    /// Whether the answer was complete.
    pub outcome: Outcome,
    /// What was meant to become of the connection after the answer.
    pub afterwards: Afterwards,
    /// Requests that the connection has carried by now, this one among them.
    pub requests: u32,
    /// Why the request was refused, where the engine refused it.
    pub reject: Option<Reject>,
    /// Why the application answered with an error, where it said so.
    pub reason: Option<&'static str>,
    /// When the answer was complete, in seconds since 1970; up to a quarter of a second old.
    pub unix_time: i64,
    /// From the complete head to the complete answer; only for observers that want it.
    pub elapsed: Option<Duration>,
}

/// Whether an answer left as it was meant to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was given to the connection.
    Complete,
    /// The connection ended before.
    Cut,
}

/// A connection that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The other end.
    pub peer: SocketAddr,
    /// Why.
    pub reason: CloseReason,
    /// What it was doing.
    pub phase: Phase,
    /// How many requests it carried.
    pub requests: u32,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Between requests.
    Idle,
    /// Receiving a head.
    ReadingHead,
    /// The application has the request.
    Answering,
    /// Receiving content.
    ReadingContent,
    /// Sending an answer.
    Sending,
    /// Waiting for the client to finish after a final answer.
    Lingering,
}

impl Phase {
    /// Every one there is, in the order in which a connection comes to them.
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::ReadingHead, Self::ReadingContent, Self::Answering, Self::Sending, Self::Lingering];

    /// One clause that says it.
    pub const fn explain(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::ReadingHead => "receiving a request head",
            Self::Answering => "the application was at work",
            Self::ReadingContent => "receiving request content",
            Self::Sending => "sending an answer",
            Self::Lingering => "waiting for the client to finish",
        }
    }
}

macro_rules! close_reasons {
    ($($(#[$doc:meta])* $name:ident $text:literal;)+) => {
        /// Why a connection ended. Every end has one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CloseReason {
            $($(#[$doc])* $name,)+
            /// A head was refused, with an answer.
            Rejected(Reject),
            /// Content was refused: where it ends is in doubt.
            ContentRejected(Reject),
        }

        impl CloseReason {
            /// One clause that says it.
            pub const fn explain(self) -> &'static str {
                match self { $(Self::$name => $text,)+ Self::Rejected(reject) | Self::ContentRejected(reject) => reject.text() }
            }

            /// The variant's name, or the refusal's, as the log writes it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ Self::Rejected(reject) | Self::ContentRejected(reject) => reject.name() }
            }
        }
    };
}

close_reasons! {
    /// The client closed between requests.
    ClientDone "the client closed between requests";
    /// The request, or its version, asked for it.
    Asked "the client asked for the connection to close";
    /// The application's answer, or an unread remainder, made it necessary.
    AnswerEnded "the answer ended the connection";
    /// The application did not admit one more connection of this client.
    TooManyFromClient "the client has too many connections";
    /// Nothing came for the keep-alive time.
    Idle "idle for the keep-alive time";
    /// Idle, and its place was needed.
    MadeRoom "idle, and its place was needed for a new connection";
    /// Nothing at all came after the connection was made.
    Silent "nothing was sent after connecting";
    /// The head was not complete in time.
    HeadTooSlow "the request head was not complete in time";
    /// Request content stalled or fell below the floor.
    ContentTooSlow "the request content came too slowly";
    /// The client took the answer too slowly.
    SendTooSlow "the client took the answer too slowly";
    /// The client closed in the middle of a head.
    HeadCut "the client closed in the middle of a request head";
    /// The client closed in the middle of content.
    ContentCut "the client closed in the middle of request content";
    /// More content was left unread than is drained.
    ContentUnread "too much request content was left unread";
    /// The client said that it sends nothing more, or was gone, while its answer was worked on.
    ClientGone "the client went away before its answer";
    /// The connection went on with another protocol, to that one's end.
    Switched "the connection went on with another protocol";
    /// The connection failed.
    Reset "the connection was reset";
    /// A file changed while it was sent.
    FileChanged "a file changed while it was sent";
    /// A file could not be read while it was sent.
    FileFailed "a file could not be read while it was sent";
    /// A streamed answer failed, or had another length than it said.
    StreamFailed "a streamed answer did not keep its length or failed";
    /// The application panicked.
    Panicked "the application panicked";
    /// The server is stopping, and the connection was idle or has just been answered.
    Draining "the server is stopping";
    /// Another application has taken the place of the one that the connection began with.
    Replaced "the configuration that the connection began with was replaced";
    /// The same, and the connection did not finish in time.
    ReplacedLimit "still there when the time for the replaced configuration was over";
    /// The server was stopped without waiting.
    StoppedAtOnce "the server was stopped at once";
    /// The server is stopping, and the connection did not finish in time.
    DrainLimit "still busy when the time to stop was over";
}

impl CloseReason {
    /// Whether the connection ended as connections should.
    pub const fn is_ordinary(self) -> bool {
        matches!(
            self,
            Self::ClientDone
                | Self::Asked
                | Self::AnswerEnded
                | Self::Idle
                | Self::MadeRoom
                | Self::Draining
                | Self::Switched
                | Self::Replaced
        )
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.explain())
    }
}

/// Something that happened to the server, not to one request.
#[derive(Clone, Debug)]
pub enum Incident {
    /// The application, or the engine, panicked on a connection.
    Panic {
        /// The other end.
        peer: SocketAddr,
        /// What it said, and where.
        message: String,
    },
    /// A connection could not be accepted; accepting pauses.
    AcceptFailed {
        /// What the system said.
        error: String,
    },
    /// Accepting goes on after it had failed.
    AcceptRecovered,
    /// The connection limit is reached and no connection is idle; new ones wait.
    ConnectionsFull {
        /// The limit.
        limit: usize,
    },
    /// Sockets are driven by epoll, since there is no io_uring to be had.
    DriverRefused {
        /// What the system said.
        error: String,
    },
    /// Places are free again after [`Incident::ConnectionsFull`].
    ConnectionsFree,
    /// A connection is served that would be refused if its client's bound were not only
    /// observed.
    TooManyFromClient {
        /// The other end.
        peer: SocketAddr,
    },
}
