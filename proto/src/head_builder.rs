//! Builds the head of a request from its parts, for requests that do not arrive as HTTP/1 text.
//!
//! The parts are checked like received text, and become the text and the positions of one canonical head. So all
//! code that reads a head works for every protocol version.

use crate::field::{IS_TOKEN_BYTE, is_field_value, is_token, trim};
use crate::head::{FieldLineSpan, RequestFraming, RequestHead, Version};
use crate::http1::{find_target_end, interpret_head};
use crate::limits::{FIELDS_CEILING, HEAD_BYTES_CEILING, METHOD_BYTES_MAX, MessageLimits};
use crate::method::Method;
use crate::reject::Reject;
use crate::target::{Span, Target};

/// The parts of a request line.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// The method token.
    pub method: &'a [u8],
    /// The target in one of its four forms. That of an extended CONNECT (RFC 8441) is a path, in HTTP/2 and HTTP/3.
    pub target: &'a [u8],
    /// The protocol version.
    pub version: Version,
}

/// A head that is being built: a request line, then fields, then [`HeadBuilder::finish`].
///
/// After an error, the head and the appended bytes have no meaning.
#[derive(Debug)]
pub struct HeadBuilder<'a> {
    bytes: &'a mut Vec<u8>,
    head: &'a mut RequestHead,
    /// Index in `bytes` of the first byte of the head.
    start: usize,
    bytes_max: usize,
    fields_max: usize,
}

impl<'a> HeadBuilder<'a> {
    /// Begins a head at the end of `bytes`. The positions in `head` count from there.
    ///
    /// # Errors
    /// Those of [`crate::http1::parse_request`] for an equal request line.
    pub fn new(
        bytes: &'a mut Vec<u8>,
        head: &'a mut RequestHead,
        limits: &MessageLimits,
        line: RequestLine<'_>,
    ) -> Result<Self, Reject> {
        let RequestLine { method, target, version } = line;
        if !method.iter().take(METHOD_BYTES_MAX).all(|&b| IS_TOKEN_BYTE[usize::from(b)]) || method.is_empty() {
            return Err(Reject::RequestLineInvalid);
        }
        if method.len() > METHOD_BYTES_MAX {
            return Err(Reject::MethodTooLong);
        }
        let version_text = version.as_str().as_bytes();
        let line_max = limits.request_line_bytes_max.min(HEAD_BYTES_CEILING - 4);
        let line_len = method.len() + target.len() + version_text.len() + 2;
        if line_len > line_max {
            return Err(Reject::RequestLineTooLong);
        }
        if target.is_empty() {
            return Err(Reject::RequestLineInvalid);
        }
        if find_target_end(target, 0) < target.len() {
            return Err(Reject::TargetInvalid);
        }
        head.clear();
        head.clear_section();
        let start = bytes.len();
        for part in [method, b" ", target, b" ", version_text, b"\r\n"] {
            bytes.extend_from_slice(part);
        }
        let target_start = method.len() + 1;
        head.version = version;
        head.method = Method::from_token(method);
        head.method_span = Span::between(0, method.len());
        head.request_line = Span::between(0, line_len);
        let target_span = Span::between(target_start, target_start + target.len());
        head.target = match head.method {
            //= RFC 8441 §4: an extended CONNECT has a path
            Method::Connect if !version.is_http1() && target.starts_with(b"/") => {
                Target::parse(&bytes[start..], target_span, Method::Other)?
            }
            method => Target::parse(&bytes[start..], target_span, method)?,
        };
        head.section_start = line_len as u16 + 2;
        let bytes_max = limits.head_bytes_max.min(HEAD_BYTES_CEILING);
        Ok(Self { bytes, head, start, bytes_max, fields_max: limits.fields_max.min(FIELDS_CEILING) })
    }

