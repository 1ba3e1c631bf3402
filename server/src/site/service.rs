//! The service of all sites, with a fast path for cached files.
//!
//! A file that the request path alone determines is cached under its site and path, with its final fields. The
//! next request for it takes the fast path: find the site by host, check the client's access, look up the path.
//! Every other request runs the [`Pipeline`].

use super::accept::with_problem;
use super::access::AccessDecision;
use super::files;
use super::files::cache::FileCache;
use super::files::cache_key::CacheNamespace;
use super::headers;
use super::host;
use super::methods::{SlashRedirect, redirect_to_https};
use super::pipeline::{ClientAccess, Pipeline};
use super::route_table::{AccessScope, ChallengeResponses, PlainRequests, RouteTable, Site};
use super::site_state::SiteState;
use super::step_recorder::{Stage, StepOrigin, StepRecorder, StepVerdict};
use crate::syntax::HostName;
use bytes::Bytes;
#[cfg(feature = "configuration")]
use selvedge::HalfClosed;
use selvedge::proto::head::RequestFraming;
#[cfg(feature = "configuration")]
use selvedge::service::set_request_id;
use selvedge::service::{CacheUse, authority, set_cache_use, set_route_tag};
use selvedge::{Request, Response, Service, StatusCode};
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

/// All sites, as one worker serves them.
pub(crate) struct SiteService {
    state: SiteState,
    /// The cache namespace of each site, for request paths of the fast path.
    namespaces: Box<[CacheNamespace]>,
    /// The authority of the last request, as the client wrote it, and its site's index.
    last_host: RefCell<(Vec<u8>, u32)>,
}

/// The result of the fast path.
enum FastPath<'t> {
    /// A complete response.
    Responded(Response),
    /// The fast path does not apply: the pipeline must run.
    Continue(Pipeline<'t>),
}

impl SiteService {
    /// Creates the service of one worker. `workers` share the process's limit on open files.
    pub(crate) fn new(routes: Arc<RouteTable>, workers: usize) -> Self {
        let mut cache = FileCache::new(workers);
        Self {
            namespaces: (0..routes.len()).map(|_| cache.new_namespace()).collect(),
            last_host: RefCell::default(),
            state: SiteState::new(routes, cache),
        }
    }

    /// Sets how a request for a directory without its trailing slash is redirected.
    pub(crate) fn with_slash_redirect(self, slash: SlashRedirect) -> Self {
        let mut this = self;
        this.state.slash_redirect = slash;
        this
    }

    /// Sets the port to which plain requests are redirected, if a listener has TLS.
    #[cfg(feature = "program")]
    pub(crate) fn with_https_port(self, port: Option<u16>) -> Self {
        let mut this = self;
        this.state.https_port = port;
        this
    }

    /// Returns a response if the connection of a request must not be used for its site.
    #[inline(never)]
    fn check_connection(&self, request: &Request, site: &Site) -> Option<Response> {
        if site.rules.validates_by_http
            && let Some(response) = self.challenge_response(request)
        {
            return Some(response);
        }
        match (request.tls(), self.state.https_port) {
            (Some(tls), _) if tls.host_tag() != site.rules.host_tag => Some(
                Response::error(StatusCode::MISDIRECTED_REQUEST)
                    .log_reason("the TLS handshake of the connection was for another site"),
            ),
            (None, Some(port)) if site.rules.plain_requests == PlainRequests::Redirect => {
                redirect_to_https(request, port)
            }
            _ => None,
        }
    }

    /// Completes a response without the fields of a site.
    fn without_site(&self, mut response: Response) -> Response {
        if self.state.routes.removes_server {
            response.fields_mut().remove("server");
        }
        response
    }

    /// Returns the response to a certificate authority that validates a name by a plain request.
    fn challenge_response(&self, request: &Request) -> Option<Response> {
        let ChallengeResponses { path, respond } = self.state.routes.challenges.as_ref()?;
        let token = request.path().strip_prefix(path).filter(|_| request.tls().is_none())?;
        let text = respond(token)?;
        Some(Response::new(StatusCode::OK).field("content-type", "application/octet-stream").body(Bytes::from(text)))
    }

    /// Finds the site of a request and its index. The last authority is cached, since most requests repeat it.
    fn site_of(&self, request: &Request) -> Option<(u32, &Site)> {
        let Some(authority) = authority(request) else { return self.state.routes.site_of(None) };
        let mut last_host = self.last_host.borrow_mut();
        if last_host.0 == authority && !authority.is_empty() {
            return Some((last_host.1, self.state.routes.site(last_host.1)));
        }
        let found = self.state.routes.site_of(request.host())?;
        last_host.0.clear();
        last_host.0.extend_from_slice(authority);
        last_host.1 = found.0;
        Some(found)
    }

    /// Creates the service for one request that is only explained: it counts nothing, and contacts no server.
    pub(crate) fn explaining(routes: Arc<RouteTable>) -> Self {
        let mut cache = FileCache::new(1);
        Self {
            namespaces: (0..routes.len()).map(|_| cache.new_namespace()).collect(),
            last_host: RefCell::default(),
            state: SiteState::recording(routes, cache),
        }
    }

    /// Processes the request of [`Self::explaining`]. Returns the response, and what was recorded.
    pub(crate) async fn explain(self, request: &mut Request) -> (Response, StepRecorder) {
        let recorder = self.state.recorder.clone().unwrap_or_default();
        self.record_site(request, &recorder);
        let response = self.call(request).await;
        (response, recorder)
    }

