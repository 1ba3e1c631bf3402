//! Connections that have been idle for a while: the task of one ends, and what it needs to go on is put
//! into its worker's lot. Its deadline stays in the notes, and whatever is said to it there has it go on.

use crate::connection::wire::Wire;
use crate::connection::{App, Common, go_on};
use crate::net::notes::{self, Place};
use crate::net::stream::Stream;
use crate::net::worker::Worker;
use crate::service::{Keepsake, Observer, Service};
use std::any::Any;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

/// What is left of an idle connection's two directions.
struct Left<S> {
    stream: S,
    peer: SocketAddr,
    requests: u32,
    common: Rc<Common>,
    keepsake: Keepsake,
}

/// What is left of an idle connection.
struct Parked<S, T, O, P> {
    left: Left<S>,
    app: Rc<App<T, O>>,
    permit: P,
}

/// Parked connections by their places.
type Places<S, T, O, P> = Vec<Option<Parked<S, T, O, P>>>;

/// Connections that there is room for when nobody is idle.
const ROOM_KEPT: usize = 1024;

/// The idle connections of a worker. One table and not a piece of memory each, since those would lie
/// between pieces that are free, and keep them from the system.
struct Lot<S, T, O, P>(RefCell<Places<S, T, O, P>>);

/// Parks a connection of which nothing is held that has come or has to leave, if its stream can wait by
/// itself; otherwise it goes on.
pub(super) fn park<S: Stream, T: Service, O: Observer, P: 'static>(wire: Rc<Wire<S>>, app: Rc<App<T, O>>, permit: P) {
    let (worker, place) = (wire.worker.clone(), wire.place());
    match take_off(wire, &worker) {
        Ok(left) => {
            lot(&worker).enter(place, Parked { left, app, permit });
            worker.notes.park(place);
        }
        Err(wire) => {
            worker.notes.ignore_notice(place);
            wire.is_resumed.set(true);
            tokio::task::spawn_local(go_on(wire, app, permit));
        }
    }
}

fn take_off<S: Stream>(wire: Rc<Wire<S>>, worker: &Rc<Worker>) -> Result<Left<S>, Rc<Wire<S>>> {
    let mut wire = Rc::try_unwrap(wire)?;
    if !wire.stream.park(worker, wire.place()) {
        return Err(Rc::new(wire));
    }
    let (peer, requests, keepsake) = (wire.peer(), wire.requests(), wire.keepsake.take());
    Ok(Left { stream: wire.stream, peer, requests, common: wire.common, keepsake })
}

/// The lot of a worker, all of whose connections are of the same types.
fn lot<S: Stream, T: Service, O: Observer, P: 'static>(worker: &Worker) -> Rc<Lot<S, T, O, P>> {
    let lot: Rc<dyn Any> = worker.notes.lot(|| Rc::new(Lot::<S, T, O, P>(RefCell::default())));
    lot.downcast().expect("a worker serves with one kind of application")
}

impl<S, T, O, P> Lot<S, T, O, P> {
    fn enter(&self, place: Place, parked: Parked<S, T, O, P>) {
        let mut all = self.0.borrow_mut();
        if all.len() <= place as usize {
            all.resize_with(place as usize + 1, || None);
        }
        all[place as usize] = Some(parked);
    }

    /// Takes one out. After a rush the room is given back.
    fn leave(&self, place: Place) -> Option<Parked<S, T, O, P>> {
        let mut all = self.0.borrow_mut();
        let parked = all.get_mut(place as usize)?.take();
        let used = all.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        all.truncate(used);
        if used == 0 {
            all.shrink_to(ROOM_KEPT);
        }
        parked
    }
}

impl<S: Stream, T: Service, O: Observer, P: 'static> notes::Lot for Lot<S, T, O, P> {
    fn resume(self: Rc<Self>, place: Place) {
        let Some(Parked { mut left, app, permit }) = self.leave(place) else { return };
        let worker = app.worker.clone();
        left.stream.unpark(&worker);
        let wire = Wire::new(left.stream, left.peer, place, worker, left.common);
        let wire = Rc::new(wire.resumed(left.requests, left.keepsake));
        tokio::task::spawn_local(go_on(wire, app, permit));
    }

    fn clear(&self) {
        drop(self.0.take());
    }
}
