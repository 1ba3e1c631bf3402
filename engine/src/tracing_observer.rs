//! An observer that reports to `tracing`.

use crate::service::{Closed, Exchange, Observer, ResponseOutcome, ServerEvent};
use tracing::{debug, error, info, warn};

/// Most bytes of a request line in an event.
const LINE_BYTES_MAX: usize = 256;

/// Reports what an application does not see as events of [`tracing`], with the target `selvedge`.
///
/// - INFO: requests that the server refuses (400, 408, 413, 431 and others), and connections that end for a cause.
/// - WARN: a limit of the server is reached.
/// - ERROR: failures and panics of the application.
///
/// Responses of the application without a reason are no events; a layer such as tower-http's `TraceLayer` reports them.
///
/// Each event has the address of the client as `peer`. The fields of an exchange are `status`, `request_line` and
/// `reason`.
///
/// ```no_run
/// # async fn run(app: axum::Router) -> std::io::Result<()> {
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
/// selvedge::serve(listener, app.into_make_service()).observe(selvedge::TracingObserver).await
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingObserver;

impl Observer for TracingObserver {
    fn finished(&self, exchange: &Exchange<'_>) {
        let reason = match (exchange.reject, exchange.reason) {
            (Some(reject), _) => reject.message(),
            (None, Some(reason)) => reason,
            // The head was refused; the end of its connection has the reason.
            (None, None) if exchange.request.is_none() => "the request was refused",
            (None, None) if exchange.outcome == ResponseOutcome::Aborted => {
                let (peer, status) = (exchange.peer, exchange.status.code());
                debug!(target: "selvedge", %peer, status, "response aborted");
                return;
            }
            (None, None) => return,
        };
        let line = &exchange.request_line[..exchange.request_line.len().min(LINE_BYTES_MAX)];
        let (peer, status, request_line) = (exchange.peer, exchange.status.code(), line.escape_ascii());
        match status {
            500.. => error!(target: "selvedge", %peer, status, %request_line, reason, "request failed"),
            _ => info!(target: "selvedge", %peer, status, %request_line, reason, "request refused"),
        }
    }

    fn closed(&self, closed: &Closed) {
        let (peer, reason, phase) = (closed.peer, closed.reason, closed.phase.explain());
        if closed.reason.is_ordinary() {
            debug!(target: "selvedge", %peer, %reason, phase, "connection closed");
        } else {
            info!(target: "selvedge", %peer, %reason, phase, "connection closed");
        }
    }

    fn reports_panics(&self) -> bool {
        true
    }

    fn event(&self, event: &ServerEvent) {
        match event {
            ServerEvent::Panic { peer, message } => {
                error!(target: "selvedge", %peer, message, "the application panicked");
            }
            ServerEvent::AcceptFailed { error } => {
                error!(target: "selvedge", error, "cannot accept connections");
            }
            ServerEvent::AcceptRecovered => info!(target: "selvedge", "connections are accepted again"),
            ServerEvent::ConnectionLimitReached { limit } => {
                warn!(target: "selvedge", limit, "the connection limit is reached");
            }
            ServerEvent::ConnectionLimitCleared => {
                info!(target: "selvedge", "the number of connections is below the limit again");
            }
            ServerEvent::UringUnavailable { error } => {
                info!(target: "selvedge", error, "io_uring is unavailable, so epoll is used");
            }
            ServerEvent::StreamsRefused { peer, error, count } => {
                info!(target: "selvedge", %peer, error = error.message(), count, "streams refused");
            }
            ServerEvent::ClientOverLimit { peer } => {
                info!(target: "selvedge", %peer, "the client has more connections than its limit");
            }
        }
    }
}
