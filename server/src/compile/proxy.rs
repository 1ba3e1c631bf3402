//! Compiles the action `proxy`.

use super::headers::header_edits;
use super::{Compiler, RouteIndex};
use crate::config::model::{self, FieldNames, ForwardedHost, Switch};
use crate::site::{Action, HostPolicy, PathPolicy, ProxyRules, ProxyStatus, RequestBuffering, UrlRewriting};
use selvedge::proto::forward::{DoubtfulNames, ForwardedFields, RequestRules, ViaField};
use selvedge::service::ResponseLease;
use std::sync::Arc;

/// Returns the lease of a route that forwards requests: while nothing of the route and its upstream changes, its streams
/// and upgraded connections outlive a reload.
pub(super) fn route_lease(compiler: &mut Compiler<'_>, at: RouteIndex, route: &model::Route) -> Option<ResponseLease> {
    let upstream = match &route.action {
        model::Action::Proxy(proxy) => Some(Arc::as_ptr(&compiler.carried.upstreams.get(&proxy.upstream)?.upstream)),
        model::Action::Gateway(_) => None,
        _ => return None,
    };
    let names = &compiler.settings().sites[at.site].names;
    let text = format!("{names:?} {route:?} {upstream:?}");
    let lease = compiler.earlier.leases.get(&text).cloned().unwrap_or_default();
    compiler.carried.leases.insert(text, lease.clone());
    Some(lease)
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
