//! Compiles settings into values of the lower modules: sites, logs, limits and access rules.
//!
//! What only the machine or a lower module can check (a root that cannot be opened, a target that does not fit its
//! pattern) is reported at the position of the setting. All problems are found at once.

mod access;
mod action;
mod carried_state;
#[cfg(feature = "program")]
mod gateway;
mod headers;
mod limits;
#[cfg(feature = "program")]
mod log;
#[cfg(feature = "program")]
mod proxy;
#[cfg(feature = "program")]
mod random;
mod site;
#[cfg(feature = "program")]
mod tls;
#[cfg(feature = "program")]
mod traces;
#[cfg(feature = "program")]
mod upstream;
#[cfg(feature = "program")]
mod via_name;

#[cfg(feature = "program")]
use crate::certificates::CHALLENGE_PATH;
use crate::config::model::{self, ForwardedField, Settings, Switch};
use crate::config::{Configuration, MachineRequirementKind, Problem, Sources, Span};
#[cfg(feature = "program")]
use crate::log::config::LogConfig;
use crate::site::{ForwardingField, Root, RouteTable, TrustedProxies, UnixPeerTrust};
pub(crate) use access::RATE_CLIENTS;
pub(crate) use carried_state::CarriedState;
#[cfg(feature = "program")]
pub(crate) use carried_state::ServingState;
#[cfg(feature = "program")]
pub(crate) use limits::client as client_limits;
#[cfg(feature = "program")]
pub(crate) use random::random_bytes;
use selvedge::Limits;
#[cfg(feature = "program")]
use selvedge::tls::TlsHost;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "program")]
pub(crate) use tls::{SiteHosts, approval, needs_approval, read_authorities, read_secrets, site_of_handshake};
#[cfg(feature = "program")]
pub(crate) use traces::collector;

/// The behaviour of a configuration.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) table: Arc<RouteTable>,
    #[cfg(feature = "program")]
    pub(crate) logs: LogConfig,
    /// The hosts of sites with certificates.
    #[cfg(feature = "program")]
    pub(crate) hosts: Option<Arc<SiteHosts>>,
    /// The host of remote commands.
    #[cfg(feature = "program")]
    pub(crate) control_host: Option<Arc<TlsHost>>,
    pub(crate) limits: Limits,
    /// State that the next configuration continues with.
    pub(crate) carried: CarriedState,
}

/// Compiles a configuration. `earlier` is the state of the previous one; files of users are read from `sources`.
///
/// # Errors
/// All problems at once.
pub(crate) fn compile(
    configuration: &Configuration,
    earlier: &CarriedState,
    sources: &dyn Sources,
) -> Result<Compiled, Vec<Problem>> {
    let Configuration { settings, .. } = configuration;
    let mut compiler = Compiler {
        configuration,
        earlier,
        sources,
        carried: CarriedState::continue_from(earlier),
        unopened_roots: HashSet::new(),
        #[cfg(feature = "program")]
        hosts: tls::Hosts::default(),
        problems: Vec::new(),
    };
    compiler.connection_limit();
    #[cfg(feature = "program")]
    upstream::upstreams(&mut compiler);
    let sites: Vec<_> = settings.sites.iter().enumerate().map(|site| compiler.site(site)).collect();
    #[cfg(feature = "program")]
    let logs = compiler.logs();
    #[cfg(feature = "program")]
    let control_host = tls::control_host(&mut compiler);
    #[cfg(feature = "program")]
    let hosts = std::mem::take(&mut compiler.hosts);
    let Compiler { carried, mut problems, .. } = compiler;
    match RouteTable::new(sites) {
        Ok(table) if problems.is_empty() => {
            let table = table.with_password_cache(carried.passwords.clone()).with_coder(carried.coder.clone());
            #[cfg(feature = "program")]
            let table = table.with_client_limits(limits::client(&settings.limits));
            #[cfg(feature = "program")]
            let table = match carried.automatic().cloned() {
                Some(automatic) => {
                    let respond = Arc::new(move |token: &str| automatic.challenges().response(token));
                    table.with_challenges(CHALLENGE_PATH, respond)
                }
                None => table,
            };
            #[cfg(feature = "program")]
            let table = table.with_tracer(traces::tracer(settings, &carried));
            let table = Arc::new(table);
            let open = carried.roots.len();
            #[cfg(feature = "program")]
            let open = open + logs.descriptors_max();
            Ok(Compiled {
                #[cfg(feature = "program")]
                hosts: hosts.select(&table, settings, carried.automatic()).map(Arc::new),
                table,
                #[cfg(feature = "program")]
                control_host,
                #[cfg(feature = "program")]
                logs,
                limits: limits::compile(settings, open),
                carried,
            })
        }
        Ok(_) => Err(problems),
        Err(found) => {
            let place = |site| position_of_any(configuration, &[MachineRequirementKind::Site(site)]);
            problems.extend(
                found
                    .iter()
                    .map(|problem| Problem::with_suggestion(place(problem.site), problem.to_string(), String::new())),
            );
            Err(problems)
        }
    }
}

