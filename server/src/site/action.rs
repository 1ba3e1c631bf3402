//! The actions of routes, as validated values.

use super::access::DenialCounter;
use super::files_rules::FilesRules;
#[cfg(feature = "configuration")]
use super::gateway::GatewayRules;
use super::metrics::MetricsSlot;
#[cfg(feature = "configuration")]
use super::proxy::ProxyRules;
#[cfg(feature = "program")]
use super::status_page::StatusPage;
use crate::syntax::{RequestValues, Template, TextTemplate};
use bytes::Bytes;
use selvedge::proto::field::Fields;
use selvedge::{Response, StatusCode};
use std::fmt;
use std::sync::Arc;

/// What a route does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Serves a file.
    Files(FilesRules),
    /// Redirects the client.
    Redirect(Redirect),
    /// Changes the path and looks up the route again, at most once per request.
    Rewrite(Template),
    /// Sends a fixed response of the configuration.
    Respond(FixedResponse),
    /// Denies the request.
    Deny(DenyResponse),
    /// Counts the request, which the next matching route gets.
    DryRunDeny(DenialCounter),
    /// Responds with the metrics of the server.
    Metrics(Arc<MetricsSlot>),
    /// Responds with the live page of the server and its events.
    #[cfg(feature = "program")]
    StatusPage(StatusPage),
    /// Forwards the request to a server of a group.
    #[cfg(feature = "configuration")]
    Proxy(Arc<ProxyRules>),
    /// Runs a script or program.
    #[cfg(feature = "configuration")]
    Gateway(Arc<GatewayRules>),
}

impl Action {
    /// Whether the action takes the request content, or leaves it to another one. Otherwise the content is discarded
    /// before the response.
    pub(super) fn uses_content(&self) -> bool {
        match self {
            Self::Rewrite(_) => true,
            #[cfg(feature = "configuration")]
            Self::Proxy(_) | Self::Gateway(_) => true,
            Self::Files(_)
            | Self::Redirect(_)
            | Self::Respond(_)
            | Self::Deny(_)
            | Self::DryRunDeny(_)
            | Self::Metrics(_) => false,
            #[cfg(feature = "program")]
            Self::StatusPage(_) => false,
        }
    }

    /// Returns how files are served, if the action serves any.
    pub(super) fn files(&self) -> Option<&FilesRules> {
        match self {
            Self::Files(files) => Some(files),
            #[cfg(feature = "configuration")]
            Self::Gateway(gateway) => gateway.files(),
            _ => None,
        }
    }
}

/// The status code and the target of a redirect.
#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    pub(super) status: StatusCode,
    pub(super) target: Template,
}

/// The status code is not one of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidRedirectStatus;

impl fmt::Display for InvalidRedirectStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a redirect has the status 301, 302, 303, 307 or 308")
    }
}

impl std::error::Error for InvalidRedirectStatus {}

impl Redirect {
    /// A redirect to a target. The query of the request is appended to it.
    pub(crate) fn new(status: u16, target: Template) -> Result<Self, InvalidRedirectStatus> {
        let status = StatusCode::new(status).filter(|status| matches!(status.code(), 301 | 302 | 303 | 307 | 308));
        status.map(|status| Self { status, target }).ok_or(InvalidRedirectStatus)
    }
}

/// A fixed response of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct FixedResponse {
    status: StatusCode,
    fields: Fields,
    content: FixedContent,
}

#[derive(Clone, Debug)]
enum FixedContent {
    Static(Bytes),
    /// Filled for each request.
    Template(TextTemplate),
}

/// Why a fixed response is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FixedResponseError {
    /// The status code is not one of a final response, or belongs to files.
    Status,
    /// Responses with this status code have no content.
    ContentForbidden,
    /// The media type is not a valid field value.
    ContentType,
}

impl fmt::Display for FixedResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "a response has a status from 200 to 599, except 206 and 304, which are for files",
            Self::ContentForbidden => "a response with this status has no content",
            Self::ContentType => "this is not a media type, such as text/plain; charset=utf-8",
        })
    }
}

impl std::error::Error for FixedResponseError {}

impl FixedResponse {
    /// Creates a response with this content. An empty one has no Content-Type.
    pub(crate) fn new(status: u16, content_type: &str, content: TextTemplate) -> Result<Self, FixedResponseError> {
        let status = StatusCode::new(status).filter(|status| !status.is_interim()).ok_or(FixedResponseError::Status)?;
        if [StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED].contains(&status) {
            return Err(FixedResponseError::Status);
        }
        let mut fields = Fields::new();
        let content = match content.as_static() {
            Some(text) => FixedContent::Static(text.to_owned().into()),
            None => FixedContent::Template(content),
        };
        if !matches!(&content, FixedContent::Static(text) if text.is_empty()) {
            if status.forbids_content() {
                return Err(FixedResponseError::ContentForbidden);
            }
            let is_type = content_type.split_once('/').is_some();
            let added = fields.append("content-type", content_type);
            added.ok().filter(|()| is_type).ok_or(FixedResponseError::ContentType)?;
        }
        Ok(Self { status, fields, content })
    }

    pub(super) fn response(&self, values: &RequestValues<'_>) -> Response {
        let mut response = Response::new(self.status);
        *response.fields_mut() = self.fields.clone();
        response.body(match &self.content {
            FixedContent::Static(content) => content.clone(),
            FixedContent::Template(template) => template.fill(values).into(),
        })
    }
}

/// The log reason of a request that a route in dry-run mode would have denied.
pub(super) const DRY_RUN_DENIED: &str = "denied by a route (dry run)";

/// The response of a denied request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DenyResponse(StatusCode);

/// The status code is not one of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidErrorStatus;

impl fmt::Display for InvalidErrorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a denial has a status from 400 to 599")
    }
}

impl std::error::Error for InvalidErrorStatus {}

impl DenyResponse {
    /// Denies with this status code. 403 admits that the resource exists; 404 does not.
    pub(crate) fn new(status: u16) -> Result<Self, InvalidErrorStatus> {
        StatusCode::new(status).filter(|status| status.is_error()).map(Self).ok_or(InvalidErrorStatus)
    }

    pub(super) fn response(self) -> Response {
        Response::error(self.0).log_reason("denied by a route")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_rejected() {
        let redirect = |status| Redirect::new(status, Template::parse("/x").unwrap()).is_ok();
        assert!([301, 302, 303, 307, 308].into_iter().all(redirect));
        assert!(![200, 300, 304, 305, 306, 309, 400, 999].into_iter().any(redirect));
        let reply = |status, kind, content: &'static str| {
            FixedResponse::new(status, kind, TextTemplate::parse(content).unwrap()).err()
        };
        assert_eq!(reply(200, "text/plain", "x"), None);
        assert_eq!(reply(204, "", ""), None);
        assert_eq!(reply(204, "text/plain", "x"), Some(FixedResponseError::ContentForbidden));
        for status in [99, 101, 206, 304, 600] {
            assert_eq!(reply(status, "", ""), Some(FixedResponseError::Status), "{status}");
        }
        assert_eq!(reply(200, "text/plain\r\nx: y", "x"), Some(FixedResponseError::ContentType));
        assert_eq!(reply(200, "plain", "x"), Some(FixedResponseError::ContentType));
        assert!(
            DenyResponse::new(400).is_ok()
                && DenyResponse::new(599).is_ok()
                && DenyResponse::new(302) == Err(InvalidErrorStatus)
        );
    }
}
