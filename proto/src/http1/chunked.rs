//! Decodes chunked content in place (RFC 9112 §7.1).
//!
//! ```text
//!   Size ──size > 0──► Data ──all data──► DataEnd ──CRLF──► Size
//!     └────size = 0──► Trailers ──empty line──► Done
//! ```
//!
//! ```
//! use selvedge_proto::{MessageLimits, http1::chunked::{ChunkEvent, ChunkedDecoder}};
//! let mut decoder = ChunkedDecoder::new();
//! let bytes = b"3\r\nabc\r\n0\r\n\r\n";
//! let limits = MessageLimits::default();
//! let Ok(ChunkEvent::Data { start, end }) = decoder.decode_next(bytes, &limits) else { panic!() };
//! assert_eq!(&bytes[start..end], b"abc");
//! assert_eq!(decoder.decode_next(&bytes[end..], &limits), Ok(ChunkEvent::Done { consumed: 7 }));
//! ```

use crate::field::{Fields, IS_TOKEN_BYTE, is_value_byte};
use crate::http1::parse_fields::{FieldLine, parse_field_line};
use crate::limits::{CHUNK_OVERHEAD_RATIO, HEAD_BYTES_CEILING, MessageLimits};
use crate::message::is_forbidden_in_trailers;
use crate::reject::Reject;

/// Most hexadecimal digits of a chunk size: a size of 15 digits fits into 60 bits.
const SIZE_DIGITS_MAX: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderState {
    Size,
    Data { remaining: u64 },
    DataEnd,
    Trailers,
    Done,
}

/// The result of decoding the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkEvent {
    /// The bytes from `start` to `end` are content. The caller continues at `end`.
    Data {
        /// Offset of the first byte of content.
        start: usize,
        /// Offset after the last byte of content.
        end: usize,
    },
    /// More bytes are needed. The caller continues at `consumed`.
    NeedMore {
        /// Bytes that the decoder has consumed.
        consumed: usize,
    },
    /// The content is complete. The next message begins at `consumed`.
    Done {
        /// Bytes that the decoder has consumed.
        consumed: usize,
    },
}

