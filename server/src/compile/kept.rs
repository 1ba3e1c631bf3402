//! What a configuration leaves to the next one: gates that count, what is known of passwords,
//! and roots that are open.

use crate::site::{ConnectionGate, Passwords, RateGate, Root};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the next configuration goes on with where it says the same.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// By what was said of them and of what.
    pub(super) rates: HashMap<String, Arc<RateGate>>,
    pub(super) connections: Option<(String, Arc<ConnectionGate>)>,
    /// What is known of passwords, whatever was said.
    pub(super) passwords: Arc<Passwords>,
    /// Each opened once, however many sites and configurations it is the root of.
    pub(super) roots: HashMap<PathBuf, Arc<Root>>,
}

impl Kept {
    /// Nothing yet but what holds under every configuration.
    pub(super) fn after(earlier: &Self) -> Self {
        Self { passwords: earlier.passwords.clone(), ..Self::default() }
    }

    /// The root of a path, where it is one.
    pub(crate) fn root(&self, path: &Path) -> Option<&Root> {
        self.roots.get(path).map(|root| &**root)
    }

    /// What admits connections, if anything is asked.
    pub(crate) fn connections(&self) -> Option<&Arc<ConnectionGate>> {
        self.connections.as_ref().map(|(_, gate)| gate)
    }
}
