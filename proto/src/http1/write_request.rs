//! Writes the head of a request (RFC 9112 §3, §6), for a client.
//!
//! Invariant: a written head is one request, whatever its parts contain. Each part is checked before anything is
//! written, so no part can end a line or begin another one, and no field contradicts the framing.

use crate::field::{is_field_value, is_token};
use crate::forward::TeTrailers;
use crate::head::RequestFraming;
use crate::http1::parse_fields::{FieldLine, parse_field_line};
use crate::http1::parse_request::find_target_end;
use crate::http1::write::write_decimal;
use crate::limits::{HEAD_BYTES_CEILING, METHOD_BYTES_MAX};
use crate::method::Method;
use crate::target::Host;
use core::fmt;

/// What the head of a request requests for its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestConnection<'a> {
    /// The connection persists.
    #[default]
    KeepAlive,
    /// The connection is closed after the response.
    Close,
    /// The connection may switch to this protocol (RFC 9110 §7.8).
    Upgrade(&'a [u8]),
}

/// The parts of the head of a request of HTTP/1.1.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    /// The method token.
    pub method: &'a [u8],
    /// The target, usually a path and a query.
    pub target: &'a [u8],
    /// The value of Host. Empty if the target has no authority (RFC 9112 §3.2).
    pub authority: &'a [u8],
    /// How the content ends.
    pub framing: RequestFraming,
    /// Whether the connection persists.
    pub connection: RequestConnection<'a>,
    /// Whether the request accepts trailers.
    pub te: TeTrailers,
    /// All other fields, as lines with CRLF. Never Host, Connection, Upgrade, TE, Content-Length or Transfer-Encoding.
    pub fields: &'a [u8],
}

/// The part of a request that is invalid, so that the request cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidRequest {
    /// The method is not a token, or is longer than [`METHOD_BYTES_MAX`].
    Method,
    /// The target is empty or has a byte that is not allowed.
    Target,
    /// The authority is not a host with an optional port.
    Authority,
    /// The name of the protocol for an upgrade is empty or has a byte that is not allowed.
    Upgrade,
    /// The fields are not complete lines, are longer than [`HEAD_BYTES_CEILING`], or one is written from another part.
    Fields,
}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "the method of the request is invalid",
            Self::Target => "the target of the request is invalid",
            Self::Authority => "the host of the request is invalid",
            Self::Upgrade => "the protocol that the request offers is invalid",
            Self::Fields => "a field of the request is invalid",
        })
    }
}

impl core::error::Error for InvalidRequest {}

/// Room for the request line's version, Host's name, framing and Connection.
const HEAD_BYTES_ESTIMATE: usize = 128;

