//! Parses the head of a request (RFC 9112 §3, §5) and decides host, framing and persistence.

use crate::field::{IS_TOKEN_BYTE, KnownField};
use crate::head::{RequestFraming, RequestHead, Version};
use crate::http1::parse_fields::{FieldLine, parse_field_line, parse_line_end};
use crate::http1::{framing, persistence};
use crate::limits::{FIELDS_CEILING, HEAD_BYTES_CEILING, METHOD_BYTES_MAX, MessageLimits};
use crate::method::Method;
use crate::reject::Reject;
use crate::swar;
use crate::target::{Host, Span, Target};

/// Parses the head that begins at the first byte of `bytes`.
///
/// Returns true if the head is complete; the content begins at [`RequestHead::len`]. Returns false
/// if more bytes are needed: the caller appends received bytes to `bytes` and calls again with this
/// head. Complete lines are not parsed again.
///
/// # Errors
/// The first reason to refuse the request, in the order of the bytes.
pub fn parse_request(bytes: &[u8], limits: &MessageLimits, head: &mut RequestHead) -> Result<bool, Reject> {
    if head.section_start == 0 {
        match parse_request_line(bytes, limits, head)? {
            Some(next) => head.section_start = next as u16,
            None => return Ok(false),
        }
    }
    let bytes_max = limits.head_bytes_max.min(HEAD_BYTES_CEILING);
    let fields_max = limits.fields_max.min(FIELDS_CEILING);
    let section_at = usize::from(head.section_start);
    let section = bytes[..bytes.len().min(bytes_max)].get(section_at..).unwrap_or_default();
    if head.resume_offset == 0 {
        if usize::from(head.field_count) <= fields_max
            && let Some(len) = head.reuse_cached_section(section)
        {
            head.len = section_at + len;
            set_authority(head);
            return Ok(true);
        }
        head.clear_section();
    }
    loop {
        match parse_field_line(section, head.resume_offset)? {
            FieldLine::Field { .. } if usize::from(head.field_count) == fields_max => {
                return Err(Reject::TooManyFields);
            }
            FieldLine::Field { span, next } => {
                head.add_field(span.name.of(section), span);
                head.resume_offset = next;
            }
            FieldLine::End { next } => {
                head.len = section_at + next;
                interpret_head(bytes, head, RequestFraming::None)?;
                head.cache_section(&section[..next]);
                return Ok(true);
            }
            FieldLine::Incomplete if bytes.len() >= bytes_max => return Err(Reject::HeadTooLarge),
            FieldLine::Incomplete => return Ok(false),
        }
    }
}

/// Parses the request line. Returns the start of the field section, or `None` if the line is not
/// complete.
fn parse_request_line(bytes: &[u8], limits: &MessageLimits, head: &mut RequestHead) -> Result<Option<usize>, Reject> {
    //= RFC 9112 §2.2: a server SHOULD ignore at least one empty line before the request line
    let start = match bytes {
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(None),
        _ => 0,
    };
    let line_max = limits.request_line_bytes_max.min(HEAD_BYTES_CEILING - 4);
    // A line of the longest length ends with its CRLF, two bytes after the limit.
    let readable = &bytes[..bytes.len().min(start + line_max + 2)];
    match parse_request_line_parts(readable, start, head)? {
        Some(next) if next - start - 2 > line_max => Err(Reject::RequestLineTooLong),
        None if readable.len() - start >= line_max + 2 => Err(Reject::RequestLineTooLong),
        other => Ok(other),
    }
}

/// Parses method, target and version. Returns the start of the field section, or `None` if the line
/// is not complete.
fn parse_request_line_parts(bytes: &[u8], start: usize, head: &mut RequestHead) -> Result<Option<usize>, Reject> {
    let (method, method_end) = match bytes[start..] {
        [b'G', b'E', b'T', b' ', ..] => (Method::Get, start + 3),
        _ => match find_method_end(bytes, start)? {
            Some(end) => (Method::from_token(&bytes[start..end]), end),
            None => return Ok(None),
        },
    };
    let target_start = method_end + 1;
    let target_end = find_target_end(bytes, target_start);
    match bytes.get(target_end) {
        None => return Ok(None),
        Some(b' ') if target_end > target_start => {}
        Some(b' ') => return Err(Reject::RequestLineInvalid),
        Some(&stop @ (b'\r' | b'\n')) => {
            return match parse_line_end(bytes, target_end, stop, Reject::TargetInvalid)? {
                Some(_) => Err(Reject::VersionMissing),
                None => Ok(None),
            };
        }
        Some(_) => return Err(Reject::TargetInvalid),
    }
    let Some((version, next)) = parse_version(bytes, target_end + 1)? else { return Ok(None) };
    head.version = version;
    head.method_span = Span::between(start, method_end);
    head.method = method;
    head.request_line = Span::between(start, next - 2);
    head.target = Target::parse(bytes, Span::between(target_start, target_end), head.method)?;
    Ok(Some(next))
}

