//! Parses field lines strictly, one at a time (RFC 9112 §5).
//!
//! Refuses white space before the colon, folded lines, bare LF, bare CR and control characters. If a
//! recipient repaired one of them, two recipients could parse two different messages.

use crate::field::IS_TOKEN_BYTE;
use crate::head::FieldLineSpan;
use crate::reject::Reject;
use crate::swar;
use crate::target::Span;

/// The result of parsing one line of a field section.
pub(crate) enum FieldLine {
    /// A field line. The next line begins at `next`.
    Field { span: FieldLineSpan, next: usize },
    /// The empty line that ends the section. The bytes after the section begin at `next`.
    End { next: usize },
    /// The line is not complete; more bytes are needed.
    Incomplete,
}

/// Parses the line that begins at `start`.
pub(crate) fn parse_field_line(bytes: &[u8], start: usize) -> Result<FieldLine, Reject> {
    let rest = bytes.get(start..).unwrap_or(&[]);
    let mut pos = start + rest.iter().position(|&b| !IS_TOKEN_BYTE[usize::from(b)]).unwrap_or(rest.len());
    let Some(&stop) = bytes.get(pos) else { return Ok(FieldLine::Incomplete) };
    if stop != b':' || pos == start {
        return parse_line_without_name(bytes, start, pos, stop);
    }
    let name = Span::between(start, pos);
    pos += 1;
    while let Some(b' ' | b'\t') = bytes.get(pos) {
        pos += 1;
    }
    let value_start = pos;
    let end = find_value_end(bytes, pos);
    let Some(&stop) = bytes.get(end) else { return Ok(FieldLine::Incomplete) };
    let next = parse_line_end(bytes, end, stop, Reject::FieldValueInvalid)?;
    let mut value_end = end;
    while value_end > value_start && matches!(bytes[value_end - 1], b' ' | b'\t') {
        value_end -= 1;
    }
    match next {
        Some(next) => {
            Ok(FieldLine::Field { span: FieldLineSpan { name, value: Span::between(value_start, value_end) }, next })
        }
        None => Ok(FieldLine::Incomplete),
    }
}

/// Parses a line that does not begin with `name:`. `stop` is the first byte that is not part of a
/// token, at `pos`.
#[cold]
fn parse_line_without_name(bytes: &[u8], start: usize, pos: usize, stop: u8) -> Result<FieldLine, Reject> {
    let at_start = pos == start;
    match stop {
        b'\r' | b'\n' if at_start => {
            let next = parse_line_end(bytes, pos, stop, Reject::FieldNameInvalid)?;
            Ok(next.map_or(FieldLine::Incomplete, |next| FieldLine::End { next }))
        }
        b' ' | b'\t' if at_start => Err(Reject::FieldLineFolded),
        b' ' | b'\t' => Err(Reject::WhitespaceBeforeColon),
        b'\r' | b'\n' => Err(Reject::ColonMissing),
        _ => Err(Reject::FieldNameInvalid),
    }
}

/// Parses the CRLF at `end`, where `stop` is the first byte.
///
/// Returns the start of the next line, or `None` if the LF is not yet received. Fails with
/// `otherwise` if `stop` is neither CR nor LF.
#[inline]
pub(crate) fn parse_line_end(bytes: &[u8], end: usize, stop: u8, otherwise: Reject) -> Result<Option<usize>, Reject> {
    match (stop, bytes.get(end + 1)) {
        (b'\r', Some(b'\n')) => Ok(Some(end + 2)),
        (b'\r', Some(_)) => Err(Reject::BareCarriageReturn),
        (b'\r', None) => Ok(None),
        (b'\n', _) => Err(Reject::BareLineFeed),
        _ => Err(otherwise),
    }
}

/// Returns the first position at or after `start` with a byte that is not part of a value: a control
/// character other than a tab.
pub(super) fn find_value_end(bytes: &[u8], start: usize) -> usize {
    let mut pos = start;
    loop {
        pos = swar::find(bytes, pos, |word| swar::below(word, 0x20) | swar::equal_to(word, 0x7f));
        if bytes.get(pos) != Some(&b'\t') {
            return pos;
        }
        pos += 1;
    }
}
