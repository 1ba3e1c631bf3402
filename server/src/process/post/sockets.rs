//! Sockets of a serving process: its own, or those that it is handed by its supervisor.

use super::{Chain, Post, guard};
use crate::process::Place;
use crate::process::link::{Asked, Link, Part, Told};
use selvedge::{Endpoint, Listener};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

impl Post {
    /// Listens at a place, or says why not. The sockets are this process's to serve at; where
    /// it listens there already, they are the same once more.
    pub(crate) fn bind(&self, place: &Place) -> Result<Vec<Listener>, String> {
        let mut sockets = guard(&self.sockets);
        if let Chain::Supervised { link, asking } = &self.chain
            && !sockets.held().iter().any(|held| held.place == *place)
        {
            let mut parts = Parts::default();
            let told = ask(link, asking, &Asked::Bind { place: place.clone() }, &mut parts)?;
            told?;
            sockets.forget(place);
            for (place, listener) in parts.listeners()? {
                sockets.adopt(place, listener);
            }
        }
        let clones = sockets.bind(place)?.iter().map(Listener::try_clone).collect::<io::Result<_>>();
        clones.map_err(|error| format!("cannot listen on {place}: {error}"))
    }

    /// Where this process has sockets, wanted or not.
    pub(crate) fn places(&self) -> Vec<Place> {
        guard(&self.sockets).held().iter().map(|held| held.place.clone()).collect()
    }

    /// Lets a place go; the endpoints that whoever serves there has to leave next.
    pub(crate) fn release(&self, place: &Place) -> Vec<Endpoint> {
        match &self.chain {
            Chain::Supervised { link, .. } => {
                let _ = link.send(&Asked::Release { place: place.clone() });
                guard(&self.sockets).release(place)
            }
            Chain::Alone { .. } => guard(&self.sockets).close(place),
        }
    }
}

/// Sockets of listeners, as they come.
#[derive(Default)]
pub(super) struct Parts(Vec<(Place, Vec<OwnedFd>)>);

impl Parts {
    pub(super) fn add(&mut self, place: Place, part: Part, sockets: Vec<OwnedFd>) {
        match self.0.last_mut() {
            Some((_, earlier)) if part == Part::Later => earlier.extend(sockets),
            _ => self.0.push((place, sockets)),
        }
    }

    pub(super) fn listeners(self) -> Result<Vec<(Place, Listener)>, String> {
        let listeners = self.0.into_iter().map(|(place, sockets)| match Listener::from_sockets(sockets) {
            Ok(listener) => Ok((place, listener)),
            Err(error) => Err(format!("cannot listen on {place}: {error}")),
        });
        listeners.collect()
    }
}

/// Asks the supervisor; what it says, and what came before that.
pub(super) fn ask(
    link: &Link,
    asking: &Mutex<()>,
    asked: &Asked,
    parts: &mut Parts,
) -> Result<Result<String, String>, String> {
    let _one_at_a_time = guard(asking);
    link.send(asked).map_err(|error| format!("the supervisor cannot be reached: {error}"))?;
    loop {
        match receive(link)? {
            (Told::Listener { place, part }, some) => parts.add(place, part, some),
            (Told::Done { text }, _) => return Ok(Ok(text)),
            (Told::Refused { text }, _) => return Ok(Err(text)),
            (Told::Control | Told::Begin(_), _) => {}
        }
    }
}

pub(super) fn receive(link: &Link) -> Result<(Told, Vec<OwnedFd>), String> {
    match link.receive() {
        Ok(Some(told)) => Ok(told),
        Ok(None) => Err("the supervisor is gone".to_owned()),
        Err(error) => Err(format!("the supervisor cannot be heard: {error}")),
    }
}