/// Decodes the chunked content of one message.
#[derive(Debug)]
pub struct ChunkedDecoder {
    state: DecoderState,
    content_bytes: u64,
    framing_bytes: u64,
    trailer_bytes: usize,
    trailers: Fields,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkedDecoder {
    /// Creates a decoder that expects the first chunk size.
    pub const fn new() -> Self {
        Self {
            state: DecoderState::Size,
            content_bytes: 0,
            framing_bytes: 0,
            trailer_bytes: 0,
            trailers: Fields::new(),
        }
    }

    /// Returns the trailer fields; complete after [`ChunkEvent::Done`].
    pub fn trailers(&self) -> &Fields {
        &self.trailers
    }

    /// Decodes the next bytes, up to the end of the available content of one chunk.
    ///
    /// # Errors
    /// If the bytes are not chunked content or exceed a limit. The decoder must then not be used again.
    pub fn decode_next(&mut self, bytes: &[u8], limits: &MessageLimits) -> Result<ChunkEvent, Reject> {
        let mut consumed = 0;
        loop {
            match self.state {
                DecoderState::Size => {
                    let Some((size, next)) = parse_size_line(&bytes[consumed..], limits)? else {
                        return Ok(ChunkEvent::NeedMore { consumed });
                    };
                    consumed += next;
                    self.charge_overhead(next + 2, size, limits)?;
                    self.state =
                        if size == 0 { DecoderState::Trailers } else { DecoderState::Data { remaining: size } };
                }
                DecoderState::Data { remaining } => {
                    let available = usize::try_from(remaining).unwrap_or(usize::MAX).min(bytes.len() - consumed);
                    if available == 0 {
                        return Ok(ChunkEvent::NeedMore { consumed });
                    }
                    let remaining = remaining - available as u64;
                    self.state = if remaining == 0 { DecoderState::DataEnd } else { DecoderState::Data { remaining } };
                    return Ok(ChunkEvent::Data { start: consumed, end: consumed + available });
                }
                DecoderState::DataEnd => match bytes[consumed..] {
                    [b'\r', b'\n', ..] => {
                        consumed += 2;
                        self.state = DecoderState::Size;
                    }
                    [] | [b'\r'] => return Ok(ChunkEvent::NeedMore { consumed }),
                    _ => return Err(Reject::ChunkDataNotTerminated),
                },
                DecoderState::Trailers => match self.parse_trailer_line(&bytes[consumed..], limits)? {
                    Some(next) => consumed += next,
                    None => return Ok(ChunkEvent::NeedMore { consumed }),
                },
                DecoderState::Done => return Ok(ChunkEvent::Done { consumed }),
            }
        }
    }

    /// Counts the framing bytes and content bytes of a chunk, and checks that the framing is within
    /// its allowance.
    fn charge_overhead(&mut self, framing: usize, content: u64, limits: &MessageLimits) -> Result<(), Reject> {
        self.framing_bytes += framing as u64;
        self.content_bytes = self.content_bytes.saturating_add(content);
        let allowed =
            self.content_bytes.saturating_mul(CHUNK_OVERHEAD_RATIO).saturating_add(limits.chunk_overhead_allowance);
        if self.framing_bytes > allowed { Err(Reject::ChunkOverheadTooLarge) } else { Ok(()) }
    }

    /// Parses one line of the trailer section. Returns its length, or `None` if it is not complete.
    fn parse_trailer_line(&mut self, bytes: &[u8], limits: &MessageLimits) -> Result<Option<usize>, Reject> {
        let bytes_max = limits.trailer_bytes_max.min(HEAD_BYTES_CEILING);
        let allowed = bytes_max - self.trailer_bytes.min(bytes_max);
        let readable = &bytes[..bytes.len().min(allowed)];
        let trailer_reject = |reject| match reject {
            Reject::BareLineFeed | Reject::BareCarriageReturn => reject,
            _ => Reject::TrailerInvalid,
        };
        match parse_field_line(readable, 0).map_err(trailer_reject)? {
            FieldLine::Field { span, next } => {
                let name = core::str::from_utf8(span.name.of(bytes)).map_err(|_| Reject::TrailerInvalid)?;
                if is_forbidden_in_trailers(name.as_bytes()) {
                    return Err(Reject::TrailerForbidden);
                }
                self.trailers.append(name, span.value.of(bytes)).map_err(|_| Reject::TrailerForbidden)?;
                self.trailer_bytes += next;
                Ok(Some(next))
            }
            FieldLine::End { next } => {
                self.state = DecoderState::Done;
                Ok(Some(next))
            }
            FieldLine::Incomplete if bytes.len() >= allowed => Err(Reject::TrailersTooLarge),
            FieldLine::Incomplete => Ok(None),
        }
    }
}

/// Parses `size [extensions] CRLF`. Returns the size and the length of the line, or `None` if it is
/// not complete.
fn parse_size_line(bytes: &[u8], limits: &MessageLimits) -> Result<Option<(u64, usize)>, Reject> {
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
    let extension = rest.iter().take_while(|&&b| is_value_byte(b)).count();
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

/// Whether the bytes are `*( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )`
/// (RFC 9112 §7.1.1).
fn is_extension_list(mut rest: &[u8]) -> bool {
    fn skip_space(mut bytes: &[u8]) -> &[u8] {
        while let [b' ' | b'\t', tail @ ..] = bytes {
            bytes = tail;
        }
        bytes
    }
    fn skip_token(bytes: &[u8]) -> Option<&[u8]> {
        let len = bytes.iter().take_while(|&&b| IS_TOKEN_BYTE[usize::from(b)]).count();
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

    /// Decodes the bytes whole and byte by byte, and checks that the results are equal.
    fn decode(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Reject> {
        let run = |cut: usize| {
            let (mut decoder, mut content, mut at, mut have) =
                (ChunkedDecoder::new(), Vec::new(), 0, cut.min(bytes.len()));
            loop {
                match decoder.decode_next(&bytes[at..have], &MessageLimits::default())? {
                    ChunkEvent::Data { start, end } => {
                        content.extend_from_slice(&bytes[at + start..at + end]);
                        at += end;
                    }
                    ChunkEvent::NeedMore { consumed } if have < bytes.len() => {
                        at += consumed;
                        have = (have + cut).min(bytes.len());
                    }
                    ChunkEvent::NeedMore { .. } => return Ok(None),
                    ChunkEvent::Done { consumed } => return Ok(Some((content, at + consumed))),
                }
            }
        };
        let whole = run(usize::MAX / 2);
        assert_eq!(whole, run(1), "{}", bytes.escape_ascii());
        whole
    }

    #[test]
    fn valid_and_invalid_chunks() {
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
            (b"5\r\nhello!!\r\n", Reject::ChunkDataNotTerminated),
            (b"5\r\nhello0\r\n", Reject::ChunkDataNotTerminated),
            (b"5\r\nhello\n0\r\n", Reject::ChunkDataNotTerminated),
            (b"2\r\r;a\r\n", Reject::BareCarriageReturn),
            (b"0\r\nContent-Length: 5\r\n\r\n", Reject::TrailerForbidden),
            (b"0\r\nx y: 5\r\n\r\n", Reject::TrailerInvalid),
            (b"0\r\nx: 5\n\r\n", Reject::BareLineFeed),
        ] {
            assert_eq!(decode(bytes), Err(reject), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn trailer_section_is_bounded_by_the_ceiling_for_any_limit() {
        let limits = MessageLimits { trailer_bytes_max: usize::MAX, ..MessageLimits::default() };
        let bytes = [b"0\r\nx: ", &b"a".repeat(70_000)[..], b"\r\n\r\n"].concat();
        assert_eq!(ChunkedDecoder::new().decode_next(&bytes, &limits), Err(Reject::TrailersTooLarge));
    }

    #[test]
    fn chunk_overhead_extensions_and_trailers_are_bounded() {
        assert_eq!(decode(&b"1\r\na\r\n".repeat(1_000_000)), Err(Reject::ChunkOverheadTooLarge));
        let ten = [&b"A\r\n0123456789\r\n".repeat(100_000)[..], b"0\r\n\r\n"].concat();
        assert_eq!(decode(&ten).map(|d| d.unwrap().0.len()), Ok(1_000_000));
        assert_eq!(decode(&[b"5;", &b"a".repeat(300)[..]].concat()), Err(Reject::ChunkExtensionTooLong));
        assert_eq!(decode(&[b"0\r\n", &b"a: b\r\n".repeat(2_000)[..]].concat()), Err(Reject::TrailersTooLarge));
    }
}
