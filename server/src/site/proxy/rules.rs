//! The rules of a group of servers as plain values.

use super::address_cell::AddressCell;
use selvedge::client::{ClientTimeouts, ClientTls, Protocol};
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

/// A group of servers that run one application.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamRules {
    /// The name of the group, for the log and for Proxy-Status.
    pub(crate) name: Box<str>,
    /// The servers in the order of the configuration; at least one.
    pub(crate) servers: Vec<ServerRules>,
    /// Which server gets a request.
    pub(crate) balance: Balance,
    /// When failed requests take a server out of use.
    pub(crate) failures: FailureRules,
    /// The requests by which the servers are checked; `None` for no checks.
    pub(crate) check: Option<HealthCheck>,
    /// For how long a server that returns to use gets fewer requests than its weight. Zero turns it off.
    pub(crate) slow_start: Duration,
    /// How many requests a server gets at once, and how many wait.
    pub(crate) capacity: CapacityRules,
    /// How long the steps of an exchange with a server may take.
    pub(crate) timeouts: ClientTimeouts,
}

/// One server of a group.
#[derive(Clone, Debug)]
pub(crate) struct ServerRules {
    /// The server as the configuration names it, such as `http://10.0.0.5:3000`. It identifies the server to
    /// `hash` and `sticky`, so it has to be unique in its group.
    pub(crate) name: Box<str>,
    /// Host and port as a Host field has them, for a Host field of its own.
    pub(crate) authority: Box<str>,
    /// The addresses, which a resolver may replace while the server is in use.
    pub(crate) addresses: Arc<AddressCell>,
    /// The share of requests, relative to the other servers.
    pub(crate) weight: NonZeroU16,
    /// TLS to the server; `None` for plain connections.
    pub(crate) tls: Option<Arc<ClientTls>>,
    /// The version of HTTP.
    pub(crate) protocol: Protocol,
    /// The header of the PROXY protocol that each connection begins with; `None` for none. A connection with one carries
    /// requests of one client only, so it is not kept.
    pub(crate) proxy_header: Option<ProxyHeaderVersion>,
}

/// Versions of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeaderVersion {
    /// A line of text.
    V1,
    /// A binary header.
    V2,
}

/// Which server of a group gets a request.
#[derive(Clone, Debug)]
pub(crate) enum Balance {
    /// Of two servers chosen at random by weight, the one with fewer requests at work for its weight.
    LeastLoaded,
    /// Each server in turn, by weight.
    RoundRobin,
    /// The server that a part of the request is assigned to. A new server takes over its share only.
    Hash(HashKey),
    /// The server that a cookie of the client names. A client without a cookie gets the less loaded one of two.
    Sticky(StickyRules),
}

/// The part of a request that chooses its server. A request without it goes to the less loaded one of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HashKey {
    /// The path as the client sent it.
    Path,
    /// The first field of this name.
    Field(Box<str>),
    /// The cookie of this name.
    Cookie(Box<str>),
    /// The address of the client.
    Client,
}

/// The cookie that keeps a client at its server.
#[derive(Clone)]
pub(crate) struct StickyRules {
    /// The name of the cookie, a token.
    pub(crate) cookie: Box<str>,
    /// What follows the value of the cookie, such as `; Path=/; HttpOnly; SameSite=Lax`. `; Secure` follows for https.
    pub(crate) attributes: Box<str>,
    /// The key of the signature. Servers that share it accept each other's cookies.
    pub(crate) secret: [u8; 32],
}

impl std::fmt::Debug for StickyRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the secret.
        f.debug_struct("StickyRules").field("cookie", &self.cookie).field("attributes", &self.attributes).finish()
    }
}

/// When failed requests take a server out of use.
///
/// A failed connection, a reset, a malformed response and a timeout count for `window`. Responses with the status 500, 502,
/// 503 or 504 count while no other response is between them. At most half of a group is out at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureRules {
    /// How many failures take a server out. Default: 3.
    pub(crate) failures_max: NonZeroU32,
    /// The time in which they have to occur. Default: 10 s.
    pub(crate) window: Duration,
    /// How long a server is out the first time. Default: 10 s.
    pub(crate) ejection: Duration,
    /// The longest time out: each failed return doubles the time up to this. Default: 5 min.
    pub(crate) ejection_max: Duration,
}

impl Default for FailureRules {
    fn default() -> Self {
        Self {
            failures_max: NonZeroU32::new(3).expect("3 is not 0"),
            window: Duration::from_secs(10),
            ejection: Duration::from_secs(10),
            ejection_max: Duration::from_mins(5),
        }
    }
}

/// The request by which each server of a group is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthCheck {
    /// Path and query.
    pub(crate) path: Box<str>,
    /// The value of Host; `None` for the authority of the server.
    pub(crate) host: Option<Box<str>>,
    /// The time between two checks of a server.
    pub(crate) every: Duration,
    /// How long a check may take.
    pub(crate) timeout: Duration,
    /// The status codes of a server that works.
    pub(crate) expect: std::ops::RangeInclusive<u16>,
}

/// How many requests a server gets at once, and how many wait for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CapacityRules {
    /// Requests at once at each server; `None` for no limit.
    pub(crate) requests_max: Option<NonZeroU32>,
    /// Requests of the group that wait while all servers are full. More get 503. Default: 0.
    pub(crate) queue_max: u32,
    /// How long a request waits before it gets 503. Default: 5 s.
    pub(crate) queue_timeout: Duration,
    /// Whether the number of requests at once follows the time that a server takes.
    pub(crate) adaptive: AdaptiveMode,
}

impl Default for CapacityRules {
    fn default() -> Self {
        Self { requests_max: None, queue_max: 0, queue_timeout: Duration::from_secs(5), adaptive: AdaptiveMode::Off }
    }
}

/// Whether the number of requests at once at a server follows the time that it takes for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdaptiveMode {
    /// It does not.
    Off,
    /// The limit is computed, and requests beyond it are counted and noted in the log, but forwarded.
    Observe,
    /// Requests beyond the limit wait or get 503.
    On,
}
