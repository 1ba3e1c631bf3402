//! What a configuration passes on to the next one: rate limits with their counts, verified passwords, open roots, and
//! upstreams with what is known of their servers.

#[cfg(feature = "program")]
use super::upstream::CarriedUpstream;
#[cfg(feature = "program")]
use super::via_name::ViaName;
#[cfg(feature = "program")]
use crate::certificates::{AcmeSettings, AutomaticCertificates, CertificatePaths, CertificateSet};
#[cfg(feature = "program")]
use crate::config::model::Settings;
#[cfg(feature = "program")]
use crate::process::{CookieSecret, StartCgiPrograms};
#[cfg(feature = "program")]
use crate::recorder::Recorder;
#[cfg(feature = "program")]
use crate::resolver::Resolver;
use crate::site::{
    ConnectionLimiter, DenialCounter, GuessLimiter, LiveUsers, MetricsSlot, PasswordCache, RateLimiter, Root,
};
#[cfg(feature = "program")]
use crate::site::{GatewayLoad, StatusFeed, StatusPage, Upstream, end_checks};
#[cfg(feature = "program")]
use crate::traces::SpanExporter;
use selvedge::ContentCoder;
#[cfg(feature = "program")]
use selvedge::service::ResponseLease;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "program")]
use std::sync::Weak;

