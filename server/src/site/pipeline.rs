//! The request pipeline of a site: access rules, route, action, and the last steps in `decoration`.
//!
//! [`super::service`] serves cached files without it.

#[cfg(feature = "configuration")]
mod applications;
mod decoration;
mod recording;

use super::accept::add_vary;
use super::access::{AccessDecision, AccessRules};
use super::action::{Action, DRY_RUN_DENIED, Redirect};
use super::body_dry_run::{BodyExcess, DRY_RUN_TOO_LARGE};
use super::condition::{host_of, scheme_of};
use super::cors::is_preflight;
use super::field_changes::{FieldChanges, ResponseSource};
use super::files::AllowedCodings;
use super::files::cache_key::CacheNamespace;
use super::files_rules::{FilesRules, PathPrefix};
use super::headers::HeaderEdits;
use super::listing;
use super::lookup::{self, AddressChange, FileLookup, FoundBy, FoundFile, OwnNames};
use super::methods::{discard_content, limit_content, redirect_to_path, respond_to_method};
use super::metrics::MetricsSlot;
use super::route_table::{AccessScope, CacheScope, FoundRoute, Route, RouteMatch, Site};
use super::site_state::SiteState;
#[cfg(feature = "program")]
use super::status_page::StatusPage;
use crate::syntax::{Captures, RequestValues, Template, absolute_path};
use selvedge::proto::field::Fields;
use selvedge::proto::head::RequestFraming;
use selvedge::proto::path::{PathReject, SafePath, encode_segment};
use selvedge::proto::target::TargetForm;
use selvedge::service::{
    CacheUse, DryRun, LogRule, replace_query, set_cache_use, set_dry_run, set_log_rule, set_route_tag,
};
use selvedge::{Request, Response, StatusCode};
#[cfg(feature = "configuration")]
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
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

/// Why a path is not passed to an application that might route it otherwise.
#[cfg(feature = "configuration")]
const UNLIKE: &str = "an application could read the path as one of another route";

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
    /// Where the rules that were not checked yet are checked.
    remaining_rules: AccessScope,
    /// The log reason of a rule that would have denied the request, but is in dry-run mode.
    dry_run_reason: Option<&'static str>,
    /// For a route whose limit of content is in dry-run mode.
    body_excess: Option<BodyExcess>,
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

