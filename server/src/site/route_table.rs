//! The sites and their routes, as one immutable value that all workers share.

use super::access::{AccessRules, DenialCounter, DryRunCount, PasswordCache};
use super::action::Action;
use super::body_dry_run::BodyDryRun;
use super::client::TrustedProxies;
use super::condition::Condition;
use super::cors::CorsRules;
use super::files::DocumentRoot;
use super::files::root::Root;
use super::files_rules::{Compress, FilesRules, IndexNames, Listing, PageAddresses, PathPrefix, Precompressed};
use super::headers::{FileFieldRules, HeaderEdits};
use super::host::HostIndex;
#[cfg(feature = "configuration")]
use super::proxy::Upstream;
use crate::syntax::HostName;
use crate::syntax::Pattern;
#[cfg(feature = "configuration")]
use crate::traces::Tracer;
#[cfg(feature = "configuration")]
use selvedge::client::ClientLimits;
use selvedge::proto::path::{EncodedSlash, SafePath};
use selvedge::proto::target::Host;
use selvedge::service::{LogRule, ResponseLease};
use selvedge::{ContentCoder, Request, StatusCode};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The rules of one site.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteRules {
    /// The host names of the site.
    pub(crate) names: Vec<HostName>,
    /// The number that identifies the site in the log: [`Request::site_tag`].
    pub(crate) site_tag: u32,
    /// The TLS host whose connections may be used ([`TlsInfo::host_tag`](selvedge::service::TlsInfo::host_tag)).
    pub(crate) host_tag: u32,
    /// Whether a certificate authority may validate its names by http.
    pub(crate) validates_by_http: bool,
    /// What plain requests get, if a listener has TLS.
    pub(crate) plain_requests: PlainRequests,
    /// The proxies whose forwarding field is trusted.
    pub(crate) proxies: Option<TrustedProxies>,
    /// The access rules of the whole site, also for paths without a route.
    pub(crate) access: AccessRules,
    /// The routes, in order of precedence. A path that matches none gets 404.
    pub(crate) routes: Vec<Route>,
    /// The changes to the fields of every response.
    pub(crate) headers: HeaderEdits,
    /// Fields of files, by path or media type.
    pub(crate) file_fields: FileFieldRules,
    /// Which origins may use responses without a route.
    pub(crate) cors: Option<Arc<CorsRules>>,
    /// The files that replace error responses.
    pub(crate) error_pages: Option<ErrorPages>,
    /// What an encoded slash in a path is for routes and applications.
    pub(crate) encoded_slash: EncodedSlash,
    /// What it is for files of a path that leads to its route with slashes, too.
    pub(crate) encoded_slash_of_files: EncodedSlash,
}

/// What a request without TLS gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PlainRequests {
    #[default]
    Serve,
    /// A redirect to https.
    Redirect,
}

impl SiteRules {
    /// The rules of a site that has all host names and serves the files beneath one directory.
    pub(crate) fn for_directory(root: Arc<Root>, listing: Listing, addresses: PageAddresses) -> Self {
        let files = FilesRules {
            root,
            path_prefix: PathPrefix::Kept,
            index: IndexNames(Arc::from([Box::from("index.html")])),
            try_files: Vec::new(),
            fallback: None,
            listing,
            precompressed: Precompressed::On,
            addresses,
        };
        let route = Route {
            pattern: Pattern::everything(),
            conditions: Vec::new(),
            access: None,
            body_bytes_max: u64::MAX,
            body_dry_run: None,
            headers: HeaderEdits::default(),
            file_fields: FileFieldRules::default(),
            cors: None,
            error_pages: Vec::new(),
            action: Action::Files(files),
            compress: Compress::Off,
            lease: None,
            log_rule: LogRule::All,
            tag: 1,
        };
        Self { names: vec![HostName::Any], routes: vec![route], ..Self::default() }
    }

    /// Returns the rules of all routes that serve files.
    pub(crate) fn files_rules_mut(&mut self) -> impl Iterator<Item = &mut FilesRules> {
        self.routes.iter_mut().filter_map(|route| match &mut route.action {
            Action::Files(files) => Some(files),
            _ => None,
        })
    }

