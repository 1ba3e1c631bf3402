//! The settings of upstreams: groups of servers that requests are forwarded to.

use super::print::{Printer, quote, quote_path, statements_within};
use super::print_site::quoted;
use super::statement::Statement;
use super::{Action, CertificateFiles, Settings};
use crate::config::value::{ServerAddress, ServerScheme, write_time};
use crate::syntax::HostName;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;

/// A group of servers that run one application. No two have one name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Upstream {
    /// The name, or the URLs that a route names in place of one.
    pub(crate) name: String,
    /// At least one; no two are equal.
    pub(crate) servers: Vec<UpstreamServer>,
    pub(crate) balance: Balance,
    pub(crate) health: Option<HealthCheck>,
    pub(crate) failures: Failures,
    pub(crate) slow_start: Duration,
    pub(crate) requests: Option<RequestLimit>,
    pub(crate) adaptive: Adaptive,
    pub(crate) protocol: UpstreamProtocol,
    /// `None`: no header.
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    pub(crate) timeouts: UpstreamTimeouts,
    pub(crate) tls: UpstreamTls,
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UpstreamServer {
    pub(crate) address: ServerAddress,
    /// From 1.
    pub(crate) weight: u16,
}

/// Which server gets a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Balance {
    LeastLoaded,
    RoundRobin,
    Hash(HashKey),
    Sticky {
        cookie: String,
        /// `None`: a random key, which the processes of a server share.
        secret: Option<PathBuf>,
    },
}

/// What requests are distributed by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HashKey {
    Path,
    Client,
    Header(String),
    Cookie(String),
}

/// The request by which servers are checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HealthCheck {
    pub(crate) path: String,
    pub(crate) every: Duration,
    pub(crate) timeout: Duration,
    /// The first and the last status of a server that works.
    pub(crate) expect: (u16, u16),
    /// `None`: that of the server.
    pub(crate) host: Option<String>,
}

/// When failures take a server out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failures {
    /// From 1.
    pub(crate) failures_max: u32,
    pub(crate) window: Duration,
    pub(crate) ejection: Duration,
    /// At least `ejection`.
    pub(crate) ejection_max: Duration,
}

/// The limit on requests at each server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RequestLimit {
    /// From 1.
    pub(crate) requests_max: u32,
    pub(crate) queue_max: u32,
    pub(crate) queue_timeout: Duration,
}

/// Whether the number of requests at once follows the time that a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adaptive {
    Off,
    Observe,
    On,
}

/// The HTTP version of the connections to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamProtocol {
    Http1,
    Http2,
}

/// Versions of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyProtocol {
    V1,
    V2,
}

/// How long the steps of an exchange may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamTimeouts {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
    pub(crate) silence: Duration,
    pub(crate) tunnel: Duration,
}

/// TLS to servers with an https URL.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UpstreamTls {
    /// `None`: those that the system trusts.
    pub(crate) authorities: Option<PathBuf>,
    /// `None`: the host of the URL.
    pub(crate) server_name: Option<HostName>,
    pub(crate) client_certificate: Option<CertificateFiles>,
}

/// Limits on the connections to all upstreams.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UpstreamLimits {
    pub(crate) head_bytes_max: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) idle_connections_max: usize,
    pub(crate) idle_per_server_max: usize,
}

impl Upstream {
    /// Whether a server has an https URL.
    pub(crate) fn has_tls(&self) -> bool {
        self.servers.iter().any(|server| server.address.scheme == ServerScheme::Https)
    }

    /// Returns the files that need the rights of the user that starts the server.
    pub(super) fn private_files(&self) -> impl Iterator<Item = &PathBuf> {
        let secret = match &self.balance {
            Balance::Sticky { secret, .. } => secret.as_ref(),
            _ => None,
        };
        let files = self.tls.client_certificate.iter().flat_map(|files| [&files.chain, &files.key]);
        files.chain(&self.tls.authorities).chain(secret)
    }

    /// Returns each setting of its block.
    pub(crate) fn statements(&self) -> Vec<Statement> {
        statements_within(1, |lines| self.write(lines))
    }

    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        lines.braces(format_args!("upstream {}", quote(&self.name)), |lines| {
            for UpstreamServer { address, weight } in &self.servers {
                lines.line(format_args!("server {} weight={weight}", quote(&address.to_string())))?;
            }
            lines.line(format_args!("balance {}", self.balance))?;
            self.health.iter().try_for_each(|health| lines.line(health))?;
            lines.line(&self.failures)?;
            lines.line(format_args!("slow-start \"{}\"", write_time(self.slow_start)))?;
            self.requests.iter().try_for_each(|limit| lines.line(limit))?;
            let adaptive = match self.adaptive {
                Adaptive::Off => "off",
                Adaptive::Observe => "observe",
                Adaptive::On => "on",
            };
            lines.line(format_args!("adaptive \"{adaptive}\""))?;
            let protocol = match self.protocol {
                UpstreamProtocol::Http1 => "http1",
                UpstreamProtocol::Http2 => "http2",
            };
            lines.line(format_args!("protocol \"{protocol}\""))?;
            match self.proxy_protocol {
                Some(ProxyProtocol::V1) => lines.line("proxy-protocol \"v1\"")?,
                Some(ProxyProtocol::V2) => lines.line("proxy-protocol \"v2\"")?,
                None => {}
            }
            self.timeouts.write(lines)?;
            self.tls.write(lines)
        })
    }
}

