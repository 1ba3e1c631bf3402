//! Settings become behaviour: sites, logs, limits and gates, as values of the rooms below.
//!
//! What only the world or a room below can tell (a root that cannot be opened, a target that
//! does not go with its pattern) is a problem with the place of the setting, like those that
//! the text alone has. All of them are found at once.

mod action;
mod gate;
mod kept;
mod limits;
#[cfg(feature = "program")]
mod log;
mod site;

use crate::config::model::{ForwardedField, Settings, Switch};
use crate::config::{Claimed, Configuration, Problem, Sources, Span, value};
#[cfg(feature = "program")]
use crate::log::plan::LogPlan;
use crate::site::{ForwardingField, Network, Root, SiteTable, TrustedProxies, UnixPeers};
pub(crate) use gate::RATE_CLIENTS;
pub(crate) use kept::Kept;
use selvedge::Limits;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the server does under a configuration.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) table: Arc<SiteTable>,
    #[cfg(feature = "program")]
    pub(crate) logs: LogPlan,
    pub(crate) limits: Limits,
    /// What the next configuration goes on with where it says the same.
    pub(crate) kept: Kept,
}

/// Makes of a configuration what the server does; `earlier` is what was kept of the one before,
/// and files of users come from `sources`.
///
/// # Errors
/// Every problem there is.
pub(crate) fn compile(
    configuration: &Configuration,
    earlier: &Kept,
    sources: &dyn Sources,
) -> Result<Compiled, Vec<Problem>> {
    let Configuration { settings, .. } = configuration;
    let mut compiler = Compiler {
        configuration,
        earlier,
        sources,
        kept: Kept::after(earlier),
        lost_roots: HashSet::new(),
        problems: Vec::new(),
    };
    compiler.connection_gate();
    let sites: Vec<_> = settings.sites.iter().enumerate().map(|site| compiler.site(site)).collect();
    #[cfg(feature = "program")]
    let logs = compiler.logs();
    let Compiler { kept, mut problems, .. } = compiler;
    match SiteTable::new(sites) {
        Ok(table) if problems.is_empty() => {
            let table = Arc::new(table.knowing(kept.passwords.clone()));
            let open = kept.roots.len();
            #[cfg(feature = "program")]
            let open = open + logs.descriptors_max();
            Ok(Compiled {
                table,
                #[cfg(feature = "program")]
                logs,
                limits: limits::compile(&settings.limits, open),
                kept,
            })
        }
        Ok(_) => Err(problems),
        Err(found) => {
            let place = |site| place_of_any(configuration, &[Claimed::Site(site)]);
            problems.extend(
                found.iter().map(|problem| Problem::of_world(place(problem.site), problem.to_string(), String::new())),
            );
            Err(problems)
        }
    }
}

/// Where something is claimed; the last place, since a log that is named twice is judged there.
pub(crate) fn place_of(configuration: &Configuration, claimed: &Claimed) -> Option<Span> {
    configuration.claims.iter().rev().find(|claim| claim.claimed == *claimed).map(|claim| claim.at)
}

/// The place of the first of these that is written somewhere, or the configuration's beginning.
fn place_of_any(configuration: &Configuration, claimed: &[Claimed]) -> Span {
    claimed.iter().find_map(|claimed| place_of(configuration, claimed)).unwrap_or_default()
}

/// Which route of which site, as claims number them.
#[derive(Clone, Copy, Debug)]
struct Route {
    site: usize,
    route: usize,
}

/// Goes through the settings.
struct Compiler<'a> {
    configuration: &'a Configuration,
    earlier: &'a Kept,
    sources: &'a dyn Sources,
    kept: Kept,
    /// Those that cannot be opened, which is said once.
    lost_roots: HashSet<PathBuf>,
    problems: Vec<Problem>,
}

impl<'a> Compiler<'a> {
    fn settings(&self) -> &'a Settings {
        &self.configuration.settings
    }

    /// Notes a problem at the first of these places that is written somewhere.
    fn problem(&mut self, places: &[Claimed], what: impl ToString) {
        let at = place_of_any(self.configuration, places);
        self.problems.push(Problem::of_world(at, what.to_string(), String::new()));
    }

    /// Notes the problem of a route, if there is one.
    fn judged<T>(&mut self, at: Route, result: Result<T, impl ToString>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(&[Claimed::Route(at.site, at.route), Claimed::Site(at.site)], error);
                None
            }
        }
    }

    /// A root, open: the earlier configuration's where its path still leads to it.
    fn root(&mut self, path: &Path) -> Option<Arc<Root>> {
        if let Some(known) = self.kept.roots.get(path) {
            return Some(known.clone());
        }
        if self.lost_roots.contains(path) {
            return None;
        }
        let opened = match self.earlier.roots.get(path) {
            Some(earlier) => earlier.of_now(),
            None => Root::open(path).map(Arc::new),
        };
        match opened {
            Ok(root) => {
                self.kept.roots.insert(path.to_owned(), root.clone());
                Some(root)
            }
            Err(error) => {
                let what = format!("cannot open {}: {error}", path.display());
                self.problem(&[Claimed::Root(path.to_owned())], what);
                self.lost_roots.insert(path.to_owned());
                None
            }
        }
    }

    /// The proxies in front of all sites.
    fn proxies(&self) -> Option<TrustedProxies> {
        let proxies = &self.settings().trusted_proxies;
        let is_any = !proxies.networks.is_empty() || proxies.unix == Switch::On;
        is_any.then(|| TrustedProxies {
            networks: networks(&proxies.networks),
            unix: match proxies.unix {
                Switch::On => UnixPeers::Trusted,
                Switch::Off => UnixPeers::Strangers,
            },
            field: match proxies.field {
                ForwardedField::XForwardedFor => ForwardingField::XForwardedFor,
                ForwardedField::Forwarded => ForwardingField::Forwarded,
            },
        })
    }
}

fn networks(networks: &[value::Network]) -> Vec<Network> {
    let network = |network: &value::Network| Network::new(network.address, network.bits);
    networks.iter().map(|own| network(own).expect("its other bits are zero, which reading saw to")).collect()
}
