//! Content in chunks (RFC 9112 §7.1), decoded in place.
//!
//! ```text
//!   Size ──size > 0──► Data ──all of it──► DataEnd ──CRLF──► Size
//!     └────size = 0──► Trailers ──empty line──► Done
//! ```
//!
//! ```
//! use selvedge_proto::{Limits, http1::chunked::{Decoder, Step}};
//! let mut decoder = Decoder::new();
//! let bytes = b"3\r\nabc\r\n0\r\n\r\n";
//! let Ok(Step::Data { start, end }) = decoder.step(bytes, &Limits::default()) else { panic!() };
//! assert_eq!(&bytes[start..end], b"abc");
//! assert_eq!(decoder.step(&bytes[end..], &Limits::default()), Ok(Step::Done { consumed: 7 }));
//! ```

use crate::field::{Fields, TOKEN, is_value_octet};
use crate::http1::parse_fields::{Line, parse_line};
use crate::limits::{CHUNK_OVERHEAD_RATIO, HEAD_BYTES_CEILING, Limits};
use crate::reject::Reject;

/// Most hexadecimal digits of a chunk size: 15 keep every sum within 63 bits.
const SIZE_DIGITS_MAX: usize = 15;

/// Fields that a trailer may not name, since they frame, route, authorize or describe the
/// content that came before (RFC 9110 §6.5.1).
const FORBIDDEN_IN_TRAILERS: [&str; 18] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "max-forwards",
    "proxy-authorization",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Data { left: u64 },
    DataEnd,
    Trailers,
    Done,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Content stands from `start` to `end`; go on from `end`.
    Data {
        /// First byte of content.
        start: usize,
        /// The byte after it.
        end: usize,
    },
    /// `consumed` bytes are done with; more are needed.
    NeedMore {
        /// Bytes that need not be given again.
        consumed: usize,
    },
    /// The content is complete; what follows it begins at `consumed`.
    Done {
        /// Bytes that belonged to it.
        consumed: usize,
    },
}

/// Decodes one content.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    content_bytes: u64,
    framing_bytes: u64,
    trailer_bytes: usize,
    trailers: Fields,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder at the first chunk size.
    pub const fn new() -> Self {
        Self { state: State::Size, content_bytes: 0, framing_bytes: 0, trailer_bytes: 0, trailers: Fields::new() }
    }

    /// The trailer fields; complete after [`Step::Done`].
    pub fn trailers(&self) -> &Fields {
        &self.trailers
    }

    /// Looks at the next bytes.
    ///
    /// # Errors
    /// When they are no chunked content, or break a limit. The decoder is then of no more use.
    pub fn step(&mut self, bytes: &[u8], limits: &Limits) -> Result<Step, Reject> {
        let mut at = 0;
        loop {
            match self.state {
                State::Size => {
                    let Some((size, next)) = parse_size_line(&bytes[at..], limits)? else {
                        return Ok(Step::NeedMore { consumed: at });
                    };
                    at += next;
                    self.pay(next + 2, size, limits)?;
                    self.state = if size == 0 { State::Trailers } else { State::Data { left: size } };
                }
                State::Data { left } => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    if here == 0 {
                        return Ok(Step::NeedMore { consumed: at });
                    }
                    let left = left - here as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data { left } };
                    return Ok(Step::Data { start: at, end: at + here });
                }
                State::DataEnd => match bytes[at..] {
                    [b'\r', b'\n', ..] => {
                        at += 2;
                        self.state = State::Size;
                    }
                    [] | [b'\r'] => return Ok(Step::NeedMore { consumed: at }),
                    _ => return Err(Reject::ChunkDataUnterminated),
                },
                State::Trailers => match self.trailer_line(&bytes[at..], limits)? {
                    Some(next) => at += next,
                    None => return Ok(Step::NeedMore { consumed: at }),
                },
                State::Done => return Ok(Step::Done { consumed: at }),
            }
        }
    }

    /// Counts what a chunk costs against what it carries.
    fn pay(&mut self, framing: usize, content: u64, limits: &Limits) -> Result<(), Reject> {
        self.framing_bytes += framing as u64;
        self.content_bytes = self.content_bytes.saturating_add(content);
        let paid =
            self.content_bytes.saturating_mul(CHUNK_OVERHEAD_RATIO).saturating_add(limits.chunk_overhead_bytes_free);
        if self.framing_bytes > paid { Err(Reject::ChunkOverhead) } else { Ok(()) }
    }

    /// Reads one line of the trailer section; how long it is.
    fn trailer_line(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Reject> {
        let bytes_max = limits.trailer_bytes_max.min(HEAD_BYTES_CEILING);
        let allowed = bytes_max - self.trailer_bytes.min(bytes_max);
        let readable = &bytes[..bytes.len().min(allowed)];
        let malformed = |reject| match reject {
            Reject::BareLineFeed | Reject::BareCarriageReturn => reject,
            _ => Reject::TrailerMalformed,
        };
        match parse_line(readable, 0).map_err(malformed)? {
            Line::Field { span, next } => {
                let name = core::str::from_utf8(span.name.of(bytes)).map_err(|_| Reject::TrailerMalformed)?;
                if FORBIDDEN_IN_TRAILERS.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden)) {
                    return Err(Reject::TrailerForbidden);
                }
                self.trailers.append(name, span.value.of(bytes)).map_err(|_| Reject::TrailerForbidden)?;
                self.trailer_bytes += next;
                Ok(Some(next))
            }
            Line::End { next } => {
                self.state = State::Done;
                Ok(Some(next))
            }
            Line::Incomplete if bytes.len() >= allowed => Err(Reject::TrailersTooLarge),
            Line::Incomplete => Ok(None),
        }
    }
}

