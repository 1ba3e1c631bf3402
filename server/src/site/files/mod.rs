//! Files of a site, from a path to a response.
//!
//! `root` opens files beneath the root and nowhere else. `resolve` finds what a path names. `directories`
//! caches which directories have no precompressed files. `resource` has a file's representations. `cache`
//! caches resources. `encoded` compresses them, and `allowed_codings` tells if the site permits
//! it. `response` decides what to send.

mod allowed_codings;
pub(super) mod cache;
pub(super) mod cache_key;
mod content_hash;
pub(super) mod directories;
mod encoded;
mod error;
mod links;
mod loaded;
mod media_types;
mod mime;
mod multipart;
mod open;
pub(super) mod resolve;
mod resource;
mod response;
pub(super) mod root;

use super::files_rules::{Compress, Precompressed};
use super::single_flight::SingleFlight;
use super::step_recorder::StepRecorder;
pub(super) use allowed_codings::AllowedCodings;
use cache::FileCache;
use cache_key::CacheNamespace;
use directories::DirectoryCache;
pub(super) use error::FileError;
use loaded::KnownStamps;
pub(super) use resolve::DocumentRoot;
use resolve::{DiskAccess, LoadOutcome, Resolved, resolve};
pub(super) use resource::Resource;
use resource::Stability;
pub(super) use resource::fresh_until;
use selvedge::proto::path::SafePath;
use selvedge::{ContentCoder, Method, Request, Response, StatusCode, spawn_blocking};
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
    /// The reads of files that are not in memory, by canonical path.
    disk_reads: SingleFlight<Box<[u8]>, ()>,
    /// Compresses files, if the root is served compressed.
    coder: Option<ContentCoder>,
    /// Records which paths are looked up, for an explanation.
    recorder: Option<StepRecorder>,
}

impl Files {
    pub(super) fn new(document_root: DocumentRoot, cache: SharedFileCache, coder: ContentCoder) -> Self {
        let namespace = cache.borrow_mut().new_namespace();
        let directories = cache.borrow().directories.clone();
        Self {
            coder: (document_root.compress == Compress::On).then_some(coder),
            document_root: RefCell::new(document_root),
            root_fresh_until: Cell::default(),
            cache,
            namespace,
            directories,
            disk_reads: SingleFlight::default(),
            recorder: None,
        }
    }

    /// Sets what records which paths are looked up.
    pub(super) fn with_recorder(self, recorder: Option<StepRecorder>) -> Self {
        Self { recorder, ..self }
    }

    /// Returns what records which paths are looked up.
    pub(super) fn recorder(&self) -> Option<&StepRecorder> {
        self.recorder.as_ref()
    }

    /// Returns the directory of the root.
    pub(super) fn root_path(&self) -> std::path::PathBuf {
        self.document_root.borrow().root.path().to_owned()
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
        // Whatever is in memory is read on this thread. Only disk accesses go to a blocking thread.
        let resolved = match self.load_from_memory(&document_root, canonical, path) {
            // A root that always waits would make concurrent requests wait for each other.
            Loaded { known, outcome: Err(FileError::WouldBlock) } if !document_root.root.knows_what_is_in_memory() => {
                self.read_from_disk(now, &document_root, (canonical, path), known).await
            }
            Loaded { known, outcome: Err(FileError::WouldBlock) } => {
                // Boxed, so that the future of a request has no room for it.
                Box::pin(self.read_once_from_disk(now, &document_root, (canonical, path), known)).await
            }
            loaded => self.store(now, &document_root, canonical, loaded),
        };
        if has_no_precompressed.is_none() && matches!(resolved, Ok(Resolved::File(_))) {
            Box::pin(self.directories.load(namespace, &document_root.root, path, now)).await;
        }
        resolved
    }

