//! The listener of metrics, served by a worker of its own.

use crate::process::{ListenAddress, ListenError, ServingProcess};
use crate::site::MetricsSlot;
use crate::snapshot::Snapshot;
use selvedge::service::{CloseReason, Closed};
use selvedge::{Eviction, Handle, Limits, Listener, Observer, Request, RunningServer, Server};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Connections that are served at once.
const CONNECTIONS_MAX: usize = 32;
/// Time for a request. A scraper sends it at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Shortest time between two lines of the log about evicted connections.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Where metrics are read. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct MetricsEndpoint {
    address: ListenAddress,
    /// The endpoint, for people.
    text: String,
    listeners: Arc<Mutex<Vec<Listener>>>,
    handle: Arc<OnceLock<Handle>>,
    evictions: Evictions,
}

/// Counts the connections that were closed for new ones. Clones share the counts.
#[derive(Clone, Debug, Default)]
struct Evictions {
    count: Arc<AtomicU64>,
    reported_at: Arc<Mutex<Option<Instant>>>,
}

impl Evictions {
    /// Returns the number of evictions since the last report, if one is due.
    fn due_at(&self, now: Instant) -> Option<u64> {
        let mut reported_at = self.reported_at.lock().unwrap_or_else(PoisonError::into_inner);
        if reported_at.is_some_and(|reported| now.saturating_duration_since(reported) < REPORT_INTERVAL) {
            return None;
        }
        let count = Some(self.count.swap(0, Ordering::Relaxed)).filter(|count| *count > 0)?;
        *reported_at = Some(now);
        Some(count)
    }
}

impl Observer for Evictions {
    fn closed(&self, closed: &Closed) {
        if closed.reason == CloseReason::Evicted {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A running server of metrics. It ends on drop.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    /// The endpoint, for people.
    text: String,
    running: Option<RunningServer>,
}

impl MetricsEndpoint {
    /// Binds the address of a configuration; `None` if it has none.
    ///
    /// # Errors
    /// If it cannot be bound.
    pub(crate) fn bind(snapshot: &Snapshot, serving: &ServingProcess) -> Result<Option<Self>, ListenError> {
        let Some(listener) = &snapshot.settings.metrics else { return Ok(None) };
        let address = ListenAddress::from(listener);
        let failed = |why| ListenError { address: listener.address.clone(), why };
        let listeners = serving.bind(&address).map_err(failed)?;
        let endpoints: Vec<_> = listeners.iter().map(|listener| listener.endpoint().to_string()).collect();
        let (listeners, handle) = (Arc::new(Mutex::new(listeners)), Arc::default());
        let evictions = Evictions::default();
        Ok(Some(Self { address, text: endpoints.join(" and "), listeners, handle, evictions }))
    }

    pub(crate) fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Starts to respond.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(&self, slot: Arc<MetricsSlot>) -> io::Result<MetricsServer> {
        let listeners = std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner));
        let limits = Limits {
            connections_max: CONNECTIONS_MAX,
            header_timeout: REQUEST_TIMEOUT,
            body_timeout: REQUEST_TIMEOUT,
            ..Limits::default()
        };
        // Clients that send no request must not keep a scraper away.
        let server = Server::from_listeners(listeners, 1).limits(limits).eviction(Eviction::IdleOrIncompleteHead);
        let server = server.observe(self.evictions.clone());
        let running = server.serve_each(move || {
            let slot = slot.clone();
            async move |request: &mut Request| slot.respond(request).await.no_log_reason()
        })?;
        // It starts once.
        let _ = self.handle.set(running.handle());
        Ok(MetricsServer { text: self.text.clone(), running: Some(running) })
    }

    /// Returns a text for the log if connections were closed for new ones, at most once a minute.
    pub(crate) fn eviction_report(&self) -> Option<String> {
        let count = self.evictions.due_at(Instant::now())?;
        let clients =
            format!("clients have all {CONNECTIONS_MAX} connections of the listener of metrics at {}", self.text);
        Some(format!("{clients}; closed for new ones without a request: {count}"))
    }

    /// Stops accepting.
    pub(crate) fn stop(&self) {
        self.handle.get().into_iter().for_each(Handle::stop);
    }
}

impl MetricsServer {
    /// Returns where clients reach it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.handle().stop();
            running.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_are_reported_once_a_minute_with_their_count() {
        let (evictions, began) = (Evictions::default(), Instant::now());
        let evict = |count| evictions.count.fetch_add(count, Ordering::Relaxed);
        assert_eq!(evictions.due_at(began), None);
        evict(3);
        assert_eq!(evictions.due_at(began), Some(3));
        evict(2);
        assert_eq!(evictions.due_at(began + REPORT_INTERVAL / 2), None);
        evict(1);
        assert_eq!(evictions.due_at(began + REPORT_INTERVAL), Some(3));
        assert_eq!(evictions.due_at(began + REPORT_INTERVAL * 3), None);
    }
}
