//! The part of `selvedge status` about upstreams, as plain data written as text or JSON.

use crate::durations::Durations;
use crate::site::{ServerCondition, ServerStatus, Upstream};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// A group of servers. The names in JSON are documented in `docs/operations.md`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct GroupStatus {
    pub(crate) name: String,
    /// Requests that wait for a place at any server.
    pub(crate) waiting: u32,
    pub(crate) servers: Vec<UpstreamServerStatus>,
}

/// One server of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct UpstreamServerStatus {
    pub(crate) name: String,
    /// One of `healthy`, `out`, `trial`, `check-failed` and `draining`.
    pub(crate) state: &'static str,
    /// How long it gets no requests, for `out`.
    pub(crate) out_seconds: Option<f64>,
    /// Requests at work.
    pub(crate) requests: u32,
    /// Requests that wait for a place at this server only.
    pub(crate) waiting: u32,
    /// Failed requests and checks so far.
    pub(crate) failures: u64,
    /// For metrics.
    #[serde(skip)]
    pub(crate) counts: TryCounts,
}

/// Counts of the tries of requests at a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TryCounts {
    /// Requests that the adaptive limit would have held back, if that only observes.
    pub(crate) beyond_limit: u64,
    pub(crate) tries: u64,
    /// Times to the heads of responses.
    pub(crate) response_times: Durations,
}

/// Whether the configuration in force has a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupUse {
    InUse,
    /// Only an earlier configuration has it, so its servers get no new requests.
    Replaced,
}

impl GroupStatus {
    pub(crate) fn of(upstream: &Upstream, group_use: GroupUse) -> Self {
        let status = upstream.status();
        let servers = status.servers.into_iter().map(|server| UpstreamServerStatus::of(server, group_use));
        Self { name: status.name, waiting: status.waiting, servers: servers.collect() }
    }

    /// Whether the configuration in force has the group.
    pub(crate) fn is_in_use(&self) -> bool {
        self.servers.iter().all(|server| server.state != "draining")
    }

    /// Whether a request is at work or waits.
    pub(crate) fn has_requests(&self) -> bool {
        self.waiting > 0 || self.servers.iter().any(|server| server.requests > 0 || server.waiting > 0)
    }

    /// Returns the lines of the text: one for each server, after one for the group if requests wait for it.
    pub(crate) fn lines(&self) -> Vec<String> {
        let waiting = (self.waiting > 0).then(|| format!("{}: {} waiting", self.name, self.waiting));
        let of_server = |server: &UpstreamServerStatus| {
            let name = if server.name == self.name { String::new() } else { format!("{}: ", self.name) };
            format!("{name}{server}")
        };
        waiting.into_iter().chain(self.servers.iter().map(of_server)).collect()
    }
}

impl UpstreamServerStatus {
    fn of(server: ServerStatus, group_use: GroupUse) -> Self {
        let ServerStatus { name, condition, at_work, waiting, failures, beyond_limit, tries, response_times } = server;
        let counts = TryCounts { beyond_limit, tries, response_times };
        let (state, out) = match (group_use, condition) {
            (GroupUse::Replaced, _) => ("draining", None),
            (GroupUse::InUse, ServerCondition::Healthy) => ("healthy", None),
            (GroupUse::InUse, ServerCondition::Out(time)) => ("out", Some(time)),
            (GroupUse::InUse, ServerCondition::Trial) => ("trial", None),
            (GroupUse::InUse, ServerCondition::CheckFailed) => ("check-failed", None),
        };
        let out_seconds = out.as_ref().map(Duration::as_secs_f64);
        Self { name, state, out_seconds, requests: at_work, waiting, failures, counts }
    }
}

impl fmt::Display for UpstreamServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, state, out_seconds, requests, waiting, failures, .. } = self;
        write!(f, "{name} {}", state.replace('-', " "))?;
        if let Some(seconds) = out_seconds {
            write!(f, " for {:.0} s", seconds.ceil())?;
        }
        write!(f, ", {requests} at work")?;
        for (count, what) in [(u64::from(*waiting), "waiting"), (*failures, "failures")] {
            match (count, what) {
                (0, _) => {}
                (1, "failures") => f.write_str(", 1 failure")?,
                _ => write!(f, ", {count} {what}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_written_for_people() {
        let server = |condition, group_use| {
            let name = "http://a:1".to_owned();
            let (beyond_limit, tries, response_times) = (0, 0, Durations::default());
            let (at_work, waiting, failures) = (3, 0, 1);
            let status =
                ServerStatus { name, condition, at_work, waiting, failures, beyond_limit, tries, response_times };
            UpstreamServerStatus::of(status, group_use)
        };
        let out = ServerCondition::Out(Duration::from_millis(6100));
        let servers = vec![
            UpstreamServerStatus { failures: 0, ..server(ServerCondition::Healthy, GroupUse::InUse) },
            UpstreamServerStatus { waiting: 2, failures: 5, ..server(out, GroupUse::InUse) },
            server(ServerCondition::CheckFailed, GroupUse::InUse),
            server(out, GroupUse::Replaced),
        ];
        let group = GroupStatus { name: "app".to_owned(), waiting: 4, servers };
        assert!(group.has_requests());
        assert_eq!(
            group.lines(),
            [
                "app: 4 waiting",
                "app: http://a:1 healthy, 3 at work",
                "app: http://a:1 out for 7 s, 3 at work, 2 waiting, 5 failures",
                "app: http://a:1 check failed, 3 at work, 1 failure",
                "app: http://a:1 draining, 3 at work, 1 failure",
            ]
        );
        let alone = server(ServerCondition::Trial, GroupUse::InUse);
        let group = GroupStatus { name: "http://a:1".to_owned(), waiting: 0, servers: vec![alone] };
        assert_eq!(group.lines(), ["http://a:1 trial, 3 at work, 1 failure"]);
    }
}
