//! The steps of a format: each appends one value.

use super::record::{LogRecord, TRUNCATION_MARK, TimeOf};
use crate::log::time::TimePattern;
use selvedge::proto::Persistence;
use selvedge::proto::field::KnownField;
use selvedge::proto::http1::write::write_decimal;
use selvedge::service::{ResponseOutcome, TlsInfo, UpstreamFacts, received_query, request_id};
use selvedge::{Request, StatusCode};
use std::io::Write;
use std::net::IpAddr;

/// The default ports of `http` and `https`.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// One step.
#[derive(Clone, Debug)]
pub(super) enum FormatStep {
    /// Literal text.
    Text(Vec<u8>),
    /// A value of the request or response.
    Value(LogValue),
    /// A value for some status codes, a hyphen for others.
    ValueIf(StatusFilter, LogValue),
}

/// A filter of status codes.
#[derive(Clone, Debug)]
pub(super) enum StatusFilter {
    /// Only these.
    Only(Vec<u16>),
    /// All but these.
    Except(Vec<u16>),
}

/// A value of a request or response; a hyphen if it does not exist.
#[derive(Clone, Debug)]
pub(super) enum LogValue {
    /// Client address, also behind a trusted proxy.
    Client,
    /// Peer address.
    Peer,
    PeerPort,
    /// The identd name, which is never queried.
    Identity,
    User,
    Time(TimeOf, TimePattern),
    UnixTime(TimeOf, TimeUnit),
    /// The fraction of the second, with all digits.
    Fraction(TimeOf, TimeUnit),
    RequestId,
    /// The identifier of the trace.
    TraceId,
    RequestLine,
    Method,
    Path,
    /// With its question mark; empty if it has none.
    Query,
    Protocol,
    Status,
    ContentBytes,
    /// A hyphen for none.
    ContentBytesOrHyphen,
    BytesWithHead,
    Elapsed(TimeUnit),
    Known(KnownField),
    RequestField(String),
    ResponseField(String),
    Cookie(String),
    Site,
    Host,
    Port,
    Tls(TlsValue),
    Upstream(UpstreamValue),
    /// `X` for an aborted response, `+` or `-` for a connection that stays open or closes.
    Connection,
    /// Earlier requests on the connection.
    EarlierRequests,
    /// Fixed when the format was compiled.
    Fixed(Vec<u8>),
}

/// A value of the TLS handshake; a hyphen without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsValue {
    Version,
    CipherSuite,
    ServerName,
    /// `Initial` or `Resumed`.
    Session,
    /// `SUCCESS` for a verified client certificate, else `NONE`.
    ClientVerified,
    ClientSubject,
}

impl TlsValue {
    /// Returns the value of a name of Apache's mod_ssl.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "SSL_PROTOCOL" => Self::Version,
            "SSL_CIPHER" => Self::CipherSuite,
            "SSL_TLS_SNI" => Self::ServerName,
            "SSL_SESSION_RESUMED" => Self::Session,
            "SSL_CLIENT_VERIFY" => Self::ClientVerified,
            "SSL_CLIENT_S_DN" => Self::ClientSubject,
            _ => return None,
        })
    }

    fn of(self, tls: &TlsInfo) -> Option<&str> {
        match self {
            Self::Version => Some(tls.version()),
            Self::CipherSuite => Some(tls.cipher_suite()),
            Self::ServerName => tls.server_name(),
            Self::Session => Some(if tls.is_resumed() { "Resumed" } else { "Initial" }),
            Self::ClientVerified => Some(if tls.peer_certificates().is_empty() { "NONE" } else { "SUCCESS" }),
            Self::ClientSubject => tls.peer_subject(),
        }
    }
}

/// A value of the server that the request was forwarded to; a hyphen for a request that was not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamValue {
    /// The name of the group of servers.
    Group,
    /// The address of the server that was tried last.
    Address,
    /// The status of its response.
    Status,
    /// How often the request was tried.
    Tries,
    /// Milliseconds from the choice of the server to the head of its response.
    Milliseconds,
}