    /// Returns how many requests its routes would have denied, by setting, if any is in dry-run mode.
    fn dry_run_denials(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of_deny = self.routes.iter().filter_map(|route| match &route.action {
            Action::DryRunDeny(counter) => Some(counter),
            _ => None,
        });
        let of_content = self.routes.iter().filter_map(|route| route.body_dry_run.as_ref());
        let denied = DenialCounter::sum(of_deny).map(|sum| ("deny", sum));
        let of_content = of_content.map(|limit| limit.denials());
        let too_large = DenialCounter::sum(of_content).map(|sum| ("body-bytes-max", sum));
        denied.into_iter().chain(too_large)
    }

    fn all_access_rules(&self) -> impl Iterator<Item = &AccessRules> + Clone {
        self.routes.iter().filter_map(|route| route.access.as_ref()).chain([&self.access])
    }
}

/// What a site does with requests for some paths.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The paths of the route.
    pub(crate) pattern: Pattern,
    /// The conditions on requests. All must match.
    pub(crate) conditions: Vec<Condition>,
    /// The access rules that replace those of the site; `None` for those of the site.
    pub(crate) access: Option<AccessRules>,
    /// The maximum length of request content in bytes. Longer content gets 413.
    pub(crate) body_bytes_max: u64,
    /// A lower limit in dry-run mode.
    pub(crate) body_dry_run: Option<Arc<BodyDryRun>>,
    /// The changes to the fields of responses, applied after those of the site.
    pub(crate) headers: HeaderEdits,
    /// Fields of files. Those that match no rule get that of the site.
    pub(crate) file_fields: FileFieldRules,
    /// Which origins may use responses.
    pub(crate) cors: Option<Arc<CorsRules>>,
    /// The error pages of the route, beneath the root of the site's error pages. Statuses without a page get
    /// that of the site.
    pub(crate) error_pages: Vec<(StatusCode, SafePath)>,
    /// The action of the route.
    pub(crate) action: Action,
    /// Whether responses are compressed.
    pub(crate) compress: Compress,
    /// Lets streams and upgraded connections of the route outlive a reload that does not change it.
    pub(crate) lease: Option<ResponseLease>,
    /// Which requests of the route are logged.
    pub(crate) log_rule: LogRule,
    /// The number that identifies the route in its site, from 1: [`selvedge::service::route_tag`].
    pub(crate) tag: u32,
}

/// Files that replace error responses and are sent with the status code of the error.
#[derive(Clone, Debug)]
pub(crate) struct ErrorPages {
    /// The directory of the files.
    pub(crate) root: Arc<Root>,
    /// The file for each status code.
    pub(crate) pages: Vec<(StatusCode, SafePath)>,
}

/// A contradiction in or between sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteProblem {
    /// The index of the site, from 0.
    pub(crate) site: usize,
    /// The kind of problem.
    pub(crate) kind: SiteProblemKind,
}

/// The kind of a [`SiteProblem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SiteProblemKind {
    /// Another site has this host name.
    DuplicateName {
        /// The index of the name in its site, from 0.
        name: usize,
        /// The index of the other site.
        taken_by: usize,
    },
    /// The target of a route has a wildcard that its pattern does not fill.
    MissingWildcard {
        /// The index of the route, from 0.
        route: usize,
    },
    /// An error page is set for a status code that is not an error.
    PageForNonError(StatusCode),
}

impl fmt::Display for SiteProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            SiteProblemKind::DuplicateName { .. } => f.write_str("another site has this name already"),
            SiteProblemKind::MissingWildcard { .. } => {
                f.write_str("the target has a wildcard that the pattern of its route does not fill")
            }
            SiteProblemKind::PageForNonError(status) => {
                write!(f, "{} is not an error status (400 to 599)", status.code())
            }
        }
    }
}

impl std::error::Error for SiteProblem {}

/// All sites, their routes, and their document roots.
#[derive(Debug)]
pub(crate) struct RouteTable {
    hosts: HostIndex,
    sites: Vec<Site>,
    /// Every document root of a site once, by the id that routes store.
    pub(super) document_roots: Vec<DocumentRoot>,
    /// The groups of servers that routes forward to, each once.
    #[cfg(feature = "configuration")]
    pub(super) upstreams: Vec<Arc<Upstream>>,
    /// Whether a route forwards requests or runs scripts.
    #[cfg(feature = "configuration")]
    pub(super) has_applications: bool,
    /// Limits of the connections to servers.
    #[cfg(feature = "configuration")]
    pub(super) client_limits: ClientLimits,
    pub(super) password_cache: Arc<PasswordCache>,
    /// Compresses responses, and keeps compressed files.
    pub(super) coder: ContentCoder,
    /// Returns the response to a token of a certificate authority.
    pub(super) challenges: Option<ChallengeResponses>,
    /// The traces of requests, if the configuration has any.
    #[cfg(feature = "configuration")]
    tracer: Option<Arc<Tracer>>,
    /// Whether all sites remove the field Server, so that responses of no site have none, either.
    pub(super) removes_server: bool,
}

