//! A configuration with everything that it needs open. It never changes.

mod traces;

use crate::certificate_warnings::validity_warning;
use crate::certificates::{
    AcmeSettings, CertificateEvent, CertificateFacts, CertificateStatus, ChallengeChoice, ExternalAccount, ReachCheck,
    Refreshed, unix_now,
};
use crate::compile::{self, CarriedState, Compiled, ServingState, SiteHosts};
use crate::config::model::{self, AccessLog, ErrorLog, LogSettings, Settings, Switch};
use crate::config::{Configuration, MachineRequirementKind, Places, Problem, Problems, Sources};
use crate::explanation::{self, Explainable};
use crate::listeners::ListenerSet;
use crate::log::config::Level;
use crate::log::{Connect, CounterLabels, Counters, LogObserver, LogProblem, Logs, SiteLabels};
use crate::resolver::FIRST_LOOK_UPS_TIMEOUT;
use crate::site::{DryRunCount, RouteTable, SiteService, UsersRefreshed};
use crate::syntax::HostName;
use crate::upstream_log;
use crate::upstream_status::{GroupStatus, GroupUse};
use selvedge::service::{Admission, UNIX_PEER};
use selvedge::tls::{Tls, TlsHost};
use selvedge::{AppVersion, Endpoint, Limits, PlainHttp2, ProxyHeaders, Server};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Weak};

/// What the connections of one configuration are served with.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// From 1, one more for each reload and each start of a process.
    pub(crate) number: u64,
    pub(crate) settings: Arc<Settings>,
    /// Where the settings are written.
    places: Arc<Places>,
    pub(crate) logs: Arc<Logs>,
    /// The counters, shared by all configurations.
    pub(crate) counters: Arc<Counters>,
    /// The sites and routes that are counted.
    labels: Arc<CounterLabels>,
    table: Arc<RouteTable>,
    limits: Limits,
    hosts: Option<Arc<SiteHosts>>,
    /// The host of remote commands.
    pub(crate) control_host: Option<Arc<TlsHost>>,
    /// What the next configuration continues with.
    pub(crate) carried: CarriedState,
}

/// The port of https.
const HTTPS_PORT: u16 = 443;

/// What a snapshot follows.
pub(crate) enum Predecessor<'a> {
    /// The snapshot in force.
    Snapshot(&'a Snapshot),
    /// None: the process starts. Earlier processes had configurations up to a number.
    Start { state: ServingState, configuration_before: u64 },
}

/// Why a configuration is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Problems with positions.
    Problems(Problems),
    /// A reason without a position.
    Plain(String),
}

impl Refusal {
    /// Creates a refusal from problems, and takes the texts of the configuration.
    pub(crate) fn of(problems: Vec<Problem>, configuration: &mut Configuration) -> Self {
        Self::Problems(Problems::new(problems, std::mem::take(&mut configuration.texts)))
    }

    /// Returns the problems as JSON. A reason without a position is that of the file.
    pub(crate) fn json(&self, file: &Path) -> String {
        match self {
            Self::Problems(problems) => problems.json(),
            Self::Plain(text) => Problems::plain_json(file, text),
        }
    }

    /// Returns one line for each problem.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Problems(problems) => problems.lines().collect(),
            Self::Plain(text) => vec![text.clone()],
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problems(problems) => problems.fmt(f),
            Self::Plain(text) => writeln!(f, "selvedge: {text}"),
        }
    }
}

