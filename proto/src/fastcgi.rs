//! FastCGI records, for the side of the web server (FastCGI Specification 1.0).
//!
//! Writes the records of one request with the role of a responder, and reads the records of its response, one event at
//! a time. Payloads are never copied: the writer returns record headers, and events are positions in the input. A
//! connection carries one request at a time, always with the number [`REQUEST_ID`].

use core::fmt;

/// The number of every request.
pub const REQUEST_ID: u16 = 1;

/// Most payload bytes of one record.
pub const RECORD_BYTES_MAX: usize = u16::MAX as usize;

/// Bytes of a record header.
pub const HEADER_BYTES: usize = 8;

const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// The payload bytes of an end record.
const END_BYTES: usize = 8;

/// Whether the server that runs scripts closes the connection after the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRequest {
    /// It closes it.
    Close,
    /// It waits for another request.
    KeepOpen,
}

fn header(kind: u8, payload_bytes: u16, padding: u8) -> [u8; HEADER_BYTES] {
    let ([id_high, id_low], [high, low]) = (REQUEST_ID.to_be_bytes(), payload_bytes.to_be_bytes());
    [VERSION, kind, id_high, id_low, high, low, padding, 0]
}

/// Appends the record that begins a request for a responder (§5.1).
pub fn write_begin(after: AfterRequest, out: &mut Vec<u8>) {
    const RESPONDER: u8 = 1;
    out.extend_from_slice(&header(BEGIN_REQUEST, 8, 0));
    out.extend_from_slice(&[0, RESPONDER, u8::from(after == AfterRequest::KeepOpen), 0, 0, 0, 0, 0]);
}

/// Appends one variable in the encoding of a variable stream (§3.4).
pub fn write_variable(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    for length in [name.len(), value.len()] {
        match u8::try_from(length) {
            Ok(short) if short < 0x80 => out.push(short),
            // A request head, from which variables are made, is far below 2 GiB.
            _ => out.extend_from_slice(&((length as u32) | 0x8000_0000).to_be_bytes()),
        }
    }
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// Appends the records of a stream of variables, with the record that ends the stream (§5.2).
pub fn write_variables(encoded: &[u8], out: &mut Vec<u8>) {
    for part in encoded.chunks(RECORD_BYTES_MAX) {
        out.extend_from_slice(&header(PARAMS, part.len() as u16, 0));
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&header(PARAMS, 0, 0));
}

/// Returns the header of a record with `payload_bytes` of request content; with 0, the record that ends the content
/// (§5.3).
pub fn content_header(payload_bytes: u16) -> [u8; HEADER_BYTES] {
    header(STDIN, payload_bytes, 0)
}

/// Appends the record that aborts the request (§5.4).
pub fn write_abort(out: &mut Vec<u8>) {
    out.extend_from_slice(&header(ABORT_REQUEST, 0, 0));
}

/// How a request has ended (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndStatus {
    /// The script has run. Its exit status, 0 for success.
    Complete(u32),
    /// The server refuses a second request at once on this connection.
    CannotMultiplex,
    /// The server is overloaded.
    Overloaded,
    /// The server does not run responders.
    UnknownRole,
}

/// The next part of the input. Positions refer to the input of the call, and the following call begins at `end` or
/// after `consumed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEvent {
    /// More bytes are needed after those that were consumed.
    NeedMore {
        /// The number of bytes that were read.
        consumed: usize,
    },
    /// Output of the script: its head and content.
    Output {
        /// First byte.
        start: usize,
        /// After the last byte.
        end: usize,
    },
    /// Error messages of the script.
    Error {
        /// First byte.
        start: usize,
        /// After the last byte.
        end: usize,
    },
    /// The end of the request. No byte belongs to it after `end`.
    End {
        /// How it ended.
        status: EndStatus,
        /// After the last byte.
        end: usize,
    },
}

/// Why the input is not a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedRecord {
    /// The version is not 1, so the peer speaks another protocol.
    Version,
    /// The record belongs to another request.
    RequestId,
    /// The type of the record is not one of a response.
    Type,
    /// The output continues after its end.
    OutputAfterEnd,
    /// The record of the end has another length than 8, or an unknown status.
    End,
    /// Bytes follow the end of the request.
    AfterEnd,
}

