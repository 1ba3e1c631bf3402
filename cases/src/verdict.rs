//! The verdict on a message as one line of text, and its comparison with the expected verdict.
//!
//! A server under test produces such lines. A line matches an expected one if it equals it in all
//! items that the expected line has. So a row contains only the items that it checks.

use crate::escape::{quoted, unescape, word};
use selvedge_proto::field::Fields;
use selvedge_proto::head::{Expectation, RequestHead};
use selvedge_proto::path::SafePath;
use selvedge_proto::target::TargetForm;
use selvedge_proto::{Persistence, Reject, StatusCode};
use std::collections::BTreeMap;

/// The line of an incomplete message.
pub const WAIT: &str = "wait";

/// The keys of an accepted request.
const KEYS: [&str; 7] = ["version", "host", "path", "query", "content", "trailers", "expect"];

/// The verdict on one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The application receives the request.
    Accept {
        /// The method token.
        method: Vec<u8>,
        /// The target, as received.
        target: Vec<u8>,
        /// Other items of the request; see [`accept_line`].
        keys: BTreeMap<String, Vec<u8>>,
        /// Whether the connection persists; `None` if a row does not check it.
        persistence: Option<Persistence>,
    },
    /// The request is refused, and the connection is closed.
    Reject {
        /// The name of the [`Reject`].
        name: String,
        /// The status code of the response.
        status: u16,
    },
    /// The response of [`crate::model`]; the keyword in a row is `answer`.
    Response {
        /// The status code.
        status: u16,
        /// Fields by their lower-case names; `None` requires that a field is absent.
        fields: BTreeMap<String, Option<String>>,
        /// The content, as sent; `None` if a row does not check it.
        body: Option<Vec<u8>>,
        /// Whether the connection persists; `None` if a row does not check it.
        persistence: Option<Persistence>,
    },
    /// The message is incomplete, and nothing in it is refused.
    Wait,
}

/// Returns the line of an accepted request.
///
/// | key | value |
/// |---|---|
/// | `version` | `1.0`, `1.1`, `2.0` or `3.0` |
/// | `host` | host and port, from the target or from Host; `-` if both are absent |
/// | `path` | decoded, with a leading slash, and a final slash for a directory; `!` and the name of the reason if it is refused; `-` if the target's form has no path |
/// | `query` | as received; `-` if it is absent |
/// | `content` | decoded, in quotation marks |
/// | `trailers` | as lines, names in lower case, in quotation marks |
/// | `expect` | `continue` or `-` |
///
/// `bytes` begins with the first byte of the head.
pub fn accept_line(head: &RequestHead, bytes: &[u8], content: &[u8], trailers: &Fields) -> String {
    let part = |span: Option<selvedge_proto::target::Span>| match span.map(|span| word(span.of(bytes))) {
        // A single hyphen represents an absent item, so it is escaped.
        Some(text) if text == "-" => "\\x2d".to_owned(),
        Some(text) => text,
        None => "-".to_owned(),
    };
    let version = head.version.as_str().trim_start_matches("HTTP/");
    let expect = match head.expectation {
        Expectation::Continue => "continue",
        Expectation::None => "-",
    };
    format!(
        "accept {} {} version={version} host={} path={} query={} content={} trailers={} expect={expect} {}",
        word(head.method_span.of(bytes)),
        word(head.target.raw.of(bytes)),
        part(head.authority),
        path(head, bytes),
        part(head.target.query),
        quoted(content),
        quoted(trailers.lines()),
        persistence_word(head.persistence),
    )
}

fn path(head: &RequestHead, bytes: &[u8]) -> String {
    if matches!(head.target.form, TargetForm::Asterisk | TargetForm::Authority) {
        return "-".to_owned();
    }
    match SafePath::decode(head.target.path.of(bytes)) {
        Ok(path) => {
            let slash = if path.names_directory() && !path.as_str().is_empty() { "/" } else { "" };
            match path.file_path() {
                Some(bytes) => word(&[b"/", &*bytes, slash.as_bytes()].concat()),
                // An encoded slash would look like a separator.
                None => path.encode(),
            }
        }
        Err(reject) => format!("!{reject:?}"),
    }
}

