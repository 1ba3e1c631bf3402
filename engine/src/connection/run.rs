//! The task of a connection, from its start to its close reason.

use crate::connection::app_context::AppContext;
use crate::connection::close::{has_stalled, may_read_more};
use crate::connection::exit::{Exit, FirstProtocol};
use crate::connection::parked::ActiveConnection;
use crate::connection::start::{Protocol, start};
use crate::connection::timeouts::abort_reason;
use crate::connection::transport::Transport;
use crate::connection::{http1, http2, parked, send_queue, upgraded};
use crate::net::connection_table::{ConnectionId, Interrupt};
use crate::net::link::Link;
use crate::net::panic;
use crate::net::raw::ShutdownMode;
use crate::net::runtime::spawn_local;
use crate::net::stream::{Detach, Stream};
use crate::peer::Ends;
use crate::service::{CloseReason, Closed, Observer, ServerEvent, Service};
use selvedge_proto::http2::ExtendedConnect;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Serves one connection until its end and reports it. `id` is its entry in the connection table. `permit` is dropped
/// at the end.
pub(crate) fn run<S: Detach, T: Service, O: Observer>(
    link: Link<S>,
    ends: Ends,
    (id, first_protocol): (ConnectionId, FirstProtocol),
    app: Rc<AppContext<T, O>>,
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    // Constructed outside the future, which would otherwise reserve space for the arguments as well.
    let transport = Transport::new(link, ends, id, app.worker.clone(), app.shared.clone());
    if app.observer.wants_elapsed() {
        transport.marks.accept();
    }
    run_connection(Rc::new(http1::Connection::new(transport, first_protocol)), app, permit)
}

/// Starts the task of a resumed connection.
fn start_task<S: Detach, T: Service, O: Observer, P: 'static>(
    connection: ActiveConnection<S>,
    app: Rc<AppContext<T, O>>,
    permit: P,
) {
    match connection {
        ActiveConnection::Http1(connection) => drop(spawn_local(run_connection(connection, app, permit))),
        ActiveConnection::Http2(connection) => drop(spawn_local(run_http2(connection, app, permit))),
    }
}

/// Runs a new or resumed connection until its end.
#[expect(clippy::manual_async_fn, reason = "an async fn stores its arguments twice, as long as the connection lasts")]
fn run_connection<S: Detach, T: Service, O: Observer>(
    connection: Rc<http1::Connection<S>>,
    app: Rc<AppContext<T, O>>,
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    async move {
        let reason = match serve_http1(&connection, &app).await {
            Exit::Closed(reason) => reason,
            Exit::Parked => return parked::park(ActiveConnection::Http1(connection), app, permit, start_task),
            Exit::Http2 => {
                let connection =
                    Rc::into_inner(connection).expect("only requests of HTTP/1 hold it, and none has begun");
                let transport = connection.into_transport();
                let connection = Rc::new(http2::Connection::new(transport, extended_connect(&app.service)));
                return Box::pin(run_http2(connection, app, permit)).await;
            }
        };
        // Wakes a body reader in a task of the application, which gets the end of the content now.
        connection.wake_reader();
        let closed = closed(&connection.transport, reason, connection.requests.get());
        if reason == CloseReason::Upgraded {
            let id = connection.transport.timeouts.id;
            let reason = Box::pin(upgraded::run_upgraded(connection, app.shared.app_state.get())).await;
            report_close(&Closed { reason, ..closed }, id, &app);
        } else {
            close(&connection.transport, &closed, &app).await;
            drop(connection);
        }
        drop(permit);
    }
}

/// Returns whether clients may open streams of other protocols.
fn extended_connect(service: &impl Service) -> ExtendedConnect {
    if service.accepts_extended_connect() { ExtendedConnect::Enabled } else { ExtendedConnect::Disabled }
}

