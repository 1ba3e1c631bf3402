//! What a configuration passes on to the next one: rate limits with their counts, verified passwords, and open roots.

#[cfg(feature = "program")]
use crate::certificates::{AutomaticCertificates, CertificatePaths, CertificateSet};
use crate::site::{ConnectionLimiter, PasswordCache, RateLimiter, Root};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// State that the next configuration continues with, if its settings are unchanged.
#[derive(Debug, Default)]
pub(crate) struct CarriedState {
    /// By the text of the setting and its site.
    pub(super) rates: HashMap<String, Arc<RateLimiter>>,
    pub(super) connections: Option<(String, Arc<ConnectionLimiter>)>,
    /// Verified passwords, independent of settings.
    pub(super) passwords: Arc<PasswordCache>,
    /// Each root is opened once for all sites and configurations.
    pub(super) roots: HashMap<PathBuf, Arc<Root>>,
    /// Certificates, by their files.
    #[cfg(feature = "program")]
    pub(super) certificates: HashMap<Vec<CertificatePaths>, Arc<CertificateSet>>,
    /// The certificates that the server gets by itself. A command that does not serve has none.
    #[cfg(feature = "program")]
    pub(super) automatic: Option<Arc<AutomaticCertificates>>,
}

impl CarriedState {
    /// Starts with the state that never depends on settings.
    pub(super) fn continue_from(earlier: &Self) -> Self {
        Self {
            passwords: earlier.passwords.clone(),
            #[cfg(feature = "program")]
            automatic: earlier.automatic.clone(),
            ..Self::default()
        }
    }

    /// Returns an open root by path.
    pub(crate) fn root(&self, path: &Path) -> Option<&Root> {
        self.roots.get(path).map(|root| &**root)
    }

    /// Creates the state of a server that starts.
    #[cfg(feature = "program")]
    pub(crate) fn serving(automatic: Arc<AutomaticCertificates>) -> Self {
        Self { automatic: Some(automatic), ..Self::default() }
    }

    /// Returns the certificates that the server gets by itself.
    #[cfg(feature = "program")]
    pub(crate) fn automatic(&self) -> Option<&Arc<AutomaticCertificates>> {
        self.automatic.as_ref()
    }

    /// Returns all certificates.
    #[cfg(feature = "program")]
    pub(crate) fn certificates(&self) -> impl Iterator<Item = &CertificateSet> {
        self.certificates.values().map(|set| &**set)
    }

    /// Returns the limit on connections per client, if set.
    pub(crate) fn connections(&self) -> Option<&Arc<ConnectionLimiter>> {
        self.connections.as_ref().map(|(_, limiter)| limiter)
    }
}