/// Returns the position of a requirement; the last one, because a log that is named twice is reported there.
pub(crate) fn position_of(configuration: &Configuration, kind: &MachineRequirementKind) -> Option<Span> {
    configuration
        .requirements
        .iter()
        .rev()
        .find(|requirement| requirement.kind == *kind)
        .map(|requirement| requirement.at)
}

/// Returns the position of the first of these requirements that exists, or the start of the configuration.
fn position_of_any(configuration: &Configuration, kinds: &[MachineRequirementKind]) -> Span {
    kinds.iter().find_map(|kind| position_of(configuration, kind)).unwrap_or_default()
}

/// A route, by the numbers that requirements use.
#[derive(Clone, Copy, Debug)]
struct RouteIndex {
    site: usize,
    route: usize,
}

/// Compiles the settings.
struct Compiler<'a> {
    configuration: &'a Configuration,
    earlier: &'a CarriedState,
    sources: &'a dyn Sources,
    carried: CarriedState,
    /// Roots that cannot be opened, which are reported once.
    unopened_roots: HashSet<PathBuf>,
    #[cfg(feature = "program")]
    hosts: tls::Hosts<'a>,
    problems: Vec<Problem>,
}

impl<'a> Compiler<'a> {
    fn settings(&self) -> &'a Settings {
        &self.configuration.settings
    }

    /// Reports a problem at the first of these positions.
    fn problem(&mut self, places: &[MachineRequirementKind], what: impl ToString) {
        let at = position_of_any(self.configuration, places);
        self.problems.push(Problem::with_suggestion(at, what.to_string(), String::new()));
    }

    /// Reports the problem of a route, if any.
    fn checked<T>(&mut self, at: RouteIndex, result: Result<T, impl ToString>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(
                    &[MachineRequirementKind::Route(at.site, at.route), MachineRequirementKind::Site(at.site)],
                    error,
                );
                None
            }
        }
    }

    /// Opens a root, or reuses the previous configuration's if its path still leads to it.
    fn root(&mut self, path: &Path, link_targets: &[PathBuf]) -> Option<Arc<Root>> {
        let key = (path.to_owned(), link_targets.to_owned());
        if let Some(known) = self.carried.roots.get(&key) {
            return Some(known.clone());
        }
        if self.unopened_roots.contains(path) {
            return None;
        }
        let opened = match self.earlier.roots.get(&key) {
            Some(earlier) => earlier.current(),
            None => Root::open_with_links(path, link_targets.into()).map(Arc::new),
        };
        match opened {
            Ok(root) => {
                self.carried.roots.insert(key, root.clone());
                Some(root)
            }
            Err(error) => {
                let what = format!("cannot open {}: {error}", path.display());
                self.problem(&[MachineRequirementKind::Root(path.to_owned())], what);
                self.unopened_roots.insert(path.to_owned());
                None
            }
        }
    }
}

/// Compiles the trusted proxies.
pub(crate) fn trusted_proxies(proxies: &model::TrustedProxies) -> Option<TrustedProxies> {
    let is_any = !proxies.networks.is_empty() || proxies.unix == Switch::On;
    is_any.then(|| TrustedProxies {
        networks: proxies.networks.clone(),
        unix: match proxies.unix {
            Switch::On => UnixPeerTrust::Trusted,
            Switch::Off => UnixPeerTrust::Untrusted,
        },
        field: match proxies.field {
            ForwardedField::XForwardedFor => ForwardingField::XForwardedFor,
            ForwardedField::Forwarded => ForwardingField::Forwarded,
        },
    })
}
