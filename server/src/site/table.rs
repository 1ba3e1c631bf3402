//! All sites, as one value that every worker shares and nobody changes.

use super::action::{Action, FilesRules, IndexNames, Listing, Sidecars};
use super::client::TrustedProxies;
use super::condition::Condition;
use super::files::Place;
use super::files::root::Root;
use super::gate::{Gates, Observed, Passwords};
use super::headers::{CacheRules, HeaderEdits};
use super::host::{HostName, Hosts};
use super::pattern::{Captures, Pattern};
use selvedge::proto::path::SafePath;
use selvedge::proto::target::Host;
use selvedge::{Request, Status};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// One site.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteRules {
    /// What it goes by.
    pub(crate) names: Vec<HostName>,
    /// The number that the log knows it by: [`Request::label`].
    pub(crate) label: u32,
    /// The proxies in front of it.
    pub(crate) proxies: Option<TrustedProxies>,
    /// What stands before all of it, also before paths without a route.
    pub(crate) gates: Gates,
    /// What it does, in order: the first route that matches counts. A path without any is a 404.
    pub(crate) routes: Vec<Route>,
    /// What it changes of the fields of every answer.
    pub(crate) headers: HeaderEdits,
    /// How long its files may be kept, by the path that the client asked for.
    pub(crate) cache: CacheRules,
    /// What stands for errors.
    pub(crate) error_pages: Option<ErrorPages>,
}

impl SiteRules {
    /// One that goes by every name and sends what is beneath a directory.
    pub(crate) fn of_directory(root: Arc<Root>, listing: Listing) -> Self {
        let files = FilesRules {
            root,
            index: IndexNames(Arc::from([Box::from("index.html")])),
            attempts: Vec::new(),
            fallback: None,
            listing,
            sidecars: Sidecars::On,
        };
        let route = Route {
            pattern: Pattern::everything(),
            conditions: Vec::new(),
            gates: None,
            body_bytes_max: u64::MAX,
            headers: HeaderEdits::default(),
            cache: CacheRules::default(),
            pages: Vec::new(),
            action: Action::Files(files),
        };
        Self { names: vec![HostName::Any], routes: vec![route], ..Self::default() }
    }

    /// What its routes with files do.
    pub(crate) fn files_rules_mut(&mut self) -> impl Iterator<Item = &mut FilesRules> {
        self.routes.iter_mut().filter_map(|route| match &mut route.action {
            Action::Files(files) => Some(files),
            _ => None,
        })
    }

    fn all_gates(&self) -> impl Iterator<Item = &Gates> + Clone {
        self.routes.iter().filter_map(|route| route.gates.as_ref()).chain([&self.gates])
    }
}

/// What a site does with some of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The paths it is about.
    pub(crate) pattern: Pattern,
    /// What it asks of requests beyond that; all of it has to hold.
    pub(crate) conditions: Vec<Condition>,
    /// What stands before it in place of the gates of the site, if anything does.
    pub(crate) gates: Option<Gates>,
    /// The most content of a request; for more there is a 413.
    pub(crate) body_bytes_max: u64,
    /// What it changes of the fields of its answers, after the site.
    pub(crate) headers: HeaderEdits,
    /// How long its files may be kept; what it does not say the site says.
    pub(crate) cache: CacheRules,
    /// What stands for its errors, beneath the root of the site's pages; what it does not say
    /// the site says.
    pub(crate) pages: Vec<(Status, SafePath)>,
    /// What it does.
    pub(crate) action: Action,
}

/// Files that stand for errors. They are sent with the status of the error.
#[derive(Clone, Debug)]
pub(crate) struct ErrorPages {
    /// Where they are.
    pub(crate) root: Arc<Root>,
    /// Which file stands for which status.
    pub(crate) pages: Vec<(Status, SafePath)>,
}