/// Returns the line of a refused request.
pub fn reject_line(reject: Reject) -> String {
    format!("reject {} {} {}", reject.name(), reject.status().code(), persistence_word(reject.persistence()))
}

/// Returns the line of a response, as sent: `fields` has the framing fields too, and `body` is empty
/// if no content follows.
pub fn response_line(status: StatusCode, fields: &[(String, String)], body: &[u8], persistence: Persistence) -> String {
    let fields: String = fields.iter().map(|(name, value)| format!(" [{name}: {value}]")).collect();
    format!("answer {}{fields} body={} {}", status.code(), quoted(body), persistence_word(persistence))
}

fn persistence_word(persistence: Persistence) -> &'static str {
    match persistence {
        Persistence::KeepAlive => "keep",
        Persistence::Close => "close",
    }
}

impl Verdict {
    /// Parses a line without its `= `.
    ///
    /// # Errors
    /// One sentence that describes the syntax error.
    pub fn parse(line: &str) -> Result<Self, String> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words = split_words(rest)?;
        match kind {
            "wait" if words.is_empty() => Ok(Self::Wait),
            "accept" => Self::parse_accept(&words),
            "reject" => Self::parse_reject(&words),
            "answer" => Self::parse_response(&words),
            _ => Err(format!("`{line}` is not a verdict")),
        }
    }

    fn parse_accept(words: &[&str]) -> Result<Self, String> {
        let [method, target, words @ ..] = words else { return Err("expected `accept METHOD TARGET`".to_owned()) };
        let (words, persistence) = split_persistence(words);
        let mut keys = BTreeMap::new();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not key=value"))?;
            if !KEYS.contains(&key) {
                return Err(format!("`{key}` is not a known key"));
            }
            keys.insert(key.to_owned(), unquote(value)?);
        }
        Ok(Self::Accept { method: unescape(method)?, target: unescape(target)?, keys, persistence })
    }

    fn parse_reject(words: &[&str]) -> Result<Self, String> {
        let [name, status, "close"] = words else { return Err("expected `reject NAME STATUS close`".to_owned()) };
        if !Reject::ALL.iter().any(|reject| reject.name() == *name) {
            return Err(format!("`{name}` is not the name of a Reject"));
        }
        Ok(Self::Reject { name: (*name).to_owned(), status: parse_status(status)? })
    }

    fn parse_response(words: &[&str]) -> Result<Self, String> {
        let [status, words @ ..] = words else { return Err("expected `answer STATUS`".to_owned()) };
        let (words, persistence) = split_persistence(words);
        let (mut fields, mut body) = (BTreeMap::new(), None);
        for word in words {
            if let Some(value) = word.strip_prefix("body=") {
                body = Some(unquote(value)?);
                continue;
            }
            let field = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
            let field = field.ok_or_else(|| format!("`{word}` is not [name: value]"))?;
            match (field.strip_prefix('!'), field.split_once(": ")) {
                (Some(name), _) => fields.insert(name.to_ascii_lowercase(), None),
                (None, Some((name, value))) => fields.insert(name.to_ascii_lowercase(), Some(value.to_owned())),
                (None, None) => return Err(format!("`{word}` is not [name: value]")),
            };
        }
        Ok(Self::Response { status: parse_status(status)?, fields, body, persistence })
    }

    /// Whether no message is read after this one.
    pub fn is_last(&self) -> bool {
        match self {
            Self::Accept { persistence, .. } | Self::Response { persistence, .. } => {
                *persistence == Some(Persistence::Close)
            }
            Self::Reject { .. } | Self::Wait => true,
        }
    }

    /// Whether `got` equals this verdict in all items that this verdict has.
    pub fn matches(&self, got: &Self) -> bool {
        let same_persistence = |want: &Option<Persistence>, got: &Option<Persistence>| want.is_none() || want == got;
        match (self, got) {
            (
                Self::Accept { method, target, keys, persistence },
                Self::Accept { method: got_method, target: got_target, keys: got_keys, persistence: got_persistence },
            ) => {
                method == got_method
                    && target == got_target
                    && keys.iter().all(|(key, value)| got_keys.get(key) == Some(value))
                    && same_persistence(persistence, got_persistence)
            }
            (
                Self::Response { status, fields, body, persistence },
                Self::Response { status: got_status, fields: got_fields, body: got_body, persistence: got_persistence },
            ) => {
                status == got_status
                    && fields.iter().all(|(name, value)| got_fields.get(name).unwrap_or(&None) == value)
                    && (body.is_none() || body == got_body)
                    && same_persistence(persistence, got_persistence)
            }
            _ => self == got,
        }
    }
}

