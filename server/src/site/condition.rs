//! The conditions of a route on requests, beyond its path.

use super::network::any_contains;
use crate::syntax::Network;
use selvedge::Request;
use selvedge::proto::field::is_token;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// One condition of a route. All conditions of the route must match.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// The method is one of these. GET includes HEAD, because HEAD gets the response of GET without content
    /// (RFC 9110 §9.3.2).
    Method(Vec<Box<str>>),
    /// The query has this parameter.
    Query {
        /// The decoded name.
        name: Box<str>,
        /// The decoded value; `None` for any value.
        value: Option<Box<str>>,
    },
    /// The request has this field.
    Field(FieldCondition),
    /// The client is in one of these networks.
    Client(Vec<Network>),
}

/// A condition on a field. It matches if one line of the field matches.
#[derive(Clone, Debug)]
pub(crate) struct FieldCondition {
    name: Box<str>,
    test: FieldTest,
}

/// The test of a field value. Values are compared byte by byte.
#[derive(Clone, Debug)]
pub(crate) enum FieldTest {
    /// The field is present.
    Present,
    /// The value equals this text.
    Equals(Box<str>),
}

/// The name of a field is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidFieldName;

impl fmt::Display for InvalidFieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name has letters, digits and hyphens")
    }
}

impl std::error::Error for InvalidFieldName {}

impl FieldCondition {
    /// Creates a condition on the field of this name.
    pub(crate) fn new(name: &str, test: FieldTest) -> Result<Self, InvalidFieldName> {
        if is_token(name.as_bytes()) { Ok(Self { name: name.into(), test }) } else { Err(InvalidFieldName) }
    }

    fn matches(&self, request: &Request) -> bool {
        let mut lines = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(self.name.as_bytes()));
        lines.any(|(_, value)| match &self.test {
            FieldTest::Present => true,
            FieldTest::Equals(text) => value == text.as_bytes(),
        })
    }
}

impl Condition {
    /// Whether the condition matches a request of this client.
    pub(super) fn matches(&self, request: &Request, client: IpAddr) -> bool {
        match self {
            Self::Method(methods) => methods.iter().any(|method| method_matches(method, request.method_text())),
            Self::Query { name, value } => has_parameter(request.query().unwrap_or(""), name, value.as_deref()),
            Self::Field(field) => field.matches(request),
            Self::Client(networks) => any_contains(networks, client),
        }
    }
}

fn method_matches(wanted: &str, method: &str) -> bool {
    wanted == method || (wanted == "GET" && method == "HEAD")
}

fn has_parameter(query: &str, name: &str, value: Option<&str>) -> bool {
    query.split('&').any(|pair| {
        let (own_name, own_value) = pair.split_once('=').unwrap_or((pair, ""));
        !pair.is_empty()
            && *decode(own_name) == *name.as_bytes()
            && value.is_none_or(|value| *decode(own_value) == *value.as_bytes())
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
        ] {
            assert_eq!(has_parameter(query, name, value), expected, "{query} {name} {value:?}");
        }
    }

    #[test]
    fn methods() {
        assert!(method_matches("GET", "GET") && method_matches("GET", "HEAD") && method_matches("PURGE", "PURGE"));
        assert!(!method_matches("HEAD", "GET") && !method_matches("get", "GET"));
        assert_eq!(FieldCondition::new("a b", FieldTest::Present).err(), Some(InvalidFieldName));
    }
}
