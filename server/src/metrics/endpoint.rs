//! The listener of metrics, served by a worker of its own.

use crate::process::{ListenAddress, ListenError, ServingProcess};
use crate::site::MetricsSlot;
use crate::snapshot::Snapshot;
use selvedge::{Handle, Limits, Listener, Request, RunningServer, Server};
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Connections that are served at once.
const CONNECTIONS_MAX: usize = 32;

/// Where metrics are read. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct MetricsEndpoint {
    address: ListenAddress,
    /// The endpoint, for people.
    text: String,
    listeners: Arc<Mutex<Vec<Listener>>>,
    handle: Arc<OnceLock<Handle>>,
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
        Ok(Some(Self { address, text: endpoints.join(" and "), listeners, handle }))
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
        let limits = Limits { connections_max: CONNECTIONS_MAX, ..Limits::default() };
        let server = Server::from_listeners(listeners, 1).limits(limits);
        let running = server.serve_each(move || {
            let slot = slot.clone();
            async move |request: &mut Request| slot.respond(request).await.no_log_reason()
        })?;
        // It starts once.
        let _ = self.handle.set(running.handle());
        Ok(MetricsServer { text: self.text.clone(), running: Some(running) })
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
