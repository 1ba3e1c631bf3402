//! JSON lines with Caddy's names, which log tools know.
//!
//! Bytes from clients are written by [`escape_json`](crate::log::escape::escape_json). Unknown values are left out.
//! For malformed requests and unknown methods, `uri` holds the request line as the other formats write it, and
//! method, host and protocol are empty, because log readers reject such methods.

use super::record::{LogRecord, TimeOf};
use super::step::{append_address, append_digits, protocol};
use crate::log::escape::escape_json_text;
use crate::log::time::TimePattern;
use selvedge::proto::field::KnownField;
use selvedge::proto::http1::write::write_decimal;
use selvedge::service::{ResponseOutcome, TlsInfo, known_request_id};
use selvedge::{Method, Request};
use std::time::Duration;

/// Methods of WebDAV and its extensions (RFC 4918, RFC 3253, RFC 5323), which applications use.
const OTHER_METHODS: [&str; 14] = [
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "SEARCH",
    "REPORT",
    "MERGE",
    "CHECKOUT",
    "CHECKIN",
    "UPDATE",
    "LABEL",
];

#[derive(Clone, Debug)]
pub(super) struct Json {
    time: TimePattern,
}

impl Json {
    pub(super) fn new(time: TimePattern) -> Self {
        Self { time }
    }

    pub(super) fn append(&mut self, record: &LogRecord<'_>, out: &mut Vec<u8>) {
        let exchange = record.exchange;
        let began = record.time(TimeOf::Received);
        out.extend_from_slice(b"{\"ts\":");
        write_decimal(began.as_secs(), out);
        out.push(b'.');
        append_digits(began.subsec_millis(), 3, out);
        out.extend_from_slice(b",\"time\":\"");
        out.extend_from_slice(self.time.at(began.as_secs().cast_signed()));
        out.push(b'.');
        append_digits(began.subsec_millis(), 3, out);
        out.extend_from_slice(b"Z\"");
        if let Some(id) = exchange.request.and_then(known_request_id) {
            out.extend_from_slice(b",\"request_id\":\"");
            escape_json_text(id, out);
            out.push(b'"');
        }
        if let Some(trace) = record.trace {
            out.extend_from_slice(b",\"trace_id\":\"");
            out.extend_from_slice(&trace.trace_id_text());
            out.push(b'"');
        }
        if !record.site.is_empty() {
            out.extend_from_slice(b",\"site\":\"");
            escape_json_text(record.site, out);
            out.push(b'"');
        }
        if let Some(user) = record.request().and_then(Request::user) {
            out.extend_from_slice(b",\"user_id\":\"");
            escape_json_text(user, out);
            out.push(b'"');
        }
        append_request(record, out);
        if let Some(elapsed) = exchange.elapsed {
            out.extend_from_slice(b",\"duration\":");
            append_seconds(elapsed, out);
        }
        out.extend_from_slice(b",\"size\":");
        write_decimal(exchange.content_bytes, out);
        out.extend_from_slice(b",\"status\":");
        write_decimal(exchange.status.code().into(), out);
        out.extend_from_slice(match exchange.outcome {
            ResponseOutcome::Complete => b",\"outcome\":\"complete\"}",
            ResponseOutcome::Aborted => b",\"outcome\":\"aborted\"}",
        });
    }
}

fn append_request(record: &LogRecord<'_>, out: &mut Vec<u8>) {
    let exchange = record.exchange;
    out.extend_from_slice(b",\"request\":{\"remote_ip\":\"");
    append_address(exchange.peer.ip(), out);
    out.extend_from_slice(b"\",\"remote_port\":\"");
    write_decimal(exchange.peer.port().into(), out);
    out.extend_from_slice(b"\",\"client_ip\":\"");
    append_address(record.client(), out);
    out.extend_from_slice(b"\",\"proto\":\"");
    let Some(request) = record.request().filter(|request| has_known_method(request)) else {
        out.extend_from_slice(b"\",\"method\":\"\",\"host\":\"\",\"uri\":\"");
        match exchange.request_line {
            b"" => out.push(b'-'),
            line => record.text_for_json(line, out),
        }
        out.extend_from_slice(b"\",\"headers\":{}}");
        return;
    };
    out.extend_from_slice(protocol(request).as_bytes());
    out.extend_from_slice(b"\",\"method\":\"");
    record.json(request.method_text().as_bytes(), out);
    out.extend_from_slice(b"\",\"host\":\"");
    record.json(record.host().map_or(&[][..], |host| host.name), out);
    out.extend_from_slice(b"\",\"uri\":\"");
    record.json(request.target().as_bytes(), out);
    out.extend_from_slice(b"\",\"headers\":{");
    let mut separator = &b""[..];
    for (known, name) in
        [(KnownField::Referer, &b"\"Referer\":[\""[..]), (KnownField::UserAgent, b"\"User-Agent\":[\"")]
    {
        if let Some(value) = request.known_field(known) {
            out.extend_from_slice(separator);
            out.extend_from_slice(name);
            record.json(value, out);
            out.extend_from_slice(b"\"]");
            separator = b",";
        }
    }
    out.push(b'}');
    if let Some(tls) = request.tls() {
        append_tls(record, tls, out);
    }
    out.push(b'}');
}

fn append_tls(record: &LogRecord<'_>, tls: &TlsInfo, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"tls\":{\"version\":\"");
    out.extend_from_slice(tls.version().as_bytes());
    out.extend_from_slice(b"\",\"cipher_suite\":\"");
    out.extend_from_slice(tls.cipher_suite().as_bytes());
    out.extend_from_slice(b"\",\"proto\":\"");
    record.json(tls.protocol().unwrap_or_default(), out);
    out.extend_from_slice(b"\",\"server_name\":\"");
    record.json(tls.server_name().unwrap_or_default().as_bytes(), out);
    if let Some(subject) = tls.peer_subject() {
        out.extend_from_slice(b"\",\"client_subject\":\"");
        record.json(subject.as_bytes(), out);
    }
    out.extend_from_slice(if tls.is_resumed() { b"\",\"resumed\":true}" } else { b"\",\"resumed\":false}" });
}

fn has_known_method(request: &Request) -> bool {
    request.method() != Method::Other || OTHER_METHODS.contains(&request.method_text())
}

/// Appends seconds with six decimals.
fn append_seconds(elapsed: Duration, out: &mut Vec<u8>) {
    write_decimal(elapsed.as_secs(), out);
    out.push(b'.');
    append_digits(elapsed.subsec_micros(), 6, out);
}