/// Returns the response to a token, if it is known.
pub(crate) type RespondToToken = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Finds the response to a token of a certificate authority (RFC 8555 §8.3).
pub(super) struct ChallengeResponses {
    /// The path before the token.
    pub(super) path: &'static str,
    pub(super) respond: Arc<RespondToToken>,
}

impl fmt::Debug for ChallengeResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChallengeResponses")
    }
}

/// A site with the ids of its document roots.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) rules: SiteRules,
    /// The document root id of each route; meaningless for a route that serves no files.
    document_roots: Vec<u32>,
    error_page_root: u32,
    /// Whether all routes share the access rules of the site.
    pub(super) access_scope: AccessScope,
    /// Whether its access rules need nothing but the address of the client, so that a cached file may be sent.
    pub(super) is_cacheable: bool,
    /// Whether its access rules allow every client without a check.
    pub(super) is_open: bool,
    /// Whether a plain request may get a redirect to https, or a response to a certificate authority.
    pub(super) checks_plain_requests: bool,
}

/// Which access rules apply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessScope {
    /// Those of the site, for every path.
    Site,
    /// Those of the route.
    Route,
}

/// How a route was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteLook {
    /// Its pattern does not match.
    OtherPath,
    /// Its pattern matches, but not the condition of this number.
    ConditionFails(usize),
    /// It would deny the request, but is in dry-run mode.
    DryRunDenies,
    /// It is the route of the request.
    Matches,
}

/// A route that matches a request.
pub(super) struct RouteMatch<'t> {
    pub(super) route: &'t Route,
    pub(super) document_root: u32,
}

/// The result of a look-up.
pub(super) struct FoundRoute<'t> {
    pub(super) matched: Option<RouteMatch<'t>>,
    /// Whether the path alone determined the route.
    pub(super) scope: CacheScope,
    /// The counter of the first route that would have denied the request.
    pub(super) passed_over: Option<&'t DenialCounter>,
}

/// Whether a response may be cached by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheScope {
    /// The path alone determines the response, so it may be cached by its path.
    Path,
    /// Other parts of the request matter.
    None,
}

#[cfg(feature = "configuration")]
impl Route {
    fn has_application(&self) -> bool {
        matches!(self.action, Action::Proxy(_) | Action::Gateway(_))
    }
}

/// Returns the groups of servers that routes forward to, each once.
#[cfg(feature = "configuration")]
fn upstreams_of(sites: &[Site]) -> Vec<Arc<Upstream>> {
    let mut upstreams: Vec<Arc<Upstream>> = Vec::new();
    for route in sites.iter().flat_map(|site| &site.rules.routes) {
        if let Action::Proxy(rules) = &route.action
            && !upstreams.iter().any(|known| Arc::ptr_eq(known, &rules.upstream))
        {
            upstreams.push(rules.upstream.clone());
        }
    }
    upstreams
}

