//! Parses the head of a response (RFC 9112 §4, §5) and decides framing and persistence, for a client.
//!
//! Judges responses as strictly as requests: doubtful framing is an error, and no line is repaired. Never reads the
//! content; see [`super::chunked`] for that.
//!
//! ```
//! use selvedge_proto::MessageLimits;
//! use selvedge_proto::http1::parse_response::{RequestContext, ResponseFraming, ResponseHead, parse_response};
//! let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
//! let (limits, mut head) = (MessageLimits::default(), ResponseHead::default());
//! assert_eq!(parse_response(&bytes[..20], RequestContext::default(), &limits, &mut head), Ok(false));
//! assert_eq!(parse_response(bytes, RequestContext::default(), &limits, &mut head), Ok(true));
//! assert_eq!((head.framing, &bytes[head.len..]), (ResponseFraming::Length(2), &b"hi"[..]));
//! ```

use crate::field::{list_members, trim};
use crate::head::{FieldLineSpan, Version};
use crate::http1::framing::{AnnouncedFraming, FramingField, announced_framing};
use crate::http1::malformed_response::MalformedResponse;
use crate::http1::parse_fields::{FieldLine, find_value_end, parse_field_line, parse_line_end};
use crate::limits::{HEAD_BYTES_CEILING, MessageLimits, RESPONSE_FIELDS_CEILING};
use crate::method::Method;
use crate::reject::{Persistence, Reject};
use crate::status::StatusCode;

/// How the content of a received response ends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseFraming {
    /// No content follows.
    #[default]
    None,
    /// Content of this many bytes follows. Never zero.
    Length(u64),
    /// Chunked content follows.
    Chunked,
    /// The end of the connection ends the content.
    UntilClose,
    /// The bytes after the head belong to the protocol that Upgrade names: the response is 101.
    Upgraded,
}

/// What the meaning of a response depends on, beside itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// The method of the request.
    pub method: Method,
    /// Whether the request has Upgrade.
    pub upgrade: UpgradeOffer,
}

impl Default for RequestContext {
    /// Returns the context of a GET request without Upgrade.
    fn default() -> Self {
        Self { method: Method::Get, upgrade: UpgradeOffer::None }
    }
}

/// Whether a request offers to switch to another protocol (RFC 9110 §7.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpgradeOffer {
    /// The request has no Upgrade, so 101 is malformed.
    #[default]
    None,
    /// The request has Upgrade.
    Offered,
}

/// The parsed head of a response, as positions in the received bytes.
///
/// A head owns no bytes and allocates nothing. A connection reuses it from response to response.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// The status code. Another head follows if it is interim and not 101.
    pub status: StatusCode,
    /// The protocol version.
    pub version: Version,
    /// How the content ends.
    pub framing: ResponseFraming,
    /// Content-Length. In a response to HEAD and with 304, it is the length of the content of a response to GET
    /// (RFC 9110 §8.6).
    pub content_length: Option<u64>,
    /// Whether the connection persists after the response (RFC 9112 §9.3).
    pub persistence: Persistence,
    /// The length of the head in bytes, including the empty line; 0 until the head is complete.
    pub len: usize,
    /// Offset of the field section from the first byte; 0 until the status line is complete.
    section_start: u16,
    /// Offset in the field section of the first line that has not been parsed.
    resume_offset: usize,
    /// The positions of the field lines, counted from the start of the field section.
    field_spans: [FieldLineSpan; RESPONSE_FIELDS_CEILING],
    field_count: u16,
}

impl Default for ResponseHead {
    fn default() -> Self {
        Self {
            status: StatusCode::OK,
            version: Version::Http11,
            framing: ResponseFraming::None,
            content_length: None,
            persistence: Persistence::KeepAlive,
            len: 0,
            section_start: 0,
            resume_offset: 0,
            field_spans: [FieldLineSpan::default(); RESPONSE_FIELDS_CEILING],
            field_count: 0,
        }
    }
}

impl ResponseHead {
    /// Prepares for the next response, interim responses included.
    pub fn clear(&mut self) {
        self.len = 0;
        self.section_start = 0;
        self.resume_offset = 0;
        self.field_count = 0;
    }