    /// Records the site of a request, and its client.
    fn record_site(&self, request: &Request, recorder: &StepRecorder) {
        let Some((number, site)) = self.state.routes.site_of(request.host()) else {
            recorder.step(Stage::Site, StepVerdict::Denied, StepOrigin::None, "no site has this host name");
            return;
        };
        recorder.enter_site(number);
        let names = &site.rules.names;
        let text = match host::matching_name(names, request.host().map(|host| host.name)) {
            Some(name @ HostName::Exact(_)) => format!("{name}: the host is a name of the site"),
            Some(name @ HostName::Wildcard(_)) => format!("{name}: the wildcard is the longest that the host matches"),
            Some(HostName::Any) | None => "*: no other site has the host".to_owned(),
        };
        recorder.step(Stage::Site, StepVerdict::Yes, StepOrigin::Site, text);
        if let Some(proxies) = &site.rules.proxies {
            let text = proxies.explain_client(request);
            recorder.step(Stage::Client, StepVerdict::Note, StepOrigin::Top("trusted-proxies"), text);
        }
    }

    /// Records why a connection is not used for the site.
    fn record_connection(&self, response: &Response) {
        let Some(recorder) = &self.state.recorder else { return };
        let (verdict, text) = match response.status {
            StatusCode::PERMANENT_REDIRECT => (StepVerdict::Yes, "a request without TLS is redirected to https"),
            StatusCode::OK => (StepVerdict::Yes, "a certificate authority validates the name"),
            _ => (StepVerdict::Denied, response.reason().unwrap_or("the request cannot be redirected to https")),
        };
        recorder.step(Stage::Action, verdict, StepOrigin::Setting("https-redirect"), text);
    }

    /// Returns a cached file if one is fresh and the client's access is allowed; otherwise the pipeline that
    /// has to run.
    fn fast_path(&self, request: &mut Request) -> FastPath<'_> {
        let Some((number, site)) = self.site_of(request) else {
            // All sites have the proxies of the configuration.
            if self.state.routes.len() > 0 {
                client_of(request, self.state.routes.site(0));
            }
            let misdirected = Response::error(StatusCode::MISDIRECTED_REQUEST).log_reason("no site has this host name");
            return FastPath::Responded(self.without_site(with_problem(request, misdirected)));
        };
        request.set_site_tag(site.rules.site_tag);
        let client = client_of(request, site);
        if (site.checks_plain_requests || request.tls().is_some())
            && let Some(response) = self.check_connection(request, site)
        {
            self.record_connection(&response);
            return FastPath::Responded(self.without_site(response));
        }
        let namespace = self.namespaces[number as usize];
        let is_cacheable = site.is_cacheable && request.head().framing == RequestFraming::None;
        // An error needs its error page, and has fields of its own. A route with access rules is never cached.
        let cached = is_cacheable.then(|| files::respond_from_cache(&self.state.cache, namespace, request)).flatten();
        let cached = cached.filter(|(response, _)| headers::is_file_response(response));
        let decision = match (site.access_scope, &cached) {
            (AccessScope::Route, None) => {
                return FastPath::Continue(Pipeline::new(
                    &self.state,
                    site,
                    namespace,
                    ClientAccess::unchecked(client),
                ));
            }
            _ if site.is_open => AccessDecision::Allow,
            _ => site.rules.access.check_client(client, self.state.recorder.as_ref()),
        };
        match (cached, decision) {
            (Some((response, route)), AccessDecision::Allow) => {
                set_route_tag(request, route);
                set_cache_use(request, CacheUse::Hit);
                FastPath::Responded(response)
            }
            (_, decision) => {
                FastPath::Continue(Pipeline::new(&self.state, site, namespace, ClientAccess::checked(client, decision)))
            }
        }
    }
}

/// Finds the client of a request and notes it, with the identifier that a trusted proxy has given to the request.
fn client_of(request: &mut Request, site: &Site) -> IpAddr {
    let Some(proxies) = &site.rules.proxies else { return request.peer().ip() };
    let client = proxies.client_of(request);
    request.set_client(client);
    #[cfg(feature = "configuration")]
    if let Some(id) = proxies.request_id(request) {
        set_request_id(request, id);
    }
    client
}

impl Service for SiteService {
    #[cfg(feature = "configuration")]
    fn half_closed(&self) -> HalfClosed {
        // An application does no work for a client that has left. Files are sent faster than clients leave.
        if self.state.routes.has_applications { HalfClosed::Cancel } else { HalfClosed::Continue }
    }

    #[cfg(feature = "configuration")]
    fn accepts_extended_connect(&self) -> bool {
        // For WebSockets of applications.
        self.state.proxy.is_some()
    }

    #[cfg(feature = "configuration")]
    fn sends_interim(&self) -> bool {
        // 103 (Early Hints) of applications.
        self.state.proxy.is_some()
    }

    fn has_server_field_in_refusals(&self) -> bool {
        !self.state.routes.removes_server
    }

    async fn call(&self, request: &mut Request) -> Response {
        // Boxed before the await, so that the future of the connection contains only the box.
        let pipeline = match self.fast_path(request) {
            FastPath::Responded(response) => return response,
            FastPath::Continue(pipeline) => Box::pin(pipeline.run(request)),
        };
        pipeline.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_size<F>(_: impl Fn(&'static SiteService, &'static mut Request) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn pipeline_future_is_boxed() {
        let size = future_size(|sites, request| sites.call(request));
        assert!(size <= 64, "every connection would store {size} bytes");
    }
}
