//! Parked connections: the task of an idle connection ends, and a small record stays in its worker. Its deadline
//! stays in the connection table, and any interrupt or received byte resumes it.

use crate::connection::app_context::{AppContext, SharedContext};
use crate::connection::transport::Transport;
use crate::connection::{http1, http2};
use crate::net::connection_table::{self, ConnectionId};
use crate::net::link::Link;
use crate::net::stream::{Detach, Stream};
use crate::net::worker::Worker;
use crate::peer::Ends;
use crate::service::{Observer, Service};
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

/// What lasts of the transport of a parked connection.
struct ParkedTransport<S> {
    link: Link<S>,
    ends: Ends,
    shared: Rc<SharedContext>,
}

/// What lasts of the protocol of a parked connection. The state of HTTP/2 is in another table, or is to be stored there.
enum ParkedProtocol<P> {
    Http1(http1::ParkedState),
    Http2(P, http2::ParkedState),
}

/// What lasts of the protocol of a connection that is about to be parked.
type CompactProtocol = ParkedProtocol<Box<selvedge_proto::http2::Connection>>;

/// A connection with a task.
pub(super) enum ActiveConnection<S> {
    Http1(Rc<http1::Connection<S>>),
    Http2(Rc<http2::Connection<S>>),
}

impl<S: Stream> ActiveConnection<S> {
    fn transport(&self) -> &Transport<S> {
        match self {
            Self::Http1(connection) => &connection.transport,
            Self::Http2(connection) => &connection.transport,
        }
    }
}

/// A parked connection.
struct ParkedConnection<S, T, O, P> {
    transport: ParkedTransport<S>,
    protocol: ParkedProtocol<http2::ParkedProtocol>,
    app: Rc<AppContext<T, O>>,
    permit: P,
}

/// Parked connections by connection ID.
type ParkedSlots<S, T, O, P> = Vec<Option<ParkedConnection<S, T, O, P>>>;

/// Slots whose memory stays allocated when no connection is parked.
const CAPACITY_MIN: usize = 1024;

/// All parked connections of a worker. One table instead of one allocation each: single allocations would fragment
/// the heap and keep pages from the system.
struct ParkedConnections<S, T, O, P> {
    slots: RefCell<ParkedSlots<S, T, O, P>>,
    http2: RefCell<http2::ParkedProtocols>,
    start: StartTask<S, T, O, P>,
}

/// Starts the task of a resumed connection.
type StartTask<S, T, O, P> = fn(ActiveConnection<S>, Rc<AppContext<T, O>>, P);

/// Parks a connection whose buffers are empty, if its link supports that. Otherwise the connection continues. `start`
/// starts its task.
pub(super) fn park<S: Detach, T: Service, O: Observer, P: 'static>(
    connection: ActiveConnection<S>,
    app: Rc<AppContext<T, O>>,
    permit: P,
    start: StartTask<S, T, O, P>,
) {
    let timeouts = &connection.transport().timeouts;
    let (worker, id) = (timeouts.worker.clone(), timeouts.id);
    match compact(connection, &worker, id) {
        Ok((transport, protocol)) => {
            let all = parked_connections(&worker, start);
            let protocol = all.store(protocol, &transport.link);
            all.insert(id, ParkedConnection { transport, protocol, app, permit });
            worker.connections.park(id);
        }
        Err(connection) => {
            worker.connections.clear_interrupt(id);
            if let ActiveConnection::Http1(connection) = &connection {
                connection.keep_active();
            }
            start(connection, app, permit);
        }
    }
}