    /// Returns all names, as spelled by the server, and values, in order. Empty until the head is complete.
    pub fn fields<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let section = bytes.get(usize::from(self.section_start)..).unwrap_or_default();
        let count = if self.len > 0 { usize::from(self.field_count) } else { 0 };
        self.field_spans[..count].iter().map(move |f| (f.name.of(section), f.value.of(section)))
    }

    /// Returns the value of the first field of a name, which is compared without case.
    pub fn get<'a>(&self, bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
        self.fields(bytes).find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// Returns for how many seconds the server keeps an idle connection: `timeout` of Keep-Alive (RFC 2068 §19.7.1.1).
    /// `None` if the field is absent or invalid.
    pub fn keep_alive_timeout(&self, bytes: &[u8]) -> Option<u32> {
        let digits = list_members(self.get(bytes, "keep-alive")?).find_map(|member| {
            let equals = member.iter().position(|&b| b == b'=')?;
            trim(&member[..equals]).eq_ignore_ascii_case(b"timeout").then(|| trim(&member[equals + 1..]))
        })?;
        let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
        is_number.then(|| digits.iter().fold(0, |seconds, digit| seconds * 10 + u32::from(digit - b'0')))
    }

    /// Returns the protocol that follows a 101 response. `None` for all other responses.
    pub fn upgrade<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.framing == ResponseFraming::Upgraded { self.get(bytes, "upgrade") } else { None }
    }
}

/// Parses the head that begins at the first byte of `bytes`.
///
/// Returns true if the head is complete; the content begins at [`ResponseHead::len`]. Returns false if more bytes are
/// needed: the caller appends received bytes to `bytes` and calls again with this head. Complete lines are not
/// parsed again.
///
/// # Errors
/// The first reason why the response is malformed, in the order of the bytes.
pub fn parse_response(
    bytes: &[u8],
    context: RequestContext,
    limits: &MessageLimits,
    head: &mut ResponseHead,
) -> Result<bool, MalformedResponse> {
    let bytes_max = limits.head_bytes_max.min(HEAD_BYTES_CEILING);
    let fields_max = limits.fields_max.min(RESPONSE_FIELDS_CEILING);
    let readable = &bytes[..bytes.len().min(bytes_max)];
    if head.section_start == 0 {
        match parse_status_line(readable, head)? {
            Some(next) => head.section_start = next as u16,
            None if bytes.len() >= bytes_max => return Err(MalformedResponse::HeadTooLarge),
            None => return Ok(false),
        }
    }
    let section_at = usize::from(head.section_start);
    let section = readable.get(section_at..).unwrap_or_default();
    loop {
        match parse_field_line(section, head.resume_offset)? {
            FieldLine::Field { .. } if usize::from(head.field_count) == fields_max => {
                return Err(MalformedResponse::TooManyFields);
            }
            FieldLine::Field { span, next } => {
                head.field_spans[usize::from(head.field_count)] = span;
                head.field_count += 1;
                head.resume_offset = next;
            }
            FieldLine::End { next } => {
                head.len = section_at + next;
                interpret_head(bytes, context, head)?;
                return Ok(true);
            }
            FieldLine::Incomplete if bytes.len() >= bytes_max => return Err(MalformedResponse::HeadTooLarge),
            FieldLine::Incomplete => return Ok(false),
        }
    }
}

/// Parses `HTTP/1.1 200 OK` and its CRLF. Returns the start of the field section, or `None` if the line is not
/// complete.
fn parse_status_line(bytes: &[u8], head: &mut ResponseHead) -> Result<Option<usize>, MalformedResponse> {
    const CODE_START: usize = b"HTTP/1.1 ".len();
    const CODE_END: usize = CODE_START + 3;
    let expected: [fn(u8) -> bool; CODE_START] = [
        |b| b == b'H',
        |b| b == b'T',
        |b| b == b'T',
        |b| b == b'P',
        |b| b == b'/',
        |b| b.is_ascii_digit(),
        |b| b == b'.',
        |b| b.is_ascii_digit(),
        |b| b == b' ',
    ];
    let is_http11 = bytes.starts_with(b"HTTP/1.1 ");
    if !is_http11 && !bytes.iter().zip(expected).all(|(&b, matches)| matches(b)) {
        return Err(MalformedResponse::StatusLineInvalid);
    }
    let Some(code) = bytes.get(CODE_START..) else { return Ok(None) };
    head.version = match (bytes[5], bytes[7]) {
        (b'1', b'0') => Version::Http10,
        //= RFC 9110 §2.5: a higher minor version is processed as the highest supported one
        (b'1', _) => Version::Http11,
        _ => return Err(MalformedResponse::VersionNotSupported),
    };
    let code = &code[..code.len().min(3)];
    if !code.iter().all(u8::is_ascii_digit) {
        return Err(MalformedResponse::StatusInvalid);
    }
    if code.len() < 3 {
        return Ok(None);
    }
    let number = code.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
    head.status = StatusCode::new(number).ok_or(MalformedResponse::StatusInvalid)?;
    let line_end = match bytes.get(CODE_END) {
        None => return Ok(None),
        Some(b' ') => find_value_end(bytes, CODE_END + 1),
        //= RFC 9112 §4: a server MUST send the space even without a reason phrase; some servers do not
        Some(b'\r' | b'\n') => CODE_END,
        Some(_) => return Err(MalformedResponse::StatusInvalid),
    };
    let Some(&stop) = bytes.get(line_end) else { return Ok(None) };
    parse_line_end(bytes, line_end, stop, Reject::FieldValueInvalid).map_err(|reject| match reject {
        Reject::FieldValueInvalid => MalformedResponse::ReasonPhraseInvalid,
        reject => reject.into(),
    })
}

