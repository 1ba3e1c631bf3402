//! The task of a connection, from its start to its close reason.

use crate::connection::app_context::AppContext;
use crate::connection::close::{has_stalled, may_read_more};
use crate::connection::http1::{self, Exit};
use crate::connection::start::{Protocol, start};
use crate::connection::timeouts::abort_reason;
use crate::connection::transport::Transport;
use crate::connection::{parked, send_queue, upgraded};
use crate::net::connection_table::{ConnectionId, Interrupt};
use crate::net::link::Link;
use crate::net::panic;
use crate::net::raw::ShutdownMode;
use crate::net::runtime::spawn_local;
use crate::net::stream::{Detach, Stream};
use crate::service::{CloseReason, Closed, Observer, ServerEvent, Service};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};

/// Serves one connection until its end and reports it. `id` is its entry in the connection table. `permit` is dropped
/// at the end.
pub(crate) fn run<S: Detach, T: Service, O: Observer>(
    link: Link<S>,
    peer: SocketAddr,
    id: ConnectionId,
    app: Rc<AppContext<T, O>>,
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    // Constructed outside the future, which would otherwise reserve space for the arguments as well.
    let transport = Transport::new(link, peer, id, app.worker.clone(), app.shared.clone());
    run_connection(Rc::new(http1::Connection::new(transport)), app, permit)
}

/// Starts the task of a resumed connection.
fn start_task<S: Detach, T: Service, O: Observer, P: 'static>(
    connection: Rc<http1::Connection<S>>,
    app: Rc<AppContext<T, O>>,
    permit: P,
) {
    spawn_local(run_connection(connection, app, permit));
}

/// Runs a new or resumed connection until its end.
#[expect(clippy::manual_async_fn, reason = "an async fn stores its arguments twice, as long as the connection lasts")]
fn run_connection<S: Detach, T: Service, O: Observer>(
    connection: Rc<http1::Connection<S>>,
    app: Rc<AppContext<T, O>>,
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    async move {
        let reason = match serve_with_interrupts(&connection, &app).await {
            Exit::Closed(reason) => reason,
            Exit::Parked => return parked::park(connection, app, permit, start_task),
        };
        // Wakes a body reader in a task of the application, which gets the end of the content now.
        connection.wake_reader();
        let transport = &connection.transport;
        let mut closed = Closed {
            peer: transport.peer,
            reason,
            phase: transport.timeouts.phase(),
            requests: connection.requests.get(),
        };
        let id = transport.timeouts.id;
        if reason == CloseReason::Upgraded {
            closed.reason = Box::pin(upgraded::run_upgraded(connection, app.shared.app_state.get())).await;
        } else {
            let mut is_stalled = has_stalled(reason, closed.phase);
            if may_read_more(reason) && !send_queue::release(transport) {
                Box::pin(send_queue::drain_and_release(transport)).await;
                is_stalled = !send_queue::release(transport);
            }
            if is_stalled {
                transport.link.shutdown(ShutdownMode::ResetOnClose);
            } else {
                transport.link.close_session();
            }
            drop(connection);
        }
        app.observer.closed(&closed);
        app.worker.remove_connection(id);
        drop(permit);
    }
}

/// Starts and serves a connection, and ends it on an abort interrupt or a panic.
async fn serve_with_interrupts<S: Detach, T: Service, O: Observer>(
    connection: &Rc<http1::Connection<S>>,
    app: &AppContext<T, O>,
) -> Exit {
    let transport = &connection.transport;
    let mut starting = start(transport);
    let mut serving = pin!(http1::serve(connection, app));
    poll_fn(|cx| {
        match transport.timeouts.worker.connections.register_waker(transport.timeouts.id, cx.waker()) {
            Interrupt::Abort => return Poll::Ready(Exit::Closed(abort_reason(&transport.timeouts.worker))),
            // A task of the application may be waiting for content.
            Interrupt::TimedOut => connection.wake_reader(),
            Interrupt::None | Interrupt::Evict | Interrupt::Drain | Interrupt::Park => {}
        }
        if let Some(start) = &mut starting {
            match ready!(start.as_mut().poll(cx)) {
                Ok(Protocol::Http1) => starting = None,
                Err(reason) => return Poll::Ready(Exit::Closed(reason)),
            }
        }
        panic::catch(|| serving.as_mut().poll(cx)).unwrap_or_else(|message| {
            app.observer.event(&ServerEvent::Panic { peer: transport.peer, message });
            Poll::Ready(Exit::Closed(CloseReason::Panicked))
        })
    })
    .await
}