/// State that the next configuration continues with, if its settings are unchanged.
#[derive(Debug, Default)]
pub(crate) struct CarriedState {
    /// Counts of rules in dry-run mode, by the first name of the site and the setting.
    pub(super) denials: HashMap<(Option<String>, &'static str), DenialCounter>,
    /// By the text of the setting and its site.
    pub(super) rates: HashMap<String, Arc<RateLimiter>>,
    /// The users of rules, which follow their files.
    pub(super) users: Vec<Arc<LiveUsers>>,
    /// Counts of wrong passwords, by the text of the setting.
    pub(super) guesses: HashMap<String, Arc<GuessLimiter>>,
    pub(super) connections: Option<(String, Arc<ConnectionLimiter>)>,
    /// Verified passwords, independent of settings.
    pub(super) passwords: Arc<PasswordCache>,
    /// What responds with the metrics of the server, independent of settings.
    pub(super) metrics: Arc<MetricsSlot>,
    /// Compressed files, independent of settings.
    pub(super) coder: ContentCoder,
    /// Each root, with the folders that its links may lead to, is opened once for all sites and configurations.
    pub(super) roots: HashMap<(PathBuf, Vec<PathBuf>), Arc<Root>>,
    /// Certificates, by their files.
    #[cfg(feature = "program")]
    pub(super) certificates: HashMap<Vec<CertificatePaths>, Arc<CertificateSet>>,
    /// The certificates that the server gets by itself. A command that does not serve has none.
    #[cfg(feature = "program")]
    pub(super) automatic: Option<Arc<AutomaticCertificates>>,
    /// By name.
    #[cfg(feature = "program")]
    pub(super) upstreams: HashMap<String, CarriedUpstream>,
    /// Groups of earlier configurations, whose requests may still be at work.
    #[cfg(feature = "program")]
    pub(super) earlier_upstreams: Vec<Weak<Upstream>>,
    /// Requests at work of routes that run scripts, by the text of the route.
    #[cfg(feature = "program")]
    pub(super) gateway_loads: HashMap<String, Arc<GatewayLoad>>,
    /// Leases of routes that forward requests, by a name of the site and the text of the route and its upstream.
    #[cfg(feature = "program")]
    pub(super) leases: HashMap<String, ResponseLease>,
    /// The names of upstream servers. A command that does not serve looks none up.
    #[cfg(feature = "program")]
    pub(super) resolver: Arc<Resolver>,
    /// Starts the programs of routes with `cgi`. A command that does not serve has none.
    #[cfg(feature = "program")]
    pub(super) cgi: Option<Arc<dyn StartCgiPrograms>>,
    /// The name of this serving process in Via. It is kept, so a reload hides no loop.
    #[cfg(feature = "program")]
    pub(super) via: ViaName,
    /// The key of cookies that have no secret of their own.
    #[cfg(feature = "program")]
    pub(super) cookie_secret: CookieSecret,
    /// The flight recorder. A command that does not serve has none.
    #[cfg(feature = "program")]
    pub(super) recorder: Option<Arc<Recorder>>,
    /// What sends traces. A command that does not serve has none.
    #[cfg(feature = "program")]
    pub(super) exporter: Option<Arc<SpanExporter>>,
    /// The events of live pages, independent of settings.
    #[cfg(feature = "program")]
    status_feed: Arc<StatusFeed>,
    /// In force until the configuration is replaced.
    #[cfg(feature = "program")]
    status_streams: ResponseLease,
}

/// What a serving process has beside its configuration.
#[cfg(feature = "program")]
#[derive(Clone, Debug, Default)]
pub(crate) struct ServingState {
    /// The certificates that the server gets by itself.
    pub(crate) automatic: Arc<AutomaticCertificates>,
    /// The names of upstream servers.
    pub(crate) resolver: Arc<Resolver>,
    /// Starts the programs of routes with `cgi`, if the configuration has any.
    pub(crate) cgi: Option<Arc<dyn StartCgiPrograms>>,
    /// The key of cookies that have no secret of their own.
    pub(crate) cookie_secret: CookieSecret,
    /// What responds with the metrics of the server.
    pub(crate) metrics: Arc<MetricsSlot>,
    /// The flight recorder.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// What sends traces.
    pub(crate) exporter: Arc<SpanExporter>,
    /// The events of live pages.
    pub(crate) status_feed: Arc<StatusFeed>,
}

impl CarriedState {
    /// Starts with the state that never depends on settings.
    pub(super) fn continue_from(earlier: &Self) -> Self {
        Self {
            passwords: earlier.passwords.clone(),
            metrics: earlier.metrics.clone(),
            #[cfg(feature = "program")]
            automatic: earlier.automatic.clone(),
            #[cfg(feature = "program")]
            resolver: earlier.resolver.clone(),
            #[cfg(feature = "program")]
            cgi: earlier.cgi.clone(),
            #[cfg(feature = "program")]
            via: earlier.via.clone(),
            #[cfg(feature = "program")]
            cookie_secret: earlier.cookie_secret.clone(),
            #[cfg(feature = "program")]
            recorder: earlier.recorder.clone(),
            #[cfg(feature = "program")]
            exporter: earlier.exporter.clone(),
            #[cfg(feature = "program")]
            status_feed: earlier.status_feed.clone(),
            #[cfg(feature = "program")]
            earlier_upstreams: earlier.used_upstreams(),
            ..Self::default()
        }
    }

    /// Returns an open root by path.
    pub(crate) fn root(&self, path: &Path) -> Option<&Root> {
        self.roots.iter().find(|((known, _), _)| known == path).map(|(_, root)| &**root)
    }

    /// Returns the users of all rules.
    #[cfg(feature = "program")]
    pub(crate) fn users(&self) -> impl Iterator<Item = &Arc<LiveUsers>> {
        self.users.iter()
    }

    /// Creates the state of a server that starts.
    #[cfg(feature = "program")]
    pub(crate) fn serving(state: ServingState) -> Self {
        let ServingState { automatic, resolver, cgi, cookie_secret, metrics, recorder, exporter, status_feed } = state;
        let (automatic, exporter) = (Some(automatic), Some(exporter));
        let earlier = Self::default();
        Self { automatic, resolver, cgi, cookie_secret, metrics, recorder, exporter, status_feed, ..earlier }
    }

    /// Creates the state of a command that does not serve. Of a random name, an explanation has a placeholder.
    #[cfg(feature = "program")]
    pub(crate) fn of_command() -> Self {
        Self { via: ViaName::placeholder(), ..Self::default() }
    }