impl RouteTable {
    /// Builds the table.
    ///
    /// # Errors
    /// Returns all problems of all sites.
    pub(crate) fn new(sites: Vec<SiteRules>) -> Result<Self, Vec<SiteProblem>> {
        let (mut hosts, mut problems) = (HostIndex::default(), Vec::new());
        let (mut document_roots, mut table) = (Vec::new(), Vec::with_capacity(sites.len()));
        for (number, mut rules) in sites.into_iter().enumerate() {
            let site_number = u32::try_from(number).expect("a configuration has fewer sites");
            let repeated_names = rules.names.iter().enumerate().filter_map(|(name, host)| {
                let taken_by = hosts.add(host, site_number).err()? as usize;
                Some(SiteProblemKind::DuplicateName { name, taken_by })
            });
            let found = repeated_names.chain(find_problems(&rules));
            problems.extend(found.map(|kind| SiteProblem { site: number, kind }));
            for route in &mut rules.routes {
                route.headers = rules.headers.concat(&route.headers);
                route.file_fields = route.file_fields.concat(&rules.file_fields);
            }
            let first = document_roots.len();
            let mut id_of = |document_root| document_root_id(&mut document_roots, first, document_root);
            let files = rules.routes.iter().map(|route| {
                let Some(FilesRules { root, index, precompressed, .. }) = route.action.files() else { return 0 };
                id_of(DocumentRoot {
                    root: root.clone(),
                    index: index.0.clone(),
                    precompressed: *precompressed,
                    compress: route.compress,
                })
            });
            let files = files.collect();
            let pages = rules.error_pages.as_ref().map_or(0, |pages| {
                id_of(DocumentRoot {
                    root: pages.root.clone(),
                    index: Arc::from([]),
                    precompressed: Precompressed::On,
                    compress: Compress::Off,
                })
            });
            let by_route = rules.routes.iter().any(|route| route.access.is_some());
            let access_scope = if by_route { AccessScope::Route } else { AccessScope::Site };
            let is_cacheable = rules.access.basic_auth.is_none() && rules.access.requests_at_once.is_none();
            let is_open = rules.access.ip_access.is_none() && rules.access.rate_limit.is_none();
            let checks_plain_requests = rules.validates_by_http || rules.plain_requests == PlainRequests::Redirect;
            let site = Site {
                rules,
                document_roots: files,
                error_page_root: pages,
                access_scope,
                is_cacheable,
                is_open,
                checks_plain_requests,
            };
            table.push(site);
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            hosts,
            #[cfg(feature = "configuration")]
            upstreams: upstreams_of(&table),
            #[cfg(feature = "configuration")]
            has_applications: table.iter().flat_map(|site| &site.rules.routes).any(Route::has_application),
            #[cfg(feature = "configuration")]
            client_limits: ClientLimits::default(),
            #[cfg(feature = "configuration")]
            tracer: None,
            removes_server: !table.is_empty() && table.iter().all(|site| site.rules.headers.removes_server()),
            sites: table,
            document_roots,
            password_cache: Arc::default(),
            coder: ContentCoder::new(),
            challenges: None,
        })
    }

    /// Sets the limits of the connections to servers. Default: those of the client.
    #[cfg(feature = "program")]
    pub(crate) fn with_client_limits(self, limits: ClientLimits) -> Self {
        Self { client_limits: limits, ..self }
    }

    /// Sets the password cache, which outlives a configuration.
    pub(crate) fn with_password_cache(self, cache: Arc<PasswordCache>) -> Self {
        Self { password_cache: cache, ..self }
    }

    /// Sets what compresses responses, whose compressed files outlive a configuration.
    pub(crate) fn with_coder(self, coder: ContentCoder) -> Self {
        Self { coder, ..self }
    }

    /// Sets the responses to a certificate authority.
    #[cfg(feature = "program")]
    pub(crate) fn with_challenges(self, path: &'static str, respond: Arc<RespondToToken>) -> Self {
        Self { challenges: Some(ChallengeResponses { path, respond }), ..self }
    }

    /// Sets the traces of requests.
    #[cfg(feature = "program")]
    pub(crate) fn with_tracer(self, tracer: Option<Arc<Tracer>>) -> Self {
        Self { tracer, ..self }
    }

    /// Returns the traces of requests, if the configuration has any.
    #[cfg(feature = "configuration")]
    pub(crate) fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.tracer.as_ref()
    }

    /// Returns the number of sites.
    pub(super) fn len(&self) -> usize {
        self.sites.len()
    }

    /// Returns the counts of all access rules in dry-run mode, by site.
    pub(crate) fn dry_run_counts(&self) -> impl Iterator<Item = DryRunCount> {
        self.sites.iter().enumerate().flat_map(|(site, Site { rules, .. })| {
            let of_rules = AccessRules::dry_run_counts(rules.all_access_rules());
            of_rules.chain(rules.dry_run_denials()).map(move |(rule, count)| DryRunCount { site, rule, count })
        })
    }

    /// Returns the maximum memory of one password check in bytes, or `None` if no site has users.
    pub(crate) fn password_check_bytes_max(&self) -> Option<u64> {
        let all = self.sites.iter().flat_map(|site| site.rules.all_access_rules());
        all.filter_map(AccessRules::password_check_bytes_max).max()
    }

    /// Finds the site of a host, and its index.
    pub(super) fn site_of(&self, host: Option<Host<'_>>) -> Option<(u32, &Site)> {
        let number = self.hosts.find(host.map(|host| host.name))?;
        Some((number, self.site(number)))
    }

    /// Returns the number of the site with a host name, which may be none.
    #[cfg(feature = "program")]
    pub(crate) fn site_with_name(&self, name: Option<&str>) -> Option<u32> {
        self.hosts.find(name.map(str::as_bytes))
    }

    /// Returns the TLS host of a site, 0 without certificates.
    #[cfg(feature = "program")]
    pub(crate) fn host_tag(&self, site: u32) -> u32 {
        self.site(site).rules.host_tag
    }

    /// Returns the site of an index.
    pub(super) fn site(&self, number: u32) -> &Site {
        &self.sites[number as usize]
    }
}

