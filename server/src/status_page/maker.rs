//! Makes the page and its events when they are requested.

use super::facts::{CertificateExpiry, LiveFacts};
use super::page;
use super::requests::RecentRequests;
use super::view::StatusView;
use crate::recorder::Recorder;
use crate::site::{StatusPageText, StatusSource};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the certificates are taken to be unchanged, because it takes time to read many.
const CERTIFICATES_UNCHANGED: Duration = Duration::from_secs(10);

/// Makes the page and its events.
pub(crate) struct PageMaker<F> {
    live: F,
    recorder: Option<Arc<Recorder>>,
    /// When certificates expire, and when that was read.
    certificates: Mutex<Option<(Instant, CertificateExpiry)>>,
}

impl<F: LiveFacts> PageMaker<F> {
    pub(crate) fn new(live: F, recorder: Option<Arc<Recorder>>) -> Self {
        Self { live, recorder, certificates: Mutex::new(None) }
    }

    /// Returns what the page shows now; `None` after the server has stopped.
    fn view(&self) -> Option<StatusView> {
        let (facts, certificates) = (self.live.facts()?, self.certificates()?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let requests = self.recorder.as_ref().map(|recorder| RecentRequests::of(recorder.numbers(), now));
        Some(StatusView::of(&facts, &certificates, (requests.as_ref(), now)))
    }

    fn certificates(&self) -> Option<CertificateExpiry> {
        // A panic while the lock is held leaves what was known.
        let mut known = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() >= CERTIFICATES_UNCHANGED) {
            *known = Some((Instant::now(), self.live.certificates()?));
        }
        known.as_ref().map(|(_, expiry)| expiry.clone())
    }
}

impl<F: LiveFacts> StatusSource for PageMaker<F> {
    fn page(&self) -> Option<StatusPageText> {
        self.view().map(|view| page::render(&view))
    }

    fn event(&self) -> Option<String> {
        self.view().map(|view| view.json())
    }
}