/// Reads `size [extensions] CRLF`: the size and how long the line is.
fn parse_size_line(bytes: &[u8], limits: &Limits) -> Result<Option<(u64, usize)>, Reject> {
    let digits = bytes.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    if digits > SIZE_DIGITS_MAX || (digits == 0 && !bytes.is_empty()) {
        return Err(Reject::ChunkSizeInvalid);
    }
    let size = bytes[..digits].iter().fold(0, |n, &d| n << 4 | u64::from(char::from(d).to_digit(16).unwrap_or(0)));
    match &bytes[digits..] {
        [b'\r', b'\n', ..] => return Ok(Some((size, digits + 2))),
        [] | [b'\r'] => return Ok(None),
        [b'\n', ..] => return Err(Reject::BareLineFeed),
        [b'\r', ..] => return Err(Reject::BareCarriageReturn),
        [b';' | b' ' | b'\t', ..] => {}
        _ => return Err(Reject::ChunkSizeInvalid),
    }
    let rest = &bytes[digits..];
    let extension = rest.iter().take_while(|&&b| is_value_octet(b)).count();
    if extension > limits.chunk_extension_bytes_max {
        return Err(Reject::ChunkExtensionTooLong);
    }
    match &rest[extension..] {
        [b'\r', b'\n', ..] if is_extension_list(&rest[..extension]) => Ok(Some((size, digits + extension + 2))),
        [] | [b'\r'] => Ok(None),
        [b'\n', ..] => Err(Reject::BareLineFeed),
        [b'\r', b'\n', ..] => Err(Reject::ChunkExtensionInvalid),
        [b'\r', ..] => Err(Reject::BareCarriageReturn),
        _ => Err(Reject::ChunkExtensionInvalid),
    }
}