/// Why sites do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteProblem {
    /// Which site, the first being 0.
    pub(crate) site: usize,
    /// What is wrong with it.
    pub(crate) kind: SiteProblemKind,
}

/// See [`SiteProblem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SiteProblemKind {
    /// The site of this number has the name already.
    NameTaken {
        /// Which of the names, the first being 0.
        name: usize,
        /// The other site.
        by: usize,
    },
    /// The target of a route has more stars than its pattern.
    TooFewStars {
        /// Which route, the first being 0.
        route: usize,
    },
    /// A page stands for a status that is no error.
    PageOfNoError(Status),
}

impl fmt::Display for SiteProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            SiteProblemKind::NameTaken { .. } => f.write_str("another site has this name already"),
            SiteProblemKind::TooFewStars { .. } => {
                f.write_str("the target has more stars than the path of its route, which they stand for")
            }
            SiteProblemKind::PageOfNoError(status) => write!(f, "{} is no error, which has 4xx or 5xx", status.code()),
        }
    }
}

impl std::error::Error for SiteProblem {}

/// All sites.
#[derive(Debug)]
pub(crate) struct SiteTable {
    hosts: Hosts,
    sites: Vec<Site>,
    /// Every pair of a root and its index names, by the number that routes know it by.
    pub(super) places: Vec<Place>,
    pub(super) passwords: Arc<Passwords>,
}

/// A site as it is served.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) rules: SiteRules,
    /// The place of each route's files; of no meaning for a route without files.
    files: Vec<u32>,
    pages: u32,
    /// Whether every route stands behind the gates of the site.
    pub(super) gating: Gating,
}

/// Whose gates a request has to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gating {
    /// Those of the site, whatever its path.
    BySite,
    /// Those of its route.
    ByRoute,
}

/// A route that matches.
pub(super) struct Matched<'t, 'p> {
    pub(super) route: &'t Route,
    pub(super) captures: Captures<'p>,
    pub(super) files: u32,
}

/// Whether a route was chosen by the path alone, so that it is the same next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    ByPath,
    ByRequest,
}

impl SiteTable {
    /// Puts sites together.
    ///
    /// # Errors
    /// Every problem there is.
    pub(crate) fn new(sites: Vec<SiteRules>) -> Result<Self, Vec<SiteProblem>> {
        let (mut hosts, mut problems) = (Hosts::default(), Vec::new());
        let (mut places, mut table) = (Vec::new(), Vec::with_capacity(sites.len()));
        for (number, mut rules) in sites.into_iter().enumerate() {
            let site_number = u32::try_from(number).expect("a configuration has fewer sites");
            for (name, host) in rules.names.iter().enumerate() {
                if let Err(by) = hosts.add(host, site_number) {
                    let kind = SiteProblemKind::NameTaken { name, by: by as usize };
                    problems.push(SiteProblem { site: number, kind });
                }
            }
            problems.extend(problems_of(&rules).map(|kind| SiteProblem { site: number, kind }));
            for route in &mut rules.routes {
                route.headers = rules.headers.followed_by(&route.headers);
                route.cache = route.cache.followed_by(&rules.cache);
            }
            let first = places.len();
            let mut number_of = |place| number_of(&mut places, first, place);
            let files = rules.routes.iter().map(|route| match &route.action {
                Action::Files(FilesRules { root, index, sidecars, .. }) => {
                    number_of(Place { root: root.clone(), index: index.0.clone(), sidecars: *sidecars })
                }
                _ => 0,
            });
            let files = files.collect();
            let pages = rules.error_pages.as_ref().map_or(0, |pages| {
                number_of(Place { root: pages.root.clone(), index: Arc::from([]), sidecars: Sidecars::On })
            });
            let by_route = rules.routes.iter().any(|route| route.gates.is_some());
            let gating = if by_route { Gating::ByRoute } else { Gating::BySite };
            table.push(Site { rules, files, pages, gating });
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self { hosts, sites: table, places, passwords: Arc::default() })
    }

