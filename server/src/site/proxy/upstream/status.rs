//! The state of a group of servers as plain data, for `selvedge status`.

use super::Upstream;
use crate::durations::Durations;
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
    /// Failed requests and checks since the process began.
    pub(crate) failures: u64,
    /// Requests since then that the adaptive limit would have held back, if that only observes.
    pub(crate) beyond_limit: u64,
    /// Tries of requests since then.
    pub(crate) tries: u64,
    /// Times to the heads of responses since then.
    pub(crate) response_times: Durations,
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

/// Counts a try of a server, and how long the head of its response took if one has arrived.
pub(in crate::site::proxy) fn count_try(upstream: &Upstream, server: usize, response_time: Option<Duration>) {
    let server = &upstream.servers[server].counters;
    server.tries.fetch_add(1, Ordering::Relaxed);
    response_time.iter().for_each(|time| server.response_times.count_shared(*time));
}

/// Continues with the counters of an earlier group, for servers that it has, too.
pub(crate) fn continue_counters(upstream: &mut Upstream, earlier: &Upstream) {
    for (rules, server) in upstream.rules.servers.iter().zip(&mut upstream.servers) {
        let Some(index) = earlier.rules.servers.iter().position(|known| known.name == rules.name) else { continue };
        server.counters = earlier.servers[index].counters.clone();
        server.places.count_on(&earlier.servers[index].places);
    }
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
            failures: state.counters.failures.load(Ordering::Relaxed),
            beyond_limit: state.places.beyond_observed(),
            tries: state.counters.tries.load(Ordering::Relaxed),
            response_times: state.counters.response_times.totals(),
        });
        UpstreamStatus { name: self.rules.name.to_string(), waiting: self.queue.waiting(), servers: servers.collect() }
    }
}