/// Splits a line into words. A word in quotation marks or brackets may contain spaces.
fn split_words(line: &str) -> Result<Vec<&str>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = word_end(rest).ok_or_else(|| format!("`{rest}` has no closing quotation mark or bracket"))?;
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    Ok(words)
}

fn word_end(text: &str) -> Option<usize> {
    if text.starts_with('[') {
        // A port may follow an address in brackets.
        let close = text.find(']')?;
        return Some(text[close..].find(' ').map_or(text.len(), |space| close + space));
    }
    let space = text.find(' ').unwrap_or(text.len());
    match text.find('"').filter(|&quote| quote < space && text[..quote].ends_with('=')) {
        None => Some(space),
        Some(quote) => {
            let bytes = text.as_bytes();
            let mut at = quote + 1;
            while *bytes.get(at)? != b'"' {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            Some(at + 1)
        }
    }
}

fn split_persistence<'a, 'w>(words: &'w [&'a str]) -> (&'w [&'a str], Option<Persistence>) {
    match words {
        [words @ .., "keep"] => (words, Some(Persistence::KeepAlive)),
        [words @ .., "close"] => (words, Some(Persistence::Close)),
        _ => (words, None),
    }
}

fn unquote(value: &str) -> Result<Vec<u8>, String> {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    unescape(inner.unwrap_or(value))
}

fn parse_status(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("`{text}` is not a status code"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(want: &str, got: &str) -> bool {
        Verdict::parse(want).unwrap().matches(&Verdict::parse(got).unwrap())
    }

    #[test]
    fn only_the_items_of_the_expected_verdict_are_compared() {
        let got = r#"accept GET /a?b="c" host=h path=/x\x20y content="a \"b\" \\" keep"#;
        assert!(matches("accept GET /a?b=\"c\"", got));
        assert!(matches(r#"accept GET /a?b="c" content="\x61 \"b\" \\" keep"#, got));
        assert!(!matches("accept GET /a?b=\"c\" close", got));
        assert!(!matches("accept GET /a?b=\"c\" host=i", got));
        assert!(!matches("accept GET /a?b=\"c\" query=q", got));
        let got = r#"answer 206 [content-range: bytes 0-0/9] [etag: "d"] body="0" keep"#;
        assert!(matches("answer 206 [Content-Range: bytes 0-0/9] [!vary]", got));
        assert!(!matches("answer 206 [!etag]", got));
        assert!(!matches("answer 206 [vary: x]", got));
        assert!(!matches("answer 206 body=\"1\"", got));
        assert!(!matches("wait", "reject ContentLengthWithTransferEncoding 400 close"));
    }

    #[test]
    fn invalid_verdicts_are_refused() {
        for line in [
            "",
            "waits",
            "accept GET",
            "accept GET / colour=red",
            "accept GET / content=\"x",
            "reject Nothing 400 close",
            "reject ContentLengthWithTransferEncoding 400",
            "answer 2x0",
            "answer 200 [etag",
            "answer 200 etag",
        ] {
            assert!(Verdict::parse(line).is_err(), "{line}");
        }
    }
}
