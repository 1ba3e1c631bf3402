//! The head of a request (RFC 9112 §3, §5): the line, the fields, and what they decide.

use crate::field::{Known, TOKEN};
use crate::head::{RequestHead, Version};
use crate::http1::parse_fields::{Line, end_of_line, parse_line};
use crate::http1::{framing, persist};
use crate::limits::{FIELDS_CEILING, HEAD_BYTES_CEILING, Limits, METHOD_BYTES_MAX};
use crate::method::Method;
use crate::reject::Reject;
use crate::swar;
use crate::target::{Host, Span, Target};

/// Reads the head that begins at the first byte of `bytes`.
///
/// Returns true when the head is complete; [`RequestHead::len`] then says where the
/// content begins. Returns false when more bytes are needed: call again with the same
/// head and the same bytes, longer. Lines that were read are not read again.
///
/// # Errors
/// The first reason to refuse, in the order of the bytes. Nothing after it is looked at.
pub fn parse_request(bytes: &[u8], limits: &Limits, head: &mut RequestHead) -> Result<bool, Reject> {
    if head.section_at == 0 {
        match parse_request_line(bytes, limits, head)? {
            Some(next) => head.section_at = next as u16,
            None => return Ok(false),
        }
    }
    let bytes_max = limits.head_bytes_max.min(HEAD_BYTES_CEILING);
    let fields_max = limits.fields_max.min(FIELDS_CEILING);
    let section_at = usize::from(head.section_at);
    let section = bytes[..bytes.len().min(bytes_max)].get(section_at..).unwrap_or_default();
    if head.resume_at == 0 {
        if usize::from(head.field_count) <= fields_max
            && let Some(len) = head.take_known_section(section)
        {
            head.len = section_at + len;
            decide_authority(head);
            return Ok(true);
        }
        head.forget_section();
    }
    loop {
        match parse_line(section, head.resume_at)? {
            Line::Field { .. } if usize::from(head.field_count) == fields_max => return Err(Reject::TooManyFields),
            Line::Field { span, next } => {
                head.push(span.name.of(section), span);
                head.resume_at = next;
            }
            Line::End { next } => {
                head.len = section_at + next;
                decide(bytes, head)?;
                head.know_section(&section[..next]);
                return Ok(true);
            }
            Line::Incomplete if bytes.len() >= bytes_max => return Err(Reject::HeadTooLarge),
            Line::Incomplete => return Ok(false),
        }
    }
}

/// Reads the request line; where the fields begin, or `None` while it is not complete.
fn parse_request_line(bytes: &[u8], limits: &Limits, head: &mut RequestHead) -> Result<Option<usize>, Reject> {
    //= RFC 9112 §2.2: a server SHOULD ignore at least one empty line before the request line
    let start = match bytes {
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(None),
        _ => 0,
    };
    let line_max = limits.request_line_bytes_max.min(HEAD_BYTES_CEILING - 4);
    // One byte more than the limit shows that a line is longer, and two more its CRLF.
    let readable = &bytes[..bytes.len().min(start + line_max + 2)];
    match parse_line_parts(readable, start, head)? {
        Some(next) if next - start - 2 > line_max => Err(Reject::RequestLineTooLong),
        None if readable.len() - start >= line_max + 2 => Err(Reject::RequestLineTooLong),
        other => Ok(other),
    }
}

fn parse_line_parts(bytes: &[u8], start: usize, head: &mut RequestHead) -> Result<Option<usize>, Reject> {
    let (method, method_end) = match bytes[start..] {
        [b'G', b'E', b'T', b' ', ..] => (Method::Get, start + 3),
        _ => match method_end(bytes, start)? {
            Some(end) => (Method::from_token(&bytes[start..end]), end),
            None => return Ok(None),
        },
    };
    let target_at = method_end + 1;
    let target_end = skip_target(bytes, target_at);
    match bytes.get(target_end) {
        None => return Ok(None),
        Some(b' ') if target_end > target_at => {}
        Some(b' ') => return Err(Reject::RequestLineMalformed),
        Some(&stop @ (b'\r' | b'\n')) => {
            return match end_of_line(bytes, target_end, stop, Reject::TargetMalformed)? {
                Some(_) => Err(Reject::VersionMissing),
                None => Ok(None),
            };
        }
        Some(_) => return Err(Reject::TargetMalformed),
    }
    let Some((version, next)) = parse_version(bytes, target_end + 1)? else { return Ok(None) };
    head.version = version;
    head.method_span = Span::between(start, method_end);
    head.method = method;
    head.line = Span::between(start, next - 2);
    head.target = Target::parse(bytes, Span::between(target_at, target_end), head.method)?;
    Ok(Some(next))
}

