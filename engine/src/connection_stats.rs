//! Connection counts by app version and phase, collected from the workers on demand.
//!
//! Requests do not maintain these counts. Each worker counts the entries of its connection table on demand, between
//! two polls of its connections.

use crate::connection::phase_of;
use crate::net::connection_table::ConnectionTable;
use crate::net::worker::{WorkerCommand, WorkerPool};
use crate::service::Phase;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Connection counts of a server, each worker's at the time of its own count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Connections accepted since the server started, including refused ones.
    pub accepted: u64,
    /// Open connections by app version, phase and protocol, oldest version first. No entry is empty.
    pub counts: Vec<ConnectionCount>,
    /// Open connections of workers that did not respond in time. Only their number is known.
    pub unknown: usize,
    /// Workers that did not respond within the timeout.
    pub unresponsive_workers: usize,
    /// The processor time that the thread of each worker has used, by its number, in order.
    pub busy: Vec<(usize, Duration)>,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionProtocol {
    /// HTTP/1, a protocol that has followed it, or not yet known.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The number of connections with one app version, phase and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionCount {
    /// Number of the app version: 0 for the first, and one more for each replacement ([`crate::AppHandle::replace`]).
    pub generation: u32,
    /// The phase of the connections.
    pub phase: Phase,
    /// The protocol of the connections.
    pub protocol: ConnectionProtocol,
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
            let report = move |table: &ConnectionTable| drop(sender.send((worker, groups(table), thread_time())));
            let _ = inbox.send(WorkerCommand::Inspect(Box::new(report)));
        }
        drop(sender);
        let mut unresponsive: Vec<usize> = (0..pool.inboxes.len()).collect();
        let mut stats = Self::default();
        let deadline = Instant::now() + timeout;
        while let Ok((worker, groups, busy)) = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            unresponsive.retain(|other| *other != worker);
            groups.into_iter().for_each(|group| add(&mut stats.counts, group));
            stats.busy.push((worker, busy));
        }
        stats.busy.sort_unstable();
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
    table.for_each(|generation, deadline, has_streams| {
        let protocol = if has_streams { ConnectionProtocol::Http2 } else { ConnectionProtocol::Http1 };
        add(&mut groups, ConnectionCount { generation, phase: phase_of(deadline), protocol, connections: 1 })
    });
    groups
}

/// Returns the processor time of the calling thread.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// The number of entries is bounded by phases and protocols times versions with connections.
fn add(groups: &mut Vec<ConnectionCount>, more: ConnectionCount) {
    let key = |group: &ConnectionCount| (group.generation, group.phase, group.protocol);
    let same = |group: &&mut ConnectionCount| key(group) == key(&more);
    match groups.iter_mut().find(same) {
        Some(group) => group.connections += more.connections,
        None => groups.push(more),
    }
}