impl UpstreamValue {
    /// Returns the value of a name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "UPSTREAM_NAME" => Self::Group,
            "UPSTREAM_ADDRESS" => Self::Address,
            "UPSTREAM_STATUS" => Self::Status,
            "UPSTREAM_TRIES" => Self::Tries,
            "UPSTREAM_MS" => Self::Milliseconds,
            _ => return None,
        })
    }

    fn append(self, record: &LogRecord<'_>, facts: &UpstreamFacts, out: &mut Vec<u8>) {
        let number = match self {
            Self::Group => return append_or_hyphen(record, Some(facts.group.as_bytes()), out),
            Self::Address => {
                let address = Some(facts.address.as_bytes()).filter(|address| !address.is_empty());
                return append_or_hyphen(record, address, out);
            }
            Self::Status => facts.status.map(|status| u64::from(status.code())),
            Self::Tries => Some(u64::from(facts.tries)),
            Self::Milliseconds => facts.response_time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        };
        match number {
            Some(number) => write_decimal(number, out),
            None => out.push(b'-'),
        }
    }
}

/// The unit of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Seconds,
    Milliseconds,
    Microseconds,
}

impl StatusFilter {
    fn include(&self, status: StatusCode) -> bool {
        match self {
            Self::Only(codes) => codes.contains(&status.code()),
            Self::Except(codes) => !codes.contains(&status.code()),
        }
    }
}

impl FormatStep {
    pub(super) fn append(&mut self, record: &LogRecord<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text),
            Self::Value(value) => value.append(record, out),
            Self::ValueIf(statuses, value) if statuses.include(record.exchange.status) => value.append(record, out),
            Self::ValueIf(..) => out.push(b'-'),
        }
    }
}

impl LogValue {
    fn append(&mut self, record: &LogRecord<'_>, out: &mut Vec<u8>) {
        let (exchange, request) = (record.exchange, record.request());
        match self {
            Self::Client => append_address(record.client(), out),
            Self::Peer => append_address(exchange.peer.ip(), out),
            Self::PeerPort => write_decimal(exchange.peer.port().into(), out),
            Self::Identity => out.push(b'-'),
            Self::User => match request.and_then(Request::user).unwrap_or_default() {
                "" => out.push(b'-'),
                user => record.word(user.as_bytes(), out),
            },
            Self::Time(time_of, pattern) => out.extend_from_slice(pattern.at(record.unix_seconds(*time_of))),
            Self::UnixTime(time_of, unit) => write_decimal(unit.count(record.time(*time_of)), out),
            Self::Fraction(time_of, unit) => unit.append_fraction(record.time(*time_of), out),
            Self::RequestId => append_or_hyphen(record, request.map(|request| request_id(request).as_bytes()), out),
            Self::TraceId => append_trace_id(record, out),
            Self::RequestLine => append_line(record, out),
            Self::Method => append_or_hyphen(record, request.map(|request| request.method_text().as_bytes()), out),
            Self::Path => append_or_hyphen(record, request.map(Request::path_bytes), out),
            Self::Query => {
                if let Some(query) = request.and_then(received_query) {
                    out.push(b'?');
                    record.text(query.as_bytes(), out);
                }
            }
            Self::Protocol => append_or_hyphen(record, request.map(|request| protocol(request).as_bytes()), out),
            Self::Status => write_decimal(exchange.status.code().into(), out),
            Self::ContentBytesOrHyphen if exchange.content_bytes == 0 => out.push(b'-'),
            Self::ContentBytes | Self::ContentBytesOrHyphen => write_decimal(exchange.content_bytes, out),
            Self::BytesWithHead => write_decimal(exchange.content_bytes + exchange.head_bytes as u64, out),
            Self::Elapsed(unit) => match exchange.elapsed {
                Some(elapsed) => write_decimal(unit.count(elapsed), out),
                None => out.push(b'-'),
            },
            Self::Known(known) => {
                append_or_hyphen(record, request.and_then(|request| request.known_field(*known)), out)
            }
            Self::RequestField(name) => {
                let fields = request.into_iter().flat_map(Request::fields);
                let named = fields.filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
                append_list(record, named.map(|(_, value)| value), out);
            }
            Self::ResponseField(name) => {
                let named = exchange.fields.iter().filter(|(other, _)| other == name);
                append_list(record, named.map(|(_, value)| value), out);
            }
            Self::Cookie(name) => append_or_hyphen(record, request.and_then(|request| cookie(request, name)), out),
            Self::Site => append_or_hyphen(record, Some(record.site.as_bytes()), out),
            Self::Host => append_or_hyphen(record, record.host().map(|host| host.name), out),
            Self::Port => {
                let default = DEFAULT_PORTS[usize::from(request.is_some_and(|request| request.tls().is_some()))];
                write_decimal(record.host().and_then(|host| host.port).unwrap_or(default).into(), out);
            }
            Self::Tls(value) => {
                let text = request.and_then(Request::tls).and_then(|tls| value.of(tls));
                append_or_hyphen(record, text.map(str::as_bytes), out);
            }
            Self::Upstream(value) => match exchange.upstream {
                Some(upstream) => value.append(record, &upstream.facts(), out),
                None => out.push(b'-'),
            },
            Self::Connection => out.push(match (exchange.outcome, exchange.persistence) {
                (ResponseOutcome::Aborted, _) => b'X',
                (ResponseOutcome::Complete, Persistence::KeepAlive) => b'+',
                (ResponseOutcome::Complete, Persistence::Close) => b'-',
            }),
            Self::EarlierRequests => write_decimal(exchange.requests.saturating_sub(1).into(), out),
            Self::Fixed(text) => out.extend_from_slice(text),
        }
    }
}

