//! What connects a request with its script: a connection to a server, or the pipes of a program.

use super::rules::ProgramEnd;
use selvedge::client::{ByteStream, ClientError, ConnectionUse, ProgramPipes};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The connection with a script. Dropping it ends the script.
pub(super) enum ScriptConnection {
    Server(ByteStream),
    Program(Box<ProgramPipes>),
}

impl ScriptConnection {
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        match self {
            Self::Server(stream) => stream.set_timeout(timeout),
            Self::Program(pipes) => pipes.set_timeout(timeout),
        }
    }

    /// Ends the current wait, because the client is waited for.
    pub(super) fn pause_timeout(&mut self) {
        match self {
            Self::Server(stream) => stream.pause_timeout(),
            Self::Program(pipes) => pipes.pause_timeout(),
        }
    }

    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<Result<usize, ClientError>> {
        match self {
            Self::Server(stream) => stream.poll_receive(cx, into),
            Self::Program(pipes) => pipes.poll_receive(cx, into),
        }
    }

    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>, parts: [&[u8]; 2]) -> Poll<Result<usize, ClientError>> {
        match self {
            Self::Server(stream) => stream.poll_send(cx, parts),
            Self::Program(pipes) => pipes.poll_send(cx, parts),
        }
    }

    /// Appends error messages that have arrived on a stream of their own. Returns whether any has.
    pub(super) fn poll_errors(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> bool {
        match self {
            Self::Server(_) => false,
            Self::Program(pipes) => matches!(pipes.poll_errors(cx, into), Poll::Ready(Ok(count)) if count > 0),
        }
    }

    /// Ends the input of a program. A server knows the length of the content.
    pub(super) fn end_input(&mut self) {
        if let Self::Program(pipes) = self {
            pipes.shutdown_write();
        }
    }

    /// Polls how the program has ended, after the end of its output. `None` for a server, and for a program whose runner has
    /// ended.
    pub(super) fn poll_program_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<ProgramEnd>, ClientError>> {
        let Self::Program(pipes) = self else { return Poll::Ready(Ok(None)) };
        let report = ready!(pipes.poll_report(cx))?;
        Poll::Ready(Ok(report.and_then(|report| serde_json::from_slice(&report).ok())))
    }

    pub(super) fn is_program(&self) -> bool {
        matches!(self, Self::Program(_))
    }

    /// Whether the connection had served another request, so that the server may have closed it.
    pub(super) fn is_reused(&mut self) -> bool {
        match self {
            Self::Server(stream) => stream.connection_use() == ConnectionUse::Reused,
            Self::Program(_) => false,
        }
    }

    /// Returns the connection to the pool.
    pub(super) fn release(self) {
        if let Self::Server(stream) = self {
            stream.release();
        }
    }
}
