//! Connection counts by app version and phase, collected from the workers on demand.
//!
//! Requests do not maintain these counts. Each worker counts the entries of its connection table on demand, between
//! two polls of its connections.

use crate::connection::phase_of;
use crate::net::connection_table::ConnectionTable;
use crate::net::worker::{WorkerCommand, WorkerPool};
use crate::service::Phase;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Connection counts of a server, each worker's at the time of its own count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Connections accepted since the server started, including refused ones.
    pub accepted: u64,
    /// Open connections by app version and phase, oldest version first. No entry is empty.
    pub counts: Vec<ConnectionCount>,
    /// Open connections of workers that did not respond in time. Only their number is known.
    pub unknown: usize,
    /// Workers that did not respond within the timeout.
    pub unresponsive_workers: usize,
}

/// The number of connections with one app version and phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionCount {
    /// Number of the app version: 0 for the first, and one more for each replacement ([`crate::AppHandle::replace`]).
    pub generation: u32,
    /// The phase of the connections.
    pub phase: Phase,
    /// Number of connections.
    pub connections: usize,
}

impl ConnectionStats {
    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.count(|_| true) + self.unknown
    }

    /// Returns the number of connections in a phase, as far as it is known.
    pub fn in_phase(&self, phase: Phase) -> usize {
        self.count(|group| group.phase == phase)
    }

    /// Returns the number of connections of an app version, as far as it is known.
    pub fn of_version(&self, generation: u32) -> usize {
        self.count(|group| group.generation == generation)
    }

    fn count(&self, counts: impl Fn(&ConnectionCount) -> bool) -> usize {
        self.counts.iter().filter(|group| counts(group)).map(|group| group.connections).sum()
    }

    /// Queries all workers and waits at most `timeout`.
    pub(crate) fn collect(pool: &WorkerPool, timeout: Duration) -> Self {
        let (sender, receiver) = channel();
        for (worker, inbox) in pool.inboxes.iter().enumerate() {
            let sender = sender.clone();
            let report = move |table: &ConnectionTable| drop(sender.send((worker, groups(table))));
            let _ = inbox.send(WorkerCommand::Inspect(Box::new(report)));
        }
        drop(sender);
        let mut unresponsive: Vec<usize> = (0..pool.inboxes.len()).collect();
        let mut stats = Self::default();
        let deadline = Instant::now() + timeout;
        while let Ok((worker, groups)) = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            unresponsive.retain(|other| *other != worker);
            groups.into_iter().for_each(|group| add(&mut stats.counts, group));
        }
        stats.counts.sort_by_key(|group| (group.generation, Phase::ALL.iter().position(|phase| *phase == group.phase)));
        // A worker that has ended has no connections.
        unresponsive.retain(|&worker| !pool.inboxes[worker].is_closed());
        stats.unknown = unresponsive.iter().map(|&worker| pool.loads[worker].load(Ordering::Relaxed)).sum();
        stats.unresponsive_workers = unresponsive.len();
        stats.accepted = pool.accepted_total();
        stats
    }
}

fn groups(table: &ConnectionTable) -> Vec<ConnectionCount> {
    let mut groups = Vec::new();
    table.for_each(|generation, deadline| {
        add(&mut groups, ConnectionCount { generation, phase: phase_of(deadline), connections: 1 })
    });
    groups
}

/// The number of entries is bounded by phases times versions with connections.
fn add(groups: &mut Vec<ConnectionCount>, more: ConnectionCount) {
    let same = |group: &&mut ConnectionCount| (group.generation, group.phase) == (more.generation, more.phase);
    match groups.iter_mut().find(same) {
        Some(group) => group.connections += more.connections,
        None => groups.push(more),
    }
}