impl MalformedRecord {
    /// Returns one sentence that states the reason.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Version => "the record is not one of FastCGI version 1",
            Self::RequestId => "the record belongs to another request",
            Self::Type => "the type of the record is not one of a response",
            Self::OutputAfterEnd => "the output continues after its end",
            Self::End => "the record that ends the request is malformed",
            Self::AfterEnd => "bytes follow the end of the request",
        }
    }
}

impl fmt::Display for MalformedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for MalformedRecord {}

/// Reads the records of a response.
///
/// ```text
/// Header ─► Payload ─► Padding ─► Header …
///    └────► End (8 bytes at once) ─► EndPadding ─► Ended
/// ```
#[derive(Clone, Debug)]
pub struct RecordReader {
    state: ReaderState,
    is_output_ended: bool,
}

#[derive(Clone, Copy, Debug)]
enum ReaderState {
    Header,
    Payload { stream: OutputStream, remaining: u16, padding: u8 },
    End { padding: u8 },
    Padding { remaining: u8 },
    EndPadding { status: EndStatus, remaining: u8 },
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputStream {
    Output,
    Error,
}

impl Default for RecordReader {
    fn default() -> Self {
        Self::new()
    }
}

impl RecordReader {
    /// Creates the reader of one response.
    pub const fn new() -> Self {
        Self { state: ReaderState::Header, is_output_ended: false }
    }

    /// Whether the request has ended.
    pub const fn is_ended(&self) -> bool {
        matches!(self.state, ReaderState::Ended)
    }

    /// Reads the next event. `input` begins after the bytes of earlier events.
    ///
    /// # Errors
    /// If the input is malformed. Nothing further can be read.
    pub fn next_event(&mut self, input: &[u8]) -> Result<RecordEvent, MalformedRecord> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.state {
                ReaderState::Header => {
                    let Some(header) = rest.first_chunk::<HEADER_BYTES>() else {
                        // The first byte of another protocol is refused without waiting for more.
                        if rest.first().is_some_and(|&version| version != VERSION) {
                            return Err(MalformedRecord::Version);
                        }
                        return Ok(RecordEvent::NeedMore { consumed: at });
                    };
                    self.state = self.begin_record(header)?;
                    at += HEADER_BYTES;
                }
                ReaderState::Payload { stream, remaining, padding } => {
                    let count = rest.len().min(usize::from(remaining));
                    if count == 0 && remaining > 0 {
                        return Ok(RecordEvent::NeedMore { consumed: at });
                    }
                    // `count` is at most `remaining`, which has 16 bits.
                    let remaining = remaining - count as u16;
                    self.state = match remaining {
                        0 => ReaderState::Padding { remaining: padding },
                        _ => ReaderState::Payload { stream, remaining, padding },
                    };
                    let (start, end) = (at, at + count);
                    match stream {
                        _ if count == 0 => {}
                        OutputStream::Output => return Ok(RecordEvent::Output { start, end }),
                        OutputStream::Error => return Ok(RecordEvent::Error { start, end }),
                    }
                }
                ReaderState::Padding { remaining: 0 } => self.state = ReaderState::Header,
                ReaderState::Padding { remaining } => {
                    let count = rest.len().min(usize::from(remaining));
                    if count == 0 {
                        return Ok(RecordEvent::NeedMore { consumed: at });
                    }
                    self.state = ReaderState::Padding { remaining: remaining - count as u8 };
                    at += count;
                }
                ReaderState::End { padding } => {
                    let Some(payload) = rest.first_chunk::<END_BYTES>() else {
                        return Ok(RecordEvent::NeedMore { consumed: at });
                    };
                    self.state = ReaderState::EndPadding { status: end_status(payload)?, remaining: padding };
                    at += END_BYTES;
                }
                ReaderState::EndPadding { status, remaining } => {
                    let count = rest.len().min(usize::from(remaining));
                    let remaining = remaining - count as u8;
                    at += count;
                    if remaining > 0 {
                        self.state = ReaderState::EndPadding { status, remaining };
                        return Ok(RecordEvent::NeedMore { consumed: at });
                    }
                    self.state = ReaderState::Ended;
                    return Ok(RecordEvent::End { status, end: at });
                }
                ReaderState::Ended if rest.is_empty() => return Ok(RecordEvent::NeedMore { consumed: at }),
                ReaderState::Ended => return Err(MalformedRecord::AfterEnd),
            }
        }
    }

    fn begin_record(&mut self, header: &[u8; HEADER_BYTES]) -> Result<ReaderState, MalformedRecord> {
        let [version, kind, id_high, id_low, high, low, padding, _reserved] = *header;
        let remaining = u16::from_be_bytes([high, low]);
        if version != VERSION {
            return Err(MalformedRecord::Version);
        }
        if u16::from_be_bytes([id_high, id_low]) != REQUEST_ID {
            return Err(MalformedRecord::RequestId);
        }
        match kind {
            STDOUT if self.is_output_ended => Err(MalformedRecord::OutputAfterEnd),
            STDOUT => {
                self.is_output_ended = remaining == 0;
                Ok(ReaderState::Payload { stream: OutputStream::Output, remaining, padding })
            }
            STDERR => Ok(ReaderState::Payload { stream: OutputStream::Error, remaining, padding }),
            END_REQUEST if usize::from(remaining) == END_BYTES => Ok(ReaderState::End { padding }),
            END_REQUEST => Err(MalformedRecord::End),
            _ => Err(MalformedRecord::Type),
        }
    }
}

