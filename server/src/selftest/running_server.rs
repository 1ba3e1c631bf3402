//! What the control socket of a running server tells: where it listens, its time limits, and what it has counted.

use crate::cli::ControlArgs;
use crate::control_client;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Counts by name.
pub(super) type CountsByName = BTreeMap<String, u64>;

/// The part of a status that the self-test reads.
#[derive(Debug, Deserialize)]
pub(super) struct RunningServer {
    listeners: Vec<String>,
    limits: Option<StatedLimits>,
    requests: RefusedRequests,
    connections: ClosedConnections,
}

#[derive(Debug, Deserialize)]
struct StatedLimits {
    header_timeout_ms: u64,
    body_timeout_ms: u64,
    send_timeout_ms: u64,
    http2_settings_timeout_ms: u64,
}

#[derive(Debug, Deserialize)]
struct RefusedRequests {
    refused: CountsByName,
}

#[derive(Debug, Deserialize)]
struct ClosedConnections {
    closed: CountsByName,
}

/// The time limits of a server; `None` if they are not known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeLimits {
    pub(super) header: Option<Duration>,
    pub(super) content: Option<Duration>,
    pub(super) send: Option<Duration>,
    pub(super) settings: Option<Duration>,
}

impl RunningServer {
    /// Reads the status of the server behind the control socket that the options name.
    ///
    /// # Errors
    /// If no such server is found.
    pub(super) fn find(options: &ControlArgs) -> Result<Self, String> {
        let status = control_client::status_json(options)?;
        serde_json::from_str(&status).map_err(|error| format!("its status cannot be read: {error}"))
    }

    /// Whether it listens on an address. A listener on all addresses of IPv6 may have those of IPv4, too.
    pub(super) fn listens_on(&self, address: SocketAddr) -> bool {
        let mut listeners = self.listeners.iter().filter_map(|text| text.parse::<SocketAddr>().ok());
        listeners.any(|listener| {
            let is_everywhere = listener.ip().is_unspecified() && (listener.is_ipv6() || address.is_ipv4());
            let is_equal = listener.ip().to_canonical() == address.ip().to_canonical();
            listener.port() == address.port() && (is_everywhere || is_equal)
        })
    }

    /// Returns the addresses of all listeners, for people.
    pub(super) fn listeners(&self) -> String {
        if self.listeners.is_empty() { "no address".to_owned() } else { self.listeners.join(", ") }
    }

    pub(super) fn time_limits(&self) -> TimeLimits {
        let Some(limits) = &self.limits else { return TimeLimits::default() };
        let time = |ms| Some(Duration::from_millis(ms));
        TimeLimits {
            header: time(limits.header_timeout_ms),
            content: time(limits.body_timeout_ms),
            send: time(limits.send_timeout_ms),
            settings: time(limits.http2_settings_timeout_ms),
        }
    }

    /// Returns the reasons of refused requests and closed connections that were counted since an earlier status. Those
    /// of usual requests are left out.
    pub(super) fn counted_since(&self, earlier: &Self) -> CountsByName {
        let grown = |now: &CountsByName, before: &CountsByName| -> CountsByName {
            let count = |name: &String, count: &u64| count.saturating_sub(before.get(name).copied().unwrap_or(0));
            let grown = now.iter().map(|(name, now)| (name.clone(), count(name, now)));
            grown.filter(|(name, count)| *count > 0 && name != "CloseRequested").collect()
        };
        // A refused request that closes its connection is counted under one name as both.
        let mut counted = grown(&self.connections.closed, &earlier.connections.closed);
        counted.extend(grown(&self.requests.refused, &earlier.requests.refused));
        counted
    }

    #[cfg(test)]
    pub(super) fn listening_on(listeners: &[&str]) -> Self {
        Self {
            listeners: listeners.iter().map(ToString::to_string).collect(),
            limits: None,
            requests: RefusedRequests { refused: CountsByName::new() },
            connections: ClosedConnections { closed: CountsByName::new() },
        }
    }
}
