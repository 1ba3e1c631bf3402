//! Requests of a serving process to its supervisor.

use crate::process::ListenAddress;
use crate::process::link::{FromChild, Link, SocketBatch, ToChild};
use crate::process::lock::lock;
use selvedge::Listener;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

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
            (ToChild::Control | ToChild::Start(_) | ToChild::Counts { .. }, _) => {}
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
