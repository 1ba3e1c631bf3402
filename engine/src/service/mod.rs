//! The interface between server and application.
//!
//! An application is a function from a request to a response. This module knows no sockets, no
//! runtime and no details of an HTTP version. Connections and sites both depend on it and never
//! on each other.

mod admission;
mod body;
mod error_hook;
mod exchange;
mod phase_times;
mod request;
mod request_id;
mod response;
mod upstream;

pub use crate::file::{FileContent, FileStamp, OpenFile};
pub use crate::peer::{Duplex, StoppingFuture, TlsInfo, UNIX_PEER};
pub use crate::response_lease::ResponseLease;
pub use crate::splice_pipe::SplicePipe;
pub use admission::Admission;
pub(crate) use admission::AdmissionHook;
pub use body::{
    Body, Chunks, ContentError, ContentSource, IncomingBody, StreamError, StreamId, UpgradeHandler, UpgradeResponse,
};
pub use error_hook::EngineError;
pub(crate) use error_hook::ErrorHook;
pub use exchange::{CloseReason, Closed, Exchange, Phase, ResponseOutcome, ServerEvent};
pub use phase_times::{PhaseTimes, RequestPhase};
pub use request::{
    CacheUse, DryRun, LogRule, Request, Timestamp, authority, cache_use, dry_run, hold_until_sent, local_address,
    log_rule, observer_note, received_query, replace_query, route_tag, send_interim, set_cache_use, set_dry_run,
    set_log_rule, set_observer_note, set_route_tag, set_upstream, upstream_of,
};
pub(crate) use request::{ConnectionExtensions, InterimSender, LogInfo, RequestInner};
pub use request_id::{known_request_id, request_id, set_request_id};
#[doc(hidden)]
pub use response::PAGE_STYLE;
pub use response::Response;
pub(crate) use response::{FieldList, spare_fields};
pub use upstream::{UpstreamFacts, UpstreamRecord};

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// An application: a function from a request to a response.
///
/// Each worker owns a clone and calls it only on its own thread, so neither the service nor its
/// futures need locks. A call is infallible: a failure is also a response. If it panics, the
/// client gets a 500 if the response has not started, and its connection is closed. Over HTTP/2, only
/// its stream ends. Other connections are not affected.
///
/// A future that computes for a long time delays all other connections of its worker.
pub trait Service: 'static {
    /// Processes one request.
    fn call(&self, request: &mut Request) -> impl Future<Output = Response>;

    /// Returns whether a request is cancelled when its client shuts down its sending side before
    /// the response.
    fn half_closed(&self) -> HalfClosed {
        HalfClosed::Continue
    }

    /// Returns whether the service stores state for each connection.
    fn uses_connection_extensions(&self) -> bool {
        false
    }

    /// Returns whether clients may open streams of other protocols on a connection of HTTP/2 (RFC 8441), which browsers do
    /// for WebSocket. Such a request has the method CONNECT, a path, and the protocol's name in Upgrade
    /// ([`selvedge_proto::head::RequestHead::is_extended_connect`]). [`Body::Upgrade`] accepts it. Default: they may not.
    fn accepts_extended_connect(&self) -> bool {
        false
    }

    /// Returns whether requests get a handle to send interim responses (1xx) before the response.
    fn sends_interim(&self) -> bool {
        false
    }

    /// Returns whether responses to heads that are refused (400, 408, 414, 417, 431, 501, 505), in which the service has no
    /// part, have the field Server. Read once. Default: they have it.
    fn has_server_field_in_refusals(&self) -> bool {
        true
    }
}

/// Whether a request is cancelled when its client shuts down its sending side. TCP does not show
/// whether such a client has disconnected or only sends no further request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HalfClosed {
    /// The application continues, and its response is sent to the client, which may still read.
    Continue,
    /// The application's future is dropped, so that no work is done for a disconnected client.
    #[default]
    Cancel,
}

/// Receives finished requests, closed connections and server events, for log, metrics and status.
///
/// The worker calls it after the response was sent; it must not block. Each worker owns a clone.
///
/// ```no_run
/// use selvedge::service::{Exchange, ServerEvent};
/// use selvedge::{Observer, Request, Response, Server, StatusCode};
///
/// #[derive(Clone)]
/// struct ErrorLog;
///
/// impl Observer for ErrorLog {
///     fn finished(&self, exchange: &Exchange<'_>) {
///         if let Some(reject) = exchange.reject {
///             eprintln!("{} refused with {}: {}", exchange.peer, exchange.status.code(), reject.message());
///         }
///     }
///
///     fn event(&self, event: &ServerEvent) {
///         if let ServerEvent::Panic { message, .. } = event {
///             eprintln!("panic: {message}");
///         }
///     }
///
///     fn reports_panics(&self) -> bool {
///         true
///     }
/// }
///
/// let app = async |_: &mut Request| Response::new(StatusCode::OK).body("Hello!");
/// Server::bind("127.0.0.1:3000")?.observe(ErrorLog).serve(app)?.join();
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Observer: 'static {
    /// Returns whether [`Exchange::elapsed`] is wanted, which costs two clock reads per request.
    fn wants_elapsed(&self) -> bool {
        false
    }

    /// Called after a request was responded to or rejected, or its response was aborted.
    fn finished(&self, _exchange: &Exchange<'_>) {}

    /// Called after the TLS handshake of a connection was complete. `took` is its time since the connection was accepted,
    /// if [`Observer::wants_elapsed`] returns true.
    fn handshake(&self, _tls: &TlsInfo, _took: Option<Duration>) {}

    /// Called after a connection was closed.
    fn closed(&self, _closed: &Closed) {}

    /// Called when an event of the server itself occurs.
    fn event(&self, _event: &ServerEvent) {}

    /// Returns whether the observer reports [`ServerEvent::Panic`]. Otherwise (the default), the panic hook of the process
    /// gets panics of the application, too, and prints them to standard error, unless the application has set another
    /// hook. Called once for each worker.
    fn reports_panics(&self) -> bool {
        false
    }

    /// Called at most about 4 times per second while the worker has connections, and once before
    /// it ends. Use it to flush buffered data.
    fn tick(&self) {}
}

/// An observer that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// Shares one observer between the parts of a worker.
impl<O: Observer> Observer for Rc<O> {
    fn wants_elapsed(&self) -> bool {
        (**self).wants_elapsed()
    }

    fn finished(&self, exchange: &Exchange<'_>) {
        (**self).finished(exchange);
    }

    fn handshake(&self, tls: &TlsInfo, took: Option<Duration>) {
        (**self).handshake(tls, took);
    }

    fn closed(&self, closed: &Closed) {
        (**self).closed(closed);
    }

    fn event(&self, event: &ServerEvent) {
        (**self).event(event);
    }

    fn reports_panics(&self) -> bool {
        (**self).reports_panics()
    }

    fn tick(&self) {
        (**self).tick();
    }
}

impl<F> Service for F
where
    F: AsyncFn(&mut Request) -> Response + 'static,
{
    async fn call(&self, request: &mut Request) -> Response {
        self(request).await
    }
}