impl RequestParts<'_> {
    /// Appends the head, including the empty line, to `out`.
    ///
    /// # Errors
    /// The first invalid part. Nothing is appended then.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), InvalidRequest> {
        self.check()?;
        out.reserve(self.target.len() + self.authority.len() + self.fields.len() + HEAD_BYTES_ESTIMATE);
        for part in [self.method, b" ", self.target, b" HTTP/1.1\r\nhost: ", self.authority, b"\r\n", self.fields] {
            out.extend_from_slice(part);
        }
        self.write_connection(out);
        self.write_framing(out);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    //= RFC 9110 §10.1.4, §7.8: a sender of TE or Upgrade names it in Connection
    fn write_connection(&self, out: &mut Vec<u8>) {
        let te = (self.te == TeTrailers::Accepted).then_some(&b"te"[..]);
        let option = match self.connection {
            RequestConnection::KeepAlive => None,
            RequestConnection::Close => Some(&b"close"[..]),
            RequestConnection::Upgrade(_) => Some(&b"upgrade"[..]),
        };
        let (first, second) = (option.or(te), option.and(te));
        if let Some(first) = first {
            out.extend_from_slice(b"connection: ");
            out.extend_from_slice(first);
            if let Some(second) = second {
                out.extend_from_slice(b", ");
                out.extend_from_slice(second);
            }
            out.extend_from_slice(b"\r\n");
        }
        if te.is_some() {
            out.extend_from_slice(b"te: trailers\r\n");
        }
        if let RequestConnection::Upgrade(protocol) = self.connection {
            for part in [b"upgrade: ", protocol, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }

    fn write_framing(&self, out: &mut Vec<u8>) {
        let length = match self.framing {
            RequestFraming::Length(length) => length,
            RequestFraming::Chunked | RequestFraming::UntilStreamEnd => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
                return;
            }
            //= RFC 9110 §8.6: Content-Length: 0 if the method anticipates content
            RequestFraming::None => match Method::from_token(self.method) {
                Method::Post | Method::Put | Method::Patch => 0,
                _ => return,
            },
        };
        out.extend_from_slice(b"content-length: ");
        write_decimal(length, out);
        out.extend_from_slice(b"\r\n");
    }

    fn check(&self) -> Result<(), InvalidRequest> {
        if !is_token(self.method) || self.method.len() > METHOD_BYTES_MAX {
            return Err(InvalidRequest::Method);
        }
        if self.target.is_empty() || find_target_end(self.target, 0) < self.target.len() {
            return Err(InvalidRequest::Target);
        }
        if !self.authority.is_empty() && Host::parse(self.authority).is_err() {
            return Err(InvalidRequest::Authority);
        }
        match self.connection {
            RequestConnection::Upgrade(protocol) if protocol.is_empty() || !is_field_value(protocol) => {
                Err(InvalidRequest::Upgrade)
            }
            _ if are_field_lines(self.fields) => Ok(()),
            _ => Err(InvalidRequest::Fields),
        }
    }
}

/// Whether the bytes are complete field lines, none of them for a field that is written from another part.
fn are_field_lines(lines: &[u8]) -> bool {
    if lines.len() > HEAD_BYTES_CEILING {
        return false;
    }
    let mut at = 0;
    while at < lines.len() {
        match parse_field_line(lines, at) {
            Ok(FieldLine::Field { span, next }) if !is_written(span.name.of(lines)) => at = next,
            _ => return false,
        }
    }
    true
}

