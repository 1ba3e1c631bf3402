//! What becomes of a message, as one line of text, and whether that is what a row expects.
//!
//! A server under test writes such lines; a row's line allows it when everything that the
//! row names is the same. So a row names what it is about and leaves out the rest.

use crate::escape::{quoted, unescape, word};
use crate::rows::Case;
use selvedge_proto::field::Fields;
use selvedge_proto::head::{Expectation, RequestHead, Version};
use selvedge_proto::path::SafePath;
use selvedge_proto::target::Form;
use selvedge_proto::{Afterwards, Reject, Status};
use std::collections::BTreeMap;

/// The line for a message that is not complete.
pub const WAIT: &str = "wait";

/// The keys of an accepted request.
const KEYS: [&str; 7] = ["version", "host", "path", "query", "content", "trailers", "expect"];

/// What becomes of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to the application.
    Accept {
        /// The method's token.
        method: Vec<u8>,
        /// The target as it came.
        target: Vec<u8>,
        /// What else is known of it; see [`accept`].
        keys: BTreeMap<String, Vec<u8>>,
        /// Whether the connection lives on, where that is said.
        afterwards: Option<Afterwards>,
    },
    /// It is refused, and the connection ends.
    Reject {
        /// The name of the reason.
        name: String,
        /// The status of the answer.
        status: u16,
    },
    /// It is answered by [`crate::model`].
    Answer {
        /// The status.
        status: u16,
        /// Fields by their lower-case names; `None` stands for one that is absent.
        fields: BTreeMap<String, Option<String>>,
        /// The content as it goes on the wire.
        body: Option<Vec<u8>>,
        /// Whether the connection lives on, where that is said.
        afterwards: Option<Afterwards>,
    },
    /// It is not complete, and nothing is wrong with it so far.
    Wait,
}

/// The line for a request that goes to the application.
///
/// | key | value |
/// |---|---|
/// | `version` | `1.0` or `1.1` |
/// | `host` | host and port in force, from the target or from Host; `-` without any |
/// | `path` | decoded, with a leading slash, and one at the end for a directory; `!` and the reason's name when it names nothing; `-` where the target's form has none |
/// | `query` | as it came; `-` without any |
/// | `content` | decoded, in quotation marks |
/// | `trailers` | as lines, names in lower case, in quotation marks |
/// | `expect` | `continue` or `-` |
///
/// `bytes` are those of the head, from its first byte.
pub fn accept(head: &RequestHead, bytes: &[u8], content: &[u8], trailers: &Fields) -> String {
    let part = |span: Option<selvedge_proto::target::Span>| match span.map(|span| word(span.of(bytes))) {
        // A lone hyphen stands for nothing at all.
        Some(text) if text == "-" => "\\x2d".to_owned(),
        Some(text) => text,
        None => "-".to_owned(),
    };
    let version = match head.version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
    };
    let expect = match head.expectation {
        Expectation::Continue => "continue",
        Expectation::None => "-",
    };
    format!(
        "accept {} {} version={version} host={} path={} query={} content={} trailers={} expect={expect} {}",
        word(head.method_span.of(bytes)),
        word(head.target.whole.of(bytes)),
        part(head.authority),
        path(head, bytes),
        part(head.target.query),
        quoted(content),
        quoted(trailers.lines()),
        fate(head.persistence),
    )
}

fn path(head: &RequestHead, bytes: &[u8]) -> String {
    if matches!(head.target.form, Form::Asterisk | Form::Authority) {
        return "-".to_owned();
    }
    match SafePath::decode(head.target.path.of(bytes)) {
        Ok(path) => {
            let slash = if path.names_directory() && !path.as_str().is_empty() { "/" } else { "" };
            word(format!("/{}{slash}", path.as_str()).as_bytes())
        }
        Err(reject) => format!("!{reject:?}"),
    }
}

/// The line for a request that is refused.
pub fn reject(reject: Reject) -> String {
    format!("reject {} {} {}", reject.name(), reject.status().code(), fate(reject.afterwards()))
}

