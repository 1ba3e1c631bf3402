//! The changes that a site makes to response fields, for every status code.

use crate::syntax::Pattern;
use selvedge::proto::field::{Fields, InvalidField};
use selvedge::{Response, StatusCode};
use std::fmt;

/// Changes to fields, applied in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderEdits {
    edits: Vec<HeaderEdit>,
}

#[derive(Clone, Debug)]
enum HeaderEdit {
    Set(Box<str>, Box<str>),
    Add(Box<str>, Box<str>),
    Remove(Box<str>),
}

/// Why a field cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// The name or value is not valid, or the engine sets the field.
    Invalid(InvalidField),
    /// The field describes a part of a file, or the message framing.
    Framing,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => error.fmt(f),
            Self::Framing => f.write_str("the server sets this field for message framing, so it cannot be changed"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// Fields, besides those of the engine, that describe the message framing.
const FRAMING_FIELDS: [&str; 4] = ["content-range", "proxy-connection", "te", "trailer"];

/// Checks that a field may be set. The engine validates the name and the value.
fn validate(name: &str, value: &str) -> Result<(), HeaderError> {
    Fields::new().append(name, value).map_err(HeaderError::Invalid)?;
    if FRAMING_FIELDS.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
        return Err(HeaderError::Framing);
    }
    Ok(())
}

impl HeaderEdits {
    /// Replaces all fields of a name by one.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), HeaderError> {
        validate(name, value)?;
        self.edits.push(HeaderEdit::Set(name.into(), value.into()));
        Ok(())
    }

    /// Adds a field.
    pub(crate) fn add(&mut self, name: &str, value: &str) -> Result<(), HeaderError> {
        validate(name, value)?;
        self.edits.push(HeaderEdit::Add(name.into(), value.into()));
        Ok(())
    }

    /// Removes all fields of a name.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), HeaderError> {
        validate(name, "")?;
        self.edits.push(HeaderEdit::Remove(name.into()));
        Ok(())
    }

    /// Returns these changes followed by others.
    pub(super) fn concat(&self, others: &Self) -> Self {
        Self { edits: self.edits.iter().chain(&others.edits).cloned().collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Applies the changes. The media type of a multipart response contains its boundary, so it is not changed.
    pub(super) fn apply(&self, fields: &mut Fields) {
        let in_parts = fields.get("content-type").is_some_and(|kind| kind.starts_with(b"multipart/byteranges"));
        for edit in &self.edits {
            let (HeaderEdit::Set(name, _) | HeaderEdit::Add(name, _) | HeaderEdit::Remove(name)) = edit;
            if in_parts && name.eq_ignore_ascii_case("content-type") {
                continue;
            }
            match edit {
                HeaderEdit::Set(name, value) => fields.set(name, &**value).expect("new fields are validated"),
                HeaderEdit::Add(name, value) => fields.append(name, &**value).expect("new fields are validated"),
                HeaderEdit::Remove(name) => fields.remove(name),
            }
        }
    }
}

/// The `Cache-Control` of files by request path. The first matching pattern counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheControlRules {
    rules: Vec<(Pattern, Box<str>)>,
}

impl CacheControlRules {
    /// Adds a Cache-Control value for the paths of a pattern.
    pub(crate) fn add(&mut self, pattern: Pattern, value: &str) -> Result<(), HeaderError> {
        validate("cache-control", value)?;
        self.rules.push((pattern, value.into()));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns these rules followed by others, which apply to paths that none of these match.
    pub(super) fn concat(&self, others: &Self) -> Self {
        Self { rules: self.rules.iter().chain(&others.rules).cloned().collect() }
    }

    /// Returns the Cache-Control of a path.
    pub(super) fn value_for(&self, text: &str) -> Option<&str> {
        self.rules.iter().find(|(pattern, _)| pattern.matches(text).is_some()).map(|(_, value)| &**value)
    }
}

/// Adds Cache-Control if the fields have none.
pub(super) fn add_cache_control(fields: &mut Fields, value: Option<&str>) {
    if let Some(value) = value.filter(|_| fields.get("cache-control").is_none()) {
        fields.append("cache-control", value).expect("new fields are validated");
    }
}

/// Whether a response has a file or refers to the client's copy of it, so that Cache-Control applies.
pub(super) fn is_file_response(response: &Response) -> bool {
    [StatusCode::OK, StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED].contains(&response.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_apply_in_order() {
        let mut edits = HeaderEdits::default();
        edits.set("X-One", "1").unwrap();
        edits.add("x-one", "2").unwrap();
        edits.remove("ETag").unwrap();
        edits.set("Content-Type", "text/plain").unwrap();
        let mut more = HeaderEdits::default();
        more.remove("x-two").unwrap();
        let all = edits.concat(&more);
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
    fn reserved_fields_are_rejected() {
        for name in ["Content-Length", "Transfer-Encoding", "Connection", "Date", "Keep-Alive", "Upgrade", "Server"] {
            let expected = Err(HeaderError::Invalid(InvalidField::Reserved));
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
    fn first_matching_pattern_wins() {
        let mut rules = CacheControlRules::default();
        rules.add(Pattern::parse("/assets/*").unwrap(), "max-age=31536000, immutable").unwrap();
        rules.add(Pattern::parse("*.html").unwrap(), "no-cache").unwrap();
        assert_eq!(rules.value_for("/assets/a.html"), Some("max-age=31536000, immutable"));
        assert_eq!(rules.value_for("/a.html"), Some("no-cache"));
        assert_eq!(rules.value_for("/a.png"), None);
        assert!(rules.add(Pattern::parse("/a").unwrap(), "a\nb").is_err());
    }
}