impl Snapshot {
    /// Compiles a configuration and opens its roots and logs. Unchanged logs and rate limits are taken over from the
    /// previous snapshot.
    ///
    /// # Errors
    /// All problems; nothing stays open then.
    pub(crate) fn prepare(
        configuration: &mut Configuration,
        predecessor: Predecessor<'_>,
        sources: &dyn Sources,
        connect: Connect,
    ) -> Result<Self, Refusal> {
        let first;
        let (earlier, carried, number_before) = match predecessor {
            Predecessor::Snapshot(earlier) => (Some(earlier), &earlier.carried, earlier.number),
            Predecessor::Start { state, configuration_before } => {
                first = CarriedState::serving(state);
                (None, &first, configuration_before)
            }
        };
        let Compiled { table, logs: log_config, hosts, control_host, limits, carried } =
            compile::compile(configuration, carried, sources)
                .map_err(|problems| Refusal::of(problems, configuration))?;
        let unchanged = earlier.filter(|earlier| logs_of(&earlier.settings) == logs_of(&configuration.settings));
        let logs = match unchanged {
            Some(earlier) => earlier.logs.clone(),
            None => Arc::new(Logs::start(&log_config, connect).map_err(|problem| refuse_log(&problem, configuration))?),
        };
        let counters = earlier.map_or_else(Arc::default, |earlier| earlier.counters.clone());
        Ok(Self {
            number: number_before + 1,
            labels: Arc::new(counter_labels(&configuration.settings)),
            settings: Arc::new(configuration.settings.clone()),
            places: configuration.places.clone(),
            logs,
            counters,
            table,
            limits,
            hosts,
            control_host,
            carried,
        })
    }

    /// Returns the app version of this snapshot.
    pub(crate) fn app_version(&self, workers: usize, listeners: &ListenerSet) -> AppVersion<SiteService, LogObserver> {
        let app_version =
            AppVersion::new(self.service(workers, listeners), self.observer()).limits(self.limits.clone());
        let app_version = app_version.plain_http2(self.plain_http2(listeners));
        let app_version = app_version.proxy_headers(self.proxy_headers(listeners));
        let app_version = match self.tls(listeners) {
            Some(tls) => app_version.tls(tls),
            None => app_version,
        };
        match self.admission_hook() {
            Some(hook) => app_version.admit(hook),
            None => app_version,
        }
    }

    /// Configures a server that starts with this snapshot.
    pub(crate) fn server(&self, server: Server, listeners: &ListenerSet) -> Server<LogObserver> {
        let server = server.observe(self.observer()).limits(self.limits.clone());
        let server = server.plain_http2(self.plain_http2(listeners)).proxy_headers(self.proxy_headers(listeners));
        let server = match self.tls(listeners) {
            Some(tls) => server.tls(tls),
            None => server,
        };
        match self.admission_hook() {
            Some(hook) => server.admit(hook),
            None => server,
        }
    }

    fn plain_http2(&self, listeners: &ListenerSet) -> PlainHttp2 {
        PlainHttp2::At(listeners.endpoints_with_plain_http2(&self.settings.listeners))
    }

    /// Returns the listeners whose connections begin with a header of a trusted proxy.
    fn proxy_headers(&self, listeners: &ListenerSet) -> ProxyHeaders {
        let endpoints = listeners.endpoints_with_proxy_header(&self.settings.listeners);
        match compile::trusted_proxies(&self.settings.trusted_proxies) {
            Some(proxies) if !endpoints.is_empty() => ProxyHeaders::at(endpoints, move |peer| proxies.trusts(peer)),
            _ => ProxyHeaders::never(),
        }
    }

    /// Returns the function that makes each worker's service.
    pub(crate) fn service(
        &self,
        workers: usize,
        listeners: &ListenerSet,
    ) -> impl Fn() -> SiteService + Send + Sync + use<> {
        let (table, https_port) = (self.table.clone(), self.https_port(listeners));
        move || SiteService::new(table.clone(), workers).with_https_port(https_port)
    }

    /// Returns the port of the first listener with TLS. A Unix socket has none, and its clients use the usual one.
    pub(crate) fn https_port(&self, listeners: &ListenerSet) -> Option<u16> {
        let endpoints = listeners.endpoints_with_tls(&self.settings.listeners);
        let ports = endpoints.iter().map(|endpoint| match endpoint {
            Endpoint::Inet(address) => address.port(),
            Endpoint::Unix(_) => HTTPS_PORT,
        });
        ports.take(1).next()
    }

