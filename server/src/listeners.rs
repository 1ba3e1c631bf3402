//! The listeners of the server: all configured addresses are bound, or none.
//!
//! A listener that stays from one configuration to the next is not touched, so no connecting client is refused.

use crate::config::model::{Listener as ListenerSettings, Switch};
use crate::process::{ListenAddress, ListenError, ServingProcess};
use selvedge::{Endpoint, Handle, Listener};
use std::io;

/// The current listeners, by configured address.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerSet {
    open: Vec<(ListenAddress, Vec<Endpoint>)>,
    /// The listeners of remote commands and of metrics, which other servers of this process use.
    kept: Vec<ListenAddress>,
}

/// A planned change of listeners, with all new ones bound.
#[derive(Debug)]
pub(crate) struct ListenerChange {
    next: ListenerSet,
    new: Vec<Listener>,
}

impl ListenerSet {
    /// Returns no listeners, beside those of other servers, which stay bound.
    pub(crate) fn beside(kept: Vec<ListenAddress>) -> Self {
        Self { open: Vec::new(), kept }
    }

    /// Binds the new addresses.
    ///
    /// # Errors
    /// Each address that cannot be bound; the others are released.
    pub(crate) fn plan_change(
        &self,
        serving_process: &ServingProcess,
        wanted: &[ListenerSettings],
    ) -> Result<ListenerChange, Vec<ListenError>> {
        let (mut next, mut new, mut problems) = (Self::beside(self.kept.clone()), Vec::<Listener>::new(), Vec::new());
        for listener in wanted {
            let address = ListenAddress::from(listener);
            match serving_process.bind(&address) {
                Ok(listeners) => {
                    let endpoints = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
                    next.open.push((address, endpoints));
                    // Two names may resolve to one address.
                    let is_known = |endpoint: &Endpoint| {
                        self.is_open(endpoint) || new.iter().any(|other| other.endpoint() == endpoint)
                    };
                    let unknown: Vec<_> =
                        listeners.into_iter().filter(|listener| !is_known(listener.endpoint())).collect();
                    new.extend(unknown);
                }
                Err(why) => problems.push(ListenError { address: listener.address.clone(), why }),
            }
        }
        if problems.is_empty() {
            return Ok(ListenerChange { next, new });
        }
        // Restores the mode of a Unix socket before others are released.
        self.open.iter().for_each(|(address, _)| drop(serving_process.bind(address)));
        self.release_unlisted(serving_process);
        Err(problems)
    }

    /// Returns all endpoints in the order of the settings.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.open.iter().flat_map(|(_, endpoints)| endpoints)
    }

    /// Returns the endpoints with TLS of these settings.
    pub(crate) fn endpoints_with_tls(&self, settings: &[ListenerSettings]) -> Vec<Endpoint> {
        self.endpoints_where(settings, |listener| listener.tls == Switch::On)
    }

    /// Returns the endpoints of these settings that accept HTTP/2 without TLS.
    pub(crate) fn endpoints_with_plain_http2(&self, settings: &[ListenerSettings]) -> Vec<Endpoint> {
        self.endpoints_where(settings, |listener| listener.plain_http2 == Switch::On)
    }

    /// Returns the endpoints of these settings whose connections begin with a header of the PROXY protocol.
    pub(crate) fn endpoints_with_proxy_header(&self, settings: &[ListenerSettings]) -> Vec<Endpoint> {
        self.endpoints_where(settings, |listener| listener.proxy_protocol == Switch::On)
    }

    fn endpoints_where(
        &self,
        settings: &[ListenerSettings],
        matches: impl Fn(&ListenerSettings) -> bool,
    ) -> Vec<Endpoint> {
        let matching = settings.iter().filter(|listener| matches(listener)).map(ListenAddress::from);
        let matching: Vec<_> = matching.collect();
        let open = self.open.iter().filter(|(address, _)| matching.contains(address));
        open.flat_map(|(_, endpoints)| endpoints).cloned().collect()
    }

    /// Removes listeners that are no longer configured.
    pub(crate) fn remove_unlisted(&self, serving_process: &ServingProcess, server: &Handle) {
        let released = self.release_unlisted(serving_process);
        server.remove_listeners(released.iter().filter(|endpoint| !self.is_open(endpoint)));
    }

    fn release_unlisted(&self, serving_process: &ServingProcess) -> Vec<Endpoint> {
        let mut addresses = serving_process.addresses();
        let used = |address: &ListenAddress| self.open.iter().any(|(open, _)| open == address);
        addresses.retain(|address| !used(address) && !self.kept.contains(address));
        addresses.iter().flat_map(|address| serving_process.release(address)).collect()
    }

    fn is_open(&self, endpoint: &Endpoint) -> bool {
        self.endpoints().any(|open| open == endpoint)
    }
}

impl ListenerChange {
    /// Returns the listeners after the change.
    pub(crate) fn next(&self) -> &ListenerSet {
        &self.next
    }

    /// Returns the new listeners, for a server that starts with them.
    pub(crate) fn into_parts(self) -> (ListenerSet, Vec<Listener>) {
        (self.next, self.new)
    }

    /// Applies the change to a running server.
    ///
    /// # Errors
    /// If file descriptors run out; listeners added until then stay.
    pub(crate) fn apply(self, serving_process: &ServingProcess, server: &Handle) -> io::Result<ListenerSet> {
        self.new.into_iter().try_for_each(|listener| server.add_listener(listener))?;
        self.next.remove_unlisted(serving_process, server);
        Ok(self.next)
    }
}
