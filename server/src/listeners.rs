//! Where the server listens: what the settings name, bound all together or not at all.
//!
//! From one configuration to the next a place that stays is not touched, so that nobody who
//! is connecting there is turned away.

use crate::config::model::Listener as Wanted;
use crate::process::{CannotListen, Place, Post};
use selvedge::{Endpoint, Handle, Listener};
use std::io;

/// What is listened at, by the settings that name it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    open: Vec<(Place, Vec<Endpoint>)>,
}

/// The way from one list of places to the next, with all that is new bound.
#[derive(Debug)]
pub(crate) struct Move {
    next: Places,
    new: Vec<Listener>,
}

impl Places {
    /// Binds what of these is not listened at yet.
    ///
    /// # Errors
    /// Each that cannot be listened at; what was bound for the others is let go.
    pub(crate) fn towards(&self, post: &Post, wanted: &[Wanted]) -> Result<Move, Vec<CannotListen>> {
        let (mut next, mut new, mut problems) = (Self::default(), Vec::<Listener>::new(), Vec::new());
        for listener in wanted {
            let place = Place::from(listener);
            match post.bind(&place) {
                Ok(listeners) => {
                    let endpoints = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
                    next.open.push((place, endpoints));
                    // One place may be known by two names.
                    let is_known = |endpoint: &Endpoint| {
                        self.is_open(endpoint) || new.iter().any(|other| other.endpoint() == endpoint)
                    };
                    let unknown: Vec<_> =
                        listeners.into_iter().filter(|listener| !is_known(listener.endpoint())).collect();
                    new.extend(unknown);
                }
                Err(why) => problems.push(CannotListen { address: listener.address.clone(), why }),
            }
        }
        if problems.is_empty() {
            return Ok(Move { next, new });
        }
        // First what a Unix socket's file was before; what is let go must not be the same.
        self.open.iter().for_each(|(place, _)| drop(post.bind(place)));
        self.release_others(post);
        Err(problems)
    }

    /// All of them, in the order of the settings.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.open.iter().flat_map(|(_, endpoints)| endpoints)
    }

    /// Lets go what the process has and these do not name.
    pub(crate) fn leave_others(&self, post: &Post, server: &Handle) {
        for endpoint in self.release_others(post).iter().filter(|endpoint| !self.is_open(endpoint)) {
            server.leave(endpoint);
        }
    }

    fn release_others(&self, post: &Post) -> Vec<Endpoint> {
        let mut places = post.places();
        places.retain(|place| self.open.iter().all(|(open, _)| open != place));
        places.iter().flat_map(|place| post.release(place)).collect()
    }

    fn is_open(&self, endpoint: &Endpoint) -> bool {
        self.endpoints().any(|open| open == endpoint)
    }
}

impl Move {
    /// The new listeners, for a server that begins with them.
    pub(crate) fn begin(self) -> (Places, Vec<Listener>) {
        (self.next, self.new)
    }

    /// Has a running server listen there, and no longer at what is left.
    ///
    /// # Errors
    /// When descriptors run out; what is listened at by then stays.
    pub(crate) fn make(self, post: &Post, server: &Handle) -> io::Result<Places> {
        self.new.into_iter().try_for_each(|listener| server.listen(listener))?;
        self.next.leave_others(post, server);
        Ok(self.next)
    }
}
