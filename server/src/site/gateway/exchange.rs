//! A request to a script and its response. Polling the output moves both directions, so a script may respond while it
//! still reads.

use super::connection::ScriptConnection;
use super::error::GatewayError;
use super::messages::Messages;
use super::rules::ProgramEnd;
use super::upload::ContentUpload;
use bytes::{Buf, Bytes};
use selvedge::proto::MessageLimits;
use selvedge::proto::cgi::{ScriptHead, parse_script_head};
use selvedge::proto::fastcgi::{EndStatus, RECORD_BYTES_MAX, RecordEvent, RecordReader, content_header};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How content and output are framed.
#[derive(Debug)]
pub(super) enum Framing {
    /// In records.
    FastCgi(RecordReader),
    /// Not at all: the content has its announced length, and the end of the connection ends the output.
    Plain,
}

/// What becomes of a connection after its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterExchange {
    Close,
    Release,
}

/// A request that a script works on.
pub(super) struct Exchange {
    /// `None` after the end.
    connection: Option<ScriptConnection>,
    framing: Framing,
    after: AfterExchange,
    upload: ContentUpload,
    outgoing: PendingContent,
    /// Received bytes that are not decoded.
    input: Bytes,
    /// Output that is returned first.
    ready: VecDeque<Bytes>,
    messages: Messages,
    /// Bytes of output that may still arrive.
    output_left: u64,
    output_bytes_max: u64,
    /// Bytes of the content that are to be returned; `None` without a Content-Length.
    content_left: Option<u64>,
    /// Bytes of output that were discarded.
    discarded: u64,
    /// Why the content of the request cannot be sent, until the next output is polled.
    upload_error: Option<GatewayError>,
}

/// Most bytes of output that are discarded after the response.
const DISCARDED_BYTES_MAX: u64 = 256 << 10;

/// Bytes to send, then content to send after them.
#[derive(Default)]
struct PendingContent {
    bytes: Bytes,
    payload: Bytes,
    /// Content after the payload, which needs a record of its own.
    rest: Bytes,
}

/// Which side is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Client,
    Script,
}

impl Exchange {
    /// Creates an exchange that begins with `start`.
    pub(super) fn new(
        connection: ScriptConnection,
        (framing, after): (Framing, AfterExchange),
        (start, upload): (Vec<u8>, ContentUpload),
        messages: Messages,
    ) -> Self {
        let outgoing = PendingContent { bytes: start.into(), ..PendingContent::default() };
        Self {
            connection: Some(connection),
            framing,
            after,
            upload,
            outgoing,
            input: Bytes::new(),
            ready: VecDeque::new(),
            messages,
            output_left: u64::MAX,
            output_bytes_max: u64::MAX,
            content_left: None,
            discarded: 0,
            upload_error: None,
        }
    }

    /// Limits the output.
    pub(super) fn with_output_limit(self, bytes_max: u64) -> Self {
        Self { output_left: bytes_max, output_bytes_max: bytes_max, ..self }
    }

    pub(super) fn messages(&self) -> &Messages {
        &self.messages
    }

    pub(super) fn set_messages(&mut self, messages: Messages) {
        self.messages = messages;
    }

    /// Sets the length of the content, once the head is read. Further output is not part of it.
    pub(super) fn set_content_length(&mut self, length: u64) {
        self.content_left = Some(length);
        let mut ready = std::mem::take(&mut self.ready);
        ready.iter_mut().for_each(|output| self.count_content(output));
        self.ready = ready;
    }

    /// Whether all content of known length was returned.
    pub(super) fn is_complete(&self) -> bool {
        self.content_left == Some(0) && self.ready.is_empty()
    }

    /// Counts output as content, and removes what is beyond the length of the content.
    fn count_content(&mut self, output: &mut Bytes) {
        if let Some(left) = &mut self.content_left {
            let all = output.len() as u64;
            // It is at most the length of the output.
            output.truncate(all.min(*left) as usize);
            *left -= output.len() as u64;
            self.discarded += all - output.len() as u64;
        }
    }

    /// Ends the upload. What is left of the content is not sent.
    pub(super) fn stop_upload(&mut self) {
        if !self.upload.is_done() || !self.outgoing.is_empty() {
            self.outgoing = PendingContent::default();
            self.upload = ContentUpload::Done;
            self.after = AfterExchange::Close;
            if let Some(connection) = &mut self.connection {
                connection.end_input();
            }
        }
    }