impl UpstreamTimeouts {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        for (name, time) in
            [("connect", self.connect), ("response", self.response), ("silence", self.silence), ("tunnel", self.tunnel)]
        {
            lines.line(format_args!("{name}-timeout \"{}\"", write_time(time)))?;
        }
        Ok(())
    }
}

impl UpstreamTls {
    fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        if *self == Self::default() {
            return Ok(());
        }
        lines.braces("tls", |lines| {
            if let Some(authorities) = &self.authorities {
                lines.line(format_args!("ca {}", quote_path(authorities)))?;
            }
            if let Some(name) = &self.server_name {
                lines.line(format_args!("server-name {}", quoted(std::slice::from_ref(name))))?;
            }
            if let Some(CertificateFiles { chain, key }) = &self.client_certificate {
                lines.line(format_args!("client-certificate {} key={}", quote_path(chain), quote_path(key)))?;
            }
            Ok(())
        })
    }
}

impl UpstreamLimits {
    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        let size = crate::config::value::write_size(self.head_bytes_max as u64);
        lines.line(format_args!("upstream-head-bytes-max \"{size}\""))?;
        lines.line(format_args!("upstream-idle-timeout \"{}\"", write_time(self.idle_timeout)))?;
        lines.line(format_args!("upstream-idle-connections-max {}", self.idle_connections_max))?;
        lines.line(format_args!("upstream-idle-per-server-max {}", self.idle_per_server_max))
    }
}

impl Display for Balance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeastLoaded => f.write_str("\"least-loaded\""),
            Self::RoundRobin => f.write_str("\"round-robin\""),
            Self::Hash(key) => write!(f, "\"hash\" by=\"{key}\""),
            Self::Sticky { cookie, secret } => {
                write!(f, "\"sticky\" cookie={}", quote(cookie))?;
                secret.iter().try_for_each(|secret| write!(f, " secret={}", quote_path(secret)))
            }
        }
    }
}

impl Display for HashKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path => f.write_str("path"),
            Self::Client => f.write_str("client"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

impl Display for HealthCheck {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (every, timeout) = (write_time(self.every), write_time(self.timeout));
        write!(f, "health path={} every=\"{every}\" timeout=\"{timeout}\"", quote(&self.path))?;
        let (first, last) = self.expect;
        match first == last {
            true => write!(f, " expect={first}")?,
            false => write!(f, " expect=\"{first}-{last}\"")?,
        }
        write!(f, " host={}", quote(self.host.as_deref().unwrap_or("upstream")))
    }
}

impl Display for Failures {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [window, ejection, longest] = [self.window, self.ejection, self.ejection_max].map(write_time);
        write!(f, "failures {} per=\"{window}\" eject=\"{ejection}\" eject-max=\"{longest}\"", self.failures_max)
    }
}

impl Display for RequestLimit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { requests_max, queue_max, queue_timeout } = self;
        write!(f, "requests-max {requests_max} queue={queue_max} queue-timeout=\"{}\"", write_time(*queue_timeout))
    }
}

impl Settings {
    /// Whether a route forwards requests to servers, or runs scripts or programs.
    pub(crate) fn forwards_requests(&self) -> bool {
        let mut routes = self.sites.iter().flat_map(|site| &site.routes);
        routes.any(|route| matches!(route.action, Action::Proxy(_) | Action::Gateway(_)))
    }

    /// Returns the most requests of proxies that are at work or wait; `None` if the clients are their only limit.
    pub(crate) fn forwarded_requests_max(&self) -> Option<u64> {
        let of = |upstream: &Upstream| {
            let limit = upstream.requests.as_ref()?;
            Some(u64::from(limit.requests_max) * upstream.servers.len() as u64 + u64::from(limit.queue_max))
        };
        self.upstreams.iter().map(of).sum()
    }

    /// Returns the most content that a route receives before it forwards a request.
    pub(crate) fn buffered_bytes_max(&self) -> u64 {
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        let of = |route: &super::Route| match &route.action {
            Action::Proxy(proxy) => u64::from(proxy.buffered_bytes_max),
            _ => 0,
        };
        routes.map(of).max().unwrap_or(0)
    }

    /// Finds an upstream by name.
    pub(crate) fn upstream(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }
}
