//! The actions that pass a request to an application: proxies and scripts.

use super::{Pipeline, RouteResult, RoutedResponse, refuse_path};
use crate::site::action::Action;
use crate::site::condition::scheme_of;
use crate::site::field_changes::ResponseSource;
use crate::site::gateway::{self, GatewayOutcome, GatewayRequest, GatewayRules};
use crate::site::lookup::{FileLookup, FoundBy};
use crate::site::methods::{redirect_to_slash, respond_to_method};
use crate::site::proxy::{self, Forwarded, PreparedRequest, ProxyRules, RequestFacts};
use crate::site::route_table::{CacheScope, Route};
use crate::syntax::RequestValues;
use selvedge::proto::path::{OpaquePath, PathReject, SafePath};
use selvedge::service::upstream_of;
use selvedge::{Request, Response};

impl<'t> Pipeline<'t> {
    /// Decodes a path that names no file, if a proxy forwards it.
    ///
    /// # Errors
    /// The response, if the path belongs to no proxy, or if an application could read it as the path of another route. Its
    /// access rules would then not have been checked.
    pub(super) fn opaque_path(&self, request: &Request, reject: PathReject) -> Result<OpaquePath, Response> {
        if !matches!(reject, PathReject::EncodedSlash | PathReject::EmptySegment) {
            return Err(refuse_path(reject));
        }
        let path = OpaquePath::decode(request.path_bytes()).map_err(refuse_path)?;
        let route_of = |text: &str| self.site.find_route(text, (request, self.client)).0.map(|matched| matched.route);
        let route = route_of(path.as_str()).filter(|route| matches!(route.action, Action::Proxy(_)));
        let route = route.ok_or_else(|| refuse_path(reject))?;
        let is_own = |text: &String| route_of(text).is_some_and(|other| std::ptr::eq(other, route));
        match path.readings().iter().all(is_own) {
            true => Ok(path),
            false => Err(refuse_path(reject).log_reason("an application could read the path as one of another route")),
        }
    }

    /// Builds the request to a server of a group.
    pub(super) fn prepare_forwarding<'v>(
        &self,
        request: &Request,
        (rules, path): (&ProxyRules, Option<&SafePath>),
        values: &dyn Fn() -> RequestValues<'v>,
    ) -> PreparedRequest {
        let rewritten = path.filter(|_| self.is_rewritten);
        let facts = RequestFacts { rewritten, proxies: self.site.rules.proxies.as_ref() };
        proxy::prepare((self.state.proxy(), rules), request, facts, values)
    }

    /// Forwards the request to a server of a group.
    pub(super) async fn forward(
        &self,
        request: &mut Request,
        rules: &ProxyRules,
        prepared: PreparedRequest,
    ) -> (Response, ResponseSource) {
        match proxy::forward((self.state.proxy(), rules), request, self.client, prepared).await {
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
        let scheme = proxies.and_then(|proxies| proxies.forwarded_scheme(request)).unwrap_or(scheme_of(request));
        let call = GatewayRequest { rules, files, path, beneath, scheme, redirected: redirected.as_deref() };
        let outcome = Box::pin(gateway::respond(&self.state.gateway, request, call)).await;
        let response = match outcome {
            GatewayOutcome::Response(response) => {
                // The application has written its own error pages.
                let is_own = upstream_of(request).is_some_and(|record| record.facts().status.is_some());
                let response = match &route.lease {
                    Some(lease) => response.lease(lease.clone()),
                    None => response,
                };
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
                    let response = self.state.files(number).respond(request, &file.resource).await;
                    let served = RoutedResponse::new(response, Some(route), ResponseSource::File).with_file(file);
                    return RouteResult::Responded(served);
                }
                (None, _) => redirect_to_slash(path, request, self.state.slash_redirect),
            },
        };
        RouteResult::Responded(RoutedResponse::new(response, Some(route), ResponseSource::Generated))
    }
}
