//! Heads of HTTP/1.1: writing that of a request, and the fields of a response.

use super::upload::UploadFraming;
use crate::client::request::OutgoingHead;
use selvedge_proto::field::{Fields, list_members};
use selvedge_proto::http1::parse_response::ResponseHead;
use std::io::Write;

/// Writes the head of a request.
pub(super) fn write_head(head: &OutgoingHead, framing: UploadFraming, output: &mut Vec<u8>) {
    for part in [&head.method[..], b" ", &head.target, b" HTTP/1.1\r\n"] {
        output.extend_from_slice(part);
    }
    if !head.authority.is_empty() {
        for part in [b"host: ", &head.authority[..], b"\r\n"] {
            output.extend_from_slice(part);
        }
    }
    output.extend_from_slice(&head.fields);
    if let Some(protocol) = &head.upgrade {
        for part in [b"connection: upgrade\r\nupgrade: ", &protocol[..], b"\r\n"] {
            output.extend_from_slice(part);
        }
    }
    match framing {
        UploadFraming::None => {}
        UploadFraming::Length(length) => {
            // Writing to memory does not fail.
            let _ = write!(output, "content-length: {length}\r\n");
        }
        UploadFraming::Chunked => output.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    output.extend_from_slice(b"\r\n");
}

/// Returns the fields of a response, without those of the connection and those that only the server writes.
pub(super) fn fields_of(head: &ResponseHead, bytes: &[u8]) -> Fields {
    let mut fields = crate::service::spare_fields();
    let nominated = nominated_by_connection(head, bytes);
    for (name, value) in head.fields(bytes) {
        let is_of_connection = name.eq_ignore_ascii_case(b"proxy-connection")
            || nominated.is_some_and(|options| list_members(options).any(|option| option.eq_ignore_ascii_case(name)));
        if !is_of_connection && let Ok(name) = std::str::from_utf8(name) {
            // A field that only the server writes is refused, and so left out.
            let _ = fields.append(name, value);
        }
    }
    fields
}

/// Returns the value of Connection, if it may name fields (RFC 9110 §7.6.1).
fn nominated_by_connection<'a>(head: &ResponseHead, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let options = head.get(bytes, "connection")?;
    let is_usual = |option: &[u8]| {
        [&b"close"[..], b"keep-alive", b"upgrade"].iter().any(|usual| option.eq_ignore_ascii_case(usual))
    };
    (!list_members(options).all(is_usual)).then_some(options)
}
