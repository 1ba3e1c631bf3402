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
use super::plain::SlashRedirect;
use super::table::{Gating, Site, SiteTable};
use super::walk::{Arrival, Walk};
use selvedge::proto::head::Framing;
use selvedge::{Request, Response, Service, Status};
use std::cell::{OnceCell, RefCell};
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
    pub(super) slash: SlashRedirect,
    /// The host of the last request, as it was written, and its site.
    last: RefCell<(Vec<u8>, u32)>,
}

/// What becomes of a request that has come.
enum Entered<'t> {
    /// It is answered.
    Answered(Response),
    /// It has its way before it.
    Walking(Walk<'t>),
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
            verifier: Verifier::new(table.passwords.clone()),
            slash: SlashRedirect::Absolute,
            last: RefCell::default(),
            table,
        }
    }

    /// With directories that are asked for without their slash sent there in this way.
    pub(crate) fn redirecting(self, slash: SlashRedirect) -> Self {
        Self { slash, ..self }
    }

    /// The site that a request is for, and its number. Most requests are for the host of the one
    /// before.
    fn site_of(&self, request: &Request) -> Option<(u32, &Site)> {
        let Some(authority) = request.authority() else { return self.table.site_of(None) };
        let mut last = self.last.borrow_mut();
        if last.0 == authority && !authority.is_empty() {
            return Some((last.1, self.table.site(last.1)));
        }
        let found = self.table.site_of(request.host())?;
        last.0.clear();
        last.0.extend_from_slice(authority);
        last.1 = found.0;
        Some(found)
    }

    /// The files of a place.
    pub(super) fn files(&self, number: u32) -> &Files {
        let number = number as usize;
        self.places[number].get_or_init(|| {
            let place = &self.table.places[number];
            Files::new(place.clone(), self.cache.clone())
        })
    }

    /// The answer with a file that the path alone leads to, when it was asked for a moment
    /// ago; else the way that the request has before it.
    fn enter(&self, request: &mut Request) -> Entered<'_> {
        let Some((number, site)) = self.site_of(request) else {
            let unknown = Response::error(Status::MISDIRECTED_REQUEST).because("no site has this name");
            return Entered::Answered(unknown);
        };
        request.set_label(site.rules.label);
        let client = match &site.rules.proxies {
            None => request.peer().ip(),
            Some(proxies) => {
                let client = proxies.client_of(request);
                request.set_client(client);
                client
            }
        };
        let way = self.ways[number as usize];
        let may_be_kept = site.rules.gates.basic.is_none() && request.head().framing == Framing::None;
        // Errors have a page and fields of their own. What is kept is of no route with gates of its own.
        let kept = may_be_kept.then(|| files::respond_from_cache(&self.cache, way, request)).flatten();
        let kept = kept.filter(headers::is_of_file);
        let verdict = match (site.gating, &kept) {
            (Gating::ByRoute, None) => return Entered::Walking(Walk::new(self, site, way, Arrival::new(client))),
            _ => site.rules.gates.admit_client(client),
        };
        match (kept, verdict) {
            (Some(response), Verdict::Pass) => Entered::Answered(response),
            (_, verdict) => Entered::Walking(Walk::new(self, site, way, Arrival::judged(client, verdict))),
        }
    }
}

impl Service for Sites {
    async fn call(&self, request: &mut Request) -> Response {
        // Boxed before it waits, so that nothing but the box is kept meanwhile.
        let walk = match self.enter(request) {
            Entered::Answered(response) => return response,
            Entered::Walking(walk) => Box::pin(walk.finish(request)),
        };
        walk.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F>(_: impl Fn(&'static Sites, &'static mut Request) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_keeps_no_room_for_a_walk() {
        let size = size_of_future(|sites, request| sites.call(request));
        assert!(size <= 64, "{size} bytes are set aside in every connection");
    }
}
