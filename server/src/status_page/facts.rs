//! What the page needs of a running server.

use crate::status::ServerStatus;
use std::collections::BTreeMap;

/// Names of certificates, and the last second in which each is valid, in Unix time.
pub(crate) type CertificateExpiry = BTreeMap<String, i64>;

/// What the page shows beside requests and certificates.
#[derive(Clone, Debug)]
pub(crate) struct PageFacts {
    pub(crate) status: ServerStatus,
    /// Requests per second in the last minute, the oldest first.
    pub(crate) request_rates: Vec<f64>,
}

/// The state of a running server.
pub(crate) trait LiveFacts: Send + Sync {
    /// Returns the status; `None` after the server has stopped. Waits for workers at most one second.
    fn facts(&self) -> Option<PageFacts>;

    /// Returns when certificates expire; `None` after the server has stopped.
    fn certificates(&self) -> Option<CertificateExpiry>;
}