/// Runs a new or resumed HTTP/2 connection until its end.
#[expect(clippy::manual_async_fn, reason = "an async fn stores its arguments twice, as long as the connection lasts")]
fn run_http2<S: Detach, T: Service, O: Observer>(
    connection: Rc<http2::Connection<S>>,
    app: Rc<AppContext<T, O>>,
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    async move {
        let exit = {
            let mut serving = pin!(http2::serve(&connection, &app));
            let transport = &connection.transport;
            poll_fn(|cx| {
                if let Interrupt::Abort = register(transport, cx) {
                    return Poll::Ready(Exit::Closed(abort_reason(&transport.timeouts.worker)));
                }
                poll_serving(transport, serving.as_mut(), &app, cx)
            })
            .await
        };
        let Exit::Closed(reason) = exit else {
            return parked::park(ActiveConnection::Http2(connection), app, permit, start_task);
        };
        // A reader may be a task of the application.
        connection.end_contents();
        let closed = closed(&connection.transport, reason, connection.requests.get());
        close(&connection.transport, &closed, &app).await;
        drop((connection, permit));
    }
}

/// Returns the record of a connection that ends.
fn closed<S: Stream>(transport: &Transport<S>, reason: CloseReason, requests: u32) -> Closed {
    Closed { peer: transport.ends.peer, reason, phase: transport.timeouts.phase(), requests }
}

/// Closes a connection and reports it.
async fn close<S: Stream, T, O: Observer>(transport: &Transport<S>, closed: &Closed, app: &AppContext<T, O>) {
    let mut is_stalled = has_stalled(closed.reason, closed.phase);
    if may_read_more(closed.reason) && !send_queue::release(transport) {
        Box::pin(send_queue::drain_and_release(transport)).await;
        is_stalled = !send_queue::release(transport);
    }
    if is_stalled {
        transport.link.shutdown(ShutdownMode::ResetOnClose);
    } else {
        transport.link.close_session();
    }
    report_close(closed, transport.timeouts.id, app);
}

fn report_close<T, O: Observer>(closed: &Closed, id: ConnectionId, app: &AppContext<T, O>) {
    app.observer.closed(closed);
    app.worker.remove_connection(id);
}

/// Registers the task for interrupts. Returns the pending one.
fn register<S: Stream>(transport: &Transport<S>, cx: &Context<'_>) -> Interrupt {
    transport.timeouts.worker.connections.register_waker(transport.timeouts.id, cx.waker())
}

/// Polls a protocol. A panic ends the connection.
fn poll_serving<S: Stream, T, O: Observer>(
    transport: &Transport<S>,
    serving: Pin<&mut impl Future<Output = Exit>>,
    app: &AppContext<T, O>,
    cx: &mut Context<'_>,
) -> Poll<Exit> {
    panic::catch(|| serving.poll(cx)).unwrap_or_else(|message| {
        app.observer.event(&ServerEvent::Panic { peer: transport.ends.peer, message });
        Poll::Ready(Exit::Closed(CloseReason::Panicked))
    })
}

/// Starts and serves a connection, and ends it on an abort interrupt or a panic.
async fn serve_http1<S: Detach, T: Service, O: Observer>(
    connection: &Rc<http1::Connection<S>>,
    app: &AppContext<T, O>,
) -> Exit {
    let transport = &connection.transport;
    let mut starting = start(transport);
    let mut serving = pin!(http1::serve(connection, app));
    poll_fn(|cx| {
        match register(transport, cx) {
            Interrupt::Abort => return Poll::Ready(Exit::Closed(abort_reason(&transport.timeouts.worker))),
            // A task of the application may be waiting for content.
            Interrupt::TimedOut => connection.wake_reader(),
            Interrupt::None | Interrupt::Evict | Interrupt::Drain | Interrupt::Park | Interrupt::AbortStreams => {}
        }
        if let Some(start) = &mut starting {
            let started = ready!(start.as_mut().poll(cx));
            if started.is_ok()
                && let Some(tls) = transport.link.tls_info()
            {
                app.observer.handshake(&tls, transport.marks.end_handshake());
            }
            match started {
                Ok(Protocol::Http1) => starting = None,
                Ok(Protocol::Http2) => return Poll::Ready(Exit::Http2),
                Err(reason) => return Poll::Ready(Exit::Closed(reason)),
            }
        }
        poll_serving(transport, serving.as_mut(), app, cx)
    })
    .await
}