fn end_status(payload: &[u8; END_BYTES]) -> Result<EndStatus, MalformedRecord> {
    let [a, b, c, d, protocol_status, ..] = *payload;
    Ok(match protocol_status {
        0 => EndStatus::Complete(u32::from_be_bytes([a, b, c, d])),
        1 => EndStatus::CannotMultiplex,
        2 => EndStatus::Overloaded,
        3 => EndStatus::UnknownRole,
        _ => return Err(MalformedRecord::End),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Read {
        output: Vec<u8>,
        error: Vec<u8>,
        end: Option<EndStatus>,
    }

    /// Reads bytes that arrive in parts of these lengths, in turn.
    fn read(bytes: &[u8], lengths: &[usize]) -> Result<Read, MalformedRecord> {
        let (mut reader, mut read, mut lengths) = (RecordReader::new(), Read::default(), lengths.iter().cycle());
        let (mut at, mut received) = (0, 0);
        loop {
            match reader.next_event(&bytes[at..received])? {
                RecordEvent::NeedMore { consumed } => {
                    at += consumed;
                    if received == bytes.len() {
                        assert_eq!(reader.is_ended(), read.end.is_some());
                        return Ok(read);
                    }
                    received = (received + lengths.next().unwrap()).min(bytes.len());
                }
                RecordEvent::Output { start, end } => {
                    read.output.extend_from_slice(&bytes[at + start..at + end]);
                    at += end;
                }
                RecordEvent::Error { start, end } => {
                    read.error.extend_from_slice(&bytes[at + start..at + end]);
                    at += end;
                }
                RecordEvent::End { status, end } => {
                    read.end = Some(status);
                    at += end;
                }
            }
        }
    }

    fn record(kind: u8, payload: &[u8], padding: u8) -> Vec<u8> {
        let mut record = header(kind, payload.len() as u16, padding).to_vec();
        record.extend_from_slice(payload);
        record.resize(record.len() + usize::from(padding), 0xee);
        record
    }

    fn end(status: u8) -> Vec<u8> {
        record(END_REQUEST, &[0, 0, 0, 7, status, 0, 0, 0], 0)
    }

    /// Output, messages and the end.
    type Expected<'a> = (&'a [u8], &'a [u8], Option<EndStatus>);

    fn check(bytes: &[u8], expected: Result<Expected<'_>, MalformedRecord>) {
        let expected =
            expected.map(|(output, error, end)| Read { output: output.to_vec(), error: error.to_vec(), end });
        for lengths in [&[usize::MAX / 2][..], &[1], &[3, 1, 7], &[2, 11, 5], &[8], &[13, 1]] {
            assert_eq!(read(bytes, lengths), expected, "{bytes:?} in parts of {lengths:?}");
        }
    }

    #[test]
    fn responses_in_any_parts() {
        let complete = Some(EndStatus::Complete(7));
        let all = |records: &[Vec<u8>]| records.concat();
        check(b"", Ok((b"", b"", None)));
        check(&all(&[record(STDOUT, b"abc", 0), end(0)]), Ok((b"abc", b"", complete)));
        let padded = [record(STDOUT, b"a", 7), record(STDERR, b"oops", 4), record(STDOUT, b"bc", 255)];
        check(&all(&[all(&padded), record(STDOUT, b"", 8), end(0)]), Ok((b"abc", b"oops", complete)));
        check(&all(&[record(STDOUT, b"", 0), record(STDERR, b"late", 0), end(0)]), Ok((b"", b"late", complete)));
        check(&record(STDOUT, b"abc", 3)[..12], Ok((b"abc", b"", None)));
        let long = vec![b'x'; RECORD_BYTES_MAX];
        check(&all(&[record(STDOUT, &long, 1), end(0)]), Ok((&long, b"", complete)));
        check(&record(END_REQUEST, &[0, 0, 1, 0, 0, 1, 2, 3], 9), Ok((b"", b"", Some(EndStatus::Complete(256)))));
        for (code, status) in [(1, EndStatus::CannotMultiplex), (2, EndStatus::Overloaded), (3, EndStatus::UnknownRole)]
        {
            check(&end(code), Ok((b"", b"", Some(status))));
        }
    }

    #[test]
    fn malformed_responses_are_refused() {
        check(b"HTTP/1.1 400 Bad Request\r\n", Err(MalformedRecord::Version));
        check(b"\0", Err(MalformedRecord::Version));
        check(&[1, STDOUT, 0, 2, 0, 0, 0, 0], Err(MalformedRecord::RequestId));
        check(&[1, STDOUT, 0, 0, 0, 0, 0, 0], Err(MalformedRecord::RequestId));
        for kind in [0, BEGIN_REQUEST, ABORT_REQUEST, PARAMS, STDIN, 8, 9, 10, 11, 255] {
            check(&record(kind, b"", 0), Err(MalformedRecord::Type));
        }
        check(&[record(STDOUT, b"", 0), record(STDOUT, b"x", 0)].concat(), Err(MalformedRecord::OutputAfterEnd));
        check(&record(END_REQUEST, &[0; 7], 0), Err(MalformedRecord::End));
        check(&record(END_REQUEST, &[0; 9], 0), Err(MalformedRecord::End));
        check(&end(4), Err(MalformedRecord::End));
        check(&[end(0), vec![1]].concat(), Err(MalformedRecord::AfterEnd));
    }

    #[test]
    fn requests_are_written_as_specified() {
        let mut out = Vec::new();
        write_begin(AfterRequest::KeepOpen, &mut out);
        write_begin(AfterRequest::Close, &mut out);
        assert_eq!(
            out,
            [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
        );
        let mut variables = Vec::new();
        write_variable(b"A", b"", &mut variables);
        write_variable(b"B", &[b'v'; 127], &mut variables);
        write_variable(&[b'N'; 128], &[b'v'; 300], &mut variables);
        assert_eq!(variables[..3], *b"\x01\x00A");
        assert_eq!(variables[3..6], *b"\x01\x7fB");
        assert_eq!(variables[133..141], [0x80, 0, 0, 128, 0x80, 0, 1, 44]);
        assert_eq!(variables.len(), 3 + 3 + 127 + 8 + 128 + 300);
        let mut out = Vec::new();
        write_variables(&vec![7; RECORD_BYTES_MAX + 1], &mut out);
        assert_eq!(out[..8], [1, 4, 0, 1, 255, 255, 0, 0]);
        assert_eq!(out[8 + RECORD_BYTES_MAX..], [1, 4, 0, 1, 0, 1, 0, 0, 7, 1, 4, 0, 1, 0, 0, 0, 0]);
        assert_eq!(content_header(258), [1, 5, 0, 1, 1, 2, 0, 0]);
        out.clear();
        write_abort(&mut out);
        assert_eq!(out, [1, 2, 0, 1, 0, 0, 0, 0]);
    }
}
