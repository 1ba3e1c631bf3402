//! Compiles the action `proxy`.

use super::headers::header_edits;
use super::upstream::CarriedUpstream;
use super::{Compiler, RouteIndex};
use crate::config::model::{self, FieldNames, ForwardedHost, Settings, Switch};
use crate::site::{Action, HostPolicy, PathPolicy, ProxyRules, ProxyStatus, RequestBuffering, Upstream, UrlRewriting};
use crate::syntax::HostName;
use selvedge::proto::forward::{DoubtfulNames, ForwardedFields, RequestRules, ViaField};
use selvedge::service::ResponseLease;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Returns the lease of a route that forwards requests: while nothing of the route and its upstream changes, its streams
/// and upgraded connections outlive a reload. Its site may get names, but lose none.
pub(super) fn route_lease(compiler: &mut Compiler<'_>, at: RouteIndex, route: &model::Route) -> Option<ResponseLease> {
    let names = &compiler.settings().sites[at.site].names;
    let find = |name: &str| compiler.carried.upstreams.get(name).map(|carried| &carried.upstream);
    let keys: HashSet<_> = lease_keys(names, route, find)?.collect();
    let earlier = &compiler.earlier.leases;
    let is_whole = |lease: &&ResponseLease| earlier.iter().all(|(key, other)| !other.is(lease) || keys.contains(key));
    let lease = keys.iter().find_map(|key| earlier.get(key)).filter(is_whole).cloned().unwrap_or_default();
    compiler.carried.leases.extend(keys.into_iter().map(|key| (key, lease.clone())));
    Some(lease)
}

/// Returns what identifies the lease of a route, a text for each name of its site: equal texts are of one unchanged route.
/// `None` if it has no lease, or its upstream is not found.
fn lease_keys<'u>(
    names: &[HostName],
    route: &model::Route,
    find_upstream: impl FnOnce(&str) -> Option<&'u Arc<Upstream>>,
) -> Option<impl Iterator<Item = String>> {
    let upstream = match &route.action {
        model::Action::Proxy(proxy) => Some(Arc::as_ptr(find_upstream(&proxy.upstream)?)),
        model::Action::Gateway(_) => None,
        _ => return None,
    };
    let text = format!("{route:?} {upstream:?}");
    Some(names.iter().map(move |name| format!("{name:?} {text}")))
}

/// Returns what identifies the leases of settings, as far as their upstreams are unchanged ones of these.
pub(super) fn leases_of(settings: &Settings, upstreams: &HashMap<String, CarriedUpstream>) -> HashSet<String> {
    let unchanged = |name: &str| {
        let carried = upstreams.get(name)?;
        carried.is_unchanged(settings.upstream(name)?).then_some(&carried.upstream)
    };
    let routes = settings.sites.iter().flat_map(|site| site.routes.iter().map(|route| (&site.names, route)));
    routes.filter_map(|(names, route)| lease_keys(names, route, unchanged)).flatten().collect()
}

/// Compiles the action; `None` if its upstream has a problem, which is reported there.
pub(super) fn proxy(compiler: &mut Compiler<'_>, at: RouteIndex, proxy: &model::Proxy) -> Option<Action> {
    let upstream = compiler.carried.upstreams.get(&proxy.upstream)?.upstream.clone();
    let request_headers = header_edits(compiler, at, &proxy.request_headers);
    Some(Action::Proxy(Arc::new(ProxyRules {
        upstream,
        host: match &proxy.host {
            ForwardedHost::Keep => HostPolicy::Client,
            ForwardedHost::Upstream => HostPolicy::Server,
            ForwardedHost::Fixed(host) => HostPolicy::Fixed(host.as_str().into()),
        },
        path: match (&proxy.path, proxy.strip_prefix) {
            (Some(target), _) => PathPolicy::Replaced(target.clone()),
            (None, Switch::On) => PathPolicy::PrefixStripped,
            (None, Switch::Off) => PathPolicy::Kept,
        },
        fields: request_rules(compiler, proxy),
        hidden_trailers: request_headers.names().map(Box::from).collect(),
        request_headers,
        response_headers: header_edits(compiler, at, &proxy.response_headers),
        buffering: match proxy.buffered_bytes_max {
            0 => RequestBuffering::Off,
            most => RequestBuffering::UpTo(most),
        },
        url_rewriting: match proxy.rewrite_location {
            Switch::On => UrlRewriting::On,
            Switch::Off => UrlRewriting::Off,
        },
        proxy_status: match proxy.proxy_status {
            Switch::On => ProxyStatus::On,
            Switch::Off => ProxyStatus::Off,
        },
    })))
}

fn request_rules(compiler: &Compiler<'_>, proxy: &model::Proxy) -> RequestRules {
    RequestRules {
        doubtful_names: match proxy.field_names {
            FieldNames::Strict => DoubtfulNames::Drop,
            FieldNames::Any => DoubtfulNames::Forward,
        },
        forwarded: match proxy.forwarded {
            model::ForwardedFields::XForwarded => ForwardedFields::XForwarded,
            model::ForwardedFields::Forwarded => ForwardedFields::Forwarded,
            model::ForwardedFields::Both => ForwardedFields::Both,
            model::ForwardedFields::Off => ForwardedFields::None,
        },
        via: match proxy.via {
            Switch::On => ViaField::Append(compiler.carried.via.pseudonym()),
            Switch::Off => ViaField::Omit,
        },
        ..RequestRules::default()
    }
}
