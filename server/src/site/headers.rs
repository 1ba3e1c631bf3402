//! The changes that a site makes to response fields, for every status code or for selected responses.

use super::step_recorder::{Stage, StepOrigin, StepRecorder, StepVerdict};
use crate::syntax::{Pattern, RequestValues, ResponseSelector, SentFile, TextTemplate};
use selvedge::proto::field::{Fields, InvalidField};
use selvedge::{Response, StatusCode};
use std::fmt;

/// Changes to fields, applied in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderEdits {
    edits: Vec<HeaderEdit>,
}

#[derive(Clone, Debug)]
struct HeaderEdit {
    name: Box<str>,
    kind: HeaderEditKind,
    /// The responses that it is for; `None` for all.
    only_for: Option<ResponseSelector>,
}

#[derive(Clone, Debug)]
enum HeaderEditKind {
    Set(FieldValue),
    Add(FieldValue),
    Remove,
}

#[derive(Clone, Debug)]
enum FieldValue {
    Static(Box<str>),
    /// Filled for each request. The values are encoded, so the result is a valid field value.
    Template(TextTemplate),
}

/// One change to the fields of a request.
#[cfg(feature = "configuration")]
pub(super) struct FieldEdit<'a> {
    pub(super) name: &'a str,
    /// Whether earlier fields of the name are removed.
    pub(super) replaces: bool,
    /// The value of a new field.
    pub(super) value: Option<&'a str>,
}

/// What decides which changes a response gets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponseFacts<'a> {
    /// The path of the request, in the form that patterns match. `None` if it does not count.
    pub(super) requested: Option<&'a str>,
    /// The file of a successful response.
    pub(super) file: Option<SentFile<'a>>,
    /// Whether the content is an error page of the server, which the fields of a file do not describe.
    pub(super) is_own_page: bool,
}

/// Why a field cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// The name or value is not valid, or the engine sets the field.
    Invalid(InvalidField),
    /// The field describes a part of a file, the message framing, or the time of the response.
    Framing,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => error.fmt(f),
            Self::Framing => f.write_str("the server sets this field, so it cannot be changed"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// Fields, besides those of the engine, that describe the message framing or its time.
const FRAMING_FIELDS: [&str; 5] = ["content-range", "date", "proxy-connection", "te", "trailer"];

/// Fields that describe the content. Those of a route are for its files, not for the pages of errors.
const CONTENT_FIELDS: [&str; 3] = ["content-type", "content-encoding", "content-language"];

/// Checks that a field may be set or removed. The engine validates the name and the value.
fn validate(name: &str, value: &str) -> Result<(), HeaderError> {
    if FRAMING_FIELDS.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
        return Err(HeaderError::Framing);
    }
    Fields::new().append(name, value).map_err(HeaderError::Invalid)
}

