//! How a choice of a server takes effect: the request takes a place there, or the choice is only explained.

use crate::site::proxy::balance::{Candidate, Turns};
use crate::site::proxy::capacity::{Entered, Places};

/// What the choice of a server changes.
pub(super) trait ChoiceEffect {
    /// Takes a place at a server. `None` if the server is full.
    fn enter(&self, places: &Places) -> Option<Entered>;

    /// Returns the server of the next turn.
    fn next(&self, turns: &Turns, count: usize, candidate: impl Fn(usize) -> Candidate) -> Option<usize>;
}

/// The request is forwarded.
pub(super) struct Forward;

/// The request is only explained: nothing changes.
pub(super) struct Explain;

impl ChoiceEffect for Forward {
    fn enter(&self, places: &Places) -> Option<Entered> {
        places.enter()
    }

    fn next(&self, turns: &Turns, count: usize, candidate: impl Fn(usize) -> Candidate) -> Option<usize> {
        turns.next(count, candidate)
    }
}

impl ChoiceEffect for Explain {
    fn enter(&self, places: &Places) -> Option<Entered> {
        places.would_enter()
    }

    fn next(&self, turns: &Turns, count: usize, candidate: impl Fn(usize) -> Candidate) -> Option<usize> {
        turns.would_be_next(count, candidate)
    }
}