    /// Returns the TLS of the listeners that have it.
    fn tls(&self, listeners: &ListenerSet) -> Option<Tls> {
        let endpoints = listeners.endpoints_with_tls(&self.settings.listeners);
        let hosts = self.hosts.clone()?;
        (!endpoints.is_empty()).then(|| Tls::selecting(hosts).only_at(endpoints))
    }

    /// Makes the names of this configuration those for which the server gets certificates.
    pub(crate) fn apply_automatic_certificates(&self) {
        let Some(automatic) = self.carried.automatic() else { return };
        let Settings { acme, listeners, sites, .. } = &*self.settings;
        let settings = AcmeSettings {
            directories: acme.directories.clone(),
            email: acme.email.clone(),
            root: acme.root.clone(),
            profile: acme.profile.clone(),
            challenges: match acme.challenge {
                model::Challenge::Any => ChallengeChoice::Any,
                model::Challenge::Http => ChallengeChoice::Http,
                model::Challenge::Tls => ChallengeChoice::Tls,
                model::Challenge::Dns => {
                    let hook = acme.dns_hook.as_ref().expect("a configuration with this challenge has it");
                    ChallengeChoice::Dns(hook.path.clone())
                }
                model::Challenge::DnsPersist => ChallengeChoice::DnsPersist,
            },
            external_account: acme
                .external_account
                .as_ref()
                .map(|account| ExternalAccount { key_id: account.key_id.clone(), key_file: account.key_file.clone() }),
            name_server: acme.name_server,
            reach_check: match acme.reach_check {
                Switch::On => ReachCheck::On,
                Switch::Off => ReachCheck::Off,
            },
            has_plain_listener: listeners.iter().any(|listener| listener.tls == Switch::Off),
        };
        let with = sites.iter().filter(|site| site.tls.automatic == Switch::On);
        let names = with.flat_map(|site| &site.names).filter(|name| acme.certifies(name));
        let of_control = self.settings.remote_control.iter().filter(|remote| remote.certificate.is_none());
        let names = names.chain(of_control.map(|remote| &remote.host));
        let names: Vec<String> = names.map(HostName::certificate_name).collect();
        let approvals: Vec<_> = sites.iter().filter_map(|site| compile::approval(&site.tls)).collect();
        automatic.apply(settings, (&names, &approvals));
    }

    /// Returns the state of the upstreams, and of those that earlier configurations had and that still have requests.
    pub(crate) fn upstream_status(&self) -> Vec<GroupStatus> {
        let mut used: Vec<_> =
            self.carried.upstreams().map(|upstream| GroupStatus::of(upstream, GroupUse::InUse)).collect();
        used.sort_by(|one, other| one.name.cmp(&other.name));
        let replaced = self.carried.replaced_upstreams().map(|upstream| GroupStatus::of(&upstream, GroupUse::Replaced));
        used.into_iter().chain(replaced.filter(GroupStatus::has_requests)).collect()
    }

    /// Returns the state of the certificates that the server gets by itself.
    pub(crate) fn certificate_status(&self) -> Vec<CertificateStatus> {
        self.carried.automatic().map(|automatic| automatic.status()).unwrap_or_default()
    }

    /// Loads certificates again whose files have changed, and logs what follows.
    pub(crate) fn refresh_certificates(&self) {
        for set in self.carried.certificates() {
            match set.refresh() {
                Refreshed::Unchanged => {}
                Refreshed::Replaced(path) => {
                    let text = format!("{} has changed and is in use", path.display());
                    self.logs.log_separately(Level::Info, "CertificateReplaced", text);
                }
                Refreshed::Refused(why) => {
                    let text = format!("the earlier certificate stays in use: {why}");
                    self.logs.log_separately(Level::Error, "CertificateRefused", text);
                }
            }
        }
    }

