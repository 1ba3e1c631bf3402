//! What the pipeline records of a request that is only explained.

use super::Pipeline;
use crate::site::access::AccessRules;
use crate::site::field_changes::FieldChanges;
use crate::site::files::FileError;
use crate::site::files_rules::FilesRules;
use crate::site::lookup::{FileLookup, FoundBy};
use crate::site::route_table::{CacheScope, FoundRoute, Route};
use crate::site::step_recorder::{Stage, StepOrigin, StepRecorder, StepVerdict};
use crate::site::step_texts;
use bytes::Bytes;
use selvedge::proto::path::SafePath;
use selvedge::service::{Body, Chunks, LogRule, StreamError};
use selvedge::{Request, Response, StatusCode};
use std::pin::Pin;
use std::task::{Context, Poll};

impl<'t> Pipeline<'t> {
    /// Returns what records the steps; `None` for a request that is served.
    pub(super) fn recorder(&self) -> Option<&'t StepRecorder> {
        self.state.recorder.as_ref()
    }

    /// Finds the route of a path.
    pub(super) fn look_at_routes(&self, request: &Request, text: &str) -> FoundRoute<'t> {
        let Some(recorder) = self.recorder() else { return self.site.find_route(text, (request, self.client)) };
        recorder.enter_route(None);
        let routes = &self.site.rules.routes;
        let found = self.site.find_route_observed(text, (request, self.client), |number, look| {
            step_texts::record_route(recorder, (number, &routes[number]), (text, look));
        });
        if found.matched.is_none() {
            recorder.step(Stage::Route, StepVerdict::Denied, StepOrigin::Site, "no route of the site matches");
        }
        found
    }

    /// Records that a route has fewer lines in the log.
    pub(super) fn record_log_rule(&self, rule: LogRule) {
        let Some(recorder) = self.recorder() else { return };
        let text = match rule {
            LogRule::All => return,
            LogRule::None => "the access log has no line of it".to_owned(),
            LogRule::Statuses(first, last) => format!("the access log has a line for statuses {first} to {last}"),
        };
        recorder.step(Stage::Log, StepVerdict::Note, StepOrigin::Setting("log"), text);
    }

    /// Records what a path leads to.
    pub(super) fn record_found(&self, rules: &FilesRules, path: &SafePath, found: &Result<FileLookup, FileError>) {
        let Some(recorder) = self.recorder() else { return };
        let (verdict, origin, text) = match found {
            Ok(FileLookup::File(file, FoundBy::Path(_))) => {
                (StepVerdict::Yes, StepOrigin::Setting("files"), format!("the file {}", file.path.escape_debug()))
            }
            Ok(FileLookup::File(file, _)) => {
                let text = format!("the file {} of `try-files`", file.path.escape_debug());
                (StepVerdict::Yes, StepOrigin::Setting("files"), text)
            }
            Ok(FileLookup::Fallback(file)) => {
                let text = format!("the fallback {}, because the request is for a page", file.path.escape_debug());
                (StepVerdict::Yes, StepOrigin::Setting("files"), text)
            }
            Ok(FileLookup::Moved(change)) => {
                let text =
                    format!("the page is at {}, to which the request is redirected", change.apply(path).encode());
                (StepVerdict::Yes, StepOrigin::Setting("files"), text)
            }
            Ok(FileLookup::Directory(..)) => {
                (StepVerdict::Yes, StepOrigin::Setting("listing"), "the listing of the directory".to_owned())
            }
            Err(_) if rules.fallback.is_some() => {
                let text = "no file, and the fallback is for page navigations only".to_owned();
                (StepVerdict::No, StepOrigin::Setting("files"), text)
            }
            Err(_) => (StepVerdict::No, StepOrigin::Setting("files"), "no file".to_owned()),
        };
        recorder.step(Stage::File, verdict, origin, text);
    }

    /// Records whether the next request for a file finds it in the cache of responses.
    pub(super) fn record_caching(&self, canonical_path: Option<&SafePath>) {
        let Some(recorder) = self.recorder() else { return };
        let text = match (self.cache_scope, canonical_path) {
            (CacheScope::Path, Some(_)) => "the path alone decides, so a worker keeps the response in memory",
            (CacheScope::Path, None) => "the path has another spelling, so no worker keeps the response",
            (CacheScope::None, _) => "more than the path decides, so no worker keeps the response",
        };
        recorder.step(Stage::Content, StepVerdict::Note, StepOrigin::None, text);
    }

    /// Records the coding of content.
    pub(super) fn record_coding(&self, response: &Response) {
        let Some(recorder) = self.recorder() else { return };
        if matches!(response.body, Body::Empty) {
            return;
        }
        match response.fields().get("content-encoding") {
            Some(coding) => {
                let text = format!("the client accepts the coding {}", String::from_utf8_lossy(coding).escape_debug());
                recorder.step(Stage::Content, StepVerdict::Yes, StepOrigin::Setting("compress"), text);
            }
            None => recorder.step(Stage::Content, StepVerdict::Note, StepOrigin::None, "the content is not compressed"),
        }
    }

    /// Records the changes of the fields of a response.
    pub(super) fn record_changes(&self, changes: &FieldChanges<'_>, response: &Response) {
        if let Some(recorder) = self.recorder() {
            changes.record(response.fields(), recorder);
        }
    }

    /// Records which page replaces an error, or why none does.
    pub(super) fn record_error_page(&self, page: Option<&SafePath>, text: &str) {
        let Some(recorder) = self.recorder() else { return };
        let page = page.map(|page| format!("the page {}", page.encode())).unwrap_or_default();
        recorder.step(Stage::Content, StepVerdict::Yes, StepOrigin::Setting("error-page"), format!("{page}{text}"));
    }

    /// Records that the server refuses the request, if this is its response and no step has recorded it.
    pub(super) fn record_refusal(&self, response: &Response) {
        let Some(recorder) = self.recorder().filter(|recorder| !recorder.has_denial()) else { return };
        if response.status.is_error() {
            let why = response.reason().unwrap_or(response.status.reason_phrase());
            let text = format!("{why}: {}", response.status.code());
            recorder.step(Stage::Response, StepVerdict::Denied, StepOrigin::None, text);
        }
    }

    /// Returns the response of an action whose content is not made for an explanation. It has content of unknown length, so
    /// that the coding is decided as that of a long text. Records a refusal.
    pub(super) fn without_content(&self, mut response: Response) -> Response {
        self.record_refusal(&response);
        if response.status == StatusCode::OK && matches!(response.body, Body::Empty) {
            response.body = Body::Stream { length: None, chunks: Box::pin(NoChunks) };
        }
        response
    }

    /// Records which origins may use the response.
    pub(super) fn record_cors(&self, response: &Response) {
        let Some(recorder) = self.recorder() else { return };
        let (verdict, text) = match response.fields().get("access-control-allow-origin") {
            Some(origin) => {
                let origin = String::from_utf8_lossy(origin).escape_debug().to_string();
                (StepVerdict::Yes, format!("cors: pages of {origin} may use the response"))
            }
            None => (StepVerdict::No, "cors: the request has no origin that may use the response".to_owned()),
        };
        recorder.step(Stage::Field, verdict, StepOrigin::Setting("cors"), text);
    }
}

/// Content that is not made.
struct NoChunks;

impl Chunks for NoChunks {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        Poll::Ready(None)
    }
}

/// Records the action of a route, with the values of the request in its target.
pub(super) use step_texts::record_action;

/// Records that the users of a site are not checked for a preflight request before its route is known.
pub(super) fn record_delay(recorder: Option<&StepRecorder>, rules: &AccessRules) {
    let Some(recorder) = recorder.filter(|_| rules.basic_auth.is_some()) else { return };
    recorder.step(
        Stage::Access,
        StepVerdict::Note,
        StepOrigin::Setting("basic-auth"),
        "basic-auth: a preflight request has no credentials, so the cors of its route decides first",
    );
}

/// Records that a preflight request gets its response before the access rules.
pub(super) fn record_preflight(recorder: Option<&StepRecorder>, route: Option<&Route>) {
    if let Some(recorder) = recorder {
        let of = if route.is_some() { "the route" } else { "the site" };
        recorder.step(
            Stage::Action,
            StepVerdict::Yes,
            StepOrigin::Setting("cors"),
            format!("a preflight request for {of}"),
        );
    }
}
