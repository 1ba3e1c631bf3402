//! How many connections a server has, and what they do: asked of the workers while they serve.
//!
//! Nothing is kept for it on the way of a request. Each worker goes through its notes when it
//! is asked, between two turns of its connections.

use crate::connection::phase_of;
use crate::net::notes::Notes;
use crate::net::worker::{Message, Peers};
use crate::service::Phase;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The connections of a server, each worker's at the moment at which it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Connections accepted since the server began, also those that were not let in.
    pub accepted: u64,
    /// Those that are open, by what they have in common; no group is empty. Of earlier
    /// generations first.
    pub groups: Vec<Group>,
    /// Open ones of which no more is known, since their worker did not answer in time.
    pub unknown: usize,
    /// Workers that did not answer in time: something holds them up.
    pub silent_workers: usize,
}

/// Connections that have something in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they are served by: 0 is what the server began with, and whatever took its place
    /// ([`crate::Succession::replace`]) has the next number.
    pub generation: u32,
    /// What they are doing.
    pub phase: Phase,
    /// How many there are.
    pub connections: usize,
}

impl Census {
    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.count(|_| true) + self.unknown
    }

    /// How many are known to do this.
    pub fn doing(&self, phase: Phase) -> usize {
        self.count(|group| group.phase == phase)
    }

    /// How many are known to be served by this generation.
    pub fn of_generation(&self, generation: u32) -> usize {
        self.count(|group| group.generation == generation)
    }

    fn count(&self, counts: impl Fn(&Group) -> bool) -> usize {
        self.groups.iter().filter(|group| counts(group)).map(|group| group.connections).sum()
    }

    /// Asks all workers, and waits so long for their answers.
    pub(crate) fn ask(peers: &Peers, patience: Duration) -> Self {
        let (answer, answers) = channel();
        for (worker, inbox) in peers.inboxes.iter().enumerate() {
            let answer = answer.clone();
            let asked = move |notes: &Notes| drop(answer.send((worker, groups(notes))));
            let _ = inbox.send(Message::Ask(Box::new(asked)));
        }
        drop(answer);
        let mut silent: Vec<usize> = (0..peers.inboxes.len()).collect();
        let mut census = Self::default();
        let deadline = Instant::now() + patience;
        while let Ok((worker, groups)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            silent.retain(|other| *other != worker);
            groups.into_iter().for_each(|group| add(&mut census.groups, group));
        }
        census
            .groups
            .sort_by_key(|group| (group.generation, Phase::ALL.iter().position(|phase| *phase == group.phase)));
        // A worker that has ended has no connections.
        silent.retain(|&worker| !peers.inboxes[worker].is_closed());
        census.unknown = silent.iter().map(|&worker| peers.loads[worker].load(Ordering::Relaxed)).sum();
        census.silent_workers = silent.len();
        census.accepted = peers.accepted.iter().map(|accepted| accepted.load(Ordering::Relaxed)).sum();
        census
    }
}

fn groups(notes: &Notes) -> Vec<Group> {
    let mut groups = Vec::new();
    notes
        .each(|generation, deadline| add(&mut groups, Group { generation, phase: phase_of(deadline), connections: 1 }));
    groups
}

/// There are few groups: as many as phases, times the generations that still have connections.
fn add(groups: &mut Vec<Group>, more: Group) {
    let same = |group: &&mut Group| (group.generation, group.phase) == (more.generation, more.phase);
    match groups.iter_mut().find(same) {
        Some(group) => group.connections += more.connections,
        None => groups.push(more),
    }
}