/// The line for an answer, as it goes on the wire: with the length that the head names, and
/// without content where none follows.
pub fn answer(status: Status, fields: &[(String, String)], body: &[u8], afterwards: Afterwards) -> String {
    let fields: String = fields.iter().map(|(name, value)| format!(" [{name}: {value}]")).collect();
    format!("answer {}{fields} body={} {}", status.code(), quoted(body), fate(afterwards))
}

fn fate(afterwards: Afterwards) -> &'static str {
    match afterwards {
        Afterwards::KeepOpen => "keep",
        Afterwards::Close => "close",
    }
}

impl Verdict {
    /// Reads a line, without its `= `.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(line: &str) -> Result<Self, String> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words = split(rest)?;
        match kind {
            "wait" if words.is_empty() => Ok(Self::Wait),
            "accept" => Self::parse_accept(&words),
            "reject" => Self::parse_reject(&words),
            "answer" => Self::parse_answer(&words),
            _ => Err(format!("`{line}` is no verdict")),
        }
    }

    fn parse_accept(words: &[&str]) -> Result<Self, String> {
        let [method, target, words @ ..] = words else { return Err("accept METHOD TARGET".to_owned()) };
        let (words, afterwards) = split_fate(words);
        let mut keys = BTreeMap::new();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no key=value"))?;
            if !KEYS.contains(&key) {
                return Err(format!("`{key}` is no key"));
            }
            keys.insert(key.to_owned(), unquote(value)?);
        }
        Ok(Self::Accept { method: unescape(method)?, target: unescape(target)?, keys, afterwards })
    }

    fn parse_reject(words: &[&str]) -> Result<Self, String> {
        let [name, status, "close"] = words else { return Err("reject NAME STATUS close".to_owned()) };
        if !Reject::ALL.iter().any(|reject| reject.name() == *name) {
            return Err(format!("`{name}` is no reason to refuse"));
        }
        Ok(Self::Reject { name: (*name).to_owned(), status: parse_status(status)? })
    }

    fn parse_answer(words: &[&str]) -> Result<Self, String> {
        let [status, words @ ..] = words else { return Err("answer STATUS".to_owned()) };
        let (words, afterwards) = split_fate(words);
        let (mut fields, mut body) = (BTreeMap::new(), None);
        for word in words {
            if let Some(value) = word.strip_prefix("body=") {
                body = Some(unquote(value)?);
                continue;
            }
            let field = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
            let field = field.ok_or_else(|| format!("`{word}` is no [name: value]"))?;
            match (field.strip_prefix('!'), field.split_once(": ")) {
                (Some(name), _) => fields.insert(name.to_ascii_lowercase(), None),
                (None, Some((name, value))) => fields.insert(name.to_ascii_lowercase(), Some(value.to_owned())),
                (None, None) => return Err(format!("`{word}` is no [name: value]")),
            };
        }
        Ok(Self::Answer { status: parse_status(status)?, fields, body, afterwards })
    }

    /// Whether nothing is read after it.
    pub fn is_last(&self) -> bool {
        match self {
            Self::Accept { afterwards, .. } | Self::Answer { afterwards, .. } => *afterwards == Some(Afterwards::Close),
            Self::Reject { .. } | Self::Wait => true,
        }
    }

    /// Whether `got` has everything that this one names, and the same.
    pub fn allows(&self, got: &Self) -> bool {
        let same_fate = |want: &Option<Afterwards>, got: &Option<Afterwards>| want.is_none() || want == got;
        match (self, got) {
            (
                Self::Accept { method, target, keys, afterwards },
                Self::Accept { method: got_method, target: got_target, keys: got_keys, afterwards: got_afterwards },
            ) => {
                method == got_method
                    && target == got_target
                    && keys.iter().all(|(key, value)| got_keys.get(key) == Some(value))
                    && same_fate(afterwards, got_afterwards)
            }
            (
                Self::Answer { status, fields, body, afterwards },
                Self::Answer { status: got_status, fields: got_fields, body: got_body, afterwards: got_afterwards },
            ) => {
                status == got_status
                    && fields.iter().all(|(name, value)| got_fields.get(name).unwrap_or(&None) == value)
                    && (body.is_none() || body == got_body)
                    && same_fate(afterwards, got_afterwards)
            }
            _ => self == got,
        }
    }
}

