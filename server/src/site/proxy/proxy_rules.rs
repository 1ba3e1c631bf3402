//! What a route does with the requests that it forwards, as plain values.

use super::upstream::Upstream;
use crate::site::headers::HeaderEdits;
use crate::syntax::Template;
use selvedge::proto::forward::RequestRules;
use std::sync::Arc;

/// What a route does with the requests that it forwards, and with their responses.
#[derive(Clone, Debug)]
pub(crate) struct ProxyRules {
    /// The servers.
    pub(crate) upstream: Arc<Upstream>,
    /// The Host field of forwarded requests.
    pub(crate) host: HostPolicy,
    /// The path of forwarded requests.
    pub(crate) path: PathPolicy,
    /// Which fields of requests are forwarded, and which fields tell the server about the client.
    pub(crate) fields: RequestRules,
    /// Changes to the fields of requests, after `fields`. Not to Host: that is [`Self::host`].
    pub(crate) request_headers: HeaderEdits,
    /// The names of these fields, which no trailer has: an application that takes trailers as fields would see both.
    pub(crate) hidden_trailers: Arc<[Box<str>]>,
    /// Changes to the fields of responses, before those of the route.
    pub(crate) response_headers: HeaderEdits,
    /// Whether content is received before a server is chosen.
    pub(crate) buffering: RequestBuffering,
    /// Whether URLs of the server in Location and the paths of its cookies become those of the client.
    pub(crate) url_rewriting: UrlRewriting,
    /// Whether responses have a Proxy-Status field (RFC 9209).
    pub(crate) proxy_status: ProxyStatus,
}

impl ProxyRules {
    /// Forwards to a group of servers with the default for everything else.
    #[cfg(test)]
    pub(crate) fn new(upstream: Arc<Upstream>) -> Self {
        Self {
            upstream,
            host: HostPolicy::Client,
            path: PathPolicy::Kept,
            fields: RequestRules::default(),
            request_headers: HeaderEdits::default(),
            hidden_trailers: Arc::default(),
            response_headers: HeaderEdits::default(),
            buffering: RequestBuffering::Off,
            url_rewriting: UrlRewriting::Off,
            proxy_status: ProxyStatus::Off,
        }
    }
}

/// The Host field of forwarded requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostPolicy {
    /// As the client sent it. Default.
    Client,
    /// The authority of the server.
    Server,
    /// This value.
    Fixed(Box<str>),
}

/// The path of forwarded requests. The query is always kept.
#[derive(Clone, Debug)]
pub(crate) enum PathPolicy {
    /// As the client sent it, byte for byte. Default.
    Kept,
    /// Without the segments before the wildcard at the end of the route's pattern. The rest is kept byte for byte.
    PrefixStripped,
    /// Filled from the request. Values are percent-encoded again.
    Replaced(Template),
}

/// Whether the content of a request is received before it is forwarded, so that a slow client does not occupy a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestBuffering {
    /// Content is forwarded while it arrives. Default.
    Off,
    /// Content up to this number of bytes is received first. Longer content is forwarded while it arrives.
    UpTo(u32),
}

/// Whether URLs of a server in `Location` and `Content-Location`, and the paths of its cookies, become those of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UrlRewriting {
    /// They are kept. Default.
    Off,
    /// They are rewritten.
    On,
}

/// Whether responses have a Proxy-Status field (RFC 9209).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyStatus {
    /// They have none. Default.
    Off,
    /// They have one, with the name of the group, the status of the server, and the kind of an error.
    On,
}