fn find_problems(rules: &SiteRules) -> impl Iterator<Item = SiteProblemKind> {
    let wildcards = rules.routes.iter().enumerate().filter_map(|(number, route)| {
        let needs = match &route.action {
            Action::Redirect(redirect) => redirect.target.needs(),
            Action::Rewrite(target) => target.needs(),
            _ => return None,
        };
        (!route.pattern.fills(&needs)).then_some(SiteProblemKind::MissingWildcard { route: number })
    });
    let of_routes = rules.routes.iter().flat_map(|route| &route.error_pages);
    let pages = rules.error_pages.iter().flat_map(|pages| &pages.pages).chain(of_routes);
    let pages =
        pages.filter(|(status, _)| !status.is_error()).map(|(status, _)| SiteProblemKind::PageForNonError(*status));
    wildcards.chain(pages)
}

/// Returns the id of a document root. Routes of one site with equal document roots share one id and its cache.
fn document_root_id(document_roots: &mut Vec<DocumentRoot>, first: usize, document_root: DocumentRoot) -> u32 {
    let is_equal = |other: &DocumentRoot| {
        Arc::ptr_eq(&other.root, &document_root.root)
            && other.index == document_root.index
            && (other.precompressed, other.compress) == (document_root.precompressed, document_root.compress)
    };
    let number = document_roots[first..].iter().position(is_equal).map_or(document_roots.len(), |at| first + at);
    if number == document_roots.len() {
        document_roots.push(document_root);
    }
    u32::try_from(number).expect("a configuration has fewer routes")
}

impl Site {
    /// Finds the first route that matches. This holds after a rewrite, too: passing over a route would also pass over its
    /// access rules. Only a route that denies in dry-run mode is passed over.
    pub(super) fn find_route(&self, text: &str, of: (&Request, IpAddr)) -> FoundRoute<'_> {
        self.find_route_observed(text, of, |_, _| {})
    }

    /// Finds the route as [`Self::find_route`] does, and reports how each route was looked at, by its number.
    pub(super) fn find_route_observed(
        &self,
        text: &str,
        (request, client): (&Request, IpAddr),
        look: impl Fn(usize, RouteLook),
    ) -> FoundRoute<'_> {
        let mut found = FoundRoute { matched: None, scope: CacheScope::Path, passed_over: None };
        for (number, (route, files)) in self.rules.routes.iter().zip(&self.document_roots).enumerate() {
            if !route.pattern.is_match(text) {
                look(number, RouteLook::OtherPath);
                continue;
            }
            if !route.conditions.is_empty() {
                found.scope = CacheScope::None;
            }
            if let Some(failed) = route.conditions.iter().position(|condition| !condition.matches(request, client)) {
                look(number, RouteLook::ConditionFails(failed));
                continue;
            }
            if let Action::DryRunDeny(counter) = &route.action {
                look(number, RouteLook::DryRunDenies);
                found.scope = CacheScope::None;
                found.passed_over.get_or_insert(counter);
                continue;
            }
            look(number, RouteLook::Matches);
            found.matched = Some(RouteMatch { route, document_root: *files });
            break;
        }
        found
    }

    /// Finds the error page for a status code: the route's, then the site's. Returns its document root id and
    /// path.
    pub(super) fn error_page<'t>(
        &'t self,
        route: Option<&'t Route>,
        status: StatusCode,
    ) -> Option<(u32, &'t SafePath)> {
        let pages = self.rules.error_pages.as_ref()?;
        let mut all = route.into_iter().flat_map(|route| &route.error_pages).chain(&pages.pages);
        all.find(|(own, _)| *own == status).map(|(_, path)| (self.error_page_root, path))
    }
}