    /// Appends a field line. White space around the value is removed.
    ///
    /// # Errors
    /// [`Reject::FieldNameInvalid`], [`Reject::FieldValueInvalid`], [`Reject::TooManyFields`] or
    /// [`Reject::HeadTooLarge`].
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        let value = trim(value);
        if !is_token(name) {
            return Err(Reject::FieldNameInvalid);
        }
        if !is_field_value(value) {
            return Err(Reject::FieldValueInvalid);
        }
        self.checked_field(name, value)
    }

    /// Appends a field line whose name and value are valid and trimmed.
    ///
    /// # Errors
    /// [`Reject::TooManyFields`] or [`Reject::HeadTooLarge`].
    pub(crate) fn checked_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        self.begin_line(name, value.len())?;
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Appends one field line with all values, which are valid, trimmed and not empty, and `"; "` between them.
    ///
    /// # Errors
    /// [`Reject::TooManyFields`] or [`Reject::HeadTooLarge`].
    pub(crate) fn joined_field<'v>(
        &mut self,
        name: &[u8],
        values: impl Iterator<Item = &'v [u8]> + Clone,
    ) -> Result<(), Reject> {
        const SEPARATOR: &[u8] = b"; ";
        let len: usize = values.clone().map(|value| value.len() + SEPARATOR.len()).sum();
        self.begin_line(name, len.saturating_sub(SEPARATOR.len()))?;
        for (index, value) in values.enumerate() {
            if index > 0 {
                self.bytes.extend_from_slice(SEPARATOR);
            }
            self.bytes.extend_from_slice(value);
        }
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Appends the name of a field and records its line, if the limits permit a value of this length.
    fn begin_line(&mut self, name: &[u8], value_len: usize) -> Result<(), Reject> {
        if usize::from(self.head.field_count) == self.fields_max {
            return Err(Reject::TooManyFields);
        }
        let name_start = self.bytes.len() - self.start - usize::from(self.head.section_start);
        let value_start = name_start + name.len() + 2;
        let line_len = name.len() + value_len + 4;
        // The empty line follows.
        if self.bytes.len() - self.start + line_len + 2 > self.bytes_max {
            return Err(Reject::HeadTooLarge);
        }
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        let span = FieldLineSpan {
            name: Span::between(name_start, name_start + name.len()),
            value: Span::between(value_start, value_start + value_len),
        };
        self.head.add_field(name, span);
        Ok(())
    }

    /// Completes the head: decides host, framing, expectation and persistence.
    ///
    /// # Errors
    /// Those of [`crate::http1::parse_request`] for a complete head.
    pub fn finish(self) -> Result<(), Reject> {
        self.finish_unframed(RequestFraming::None)
    }

    /// Completes the head. Its framing is `unframed` unless a field decides it: content follows in a stream of HTTP/2
    /// or HTTP/3 even if no field announces it.
    ///
    /// # Errors
    /// Those of [`HeadBuilder::finish`].
    pub fn finish_unframed(self, unframed: RequestFraming) -> Result<(), Reject> {
        let Self { bytes, head, start, bytes_max, .. } = self;
        bytes.extend_from_slice(b"\r\n");
        let built = &bytes[start..];
        if built.len() > bytes_max {
            return Err(Reject::HeadTooLarge);
        }
        head.len = built.len();
        interpret_head(built, head, unframed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a head. Returns its text.
    fn build(line: [&str; 2], fields: &[(&str, &str)], limits: &MessageLimits) -> Result<String, Reject> {
        let (mut bytes, mut head) = (b"before".to_vec(), RequestHead::default());
        let line = RequestLine { method: line[0].as_bytes(), target: line[1].as_bytes(), version: Version::Http11 };
        let mut builder = HeadBuilder::new(&mut bytes, &mut head, limits, line)?;
        for (name, value) in fields {
            builder.field(name.as_bytes(), value.as_bytes())?;
        }
        builder.finish()?;
        Ok(String::from_utf8(bytes.split_off(6)).unwrap())
    }

    #[test]
    fn parts_that_would_change_the_message_are_refused() {
        let limits = MessageLimits::default();
        let host = ("host", "a");
        let line = |method, target| build([method, target], &[host], &limits);
        let field = |name, value| build(["GET", "/"], &[host, (name, value)], &limits);
        for (got, expected) in [
            (line("", "/"), Reject::RequestLineInvalid),
            (line("GET /x HTTP/1.1\r\nX:", "/"), Reject::RequestLineInvalid),
            (line(&"M".repeat(METHOD_BYTES_MAX + 1), "/"), Reject::MethodTooLong),
            (line("GET", ""), Reject::RequestLineInvalid),
            (line("GET", "/ HTTP/1.0\r\nx: y"), Reject::TargetInvalid),
            (line("GET", "/#a"), Reject::TargetInvalid),
            (line("GET", "*"), Reject::TargetFormInvalid),
            (line("GET", "http://u@a/"), Reject::HostInvalid),
            (field("", "a"), Reject::FieldNameInvalid),
            (field("a b", "a"), Reject::FieldNameInvalid),
            (field(":path", "/"), Reject::FieldNameInvalid),
            (field("a", "b\r\nc: d"), Reject::FieldValueInvalid),
            (field("a", "b\0"), Reject::FieldValueInvalid),
            (field("host", "b"), Reject::HostRepeated),
            (field("content-length", "+1"), Reject::ContentLengthInvalid),
            (build(["GET", "/"], &[], &limits), Reject::HostMissing),
            (
                build(["GET", "/"], &[host, ("content-length", "1"), ("transfer-encoding", "chunked")], &limits),
                Reject::ContentLengthWithTransferEncoding,
            ),
        ] {
            assert_eq!(got, Err(expected));
        }
        assert_eq!(field("a", " \tb c\t").as_deref(), Ok("GET / HTTP/1.1\r\nhost: a\r\na: b c\r\n\r\n"));
    }

    #[test]
    fn limits_are_exact() {
        let head = "GET / HTTP/1.1\r\nhost: a\r\nb: c\r\n\r\n";
        let exact = MessageLimits {
            request_line_bytes_max: "GET / HTTP/1.1".len(),
            head_bytes_max: head.len(),
            fields_max: 2,
            ..MessageLimits::default()
        };
        let built = |limits| build(["GET", "/"], &[("host", "a"), ("b", "c")], &limits);
        assert_eq!(built(exact).as_deref(), Ok(head));
        let line_max = exact.request_line_bytes_max - 1;
        assert_eq!(built(MessageLimits { request_line_bytes_max: line_max, ..exact }), Err(Reject::RequestLineTooLong));
        assert_eq!(built(MessageLimits { head_bytes_max: head.len() - 1, ..exact }), Err(Reject::HeadTooLarge));
        assert_eq!(built(MessageLimits { head_bytes_max: 10, ..exact }), Err(Reject::HeadTooLarge));
        assert_eq!(built(MessageLimits { fields_max: 1, ..exact }), Err(Reject::TooManyFields));
    }
}
