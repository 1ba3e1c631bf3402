//! The standard streams of a program that another process runs, with the timeouts of the client.

use super::error::{ClientError, ClientErrorKind, ClientPhase, RetrySafety};
use crate::net::pipe::{MessageSocket, PipeReader, PipeWriter};
use crate::net::runtime::Timer;
use rustix::fs::{Mode, fchmod};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;
/// Longest report about the end of a program.
const REPORT_BYTES_MAX: usize = 4096;

/// This process's ends of the standard streams of a program. Dropping them closes them, and tells the process that runs
/// the program to kill it.
pub struct ProgramPipes {
    /// `None` after its end was sent.
    input: Option<PipeWriter>,
    output: PipeReader,
    errors: PipeReader,
    lease: MessageSocket,
    timeout: Duration,
    timer: Timer,
    has_received: bool,
    has_ended_output: bool,
    has_reported_end: bool,
}

/// The other ends of [`ProgramPipes`], for the process that runs the program.
#[derive(Debug)]
pub struct ProgramEnds {
    /// Its standard input, output and error.
    pub streams: [OwnedFd; 3],
    /// A socket for reports about the program. A message that arrives there tells that the output has ended: then, if the
    /// program goes on, one report is due at once, and another one at the end of the program. It has no other reader once
    /// the pipes are dropped.
    pub lease: OwnedFd,
}

impl ProgramPipes {
    /// Creates the streams of a program. Call it within the runtime of a worker.
    ///
    /// # Errors
    /// When file descriptors run out.
    pub fn new(timeout: Duration) -> io::Result<(Self, ProgramEnds)> {
        let (input, stdin) = PipeWriter::new()?;
        let (output, stdout) = PipeReader::new()?;
        let (errors, stderr) = PipeReader::new()?;
        let (lease, other) = MessageSocket::new()?;
        for end in [&stdin, &stdout, &stderr] {
            // A program of another user may open its streams again by name, as in `cat /dev/stdin`. No other process can
            // reach them.
            fchmod(end, Mode::from_raw_mode(0o666))?;
        }
        let pipes = Self {
            input: Some(input),
            output,
            errors,
            lease,
            timeout,
            timer: Timer::default(),
            has_received: false,
            has_ended_output: false,
            has_reported_end: false,
        };
        Ok((pipes, ProgramEnds { streams: [stdin, stdout, stderr], lease: other }))
    }

    /// Sets the longest time of a wait without progress.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Ends the current wait, if this task does not wait for the program.
    pub fn pause_timeout(&mut self) {
        self.timer.stop();
    }

