//! The steps of a format: each appends one thing.

use super::{CUT, Subject};
use crate::log::time::TimePattern;
use selvedge::proto::Afterwards;
use selvedge::proto::field::Known;
use selvedge::proto::http1::write::write_decimal;
use selvedge::service::{Exchange, Outcome};
use selvedge::{Request, Status};
use std::io::Write;
use std::net::IpAddr;

/// The port of `http`.
const DEFAULT_PORT: u16 = 80;

/// One step.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// What the format says itself.
    Text(Vec<u8>),
    /// What the request or its answer says.
    Value(Value),
    /// The same, for some statuses; for others a hyphen.
    ValueIf(Statuses, Value),
}

/// Some statuses.
#[derive(Clone, Debug)]
pub(super) enum Statuses {
    /// These.
    Among(Vec<u16>),
    /// All but these.
    Except(Vec<u16>),
}

/// What can be asked of a request and its answer. Where there is none, a hyphen stands.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Who asks, be it through a trusted proxy.
    Client,
    /// The other end of the connection.
    Peer,
    PeerPort,
    /// The name that identd would give, which nobody asks.
    Identity,
    User,
    Time(Whence, TimePattern),
    UnixTime(Whence),
    Line,
    Method,
    Path,
    /// With its question mark; nothing when there is none.
    Query,
    Protocol,
    Status,
    ContentBytes,
    /// The same, with a hyphen for none.
    ContentBytesOrHyphen,
    BytesWithHead,
    Elapsed(Unit),
    Known(Known),
    RequestField(String),
    ResponseField(String),
    Cookie(String),
    Site,
    Host,
    Port,
    /// `X` for an answer that was cut, `+` or `-` for a connection that stays or closes.
    Connection,
    /// How many requests the connection carried before.
    EarlierRequests,
    /// How it was compiled.
    Fixed(Vec<u8>),
}

/// Which of a request's two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whence {
    /// When its head was complete.
    Begin,
    /// When its answer was.
    End,
}

/// What a duration is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
}

impl Statuses {
    fn include(&self, status: Status) -> bool {
        match self {
            Self::Among(codes) => codes.contains(&status.code()),
            Self::Except(codes) => !codes.contains(&status.code()),
        }
    }
}

impl Step {
    pub(super) fn wants_elapsed(&self) -> bool {
        matches!(self, Self::Value(Value::Elapsed(_)) | Self::ValueIf(_, Value::Elapsed(_)))
    }

    pub(super) fn append(&mut self, subject: &Subject<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text),
            Self::Value(value) => value.append(subject, out),
            Self::ValueIf(statuses, value) if statuses.include(subject.exchange.status) => value.append(subject, out),
            Self::ValueIf(..) => out.push(b'-'),
        }
    }
}

impl Value {
    fn append(&mut self, subject: &Subject<'_>, out: &mut Vec<u8>) {
        let (exchange, request) = (subject.exchange, subject.request());
        match self {
            Self::Client => append_address(subject.client(), out),
            Self::Peer => append_address(exchange.peer.ip(), out),
            Self::PeerPort => write_decimal(exchange.peer.port().into(), out),
            Self::Identity => out.push(b'-'),
            Self::User => match request.and_then(Request::user).unwrap_or_default() {
                "" => out.push(b'-'),
                user => subject.word(user.as_bytes(), out),
            },
            Self::Time(whence, pattern) => out.extend_from_slice(pattern.at(whence.of(exchange))),
            Self::UnixTime(whence) => write_decimal(whence.of(exchange).unsigned_abs(), out),
            Self::Line => append_line(subject, out),
            Self::Method => append_or_hyphen(subject, request.map(|request| request.method_text().as_bytes()), out),
            Self::Path => append_or_hyphen(subject, request.map(Request::path_bytes), out),
            Self::Query => {
                if let Some(query) = request.and_then(Request::query) {
                    out.push(b'?');
                    subject.text(query.as_bytes(), out);
                }
            }
            Self::Protocol => append_or_hyphen(subject, request.map(|request| protocol(request).as_bytes()), out),
            Self::Status => write_decimal(exchange.status.code().into(), out),
            Self::ContentBytesOrHyphen if exchange.content_bytes == 0 => out.push(b'-'),
            Self::ContentBytes | Self::ContentBytesOrHyphen => write_decimal(exchange.content_bytes, out),
            Self::BytesWithHead => write_decimal(exchange.content_bytes + exchange.head_bytes as u64, out),
            Self::Elapsed(unit) => match exchange.elapsed {
                Some(elapsed) => write_decimal(unit.count(elapsed), out),
                None => out.push(b'-'),
            },
            Self::Known(known) => append_or_hyphen(subject, request.and_then(|request| request.known(*known)), out),
            Self::RequestField(name) => {
                let fields = request.into_iter().flat_map(Request::fields);
                let named = fields.filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
                append_list(subject, named.map(|(_, value)| value), out);
            }
            Self::ResponseField(name) => {
                let named = exchange.fields.iter().filter(|(other, _)| other == name);
                append_list(subject, named.map(|(_, value)| value), out);
            }
            Self::Cookie(name) => append_or_hyphen(subject, request.and_then(|request| cookie(request, name)), out),
            Self::Site => append_or_hyphen(subject, Some(subject.site.as_bytes()), out),
            Self::Host => append_or_hyphen(subject, subject.host().map(|host| host.name), out),
            Self::Port => write_decimal(subject.host().and_then(|host| host.port).unwrap_or(DEFAULT_PORT).into(), out),
            Self::Connection => out.push(match (exchange.outcome, exchange.afterwards) {
                (Outcome::Cut, _) => b'X',
                (Outcome::Complete, Afterwards::KeepOpen) => b'+',
                (Outcome::Complete, Afterwards::Close) => b'-',
            }),
            Self::EarlierRequests => write_decimal(exchange.requests.saturating_sub(1).into(), out),
            Self::Fixed(text) => out.extend_from_slice(text),
        }
    }
}