impl HeaderEdits {
    /// Replaces all fields of a name by one.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: TextTemplate,
        only_for: Option<ResponseSelector>,
    ) -> Result<(), HeaderError> {
        let value = FieldValue::new(name, value)?;
        self.edits.push(HeaderEdit { name: name.into(), kind: HeaderEditKind::Set(value), only_for });
        Ok(())
    }

    /// Adds a field.
    pub(crate) fn add(
        &mut self,
        name: &str,
        value: TextTemplate,
        only_for: Option<ResponseSelector>,
    ) -> Result<(), HeaderError> {
        let value = FieldValue::new(name, value)?;
        self.edits.push(HeaderEdit { name: name.into(), kind: HeaderEditKind::Add(value), only_for });
        Ok(())
    }

    /// Removes all fields of a name.
    pub(crate) fn remove(&mut self, name: &str, only_for: Option<ResponseSelector>) -> Result<(), HeaderError> {
        validate(name, "")?;
        self.edits.push(HeaderEdit { name: name.into(), kind: HeaderEditKind::Remove, only_for });
        Ok(())
    }

    /// Returns the changes in order, for the fields of a request. Their values have to be filled.
    #[cfg(feature = "configuration")]
    pub(super) fn iter(&self) -> impl Iterator<Item = FieldEdit<'_>> {
        self.edits.iter().map(|edit| {
            let (replaces, value) = match &edit.kind {
                HeaderEditKind::Set(FieldValue::Static(value)) => (true, Some(&**value)),
                HeaderEditKind::Add(FieldValue::Static(value)) => (false, Some(&**value)),
                HeaderEditKind::Remove => (true, None),
                HeaderEditKind::Set(_) | HeaderEditKind::Add(_) => {
                    debug_assert!(false, "the values are filled");
                    (false, None)
                }
            };
            FieldEdit { name: &edit.name, replaces, value }
        })
    }

    /// Returns the names of the changed fields.
    #[cfg(feature = "configuration")]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.edits.iter().map(|edit| &*edit.name)
    }

    /// Returns these changes followed by others.
    pub(crate) fn concat(&self, others: &Self) -> Self {
        Self { edits: self.edits.iter().chain(&others.edits).cloned().collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Whether no response has the field Server after these changes.
    pub(super) fn removes_server(&self) -> bool {
        let mut of_server = self.edits.iter().filter(|edit| edit.name.eq_ignore_ascii_case("server"));
        let last = of_server.rfind(|edit| edit.only_for.is_none());
        last.is_some_and(|edit| matches!(edit.kind, HeaderEditKind::Remove))
    }

    /// Whether a value depends on the request.
    pub(super) fn has_placeholders(&self) -> bool {
        self.edits.iter().any(|edit| {
            matches!(
                edit.kind,
                HeaderEditKind::Set(FieldValue::Template(_)) | HeaderEditKind::Add(FieldValue::Template(_))
            )
        })
    }

    /// Returns these changes with the values of a request.
    pub(super) fn filled(&self, values: &RequestValues<'_>) -> Self {
        let fill = |value: &FieldValue| match value {
            FieldValue::Static(text) => FieldValue::Static(text.clone()),
            FieldValue::Template(template) => FieldValue::Static(template.fill(values).into()),
        };
        let edits = self.edits.iter().map(|edit| HeaderEdit {
            name: edit.name.clone(),
            kind: match &edit.kind {
                HeaderEditKind::Set(value) => HeaderEditKind::Set(fill(value)),
                HeaderEditKind::Add(value) => HeaderEditKind::Add(fill(value)),
                HeaderEditKind::Remove => HeaderEditKind::Remove,
            },
            only_for: edit.only_for.clone(),
        });
        Self { edits: edits.collect() }
    }

    /// Applies the changes for a response.
    pub(super) fn apply(&self, fields: &mut Fields, facts: ResponseFacts<'_>) {
        let kept_field = kept_field(fields);
        for edit @ HeaderEdit { name, kind, .. } in &self.edits {
            if !edit.is_for(kept_field, facts) {
                continue;
            }
            match kind {
                HeaderEditKind::Set(FieldValue::Static(value)) => {
                    fields.set(name, &**value).expect("new fields are validated");
                }
                HeaderEditKind::Add(FieldValue::Static(value)) => {
                    fields.append(name, &**value).expect("new fields are validated");
                }
                HeaderEditKind::Set(_) | HeaderEditKind::Add(_) => debug_assert!(false, "the values are filled"),
                HeaderEditKind::Remove => fields.remove(name),
            }
        }
    }
}

impl HeaderEdits {
    /// Records the changes that apply to a response.
    pub(super) fn record(&self, fields: &Fields, facts: ResponseFacts<'_>, recorder: &StepRecorder) {
        let kept_field = kept_field(fields);
        for (number, edit) in self.edits.iter().enumerate().filter(|(_, edit)| edit.is_for(kept_field, facts)) {
            let name = &edit.name;
            let text = match &edit.kind {
                HeaderEditKind::Set(FieldValue::Static(value)) => format!("{name} is {value}"),
                HeaderEditKind::Add(FieldValue::Static(value)) => format!("{name}: {value} is added"),
                HeaderEditKind::Set(FieldValue::Template(value)) | HeaderEditKind::Add(FieldValue::Template(value)) => {
                    format!("{name} is {value}")
                }
                HeaderEditKind::Remove => format!("{name} is removed"),
            };
            recorder.step(Stage::Field, StepVerdict::Yes, StepOrigin::FieldChange(number), text);
        }
    }
}

/// Returns the name of a field that no change may touch. The media type of several ranges of a file contains the text
/// that separates them.
fn kept_field(fields: &Fields) -> Option<&'static str> {
    let kind = fields.get("content-type")?;
    kind.starts_with(b"multipart/byteranges").then_some("content-type")
}

impl HeaderEdit {
    /// Whether the change is for a response with a field that is kept.
    fn is_for(&self, kept_field: Option<&str>, facts: ResponseFacts<'_>) -> bool {
        let is_field = |field: &str| self.name.eq_ignore_ascii_case(field);
        let is_excluded = kept_field.is_some_and(is_field)
            || (facts.is_own_page && CONTENT_FIELDS.iter().any(|field| is_field(field)));
        !is_excluded && self.only_for.as_ref().is_none_or(|selector| selector.selects(facts.requested, facts.file))
    }
}

impl FieldValue {
    fn new(name: &str, value: TextTemplate) -> Result<Self, HeaderError> {
        match value.as_static() {
            Some(text) => {
                validate(name, text)?;
                Ok(Self::Static(text.into()))
            }
            None => {
                validate(name, &value.to_string())?;
                Ok(Self::Template(value))
            }
        }
    }
}

/// The fields of files by their path or media type: `Cache-Control` and `Content-Type`. The first match counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileFieldRules {
    cache_control: Vec<(ResponseSelector, Box<str>)>,
    content_types: Vec<(Pattern, Box<str>)>,
}

impl FileFieldRules {
    /// Adds a Cache-Control value for the responses of a selector.
    pub(crate) fn add(&mut self, selector: ResponseSelector, value: &str) -> Result<(), HeaderError> {
        validate("cache-control", value)?;
        self.cache_control.push((selector, value.into()));
        Ok(())
    }

