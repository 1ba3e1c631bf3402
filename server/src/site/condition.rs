//! The conditions of a route on requests, beyond its path.

use super::network::any_contains;
use crate::syntax::{Captures, Network, TextPattern};
use selvedge::Request;
use selvedge::proto::field::trim;
use std::borrow::Cow;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Time for which the existence of a file is known, in milliseconds.
const FLAG_FILE_TIME_MS: u64 = 1000;

/// One condition of a route. All conditions of the route must match.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// The method is one of these. GET includes HEAD, because HEAD gets the response of GET without content
    /// (RFC 9110 §9.3.2).
    Method(Vec<Box<str>>),
    /// A decoded parameter of the query has this name and value.
    Query(NamedCondition),
    /// A line of a field has this name and value. Names ignore the case of letters.
    Field(NamedCondition),
    /// A cookie has this name and value.
    Cookie(NamedCondition),
    /// The client is in one of these networks.
    Client(Vec<Network>),
    /// The requested host is one of these.
    Host(Vec<TextPattern>),
    /// The scheme is this one.
    Scheme(Box<str>),
    /// The client has a verified certificate, with one of these subjects unless the list is empty.
    ClientCertificate(Vec<TextPattern>),
    /// This file exists.
    FileExists(Arc<FlagFile>),
    /// The condition does not match.
    Not(Box<Self>),
    /// One of these matches.
    Any(Vec<Self>),
    /// All of these match.
    All(Vec<Self>),
}

/// A condition on a value that has a name.
#[derive(Clone, Debug)]
pub(crate) struct NamedCondition {
    pub(crate) name: Box<str>,
    /// One of them matches. If the list is empty, any value does.
    pub(crate) values: Vec<TextPattern>,
}

impl NamedCondition {
    fn matches(&self, value: &[u8]) -> bool {
        self.values.is_empty() || self.values.iter().any(|pattern| pattern.is_match_bytes(value))
    }
}

/// A file whose existence is a switch, such as one for maintenance.
///
/// It is looked up once per second at most, so that its directory may be slow.
#[derive(Debug)]
pub(crate) struct FlagFile {
    path: PathBuf,
    epoch: Instant,
    /// Milliseconds since the epoch of the next look-up, and whether the file existed, in the lowest bit.
    state: AtomicU64,
}

impl FlagFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, epoch: Instant::now(), state: AtomicU64::new(0) }
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn exists(&self) -> bool {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX >> 1);
        let state = self.state.load(Ordering::Relaxed);
        if now < state >> 1 {
            return state & 1 == 1;
        }
        let exists = self.path.exists();
        self.state.store((now + FLAG_FILE_TIME_MS) << 1 | u64::from(exists), Ordering::Relaxed);
        exists
    }
}

impl Condition {
    /// Whether the condition matches a request of this client.
    pub(super) fn matches(&self, request: &Request, client: IpAddr) -> bool {
        match self {
            Self::Method(methods) => methods.iter().any(|method| method_matches(method, request.method_text())),
            Self::Query(condition) => has_parameter(request.query().unwrap_or(""), condition),
            Self::Field(condition) => {
                let mut lines =
                    request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(condition.name.as_bytes()));
                lines.any(|(_, value)| condition.matches(value))
            }
            Self::Cookie(condition) => {
                let lines = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"cookie"));
                lines
                    .flat_map(|(_, line)| cookies(line))
                    .any(|(name, value)| name == condition.name.as_bytes() && condition.matches(value))
            }
            Self::Client(networks) => any_contains(networks, client),
            Self::Host(patterns) => {
                let host = host_of(request);
                patterns.iter().any(|pattern| pattern.is_match(host))
            }
            Self::ClientCertificate(subjects) => {
                let subject = request.tls().and_then(|tls| tls.peer_subject());
                subject.is_some_and(|subject| {
                    subjects.is_empty() || subjects.iter().any(|pattern| pattern.is_match(subject))
                })
            }
            Self::Scheme(scheme) => **scheme == *scheme_of(request),
            Self::FileExists(file) => file.exists(),
            Self::Not(condition) => !condition.matches(request, client),
            Self::Any(conditions) => conditions.iter().any(|condition| condition.matches(request, client)),
            Self::All(conditions) => conditions.iter().all(|condition| condition.matches(request, client)),
        }
    }

    /// Adds what the named wildcards of a host captured. Only conditions that had to match count.
    pub(super) fn capture<'p>(&'p self, request: &'p Request, captures: &mut Captures<'p>) {
        match self {
            Self::Host(patterns) => {
                let host = host_of(request);
                if let Some(pattern) = patterns.iter().find(|pattern| pattern.is_match(host)) {
                    pattern.capture(host, captures);
                }
            }
            Self::All(conditions) => conditions.iter().for_each(|condition| condition.capture(request, captures)),
            _ => {}
        }
    }
}

