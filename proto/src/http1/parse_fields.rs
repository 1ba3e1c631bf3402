//! Field lines (RFC 9112 §5): one line at a time, strictly.
//!
//! Refused rather than repaired: white space before the colon, folded lines, bare LF,
//! bare CR, control octets. Each repair would let two recipients read two messages.

use crate::field::TOKEN;
use crate::head::FieldSpan;
use crate::reject::Reject;
use crate::swar;
use crate::target::Span;

/// What stands at the beginning of a line.
pub(crate) enum Line {
    /// A field; the next line begins at `next`.
    Field { span: FieldSpan, next: usize },
    /// The empty line that ends the section, and where the rest begins.
    End { next: usize },
    /// The line is not complete.
    Incomplete,
}

/// Reads the line that begins at `at`.
pub(crate) fn parse_line(bytes: &[u8], at: usize) -> Result<Line, Reject> {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let mut pos = at + rest.iter().position(|&b| !TOKEN[usize::from(b)]).unwrap_or(rest.len());
    let Some(&stop) = bytes.get(pos) else { return Ok(Line::Incomplete) };
    if stop != b':' || pos == at {
        return parse_other(bytes, at, pos, stop);
    }
    let name = Span::between(at, pos);
    pos += 1;
    while let Some(b' ' | b'\t') = bytes.get(pos) {
        pos += 1;
    }
    let value_at = pos;
    let end = skip_value(bytes, pos);
    let Some(&stop) = bytes.get(end) else { return Ok(Line::Incomplete) };
    let next = end_of_line(bytes, end, stop, Reject::FieldValueInvalid)?;
    let mut value_end = end;
    while value_end > value_at && matches!(bytes[value_end - 1], b' ' | b'\t') {
        value_end -= 1;
    }
    match next {
        Some(next) => Ok(Line::Field { span: FieldSpan { name, value: Span::between(value_at, value_end) }, next }),
        None => Ok(Line::Incomplete),
    }
}

/// A line that does not begin with `name:`.
#[cold]
fn parse_other(bytes: &[u8], at: usize, pos: usize, stop: u8) -> Result<Line, Reject> {
    let at_start = pos == at;
    match stop {
        b'\r' | b'\n' if at_start => {
            let next = end_of_line(bytes, pos, stop, Reject::FieldNameInvalid)?;
            Ok(next.map_or(Line::Incomplete, |next| Line::End { next }))
        }
        b' ' | b'\t' if at_start => Err(Reject::FoldedLine),
        b' ' | b'\t' => Err(Reject::SpaceBeforeColon),
        b'\r' | b'\n' => Err(Reject::FieldWithoutColon),
        _ => Err(Reject::FieldNameInvalid),
    }
}

/// Expects CRLF at `end`, where `stop` stands: where the next line begins, or `None` while
/// the LF has not come.
#[inline]
pub(crate) fn end_of_line(bytes: &[u8], end: usize, stop: u8, otherwise: Reject) -> Result<Option<usize>, Reject> {
    match (stop, bytes.get(end + 1)) {
        (b'\r', Some(b'\n')) => Ok(Some(end + 2)),
        (b'\r', Some(_)) => Err(Reject::BareCarriageReturn),
        (b'\r', None) => Ok(None),
        (b'\n', _) => Err(Reject::BareLineFeed),
        _ => Err(otherwise),
    }
}

/// The first position from `at` on whose octet is not part of a value: a control octet
/// other than a tab.
fn skip_value(bytes: &[u8], at: usize) -> usize {
    let mut pos = at;
    loop {
        pos = swar::find(bytes, pos, |word| swar::below(word, 0x20) | swar::equal(word, 0x7f));
        if bytes.get(pos) != Some(&b'\t') {
            return pos;
        }
        pos += 1;
    }
}