/// Compares the lines that a server wrote with what a row expects.
///
/// # Errors
/// A text that names the row, what it expects and what came.
pub fn check(case: &Case, got: &[String]) -> Result<(), String> {
    let read: Result<Vec<Verdict>, String> = got.iter().map(|line| Verdict::parse(line)).collect();
    let read = read.map_err(|error| format!("{case}: {error}"))?;
    let holds =
        read.len() == case.verdicts.len() && case.verdicts.iter().zip(&read).all(|(want, got)| want.allows(got));
    if holds { Ok(()) } else { Err(describe(case, got)) }
}

/// Both sides of a disagreement, each cut to a length that can be read.
fn describe(case: &Case, got: &[String]) -> String {
    const SHOWN_CHARS_MAX: usize = 600;
    let shown = |text: String| match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    };
    let mut out = format!("{case}\n  sent {}\n", shown(word(&case.raw)));
    for verdict in &case.verdicts {
        out.push_str(&format!("  want {}\n", shown(format!("{verdict:?}"))));
    }
    for line in got {
        out.push_str(&format!("  got  {}\n", shown(line.clone())));
    }
    out
}

/// The words of a line; a word in quotation marks or brackets may hold spaces.
fn split(line: &str) -> Result<Vec<&str>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = word_end(rest).ok_or_else(|| format!("`{rest}` does not end"))?;
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    Ok(words)
}

fn word_end(text: &str) -> Option<usize> {
    if text.starts_with('[') {
        // An address in brackets may go on with a port.
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

fn split_fate<'a, 'w>(words: &'w [&'a str]) -> (&'w [&'a str], Option<Afterwards>) {
    match words {
        [words @ .., "keep"] => (words, Some(Afterwards::KeepOpen)),
        [words @ .., "close"] => (words, Some(Afterwards::Close)),
        _ => (words, None),
    }
}

fn unquote(value: &str) -> Result<Vec<u8>, String> {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    unescape(inner.unwrap_or(value))
}

fn parse_status(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("`{text}` is no status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(want: &str, got: &str) -> bool {
        Verdict::parse(want).unwrap().allows(&Verdict::parse(got).unwrap())
    }

    #[test]
    fn a_row_names_what_it_cares_for() {
        let got = r#"accept GET /a?b="c" host=h path=/x\x20y content="a \"b\" \\" keep"#;
        assert!(allows("accept GET /a?b=\"c\"", got));
        assert!(allows(r#"accept GET /a?b="c" content="\x61 \"b\" \\" keep"#, got));
        assert!(!allows("accept GET /a?b=\"c\" close", got));
        assert!(!allows("accept GET /a?b=\"c\" host=i", got));
        assert!(!allows("accept GET /a?b=\"c\" query=q", got));
        let got = r#"answer 206 [content-range: bytes 0-0/9] [etag: "d"] body="0" keep"#;
        assert!(allows("answer 206 [Content-Range: bytes 0-0/9] [!vary]", got));
        assert!(!allows("answer 206 [!etag]", got));
        assert!(!allows("answer 206 [vary: x]", got));
        assert!(!allows("answer 206 body=\"1\"", got));
        assert!(!allows("wait", "reject TwoFramings 400 close"));
    }

    #[test]
    fn what_is_no_verdict() {
        for line in [
            "",
            "waits",
            "accept GET",
            "accept GET / colour=red",
            "accept GET / content=\"x",
            "reject Nothing 400 close",
            "reject TwoFramings 400",
            "answer two",
            "answer 200 [etag",
            "answer 200 etag",
        ] {
            assert!(Verdict::parse(line).is_err(), "{line}");
        }
    }
}