/// Returns the requested host, without a port.
pub(super) fn host_of(request: &Request) -> &str {
    request.host().and_then(|host| std::str::from_utf8(host.name).ok()).unwrap_or_default()
}

/// Returns the scheme of a request.
pub(super) fn scheme_of(request: &Request) -> &'static str {
    if request.tls().is_some() { "https" } else { "http" }
}

/// Returns the cookies of a field line (RFC 6265 §4.2.1).
fn cookies(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    line.split(|&b| b == b';').filter_map(|pair| {
        let at = pair.iter().position(|&b| b == b'=')?;
        Some((trim(&pair[..at]), trim(&pair[at + 1..])))
    })
}

fn method_matches(wanted: &str, method: &str) -> bool {
    wanted == method || (wanted == "GET" && method == "HEAD")
}

fn has_parameter(query: &str, condition: &NamedCondition) -> bool {
    query.split('&').any(|pair| {
        let (own_name, own_value) = pair.split_once('=').unwrap_or((pair, ""));
        !pair.is_empty() && *decode(own_name) == *condition.name.as_bytes() && condition.matches(&decode(own_value))
    })
}

/// Decodes a part of a query, with `+` for a space as in forms. An invalid percent-encoding is kept as it is.
fn decode(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|b| b == b'%' || b == b'+') {
        return Cow::Borrowed(text.as_bytes());
    }
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16)).map(|digit| digit as u8);
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let (decoded, len) = match (byte, digit(bytes.get(at + 1)), digit(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => (high << 4 | low, 3),
            (b'+', ..) => (b' ', 1),
            _ => (byte, 1),
        };
        out.push(decoded);
        at += len;
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::CaseSensitivity;

    fn named(name: &str, value: Option<&str>) -> NamedCondition {
        let values = value.map(|value| TextPattern::parse(value, CaseSensitivity::Sensitive).unwrap());
        NamedCondition { name: name.into(), values: values.into_iter().collect() }
    }

    #[test]
    fn parameters() {
        for (query, name, value, expected) in [
            ("", "a", None, false),
            ("a", "a", None, true),
            ("a", "a", Some(""), true),
            ("a=", "a", Some(""), true),
            ("b&a=1", "a", Some("1"), true),
            ("a=2&a=1", "a", Some("1"), true),
            ("a=1", "a", Some("2"), false),
            ("A=1", "a", None, false),
            ("%61=%31", "a", Some("1"), true),
            ("a=x+y%20z", "a", Some("x y z"), true),
            ("a=%zz", "a", Some("%zz"), true),
            ("a=b=c", "a", Some("b=c"), true),
            ("&&", "", None, false),
            ("a=draft-7", "a", Some("draft-*"), true),
            ("a=7", "a", Some("regex:^[0-9]$"), true),
        ] {
            assert_eq!(has_parameter(query, &named(name, value)), expected, "{query} {name} {value:?}");
        }
    }

    #[test]
    fn methods() {
        assert!(method_matches("GET", "GET") && method_matches("GET", "HEAD") && method_matches("PURGE", "PURGE"));
        assert!(!method_matches("HEAD", "GET") && !method_matches("get", "GET"));
    }

    #[test]
    fn cookies_are_split() {
        let line: Vec<_> = cookies(b"a=1; b=x=y;c; =d").collect();
        assert_eq!(line, [(&b"a"[..], &b"1"[..]), (b"b", b"x=y"), (b"", b"d")]);
    }

    #[test]
    fn existence_of_a_file_is_known_for_a_second() {
        let path = std::env::temp_dir().join(format!("selvedge-flag-{}", std::process::id()));
        let file = FlagFile::new(path.clone());
        assert!(!file.exists());
        std::fs::write(&path, "").unwrap();
        assert!(!file.exists(), "it is not looked up again");
        file.state.store(0, Ordering::Relaxed);
        assert!(file.exists());
        std::fs::remove_file(&path).unwrap();
    }
}