    /// Sends content while the client does not read the output.
    pub(super) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if self.upload_error.is_none() {
            self.upload_error = self.send_content(cx).err();
        }
        if let Some(connection) = &mut self.connection {
            // A script that does not read may wait for the client.
            connection.pause_timeout();
        }
    }

    /// Discards output until the script ends.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GatewayError>> {
        self.discarded += self.ready.drain(..).map(|output| output.len() as u64).sum::<u64>();
        while let Some(output) = ready!(self.poll_received(cx))? {
            self.discarded += output.len() as u64;
            if self.discarded > DISCARDED_BYTES_MAX {
                return Poll::Ready(Err(GatewayError::OutputAfterResponse(DISCARDED_BYTES_MAX)));
            }
        }
        if self.content_left.is_some() && self.discarded > 0 {
            let text = format!("{} bytes of output beyond its Content-Length were not sent", self.discarded);
            self.messages.add_line(&text);
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the connection had served another request.
    pub(super) fn is_reused(&mut self) -> bool {
        self.connection.as_mut().is_some_and(ScriptConnection::is_reused)
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        if let Some(connection) = &mut self.connection {
            connection.set_timeout(timeout);
        }
    }

    /// Reads the head of the response.
    pub(super) async fn read_head(&mut self) -> Result<ScriptHead, GatewayError> {
        let (limits, mut received) = (MessageLimits::default(), Vec::new());
        loop {
            let Some(chunk) = poll_fn(|cx| self.poll_output(cx)).await? else {
                return Err(GatewayError::NoHead(self.end_text("the output ended before its head was complete")));
            };
            received.extend_from_slice(&chunk);
            if let Some(head) = parse_script_head(&received, &limits)? {
                self.ready.push_back(Bytes::from(received).slice(head.len..));
                return Ok(head);
            }
        }
    }

    /// Returns the whole content after the head if it and its end have arrived. Otherwise, later calls return it.
    pub(super) async fn read_short(&mut self) -> Result<Option<Bytes>, GatewayError> {
        let mut content = Bytes::new();
        loop {
            match poll_fn(|cx| Poll::Ready(self.poll_output(cx))).await {
                Poll::Ready(output) => match output? {
                    None => return Ok(Some(content)),
                    Some(more) if content.is_empty() => content = more,
                    Some(more) => {
                        self.ready.push_front(more);
                        self.ready.push_front(content);
                        return Ok(None);
                    }
                },
                Poll::Pending => {
                    self.ready.push_front(content);
                    return Ok(None);
                }
            }
        }
    }

    /// Returns output to the front.
    pub(super) fn put_back(&mut self, output: Bytes) {
        self.ready.push_front(output);
    }

    /// Polls the next output; `None` at its end, or at that of content of known length.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, GatewayError>> {
        while let Some(output) = self.ready.pop_front() {
            if !output.is_empty() {
                return Poll::Ready(Ok(Some(output)));
            }
        }
        if self.content_left == Some(0) {
            return Poll::Ready(Ok(None));
        }
        let mut output = ready!(self.poll_received(cx))?;
        if let Some(output) = &mut output {
            self.count_content(output);
        }
        if let Some(connection) = &mut self.connection {
            // The time in which the client does not read does not pass for the script.
            connection.pause_timeout();
        }
        Poll::Ready(Ok(output))
    }

    /// Polls for output that is received; `None` at its end.
    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, GatewayError>> {
        if self.connection.is_none() {
            return Poll::Ready(Ok(None));
        }
        if let Some(error) = self.upload_error.take() {
            return Poll::Ready(Err(error));
        }
        let waiting = self.send_content(cx)?;
        loop {
            if let Some(output) = self.decode()? {
                self.output_left = self
                    .output_left
                    .checked_sub(output.len() as u64)
                    .ok_or(GatewayError::OutputTooLong(self.output_bytes_max))?;
                return Poll::Ready(Ok(Some(output)));
            }
            let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(None)) };
            let mut errors = Vec::new();
            while connection.poll_errors(cx, &mut errors) {
                self.messages.add(&errors);
                errors.clear();
            }
            // An incomplete record header begins the next input.
            let mut received = self.input.to_vec();
            match connection.poll_receive(cx, &mut received) {
                Poll::Ready(Ok(0)) => return Poll::Ready(self.end_of_connection()),
                Poll::Ready(Ok(_)) => self.input = received.into(),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    if waiting == Waiting::Client {
                        connection.pause_timeout();
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Decodes the next output of the input; `None` if more is needed, or at the end.
    fn decode(&mut self) -> Result<Option<Bytes>, GatewayError> {
        let Framing::FastCgi(reader) = &mut self.framing else {
            let output = std::mem::take(&mut self.input);
            return Ok(Some(output).filter(|output| !output.is_empty()));
        };
        loop {
            match reader.next_event(&self.input)? {
                RecordEvent::NeedMore { consumed } => {
                    self.input.advance(consumed);
                    return Ok(None);
                }
                RecordEvent::Output { start, end } => {
                    let output = self.input.slice(start..end);
                    self.input.advance(end);
                    return Ok(Some(output));
                }
                RecordEvent::Error { start, end } => {
                    self.messages.add(&self.input[start..end]);
                    self.input.advance(end);
                }
                RecordEvent::End { status, end } => {
                    self.input.advance(end);
                    // Bytes after the end are an error.
                    reader.next_event(&self.input)?;
                    self.end_of_request(status)?;
                    return Ok(None);
                }
            }
        }
    }

    /// Ends the exchange with this status.
    fn end_of_request(&mut self, status: EndStatus) -> Result<(), GatewayError> {
        let connection = self.connection.take();
        match status {
            EndStatus::Complete(code) => {
                if code != 0 {
                    self.messages.add_line(&format!("the script ended with status {code}"));
                }
            }
            EndStatus::Overloaded => return Err(GatewayError::Overloaded),
            EndStatus::CannotMultiplex => return Err(GatewayError::Refused("the server refuses a second request")),
            EndStatus::UnknownRole => {
                return Err(GatewayError::Refused("the server does not run scripts as a responder"));
            }
        }
        // A script may end before it has read all content. The connection then has no place for another request.
        if let Some(connection) = connection
            && self.after == AfterExchange::Release
            && self.upload.is_done()
            && self.outgoing.is_empty()
        {
            connection.release();
        }
        Ok(())
    }

    /// Ends the exchange with the connection.
    fn end_of_connection(&mut self) -> Result<Option<Bytes>, GatewayError> {
        if let Framing::FastCgi(_) = self.framing {
            return Err(GatewayError::Ended("the server closed the connection before the end of the response".into()));
        }
        let Some(mut connection) = self.connection.take() else { return Ok(None) };
        if !connection.is_program() {
            return Ok(None);
        }
        match connection.program_end() {
            Some(ProgramEnd::Exited(0)) => Ok(None),
            Some(end @ ProgramEnd::Exited(_)) => {
                self.messages.add_line(&end.to_string());
                Ok(None)
            }
            Some(end) => Err(GatewayError::Ended(end.to_string())),
            None => Err(GatewayError::Ended("the process that runs programs has ended".into())),
        }
    }

    /// Returns why the output has ended: the last message of the script, if it has one.
    fn end_text(&self, text: &str) -> String {
        match self.messages.last_line() {
            Some(line) => format!("{text}; its last message: {line}"),
            None => text.to_owned(),
        }
    }

    /// Sends content until one side has to be waited for.
    fn send_content(&mut self, cx: &mut Context<'_>) -> Result<Waiting, GatewayError> {
        let Some(connection) = &mut self.connection else { return Ok(Waiting::Script) };
        loop {
            if !self.outgoing.is_empty() {
                match connection.poll_send(cx, [&self.outgoing.bytes, &self.outgoing.payload]) {
                    Poll::Ready(Ok(count)) => self.outgoing.advance(count, &self.framing),
                    Poll::Pending => return Ok(Waiting::Script),
                    // A script may respond without having read all content. Its response follows, or the end of the
                    // connection.
                    Poll::Ready(Err(_)) => {
                        self.outgoing = PendingContent::default();
                        self.upload = ContentUpload::Done;
                        self.after = AfterExchange::Close;
                    }
                }
                continue;
            }
            if self.upload.is_done() {
                return Ok(Waiting::Script);
            }
            match self.upload.poll_piece(cx)? {
                Poll::Pending => return Ok(Waiting::Client),
                Poll::Ready(Some(piece)) => self.outgoing.add(piece, &self.framing),
                Poll::Ready(None) => match self.framing {
                    Framing::FastCgi(_) => self.outgoing.bytes = Bytes::copy_from_slice(&content_header(0)),
                    Framing::Plain => connection.end_input(),
                },
            }
        }
    }
}

impl PendingContent {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.payload.is_empty()
    }

    /// Adds content, when nothing is left to send.
    fn add(&mut self, mut content: Bytes, framing: &Framing) {
        if let Framing::FastCgi(_) = framing {
            let payload = content.split_to(content.len().min(RECORD_BYTES_MAX));
            // It has at most 65,535 bytes.
            self.bytes = Bytes::copy_from_slice(&content_header(payload.len() as u16));
            (self.payload, self.rest) = (payload, content);
        } else {
            self.payload = content;
        }
    }

    /// Removes sent bytes, and begins the next record.
    fn advance(&mut self, count: usize, framing: &Framing) {
        let of_bytes = count.min(self.bytes.len());
        self.bytes.advance(of_bytes);
        self.payload.advance(count - of_bytes);
        if self.is_empty() && !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            self.add(rest, framing);
        }
    }
}
