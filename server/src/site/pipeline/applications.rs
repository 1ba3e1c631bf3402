//! The actions that pass a request to an application: proxies and scripts.

use super::{Pipeline, RouteResult, RoutedResponse};
use crate::site::action::Action;
use crate::site::condition::scheme_of;
use crate::site::field_changes::ResponseSource;
use crate::site::gateway::{self, GatewayOutcome, GatewayRequest, GatewayRules};
use crate::site::lookup::{FileLookup, FoundBy};
use crate::site::methods::{redirect_to_path, respond_to_method};
use crate::site::proxy::{self, Forwarded, PreparedRequest, ProxyRules, RequestFacts};
use crate::site::route_table::{CacheScope, Route, SiteRules};
use crate::syntax::{RequestValues, absolute_path};
use crate::traces::Tracer;
use selvedge::proto::head::Scheme;
use selvedge::proto::path::{EncodedSlash, SafePath, decode_slashes, has_several_readings, readings};
use selvedge::service::upstream_of;
use selvedge::{Request, Response};
use std::borrow::Cow;

impl<'t> Pipeline<'t> {
    /// Whether a path, whose text led to a route, leads to it in each way that an application may read it. Otherwise such
    /// a path could reach what the rules of another route protect.
    pub(super) fn leads_alike(&self, request: &Request, (path, text): (&SafePath, &str), route: &Route) -> bool {
        let raw = match &route.action {
            _ if self.is_rewritten => path.encode().into_bytes().into(),
            // A proxy forwards what the site has read.
            Action::Proxy(_) if self.site.rules.encoded_slash == EncodedSlash::Separator => {
                decode_slashes(request.path_bytes())
            }
            _ => Cow::Borrowed(request.path_bytes()),
        };
        let leads_to_route = |text: &String| {
            let found = self.site.find_route(text, (request, self.client));
            found.matched.is_some_and(|found| std::ptr::eq(found.route, route))
        };
        // Most paths are their own text.
        *raw == *text.as_bytes()
            || !has_several_readings(&raw)
            || readings(&raw).is_ok_and(|texts| texts.iter().all(leads_to_route))
    }

    /// Returns the path and its text as the action of a route reads them: files may read an encoded slash as a slash.
    pub(super) fn read_for_files<'p>(
        &self,
        request: &Request,
        (path, text): (Cow<'p, SafePath>, String),
        route: &Route,
    ) -> (Cow<'p, SafePath>, String) {
        let SiteRules { encoded_slash, encoded_slash_of_files, .. } = self.site.rules;
        if encoded_slash == encoded_slash_of_files || !matches!(route.action, Action::Files(_)) {
            return (path, text);
        }
        match SafePath::decode_with(path.encode().as_bytes(), encoded_slash_of_files) {
            Ok(separated) if separated != *path && self.leads_alike(request, (&path, &text), route) => {
                let text = absolute_path(&separated);
                (Cow::Owned(separated), text)
            }
            _ => (path, text),
        }
    }

    /// Returns the traces of requests, if the server has any. A request that is only explained has none.
    fn tracer(&self) -> Option<&Tracer> {
        self.state.routes.tracer().filter(|_| self.recorder().is_none()).map(|tracer| &**tracer)
    }

    /// Builds the request to a server of a group.
    pub(super) fn prepare_forwarding<'v>(
        &self,
        request: &Request,
        (rules, path): (&ProxyRules, &SafePath),
        values: &dyn Fn() -> RequestValues<'v>,
    ) -> PreparedRequest {
        let SiteRules { encoded_slash, proxies, .. } = &self.site.rules;
        let rewritten = self.is_rewritten.then_some(path);
        let (encoded_slash, proxies, tracer) = (*encoded_slash, proxies.as_ref(), self.tracer());
        let facts = RequestFacts { rewritten, encoded_slash, proxies, tracer };
        proxy::prepare((self.state.proxy(), rules), request, facts, values)
    }

    /// Forwards the request to a server of a group.
    pub(super) async fn forward(
        &self,
        request: &mut Request,
        rules: &ProxyRules,
        prepared: PreparedRequest,
    ) -> (Response, ResponseSource) {
        let worker = (self.state.proxy(), rules);
        let forwarded = match self.recorder() {
            None => proxy::forward(worker, request, self.client, prepared).await,
            Some(recorder) => proxy::explain(worker, request, self.client, prepared, recorder),
        };
        match forwarded {
            Forwarded::Received(response) => (response, ResponseSource::Configured),
            Forwarded::Failed(response) => (response, ResponseSource::Generated),
        }
    }

    /// Runs a script, or responds with a file of its application.
    pub(super) async fn run_gateway(
        &mut self,
        request: &mut Request,
        (path, beneath): (&SafePath, Option<&SafePath>),
        (route, rules, number): (&'t Route, &GatewayRules, u32),
    ) -> RouteResult<'t> {
        let redirected = self.redirected_query.take();
        let files = rules.files().is_some().then(|| self.state.files(number));
        let proxies = self.site.rules.proxies.as_ref();
        let scheme = match proxies.and_then(|proxies| proxies.origin(request).scheme) {
            Some(Scheme::Https) => "https",
            Some(Scheme::Http) => "http",
            None => scheme_of(request),
        };
        let (recorder, tracer) = (self.recorder(), self.tracer());
        let redirected = redirected.as_deref();
        let call = GatewayRequest { rules, files, path, beneath, scheme, redirected, tracer, recorder };
        let outcome = Box::pin(gateway::respond(&self.state.gateway, request, call)).await;
        let response = match outcome {
            GatewayOutcome::Response(response) => {
                // The application has written its own error pages.
                let is_own = upstream_of(request).is_some_and(|record| record.facts().status.is_some());
                let response = route.with_lease(response);
                let source = if is_own { ResponseSource::Configured } else { ResponseSource::Generated };
                return RouteResult::Responded(RoutedResponse::new(response, Some(route), source));
            }
            GatewayOutcome::LocalRedirect { path, query } => {
                self.cache_scope = CacheScope::None;
                self.redirected_query = Some(query);
                return RouteResult::Rewritten(path, route);
            }
            GatewayOutcome::File(file) => match (respond_to_method(request), file) {
                (Some(refused), _) => refused,
                (None, FileLookup::File(file, FoundBy::Path(fresh_until))) => {
                    self.cache_file(request, route, (&file, fresh_until));
                    let allowed = self.allowed_codings(request, route, (ResponseSource::File, &file));
                    let response = self.state.files(number).respond(request, &file.resource, allowed).await;
                    self.record_coding(&response);
                    let served = RoutedResponse::new(response, Some(route), ResponseSource::File).with_file(file);
                    return RouteResult::Responded(served);
                }
                (None, _) => redirect_to_path(&path.as_directory(), request, self.state.slash_redirect),
            },
        };
        RouteResult::Responded(RoutedResponse::new(response, Some(route), ResponseSource::Generated))
    }
}