/// Returns the position of the space after the method, or `None` if it is not yet received.
fn find_method_end(bytes: &[u8], start: usize) -> Result<Option<usize>, Reject> {
    let mut pos = start;
    loop {
        match bytes.get(pos) {
            Some(&b) if IS_TOKEN_BYTE[usize::from(b)] && pos - start < METHOD_BYTES_MAX => pos += 1,
            Some(&b) if IS_TOKEN_BYTE[usize::from(b)] => return Err(Reject::MethodTooLong),
            Some(b' ') if pos > start => return Ok(Some(pos)),
            Some(b'\n') => return Err(Reject::BareLineFeed),
            Some(_) => return Err(Reject::RequestLineInvalid),
            None => return Ok(None),
        }
    }
}

/// Returns the first position at or after `start` with a byte that is not part of a target.
///
/// A target consists of visible ASCII without `#` and backslash: a target has no fragment, and some
/// recipients treat a backslash as a slash. Beyond RFC 3986, ``" < > [ ] ^ ` { | }`` are allowed,
/// since browsers send them in queries.
pub(crate) fn find_target_end(bytes: &[u8], start: usize) -> usize {
    swar::find(bytes, start, |word| {
        swar::below(word, 0x21)
            | swar::equal_to(word, 0x7f)
            | swar::non_ascii(word)
            | swar::equal_to(word, b'#')
            | swar::equal_to(word, b'\\')
    })
}

/// Parses `HTTP/1.1` and its CRLF. Returns the version and the start of the next line, or `None` if
/// more bytes are needed.
fn parse_version(bytes: &[u8], start: usize) -> Result<Option<(Version, usize)>, Reject> {
    if let Some(b"HTTP/1.1\r\n") = bytes.get(start..start + 10) {
        return Ok(Some((Version::Http11, start + 10)));
    }
    let rest = &bytes[start..];
    let expected: [fn(u8) -> bool; 8] = [
        |b| b == b'H',
        |b| b == b'T',
        |b| b == b'T',
        |b| b == b'P',
        |b| b == b'/',
        |b| b.is_ascii_digit(),
        |b| b == b'.',
        |b| b.is_ascii_digit(),
    ];
    if !rest.iter().zip(expected).all(|(&b, matches)| matches(b)) {
        return Err(Reject::VersionInvalid);
    }
    let Some(&stop) = rest.get(8) else { return Ok(None) };
    let Some(next) = parse_line_end(bytes, start + 8, stop, Reject::VersionInvalid)? else { return Ok(None) };
    match (rest[5], rest[7]) {
        (b'1', b'0') => Ok(Some((Version::Http10, next))),
        //= RFC 9110 §2.5: a higher minor version is processed as the highest supported one
        (b'1', _) => Ok(Some((Version::Http11, next))),
        _ => Err(Reject::VersionNotSupported),
    }
}

/// Checks the host of a complete head and decides its authority, framing, expectation and
/// persistence. The framing is `unframed` if no field decides it.
pub(crate) fn interpret_head(bytes: &[u8], head: &mut RequestHead, unframed: RequestFraming) -> Result<(), Reject> {
    check_host(bytes, head)?;
    set_authority(head);
    head.framing = framing::request_framing(bytes, head, unframed)?;
    head.expectation = persistence::expectation(bytes, head)?;
    head.persistence = persistence::persistence(bytes, head);
    Ok(())
}

/// Checks that Host is present, except in HTTP/1.0, not repeated, and valid.
//= RFC 9112 §3.2: 400 to HTTP/1.1 without Host, to more than one Host, to an invalid Host
fn check_host(bytes: &[u8], head: &mut RequestHead) -> Result<(), Reject> {
    if head.is_repeated(KnownField::Host) {
        return Err(Reject::HostRepeated);
    }
    let host = head.value(bytes, KnownField::Host);
    match host {
        None if head.version == Version::Http10 => {}
        None => return Err(Reject::HostMissing),
        Some(value) if head.is_cached_host(value) => {}
        Some(value) => {
            Host::parse(value)?;
            head.cache_host(value);
        }
    }
    Ok(())
}

/// Sets the authority of a head from its target or its Host.
fn set_authority(head: &mut RequestHead) {
    //= RFC 9112 §3.2.2, §3.3: the authority of an absolute-form or an authority-form overrides Host
    head.authority = head.target.authority.or(head.value_span(KnownField::Host));
}
