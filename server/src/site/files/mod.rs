//! Files of a site, from a path to a response.
//!
//! `root` opens files beneath the root and nowhere else. `resolve` finds what a path names. `directories`
//! caches which directories have no precompressed files. `resource` has a file's representations. `cache`
//! caches resources. `response` decides what to send.

pub(super) mod cache;
pub(super) mod cache_key;
pub(super) mod directories;
mod error;
mod loaded;
mod mime;
mod multipart;
pub(super) mod resolve;
mod resource;
mod response;
pub(super) mod root;

use super::action::Precompressed;
use cache::FileCache;
use cache_key::CacheNamespace;
use directories::DirectoryCache;
pub(super) use error::FileError;
pub(super) use resolve::DocumentRoot;
use resolve::{DiskAccess, Resolved, resolve};
pub(super) use resource::Resource;
use resource::Stability;
pub(super) use resource::fresh_until;
use selvedge::proto::path::SafePath;
use selvedge::{Method, Request, Response, StatusCode, spawn_blocking};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The file cache of a worker.
pub(super) type SharedFileCache = Rc<RefCell<FileCache>>;

/// The files of one document root on one worker.
pub(super) struct Files {
    document_root: RefCell<DocumentRoot>,
    /// The time at which the root's path is checked again for a replaced directory.
    root_fresh_until: Cell<Duration>,
    cache: SharedFileCache,
    namespace: CacheNamespace,
    directories: Rc<DirectoryCache>,
}

impl Files {
    pub(super) fn new(document_root: DocumentRoot, cache: SharedFileCache) -> Self {
        let namespace = cache.borrow_mut().new_namespace();
        let directories = cache.borrow().directories.clone();
        Self {
            document_root: RefCell::new(document_root),
            root_fresh_until: Cell::default(),
            cache,
            namespace,
            directories,
        }
    }

    /// Returns the document root. If it is not fresh, reopens its path if another directory is there.
    fn current_root(&self, now: Duration) -> DocumentRoot {
        if now >= self.root_fresh_until.get() {
            self.root_fresh_until.set(fresh_until(now));
            let root = self.document_root.borrow().root.current();
            if let Ok(root) = root
                && !Arc::ptr_eq(&root, &self.document_root.borrow().root)
            {
                self.document_root.borrow_mut().root = root;
                self.cache.borrow_mut().remove_namespace(self.namespace);
                self.directories.remove_namespace(self.namespace);
            }
        }
        self.document_root.borrow().clone()
    }

    /// Returns a fresh and unchanged file of the cache, and the time until which it is fresh.
    pub(super) fn get_cached(&self, now: Duration, path: &[u8]) -> Option<(Rc<Resource>, Duration)> {
        let cache = self.cache.borrow();
        let entry = cache.get(self.namespace, path)?;
        let is_current = now < entry.fresh_until && entry.resource.is_unchanged();
        is_current.then(|| (entry.resource.clone(), entry.fresh_until))
    }

    /// Resolves a path from the cache, or from the disk if the cached file has changed. `canonical` is its canonical
    /// spelling, the only one that is cached: clients could fill the cache with spellings of one path.
    pub(super) async fn resolve(
        &self,
        now: Duration,
        canonical: &[u8],
        path: &SafePath,
    ) -> Result<Resolved, FileError> {
        let mut document_root = self.current_root(now);
        let (namespace, root) = (self.namespace, document_root.root.clone());
        let has_no_precompressed = match document_root.precompressed {
            Precompressed::On => self.directories.has_no_precompressed(namespace, &root, path, now),
            Precompressed::Off => Some(true),
        };
        if has_no_precompressed == Some(true) {
            document_root.precompressed = Precompressed::Off;
        }
        let known_resource = self.cache.borrow().get(namespace, canonical).map(|entry| entry.resource.clone());
        let known_stamps = known_resource.as_ref().map(|resource| resource.stamps());
        // Whatever is in memory is read on this thread. Only disk accesses go to a blocking thread.
        let loaded = match resolve(&document_root, path, DiskAccess::CachedOnly, known_stamps.as_ref()) {
            Err(FileError::WouldBlock) => {
                let path = path.clone();
                spawn_blocking(move || resolve(&document_root, &path, DiskAccess::MayBlock, known_stamps.as_ref()))
                    .await
                    .unwrap_or(Err(FileError::ShuttingDown))
            }
            result => result,
        };
        let outcome = match loaded {
            Ok(outcome) => outcome,
            Err(error) => {
                self.cache.borrow_mut().remove(namespace, canonical);
                return Err(error);
            }
        };
        if has_no_precompressed.is_none()
            && matches!(outcome, resolve::LoadOutcome::Unchanged | resolve::LoadOutcome::File(_))
        {
            self.directories.load(namespace, &root, path, now).await;
        }
        Ok(match outcome {
            resolve::LoadOutcome::Unchanged => {
                let resource = known_resource.ok_or(FileError::ShuttingDown)?;
                self.cache.borrow_mut().mark_checked(namespace, canonical, now);
                Resolved::File(resource)
            }
            resolve::LoadOutcome::File(file) => {
                let resource = Rc::new(Resource::new(file));
                if resource.stability == Stability::Stable {
                    self.cache.borrow_mut().insert(namespace, canonical, resource.clone(), now);
                } else {
                    self.cache.borrow_mut().remove(namespace, canonical);
                }
                Resolved::File(resource)
            }
            resolve::LoadOutcome::DirectoryWithoutSlash => Resolved::DirectoryWithoutSlash,
            resolve::LoadOutcome::Directory(directory) => Resolved::Directory(directory, root),
        })
    }

    /// Responds with a file that was resolved for this request.
    pub(super) async fn respond(&self, request: &Request, resource: &Resource) -> Response {
        response::respond(request, resource).await
    }
}

/// Responds from the cache, if it has a fresh file for the request path.
pub(super) fn respond_from_cache(
    cache: &SharedFileCache,
    namespace: CacheNamespace,
    request: &Request,
) -> Option<Response> {
    if !matches!(request.method(), Method::Get | Method::Head) {
        return None;
    }
    let now = request.received_at().since_worker_start;
    let cache = cache.borrow();
    let cached = cache.response(namespace, request.path_bytes())?;
    if now >= cached.fresh_until {
        return None;
    }
    response::respond_if_unchanged(request, &*cached.resource.upgrade()?, cached.changed_fields.as_deref())
}

/// Responds with a whole file under an error status, regardless of preconditions and ranges, and without
/// validators.
pub(super) fn respond_as_error_page(request: &Request, resource: &Resource, status: StatusCode) -> Response {
    response::error_page(request, resource, status)
}
