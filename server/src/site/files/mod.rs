//! Files of a site, from a path to a response.
//!
//! `root` opens beneath the root and nowhere else, `resolve` finds what a path names,
//! `directories` knows where nothing stands beside a file, `resource` keeps what is known of
//! a file, `cache` keeps resources, `answer` decides what is sent of one.

mod answer;
pub(super) mod cache;
pub(super) mod directories;
mod failure;
mod mime;
mod multipart;
pub(super) mod resolve;
mod resource;
pub(super) mod root;

use super::action::Sidecars;
use cache::{Cache, Owner};
use directories::Directories;
pub(super) use failure::Failure;
pub(super) use resolve::Place;
use resolve::{Found, Patience, resolve};
pub(super) use resource::Resource;
use resource::{CHECK_INTERVAL, Freshness};
use selvedge::proto::field::Fields;
use selvedge::proto::path::SafePath;
use selvedge::{Method, Request, Response, Status, offload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What all files of a worker are remembered in.
pub(super) type SharedCache = Rc<RefCell<Cache>>;

/// One worker's files of one root.
pub(super) struct Files {
    place: RefCell<Place>,
    /// When the root was last seen to be what its path leads to.
    root_checked: Cell<Duration>,
    cache: SharedCache,
    owner: Owner,
    directories: Rc<Directories>,
}

impl Files {
    pub(super) fn new(place: Place, cache: SharedCache) -> Self {
        let owner = cache.borrow_mut().new_owner();
        let directories = cache.borrow().directories.clone();
        Self { place: RefCell::new(place), root_checked: Cell::default(), cache, owner, directories }
    }

    /// The root, which is looked for by its path as often as files are.
    fn current_place(&self, now: Duration) -> Place {
        if now.saturating_sub(self.root_checked.get()) >= CHECK_INTERVAL {
            self.root_checked.set(now);
            let root = self.place.borrow().root.of_now();
            if let Ok(root) = root
                && !Arc::ptr_eq(&root, &self.place.borrow().root)
            {
                self.place.borrow_mut().root = root;
                self.cache.borrow_mut().forget(self.owner);
                self.directories.forget(self.owner);
            }
        }
        self.place.borrow().clone()
    }

    /// A file that was found by this path a moment ago, and when.
    pub(super) fn recall(&self, now: Duration, path: &[u8]) -> Option<(Rc<Resource>, Duration)> {
        let cache = self.cache.borrow();
        let cached = cache.get(self.owner, path)?;
        let is_current = cached.resource.is_fresh(cached.checked, now) && cached.resource.is_as_known();
        is_current.then(|| (cached.resource.clone(), cached.checked))
    }

    /// Finds what a path names: from the cache when it is still so, else from the disk. `raw`
    /// is how the path was written.
    pub(super) async fn find(&self, now: Duration, raw: &[u8], path: &SafePath) -> Result<Found, Failure> {
        let mut place = self.current_place(now);
        let (owner, root) = (self.owner, place.root.clone());
        let has_none = match place.sidecars {
            Sidecars::On => self.directories.have_no_compressed(owner, &root, path, now),
            Sidecars::Off => Some(true),
        };
        if has_none == Some(true) {
            place.sidecars = Sidecars::Off;
        }
        let known = self.cache.borrow().get(owner, raw).map(|cached| cached.resource.clone());
        let known_states = known.as_ref().map(|resource| resource.states());
        // What is in memory already is looked at here; only what needs the disk goes to a
        // thread that may wait for it.
        let loaded = match resolve(&place, path, Patience::None, known_states.as_ref()) {
            Err(Failure::WouldWait) => {
                let path = path.clone();
                offload(move || resolve(&place, &path, Patience::Waits, known_states.as_ref()))
                    .await
                    .unwrap_or(Err(Failure::Ended))
            }
            done => done,
        };
        let found = match loaded {
            Ok(found) => found,
            Err(failure) => {
                self.cache.borrow_mut().remove(owner, raw);
                return Err(failure);
            }
        };
        if has_none.is_none() && matches!(found, resolve::Loaded::Unchanged | resolve::Loaded::File(_)) {
            self.directories.learn(owner, &root, path, now).await;
        }
        Ok(match found {
            resolve::Loaded::Unchanged => {
                let resource = known.ok_or(Failure::Ended)?;
                self.cache.borrow_mut().renew(owner, raw, now);
                Found::File(resource)
            }
            resolve::Loaded::File(parts) => {
                let resource = Rc::new(Resource::new(parts));
                // Only the plain way to write a path is remembered, so that nobody can fill the
                // cache with many ways to write one.
                if resource.freshness == Freshness::Settled && path.encode().as_bytes() == raw {
                    self.cache.borrow_mut().insert(owner, raw, resource.clone(), now);
                } else {
                    self.cache.borrow_mut().remove(owner, raw);
                }
                Found::File(resource)
            }
            resolve::Loaded::DirectoryWithoutSlash => Found::DirectoryWithoutSlash,
            resolve::Loaded::Directory(directory) => Found::Directory(directory, root),
        })
    }

    /// The answer for a file that was just found.
    pub(super) async fn respond(&self, request: &Request, resource: &Resource) -> Response {
        answer::respond(request, resource).await
    }
}

/// The answer when somebody remembers a file for the path of a request, and it was looked at
/// a moment ago.
pub(super) fn respond_from_cache(cache: &SharedCache, owner: Owner, request: &Request) -> Option<Response> {
    if !matches!(request.method(), Method::Get | Method::Head) {
        return None;
    }
    let now = request.moment().since_start;
    let cache = cache.borrow();
    let cached = cache.get(owner, request.path_bytes())?;
    if !cached.resource.is_fresh(cached.checked, now) {
        return None;
    }
    answer::respond_at_once(request, &cached.resource)
}

/// Has somebody remember a file that was looked at by then for a path, with changed fields.
pub(super) fn remember_dressed(
    cache: &SharedCache,
    (owner, raw): (Owner, &[u8]),
    (resource, checked): (&Resource, Duration),
    dress: impl Fn(&mut Fields),
) {
    if resource.freshness == Freshness::Settled {
        cache.borrow_mut().insert(owner, raw, Rc::new(resource.dressed(dress)), checked);
    }
}

/// All of a file as the content of an answer with this status, whatever the request asked of
/// the file; without what tells one state of it from another.
pub(super) fn respond_as_page(request: &Request, resource: &Resource, status: Status) -> Response {
    answer::page(request, resource, status)
}