impl Whence {
    /// The moment in seconds since 1970. Of bytes that were no request only the end is known.
    pub(super) fn of(self, exchange: &Exchange<'_>) -> i64 {
        match (self, exchange.request) {
            (Self::Begin, Some(request)) => request.moment().unix_time,
            _ => exchange.unix_time,
        }
    }
}

impl Unit {
    fn count(self, elapsed: std::time::Duration) -> u64 {
        let count = match self {
            Self::Seconds => elapsed.as_secs().into(),
            Self::Milliseconds => elapsed.as_millis(),
            Self::Microseconds => elapsed.as_micros(),
        };
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

/// The protocol, as a request line has it.
pub(super) fn protocol(request: &Request) -> &'static str {
    match request.version() {
        selvedge::proto::head::Version::Http10 => "HTTP/1.0",
        selvedge::proto::head::Version::Http11 => "HTTP/1.1",
    }
}

/// Appends an address. Most have four numbers, which need no formatter.
pub(super) fn append_address(address: IpAddr, out: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            for (number, octet) in address.octets().into_iter().enumerate() {
                if number > 0 {
                    out.push(b'.');
                }
                write_decimal(octet.into(), out);
            }
        }
        // Writing to memory cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

fn append_or_hyphen(subject: &Subject<'_>, value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        Some(value) if !value.is_empty() => subject.text(value, out),
        _ => out.push(b'-'),
    }
}

/// Appends the request line. Where it has to be cut, it keeps its protocol.
fn append_line(subject: &Subject<'_>, out: &mut Vec<u8>) {
    let line = subject.exchange.line;
    match subject.request() {
        Some(request) if line.len() > subject.value_bytes_max => {
            subject.text(request.method_text().as_bytes(), out);
            out.push(b' ');
            subject.text(request.target().as_bytes(), out);
            out.push(b' ');
            out.extend_from_slice(protocol(request).as_bytes());
        }
        _ => append_or_hyphen(subject, Some(line), out),
    }
}

/// Appends the values of a field's lines, as one line of it would have them.
fn append_list<'a>(subject: &Subject<'_>, values: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    let begin = out.len();
    for value in values.filter(|value| !value.is_empty()) {
        if out.len() > begin {
            out.extend_from_slice(b", ");
        }
        if out.len() - begin > subject.value_bytes_max {
            out.extend_from_slice(CUT);
            break;
        }
        subject.text(value, out);
    }
    if out.len() == begin {
        out.push(b'-');
    }
}

/// The value of the first cookie of that name (RFC 6265 §4.2.1).
fn cookie<'a>(request: &'a Request, name: &str) -> Option<&'a [u8]> {
    let lines = request.fields().filter(|(other, _)| other.eq_ignore_ascii_case(b"cookie"));
    let mut pairs = lines.flat_map(|(_, value)| value.split(|&b| b == b';')).map(<[u8]>::trim_ascii);
    pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}
