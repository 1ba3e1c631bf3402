//! What a route asks of a request beyond its path.

use super::network::{Network, any_contains};
use selvedge::Request;
use selvedge::proto::field::is_token;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// One thing that a route asks of a request. All of a route's conditions have to hold.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// The method is one of these. GET stands for HEAD, too, which is answered as GET would be (RFC 9110 §9.3.2).
    Method(Vec<Box<str>>),
    /// The query has this parameter.
    Query {
        /// Its name, decoded.
        name: Box<str>,
        /// Its value, decoded; any if there is none.
        value: Option<Box<str>>,
    },
    /// The request has this field.
    Field(FieldCondition),
    /// The client is from one of these networks.
    Client(Vec<Network>),
}

/// What is asked of a field. A field of several lines is asked line by line.
#[derive(Clone, Debug)]
pub(crate) struct FieldCondition {
    name: Box<str>,
    test: FieldTest,
}

/// What is asked of the value of a field, octet by octet.
#[derive(Clone, Debug)]
pub(crate) enum FieldTest {
    /// That there is one.
    Present,
    /// That it is this.
    Equals(Box<str>),
}

/// The name of a field is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoFieldName;

impl fmt::Display for NoFieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name has letters, digits and hyphens")
    }
}

impl std::error::Error for NoFieldName {}

impl FieldCondition {
    /// Asks this of the field of this name.
    pub(crate) fn new(name: &str, test: FieldTest) -> Result<Self, NoFieldName> {
        if is_token(name.as_bytes()) { Ok(Self { name: name.into(), test }) } else { Err(NoFieldName) }
    }

    fn holds_for(&self, request: &Request) -> bool {
        let mut lines = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(self.name.as_bytes()));
        lines.any(|(_, value)| match &self.test {
            FieldTest::Present => true,
            FieldTest::Equals(text) => value == text.as_bytes(),
        })
    }
}

impl Condition {
    /// Whether it holds for a request of this client.
    pub(super) fn holds_for(&self, request: &Request, client: IpAddr) -> bool {
        match self {
            Self::Method(methods) => methods.iter().any(|method| is_method(method, request.method_text())),
            Self::Query { name, value } => has_parameter(request.query().unwrap_or(""), name, value.as_deref()),
            Self::Field(field) => field.holds_for(request),
            Self::Client(networks) => any_contains(networks, client),
        }
    }
}

fn is_method(asked: &str, method: &str) -> bool {
    asked == method || (asked == "GET" && method == "HEAD")
}

fn has_parameter(query: &str, name: &str, value: Option<&str>) -> bool {
    query.split('&').any(|pair| {
        let (own_name, own_value) = pair.split_once('=').unwrap_or((pair, ""));
        !pair.is_empty()
            && *decode(own_name) == *name.as_bytes()
            && value.is_none_or(|value| *decode(own_value) == *value.as_bytes())
    })
}

/// A part of a query without its encoding, which forms write with `+` for a space. What is no
/// encoding stands for itself.
fn decode(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|b| b == b'%' || b == b'+') {
        return Cow::Borrowed(text.as_bytes());
    }
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16)).map(|digit| digit as u8);
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let (octet, len) = match (byte, digit(bytes.get(at + 1)), digit(bytes.get(at + 2))) {
            (b'%', Some(high), Some(low)) => (high << 4 | low, 3),
            (b'+', ..) => (b' ', 1),
            _ => (byte, 1),
        };
        out.push(octet);
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
        assert!(is_method("GET", "GET") && is_method("GET", "HEAD") && is_method("PURGE", "PURGE"));
        assert!(!is_method("HEAD", "GET") && !is_method("get", "GET"));
        assert_eq!(FieldCondition::new("a b", FieldTest::Present).err(), Some(NoFieldName));
    }
}
