//! The state of a group of servers as plain data, for `selvedge status`.

use super::Upstream;
use crate::site::proxy::health::Availability;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The state of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamStatus {
    /// The name of the group.
    pub(crate) name: String,
    /// Requests that wait for a place at any server.
    pub(crate) waiting: u32,
    /// The servers, in the order of the configuration.
    pub(crate) servers: Vec<ServerStatus>,
}

/// The state of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerStatus {
    /// The server as the configuration names it.
    pub(crate) name: String,
    /// Whether it gets requests.
    pub(crate) condition: ServerCondition,
    /// Requests at work.
    pub(crate) at_work: u32,
    /// Requests that wait for a place at this server, because a cookie names it.
    pub(crate) waiting: u32,
    /// Failed requests and checks since the group began.
    pub(crate) failures: u64,
}

/// Whether a server gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerCondition {
    /// It gets its share.
    Healthy,
    /// Failures took it out, for this time from now.
    Out(Duration),
    /// It was out, and gets one request at a time until one succeeds.
    Trial,
    /// It failed its last check.
    CheckFailed,
}

impl Upstream {
    /// Returns the state of the group and its servers.
    pub(crate) fn status(&self) -> UpstreamStatus {
        let now = self.now();
        let servers = self.rules.servers.iter().zip(&self.servers).enumerate();
        let servers = servers.map(|(index, (rules, state))| ServerStatus {
            name: rules.name.to_string(),
            condition: match self.health.availability(index, now) {
                Availability::InUse => ServerCondition::Healthy,
                Availability::Trial => ServerCondition::Trial,
                Availability::Out => {
                    self.health.out_for(index, now).map_or(ServerCondition::CheckFailed, ServerCondition::Out)
                }
            },
            at_work: state.places.at_work(),
            waiting: state.queue.waiting(),
            failures: state.failures.load(Ordering::Relaxed),
        });
        UpstreamStatus { name: self.rules.name.to_string(), waiting: self.queue.waiting(), servers: servers.collect() }
    }
}