impl RouteResult<'_> {
    /// Sets the changes of a response's fields whose placeholders are filled.
    fn with_headers(self, headers: Option<HeaderEdits>) -> Self {
        match self {
            Self::Responded(served) => Self::Responded(RoutedResponse { headers, ..served }),
            rewritten @ Self::Rewritten(..) => rewritten,
        }
    }
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
            remaining_rules: site.access_scope,
            dry_run_reason: None,
            body_excess: None,
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
        if self.dry_run_denial().is_some() {
            set_dry_run(request, DryRun::Refused);
        }
        self.decorate(request, routed).await
    }

    /// Returns the log reason of a rule in dry-run mode that would have denied the request.
    fn dry_run_denial(&self) -> Option<&'static str> {
        let excess = self.body_excess.as_ref().filter(|excess| excess.is_found());
        self.dry_run_reason.or(excess.map(|_| DRY_RUN_TOO_LARGE))
    }

    /// Decodes the path of a request, in which the site decides what an encoded slash is.
    fn decode(&self, raw: &[u8]) -> Result<SafePath, PathReject> {
        SafePath::decode_with(raw, self.site.rules.encoded_slash)
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
        if is_preflight(request) {
            // It has no credentials. The rules of CORS that respond to it are those of its route; without them, the
            // users are checked there.
            self.passed_rules.basic_auth = None;
            self.passed_rules.requests_at_once = None;
            self.remaining_rules = AccessScope::Route;
            recording::record_delay(self.recorder(), rules);
            return Ok(());
        }
        self.check_user(request, rules).await
    }

    async fn check_user(&mut self, request: &mut Request, rules: &AccessRules) -> Result<(), Response> {
        let decision = rules.check_user(request, &self.state.verifier, self.recorder()).await;
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
            AccessDecision::DenyAfterDryRun(reason, refused) => {
                self.dry_run_reason = Some(reason);
                Err(refused)
            }
        }
    }

    async fn respond(&mut self, request: &mut Request) -> RoutedResponse<'t> {
        if !matches!(request.head().target.form, TargetForm::Origin | TargetForm::Absolute) {
            // `OPTIONS *` is about the server. The authority form belongs to CONNECT, which respond_to_method
            // refuses.
            return self
                .without_route(respond_to_method(request).unwrap_or_else(|| Response::error(StatusCode::BAD_REQUEST)));
        }
        let path_requested = match self.decode(request.path_bytes()) {
            Ok(path) => path,
            Err(reject) => return self.without_route(Response::error_with_text(reject.status(), reject.message())),
        };
        let path = match self.run_route(request, &path_requested).await {
            RouteResult::Responded(routed) => return routed,
            RouteResult::Rewritten(path, _) => path,
        };
        self.is_rewritten = true;
        match self.run_route(request, &path).await {
            RouteResult::Responded(routed) => routed,
            // A client can cause it with `/en/en/x`, so it is not a server error.
            RouteResult::Rewritten(_, route) => {
                let response =
                    Response::error(StatusCode::NOT_FOUND).log_reason("a request can be rewritten only once");
                RoutedResponse::new(response, Some(route), ResponseSource::Generated)
            }
        }
    }

    /// Finds the route of a path, checks its access rules, and runs its action.
    async fn run_route(&mut self, request: &mut Request, path: &SafePath) -> RouteResult<'t> {
        let text = absolute_path(path);
        let RouteMatch { route, document_root: files } = match self.find_route(request, &text).await {
            Ok(matched) => matched,
            Err(refused) => return RouteResult::Responded(refused),
        };
        #[cfg(feature = "configuration")]
        let (path, text) = self.read_for_files(request, (Cow::Borrowed(path), text), route);
        #[cfg(feature = "configuration")]
        let path = &*path;
        self.note_route(request, route);
        // Most actions need no captures, so they are found only for those that do.
        let values = || {
            let mut captures = route.pattern.matches(&text).unwrap_or_default();
            route.conditions.iter().for_each(|condition| condition.capture(request, &mut captures));
            request_values(request, self.client, &text, captures)
        };
        recording::record_action(self.recorder(), route, &values);
        let headers = route.headers.has_placeholders().then(|| route.headers.filled(&values()));
        if headers.is_some() {
            self.cache_scope = CacheScope::None;
        }
        let routed = |response: Response, source| {
            let routed = RoutedResponse::new(route.with_lease(response), Some(route), source);
            RouteResult::Responded(RoutedResponse { headers: headers.clone(), ..routed })
        };
        match &route.action {
            Action::Rewrite(target) => {
                if !is_one_to_one(route, target) {
                    // Clients choose how many different paths lead to this target, and could fill the cache.
                    self.cache_scope = CacheScope::None;
                }
                let values = values();
                let (path, query) = (rewritten_path(target, &values), target.replaced_query(&values));
                query.iter().for_each(|query| replace_query(request, query));
                match path {
                    Ok(path) => RouteResult::Rewritten(path, route),
                    Err(refused) => routed(refused, ResponseSource::Generated),
                }
            }
            Action::Redirect(redirect) => routed(redirect_response(redirect, &values()), ResponseSource::Generated),
            Action::Respond(fixed) => routed(fixed.response(&values()), ResponseSource::Configured),
            Action::DryRunDeny(_) => unreachable!("a look-up passes over such a route"),
            Action::Deny(deny) => routed(deny.response(), ResponseSource::Generated),
            Action::Metrics(metrics) => routed(self.metrics(metrics, request).await, ResponseSource::Configured),
            #[cfg(feature = "program")]
            Action::StatusPage(page) => routed(self.status_page(page, request).await, ResponseSource::Configured),
            #[cfg(feature = "configuration")]
            Action::Proxy(_) | Action::Gateway(_) if !self.leads_alike(request, (path, &text), route) => {
                routed(Response::error(StatusCode::NOT_FOUND).log_reason(UNLIKE), ResponseSource::Generated)
            }
            #[cfg(feature = "configuration")]
            Action::Proxy(rules) => {
                let prepared = self.prepare_forwarding(request, (rules, path), &values);
                let (response, source) = Box::pin(self.forward(request, rules, prepared)).await;
                routed(response, source)
            }
            #[cfg(feature = "configuration")]
            Action::Gateway(rules) => {
                let beneath = path_beneath(&values());
                let result = self.run_gateway(request, (path, beneath.as_ref()), (route, rules, files)).await;
                result.with_headers(headers)
            }
            Action::Files(rules) => {
                let is_stripped = rules.path_prefix == PathPrefix::Stripped;
                let beneath = if is_stripped { path_beneath(&values()) } else { None };
                let served = self.serve_files(request, (path, beneath.as_ref()), (route, rules, files), &values).await;
                RouteResult::Responded(served).with_headers(headers)
            }
        }
    }

    /// Responds with the metrics of the server. For an explanation, none are made.
    async fn metrics(&self, metrics: &Arc<MetricsSlot>, request: &Request) -> Response {
        match self.recorder() {
            None => Box::pin(metrics.respond(request)).await,
            Some(_) => self.without_content(MetricsSlot::explain(request)),
        }
    }

    /// Responds with the live page or its events. Makes nothing for a request that is only explained.
    #[cfg(feature = "program")]
    async fn status_page(&self, page: &StatusPage, request: &Request) -> Response {
        match self.recorder() {
            None => Box::pin(page.respond(request)).await,
            Some(_) => self.without_content(StatusPage::explain(request)),
        }
    }

    /// Notes whether the log has lines of a route, and that a file of it was not in the cache of paths.
    fn note_route(&mut self, request: &mut Request, route: &Route) {
        if route.action.files().is_some() {
            set_cache_use(request, CacheUse::Miss);
        }
        if route.log_rule != LogRule::All {
            self.record_log_rule(route.log_rule);
            set_log_rule(request, route.log_rule);
            // A cached file is sent without a look at its route.
            self.cache_scope = CacheScope::None;
        }
    }

    /// Finds the route of a path, and checks its access rules. Request content that its action does not use is discarded.
    async fn find_route(&mut self, request: &mut Request, text: &str) -> Result<RouteMatch<'t>, RoutedResponse<'t>> {
        let FoundRoute { matched, scope, passed_over } = self.look_at_routes(request, text);
        if let Some(counter) = passed_over {
            // A request that is only explained counts nothing.
            if self.recorder().is_none() {
                counter.increment();
            }
            self.dry_run_reason = Some(DRY_RUN_DENIED);
        }
        if scope == CacheScope::None {
            self.cache_scope = scope;
        }
        let route = matched.as_ref().map(|matched| matched.route);
        set_route_tag(request, route.map_or(0, |route| route.tag));
        let cors = route.map_or(self.site.rules.cors.as_ref(), |route| route.cors.as_ref());
        if let Some(cors) = cors {
            // A cached file has no fields of the protocol, some of which depend on the origin.
            self.cache_scope = CacheScope::None;
            // Before the access rules, because a preflight request has no credentials.
            if let Some(response) = cors.preflight(request) {
                recording::record_preflight(self.recorder(), route);
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
        if self.remaining_rules == AccessScope::Route {
            let own = route.and_then(|route| route.access.as_ref());
            if own.is_some() {
                self.cache_scope = CacheScope::None;
            }
            let rules = own.unwrap_or(&self.site.rules.access);
            let remaining = rules.minus(&self.passed_rules);
            self.passed_rules = rules.clone();
            self.apply_decision(remaining.check_client(self.client, self.recorder()))?;
            self.check_user(request, &remaining).await?;
        }
        if request.head().framing != RequestFraming::None {
            limit_content(request, route.map_or(u64::MAX, |route| route.body_bytes_max))?;
            let dry_run = route.and_then(|route| route.body_dry_run.as_ref());
            self.body_excess = dry_run.map(|dry_run| dry_run.observe(request));
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
                Ok(FileLookup::Moved(AddressChange::AddSlash))
            }
            _ => {
                let own_names = if self.is_rewritten { OwnNames::Served } else { OwnNames::Redirected };
                lookup::find_file(files, rules, beneath.unwrap_or(path), (request, values, own_names)).await
            }
        };
        self.record_found(rules, path, &found);
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
                let allowed = self.allowed_codings(request, route, (source, &file));
                let response = files.respond(request, &file.resource, allowed).await;
                self.record_coding(&response);
                return RoutedResponse::new(response, Some(route), source).with_file(file);
            }
            Ok(FileLookup::Fallback(file)) => {
                let source = ResponseSource::Fallback;
                let allowed = self.allowed_codings(request, route, (source, &file));
                let mut response = files.respond(request, &file.resource, allowed).await;
                add_vary_for_navigation(&mut response);
                return RoutedResponse::new(response, Some(route), source).with_file(file);
            }
            Ok(FileLookup::Moved(change)) => redirect_to_path(&change.apply(path), request, self.state.slash_redirect),
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

    /// Returns the codings of a file that the fields of its route allow.
    fn allowed_codings(
        &self,
        request: &Request,
        route: &Route,
        (source, file): (ResponseSource, &FoundFile),
    ) -> AllowedCodings {
        if route.headers.is_empty() && route.file_fields.is_empty() {
            return AllowedCodings::All;
        }
        let requested = self.decode(request.path_bytes()).map_or_else(|_| String::new(), |path| absolute_path(&path));
        // What a pattern has captured makes no directive.
        let values = || request_values(request, self.client, &requested, Captures::default());
        let filled = route.headers.has_placeholders().then(|| route.headers.filled(&values()));
        let headers = filled.as_ref().unwrap_or(&route.headers);
        let mut fields = Fields::new();
        FieldChanges::of_file(&route.file_fields, headers, &requested, (source, file)).apply(&mut fields);
        AllowedCodings::of(&fields)
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
        let path_requested = self.decode(raw).ok().filter(|path_requested| path_requested.encode().as_bytes() == raw);
        self.record_caching(path_requested.as_ref());
        if let (CacheScope::Path, Some(path_requested)) = (self.cache_scope, path_requested) {
            let resource = (&file.resource, fresh_until, route.tag);
            let requested = absolute_path(&path_requested);
            let changes = FieldChanges::new(&route.file_fields, &route.headers, &requested, Some(file));
            let change = |fields: &mut Fields| changes.apply(fields);
            let change_fields = (!changes.is_empty()).then_some(&change as &dyn Fn(&mut Fields));
            self.state.cache.borrow_mut().insert_response(self.namespace, raw, resource, change_fields);
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

impl Route {
    /// Lets long content of this route outlive a replacement of the application, if the route has a lease.
    fn with_lease(&self, response: Response) -> Response {
        match &self.lease {
            Some(lease) => response.lease(lease.clone()),
            None => response,
        }
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
    add_vary(response, &["accept", "sec-fetch-mode", "sec-fetch-dest", "x-requested-with"]);
}
