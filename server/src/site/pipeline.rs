//! The request pipeline of a site: access rules, route, action, error page, header edits.
//!
//! [`super::service`] serves cached files without it.

#[cfg(feature = "configuration")]
mod applications;

use super::access::{AccessDecision, AccessRules};
use super::action::{Action, Redirect};
use super::condition::{host_of, scheme_of};
use super::field_changes::{FieldChanges, ResponseSource};
use super::files;
use super::files::cache_key::CacheNamespace;
use super::files::resolve::Resolved;
use super::files_rules::{Compress, FilesRules, PathPrefix};
use super::headers::HeaderEdits;
use super::listing;
use super::lookup::{self, FileLookup, FoundBy, FoundFile};
use super::methods::{discard_content, limit_content, redirect_to_slash, respond_to_method};
use super::route_table::{AccessScope, CacheScope, Route, RouteMatch, Site};
use super::site_state::SiteState;
use crate::syntax::{Captures, RequestValues, Template, absolute_path};
use selvedge::proto::field::Fields;
use selvedge::proto::head::RequestFraming;
use selvedge::proto::path::{OpaquePath, PathReject, SafePath, encode_segment};
use selvedge::proto::target::TargetForm;
use selvedge::service::replace_query;
use selvedge::{Request, Response, StatusCode};
use std::net::IpAddr;
use std::time::Duration;

/// The client of a request, and the decision of the site's access rules if they were checked.
pub(super) struct ClientAccess {
    client: IpAddr,
    decision: Option<AccessDecision>,
}

impl ClientAccess {
    /// A client whose access rules depend on the route and are checked there.
    pub(super) fn unchecked(client: IpAddr) -> Self {
        Self { client, decision: None }
    }

    /// A client that the network and rate rules of the site have been checked for.
    pub(super) fn checked(client: IpAddr, decision: AccessDecision) -> Self {
        Self { client, decision: Some(decision) }
    }
}

/// One request in the pipeline.
pub(super) struct Pipeline<'t> {
    state: &'t SiteState,
    site: &'t Site,
    /// The cache namespace of this site's request paths.
    namespace: CacheNamespace,
    client: IpAddr,
    decision: Option<AccessDecision>,
    /// The access rules that were checked for this request, so that a rewrite does not check them twice.
    passed_rules: AccessRules,
    /// The log reason of a rule that would have denied the request, but is in dry-run mode.
    dry_run_reason: Option<&'static str>,
    /// Whether the response may be cached by its path.
    cache_scope: CacheScope,
    /// Whether the path is that of a rewrite.
    is_rewritten: bool,
    /// The query of a script's local redirect that leads to the next route.
    #[cfg(feature = "configuration")]
    redirected_query: Option<String>,
}

/// A response before error pages and header edits are applied.
struct RoutedResponse<'t> {
    response: Response,
    /// The route that produced the response; `None` if none was found or its choice was not reached.
    route: Option<&'t Route>,
    source: ResponseSource,
    /// The path of the file that is sent, in the form that patterns match, and its media type.
    file: Option<(String, String)>,
    /// The header edits with the values of the request, if they have placeholders.
    headers: Option<HeaderEdits>,
}