/// `*( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )` (RFC 9112 §7.1.1).
fn is_extension_list(mut rest: &[u8]) -> bool {
    fn skip_space(mut bytes: &[u8]) -> &[u8] {
        while let [b' ' | b'\t', tail @ ..] = bytes {
            bytes = tail;
        }
        bytes
    }
    fn skip_token(bytes: &[u8]) -> Option<&[u8]> {
        let len = bytes.iter().take_while(|&&b| TOKEN[usize::from(b)]).count();
        (len > 0).then(|| &bytes[len..])
    }
    fn skip_quoted(bytes: &[u8]) -> Option<&[u8]> {
        let mut at = 1;
        loop {
            match bytes.get(at)? {
                b'"' => return Some(&bytes[at + 1..]),
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
    }
    while !rest.is_empty() {
        let [b';', tail @ ..] = skip_space(rest) else { return false };
        let Some(tail) = skip_token(skip_space(tail)) else { return false };
        rest = tail;
        if let [b'=', tail @ ..] = skip_space(rest) {
            let value = skip_space(tail);
            let after = if value.first() == Some(&b'"') { skip_quoted(value) } else { skip_token(value) };
            let Some(after) = after else { return false };
            rest = after;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes the bytes whole and byte by byte, and wants the same of both.
    fn decode(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Reject> {
        let run = |cut: usize| {
            let (mut decoder, mut content, mut at, mut have) = (Decoder::new(), Vec::new(), 0, cut.min(bytes.len()));
            loop {
                match decoder.step(&bytes[at..have], &Limits::default())? {
                    Step::Data { start, end } => {
                        content.extend_from_slice(&bytes[at + start..at + end]);
                        at += end;
                    }
                    Step::NeedMore { consumed } if have < bytes.len() => {
                        at += consumed;
                        have = (have + cut).min(bytes.len());
                    }
                    Step::NeedMore { .. } => return Ok(None),
                    Step::Done { consumed } => return Ok(Some((content, at + consumed))),
                }
            }
        };
        let whole = run(usize::MAX / 2);
        assert_eq!(whole, run(1), "{}", bytes.escape_ascii());
        whole
    }

    #[test]
    fn contents() {
        assert_eq!(decode(b"5\r\nhello\r\n0\r\n\r\nnext"), Ok(Some((b"hello".to_vec(), 15))));
        assert_eq!(
            decode(b"5;a;b=c;d=\"e;\\\"f\"\r\nhello\r\n000\r\nX: y\r\n\r\n").map(|d| d.unwrap().0),
            Ok(b"hello".to_vec())
        );
        assert_eq!(decode(b"5 ;a = b\r\nhello\r\n0\r\n\r\n").map(|d| d.unwrap().0), Ok(b"hello".to_vec()));
        assert_eq!(decode(b"5\r\nhel"), Ok(None));
        for (bytes, reject) in [
            (&b"5\nhello"[..], Reject::BareLineFeed),
            (b"5;a\nhello", Reject::BareLineFeed),
            (b"5;a\rX", Reject::BareCarriageReturn),
            (b"5 \r\nhello", Reject::ChunkExtensionInvalid),
            (b"5;\r\nhello", Reject::ChunkExtensionInvalid),
            (b"0x5\r\n", Reject::ChunkSizeInvalid),
            (b"+5\r\n", Reject::ChunkSizeInvalid),
            (b" 5\r\n", Reject::ChunkSizeInvalid),
            (b"\r\n", Reject::ChunkSizeInvalid),
            (b"1_0\r\n", Reject::ChunkSizeInvalid),
            (b"FFFFFFFFFFFFFFFF0\r\n", Reject::ChunkSizeInvalid),
            (b"5\r\nhello!!\r\n", Reject::ChunkDataUnterminated),
            (b"5\r\nhello0\r\n", Reject::ChunkDataUnterminated),
            (b"5\r\nhello\n0\r\n", Reject::ChunkDataUnterminated),
            (b"2\r\r;a\r\n", Reject::BareCarriageReturn),
            (b"0\r\nContent-Length: 5\r\n\r\n", Reject::TrailerForbidden),
            (b"0\r\nx y: 5\r\n\r\n", Reject::TrailerMalformed),
            (b"0\r\nx: 5\n\r\n", Reject::BareLineFeed),
        ] {
            assert_eq!(decode(bytes), Err(reject), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn no_setting_lets_a_trailer_outgrow_its_positions() {
        let limits = Limits { trailer_bytes_max: usize::MAX, ..Limits::default() };
        let bytes = [b"0\r\nx: ", &b"a".repeat(70_000)[..], b"\r\n\r\n"].concat();
        assert_eq!(Decoder::new().step(&bytes, &limits), Err(Reject::TrailersTooLarge));
    }

    #[test]
    fn framing_is_bounded_by_content() {
        assert_eq!(decode(&b"1\r\na\r\n".repeat(1_000_000)), Err(Reject::ChunkOverhead));
        let ten = [&b"A\r\n0123456789\r\n".repeat(100_000)[..], b"0\r\n\r\n"].concat();
        assert_eq!(decode(&ten).map(|d| d.unwrap().0.len()), Ok(1_000_000));
        assert_eq!(decode(&[b"5;", &b"a".repeat(300)[..]].concat()), Err(Reject::ChunkExtensionTooLong));
        assert_eq!(decode(&[b"0\r\n", &b"a: b\r\n".repeat(2_000)[..]].concat()), Err(Reject::TrailersTooLarge));
    }
}
