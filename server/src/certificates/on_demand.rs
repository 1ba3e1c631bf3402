//! Certificates for names that the configuration does not have: a program or a URL approves a name when the first client
//! wants it, and the client waits until the certificate is there.

use super::approval::Approval;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// Most names that wait for an approval or a certificate.
const WAITING_MAX: usize = 256;
/// Most refused names that are remembered, and for how many seconds.
const REFUSED_MAX: usize = 10_000;
const REFUSED_SECONDS: i64 = 60;

/// Names that clients wait for.
#[derive(Debug, Default)]
pub(super) struct OnDemand {
    names: Mutex<OnDemandNames>,
    /// Notified when a name is new.
    wake: Notify,
}

#[derive(Debug, Default)]
struct OnDemandNames {
    /// Dropping the sender wakes the clients.
    waiting: HashMap<String, watch::Sender<()>>,
    /// Names without a decision.
    new: Vec<(String, Arc<Approval>)>,
    /// Names that were refused, until a time in Unix seconds.
    refused: HashMap<String, i64>,
}

impl OnDemand {
    fn lock(&self) -> MutexGuard<'_, OnDemandNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a client that waits for a name. Returns what completes when the name was handled; `None` if it is not.
    pub(super) fn wait(&self, name: &str, approval: &Arc<Approval>, now: i64) -> Option<watch::Receiver<()>> {
        let names = &mut *self.lock();
        if let Some(sender) = names.waiting.get(name) {
            return Some(sender.subscribe());
        }
        if names.refused.get(name).is_some_and(|until| *until > now) || names.waiting.len() >= WAITING_MAX {
            return None;
        }
        let (sender, receiver) = watch::channel(());
        names.waiting.insert(name.to_owned(), sender);
        names.new.push((name.to_owned(), approval.clone()));
        self.wake.notify_one();
        Some(receiver)
    }

    /// Waits for new names.
    pub(super) async fn next(&self) -> Vec<(String, Arc<Approval>)> {
        loop {
            let new = self.take_new();
            if !new.is_empty() {
                return new;
            }
            self.wake.notified().await;
        }
    }

    fn take_new(&self) -> Vec<(String, Arc<Approval>)> {
        std::mem::take(&mut self.lock().new)
    }

    /// Wakes the clients of a name.
    pub(super) fn finish(&self, name: &str) {
        self.lock().waiting.remove(name);
    }

    /// Wakes the clients of a name, and remembers for a while that it was refused.
    pub(super) fn refuse(&self, name: &str, now: i64) {
        let names = &mut *self.lock();
        if names.refused.len() >= REFUSED_MAX {
            names.refused.retain(|_, until| *until > now);
        }
        if names.refused.len() < REFUSED_MAX {
            names.refused.insert(name.to_owned(), now + REFUSED_SECONDS);
        }
        names.waiting.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn clients_of_a_name_wait_for_one_approval() {
        let on_demand = OnDemand::default();
        let approval = Arc::new(Approval::Program(PathBuf::from("/bin/true")));
        let first = on_demand.wait("a.example", &approval, 0).unwrap();
        let second = on_demand.wait("a.example", &approval, 0).unwrap();
        assert_eq!(on_demand.take_new().len(), 1);
        assert!(first.has_changed().is_ok());
        on_demand.refuse("a.example", 0);
        assert!(first.has_changed().is_err() && second.has_changed().is_err());
        assert!(on_demand.wait("a.example", &approval, REFUSED_SECONDS - 1).is_none());
        assert!(on_demand.wait("a.example", &approval, REFUSED_SECONDS).is_some());
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let on_demand = OnDemand::default();
        let approval = Arc::new(Approval::Program(PathBuf::from("/bin/true")));
        let waiting: Vec<_> =
            (0..=WAITING_MAX).map(|n| on_demand.wait(&format!("{n}.example"), &approval, 0)).collect();
        assert_eq!(waiting.iter().flatten().count(), WAITING_MAX);
        (0..2 * REFUSED_MAX).for_each(|n| on_demand.refuse(&format!("{n}.example"), 0));
        assert_eq!(on_demand.lock().refused.len(), REFUSED_MAX);
        on_demand.refuse("late.example", REFUSED_SECONDS);
        assert_eq!(on_demand.lock().refused.len(), 1);
    }
}
