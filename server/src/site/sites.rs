//! The way of a request through all sites: host, gates, route, action, fields.
//!
//! A file that the path alone leads to is remembered under its site and path, fields and
//! all, so that the next request for it takes the short way: the site by its host, the
//! client's gates, the file by its path. Every other request walks; see [`super::walk`].

use super::files::cache::{Cache, Owner};
use super::files::{self, Files, SharedCache};
use super::gate::{Verdict, Verifier};
use super::headers;
use super::listing;
use super::table::{Site, SiteTable};
use super::walk::Walk;
use selvedge::proto::head::Framing;
use selvedge::{Request, Response, Service, Status};
use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

/// One worker's view of all sites.
pub(crate) struct Sites {
    table: Arc<SiteTable>,
    pub(super) cache: SharedCache,
    /// Who remembers the files of each site under the paths that led to them.
    ways: Box<[Owner]>,
    /// The files of each place, once somebody has asked for one.
    places: Box<[OnceCell<Files>]>,
    pub(super) lists: listing::Lists,
    pub(super) verifier: Verifier,
}

/// A request that has come to its site.
pub(super) struct Entered<'t> {
    pub(super) site: &'t Site,
    /// Who remembers the files of this site.
    pub(super) way: Owner,
    pub(super) client: IpAddr,
    /// What the gates say that need not wait.
    pub(super) verdict: Verdict,
}

impl Sites {
    /// One worker's view; so many `workers` share what the process may hold open.
    pub(crate) fn new(table: Arc<SiteTable>, workers: usize) -> Self {
        let mut cache = Cache::new(workers);
        Self {
            ways: (0..table.len()).map(|_| cache.new_owner()).collect(),
            places: table.places.iter().map(|_| OnceCell::new()).collect(),
            cache: Rc::new(RefCell::new(cache)),
            lists: listing::Lists::new(),
            verifier: Verifier::new(table.passwords_at_once.clone()),
            table,
        }
    }

    /// The files of a place.
    pub(super) fn files(&self, number: u32) -> &Files {
        let number = number as usize;
        self.places[number].get_or_init(|| {
            let place = &self.table.places[number];
            Files::new(place.root.clone(), place.index.clone(), self.cache.clone())
        })
    }

    /// Finds the site of a request and its client, and asks the gates that need not wait.
    fn enter(&self, request: &mut Request) -> Option<Entered<'_>> {
        let (number, site) = self.table.site_of(request)?;
        request.set_label(site.rules.label);
        let client = match &site.rules.proxies {
            None => request.peer().ip(),
            Some(proxies) => {
                let client = proxies.client_of(request);
                request.set_client(client);
                client
            }
        };
        let verdict = site.rules.gates.admit_client(client);
        Some(Entered { site, way: self.ways[number as usize], client, verdict })
    }

    /// The answer with a file that the path alone leads to, when it was asked for a moment ago.
    fn respond_by_path(&self, request: &Request, entered: &Entered<'_>) -> Option<Response> {
        let is_open = matches!(entered.verdict, Verdict::Pass) && entered.site.rules.gates.basic.is_none();
        if !is_open || request.head().framing != Framing::None {
            return None;
        }
        // Errors have a page and fields of their own.
        files::respond_from_cache(&self.cache, entered.way, request).filter(headers::is_of_file)
    }
}

impl Service for Sites {
    async fn call(&self, request: &mut Request) -> Response {
        let Some(entered) = self.enter(request) else {
            return Response::error(Status::MISDIRECTED_REQUEST).because("no site has this name");
        };
        // Returned early, so that the future keeps no room for it while it waits.
        if let Some(response) = self.respond_by_path(request, &entered) {
            return response;
        }
        Box::pin(Walk::new(self, &entered).finish(request, entered.verdict)).await
    }
}
