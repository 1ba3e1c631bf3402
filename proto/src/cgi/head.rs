//! Parses the head of a script's response as strictly as that of any other response (RFC 3875 §6).
//!
//! Lines end with LF or CRLF. A head that could be read in two ways is refused: a field of the gateway that occurs twice,
//! two lengths, a transfer coding, a folded line.

use crate::field::{Fields, is_field_value, is_token, trim};
use crate::limits::MessageLimits;
use crate::status::StatusCode;
use core::fmt;

/// The head of a script's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptHead {
    /// The kind of response.
    pub response: ScriptResponse,
    /// The fields for the client, without Status and those that the server writes.
    pub fields: Fields,
    /// The length of the content, if the script states it.
    pub content_length: Option<u64>,
    /// The length of the head in bytes, including the empty line.
    pub len: usize,
}

/// The kind of a script's response (RFC 3875 §6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptResponse {
    /// A response with this status. Without a Status, 200, or 302 if a Location has another URI.
    Document(StatusCode),
    /// The response for this path and query of this server (§6.2.2).
    LocalRedirect(String),
}

/// Why the output of a script is not a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedScriptHead {
    /// The head is longer than the limit.
    TooLong,
    /// The head has more fields than the limit.
    TooManyFields,
    /// A line has no colon, an invalid name, or white space before the colon.
    FieldName,
    /// A value has a control character.
    FieldValue,
    /// A line begins with white space, which continues the line before.
    FoldedLine,
    /// Status is not a number from 200 to 599, with a text or none.
    Status,
    /// Content-Length is not a number.
    ContentLength,
    /// Content-Type, Content-Length, Location or Status occurs twice.
    Repeated,
    /// Transfer-Encoding is for the server to choose.
    TransferCoding,
    /// Location is empty or has white space.
    Location,
    /// None of Content-Type, Location and Status is there (§6.2).
    Empty,
    /// A status that forbids content, with a length above 0.
    ContentForbidden,
}

impl MalformedScriptHead {
    /// Returns one sentence that states the reason.
    pub const fn message(self) -> &'static str {
        match self {
            Self::TooLong => "the head of the script's response is too long",
            Self::TooManyFields => "the head of the script's response has too many fields",
            Self::FieldName => "the script's response has a line that is not a field",
            Self::FieldValue => "the script's response has a field with a control character",
            Self::FoldedLine => "the script's response has a folded field line",
            Self::Status => "the script's response has an invalid Status",
            Self::ContentLength => "the script's response has an invalid Content-Length",
            Self::Repeated => "the script's response has a field twice that may occur once",
            Self::TransferCoding => "the script's response has a Transfer-Encoding",
            Self::Location => "the script's response has a Location that is not a URI",
            Self::Empty => "the script's response has no Content-Type, Location or Status",
            Self::ContentForbidden => "the script's response has a length, and a status that forbids content",
        }
    }
}

impl fmt::Display for MalformedScriptHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for MalformedScriptHead {}

/// The fields of the gateway, while the head is parsed.
#[derive(Default)]
struct GatewayFields {
    status: Option<StatusCode>,
    location: Option<String>,
    content_length: Option<u64>,
    has_content_type: bool,
}

/// Parses the head at the start of a script's output; `None` if it is not complete.
///
/// # Errors
/// If the output cannot be the start of a response.
pub fn parse_script_head(bytes: &[u8], limits: &MessageLimits) -> Result<Option<ScriptHead>, MalformedScriptHead> {
    let (mut fields, mut gateway, mut count) = (Fields::new(), GatewayFields::default(), 0);
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Some(end) = rest.iter().position(|&b| b == b'\n').filter(|end| at + end < limits.head_bytes_max) else {
            // A head that never ends is refused when it can no longer end in time.
            let is_too_long = bytes.len() >= limits.head_bytes_max;
            return if is_too_long { Err(MalformedScriptHead::TooLong) } else { Ok(None) };
        };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        at += end + 1;
        if line.is_empty() {
            break;
        }
        count += 1;
        if count > limits.fields_max {
            return Err(MalformedScriptHead::TooManyFields);
        }
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err(MalformedScriptHead::FoldedLine);
        }
        let colon = line.iter().position(|&b| b == b':').ok_or(MalformedScriptHead::FieldName)?;
        let name = core::str::from_utf8(&line[..colon]).ok().filter(|name| is_token(name.as_bytes()));
        let (name, value) = (name.ok_or(MalformedScriptHead::FieldName)?, trim(&line[colon + 1..]));
        if !is_field_value(value) {
            return Err(MalformedScriptHead::FieldValue);
        }
        gateway.take(&name.to_ascii_lowercase(), value, &mut fields)?;
    }
    gateway.finish(fields, at).map(Some)
}