impl TimeUnit {
    /// Appends the fraction of a second: six digits of microseconds, or three of milliseconds.
    fn append_fraction(self, time: std::time::Duration, out: &mut Vec<u8>) {
        match self {
            Self::Microseconds => append_digits(time.subsec_micros(), 6, out),
            Self::Seconds | Self::Milliseconds => append_digits(time.subsec_millis(), 3, out),
        }
    }

    fn count(self, elapsed: std::time::Duration) -> u64 {
        let count = match self {
            Self::Seconds => elapsed.as_secs().into(),
            Self::Milliseconds => elapsed.as_millis(),
            Self::Microseconds => elapsed.as_micros(),
        };
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

/// Returns the protocol, as in a request line.
pub(super) fn protocol(request: &Request) -> &'static str {
    request.version().as_str()
}

/// Appends a number with leading zeros.
pub(super) fn append_digits(number: u32, digits: u32, out: &mut Vec<u8>) {
    out.extend((0..digits).rev().map(|place| b'0' + (number / 10_u32.pow(place) % 10) as u8));
}

/// Appends an address. IPv4, the common case, needs no formatter.
pub(super) fn append_address(address: IpAddr, out: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            for (number, byte) in address.octets().into_iter().enumerate() {
                if number > 0 {
                    out.push(b'.');
                }
                write_decimal(byte.into(), out);
            }
        }
        // Writing to memory cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

fn append_or_hyphen(record: &LogRecord<'_>, value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        Some(value) if !value.is_empty() => record.text(value, out),
        _ => out.push(b'-'),
    }
}

fn append_trace_id(record: &LogRecord<'_>, out: &mut Vec<u8>) {
    match record.trace {
        Some(trace) => out.extend_from_slice(&trace.trace_id_text()),
        None => out.push(b'-'),
    }
}

/// Appends the request line. If it is cut, the protocol stays.
fn append_line(record: &LogRecord<'_>, out: &mut Vec<u8>) {
    let line = record.exchange.request_line;
    match record.request() {
        Some(request) if line.len() > record.value_bytes_max => {
            record.text(request.method_text().as_bytes(), out);
            out.push(b' ');
            record.text(request.target().as_bytes(), out);
            out.push(b' ');
            out.extend_from_slice(protocol(request).as_bytes());
        }
        _ => append_or_hyphen(record, Some(line), out),
    }
}

/// Appends the values of all lines of a field, joined.
fn append_list<'a>(record: &LogRecord<'_>, values: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    let begin = out.len();
    for value in values.filter(|value| !value.is_empty()) {
        if out.len() > begin {
            out.extend_from_slice(b", ");
        }
        if out.len() - begin > record.value_bytes_max {
            out.extend_from_slice(TRUNCATION_MARK);
            break;
        }
        record.text(value, out);
    }
    if out.len() == begin {
        out.push(b'-');
    }
}

/// Returns the value of the first cookie with a name (RFC 6265 §4.2.1).
fn cookie<'a>(request: &'a Request, name: &str) -> Option<&'a [u8]> {
    let lines = request.fields().filter(|(other, _)| other.eq_ignore_ascii_case(b"cookie"));
    let mut pairs = lines.flat_map(|(_, value)| value.split(|&b| b == b';')).map(<[u8]>::trim_ascii);
    pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}
