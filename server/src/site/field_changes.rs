//! Which changes the rules of a route make to the fields of one response.

use super::headers::{self, FileFieldRules, HeaderEdits, ResponseFacts};
use super::lookup::FoundFile;
use super::step_recorder::{Stage, StepOrigin, StepRecorder, StepVerdict};
use crate::syntax::SentFile;
use selvedge::Response;
use selvedge::proto::field::Fields;

/// Where a response is from. Decides whether an error page replaces it and whether it gets `Cache-Control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseSource {
    /// A file, a directory, or the error for a missing one.
    File,
    /// A fallback page, or a file of `try-files` at a fixed path. Its `Cache-Control` is that of its own path, not of
    /// the request path, at which no file is.
    Fallback,
    /// A `respond` action of the configuration, or a server that the request was forwarded to. No error page replaces
    /// it.
    Configured,
    /// The server: an access rule, a redirect, a malformed request, a method without a file, a failure of a proxy.
    Generated,
}

/// The changes to the fields of one response.
pub(super) struct FieldChanges<'a> {
    content_type: Option<&'a str>,
    cache_control: Option<&'a str>,
    headers: &'a HeaderEdits,
    requested: &'a str,
    /// The path and media type of what is sent successfully.
    sent: Option<(String, String)>,
    is_own_page: bool,
}

impl<'a> FieldChanges<'a> {
    /// The changes for a file.
    pub(super) fn new(
        file_fields: &'a FileFieldRules,
        headers: &'a HeaderEdits,
        requested: &'a str,
        file: Option<&FoundFile>,
    ) -> Self {
        let file = file.map(|file| (file.path.clone(), file.resource.media_type().to_owned()));
        Self::with_sent(file_fields, headers, (Some(requested), requested), (file, true))
    }

    /// The changes for a file before its response is known, from this source.
    pub(super) fn of_file(
        file_fields: &'a FileFieldRules,
        headers: &'a HeaderEdits,
        requested: &'a str,
        (source, file): (ResponseSource, &FoundFile),
    ) -> Self {
        let counts = (source != ResponseSource::Fallback).then_some(requested);
        let file = (file.path.clone(), file.resource.media_type().to_owned());
        Self::with_sent(file_fields, headers, (counts, requested), (Some(file), true))
    }

    /// The changes for a response.
    pub(super) fn of_response(
        file_fields: &'a FileFieldRules,
        headers: &'a HeaderEdits,
        requested: &'a str,
        (source, response, file): (ResponseSource, &Response, Option<&(String, String)>),
    ) -> Self {
        let sent = match response.status {
            status if !headers::is_successful(status) => None,
            _ => file.cloned().or_else(|| {
                let media_type = response.fields().get("content-type")?;
                Some((requested.to_owned(), String::from_utf8_lossy(media_type).into_owned()))
            }),
        };
        let is_file = matches!(source, ResponseSource::File | ResponseSource::Fallback) && sent.is_some();
        let counts = (source != ResponseSource::Fallback).then_some(requested);
        let is_own_page = source != ResponseSource::Configured && !headers::is_successful(response.status);
        Self { is_own_page, ..Self::with_sent(file_fields, headers, (counts, requested), (sent, is_file)) }
    }

    /// `counts` is the path of the request if it counts for Cache-Control.
    fn with_sent(
        file_fields: &'a FileFieldRules,
        headers: &'a HeaderEdits,
        (counts, requested): (Option<&'a str>, &'a str),
        (mut sent, is_file): (Option<(String, String)>, bool),
    ) -> Self {
        let mut changes =
            Self { content_type: None, cache_control: None, headers, requested, sent: None, is_own_page: false };
        if let Some((path, media_type)) = sent.as_mut().filter(|_| is_file) {
            changes.content_type = file_fields.content_type(path);
            if let Some(own) = changes.content_type {
                *media_type = own.to_owned();
            }
            let facts =
                ResponseFacts { requested: counts, file: Some(SentFile { path, media_type }), is_own_page: false };
            changes.cache_control = file_fields.cache_control(facts);
        }
        changes.sent = sent;
        changes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.content_type.is_none() && self.cache_control.is_none() && self.headers.is_empty()
    }

    pub(super) fn apply(&self, fields: &mut Fields) {
        if let Some(media_type) = self.media_type_of(fields) {
            fields.set("content-type", media_type).expect("the parser checked it");
        }
        headers::add_cache_control(fields, self.cache_control);
        self.headers.apply(fields, self.facts());
    }

    /// Records the changes, in the order of [`Self::apply`].
    pub(super) fn record(&self, fields: &Fields, recorder: &StepRecorder) {
        if let Some(media_type) = self.media_type_of(fields) {
            let text = format!("content-type is {media_type}");
            recorder.step(Stage::Field, StepVerdict::Yes, StepOrigin::Setting("content-type"), text);
        }
        if let Some(value) = self.cache_control.filter(|_| fields.get("cache-control").is_none()) {
            let text = format!("cache-control is {value}");
            recorder.step(Stage::Field, StepVerdict::Yes, StepOrigin::Setting("cache-control"), text);
        }
        self.headers.record(fields, self.facts(), recorder);
    }

    /// Returns the media type that replaces that of the response.
    fn media_type_of(&self, fields: &Fields) -> Option<&'a str> {
        let is_changed = |own: &[u8]| !own.starts_with(b"multipart/byteranges");
        self.content_type.filter(|_| fields.get("content-type").is_some_and(is_changed))
    }

    fn facts(&self) -> ResponseFacts<'_> {
        let file = self.sent.as_ref().map(|(path, media_type)| SentFile { path, media_type });
        ResponseFacts { requested: Some(self.requested), file, is_own_page: self.is_own_page }
    }
}
