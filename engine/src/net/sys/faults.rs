//! What can go wrong between a ring and whoever uses it, at will: for tests.

use super::ring::Kind;
use io_uring::cqueue::{CompletionQueue, Entry};
use std::collections::VecDeque;

/// A script that repeats itself, so that each kind of fault meets each step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    /// So many bytes are taken by the first send, the second, and so on.
    pub(crate) sends: &'static [usize],
    /// So many turns late are the first completion, the second, and so on.
    pub(crate) delays: &'static [u32],
    /// Every so many receives are cancelled when they begin; 0: none.
    pub(crate) cancelled_every: u32,
    /// The kernel says for ever that it has put something off.
    pub(crate) says_work: bool,
}

/// What goes wrong in one ring.
#[derive(Default)]
pub(crate) struct Faults {
    script: Option<Script>,
    turns: u32,
    sent: usize,
    begun: u32,
    seen: usize,
    /// Completions that are late, and the turns in which they are due.
    late: VecDeque<(u32, Entry)>,
}

/// Whether completions are held back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Nothing,
    Something,
}

impl Faults {
    pub(crate) fn follow(&mut self, script: Script) {
        self.script = Some(script);
    }

    pub(crate) fn are_there(&self) -> bool {
        self.script.is_some()
    }

    pub(crate) fn send_bytes_max(&mut self) -> usize {
        self.sent += 1;
        self.script.map_or(usize::MAX, |script| script.sends[self.sent % script.sends.len()])
    }

    pub(crate) fn cancels(&mut self, kind: Kind) -> bool {
        self.begun += 1;
        let every = self.script.map_or(0, |script| script.cancelled_every);
        kind == Kind::Receive && self.begun.is_multiple_of(every)
    }

    pub(crate) fn says_work(&self) -> bool {
        self.script.is_some_and(|script| script.says_work)
    }

    pub(crate) fn held(&self) -> Held {
        if self.late.is_empty() { Held::Nothing } else { Held::Something }
    }

    /// Another turn; whether completions are held back that it may be waited for.
    pub(crate) fn turn(&mut self) -> Held {
        self.turns += 1;
        self.held()
    }

    /// The next completion that is not to be late any more. Their order stays.
    pub(crate) fn next(&mut self, queue: &mut CompletionQueue<'_>) -> Option<Entry> {
        for entry in queue {
            self.seen += 1;
            let delay = self.script.map_or(0, |script| script.delays[self.seen % script.delays.len()]);
            self.late.push_back((self.turns + delay, entry));
        }
        if self.late.front().is_some_and(|(due, _)| *due > self.turns) {
            return None;
        }
        self.late.pop_front().map(|(_, entry)| entry)
    }
}
