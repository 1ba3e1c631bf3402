//! Sockets of a serving process: its own, or those from its supervisor.

use super::{Parent, ServingProcess, lock};
use crate::process::ListenAddress;
use crate::process::link::{FromChild, Link, SocketBatch, ToChild};
use selvedge::{Endpoint, Listener};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

impl ServingProcess {
    /// Returns listeners for an address. Sockets that the process has already are duplicated.
    pub(crate) fn bind(&self, address: &ListenAddress) -> Result<Vec<Listener>, String> {
        let mut sockets = lock(&self.sockets);
        if let Parent::Supervisor { link, request_lock } = &self.parent
            && !sockets.bound().iter().any(|bound| bound.address == *address)
        {
            let mut pending = PendingListeners::default();
            let reply = call(link, request_lock, &FromChild::Bind { address: address.clone() }, &mut pending)?;
            reply?;
            sockets.remove(address);
            for (address, listener) in pending.listeners()? {
                sockets.add(address, listener);
            }
        }
        let clones = sockets.bind(address)?.iter().map(Listener::try_clone).collect::<io::Result<_>>();
        clones.map_err(|error| format!("cannot listen on {address}: {error}"))
    }

    /// Returns the addresses for which this process has sockets.
    pub(crate) fn addresses(&self) -> Vec<ListenAddress> {
        lock(&self.sockets).bound().iter().map(|bound| bound.address.clone()).collect()
    }

    /// Releases an address, and returns the endpoints that the server has to remove.
    pub(crate) fn release(&self, address: &ListenAddress) -> Vec<Endpoint> {
        match &self.parent {
            Parent::Supervisor { link, .. } => {
                let _ = link.send(&FromChild::Release { address: address.clone() });
                lock(&self.sockets).release(address)
            }
            Parent::None { .. } => lock(&self.sockets).close(address),
        }
    }
}

/// Sockets of listeners, as they arrive.
#[derive(Default)]
pub(super) struct PendingListeners(Vec<(ListenAddress, Vec<OwnedFd>)>);

impl PendingListeners {
    pub(super) fn add(&mut self, address: ListenAddress, batch: SocketBatch, sockets: Vec<OwnedFd>) {
        match self.0.last_mut() {
            Some((_, earlier)) if batch == SocketBatch::Later => earlier.extend(sockets),
            _ => self.0.push((address, sockets)),
        }
    }

    pub(super) fn listeners(self) -> Result<Vec<(ListenAddress, Listener)>, String> {
        let listeners = self.0.into_iter().map(|(address, sockets)| match Listener::from_sockets(sockets) {
            Ok(listener) => Ok((address, listener)),
            Err(error) => Err(format!("cannot listen on {address}: {error}")),
        });
        listeners.collect()
    }
}

/// Sends a request to the supervisor, and returns the reply with the sockets that preceded it.
pub(super) fn call(
    link: &Link,
    request_lock: &Mutex<()>,
    request: &FromChild,
    pending: &mut PendingListeners,
) -> Result<Result<String, String>, String> {
    let _one_at_a_time = lock(request_lock);
    link.send(request).map_err(|error| format!("the supervisor cannot be reached: {error}"))?;
    loop {
        match receive(link)? {
            (ToChild::Listener { address, batch }, descriptors) => pending.add(address, batch, descriptors),
            (ToChild::Done { text }, _) => return Ok(Ok(text)),
            (ToChild::Refused { text }, _) => return Ok(Err(text)),
            (ToChild::Control | ToChild::Start(_), _) => {}
        }
    }
}

pub(super) fn receive(link: &Link) -> Result<(ToChild, Vec<OwnedFd>), String> {
    match link.receive() {
        Ok(Some(reply)) => Ok(reply),
        Ok(None) => Err("the supervisor has ended".to_owned()),
        Err(error) => Err(format!("the supervisor cannot be heard: {error}")),
    }
}