/// Where the space after the method stands.
fn method_end(bytes: &[u8], start: usize) -> Result<Option<usize>, Reject> {
    let mut pos = start;
    loop {
        match bytes.get(pos) {
            Some(&b) if TOKEN[usize::from(b)] && pos - start < METHOD_BYTES_MAX => pos += 1,
            Some(&b) if TOKEN[usize::from(b)] => return Err(Reject::MethodTooLong),
            Some(b' ') if pos > start => return Ok(Some(pos)),
            Some(b'\n') => return Err(Reject::BareLineFeed),
            Some(_) => return Err(Reject::RequestLineMalformed),
            None => return Ok(None),
        }
    }
}

/// The first position from `at` on whose octet is not part of a target: what is no visible
/// ASCII, `#` and backslash.
///
/// Wider than RFC 3986 by ``" < > [ ] ^ ` { | }``, which browsers send in queries; a
/// fragment has no place in a target, and a backslash is a slash to some.
fn skip_target(bytes: &[u8], at: usize) -> usize {
    swar::find(bytes, at, |word| {
        swar::below(word, 0x21)
            | swar::equal(word, 0x7f)
            | swar::high(word)
            | swar::equal(word, b'#')
            | swar::equal(word, b'\\')
    })
}

/// Reads `HTTP/1.1` and its CRLF: the version and where the next line begins.
fn parse_version(bytes: &[u8], at: usize) -> Result<Option<(Version, usize)>, Reject> {
    if let Some(b"HTTP/1.1\r\n") = bytes.get(at..at + 10) {
        return Ok(Some((Version::Http11, at + 10)));
    }
    let rest = &bytes[at..];
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
    if !rest.iter().zip(expected).all(|(&b, fits)| fits(b)) {
        return Err(Reject::VersionMalformed);
    }
    let Some(&stop) = rest.get(8) else { return Ok(None) };
    let Some(next) = end_of_line(bytes, at + 8, stop, Reject::VersionMalformed)? else { return Ok(None) };
    match (rest[5], rest[7]) {
        (b'1', b'0') => Ok(Some((Version::Http10, next))),
        //= RFC 9110 §2.5: a higher minor version is answered as the highest one that is known
        (b'1', _) => Ok(Some((Version::Http11, next))),
        _ => Err(Reject::VersionNotSupported),
    }
}

/// Judges a complete head: its host, its framing, its expectation, its persistence.
fn decide(bytes: &[u8], head: &mut RequestHead) -> Result<(), Reject> {
    decide_host(bytes, head)?;
    decide_authority(head);
    head.framing = framing::decide(bytes, head)?;
    head.expectation = persist::expectation(bytes, head)?;
    head.persistence = persist::decide(bytes, head);
    Ok(())
}

//= RFC 9112 §3.2: 400 to HTTP/1.1 without Host, to more than one Host, to an invalid Host
fn decide_host(bytes: &[u8], head: &mut RequestHead) -> Result<(), Reject> {
    if head.is_repeated(Known::Host) {
        return Err(Reject::HostRepeated);
    }
    let host = head.value(bytes, Known::Host);
    match host {
        None if head.version == Version::Http11 => return Err(Reject::HostMissing),
        None => {}
        Some(value) if head.is_known_host(value) => {}
        Some(value) => {
            Host::parse(value)?;
            head.know_host(value);
        }
    }
    Ok(())
}

fn decide_authority(head: &mut RequestHead) {
    //= RFC 9112 §3.2.2, §3.3: the authority of an absolute-form or an authority-form wins over Host
    head.authority = head.target.authority.or(head.value_span(Known::Host));
}