    /// Reads the files of users again that have changed.
    pub(crate) fn refresh_users(&self) {
        for users in self.carried.users() {
            match users.refresh() {
                UsersRefreshed::Unchanged => {}
                UsersRefreshed::Replaced(path) => {
                    self.logs.log_separately(
                        Level::Info,
                        "UsersReplaced",
                        format!("{} has changed and is in use", path.display()),
                    );
                }
                UsersRefreshed::Faulty(why) => {
                    let text = format!("these lines have no user, the others are in use: {why}");
                    self.logs.log_separately(Level::Error, "UsersRefused", text);
                }
                UsersRefreshed::Unreadable(why) => {
                    self.logs.log_separately(Level::Error, "UsersRefused", format!("the file has no users now: {why}"));
                }
            }
        }
    }

    /// Logs what has happened to the certificates that the server gets by itself.
    pub(crate) fn log_certificate_events(&self) {
        for event in self.carried.automatic().map(|automatic| automatic.take_events()).unwrap_or_default() {
            match event {
                CertificateEvent::Received(text) => self.logs.log(Level::Info, "CertificateReceived", text),
                CertificateEvent::NotApproved(text) => self.logs.log(Level::Info, "CertificateNotApproved", text),
                CertificateEvent::Failed(text) => self.logs.log(Level::Error, "CertificateFailed", text),
            }
        }
    }

    /// Logs changes of the servers of upstreams to the logs of this configuration.
    pub(crate) fn observe_upstreams(&self) {
        upstream_log::observe(&self.carried, &self.logs);
    }

    /// Ends the leases of routes that the next configuration has changed or removed. Their streams end with the
    /// replacement.
    pub(crate) fn end_leases(&self, next: &Self) {
        self.carried.end_leases(&next.carried);
    }

    /// Waits for the first look-up of each name of an upstream server, so that the first requests find its addresses. A
    /// name service that does not respond delays this by one second at most.
    pub(crate) fn wait_for_names(&self) {
        self.carried.resolver().wait_for_first_look_ups(FIRST_LOOK_UPS_TIMEOUT);
    }

    /// Logs what has happened to the names of upstream servers.
    pub(crate) fn log_name_events(&self) {
        upstream_log::log_names(&self.carried, &self.logs);
    }

    /// Logs a warning for each certificate that is not valid or soon will not be.
    pub(crate) fn warn_of_expiry(&self) {
        let now = unix_now();
        for set in self.carried.certificates() {
            for facts in set.certificates().current().iter().filter_map(CertificateFacts::of) {
                if let Some(text) = validity_warning(&facts, now) {
                    let text = format!("the certificate for {} {text}", facts.names.join(", "));
                    self.logs.log(Level::Warn, "CertificateExpires", text);
                }
            }
        }
    }

    fn observer(&self) -> LogObserver {
        let observer = LogObserver::new(&self.logs, &self.limits).with_counters(&self.counters, &self.labels);
        let observer = match self.span_writer() {
            Some(writer) => observer.with_spans(writer),
            None => observer,
        };
        match self.carried.recorder() {
            Some(recorder) => observer.with_recorder(recorder, &self.labels, &traces::route_patterns(&self.settings)),
            None => observer,
        }
    }

    /// Returns the admission hook that limits connections per client. Clients of a Unix socket have no address to
    /// count.
    fn admission_hook(&self) -> Option<impl Fn(SocketAddr) -> Admission + Send + Sync + use<>> {
        let limiter = self.carried.connections()?.clone();
        Some(move |peer: SocketAddr| match peer {
            UNIX_PEER => Admission::Serve(Box::new(())),
            _ => limiter.admit(peer.ip()),
        })
    }

    /// Returns the connection limit. A running server keeps its own.
    pub(crate) fn connections_max(&self) -> usize {
        self.limits.connections_max
    }

    /// Returns the limits of clients. The connection limit is [`Self::connections_max`].
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the counts of access rules in dry-run mode: site (`None` for the server), rule, and number of requests
    /// that it would have refused.
    pub(crate) fn dry_run_counts(&self) -> Vec<(Option<String>, &'static str, u64)> {
        let connections = self.carried.connections().and_then(|limiter| Some(limiter.dry_run_counter()?.get()));
        let connections = connections.map(|count| (None, "connections-per-client-max", count));
        let of_sites = self.table.dry_run_counts().map(|DryRunCount { site, rule, count }| {
            let name = self.settings.sites[site].names.first().map(ToString::to_string);
            (name, rule, count)
        });
        connections.into_iter().chain(of_sites).collect()
    }