impl GatewayFields {
    /// Takes one field: those of the gateway into this value, those of the client into `fields`.
    fn take(&mut self, name: &str, value: &[u8], fields: &mut Fields) -> Result<(), MalformedScriptHead> {
        let is_repeated = match name {
            "status" => self.status.replace(parse_status(value)?).is_some(),
            "location" => {
                let location = core::str::from_utf8(value).ok().filter(|text| is_location(text));
                self.location.replace(location.ok_or(MalformedScriptHead::Location)?.to_owned()).is_some()
            }
            "content-length" => {
                let length = parse_length(value).ok_or(MalformedScriptHead::ContentLength)?;
                self.content_length.replace(length).is_some()
            }
            "content-type" => std::mem::replace(&mut self.has_content_type, true),
            "transfer-encoding" => return Err(MalformedScriptHead::TransferCoding),
            // They are about the connection of the client, which the server manages.
            "connection" | "keep-alive" | "proxy-connection" | "te" | "trailer" | "upgrade" => return Ok(()),
            // The server writes them.
            "date" | "server" => return Ok(()),
            _ => false,
        };
        if is_repeated {
            return Err(MalformedScriptHead::Repeated);
        }
        match name {
            "status" | "content-length" => Ok(()),
            _ => fields.append(name, value).map_err(|_| MalformedScriptHead::FieldName),
        }
    }

    fn finish(self, fields: Fields, len: usize) -> Result<ScriptHead, MalformedScriptHead> {
        let Self { status, location, content_length, has_content_type } = self;
        let response = match (status, location) {
            (Some(status), _) => ScriptResponse::Document(status),
            // With a Content-Type, it is a document, as PHP applications intend.
            (None, Some(path)) if path.starts_with('/') && !has_content_type => ScriptResponse::LocalRedirect(path),
            (None, Some(_)) => ScriptResponse::Document(StatusCode::FOUND),
            (None, None) if has_content_type => ScriptResponse::Document(StatusCode::OK),
            (None, None) => return Err(MalformedScriptHead::Empty),
        };
        if let ScriptResponse::Document(status) = response
            && status.forbids_content()
            && content_length.is_some_and(|length| length > 0)
        {
            return Err(MalformedScriptHead::ContentForbidden);
        }
        Ok(ScriptHead { response, fields, content_length, len })
    }
}

/// Parses `404` or `404 Not Found`.
fn parse_status(value: &[u8]) -> Result<StatusCode, MalformedScriptHead> {
    let (digits, rest) = value.split_at_checked(3).ok_or(MalformedScriptHead::Status)?;
    let is_number = digits.iter().all(u8::is_ascii_digit) && matches!(rest.first(), None | Some(b' '));
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit.wrapping_sub(b'0')));
    let status = StatusCode::new(if is_number { code } else { 0 });
    status.filter(|status| (200..600).contains(&status.code())).ok_or(MalformedScriptHead::Status)
}

fn parse_length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    core::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

