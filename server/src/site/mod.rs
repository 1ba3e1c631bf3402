//! Sites: what a request is answered with.
//!
//! A request for one of many sites walks `sites`, `host`, `client`, `gate`, `table`, `pattern`,
//! `condition`, then what its route does (`action`, with `lookup` and `files`, or `template`),
//! then `headers`; `walk` is that way in one place. `pipeline` is the one site of `selvedge
//! serve`. Each room is built from plain values of its own; this floor never names the configuration, the log, or a socket.

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
mod pipeline;
mod sites;
mod table;
mod template;
mod walk;

pub(crate) use action::{
    Action, Attempt, Denial, FilesRules, IndexNames, Listing, NoErrorStatus, NoFileName, NoRedirectStatus, Redirect,
    Reply, ReplyError, Sidecars, Suffix,
};
pub(crate) use client::{ForwardingField, TrustedProxies, UnixPeers};
pub(crate) use condition::{Condition, FieldCondition, FieldTest, NoFieldName};
pub(crate) use files::cache::BYTES_MAX as CACHE_BYTES_MAX;
pub(crate) use files::root::Root;
pub(crate) use gate::{
    Access, BasicGate, ConnectionGate, Gates, HashProblem, InvalidRealm, Mode, NetworkGate, Rate, RateError, RateGate,
    Tally, UserProblem, UserProblemKind, Users,
};
pub(crate) use headers::{CacheRules, HeaderEdits, HeaderError};
pub(crate) use host::{HostName, HostNameError};
pub(crate) use network::{Network, NetworkError};
pub(crate) use pattern::{Pattern, PatternError};
pub(crate) use pipeline::{Options, Site};
pub(crate) use sites::Sites;
pub(crate) use table::{ErrorPages, Route, SiteProblem, SiteProblemKind, SiteRules, SiteTable};
pub(crate) use template::{Template, TemplateError};

#[cfg(test)]
mod tests;