    /// Resolves a path on a thread that may wait for the disk.
    async fn read_from_disk(
        &self,
        now: Duration,
        document_root: &DocumentRoot,
        (canonical, path): (&[u8], &SafePath),
        known: Option<Rc<Resource>>,
    ) -> Result<Resolved, FileError> {
        let (root, path, known_stamps) = (document_root.clone(), path.clone(), stamps_of(&known));
        let read = move || resolve(&root, &path, DiskAccess::MayBlock, known_stamps.as_ref());
        let outcome = spawn_blocking(read).await.unwrap_or(Err(FileError::ShuttingDown));
        self.store(now, document_root, canonical, Loaded { known, outcome })
    }

    /// Resolves a path on a thread that may wait for the disk, once for concurrent requests.
    async fn read_once_from_disk(
        &self,
        now: Duration,
        document_root: &DocumentRoot,
        (canonical, path): (&[u8], &SafePath),
        known: Option<Rc<Resource>>,
    ) -> Result<Resolved, FileError> {
        let mut own_result = None;
        let read = async {
            own_result = Some(self.read_from_disk(now, document_root, (canonical, path), known).await);
            Ok::<_, FileError>(())
        };
        self.disk_reads.run(canonical.into(), read).await?;
        if let Some(result) = own_result {
            return result;
        }
        if let Some((resource, _)) = self.get_cached(now, canonical) {
            return Ok(Resolved::File(resource));
        }
        // The path leads to no file or to an unstable one, which is in memory now.
        match self.load_from_memory(document_root, canonical, path) {
            Loaded { known, outcome: Err(FileError::WouldBlock) } => {
                self.read_from_disk(now, document_root, (canonical, path), known).await
            }
            loaded => self.store(now, document_root, canonical, loaded),
        }
    }

    /// Finds what a path names without waiting for the disk.
    fn load_from_memory(&self, document_root: &DocumentRoot, canonical: &[u8], path: &SafePath) -> Loaded {
        let known = self.cache.borrow().get(self.namespace, canonical).map(|entry| entry.resource.clone());
        let outcome = resolve(document_root, path, DiskAccess::CachedOnly, stamps_of(&known).as_ref());
        Loaded { known, outcome }
    }

    /// Updates the cache after a path was resolved.
    fn store(
        &self,
        now: Duration,
        document_root: &DocumentRoot,
        canonical: &[u8],
        Loaded { known, outcome }: Loaded,
    ) -> Result<Resolved, FileError> {
        let mut cache = self.cache.borrow_mut();
        match outcome {
            Ok(LoadOutcome::Unchanged) => {
                cache.mark_checked(self.namespace, canonical, now);
                Ok(Resolved::File(known.ok_or(FileError::ShuttingDown)?))
            }
            Ok(LoadOutcome::File(file)) => {
                let resource = Rc::new(Resource::new(file, self.coder.as_ref()));
                if resource.stability == Stability::Stable {
                    cache.insert(self.namespace, canonical, resource.clone(), now);
                } else if known.is_some() {
                    cache.remove(self.namespace, canonical);
                }
                Ok(Resolved::File(resource))
            }
            Ok(LoadOutcome::DirectoryWithoutSlash) => Ok(Resolved::DirectoryWithoutSlash),
            Ok(LoadOutcome::Directory(directory)) => Ok(Resolved::Directory(directory, document_root.root.clone())),
            Err(error) => {
                if known.is_some() {
                    cache.remove(self.namespace, canonical);
                }
                Err(error)
            }
        }
    }

    /// Responds with a file that was resolved for this request, in one of the allowed codings.
    pub(super) async fn respond(&self, request: &Request, resource: &Resource, allowed: AllowedCodings) -> Response {
        response::respond(request, resource, allowed).await
    }
}

/// Loads a file that a script names, which no cache holds. May wait for the disk on another thread.
pub(super) async fn load_once(root: &Arc<root::Root>, path: &SafePath) -> Result<Resource, FileError> {
    let document_root = DocumentRoot {
        root: root.clone(),
        index: Arc::from([]),
        precompressed: Precompressed::Off,
        compress: Compress::Off,
    };
    let path = path.clone();
    let load = move || resolve(&document_root, &path, DiskAccess::MayBlock, None);
    match spawn_blocking(load).await.unwrap_or(Err(FileError::ShuttingDown))? {
        LoadOutcome::File(file) => Ok(Resource::new(file, None)),
        _ => Err(FileError::NotFound),
    }
}

