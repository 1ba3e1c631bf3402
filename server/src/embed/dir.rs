//! Serves a directory.

use super::{LocalSites, TableSource};
use crate::site::{
    ErrorPages, FileFieldRules, IndexNames, Listing, PageAddresses, Precompressed, Root, RouteTable, SiteRules, Suffix,
    TryFile,
};
use crate::syntax::{Pattern, ResponseSelector};
use selvedge::proto::path::SafePath;
use selvedge::tower::{BoxError, EmbeddedFuture};
use selvedge::{Embedded, StatusCode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tower_service::Service as _;

/// Serves the files beneath a directory, as `selvedge serve` does.
///
/// It supports conditional and range requests, precompressed files (`app.js.br`, `.zst`, `.gz`), and a file
/// cache. It serves nothing outside of the directory, and no name that begins with a dot, except for
/// `/.well-known/`.
///
/// It is a tower service, so axum accepts it. On selvedge's own server, large files are sent with `sendfile`.
///
/// ```
/// use axum::Router;
/// use selvedge_server::ServeDir;
///
/// let app: Router = Router::new()
///     .nest_service("/assets", ServeDir::new("assets").cache_control("max-age=86400"))
///     .fallback_service(ServeDir::new("public").not_found("404.html"));
/// ```
///
/// With the feature `axum`, a request for `/assets` of `nest_service("/assets", ...)` is redirected to `/assets/`, which
/// relative links of its index need.
///
/// A change of a file is visible within one second. If the directory cannot be opened, every request gets 500
/// and tries again. Use [`ServeDir::opened`] to get an error at the start.
#[derive(Clone, Debug)]
pub struct ServeDir {
    directory: Arc<ServedDirectory>,
    service: Embedded<LocalSites>,
}

/// A directory with its rules, and its route table once it is open.
#[derive(Debug)]
struct ServedDirectory {
    rules: DirRules,
    table: OnceLock<Arc<RouteTable>>,
}

#[derive(Clone, Debug)]
struct DirRules {
    path: PathBuf,
    index: Option<IndexNames>,
    try_files: Vec<TryFile>,
    fallback: Option<SafePath>,
    not_found: Option<SafePath>,
    listing: Listing,
    precompressed: Precompressed,
    file_fields: FileFieldRules,
}

impl ServeDir {
    /// Serves the files beneath a directory. `index.html` is the index of each directory.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self::from_rules(DirRules {
            path: path.as_ref().to_owned(),
            index: None,
            try_files: Vec::new(),
            fallback: None,
            not_found: None,
            listing: Listing::Off,
            precompressed: Precompressed::On,
            file_fields: FileFieldRules::default(),
        })
    }

    fn from_rules(rules: DirRules) -> Self {
        let directory = Arc::new(ServedDirectory { rules, table: OnceLock::new() });
        let source = directory.clone().source();
        Self { directory, service: Embedded::new(move || LocalSites::new(source.clone())) }
    }

    /// Responds to a request of the ecosystem's types.
    fn respond<B>(&mut self, request: http::Request<B>) -> EmbeddedFuture<LocalSites, B>
    where
        B: http_body::Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        match super::redirect_of_nested_root(&request) {
            Some(redirect) => EmbeddedFuture::ready(redirect),
            None => self.service.call(request),
        }
    }

    fn with_rules(self, change: impl FnOnce(&mut DirRules)) -> Self {
        let mut rules = self.directory.rules.clone();
        change(&mut rules);
        Self::from_rules(rules)
    }

    /// Sets the names of index files, in order of precedence, in place of `index.html`. Empty for none.
    ///
    /// # Panics
    /// If one is not a file name.
    #[must_use]
    pub fn index<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = IndexNames::new(names).expect("an index is a file name");
        self.with_rules(|rules| rules.index = Some(names))
    }

    /// If a path leads to no file, tries it with this suffix, such as `.html`, before a directory of this path.
    /// Several suffixes are tried in the order of the calls.
    ///
    /// # Panics
    /// If no file name can end with it.
    #[must_use]
    pub fn suffix(self, suffix: &str) -> Self {
        let suffix = Suffix::new(suffix).expect("a suffix is the end of a file name");
        self.with_rules(|rules| {
            if rules.try_files.is_empty() {
                rules.try_files.extend([TryFile::File, TryFile::Directory]);
            }
            let directory = rules.try_files.iter().position(|entry| *entry == TryFile::Directory);
            let position = directory.unwrap_or(rules.try_files.len());
            rules.try_files.insert(position, TryFile::Suffix(suffix));
        })
    }

    /// Sets the page of a single-page application: the response to navigations that lead to no file. Missing
    /// scripts, images and the like still get 404.
    ///
    /// # Panics
    /// If this is not a path within the directory.
    #[must_use]
    pub fn fallback(self, page: &str) -> Self {
        let page = page_path(page);
        self.with_rules(|rules| rules.fallback = Some(page))
    }

    /// Sets the page for 404 (Not Found).
    ///
    /// # Panics
    /// If this is not a path within the directory.
    #[must_use]
    pub fn not_found(self, page: &str) -> Self {
        let page = page_path(page);
        self.with_rules(|rules| rules.not_found = Some(page))
    }

    /// Lists directories that have no index.
    #[must_use]
    pub fn listing(self) -> Self {
        self.with_rules(|rules| rules.listing = Listing::On)
    }

    /// Treats precompressed files as files of their own, and does not serve them in place of the file beside
    /// them.
    #[must_use]
    pub fn without_precompressed(self) -> Self {
        self.with_rules(|rules| rules.precompressed = Precompressed::Off)
    }

    /// Sets the Cache-Control of files.
    ///
    /// # Panics
    /// If this is not a valid field value.
    #[must_use]
    pub fn cache_control(self, value: &str) -> Self {
        let mut cache = FileFieldRules::default();
        cache.add(ResponseSelector::Path(Pattern::everything()), value).expect("the value is a valid field value");
        self.with_rules(|rules| rules.file_fields = cache)
    }

    /// Opens the directory now, so that a missing one is an error at the start.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn opened(self) -> io::Result<Self> {
        self.directory.open()?;
        Ok(self)
    }

    /// Returns a function that creates a [`selvedge::Service`] for each worker, for
    /// [`selvedge::Server::serve_each`]. Requests are not converted to `http` types.
    pub fn each_worker(&self) -> impl Fn() -> LocalSites + Send + Sync + use<> {
        let source = self.directory.clone().source();
        move || LocalSites::new(source.clone())
    }
}

