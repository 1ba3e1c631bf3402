//! Fault injection between the kernel's ring and its user, for tests.

use io_uring::cqueue::{CompletionQueue, Entry};
use std::collections::VecDeque;

/// A script of faults. It repeats, so that each kind of fault occurs at each step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    /// Maximum bytes of the first send, the second, and so on.
    pub(crate) sends: &'static [usize],
    /// Delay of the first completion, the second, and so on, in turns.
    pub(crate) delays: &'static [u32],
    /// Every n-th receive is cancelled when it starts; 0: none.
    pub(crate) cancelled_every: u32,
    /// The kernel permanently reports deferred work.
    pub(crate) reports_work: bool,
}

/// The state of fault injection in one ring.
#[derive(Default)]
pub(crate) struct Faults {
    script: Option<Script>,
    turns: u32,
    sent: usize,
    started: u32,
    seen: usize,
    /// Delayed completions and the turns in which they are due.
    delayed: VecDeque<(u32, Entry)>,
}

/// Whether completions are delayed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DelayedCompletions {
    None,
    Waiting,
}

impl Faults {
    pub(crate) fn set_script(&mut self, script: Script) {
        self.script = Some(script);
    }

    pub(crate) fn is_active(&self) -> bool {
        self.script.is_some()
    }

    pub(crate) fn send_bytes_max(&mut self) -> usize {
        self.sent += 1;
        self.script.map_or(usize::MAX, |script| script.sends[self.sent % script.sends.len()])
    }

    /// Counts a started operation. Returns whether it is cancelled if it is a receive.
    pub(crate) fn cancels_receive(&mut self) -> bool {
        self.started += 1;
        let every = self.script.map_or(0, |script| script.cancelled_every);
        self.started.is_multiple_of(every)
    }

    pub(crate) fn reports_work(&self) -> bool {
        self.script.is_some_and(|script| script.reports_work)
    }

    pub(crate) fn hold(&self) -> DelayedCompletions {
        if self.delayed.is_empty() { DelayedCompletions::None } else { DelayedCompletions::Waiting }
    }

    /// Starts the next turn. Returns whether completions are delayed.
    pub(crate) fn turn(&mut self) -> DelayedCompletions {
        self.turns += 1;
        self.hold()
    }

    /// Returns the next completion that is due. The order is kept.
    pub(crate) fn next(&mut self, queue: &mut CompletionQueue<'_>) -> Option<Entry> {
        for entry in queue {
            self.seen += 1;
            let delay = self.script.map_or(0, |script| script.delays[self.seen % script.delays.len()]);
            self.delayed.push_back((self.turns + delay, entry));
        }
        if self.delayed.front().is_some_and(|(due, _)| *due > self.turns) {
            return None;
        }
        self.delayed.pop_front().map(|(_, entry)| entry)
    }
}
