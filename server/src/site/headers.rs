//! What a site changes of the fields of its answers, whatever their status.

use super::pattern::Pattern;
use selvedge::proto::field::{Fields, InvalidField};
use selvedge::{Response, Status};
use std::fmt;

/// Changes of fields, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderEdits {
    edits: Vec<Edit>,
}

#[derive(Clone, Debug)]
enum Edit {
    Set(Box<str>, Box<str>),
    Add(Box<str>, Box<str>),
    Remove(Box<str>),
}

/// Why a field cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// The name or the value cannot stand in a head, or the field is the engine's to write.
    Invalid(InvalidField),
    /// It says what part of a file an answer has, or what follows its content.
    Framing,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => error.fmt(f),
            Self::Framing => f.write_str("this field says what the answer is made of, so it cannot be changed"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// Fields beside those of the engine that have to be as they are made.
const FRAMING: [&str; 4] = ["content-range", "proxy-connection", "te", "trailer"];

/// Whether a field of this name and value may be written; the judgement is the engine's own.
fn judge(name: &str, value: &str) -> Result<(), HeaderError> {
    Fields::new().append(name, value).map_err(HeaderError::Invalid)?;
    if FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
        return Err(HeaderError::Framing);
    }
    Ok(())
}

impl HeaderEdits {
    /// Has a field stand in place of all of its name.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), HeaderError> {
        judge(name, value)?;
        self.edits.push(Edit::Set(name.into(), value.into()));
        Ok(())
    }

    /// Adds a field.
    pub(crate) fn add(&mut self, name: &str, value: &str) -> Result<(), HeaderError> {
        judge(name, value)?;
        self.edits.push(Edit::Add(name.into(), value.into()));
        Ok(())
    }

    /// Takes all fields of a name out.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), HeaderError> {
        judge(name, "")?;
        self.edits.push(Edit::Remove(name.into()));
        Ok(())
    }

    /// These, and others behind them.
    pub(super) fn followed_by(&self, others: &Self) -> Self {
        Self { edits: self.edits.iter().chain(&others.edits).cloned().collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Changes the fields. The type of an answer of several parts says where they are divided,
    /// so it stays.
    pub(super) fn apply(&self, fields: &mut Fields) {
        let in_parts = fields.get("content-type").is_some_and(|kind| kind.starts_with(b"multipart/byteranges"));
        for edit in &self.edits {
            let (Edit::Set(name, _) | Edit::Add(name, _) | Edit::Remove(name)) = edit;
            if in_parts && name.eq_ignore_ascii_case("content-type") {
                continue;
            }
            match edit {
                Edit::Set(name, value) => fields.set(name, &**value).expect("it was judged when it was made"),
                Edit::Add(name, value) => fields.append(name, &**value).expect("it was judged when it was made"),
                Edit::Remove(name) => fields.remove(name),
            }
        }
    }
}

/// How long files may be kept, by the paths that they are asked for: the first pattern counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheRules {
    rules: Vec<(Pattern, Box<str>)>,
}

impl CacheRules {
    /// Adds a value of Cache-Control for what this pattern is about.
    pub(crate) fn add(&mut self, pattern: Pattern, value: &str) -> Result<(), HeaderError> {
        judge("cache-control", value)?;
        self.rules.push((pattern, value.into()));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// These, and others where none of these is about a path.
    pub(super) fn followed_by(&self, others: &Self) -> Self {
        Self { rules: self.rules.iter().chain(&others.rules).cloned().collect() }
    }

    /// What is to be said of this path.
    pub(super) fn value_for(&self, text: &str) -> Option<&str> {
        self.rules.iter().find(|(pattern, _)| pattern.matches(text).is_some()).map(|(_, value)| &**value)
    }
}

/// Adds Cache-Control where nothing says it yet.
pub(super) fn add_cache_control(fields: &mut Fields, value: Option<&str>) {
    if let Some(value) = value.filter(|_| fields.get("cache-control").is_none()) {
        fields.append("cache-control", value).expect("it was judged when it was made");
    }
}

/// Whether an answer has a file, or says that the client has it: what Cache-Control is for.
pub(super) fn is_of_file(response: &Response) -> bool {
    [Status::OK, Status::PARTIAL_CONTENT, Status::NOT_MODIFIED].contains(&response.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_in_order() {
        let mut edits = HeaderEdits::default();
        edits.set("X-One", "1").unwrap();
        edits.add("x-one", "2").unwrap();
        edits.remove("ETag").unwrap();
        edits.set("Content-Type", "text/plain").unwrap();
        let mut more = HeaderEdits::default();
        more.remove("x-two").unwrap();
        let all = edits.followed_by(&more);
        let mut fields = Fields::new();
        for (name, value) in [("content-type", "text/html"), ("etag", "\"e\""), ("x-one", "0"), ("x-two", "0")] {
            fields.append(name, value).unwrap();
        }
        all.apply(&mut fields);
        assert_eq!(fields.lines(), b"x-one: 1\r\nx-one: 2\r\ncontent-type: text/plain\r\n");
        let mut parts = Fields::new();
        parts.append("content-type", "multipart/byteranges; boundary=x").unwrap();
        all.apply(&mut parts);
        assert!(parts.get("content-type").unwrap().starts_with(b"multipart/"));
    }

    #[test]
    fn fields_that_cannot_be_changed() {
        for name in ["Content-Length", "Transfer-Encoding", "Connection", "Date", "Keep-Alive", "Upgrade", "Server"] {
            let expected = Err(HeaderError::Invalid(InvalidField::EngineOnly));
            assert_eq!(HeaderEdits::default().set(name, "x"), expected, "{name}");
            assert_eq!(HeaderEdits::default().add(name, "x"), expected, "{name}");
            assert_eq!(HeaderEdits::default().remove(name), expected, "{name}");
        }
        for name in ["content-range", "Trailer", "TE"] {
            assert_eq!(HeaderEdits::default().remove(name), Err(HeaderError::Framing), "{name}");
        }
        let set = |name, value| HeaderEdits::default().set(name, value);
        assert_eq!(set("a b", "x"), Err(HeaderError::Invalid(InvalidField::Name)));
        assert_eq!(set("a", "x\r\nb: y"), Err(HeaderError::Invalid(InvalidField::Value)));
    }

    #[test]
    fn the_first_pattern_counts() {
        let mut rules = CacheRules::default();
        rules.add(Pattern::parse("/assets/*").unwrap(), "max-age=31536000, immutable").unwrap();
        rules.add(Pattern::parse("*.html").unwrap(), "no-cache").unwrap();
        assert_eq!(rules.value_for("/assets/a.html"), Some("max-age=31536000, immutable"));
        assert_eq!(rules.value_for("/a.html"), Some("no-cache"));
        assert_eq!(rules.value_for("/a.png"), None);
        assert!(rules.add(Pattern::parse("/a").unwrap(), "a\nb").is_err());
    }
}
