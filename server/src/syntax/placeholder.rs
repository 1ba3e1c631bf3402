//! Placeholders in targets and texts: `{host}`, `{1}`, `{name}`, and the values that fill them.

use super::ValueError;
use super::captures::Captures;
use super::foreign;
use super::glob;
use super::variable::{VARIABLES, Variable};
use selvedge::proto::path::encode_text;
use std::net::IpAddr;

/// A part of a target or text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePiece {
    Text(Box<str>),
    /// `*`: the wildcard without a name of this index, from 0.
    Star(usize),
    /// `{1}`: the wildcard of this index, from 0.
    Number(usize),
    /// `{name}`: the wildcard of this name.
    Named(Box<str>),
    /// `{host}` and the like.
    Variable(Variable),
}

/// What a request fills placeholders with.
#[derive(Clone, Debug)]
pub(crate) struct RequestValues<'a> {
    pub(crate) captures: Captures<'a>,
    /// The decoded path, in the form that patterns match.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    /// Without a port.
    pub(crate) host: &'a str,
    pub(crate) scheme: &'static str,
    pub(crate) method: &'a str,
    pub(crate) client: IpAddr,
    /// The subject of the client's verified certificate, or empty.
    pub(crate) client_subject: &'a str,
}

/// What a value is inserted into, which decides how it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// A host of a URL.
    Host,
    /// A part of a query, or a text. Delimiters of a query, a field or a document are encoded, too.
    Strict,
}

impl TemplatePiece {
    /// Parses what is between braces.
    pub(super) fn parse(name: &str) -> Result<Self, ValueError> {
        if let Ok(number) = name.parse::<usize>() {
            return match number.checked_sub(1) {
                Some(index) if index < glob::WILDCARDS_MAX => Ok(Self::Number(index)),
                _ => Err(ValueError::new(format!("no pattern has a wildcard {number}"), "the first one is {1}")),
            };
        }
        if let Some(variable) = Variable::named(name) {
            return Ok(Self::Variable(variable));
        }
        let rest = name.strip_suffix("...").unwrap_or(name);
        if glob::is_name(rest) {
            return Ok(Self::Named(rest.into()));
        }
        let instead = match foreign::placeholder(name) {
            Some(ours) => format!("write {ours}"),
            None => format!("write {}, or the name of a wildcard", list_variables()),
        };
        Err(ValueError::new(format!("`{{{}}}` is not filled in here", name.escape_debug()), instead))
    }

    /// Appends the value of a placeholder.
    pub(super) fn fill(&self, values: &RequestValues<'_>, encoding: Encoding, out: &mut String) {
        let captures = &values.captures;
        let text = match self {
            Self::Text(text) => return out.push_str(text),
            Self::Star(index) => captures.star(*index),
            Self::Number(index) => captures.get(*index),
            Self::Named(name) => captures.named(name),
            Self::Variable(Variable::Path) => values.path,
            Self::Variable(Variable::Host) => return push_host(values.host, encoding, out),
            Self::Variable(Variable::Scheme) => return out.push_str(values.scheme),
            Self::Variable(Variable::Client) => return out.push_str(&values.client.to_string()),
            Self::Variable(Variable::ClientSubject) => values.client_subject,
            Self::Variable(Variable::Method) => values.method,
            Self::Variable(Variable::Query) => return push_query(values.query.unwrap_or_default(), out),
        };
        match encoding {
            Encoding::Host => out.push_str(&text.to_ascii_lowercase()),
            Encoding::Strict => push_strictly(text, out),
        }
    }
}

/// Appends the requested host, which may have delimiters (RFC 3986 §3.2.2) that mean something in a text.
fn push_host(host: &str, encoding: Encoding, out: &mut String) {
    for byte in host.bytes().map(|b| b.to_ascii_lowercase()) {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if is_plain || encoding == Encoding::Host { out.push(char::from(byte)) } else { push_encoded(byte, out) }
    }
}

/// Returns the names of all values, for messages.
pub(crate) fn list_variables() -> String {
    VARIABLES.map(|(name, ..)| format!("{{{name}}}")).join(", ")
}

/// The settings whose values have placeholders, for messages.
const FILLED: &str = "`redirect`, `rewrite`, `try-files`, `respond`, `header`, `header-add`, `path`, `header-up`, \
                      `header-up-add`, `header-down` and `header-down-add`";

/// Which names between braces are placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceholderNames {
    /// Numbers and the values of a request.
    Known,
    /// Also those that a wildcard may have.
    Any,
}

/// Refuses a placeholder in a value that would keep it as it is.
pub(crate) fn check_no_placeholder(text: &str, names: PlaceholderNames) -> Result<(), ValueError> {
    let is_one = |written: &&str| match TemplatePiece::parse(&written[1..written.len() - 1]) {
        Ok(TemplatePiece::Named(_)) | Err(_) => names == PlaceholderNames::Any,
        Ok(_) => true,
    };
    let ours = text.match_indices('{').find_map(|(at, _)| placeholder_name(&text[at..]).filter(is_one));
    let Some(written) = ours.or_else(|| foreign::known_variable(text)) else { return Ok(()) };
    let instead = format!("write it out; only {FILLED} fill placeholders");
    Err(ValueError::new(format!("`{written}` is not filled in here"), instead))
}

/// Encodes a value for a query or a text, including all delimiters.
pub(super) fn push_strictly(text: &str, out: &mut String) {
    encode_text(text, b"-._~/", out);
}

