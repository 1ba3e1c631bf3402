//! What the gateways of one worker share: connections, and copies of addresses.

use super::connection::ScriptConnection;
use super::error::GatewayError;
use super::rules::{GatewayTimeouts, ScriptServer};
use crate::site::proxy::AddressCell;
use selvedge::client::{Address, Client, ClientLimits, ClientTimeouts, Destination, RetrySafety};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The addresses of a server, and the version of its cell when they were read.
type KnownAddresses = (u64, Arc<[Address]>);

/// The gateways of one worker.
#[derive(Debug, Default)]
pub(in crate::site) struct GatewayState {
    /// A client for each bound of idle connections.
    clients: RefCell<HashMap<u32, Client>>,
    /// The addresses of each server when they were last read, by the address of their cell. A cell lives as long as the
    /// rules of the worker.
    addresses: RefCell<HashMap<usize, KnownAddresses>>,
}

impl GatewayState {
    /// Opens a connection to a server, or takes an idle one.
    pub(super) async fn connect(
        &self,
        server: &ScriptServer,
        timeouts: &GatewayTimeouts,
        record: &selvedge::service::UpstreamRecord,
    ) -> Result<ScriptConnection, GatewayError> {
        let client = self.client(server.idle_connections_max);
        let timeouts = ClientTimeouts {
            connect: timeouts.connect,
            response: timeouts.response,
            silence: timeouts.silence,
            ..ClientTimeouts::default()
        };
        let mut failure = GatewayError::NoAddress;
        for address in &*self.addresses_of(&server.addresses) {
            let text: Rc<str> = address.to_string().into();
            record.update(|facts| (facts.address, facts.tries) = (text, facts.tries + 1));
            let began = Instant::now();
            let opened = client.open(&Destination::plain(address.clone()), &timeouts).await;
            record.update(|facts| facts.connect_time = Some(began.elapsed()));
            match opened {
                Ok(stream) => return Ok(ScriptConnection::Server(stream)),
                Err(error) => {
                    let may_try_next = error.retry == RetrySafety::NotSent;
                    failure = error.into();
                    if !may_try_next {
                        break;
                    }
                }
            }
        }
        Err(failure)
    }

    fn client(&self, idle_connections_max: u32) -> Client {
        let create = || {
            let idle_per_destination_max = idle_connections_max as usize;
            Client::new(ClientLimits { idle_per_destination_max, ..ClientLimits::default() })
        };
        self.clients.borrow_mut().entry(idle_connections_max).or_insert_with(create).clone()
    }

    /// Returns the addresses of a cell. Takes its lock only if they have changed.
    fn addresses_of(&self, cell: &Arc<AddressCell>) -> Arc<[Address]> {
        let mut known = self.addresses.borrow_mut();
        let entry = known.entry(Arc::as_ptr(cell).addr()).or_insert_with(|| (0, Arc::from([])));
        if entry.0 != cell.version() {
            *entry = cell.load();
        }
        entry.1.clone()
    }
}