/// The result of a route.
enum RouteResult<'t> {
    Responded(RoutedResponse<'t>),
    /// A rewrite to this path by this route.
    Rewritten(SafePath, &'t Route),
}

impl<'t> Pipeline<'t> {
    pub(super) fn new(state: &'t SiteState, site: &'t Site, namespace: CacheNamespace, access: ClientAccess) -> Self {
        let ClientAccess { client, decision } = access;
        Self {
            state,
            site,
            namespace,
            client,
            decision,
            passed_rules: AccessRules::default(),
            dry_run_reason: None,
            cache_scope: CacheScope::Path,
            is_rewritten: false,
            #[cfg(feature = "configuration")]
            redirected_query: None,
        }
    }

    /// Runs all steps and returns the final response.
    pub(super) async fn run(mut self, request: &mut Request) -> Response {
        let routed = match self.check_access(request).await {
            Ok(()) => self.respond(request).await,
            Err(refused) => self.without_route(refused),
        };
        self.decorate(request, routed).await
    }

    fn without_route(&self, response: Response) -> RoutedResponse<'t> {
        RoutedResponse::new(response, None, ResponseSource::Generated)
    }

    /// Checks the access rules of the site before a route is looked up, if no route has rules of its own.
    async fn check_access(&mut self, request: &mut Request) -> Result<(), Response> {
        let Some(decision) = self.decision.take() else { return Ok(()) };
        let rules = &self.site.rules.access;
        self.passed_rules = rules.clone();
        self.apply_decision(decision)?;
        self.check_user(request, rules).await
    }

    async fn check_user(&mut self, request: &mut Request, rules: &AccessRules) -> Result<(), Response> {
        let decision = rules.check_user(request, &self.state.verifier).await;
        if rules.basic_auth.is_some() {
            self.cache_scope = CacheScope::None;
        }
        self.apply_decision(decision)
    }

    fn apply_decision(&mut self, decision: AccessDecision) -> Result<(), Response> {
        match decision {
            AccessDecision::Allow => Ok(()),
            AccessDecision::DryRunDenied(reason) => {
                self.dry_run_reason = Some(reason);
                Ok(())
            }
            AccessDecision::Deny(refused) => Err(refused),
        }
    }

    async fn respond(&mut self, request: &mut Request) -> RoutedResponse<'t> {
        if !matches!(request.head().target.form, TargetForm::Origin | TargetForm::Absolute) {
            // `OPTIONS *` is about the server. The authority form belongs to CONNECT, which respond_to_method
            // refuses.
            return self
                .without_route(respond_to_method(request).unwrap_or_else(|| Response::error(StatusCode::BAD_REQUEST)));
        }
        let path_requested = match SafePath::decode(request.path_bytes()) {
            Ok(path) => path,
            Err(reject) => return self.respond_without_file(request, reject).await,
        };
        let text = absolute_path(&path_requested);
        let path = match self.run_route(request, (&text, Some(&path_requested))).await {
            RouteResult::Responded(routed) => return routed,
            RouteResult::Rewritten(path, _) => path,
        };
        self.is_rewritten = true;
        match self.run_route(request, (&absolute_path(&path), Some(&path))).await {
            RouteResult::Responded(routed) => routed,
            // A client can cause it with `/en/en/x`, so it is not a server error.
            RouteResult::Rewritten(_, route) => {
                let response =
                    Response::error(StatusCode::NOT_FOUND).log_reason("a request can be rewritten only once");
                RoutedResponse::new(response, Some(route), ResponseSource::Generated)
            }
        }
    }

    /// Responds to a path that names no file, such as one with an encoded slash. A proxy forwards some of them.
    async fn respond_without_file(&mut self, request: &mut Request, reject: PathReject) -> RoutedResponse<'t> {
        let refused = match self.opaque_path(request, reject) {
            Ok(path) => match self.run_route(request, (path.as_str(), None)).await {
                RouteResult::Responded(routed) => return routed,
                RouteResult::Rewritten(..) => refuse_path(reject),
            },
            Err(refused) => refused,
        };
        self.without_route(refused)
    }

    /// Refuses a path that names no file: without a configuration, no proxy forwards it.
    #[cfg(not(feature = "configuration"))]
    fn opaque_path(&self, _: &Request, reject: PathReject) -> Result<OpaquePath, Response> {
        Err(refuse_path(reject))
    }

    /// Finds the route of a path, checks its access rules, and runs its action. Without `path`, the text is that of an
    /// [`OpaquePath`], which only a proxy takes.
    async fn run_route(&mut self, request: &mut Request, (text, path): (&str, Option<&SafePath>)) -> RouteResult<'t> {
        let RouteMatch { route, document_root: files } = match self.find_route(request, text).await {
            Ok(matched) => matched,
            Err(refused) => return RouteResult::Responded(refused),
        };
        // Most actions need no captures, so they are found only for those that do.
        let values = || {
            let mut captures = route.pattern.matches(text).unwrap_or_default();
            route.conditions.iter().for_each(|condition| condition.capture(request, &mut captures));
            request_values(request, self.client, text, captures)
        };
        let headers = route.headers.has_placeholders().then(|| route.headers.filled(&values()));
        if headers.is_some() {
            self.cache_scope = CacheScope::None;
        }
        let routed = |response: Response, source| {
            let response = match &route.lease {
                Some(lease) => response.lease(lease.clone()),
                None => response,
            };
            let routed = RoutedResponse::new(response, Some(route), source);
            RouteResult::Responded(RoutedResponse { headers: headers.clone(), ..routed })
        };
        match (&route.action, path) {
            #[cfg(feature = "configuration")]
            (Action::Proxy(rules), path) => {
                let prepared = self.prepare_forwarding(request, (rules, path), &values);
                let (response, source) = Box::pin(self.forward(request, rules, prepared)).await;
                routed(response, source)
            }
            (_, None) => routed(Response::error(StatusCode::NOT_FOUND), ResponseSource::Generated),
            (Action::Rewrite(target), _) => {
                if !is_one_to_one(route, target) {
                    // Clients choose how many different paths lead to this target, so caching them could fill
                    // the cache.
                    self.cache_scope = CacheScope::None;
                }
                let (path, query) = {
                    let values = values();
                    (rewritten_path(target, &values), target.replaced_query(&values))
                };
                query.iter().for_each(|query| replace_query(request, query));
                match path {
                    Ok(path) => RouteResult::Rewritten(path, route),
                    Err(refused) => routed(refused, ResponseSource::Generated),
                }
            }
            (Action::Redirect(redirect), _) => {
                routed(redirect_response(redirect, &values()), ResponseSource::Generated)
            }
            (Action::Respond(fixed), _) => routed(fixed.response(&values()), ResponseSource::Configured),
            (Action::Deny(deny), _) => routed(deny.response(), ResponseSource::Generated),
            #[cfg(feature = "configuration")]
            (Action::Gateway(rules), Some(path)) => {
                let beneath = path_beneath(&values());
                let result = self.run_gateway(request, (path, beneath.as_ref()), (route, rules, files)).await;
                match result {
                    RouteResult::Responded(served) => RouteResult::Responded(RoutedResponse { headers, ..served }),
                    rewritten => rewritten,
                }
            }
            (Action::Files(rules), Some(path)) => {
                let beneath = match rules.path_prefix {
                    PathPrefix::Kept => None,
                    PathPrefix::Stripped => path_beneath(&values()),
                };
                let served = self.serve_files(request, (path, beneath.as_ref()), (route, rules, files), &values).await;
                RouteResult::Responded(RoutedResponse { headers, ..served })
            }
        }
    }

    /// Finds the route of a path, and checks its access rules. Request content that its action does not use is discarded.
    async fn find_route(&mut self, request: &mut Request, text: &str) -> Result<RouteMatch<'t>, RoutedResponse<'t>> {
        let (matched, scope) = self.site.find_route(text, (request, self.client));
        if scope == CacheScope::None {
            self.cache_scope = scope;
        }
        let route = matched.as_ref().map(|matched| matched.route);
        let cors = route.map_or(self.site.rules.cors.as_ref(), |route| route.cors.as_ref());
        if let Some(cors) = cors {
            // The response depends on the origin.
            self.cache_scope = CacheScope::None;
            // Before the access rules, because a preflight request has no credentials.
            if let Some(response) = cors.preflight(request) {
                return Err(RoutedResponse::new(response, route, ResponseSource::Generated));
            }
        }
        let uses_content = route.is_some_and(|route| route.action.uses_content());
        let checked = match self.check_route(request, route).await {
            Ok(()) if !uses_content && request.head().framing != RequestFraming::None => {
                discard_content(request).await.map_err(Response::from)
            }
            checked => checked,
        };
        if let Err(response) = checked {
            return Err(RoutedResponse::new(response, route, ResponseSource::Generated));
        }
        matched.ok_or_else(|| {
            self.without_route(Response::error(StatusCode::NOT_FOUND).log_reason("no route of the site matches"))
        })
    }

    /// Checks the access rules of the route that were not checked yet, and limits the request content. Without a
    /// route, the rules of the site apply.
    ///
    /// An action reads the content only after that, so a denied client need not send any.
    async fn check_route(&mut self, request: &mut Request, route: Option<&Route>) -> Result<(), Response> {
        if self.site.access_scope == AccessScope::Route {
            let own = route.and_then(|route| route.access.as_ref());
            if own.is_some() {
                self.cache_scope = CacheScope::None;
            }
            let rules = own.unwrap_or(&self.site.rules.access);
            let remaining = rules.minus(&self.passed_rules);
            self.passed_rules = rules.clone();
            self.apply_decision(remaining.check_client(self.client))?;
            self.check_user(request, &remaining).await?;
        }
        if request.head().framing != RequestFraming::None {
            limit_content(request, route.map_or(u64::MAX, |route| route.body_bytes_max))?;
        }
        Ok(())
    }

    /// Responds with a file, a directory listing, or a redirect to the path with a slash.
    ///
    /// `beneath` is the part of the path that is looked up, if it is not the whole path.
    async fn serve_files<'v>(
        &self,
        request: &Request,
        (path, beneath): (&SafePath, Option<&SafePath>),
        (route, rules, number): (&'t Route, &FilesRules, u32),
        values: &impl Fn() -> RequestValues<'v>,
    ) -> RoutedResponse<'t> {
        if let Some(response) = respond_to_method(request) {
            return RoutedResponse::new(response, Some(route), ResponseSource::Generated);
        }
        let files = self.state.files(number);
        let found = match beneath {
            // The pattern's own path without a slash is a directory.
            Some(beneath) if beneath.as_str().is_empty() && !path.names_directory() => {
                Ok(FileLookup::DirectoryWithoutSlash)
            }
            _ => lookup::find_file(files, rules, beneath.unwrap_or(path), (request, values)).await,
        };
        let response = match found {
            Ok(FileLookup::File(file, found_by)) => {
                let source = match found_by {
                    FoundBy::Path(fresh_until) => {
                        self.cache_file(request, route, (&file, fresh_until));
                        ResponseSource::File
                    }
                    FoundBy::PathAndValues => ResponseSource::File,
                    FoundBy::AnyPath => ResponseSource::Fallback,
                };
                let response = files.respond(request, &file.resource).await;
                return RoutedResponse::new(response, Some(route), source).with_file(file);
            }
            Ok(FileLookup::Fallback(file)) => {
                let mut response = files.respond(request, &file.resource).await;
                add_vary_for_navigation(&mut response);
                return RoutedResponse::new(response, Some(route), ResponseSource::Fallback).with_file(file);
            }
            Ok(FileLookup::DirectoryWithoutSlash) => redirect_to_slash(path, request, self.state.slash_redirect),
            Ok(FileLookup::Directory(directory, root)) => {
                listing::respond(&self.state.listing_limits, request, path, (directory, root)).await
            }
            Err(error) => {
                let mut response = Response::from(error);
                if rules.fallback.is_some() {
                    add_vary_for_navigation(&mut response);
                }
                response
            }
        };
        RoutedResponse::new(response, Some(route), ResponseSource::File)
    }

    /// Adds a file to the cache of the fast path, if the request path alone determines the response.
    fn cache_file(&self, request: &Request, route: &Route, (file, fresh_until): (&FoundFile, Duration)) {
        let raw = request.path_bytes();
        let resource = (&file.resource, fresh_until);
        if self.state.cache.borrow_mut().refresh_response(self.namespace, raw, resource) {
            return;
        }
        // Only the canonical spelling of a path is cached. Otherwise clients could fill the cache with
        // spellings of one path.
        let path_requested =
            SafePath::decode(raw).ok().filter(|path_requested| path_requested.encode().as_bytes() == raw);
        if let (CacheScope::Path, Some(path_requested)) = (self.cache_scope, path_requested) {
            let requested = absolute_path(&path_requested);
            let changes = FieldChanges::new(&route.file_fields, &route.headers, &requested, Some(file));
            let change = |fields: &mut Fields| changes.apply(fields);
            let change_fields = (!changes.is_empty()).then_some(&change as &dyn Fn(&mut Fields));
            self.state.cache.borrow_mut().insert_response(self.namespace, raw, resource, change_fields);
        }
    }

    /// Applies the site's error pages and header edits, and adds the log reason of a dry-run rule.
    async fn decorate(&self, request: &Request, routed: RoutedResponse<'t>) -> Response {
        let RoutedResponse { mut response, route, source, file, headers: filled } = routed;
        let rules = &self.site.rules;
        let (headers, file_fields) =
            route.map_or((&rules.headers, &rules.file_fields), |route| (&route.headers, &route.file_fields));
        if source != ResponseSource::Configured && response.status.is_error() {
            response = self.with_error_page(request, route, response).await;
        }
        if !headers.is_empty() || !file_fields.is_empty() {
            let requested = requested_text(request.path_bytes());
            // Without a route, its patterns have captured nothing.
            let filled = filled.or_else(|| {
                let values = || request_values(request, self.client, &requested, Captures::default());
                headers.has_placeholders().then(|| headers.filled(&values()))
            });
            let headers = filled.as_ref().unwrap_or(headers);
            FieldChanges::of_response(file_fields, headers, &requested, (source, &response, file.as_ref()))
                .apply(response.fields_mut());
        }
        // Files have their encoded representations. The fields are the last ones, because they may forbid it.
        let compresses = route.is_some_and(|route| route.compress == Compress::On) && file.is_none();
        if compresses && !self.state.routes.coder.is_too_short(&response) {
            response = Box::pin(self.compress(request, response)).await;
        }
        if let Some(cors) = route.map_or(rules.cors.as_ref(), |route| route.cors.as_ref()) {
            cors.apply(request, &mut response);
        }
        match self.dry_run_reason {
            Some(reason) if response.reason().is_none() => response.log_reason(reason),
            _ => response,
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
        let Some((number, path)) = self.site.error_page(route, error.status) else { return error };
        let found =
            lookup::resolve_path(self.state.files(number), path, request.received_at().since_worker_start).await;
        let Ok((Resolved::File(resource), _)) = found else {
            return error.log_reason("cannot read the error page of the site");
        };
        let mut page = files::respond_as_error_page(request, &resource, error.status);
        for (name, value) in error.fields().iter().filter(|(name, _)| *name != "content-type") {
            page.append(name, value).expect("a field of a response is valid");
        }
        match error.reason() {
            Some(reason) => page.log_reason(reason),
            None => page,
        }
    }
}