/// Whether a text can be a URI reference, absolute or relative (RFC 9110 §10.2.2).
fn is_location(text: &str) -> bool {
    !text.is_empty() && !text.bytes().any(|b| b.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> MessageLimits {
        MessageLimits { head_bytes_max: 200, fields_max: 5, ..MessageLimits::default() }
    }

    /// Parses a head with content after it, whole and as each prefix of it.
    fn check(head: &str, expected: Result<(ScriptResponse, &str, Option<u64>), MalformedScriptHead>) {
        let parsed = parse_script_head(format!("{head}content\n\n").as_bytes(), &limits());
        match (&parsed, &expected) {
            (Ok(Some(parsed)), Ok((response, fields, length))) => {
                let lines = String::from_utf8(parsed.fields.lines().to_vec()).unwrap();
                let got = (&parsed.response, lines.as_str(), parsed.content_length, parsed.len);
                assert_eq!(got, (response, *fields, *length, head.len()), "{head:?}");
            }
            (Err(error), Err(expected)) => assert_eq!(error, expected, "{head:?}"),
            _ => panic!("{head:?}: {parsed:?} instead of {expected:?}"),
        }
        for end in 0..head.len() {
            let prefix = parse_script_head(&head.as_bytes()[..end], &limits());
            let is_consistent = prefix == Ok(None) || prefix == parsed && parsed.is_err();
            assert!(is_consistent, "{head:?} up to {end}: {prefix:?}");
        }
    }

    fn document(code: u16) -> ScriptResponse {
        ScriptResponse::Document(StatusCode::new(code).unwrap())
    }

    #[test]
    fn responses() {
        let html = "content-type: text/html\r\n";
        check("Content-Type: text/html\n\n", Ok((document(200), html, None)));
        check("Content-type:text/html\r\n\r\n", Ok((document(200), html, None)));
        check("CONTENT-TYPE: \ttext/html \r\n\n", Ok((document(200), html, None)));
        check("Status: 404 Not Found\nContent-Type: text/html\n\n", Ok((document(404), html, None)));
        check("Status: 204\n\n", Ok((document(204), "", None)));
        check("Status: 599 \n\n", Ok((document(599), "", None)));
        check("Content-Type: text/html\nContent-Length: 12\n\n", Ok((document(200), html, Some(12))));
        check("Status: 304\nContent-Length: 0\n\n", Ok((document(304), "", Some(0))));
        check("Location: https://a.example/\n\n", Ok((document(302), "location: https://a.example/\r\n", None)));
        check(
            "Location: /a?b=c\n\n",
            Ok((ScriptResponse::LocalRedirect("/a?b=c".into()), "location: /a?b=c\r\n", None)),
        );
        let moved = "location: /a\r\n";
        check("Status: 301 Moved\nLocation: /a\n\n", Ok((document(301), moved, None)));
        check(
            "Location: /a\nContent-Type: text/html\n\n",
            Ok((document(302), "location: /a\r\ncontent-type: text/html\r\n", None)),
        );
        let cookies = "content-type: text/html\r\nset-cookie: a\r\nset-cookie: b\r\n";
        check("Content-Type: text/html\nSet-Cookie: a\nSet-Cookie: b\n\n", Ok((document(200), cookies, None)));
        let ignored = "Connection: close\nKeep-Alive: 5\nDate: x\nServer: y\nContent-Type: text/html\n\n";
        check(ignored, Ok((document(200), html, None)));
    }

    #[test]
    fn malformed_heads_are_refused() {
        use MalformedScriptHead as M;
        for (head, reason) in [
            ("\n", M::Empty),
            ("\r\n", M::Empty),
            ("X-Powered-By: PHP\n\n", M::Empty),
            ("<html>\n\n", M::FieldName),
            ("HTTP/1.1 200 OK\n\n", M::FieldName),
            ("Content-Type : text/html\n\n", M::FieldName),
            (": x\n\n", M::FieldName),
            ("Content-Type: a\n b\n\n", M::FoldedLine),
            (" Content-Type: a\n\n", M::FoldedLine),
            ("Content-Type: a\rb\n\n", M::FieldValue),
            ("Content-Type: a\0\n\n", M::FieldValue),
            ("Content-Type: a\r\r\n\n", M::FieldValue),
            ("Status: 99\n\n", M::Status),
            ("Status: 100 Continue\n\n", M::Status),
            ("Status: 101\n\n", M::Status),
            ("Status: 600\n\n", M::Status),
            ("Status: 2000\n\n", M::Status),
            ("Status: 20x\n\n", M::Status),
            ("Status:\n\n", M::Status),
            ("Status: 200\nStatus: 200\n\n", M::Repeated),
            ("Content-Type: a\ncontent-type: a\n\n", M::Repeated),
            ("Location: /a\nLocation: /a\n\n", M::Repeated),
            ("Status: 200\nContent-Length: 1\nContent-Length: 1\n\n", M::Repeated),
            ("Content-Length: 1, 1\n\n", M::ContentLength),
            ("Content-Length: +1\n\n", M::ContentLength),
            ("Content-Length: \n\n", M::ContentLength),
            ("Content-Length: 18446744073709551616\n\n", M::ContentLength),
            ("Status: 200\nTransfer-Encoding: chunked\n\n", M::TransferCoding),
            ("Location: \n\n", M::Location),
            ("Location: /a b\n\n", M::Location),
            ("Status: 204\nContent-Length: 1\n\n", M::ContentForbidden),
            ("Status: 304\nContent-Length: 1\n\n", M::ContentForbidden),
            ("A: 1\nB: 2\nC: 3\nD: 4\nE: 5\nStatus: 200\n\n", M::TooManyFields),
        ] {
            check(head, Err(reason));
        }
        let long = format!("Content-Type: {}\n\n", "x".repeat(limits().head_bytes_max));
        assert_eq!(parse_script_head(long.as_bytes(), &limits()), Err(M::TooLong));
        let endless = "x".repeat(limits().head_bytes_max);
        assert_eq!(parse_script_head(endless.as_bytes(), &limits()), Err(M::TooLong));
        assert_eq!(parse_script_head(&endless.as_bytes()[1..], &limits()), Ok(None));
    }
}