/// Responds with a file of [`load_once`].
pub(super) async fn respond_once(request: &Request, resource: &Resource) -> Response {
    response::respond(request, resource, AllowedCodings::All).await
}

/// What a path names, compared with the file that was cached for it.
struct Loaded {
    known: Option<Rc<Resource>>,
    outcome: Result<LoadOutcome, FileError>,
}

fn stamps_of(known: &Option<Rc<Resource>>) -> Option<KnownStamps> {
    known.as_ref().map(|resource| resource.stamps())
}

/// Responds from the cache, if it has a fresh file for the request path. Returns the tag of the route as well.
pub(super) fn respond_from_cache(
    cache: &SharedFileCache,
    namespace: CacheNamespace,
    request: &Request,
) -> Option<(Response, u32)> {
    if !matches!(request.method(), Method::Get | Method::Head) {
        return None;
    }
    let now = request.received_at().since_worker_start;
    let cache = cache.borrow();
    let cached = cache.response(namespace, request.path_bytes())?;
    if now >= cached.fresh_until {
        return None;
    }
    let resource = cached.resource.upgrade()?;
    let response = response::respond_if_unchanged(request, &resource, cached.changed_fields.as_ref())?;
    Some((response, cached.route_tag))
}

/// Responds with a whole file under an error status, regardless of preconditions and ranges, and without
/// validators.
pub(super) fn respond_as_error_page(request: &Request, resource: &Resource, status: StatusCode) -> Response {
    response::error_page(request, resource, status)
}

#[cfg(test)]
mod tests {
    use super::root::Root;
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::SystemTime;

    #[test]
    fn concurrent_requests_share_one_read_from_the_disk() {
        let directory = std::env::temp_dir().join(format!("selvedge-files-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("page.html");
        std::fs::write(&file, "x").unwrap();
        while selvedge::service::FileStamp::of(std::fs::File::open(&file).unwrap())
            .unwrap()
            .changed_recently(SystemTime::now())
        {
            std::thread::yield_now();
        }
        let cache = Rc::new(RefCell::new(FileCache::new(1)));
        let root = Arc::new(Root::open(&directory).unwrap());
        let document_root =
            DocumentRoot { root, index: Arc::default(), precompressed: Precompressed::Off, compress: Compress::Off };
        let files = Files::new(document_root.clone(), cache, ContentCoder::new());
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let read_all = |path: &str| {
            let path = SafePath::decode(path.as_bytes()).unwrap();
            let canonical = path.encode();
            let read =
                || files.read_once_from_disk(Duration::ZERO, &document_root, (canonical.as_bytes(), &path), None);
            let mut requests: Vec<_> = (0..3).map(|_| Box::pin(read())).collect();
            // The only thread for reads is busy until all requests wait.
            let (release, busy) = std::sync::mpsc::channel::<()>();
            runtime.spawn_blocking(move || busy.recv());
            runtime.block_on(poll_fn(|cx| {
                assert!(requests.iter_mut().all(|request| request.as_mut().poll(cx).is_pending()));
                Poll::Ready(())
            }));
            drop(release);
            requests.into_iter().map(|request| runtime.block_on(request)).collect::<Vec<_>>()
        };
        let resources: Vec<_> = read_all("/page.html")
            .into_iter()
            .map(|resolved| match resolved {
                Ok(Resolved::File(resource)) => resource,
                _ => panic!("the path leads to no file"),
            })
            .collect();
        assert!(resources.iter().all(|resource| Rc::ptr_eq(resource, &resources[0])), "the file is read once");
        assert!(read_all("/none.html").into_iter().all(|resolved| matches!(resolved, Err(FileError::NotFound))));
        assert!(files.disk_reads.is_idle());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