    /// Receives available output and appends it to `into`. Returns 0 at the end of the output.
    ///
    /// # Errors
    /// If the pipe fails, or the timeout passes.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, ClientError>> {
        if self.has_ended_output {
            return Poll::Ready(Ok(0));
        }
        into.reserve(READ_BYTES);
        let received = self.output.poll_read(cx, into);
        let phase = if self.has_received { ClientPhase::ReadContent } else { ClientPhase::AwaitHead };
        let count = ready!(self.progress(received, phase, cx))?;
        self.has_received |= count > 0;
        self.has_ended_output = count == 0;
        Poll::Ready(Ok(count))
    }

    /// Receives available error messages and appends them to `into`. Returns 0 at their end.
    pub fn poll_errors(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        into.reserve(READ_BYTES);
        self.errors.poll_read(cx, into)
    }

    /// Sends as much as is accepted now of the first part that is not empty.
    ///
    /// # Errors
    /// If the program has closed its input, or the timeout passes.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, parts: [&[u8]; 2]) -> Poll<Result<usize, ClientError>> {
        let part = if parts[0].is_empty() { parts[1] } else { parts[0] };
        let sent = match &self.input {
            Some(input) => input.poll_write(cx, part),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
        self.progress(sent, ClientPhase::SendRequest, cx)
    }

    /// Ends the input of the program.
    pub fn shutdown_write(&mut self) {
        self.input = None;
    }

    /// Receives the next report about the program, after the end of its output: the program has ended, or goes on without
    /// output. `None` if the process that runs it has ended.
    ///
    /// # Errors
    /// If the timeout passes.
    pub fn poll_report(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, ClientError>> {
        let mut report = vec![0; REPORT_BYTES_MAX];
        let received = match self.lease.receive(&mut report) {
            Ok(count) => Poll::Ready(Ok(count)),
            Err(_) => {
                if !std::mem::replace(&mut self.has_reported_end, true) {
                    self.lease.send(b"end");
                }
                self.lease.poll_receive(cx, &mut report)
            }
        };
        let count = ready!(self.progress(received, ClientPhase::ReadContent, cx))?;
        report.truncate(count);
        Poll::Ready(Ok((count > 0).then_some(report)))
    }

    fn progress(
        &mut self,
        polled: Poll<io::Result<usize>>,
        phase: ClientPhase,
        cx: &mut Context<'_>,
    ) -> Poll<Result<usize, ClientError>> {
        let kind = match polled {
            Poll::Ready(Ok(count)) => {
                self.timer.stop();
                return Poll::Ready(Ok(count));
            }
            Poll::Ready(Err(error)) => ClientErrorKind::of_io(&error),
            Poll::Pending if self.timer.poll_after(self.timeout, cx).is_ready() => ClientErrorKind::TimedOut,
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready(Err(ClientError::new(phase, kind, RetrySafety::Never)))
    }
}

impl std::fmt::Debug for ProgramPipes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProgramPipes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{RecvFlags, SendFlags, recv, send};
    use std::fs::File;
    use std::future::poll_fn;
    use std::io::{Read, Write};

    fn in_runtime(test: impl AsyncFnOnce()) {
        let Ok(runtime) = crate::net::runtime::runtime() else { panic!("cannot create a runtime") };
        runtime.block_on(test());
    }

    #[test]
    fn both_directions_and_the_report() {
        in_runtime(async || {
            let (mut pipes, ends) = ProgramPipes::new(Duration::from_secs(60)).unwrap();
            let ProgramEnds { streams: [stdin, stdout, stderr], lease } = ends;
            assert_eq!(poll_fn(|cx| pipes.poll_send(cx, [b"", b"request"])).await, Ok(7));
            pipes.shutdown_write();
            assert!(poll_fn(|cx| pipes.poll_send(cx, [b"x", b""])).await.is_err());
            let mut request = String::new();
            File::from(stdin).read_to_string(&mut request).unwrap();
            assert_eq!(request, "request");
            File::from(stdout).write_all(b"output").unwrap();
            File::from(stderr).write_all(b"error").unwrap();
            let (mut output, mut errors) = (Vec::new(), Vec::new());
            while poll_fn(|cx| pipes.poll_receive(cx, &mut output)).await.unwrap() > 0 {}
            while poll_fn(|cx| pipes.poll_errors(cx, &mut errors)).await.unwrap() > 0 {}
            assert_eq!((&output[..], &errors[..]), (&b"output"[..], &b"error"[..]));
            assert_eq!(poll_fn(|cx| pipes.poll_receive(cx, &mut output)).await, Ok(0));
            assert!(poll_fn(|cx| Poll::Ready(pipes.poll_report(cx).is_pending())).await);
            let mut message = [0; 9];
            let (count, _) = recv(&lease, &mut message[..], RecvFlags::DONTWAIT).unwrap();
            assert_eq!(&message[..count], b"end", "the other process learns of the end of the output");
            send(&lease, b"goes on", SendFlags::empty()).unwrap();
            assert_eq!(poll_fn(|cx| pipes.poll_report(cx)).await, Ok(Some(b"goes on".to_vec())));
            send(&lease, b"exited", SendFlags::empty()).unwrap();
            assert_eq!(poll_fn(|cx| pipes.poll_report(cx)).await, Ok(Some(b"exited".to_vec())));
            drop(pipes);
            send(&lease, b"late", SendFlags::NOSIGNAL).unwrap_err();
        });
    }

    #[test]
    fn a_report_is_received_after_the_process_that_sent_it_has_ended() {
        in_runtime(async || {
            for is_reported in [false, true] {
                let (mut pipes, ends) = ProgramPipes::new(Duration::from_secs(60)).unwrap();
                if is_reported {
                    assert!(poll_fn(|cx| Poll::Ready(pipes.poll_report(cx).is_pending())).await);
                }
                send(&ends.lease, b"exited", SendFlags::empty()).unwrap();
                drop(ends);
                assert_eq!(poll_fn(|cx| pipes.poll_report(cx)).await, Ok(Some(b"exited".to_vec())), "{is_reported}");
                assert_eq!(poll_fn(|cx| pipes.poll_report(cx)).await, Ok(None));
            }
        });
    }

    #[test]
    fn a_silent_program_times_out() {
        in_runtime(async || {
            tokio::time::pause();
            let (mut pipes, _ends) = ProgramPipes::new(Duration::from_secs(60)).unwrap();
            let error = poll_fn(|cx| pipes.poll_receive(cx, &mut Vec::new())).await.unwrap_err();
            assert_eq!((error.phase, error.kind), (ClientPhase::AwaitHead, ClientErrorKind::TimedOut));
        });
    }
}
