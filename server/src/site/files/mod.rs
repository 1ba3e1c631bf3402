//! Files of a site, from a path to a response.
//!
//! `root` opens beneath the root and nowhere else, `resolve` finds what a path names,
//! `resource` keeps what is known of a file, `cache` keeps resources, `answer` decides
//! what is sent of one.

mod answer;
pub(super) mod cache;
mod failure;
mod mime;
mod multipart;
pub(super) mod resolve;
mod resource;
pub(super) mod root;

use cache::Cache;
use failure::Failure;
use resolve::{Found, Patience, resolve};
use resource::{CHECK_INTERVAL, Freshness, Resource};
use root::Root;
use selvedge::proto::path::SafePath;
use selvedge::{Method, Request, Response, offload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// One worker's files.
pub(super) struct Files {
    root: RefCell<Arc<Root>>,
    /// When the root was last seen to be what its path leads to.
    root_checked: Cell<Duration>,
    cache: RefCell<Cache>,
    workers: usize,
}

impl Files {
    pub(super) fn new(root: Arc<Root>, workers: usize) -> Self {
        let cache = RefCell::new(Cache::new(workers));
        Self { root: RefCell::new(root), root_checked: Cell::default(), cache, workers }
    }

    /// The root, which is looked for by its path as often as files are.
    fn current_root(&self, now: Duration) -> Arc<Root> {
        if now.saturating_sub(self.root_checked.get()) >= CHECK_INTERVAL {
            self.root_checked.set(now);
            let successor = self.root.borrow().successor();
            if let Some(root) = successor {
                *self.root.borrow_mut() = Arc::new(root);
                *self.cache.borrow_mut() = Cache::new(self.workers);
            }
        }
        self.root.borrow().clone()
    }

    /// The answer when the path was asked for a moment ago: no file system call for a small
    /// file, one for a large one.
    pub(super) fn respond_from_cache(&self, request: &Request) -> Option<Response> {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return None;
        }
        let now = request.moment().since_start;
        let cache = self.cache.borrow();
        let cached = cache.get(request.path_bytes())?;
        if !cached.resource.is_fresh(cached.checked, now) {
            return None;
        }
        answer::respond_at_once(request, &cached.resource)
    }

    /// Finds what a path names: from the cache when it is still so, else from the disk.
    pub(super) async fn find(&self, request: &Request, path: &SafePath) -> Result<Found, Failure> {
        let now = request.moment().since_start;
        let raw = request.path_bytes();
        let root = self.current_root(now);
        let known = self.cache.borrow().get(raw).map(|cached| cached.resource.clone());
        let known_states = known.as_ref().map(|resource| resource.states());
        // What is in memory already is looked at here; only what needs the disk goes to a
        // thread that may wait for it.
        let loaded = match resolve(&root, path, Patience::None, known_states.as_ref()) {
            Err(Failure::WouldWait) => {
                let path = path.clone();
                offload(move || resolve(&root, &path, Patience::Waits, known_states.as_ref()))
                    .await
                    .unwrap_or(Err(Failure::Ended))
            }
            done => done,
        };
        let found = match loaded {
            Ok(found) => found,
            Err(failure) => {
                self.cache.borrow_mut().remove(raw);
                return Err(failure);
            }
        };
        Ok(match found {
            resolve::Loaded::Unchanged => {
                let resource = known.ok_or(Failure::Ended)?;
                self.cache.borrow_mut().renew(raw, now);
                Found::File(resource)
            }
            resolve::Loaded::File(parts) => {
                let name = if path.names_directory() { resolve::INDEX } else { path.name() };
                let resource = Rc::new(Resource::new(name, parts));
                // Only the plain way to write a path is remembered, so that nobody can fill the
                // cache with many ways to write one.
                if resource.freshness == Freshness::Settled && path.encode().as_bytes() == raw {
                    self.cache.borrow_mut().insert(raw, resource.clone(), now);
                } else {
                    self.cache.borrow_mut().remove(raw);
                }
                Found::File(resource)
            }
            resolve::Loaded::DirectoryWithoutSlash => Found::DirectoryWithoutSlash,
            resolve::Loaded::Directory(directory) => Found::Directory(directory),
        })
    }

    /// The answer for a file that was just found.
    pub(super) async fn respond(&self, request: &Request, resource: &Resource) -> Response {
        answer::respond(request, resource).await
    }
}
