//! A limit of request content in dry-run mode: content beyond it is counted, and permitted.

use super::access::DenialCounter;
use selvedge::Request;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The log reason of content beyond such a limit.
pub(super) const DRY_RUN_TOO_LARGE: &str = "the request content is too large (dry run)";

/// A limit of request content in dry-run mode.
#[derive(Debug)]
pub(crate) struct BodyDryRun {
    bytes_max: u64,
    denials: DenialCounter,
}

/// Whether the content of a request was found to be longer than its limit in dry-run mode.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyExcess(Arc<AtomicBool>);

impl BodyDryRun {
    pub(crate) fn new(bytes_max: u64, denials: DenialCounter) -> Self {
        Self { bytes_max, denials }
    }

    /// Returns the counter of requests with more content.
    pub(super) fn denials(&self) -> &DenialCounter {
        &self.denials
    }

    /// Counts a request once it is known to have more content.
    pub(super) fn observe(self: &Arc<Self>, request: &mut Request) -> BodyExcess {
        let (excess, limit) = (BodyExcess::default(), self.clone());
        let noted = excess.clone();
        request.body().report_beyond(self.bytes_max, move || {
            limit.denials.increment();
            noted.0.store(true, Ordering::Relaxed);
        });
        excess
    }
}

impl BodyExcess {
    pub(super) fn is_found(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
