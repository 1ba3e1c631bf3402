//! Serves sites: turns a request into a response.
//!
//! The steps of a request, in order: `service` (fast path), `host`, `client`, `access`, `route_table`,
//! `condition`, the action of its route (`action` with `lookup` and `files`),
//! `headers`.
//! `pipeline` runs all steps behind the choice of the site.
//!
//! Each module is built from plain values of its own. `site` never names the configuration, the log, or a
//! socket.

mod accept;
mod access;
mod action;
mod body_dry_run;
mod client;
mod condition;
mod cors;
mod field_changes;
mod files;
mod files_rules;
#[cfg(feature = "configuration")]
mod gateway;
mod headers;
mod host;
mod listing;
mod lookup;
mod methods;
mod metrics;
mod network;
mod pipeline;
#[cfg(feature = "configuration")]
mod proxy;
mod route_table;
mod service;
mod shared_work;
mod single_flight;
mod site_state;
#[cfg(feature = "program")]
mod status_page;
mod step_recorder;
mod step_texts;

#[cfg(all(test, feature = "configuration"))]
pub(crate) use access::Users;
pub(crate) use access::{
    AccessRules, BasicAuthenticator, ConnectionLimiter, DenialCounter, DryRunCount, IpFilter, PasswordCache,
    Permission, Rate, RateLimiter, RuleMode, Satisfy,
};
#[cfg(feature = "configuration")]
pub(crate) use access::{GuessLimiter, LiveUsers, PASSWORD_CHECKS_AT_ONCE_MAX, UserProblem, UsersRefreshed};
pub(crate) use action::{Action, DenyResponse, FixedResponse, Redirect};
pub(crate) use body_dry_run::BodyDryRun;
pub(crate) use client::{ForwardingField, TrustedProxies, UnixPeerTrust};
pub(crate) use condition::{Condition, FlagFile, NamedCondition};
pub(crate) use cors::{AllowedOrigins, CorsCredentials, CorsRules};
pub(crate) use files::cache::BYTES_MAX as CACHE_BYTES_MAX;
pub(crate) use files::directories::BYTES_MAX as DIRECTORIES_BYTES_MAX;
pub(crate) use files::root::Root;
pub(crate) use files_rules::{
    CleanUrls, Compress, FilesRules, IndexNames, Listing, PageAddresses, PathPrefix, Precompressed, Suffix,
    TrailingSlash, TryFile,
};
#[cfg(feature = "configuration")]
pub(crate) use gateway::{
    GatewayLoad, GatewayRules, GatewayTimeouts, LateScriptMessage, PhpRules, ProgramEnd, ProgramRunner, ProgramStart,
    ScriptRunner, ScriptServer, Scripts, SendFileFolder, StartProgram,
};
pub(crate) use headers::{FileFieldRules, HeaderEdits};
pub(crate) use methods::SlashRedirect;
pub(crate) use metrics::{MetricsFormat, MetricsSlot};
#[cfg(feature = "configuration")]
pub(crate) use proxy::{
    AdaptiveMode, AddressCell, Balance, CapacityRules, FailureRules, HashKey, HealthCheck, HostPolicy, PathPolicy,
    ProxyHeaderVersion, ProxyRules, ProxyStatus, RequestBuffering, ServerChange, ServerCondition, ServerRules,
    ServerStatus, StickyRules, Upstream, UpstreamEvent, UpstreamRules, UrlRewriting, continue_counters, end_checks,
};
pub(crate) use route_table::{ErrorPages, PlainRequests, Route, RouteTable, SiteRules};
pub(crate) use service::SiteService;
#[cfg(feature = "program")]
pub(crate) use status_page::{STATUS_STREAMS_MAX, StatusFeed, StatusPage, StatusPageText, StatusSource};
pub(crate) use step_recorder::{Producer, Stage, Step, StepOrigin, StepVerdict};
pub(crate) use step_texts::printable;

#[cfg(test)]
mod tests;
