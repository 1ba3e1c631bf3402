//! The last steps of a response: error page, header edits, compression, CORS.

use super::{Pipeline, RoutedResponse, request_values};
use crate::site::accept::{add_vary, prefers_json, with_problem};
use crate::site::field_changes::{FieldChanges, ResponseSource};
use crate::site::files;
use crate::site::files::resolve::Resolved;
use crate::site::files_rules::Compress;
use crate::site::lookup;
use crate::site::route_table::Route;
use crate::syntax::{Captures, absolute_path};
use selvedge::{Request, Response};

impl<'t> Pipeline<'t> {
    /// Applies the site's error pages and header edits, and adds the log reason of a dry-run rule.
    pub(super) async fn decorate(&self, request: &Request, routed: RoutedResponse<'t>) -> Response {
        let RoutedResponse { mut response, route, source, file, headers: filled } = routed;
        let rules = &self.site.rules;
        let (headers, file_fields) =
            route.map_or((&rules.headers, &rules.file_fields), |route| (&route.headers, &route.file_fields));
        if source == ResponseSource::Generated {
            self.record_refusal(&response);
        }
        if source != ResponseSource::Configured && response.status.is_error() {
            response = self.with_error_page(request, route, response).await;
        }
        if !headers.is_empty() || !file_fields.is_empty() {
            let requested = self.requested_path(request);
            // Without a route, its patterns have captured nothing.
            let filled = filled.or_else(|| {
                let values = || request_values(request, self.client, &requested, Captures::default());
                headers.has_placeholders().then(|| headers.filled(&values()))
            });
            let headers = filled.as_ref().unwrap_or(headers);
            let of = (source, &response, file.as_ref());
            let changes = FieldChanges::of_response(file_fields, headers, &requested, of);
            self.record_changes(&changes, &response);
            changes.apply(response.fields_mut());
        }
        // Files have their encoded representations. The fields are the last ones, because they may forbid it.
        let compresses = route.is_some_and(|route| route.compress == Compress::On) && file.is_none();
        if compresses && !self.state.routes.coder.is_too_short(&response) {
            response = Box::pin(self.compress(request, response)).await;
            self.record_coding(&response);
        }
        if let Some(cors) = route.map_or(rules.cors.as_ref(), |route| route.cors.as_ref()) {
            cors.apply(request, &mut response);
            self.record_cors(&response);
        }
        match self.dry_run_denial() {
            Some(reason) if response.reason().is_none() => response.log_reason(reason),
            _ => response,
        }
    }

    /// Returns the path of a request in the form that patterns match, an invalid one as the client has written it.
    fn requested_path(&self, request: &Request) -> String {
        let raw = request.path_bytes();
        match self.decode(raw) {
            Ok(path) => absolute_path(&path),
            Err(_) => String::from_utf8_lossy(raw).into_owned(),
        }
    }

    /// Compresses a response, if it and the client allow it. Its entity tag becomes weak, because its producer knows the
    /// tag and compares it.
    async fn compress(&self, request: &Request, response: Response) -> Response {
        let known_tag = response.fields().get("etag").map(<[u8]>::to_vec);
        let mut response = self.state.routes.coder.encode(request, response).await;
        if let Some(tag) = known_tag
            && response.fields().get("etag") != Some(&tag)
        {
            response.fields_mut().remove("etag");
            response.append("etag", [b"W/", &tag[..]].concat()).expect("an entity tag is a valid value");
        }
        response
    }

    /// Replaces an error by the error page of the site for its status, and keeps its fields except
    /// Content-Type.
    async fn with_error_page(&self, request: &Request, route: Option<&Route>, error: Response) -> Response {
        let Some((number, path)) = self.site.error_page(route, error.status) else {
            return with_problem(request, error);
        };
        if prefers_json(request) {
            self.record_error_page(None, "the client prefers JSON");
            return with_problem(request, error);
        }
        let found =
            lookup::resolve_path(self.state.files(number), path, request.received_at().since_worker_start).await;
        let Ok((Resolved::File(resource), _)) = found else {
            self.record_error_page(Some(path), " cannot be read");
            return error.log_reason("cannot read the error page of the site");
        };
        self.record_error_page(Some(path), " replaces the content of the error");
        let mut page = files::respond_as_error_page(request, &resource, error.status);
        for (name, value) in error.fields().iter().filter(|(name, _)| *name != "content-type") {
            page.append(name, value).expect("a field of a response is valid");
        }
        add_vary(&mut page, &["accept"]);
        match error.reason() {
            Some(reason) => page.log_reason(reason),
            None => page,
        }
    }
}