impl<'t> RoutedResponse<'t> {
    fn new(response: Response, route: Option<&'t Route>, source: ResponseSource) -> Self {
        Self { response, route, source, file: None, headers: None }
    }

    fn with_file(self, file: FoundFile) -> Self {
        let media_type = file.resource.media_type().to_owned();
        Self { file: Some((file.path, media_type)), ..self }
    }
}

/// Returns the part of the path beneath that of the pattern.
fn path_beneath(values: &RequestValues<'_>) -> Option<SafePath> {
    let mut raw = String::new();
    for segment in values.captures.rest()?.split('/') {
        raw.push('/');
        encode_segment(segment, &mut raw);
    }
    SafePath::decode(raw.as_bytes()).ok()
}

/// Returns what a request fills placeholders with.
fn request_values<'a>(
    request: &'a Request,
    client: IpAddr,
    path: &'a str,
    captures: Captures<'a>,
) -> RequestValues<'a> {
    RequestValues {
        captures,
        path,
        query: request.query(),
        host: host_of(request),
        scheme: scheme_of(request),
        method: request.method_text(),
        client,
        client_subject: request.tls().and_then(|tls| tls.peer_subject()).unwrap_or_default(),
    }
}

/// Whether each path leads to another target.
fn is_one_to_one(route: &Route, target: &Template) -> bool {
    let has_all = target.wildcards() >= route.pattern.wildcards() && route.pattern.captures_all();
    has_all && !target.has_variables()
}