/// The fields of a response that decide its framing and persistence.
struct ConnectionFields<'a> {
    content_length: FramingField<'a>,
    transfer_encoding: FramingField<'a>,
    upgrade: FramingField<'a>,
    has_close: bool,
    has_keep_alive: bool,
}

impl<'a> ConnectionFields<'a> {
    /// Finds them in one pass.
    fn find(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut found = Self {
            content_length: FramingField::Absent,
            transfer_encoding: FramingField::Absent,
            upgrade: FramingField::Absent,
            has_close: false,
            has_keep_alive: false,
        };
        for (name, value) in fields {
            // The lengths of these names differ, so at most one comparison decides.
            match name.len() {
                7 if name.eq_ignore_ascii_case(b"upgrade") => found.upgrade.add(value),
                10 if name.eq_ignore_ascii_case(b"connection") => {
                    for option in list_members(value) {
                        found.has_close |= option.eq_ignore_ascii_case(b"close");
                        found.has_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if name.eq_ignore_ascii_case(b"content-length") => found.content_length.add(value),
                17 if name.eq_ignore_ascii_case(b"transfer-encoding") => found.transfer_encoding.add(value),
                _ => {}
            }
        }
        found
    }
}

/// Decides framing and persistence of a complete head.
fn interpret_head(bytes: &[u8], context: RequestContext, head: &mut ResponseHead) -> Result<(), MalformedResponse> {
    let fields = ConnectionFields::find(head.fields(bytes));
    let announced = announced_framing(head.version, fields.content_length, fields.transfer_encoding)?;
    head.content_length = match announced {
        AnnouncedFraming::Length(length) => Some(length),
        AnnouncedFraming::None | AnnouncedFraming::Chunked => None,
    };
    head.framing = response_framing(announced, context, head.status)?;
    if head.framing == ResponseFraming::Upgraded {
        match (context.upgrade, fields.upgrade) {
            //= RFC 9110 §7.8: a server MUST NOT switch to a protocol that the client did not indicate
            (UpgradeOffer::None, _) => return Err(MalformedResponse::UpgradeNotOffered),
            //= RFC 9110 §15.2.2: the server MUST generate Upgrade
            (UpgradeOffer::Offered, FramingField::One(protocol)) if !protocol.is_empty() => {}
            (UpgradeOffer::Offered, _) => return Err(MalformedResponse::UpgradeInvalid),
        }
    }
    let ends_connection = matches!(head.framing, ResponseFraming::UntilClose | ResponseFraming::Upgraded);
    head.persistence = match head.version {
        _ if ends_connection || fields.has_close => Persistence::Close,
        Version::Http10 if !fields.has_keep_alive => Persistence::Close,
        _ => Persistence::KeepAlive,
    };
    Ok(())
}

/// Decides how the content ends, from what the head announces, the request and the status code.
fn response_framing(
    announced: AnnouncedFraming,
    context: RequestContext,
    status: StatusCode,
) -> Result<ResponseFraming, MalformedResponse> {
    if status.forbids_content_length() {
        return match announced {
            // A length of zero is tolerated, since many servers send it with 204.
            AnnouncedFraming::None | AnnouncedFraming::Length(0) if status == StatusCode::SWITCHING_PROTOCOLS => {
                Ok(ResponseFraming::Upgraded)
            }
            AnnouncedFraming::None | AnnouncedFraming::Length(0) => Ok(ResponseFraming::None),
            //= RFC 9112 §6.1, RFC 9110 §8.6: neither field in 1xx and 204; a recipient could read the content as
            //= the next response
            AnnouncedFraming::Length(_) | AnnouncedFraming::Chunked => Err(MalformedResponse::ContentNotPermitted),
        };
    }
    if context.method == Method::Connect && status.code() < 300 {
        return Err(MalformedResponse::TunnelNotSupported);
    }
    Ok(match announced {
        //= RFC 9112 §6.3 ¶1: no content, whatever the fields announce
        _ if context.method == Method::Head || status.forbids_content() => ResponseFraming::None,
        AnnouncedFraming::Length(0) => ResponseFraming::None,
        AnnouncedFraming::Length(length) => ResponseFraming::Length(length),
        AnnouncedFraming::Chunked => ResponseFraming::Chunked,
        //= RFC 9112 §6.3 ¶8
        AnnouncedFraming::None => ResponseFraming::UntilClose,
    })
}

#[cfg(test)]
mod tests;