    /// With what is known of passwords already.
    pub(crate) fn knowing(self, passwords: Arc<Passwords>) -> Self {
        Self { passwords, ..self }
    }

    /// How many sites there are.
    pub(super) fn len(&self) -> usize {
        self.sites.len()
    }

    /// What gates that only observe have counted, site by site.
    pub(crate) fn observed(&self) -> impl Iterator<Item = Observed> {
        self.sites.iter().enumerate().flat_map(|(site, Site { rules, .. })| {
            Gates::observed(rules.all_gates()).map(move |(gate, count)| Observed { site, gate, count })
        })
    }

    /// The most memory that checking a password takes, if any site has users.
    pub(crate) fn password_bytes_max(&self) -> Option<u64> {
        let all = self.sites.iter().flat_map(|site| site.rules.all_gates());
        all.filter_map(Gates::password_bytes_max).max()
    }

    /// The site of a host, and its number.
    pub(super) fn site_of(&self, host: Option<Host<'_>>) -> Option<(u32, &Site)> {
        let number = self.hosts.find(host.map(|host| host.name))?;
        Some((number, self.site(number)))
    }

    /// The site of a number.
    pub(super) fn site(&self, number: u32) -> &Site {
        &self.sites[number as usize]
    }
}

fn problems_of(rules: &SiteRules) -> impl Iterator<Item = SiteProblemKind> {
    let stars = rules.routes.iter().enumerate().filter_map(|(number, route)| {
        let wanted = match &route.action {
            Action::Redirect(redirect) => redirect.target.stars(),
            Action::Rewrite(target) => target.stars(),
            _ => 0,
        };
        (wanted > route.pattern.stars()).then_some(SiteProblemKind::TooFewStars { route: number })
    });
    let of_routes = rules.routes.iter().flat_map(|route| &route.pages);
    let pages = rules.error_pages.iter().flat_map(|pages| &pages.pages).chain(of_routes);
    let pages =
        pages.filter(|(status, _)| !status.is_error()).map(|(status, _)| SiteProblemKind::PageOfNoError(*status));
    stars.chain(pages)
}

/// The number of a place: routes of one site that serve the same files share what is known of them.
fn number_of(places: &mut Vec<Place>, first: usize, place: Place) -> u32 {
    let same = |other: &Place| {
        Arc::ptr_eq(&other.root, &place.root) && other.index == place.index && other.sidecars == place.sidecars
    };
    let number = places[first..].iter().position(same).map_or(places.len(), |at| first + at);
    if number == places.len() {
        places.push(place);
    }
    u32::try_from(number).expect("a configuration has fewer routes")
}

impl Site {
    /// The first route that matches, and whether the path alone has decided. It is the first one
    /// behind a rewrite, too: a route that was passed over would take its gates with it.
    pub(super) fn route_of<'t, 'p>(
        &'t self,
        text: &'p str,
        (request, client): (&Request, IpAddr),
    ) -> (Option<Matched<'t, 'p>>, Choice) {
        let mut choice = Choice::ByPath;
        for (route, files) in self.rules.routes.iter().zip(&self.files) {
            let Some(captures) = route.pattern.matches(text) else { continue };
            if !route.conditions.is_empty() {
                choice = Choice::ByRequest;
            }
            if route.conditions.iter().all(|condition| condition.holds_for(request, client)) {
                return (Some(Matched { route, captures, files: *files }), choice);
            }
        }
        (None, choice)
    }

    /// The file that stands for an error of a route, and the number of its place.
    pub(super) fn page_for<'t>(&'t self, route: Option<&'t Route>, status: Status) -> Option<(u32, &'t SafePath)> {
        let pages = self.rules.error_pages.as_ref()?;
        let mut all = route.into_iter().flat_map(|route| &route.pages).chain(&pages.pages);
        all.find(|(own, _)| *own == status).map(|(_, path)| (self.pages, path))
    }
}