/// Returns the response to a path that names neither a file nor something that is forwarded.
fn refuse_path(reject: PathReject) -> Response {
    Response::error_with_text(reject.status(), reject.message())
}

/// Returns the text of a path that patterns are compared with; empty for a refused path.
fn requested_text(raw: &[u8]) -> String {
    let opaque = || OpaquePath::decode(raw).map_or_else(|_| String::new(), |path| path.as_str().to_owned());
    SafePath::decode(raw).map_or_else(|_| opaque(), |path| absolute_path(&path))
}

fn rewritten_path(target: &Template, values: &RequestValues<'_>) -> Result<SafePath, Response> {
    SafePath::decode(target.path_with(values).as_bytes())
        .map_err(|_| Response::error(StatusCode::NOT_FOUND).log_reason("the rewrite target is not a valid path"))
}

fn redirect_response(redirect: &Redirect, values: &RequestValues<'_>) -> Response {
    // HTTP/1.0 has no Host.
    if redirect.target.needs_host() && values.host.is_empty() {
        let reason = "the redirect needs a host, and the request has none";
        return Response::error(StatusCode::BAD_REQUEST).log_reason(reason);
    }
    let mut response = Response::error(redirect.status);
    match response.append("location", redirect.target.location(values)) {
        Ok(()) => response,
        Err(_) => Response::error(StatusCode::BAD_REQUEST).log_reason("the redirect target is not a valid Location"),
    }
}

/// Adds `Vary` for the request fields that tell a navigation, because the response depends on them.
fn add_vary_for_navigation(response: &mut Response) {
    response.append("vary", "accept, sec-fetch-mode").expect("field names are a valid value");
}