/// Whether a field of this name is written from another part. The name is compared without case.
fn is_written(name: &[u8]) -> bool {
    match name.len() {
        2 => name.eq_ignore_ascii_case(b"te"),
        4 => name.eq_ignore_ascii_case(b"host"),
        7 => name.eq_ignore_ascii_case(b"upgrade"),
        10 => name.eq_ignore_ascii_case(b"connection"),
        14 => name.eq_ignore_ascii_case(b"content-length"),
        17 => name.eq_ignore_ascii_case(b"transfer-encoding"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageLimits;
    use crate::head::RequestHead;
    use crate::http1::parse_request;

    const PARTS: RequestParts<'static> = RequestParts {
        method: b"GET",
        target: b"/a?b",
        authority: b"a.example:81",
        framing: RequestFraming::None,
        connection: RequestConnection::KeepAlive,
        te: TeTrailers::Absent,
        fields: b"x: y\r\n",
    };

    #[test]
    fn parts_become_one_request() {
        let start = "host: a.example:81\r\nx: y\r\n";
        let upgrade = RequestConnection::Upgrade(b"websocket");
        for (parts, expected) in [
            (PARTS, format!("GET /a?b HTTP/1.1\r\n{start}\r\n")),
            (RequestParts { authority: b"", fields: b"", ..PARTS }, "GET /a?b HTTP/1.1\r\nhost: \r\n\r\n".to_owned()),
            (
                RequestParts { method: b"POST", ..PARTS },
                format!("POST /a?b HTTP/1.1\r\n{start}content-length: 0\r\n\r\n"),
            ),
            (RequestParts { method: b"DELETE", ..PARTS }, format!("DELETE /a?b HTTP/1.1\r\n{start}\r\n")),
            (
                RequestParts { method: b"PUT", framing: RequestFraming::Length(12), ..PARTS },
                format!("PUT /a?b HTTP/1.1\r\n{start}content-length: 12\r\n\r\n"),
            ),
            (
                RequestParts { framing: RequestFraming::UntilStreamEnd, ..PARTS },
                format!("GET /a?b HTTP/1.1\r\n{start}transfer-encoding: chunked\r\n\r\n"),
            ),
            (
                RequestParts { connection: RequestConnection::Close, ..PARTS },
                format!("GET /a?b HTTP/1.1\r\n{start}connection: close\r\n\r\n"),
            ),
            (
                RequestParts { te: TeTrailers::Accepted, ..PARTS },
                format!("GET /a?b HTTP/1.1\r\n{start}connection: te\r\nte: trailers\r\n\r\n"),
            ),
            (
                RequestParts { connection: upgrade, te: TeTrailers::Accepted, ..PARTS },
                format!(
                    "GET /a?b HTTP/1.1\r\n{start}connection: upgrade, te\r\nte: trailers\r\nupgrade: websocket\r\n\r\n"
                ),
            ),
        ] {
            let mut out = b"before".to_vec();
            assert_eq!(parts.write(&mut out), Ok(()));
            let written = &out[6..];
            assert_eq!(String::from_utf8_lossy(written), expected);
            if !parts.authority.is_empty() {
                let mut head = RequestHead::default();
                assert_eq!(parse_request(written, &MessageLimits::default(), &mut head), Ok(true));
                assert_eq!(head.len, written.len());
            }
        }
    }

    #[test]
    fn no_part_can_inject() {
        let upgrade = RequestConnection::Upgrade;
        for (parts, invalid) in [
            (RequestParts { method: b"", ..PARTS }, InvalidRequest::Method),
            (RequestParts { method: b"GET /evil HTTP/1.1\r\n", ..PARTS }, InvalidRequest::Method),
            (RequestParts { method: &[b'A'; METHOD_BYTES_MAX + 1], ..PARTS }, InvalidRequest::Method),
            (RequestParts { target: b"", ..PARTS }, InvalidRequest::Target),
            (RequestParts { target: b"/ HTTP/1.1\r\nx: y", ..PARTS }, InvalidRequest::Target),
            (RequestParts { target: b"/a b", ..PARTS }, InvalidRequest::Target),
            (RequestParts { target: b"/\xc3\xa9", ..PARTS }, InvalidRequest::Target),
            (RequestParts { authority: b"a\r\nx: y", ..PARTS }, InvalidRequest::Authority),
            (RequestParts { authority: b"a b", ..PARTS }, InvalidRequest::Authority),
            (RequestParts { connection: upgrade(b""), ..PARTS }, InvalidRequest::Upgrade),
            (RequestParts { connection: upgrade(b"x\r\ny: z"), ..PARTS }, InvalidRequest::Upgrade),
            (RequestParts { fields: b"x: y", ..PARTS }, InvalidRequest::Fields),
            (RequestParts { fields: b"x: y\n", ..PARTS }, InvalidRequest::Fields),
            (RequestParts { fields: b"\r\n", ..PARTS }, InvalidRequest::Fields),
            (RequestParts { fields: b"x: y\r\n\r\nGET / HTTP/1.1\r\n", ..PARTS }, InvalidRequest::Fields),
            (RequestParts { fields: b"x y: z\r\n", ..PARTS }, InvalidRequest::Fields),
            (RequestParts { fields: b"x: y\r\nContent-length: 3\r\n", ..PARTS }, InvalidRequest::Fields),
            (RequestParts { fields: b"Transfer-Encoding: chunked\r\n", ..PARTS }, InvalidRequest::Fields),
            (RequestParts { fields: b"host: b\r\n", ..PARTS }, InvalidRequest::Fields),
            (RequestParts { fields: b"connection: close\r\n", ..PARTS }, InvalidRequest::Fields),
        ] {
            let mut out = Vec::new();
            assert_eq!(parts.write(&mut out), Err(invalid), "{parts:?}");
            assert!(out.is_empty());
        }
    }
}
