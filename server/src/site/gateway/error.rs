//! Why a script has no response, with the response to the client in its place.

use super::spool::SpoolError;
use super::upload::UploadError;
use crate::site::files::FileError;
use selvedge::client::{ClientError, ClientErrorKind, RetrySafety};
use selvedge::proto::cgi::MalformedScriptHead;
use selvedge::proto::fastcgi::MalformedRecord;
use selvedge::service::{ContentError, UpstreamRecord};
use selvedge::{Response, StatusCode};
use std::fmt;
use std::io;

/// Why a script has no response, or an incomplete one.
#[derive(Debug)]
pub(super) enum GatewayError {
    /// The connection with the script failed.
    Connection(ClientError),
    /// The records are malformed.
    Record(MalformedRecord),
    /// The head of the response is malformed.
    Head(MalformedScriptHead),
    /// The output ended before its announced end.
    Ended(String),
    /// The output ended before its head was complete.
    NoHead(String),
    /// The server refuses the request.
    Overloaded,
    /// The server does not run scripts.
    Refused(&'static str),
    /// The output is longer than the limit.
    OutputTooLong(u64),
    /// The output goes on for too long after the response.
    OutputAfterResponse(u64),
    /// The program cannot be started now.
    Start(io::Error),
    /// The request content could not be read.
    Content(ContentError),
    /// The temporary file of the request content failed.
    Spool(io::Error),
    /// The name of the server is not resolved.
    NoAddress,
    /// X-Sendfile or X-Accel-Redirect names a file that is not to be sent.
    SendFile(SendFileError),
}

/// Why a file that a script names is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFileError {
    /// The route has no such folder.
    NotConfigured,
    /// The path is not within the folder.
    Outside,
    /// The file cannot be opened.
    Unreadable(FileError),
}

impl GatewayError {
    /// Whether the request may be sent again on another connection, because an idle one was closed by the server.
    pub(super) fn is_stale_connection(&self) -> bool {
        matches!(self, Self::Connection(error)
            if error.retry != RetrySafety::Never
                && matches!(error.kind, ClientErrorKind::Closed | ClientErrorKind::Reset | ClientErrorKind::System(_)))
            || matches!(self, Self::Ended(_))
    }

    /// Whether the script was silent for too long.
    pub(super) fn is_timeout(&self) -> bool {
        matches!(self, Self::Connection(error) if error.kind == ClientErrorKind::TimedOut)
    }

    /// Returns the kind of the failure, without values of this request.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Connection(error) => error.phase.name(),
            Self::Record(error) => error.message(),
            Self::Head(error) => error.message(),
            Self::Ended(_) => "the output of the script ended early",
            Self::NoHead(_) => "the output of the script ended before its head was complete",
            Self::Overloaded => "the server that runs scripts is overloaded",
            Self::Refused(why) => why,
            Self::OutputTooLong(_) => "the output of the program is too long",
            Self::OutputAfterResponse(_) => "the output of the script does not end with its response",
            Self::Start(_) => "no program can be started",
            Self::Content(_) => "the request content cannot be read",
            Self::Spool(_) => "the request content cannot be stored",
            Self::NoAddress => "the name of the server that runs scripts is not resolved",
            Self::SendFile(_) => "the file that the script names cannot be sent",
        }
    }

    /// Returns the response to the client.
    pub(super) fn response(&self) -> Response {
        let bad_gateway = || Response::error(StatusCode::BAD_GATEWAY);
        let busy = || Response::error(StatusCode::SERVICE_UNAVAILABLE).field("retry-after", "1");
        match self {
            Self::Content(error) => (*error).into(),
            Self::Connection(error) => match error.kind {
                ClientErrorKind::TimedOut => Response::error(StatusCode::GATEWAY_TIMEOUT),
                ClientErrorKind::ResourcesExhausted | ClientErrorKind::StreamsExhausted => busy(),
                _ => bad_gateway(),
            },
            Self::Overloaded | Self::Start(_) | Self::NoAddress => busy(),
            Self::Spool(_) => Response::error(StatusCode::INTERNAL_SERVER_ERROR),
            Self::SendFile(SendFileError::Unreadable(error)) => (*error).into(),
            Self::SendFile(SendFileError::NotConfigured | SendFileError::Outside)
            | Self::Record(_)
            | Self::Head(_)
            | Self::Ended(_)
            | Self::NoHead(_)
            | Self::Refused(_)
            | Self::OutputTooLong(_)
            | Self::OutputAfterResponse(_) => bad_gateway(),
        }
    }

    /// Notes the failure for the log. An error of the client is none of the script.
    pub(super) fn note(&self, record: &UpstreamRecord) {
        if !matches!(self, Self::Content(_)) {
            record.update(|facts| {
                facts.failure = Some(format!("{}: {self}", facts.group).into());
                facts.failure_kind = self.kind();
            });
        }
    }
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => error.fmt(f),
            Self::Record(error) => error.fmt(f),
            Self::Head(error) => error.fmt(f),
            Self::Ended(why) | Self::NoHead(why) => f.write_str(why),
            Self::Overloaded => f.write_str("the server that runs scripts is overloaded"),
            Self::Refused(why) => f.write_str(why),
            Self::OutputTooLong(bytes_max) => write!(f, "the output is longer than {bytes_max} bytes"),
            Self::OutputAfterResponse(bytes_max) => write!(f, "ended after {bytes_max} bytes of output"),
            Self::Start(error) => write!(f, "no program can be started: {error}"),
            Self::Content(error) => error.fmt(f),
            Self::Spool(error) => write!(f, "the temporary file of the request content: {error}"),
            Self::NoAddress => f.write_str("the name of the server that runs scripts is not resolved"),
            Self::SendFile(SendFileError::NotConfigured) => {
                f.write_str("the script names a file to send, and the route has no `send-file`")
            }
            Self::SendFile(SendFileError::Outside) => {
                f.write_str("the script names a file to send that is not in the folder of `send-file`")
            }
            Self::SendFile(SendFileError::Unreadable(error)) => {
                write!(f, "the file that the script names cannot be sent: {error:?}")
            }
        }
    }
}

impl From<ClientError> for GatewayError {
    fn from(error: ClientError) -> Self {
        Self::Connection(error)
    }
}

impl From<MalformedRecord> for GatewayError {
    fn from(error: MalformedRecord) -> Self {
        Self::Record(error)
    }
}

impl From<MalformedScriptHead> for GatewayError {
    fn from(error: MalformedScriptHead) -> Self {
        Self::Head(error)
    }
}

impl From<UploadError> for GatewayError {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::Content(error) => Self::Content(error),
            UploadError::File(error) => Self::Spool(error),
        }
    }
}

impl From<SpoolError> for GatewayError {
    fn from(error: SpoolError) -> Self {
        match error {
            SpoolError::Content(error) => Self::Content(error),
            SpoolError::File(error) => Self::Spool(error),
        }
    }
}
