//! An upgraded connection: another protocol uses it. The worker still counts it, requests its stop, and aborts it at
//! the end of a shutdown.

use crate::connection::app_context::AppState;
use crate::connection::http1::{Connection, PendingUpgrade};
use crate::connection::send_queue;
use crate::connection::timeouts::{HeldLease, abort_reason};
use crate::net::clock::Tick;
use crate::net::connection_table::{Deadline, Interrupt};
use crate::net::stream::Detach;
use crate::net::upgrade;
use crate::service::CloseReason;
use bytes::Bytes;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// Passes the connection to the upgrade handler, and waits for its end. Returns the close reason.
pub(super) async fn run_upgraded<S: Detach>(connection: Rc<Connection<S>>, app_state: AppState) -> CloseReason {
    // An earlier stop is checked here. A later one arrives as an interrupt.
    let timeouts = &connection.transport.timeouts;
    timeouts.wait_until(Deadline::Upgraded, Tick::MAX);
    let (worker, id) = (timeouts.worker.clone(), timeouts.id);
    let Some((transport, upgrade)) = Rc::into_inner(connection).and_then(Connection::into_upgraded) else {
        return CloseReason::ClosedAfterResponse;
    };
    let PendingUpgrade { handler, lease } = *upgrade;
    let held = lease.map(|lease| transport.timeouts.hold(lease));
    let is_current = app_state == AppState::Current && !worker.is_draining();
    let stops = !is_current && !held.as_ref().is_some_and(HeldLease::is_in_force);
    send_queue::reset(&transport);
    let first = Bytes::copy_from_slice(transport.input.borrow().bytes());
    let Ok((duplex, mut control)) = upgrade::split(transport.link, first) else { return CloseReason::Reset };
    if stops {
        control.announce_stop();
    }
    handler(duplex);
    poll_fn(|cx| {
        match worker.connections.register_waker(id, cx.waker()) {
            Interrupt::Abort => {
                control.abort();
                return Poll::Ready(abort_reason(&worker));
            }
            Interrupt::Drain => {
                control.announce_stop();
                worker.connections.clear_interrupt(id);
            }
            Interrupt::None | Interrupt::TimedOut | Interrupt::Evict | Interrupt::Park | Interrupt::AbortStreams => {}
        }
        control.poll_closed(cx).map(|()| CloseReason::Upgraded)
    })
    .await
}