/// Appends a query, which is encoded already. Characters that could end a quoted text or start a tag are encoded.
fn push_query(query: &str, out: &mut String) {
    for byte in query.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/=&%+;,:@?!*".contains(&byte) {
            out.push(char::from(byte));
        } else {
            push_encoded(byte, out);
        }
    }
}

pub(super) fn push_encoded(byte: u8, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend(['%', char::from(HEX[usize::from(byte >> 4)]), char::from(HEX[usize::from(byte & 15)])]);
}

/// A text with placeholders: the body of a response, or the value of a field.
///
/// Invariant: a value is percent-encoded, so it can neither end a line nor start a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextTemplate {
    /// As written.
    text: Box<str>,
    pieces: Box<[TemplatePiece]>,
}

impl TextTemplate {
    /// Parses a text. Braces that are no placeholder stand for themselves, as in JSON; `{{name}}` is the text `{name}`.
    pub(crate) fn parse(text: &str) -> Result<Self, ValueError> {
        foreign::check_known_variables(text)?;
        let mut pieces: Vec<TemplatePiece> = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            literal.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(name) = placeholder_name(&rest[1..]).filter(|name| rest[1 + name.len()..].starts_with('}')) {
                // `{{name}}`
                literal.push_str(name);
                rest = &rest[name.len() + 2..];
            } else if let Some(name) = placeholder_name(rest) {
                if !literal.is_empty() {
                    pieces.push(TemplatePiece::Text(std::mem::take(&mut literal).into()));
                }
                pieces.push(TemplatePiece::parse(&name[1..name.len() - 1])?);
                rest = &rest[name.len()..];
            } else {
                literal.push('{');
                rest = &rest[1..];
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(TemplatePiece::Text(literal.into()));
        }
        Ok(Self { text: text.into(), pieces: pieces.into() })
    }

    /// Returns the text if it has no placeholder.
    pub(crate) fn as_static(&self) -> Option<&str> {
        match &*self.pieces {
            [] => Some(""),
            [TemplatePiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the names of the wildcards that it needs, and the highest number.
    pub(crate) fn needs(&self) -> Needs<'_> {
        Needs::of([&*self.pieces])
    }

    /// Returns the text with values.
    pub(crate) fn fill(&self, values: &RequestValues<'_>) -> String {
        let mut out = String::new();
        self.pieces.iter().for_each(|piece| piece.fill(values, Encoding::Strict, &mut out));
        out
    }
}

impl std::fmt::Display for TextTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns `{name}` or `{1}` at the start of a text.
fn placeholder_name(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('{')?;
    let end = inner.find('}')?;
    let name = &inner[..end];
    let is_number = !name.is_empty() && name.len() < 3 && name.bytes().all(|b| b.is_ascii_digit());
    (is_number || glob::is_name(name)).then(|| &text[..end + 2])
}

/// The wildcards that a target or text needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs<'a> {
    /// The number of wildcards without a name: one more than the highest `*`.
    pub(crate) stars: usize,
    /// The number of wildcards: the highest `{1}`.
    pub(crate) numbers: usize,
    pub(crate) names: Vec<&'a str>,
}

impl<'a> Needs<'a> {
    pub(super) fn of(all: impl IntoIterator<Item = &'a [TemplatePiece]>) -> Self {
        let mut needs = Self::default();
        for piece in all.into_iter().flatten() {
            match piece {
                TemplatePiece::Star(index) => needs.stars = needs.stars.max(index + 1),
                TemplatePiece::Number(index) => needs.numbers = needs.numbers.max(index + 1),
                TemplatePiece::Named(name) => needs.names.push(name),
                TemplatePiece::Text(_) | TemplatePiece::Variable(_) => {}
            }
        }
        needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> RequestValues<'static> {
        RequestValues {
            captures: Captures::whole("a<b/é"),
            path: "/x/a<b/é",
            query: Some("q=1&r=<\"'>"),
            host: "Example.COM",
            scheme: "http",
            method: "GET",
            client: IpAddr::from([127, 0, 0, 1]),
            client_subject: "CN=alice, O=\"A\"",
        }
    }

    #[test]
    fn texts_are_filled() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("{\"m.server\": \"{host}:443\"}", "{\"m.server\": \"example.com:443\"}"),
            ("{scheme} {method} {client} {1}", "http GET 127.0.0.1 a%3Cb/%C3%A9"),
            ("{client_subject}", "CN%3Dalice%2C%20O%3D%22A%22"),
            ("{path}?{query}", "/x/a%3Cb/%C3%A9?q=1&r=%3C%22%27%3E"),
            ("{{host}} {} { {a b}", "{host} {} { {a b}"),
            ("a{color:red}", "a{color:red}"),
        ] {
            assert_eq!(TextTemplate::parse(text).unwrap().fill(&values()), expected, "{text}");
        }
        let hostile = RequestValues { host: "a'(b", ..values() };
        assert_eq!(TextTemplate::parse("{host}").unwrap().fill(&hostile), "a%27%28b");
        for text in ["$host", "%{REQUEST_URI}", "{0}", "{9}"] {
            assert!(TextTemplate::parse(text).is_err(), "{text}");
        }
        assert_eq!(TextTemplate::parse("{who}").unwrap().needs().names, ["who"]);
        assert_eq!(TextTemplate::parse("costs $5 {").unwrap().as_static(), Some("costs $5 {"));
    }
}