    /// Returns the live page of this configuration.
    #[cfg(feature = "program")]
    pub(super) fn status_page(&self) -> StatusPage {
        StatusPage::new(self.status_feed.clone(), self.status_streams.clone())
    }

    /// Ends the leases of routes that the next configuration has changed or removed, and the streams of live pages. Call it
    /// before the replacement.
    #[cfg(feature = "program")]
    pub(crate) fn end_leases(&self, next: &Self) {
        self.status_streams.end();
        let ended = self.leases.iter().filter(|(text, _)| !next.leases.contains_key(*text));
        ended.for_each(|(_, lease)| lease.end());
    }

    /// Ends the leases of routes that these settings have changed or removed. Call it before another process serves them.
    #[cfg(feature = "program")]
    pub(crate) fn end_leases_beside(&self, settings: &Settings) {
        let kept = super::proxy::leases_of(settings, &self.upstreams);
        let ended = self.leases.iter().filter(|(text, _)| !kept.contains(*text));
        ended.for_each(|(_, lease)| lease.end());
    }

    /// Ends what another process does now: it orders certificates, and checks the servers of upstreams.
    #[cfg(feature = "program")]
    pub(crate) fn end_shared_work(&self) {
        if let Some(automatic) = self.automatic() {
            automatic.apply(AcmeSettings::default(), (&[], &[]));
        }
        self.upstreams().for_each(|upstream| end_checks(upstream));
    }

    /// Returns the groups of servers.
    #[cfg(feature = "program")]
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.upstreams.values().map(|carried| &carried.upstream)
    }

    /// Returns the counts of the requests of routes that run scripts.
    #[cfg(feature = "program")]
    pub(crate) fn gateway_loads(&self) -> impl Iterator<Item = &Arc<GatewayLoad>> {
        self.gateway_loads.values()
    }

    /// Returns the groups that are in use here or since earlier.
    #[cfg(feature = "program")]
    fn used_upstreams(&self) -> Vec<Weak<Upstream>> {
        let earlier = self.earlier_upstreams.iter().filter(|upstream| upstream.strong_count() > 0).cloned();
        earlier.chain(self.upstreams().map(Arc::downgrade)).collect()
    }

    /// Returns the groups of earlier configurations that have connections or requests, and are not in use any more.
    #[cfg(feature = "program")]
    pub(crate) fn replaced_upstreams(&self) -> impl Iterator<Item = Arc<Upstream>> {
        let is_in_use = |upstream: &Arc<Upstream>| self.upstreams().any(|used| Arc::ptr_eq(used, upstream));
        self.earlier_upstreams.iter().filter_map(Weak::upgrade).filter(move |upstream| !is_in_use(upstream))
    }

    /// Returns the names of upstream servers.
    #[cfg(feature = "program")]
    pub(crate) fn resolver(&self) -> &Arc<Resolver> {
        &self.resolver
    }

    /// Returns the certificates that the server gets by itself.
    #[cfg(feature = "program")]
    pub(crate) fn automatic(&self) -> Option<&Arc<AutomaticCertificates>> {
        self.automatic.as_ref()
    }

    /// Returns the flight recorder, if the process serves.
    #[cfg(feature = "program")]
    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.recorder.as_ref()
    }

    /// Returns what sends traces, if the process serves.
    #[cfg(feature = "program")]
    pub(crate) fn exporter(&self) -> Option<&Arc<SpanExporter>> {
        self.exporter.as_ref()
    }

    /// Returns all certificates.
    #[cfg(feature = "program")]
    pub(crate) fn certificates(&self) -> impl Iterator<Item = &CertificateSet> {
        self.certificates.values().map(|set| &**set)
    }

    /// Returns the limit on connections per client, if set.
    pub(crate) fn connections(&self) -> Option<&Arc<ConnectionLimiter>> {
        self.connections.as_ref().map(|(_, limiter)| limiter)
    }
}
