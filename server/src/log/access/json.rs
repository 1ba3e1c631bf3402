//! A line as a JSON object, with the names that Caddy gives them, which log tools know.
//!
//! Octets of a client's are written as [`escape_json`](crate::log::escape::escape_json)
//! says: each is the character of its number. What is not known is left out. For bytes that
//! were no request, and for a method that nobody has heard of, which readers take for a
//! broken line, the line as the other formats write it stands in the place of the target, a
//! hyphen for none, and the method, the host and the protocol are empty.

use super::Subject;
use super::step::{Whence, append_address, protocol};
use crate::log::escape::escape_json_text;
use crate::log::time::TimePattern;
use selvedge::proto::field::Known;
use selvedge::proto::http1::write::write_decimal;
use selvedge::service::Outcome;
use selvedge::{Method, Request};
use std::time::Duration;

/// Methods of WebDAV and its kin (RFC 4918, RFC 3253, RFC 5323), which applications have.
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

    pub(super) fn append(&mut self, subject: &Subject<'_>, out: &mut Vec<u8>) {
        let exchange = subject.exchange;
        let began = Whence::Begin.of(exchange);
        out.extend_from_slice(b"{\"ts\":");
        write_decimal(began.unsigned_abs(), out);
        out.extend_from_slice(b".0,\"time\":\"");
        out.extend_from_slice(self.time.at(began));
        out.push(b'"');
        if !subject.site.is_empty() {
            out.extend_from_slice(b",\"site\":\"");
            escape_json_text(subject.site, out);
            out.push(b'"');
        }
        if let Some(user) = subject.request().and_then(Request::user) {
            out.extend_from_slice(b",\"user_id\":\"");
            escape_json_text(user, out);
            out.push(b'"');
        }
        append_request(subject, out);
        if let Some(elapsed) = exchange.elapsed {
            out.extend_from_slice(b",\"duration\":");
            append_seconds(elapsed, out);
        }
        out.extend_from_slice(b",\"size\":");
        write_decimal(exchange.content_bytes, out);
        out.extend_from_slice(b",\"status\":");
        write_decimal(exchange.status.code().into(), out);
        out.extend_from_slice(match exchange.outcome {
            Outcome::Complete => b",\"outcome\":\"complete\"}",
            Outcome::Cut => b",\"outcome\":\"cut\"}",
        });
    }
}

fn append_request(subject: &Subject<'_>, out: &mut Vec<u8>) {
    let exchange = subject.exchange;
    out.extend_from_slice(b",\"request\":{\"remote_ip\":\"");
    append_address(exchange.peer.ip(), out);
    out.extend_from_slice(b"\",\"remote_port\":\"");
    write_decimal(exchange.peer.port().into(), out);
    out.extend_from_slice(b"\",\"client_ip\":\"");
    append_address(subject.client(), out);
    out.extend_from_slice(b"\",\"proto\":\"");
    let Some(request) = subject.request().filter(|request| has_known_method(request)) else {
        out.extend_from_slice(b"\",\"method\":\"\",\"host\":\"\",\"uri\":\"");
        match exchange.line {
            b"" => out.push(b'-'),
            line => subject.text_for_json(line, out),
        }
        out.extend_from_slice(b"\",\"headers\":{}}");
        return;
    };
    out.extend_from_slice(protocol(request).as_bytes());
    out.extend_from_slice(b"\",\"method\":\"");
    subject.json(request.method_text().as_bytes(), out);
    out.extend_from_slice(b"\",\"host\":\"");
    subject.json(subject.host().map_or(&[][..], |host| host.name), out);
    out.extend_from_slice(b"\",\"uri\":\"");
    subject.json(request.target().as_bytes(), out);
    out.extend_from_slice(b"\",\"headers\":{");
    let mut separator = &b""[..];
    for (known, name) in [(Known::Referer, &b"\"Referer\":[\""[..]), (Known::UserAgent, b"\"User-Agent\":[\"")] {
        if let Some(value) = request.known(known) {
            out.extend_from_slice(separator);
            out.extend_from_slice(name);
            subject.json(value, out);
            out.extend_from_slice(b"\"]");
            separator = b",";
        }
    }
    out.extend_from_slice(b"}}");
}

fn has_known_method(request: &Request) -> bool {
    request.method() != Method::Other || OTHER_METHODS.contains(&request.method_text())
}

/// Seconds with six decimals.
fn append_seconds(elapsed: Duration, out: &mut Vec<u8>) {
    write_decimal(elapsed.as_secs(), out);
    let mut micros = elapsed.subsec_micros();
    let mut digits = *b".000000";
    for digit in digits[1..].iter_mut().rev() {
        *digit = b'0' + (micros % 10) as u8;
        micros /= 10;
    }
    out.extend_from_slice(&digits);
}
