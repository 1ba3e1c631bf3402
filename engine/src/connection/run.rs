//! The task of a connection, from its start to its close reason.

use crate::connection::app_context::AppContext;
use crate::connection::close::{has_stalled, may_read_more};
use crate::connection::http1::{self, LoopExit};
use crate::connection::transport::Connection;
use crate::connection::{parked, upgraded};
use crate::net::connection_table::{ConnectionId, Interrupt};
use crate::net::panic;
use crate::net::raw::ShutdownMode;
use crate::net::runtime::spawn_local;
use crate::net::stream::Detach;
use crate::service::{CloseReason, Closed, Observer, ServerEvent, Service};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Serves one connection until its end and reports it. `id` is its entry in the connection table. `permit` is dropped
/// at the end.
pub(crate) fn run<S: Detach, T: Service, O: Observer>(
    stream: S,
    peer: SocketAddr,
    id: ConnectionId,
    app: Rc<AppContext<T, O>>,
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    // Constructed outside the future, which would otherwise reserve space for the arguments as well.
    let connection = Connection::new(stream, peer, id, app.worker.clone(), app.shared.clone());
    run_connection(Rc::new(connection), app, permit)
}

/// Starts the task of a resumed connection.
fn start_task<S: Detach, T: Service, O: Observer, P: 'static>(
    connection: Rc<Connection<S>>,
    app: Rc<AppContext<T, O>>,
    permit: P,
) {
    spawn_local(run_connection(connection, app, permit));
}

/// Runs a new or resumed connection until its end.
#[expect(clippy::manual_async_fn, reason = "an async fn stores its arguments twice, as long as the connection lasts")]
fn run_connection<S: Detach, T: Service, O: Observer>(
    connection: Rc<Connection<S>>,
    app: Rc<AppContext<T, O>>,
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    async move {
        let reason = match poll_with_interrupts(&connection, &app).await {
            LoopExit::Ended(reason) => reason,
            LoopExit::Parked => return parked::park(connection, app, permit, start_task),
        };
        // Wakes a body reader in a task of the application, which gets the end of the content now.
        connection.wake_reader();
        let mut closed =
            Closed { peer: connection.peer(), reason, phase: connection.phase(), requests: connection.requests() };
        let id = connection.id();
        if reason == CloseReason::Upgraded {
            closed.reason = Box::pin(upgraded::run_upgraded(connection, app.shared.app_state.get())).await;
        } else {
            let mut is_stalled = has_stalled(reason, closed.phase);
            if may_read_more(reason) && !connection.release_large_send_buffer() {
                Box::pin(connection.drain_send_queue()).await;
                is_stalled = !connection.release_large_send_buffer();
            }
            if is_stalled {
                connection.stream.shutdown(ShutdownMode::ResetOnClose);
            }
            drop(connection);
        }
        app.observer.closed(&closed);
        app.worker.remove_connection(id);
        drop(permit);
    }
}

/// Polls the request loop, and ends it on an abort interrupt or a panic.
async fn poll_with_interrupts<S: Detach, T: Service, O: Observer>(
    connection: &Rc<Connection<S>>,
    app: &AppContext<T, O>,
) -> LoopExit {
    let mut serving = pin!(http1::serve(connection, app));
    let table = &connection.worker.connections;
    std::future::poll_fn(|cx| {
        match table.register_waker(connection.id(), cx.waker()) {
            Interrupt::Abort => return Poll::Ready(LoopExit::Ended(connection.abort_reason())),
            // A task of the application may be waiting for content.
            Interrupt::TimedOut => {
                connection.wake_reader();
            }
            Interrupt::None | Interrupt::Evict | Interrupt::Drain | Interrupt::Park => {}
        }
        panic::catch(|| serving.as_mut().poll(cx)).unwrap_or_else(|message| {
            app.observer.event(&ServerEvent::Panic { peer: connection.peer(), message });
            Poll::Ready(LoopExit::Ended(CloseReason::Panicked))
        })
    })
    .await
}