    /// Adds the media type of files of a path.
    pub(crate) fn add_content_type(&mut self, pattern: Pattern, media_type: &str) {
        self.content_types.push((pattern, media_type.into()));
    }

    /// Returns these rules followed by others, which apply to files that none of these match.
    pub(super) fn concat(&self, others: &Self) -> Self {
        Self {
            cache_control: self.cache_control.iter().chain(&others.cache_control).cloned().collect(),
            content_types: self.content_types.iter().chain(&others.content_types).cloned().collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cache_control.is_empty() && self.content_types.is_empty()
    }

    /// Returns the Cache-Control of a response.
    pub(super) fn cache_control(&self, facts: ResponseFacts<'_>) -> Option<&str> {
        let mut rules = self.cache_control.iter();
        rules.find(|(selector, _)| selector.selects(facts.requested, facts.file)).map(|(_, value)| &**value)
    }

    /// Returns the media type of a file, if a rule has one.
    pub(super) fn content_type(&self, path: &str) -> Option<&str> {
        self.content_types.iter().find(|(pattern, _)| pattern.is_match(path)).map(|(_, value)| &**value)
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
    is_successful(response.status)
}

/// Whether a response with this status has content, or refers to the client's copy of it.
pub(super) fn is_successful(status: StatusCode) -> bool {
    [StatusCode::OK, StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::CaseSensitivity;

    fn text(text: &str) -> TextTemplate {
        TextTemplate::parse(text).unwrap()
    }

    #[test]
    fn edits_apply_in_order() {
        let mut edits = HeaderEdits::default();
        edits.set("X-One", text("1"), None).unwrap();
        edits.add("x-one", text("2"), None).unwrap();
        edits.remove("ETag", None).unwrap();
        edits.set("Content-Type", text("text/plain"), None).unwrap();
        edits
            .add("x-page", text("1"), Some(ResponseSelector::parse("text/html", CaseSensitivity::Sensitive).unwrap()))
            .unwrap();
        let mut more = HeaderEdits::default();
        more.remove("x-two", None).unwrap();
        let all = edits.concat(&more);
        let mut fields = Fields::new();
        for (name, value) in [("content-type", "text/html"), ("etag", "\"e\""), ("x-one", "0"), ("x-two", "0")] {
            fields.append(name, value).unwrap();
        }
        all.apply(&mut fields, ResponseFacts::default());
        assert_eq!(fields.lines(), b"x-one: 1\r\nx-one: 2\r\ncontent-type: text/plain\r\n");
        let mut parts = Fields::new();
        parts.append("content-type", "multipart/byteranges; boundary=x").unwrap();
        let file = SentFile { path: "/a.html", media_type: "text/html; charset=utf-8" };
        all.apply(&mut parts, ResponseFacts { requested: Some("/a"), file: Some(file), is_own_page: false });
        assert!(parts.get("content-type").unwrap().starts_with(b"multipart/"));
        assert_eq!(parts.get("x-page"), Some(&b"1"[..]));
    }

    #[test]
    fn reserved_fields_are_rejected() {
        for name in ["Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade"] {
            let expected = Err(HeaderError::Invalid(InvalidField::Reserved));
            assert_eq!(HeaderEdits::default().set(name, text("x"), None), expected, "{name}");
            assert_eq!(HeaderEdits::default().add(name, text("x"), None), expected, "{name}");
            assert_eq!(HeaderEdits::default().remove(name, None), expected, "{name}");
        }
        for name in ["content-range", "Trailer", "TE", "Date"] {
            assert_eq!(HeaderEdits::default().remove(name, None), Err(HeaderError::Framing), "{name}");
        }
        let set = |name, value| HeaderEdits::default().set(name, text(value), None);
        assert_eq!(set("a b", "x"), Err(HeaderError::Invalid(InvalidField::Name)));
        assert_eq!(set("a", "x\r\nb: y"), Err(HeaderError::Invalid(InvalidField::Value)));
        assert_eq!(set("a", "{host}\r\nb: y"), Err(HeaderError::Invalid(InvalidField::Value)));
    }

    #[test]
    fn first_matching_rule_wins() {
        let selector = |text| ResponseSelector::parse(text, CaseSensitivity::Sensitive).unwrap();
        let mut rules = FileFieldRules::default();
        rules.add(selector("/assets/*"), "max-age=31536000, immutable").unwrap();
        rules.add(selector("*.html"), "no-cache").unwrap();
        rules.add_content_type(Pattern::parse("*.x").unwrap(), "application/x");
        let cache_control =
            |path| rules.cache_control(ResponseFacts { requested: Some(path), file: None, is_own_page: false });
        assert_eq!(cache_control("/assets/a.html"), Some("max-age=31536000, immutable"));
        assert_eq!(cache_control("/a.html"), Some("no-cache"));
        assert_eq!(cache_control("/a.png"), None);
        assert_eq!((rules.content_type("/a.x"), rules.content_type("/a.y")), (Some("application/x"), None));
        assert!(rules.add(selector("/a"), "a\nb").is_err());
    }
}