/// Reduces a connection to what it needs while it is idle. Returns the connection if another handle to it exists or
/// its link cannot park.
fn compact<S: Detach>(
    connection: ActiveConnection<S>,
    worker: &Rc<Worker>,
    id: ConnectionId,
) -> Result<(ParkedTransport<S>, CompactProtocol), ActiveConnection<S>> {
    let (Transport { link, ends, shared, .. }, protocol) = match connection {
        ActiveConnection::Http1(connection) => {
            let mut connection = Rc::try_unwrap(connection).map_err(ActiveConnection::Http1)?;
            if !connection.transport.link.park(worker, id) {
                return Err(ActiveConnection::Http1(Rc::new(connection)));
            }
            let (transport, state) = connection.into_parked();
            (transport, ParkedProtocol::Http1(state))
        }
        ActiveConnection::Http2(connection) => {
            let mut connection = Rc::try_unwrap(connection).map_err(ActiveConnection::Http2)?;
            if !connection.transport.link.park(worker, id) {
                return Err(ActiveConnection::Http2(Rc::new(connection)));
            }
            let (transport, protocol, state) = connection.into_parked();
            (transport, ParkedProtocol::Http2(protocol, state))
        }
    };
    Ok((ParkedTransport { link, ends, shared }, protocol))
}

/// Returns the worker's parked connections, which all have one type.
fn parked_connections<S: Detach, T: Service, O: Observer, P: 'static>(
    worker: &Worker,
    start: StartTask<S, T, O, P>,
) -> Rc<ParkedConnections<S, T, O, P>> {
    let table: Rc<dyn Any> = worker.connections.resumer_or_init(|| Rc::new(ParkedConnections::new(start)));
    table.downcast().expect("the applications of a worker have one type")
}

impl<S, T, O, P> ParkedConnections<S, T, O, P> {
    fn new(start: StartTask<S, T, O, P>) -> Self {
        Self { slots: RefCell::default(), http2: RefCell::default(), start }
    }

    /// Stores the state of HTTP/2, unless the connection has a session.
    fn store(&self, protocol: CompactProtocol, link: &Link<S>) -> ParkedProtocol<http2::ParkedProtocol> {
        match protocol {
            ParkedProtocol::Http1(state) => ParkedProtocol::Http1(state),
            ParkedProtocol::Http2(protocol, state) if link.has_session() => {
                ParkedProtocol::Http2(http2::ParkedProtocol::Apart(protocol), state)
            }
            ParkedProtocol::Http2(protocol, state) => {
                ParkedProtocol::Http2(self.http2.borrow_mut().insert(*protocol), state)
            }
        }
    }

    fn insert(&self, id: ConnectionId, parked: ParkedConnection<S, T, O, P>) {
        let mut all = self.slots.borrow_mut();
        if all.len() <= id as usize {
            all.resize_with(id as usize + 1, || None);
        }
        all[id as usize] = Some(parked);
    }

    /// Removes one. Releases capacity when the table is empty.
    fn remove(&self, id: ConnectionId) -> Option<ParkedConnection<S, T, O, P>> {
        let mut all = self.slots.borrow_mut();
        let parked = all.get_mut(id as usize)?.take();
        let used = all.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        all.truncate(used);
        if used == 0 {
            all.shrink_to(CAPACITY_MIN);
        }
        parked
    }
}

impl<S: Detach, T: Service, O: Observer, P: 'static> connection_table::Resume for ParkedConnections<S, T, O, P> {
    fn resume(self: Rc<Self>, id: ConnectionId) {
        let Some(ParkedConnection { transport, protocol, app, permit }) = self.remove(id) else { return };
        let protocol = match protocol {
            ParkedProtocol::Http1(state) => ParkedProtocol::Http1(state),
            ParkedProtocol::Http2(place, state) => {
                let stored = self.http2.borrow_mut().remove(place);
                ParkedProtocol::Http2(stored.expect("a parked connection has a state"), state)
            }
        };
        let ParkedTransport { mut link, ends, shared } = transport;
        let worker = app.worker.clone();
        link.unpark(&worker);
        let transport = Transport::new(link, ends, id, worker, shared).resumed();
        let connection = match protocol {
            ParkedProtocol::Http1(state) => {
                ActiveConnection::Http1(Rc::new(http1::Connection::resumed(transport, state)))
            }
            ParkedProtocol::Http2(protocol, state) => {
                ActiveConnection::Http2(Rc::new(http2::Connection::resumed(transport, protocol, state)))
            }
        };
        (self.start)(connection, app, permit);
    }

    fn clear(&self) {
        drop(self.slots.take());
        drop(self.http2.take());
    }
}