super::tower_service!(ServeDir);

fn page_path(page: &str) -> SafePath {
    let absolute = format!("/{}", page.trim_start_matches('/'));
    SafePath::decode(absolute.as_bytes()).expect("a page is a path within the directory")
}

impl ServedDirectory {
    fn source(self: Arc<Self>) -> TableSource {
        Arc::new(move || self.open().ok())
    }

    fn open(&self) -> io::Result<Arc<RouteTable>> {
        if let Some(table) = self.table.get() {
            return Ok(table.clone());
        }
        let root = Arc::new(Root::open(&self.rules.path)?);
        let table = RouteTable::new(vec![self.rules.site(root)]).expect("a single site is valid");
        Ok(self.table.get_or_init(|| Arc::new(table)).clone())
    }
}

impl DirRules {
    fn site(&self, root: Arc<Root>) -> SiteRules {
        let mut site = SiteRules::for_directory(root.clone(), self.listing, PageAddresses::default());
        let pages = self.not_found.iter().map(|page| (StatusCode::NOT_FOUND, page.clone()));
        site.error_pages = self.not_found.is_some().then(|| ErrorPages { root, pages: pages.collect() });
        site.file_fields = self.file_fields.clone();
        for files in site.files_rules_mut() {
            files.index = self.index.clone().unwrap_or_else(|| files.index.clone());
            files.try_files.clone_from(&self.try_files);
            files.fallback.clone_from(&self.fallback);
            files.precompressed = self.precompressed;
        }
        site
    }
}
