//! What the sites share on one worker.

use super::access::Verifier;
use super::files::cache::FileCache;
use super::files::{Files, SharedFileCache};
#[cfg(feature = "configuration")]
use super::gateway::GatewayState;
use super::listing;
use super::methods::SlashRedirect;
#[cfg(feature = "configuration")]
use super::proxy::{ProxyWorker, start_checks};
use super::route_table::RouteTable;
use super::step_recorder::StepRecorder;
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The caches and limits of one worker, for all sites.
pub(super) struct SiteState {
    pub(super) routes: Arc<RouteTable>,
    pub(super) cache: SharedFileCache,
    /// The files of each document root, created at its first use.
    files_by_root: Box<[OnceCell<Files>]>,
    pub(super) listing_limits: listing::ListingLimits,
    pub(super) verifier: Verifier,
    #[cfg(feature = "configuration")]
    pub(super) gateway: GatewayState,
    pub(super) slash_redirect: SlashRedirect,
    /// The port of https, if a listener has TLS.
    pub(super) https_port: Option<u16>,
    /// The connections to servers of applications, if a route forwards requests.
    #[cfg(feature = "configuration")]
    pub(super) proxy: Option<Rc<ProxyWorker>>,
    /// Records the decisions on a request that is only explained.
    pub(super) recorder: Option<StepRecorder>,
}

impl SiteState {
    pub(super) fn new(routes: Arc<RouteTable>, cache: FileCache) -> Self {
        let state = Self::without_checks(routes, cache);
        #[cfg(feature = "configuration")]
        if let Some(worker) = &state.proxy {
            state.routes.upstreams.iter().for_each(|upstream| start_checks(worker, upstream));
        }
        state
    }

    /// Creates the state for one request that is only explained. No server is checked.
    pub(super) fn recording(routes: Arc<RouteTable>, cache: FileCache) -> Self {
        Self { recorder: Some(StepRecorder::default()), ..Self::without_checks(routes, cache) }
    }

    fn without_checks(routes: Arc<RouteTable>, cache: FileCache) -> Self {
        Self {
            files_by_root: routes.document_roots.iter().map(|_| OnceCell::new()).collect(),
            cache: Rc::new(RefCell::new(cache)),
            listing_limits: listing::ListingLimits::new(),
            verifier: Verifier::new(routes.password_cache.clone()),
            #[cfg(feature = "configuration")]
            gateway: GatewayState::default(),
            slash_redirect: SlashRedirect::Absolute,
            https_port: None,
            #[cfg(feature = "configuration")]
            proxy: (!routes.upstreams.is_empty()).then(|| ProxyWorker::current(&routes.client_limits)),
            recorder: None,
            routes,
        }
    }

    /// Returns the connections to servers of applications.
    ///
    /// # Panics
    /// If no route forwards requests.
    #[cfg(feature = "configuration")]
    pub(super) fn proxy(&self) -> &Rc<ProxyWorker> {
        self.proxy.as_ref().expect("a route that forwards requests created it")
    }

    /// Returns the files of a document root.
    pub(super) fn files(&self, number: u32) -> &Files {
        let number = number as usize;
        self.files_by_root[number].get_or_init(|| {
            let root = &self.routes.document_roots[number];
            let files = Files::new(root.clone(), self.cache.clone(), self.routes.coder.clone());
            files.with_recorder(self.recorder.clone())
        })
    }
}