    /// Returns a handle that tells whether connections still use this snapshot.
    pub(crate) fn retire(&self) -> RetiredSnapshot {
        RetiredSnapshot { table: Arc::downgrade(&self.table), logs: self.logs.clone() }
    }
}

/// What requests of a configuration are explained by, before its listeners are bound.
impl From<&Snapshot> for Explainable {
    fn from(snapshot: &Snapshot) -> Self {
        Self {
            settings: snapshot.settings.clone(),
            places: snapshot.places.clone(),
            table: snapshot.table.clone(),
            limits: snapshot.limits.message,
            https_port: explanation::configured_https_port(&snapshot.settings),
        }
    }
}

/// A replaced snapshot.
#[derive(Debug)]
pub(crate) struct RetiredSnapshot {
    table: Weak<RouteTable>,
    pub(crate) logs: Arc<Logs>,
}

impl RetiredSnapshot {
    /// Whether connections still use it.
    pub(crate) fn is_served(&self) -> bool {
        self.table.strong_count() > 0
    }
}

/// Returns the last second in which each certificate is valid, in Unix time, by the first of its names. Of
/// certificates that the server gets by itself, those for names of the configuration.
pub(crate) fn certificate_expiry(snapshot: &Snapshot) -> BTreeMap<String, i64> {
    let mut expiry = BTreeMap::new();
    let mut add = |name: String, last: i64| {
        // Of two certificates for one name, the one that ends first needs attention.
        let known = expiry.entry(name).or_insert(last);
        *known = last.min(*known);
    };
    for set in snapshot.carried.certificates() {
        for facts in set.certificates().current().iter().filter_map(CertificateFacts::of) {
            add(facts.names.first().cloned().unwrap_or_default(), facts.valid.1);
        }
    }
    let names = snapshot.settings.sites.iter().flat_map(|site| &site.names);
    let configured: HashSet<String> = names.map(HostName::certificate_name).collect();
    let of_name = |status: CertificateStatus| Some((status.name, status.expires?));
    let automatic = snapshot.certificate_status().into_iter().filter_map(of_name);
    automatic.filter(|(name, _)| configured.contains(name)).for_each(|(name, last)| add(name, last));
    expiry
}

/// Returns the names of sites and routes by their tags.
fn counter_labels(settings: &Settings) -> CounterLabels {
    let labels = |site: &model::Site| SiteLabels {
        site: site.names.first().map(ToString::to_string).unwrap_or_default(),
        routes: site.routes.iter().map(model::Route::label).collect(),
    };
    CounterLabels::new(std::iter::once(SiteLabels::default()).chain(settings.sites.iter().map(labels)).collect())
}

/// The settings of all logs.
type LogsOf<'a> = (&'a LogSettings, Vec<(Option<&'a HostName>, Option<&'a AccessLog>, Option<&'a ErrorLog>)>);

fn logs_of(settings: &Settings) -> LogsOf<'_> {
    let sites = settings.sites.iter();
    let of_sites = sites.map(|site| (site.names.first(), site.access_log.as_ref(), site.error_log.as_ref()));
    (&settings.logs, of_sites.collect())
}

/// Reports a problem of a log at its setting, if it is a file.
fn refuse_log(problem: &LogProblem, configuration: &mut Configuration) -> Refusal {
    let place = problem
        .path
        .as_ref()
        .and_then(|path| compile::position_of(configuration, &MachineRequirementKind::WritableFile(path.clone())));
    match place {
        Some(at) => {
            let problem = Problem::with_suggestion(at, problem.to_string(), String::new());
            Refusal::of(vec![problem], configuration)
        }
        None => Refusal::Plain(problem.to_string()),
    }
}
