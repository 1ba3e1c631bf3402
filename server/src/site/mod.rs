//! Sites: what a request is answered with.
//!
//! A request walks `sites`, `host`, `client`, `gate`, `table`, `pattern`, `condition`, then what its
//! route does (`action`, with `lookup` and `files`, or `template`), then `headers`; `walk` is that
//! way in one place. Each room is built from plain values of its own; this floor never names the
//! configuration, the log, or a socket.

mod action;
mod client;
mod condition;
mod files;
mod gate;
mod headers;
mod host;
mod listing;
mod lookup;
mod network;
mod pattern;
mod plain;
mod sites;
mod table;
mod template;
mod walk;

pub(crate) use action::{Action, Attempt, Denial, FilesRules, IndexNames, Listing, Redirect, Reply, Sidecars, Suffix};
pub(crate) use client::{ForwardingField, TrustedProxies, UnixPeers};
pub(crate) use condition::{Condition, FieldCondition, FieldTest};
pub(crate) use files::cache::BYTES_MAX as CACHE_BYTES_MAX;
pub(crate) use files::directories::BYTES_MAX as DIRECTORIES_BYTES_MAX;
pub(crate) use files::root::Root;
pub(crate) use gate::{
    Access, BasicGate, ConnectionGate, Gates, Mode, NetworkGate, Observed, Passwords, Rate, RateGate, Tally,
};
#[cfg(feature = "configuration")]
pub(crate) use gate::{PASSWORDS_AT_ONCE_MAX, UserProblem, Users};
pub(crate) use headers::{CacheRules, HeaderEdits};
pub(crate) use host::HostName;
pub(crate) use network::Network;
pub(crate) use pattern::Pattern;
pub(crate) use plain::SlashRedirect;
pub(crate) use sites::Sites;
pub(crate) use table::{ErrorPages, Route, SiteRules, SiteTable};
pub(crate) use template::Template;

#[cfg(test)]
mod tests;
