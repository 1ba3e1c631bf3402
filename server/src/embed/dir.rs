//! A folder of files.

use super::{LocalSites, Source};
use crate::site::{
    Attempt, CacheRules, ErrorPages, IndexNames, Listing, Pattern, Root, Sidecars, SiteRules, SiteTable, Suffix,
};
use selvedge::proto::path::SafePath;
use selvedge::{Embedded, Status};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Serves the files beneath a folder, as `selvedge serve` does: conditional and range requests,
/// compressed files that stand beside others (`app.js.br`, `.zst`, `.gz`), a cache, and nothing
/// outside of the folder or with a name that begins with a dot, but for `/.well-known/`.
///
/// It is a tower service, so axum takes it; on this library's server files leave by `sendfile`.
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
/// A change of a file is seen within a second. A folder that cannot be opened is an answer of 500 to
/// every request, and is tried again with the next one; [`ServeDir::opened`] makes it an error at the
/// start.
#[derive(Clone, Debug)]
pub struct ServeDir {
    folder: Arc<Folder>,
    service: Embedded<LocalSites>,
}

/// A folder and what is served of it, once it is open.
#[derive(Debug)]
struct Folder {
    rules: Rules,
    table: OnceLock<Arc<SiteTable>>,
}

#[derive(Clone, Debug)]
struct Rules {
    path: PathBuf,
    index: Option<IndexNames>,
    attempts: Vec<Attempt>,
    fallback: Option<SafePath>,
    not_found: Option<SafePath>,
    listing: Listing,
    sidecars: Sidecars,
    cache: CacheRules,
}

impl ServeDir {
    /// The files beneath a folder. `index.html` stands for a folder within it.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self::of(Rules {
            path: path.as_ref().to_owned(),
            index: None,
            attempts: Vec::new(),
            fallback: None,
            not_found: None,
            listing: Listing::Off,
            sidecars: Sidecars::On,
            cache: CacheRules::default(),
        })
    }

    fn of(rules: Rules) -> Self {
        let folder = Arc::new(Folder { rules, table: OnceLock::new() });
        let source = folder.clone().source();
        Self { folder, service: Embedded::new(move || LocalSites::new(source.clone())) }
    }

    fn with(self, change: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = self.folder.rules.clone();
        change(&mut rules);
        Self::of(rules)
    }

    /// These names stand for a folder, in order, in place of `index.html`; none when there are none.
    ///
    /// # Panics
    /// When one is no name of a file.
    #[must_use]
    pub fn index<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = IndexNames::new(names).expect("an index is a name of a file");
        self.with(|rules| rules.index = Some(names))
    }

    /// A path that leads to no file is tried with this at its end, as `.html`, before it is taken for a
    /// folder; several are tried in the order in which they are said.
    ///
    /// # Panics
    /// When no name can end so.
    #[must_use]
    pub fn suffix(self, suffix: &str) -> Self {
        let suffix = Suffix::new(suffix).expect("a suffix is the end of a name of a file");
        self.with(|rules| {
            if rules.attempts.is_empty() {
                rules.attempts.extend([Attempt::File, Attempt::Directory]);
            }
            let folder = rules.attempts.iter().position(|attempt| *attempt == Attempt::Directory);
            let place = folder.unwrap_or(rules.attempts.len());
            rules.attempts.insert(place, Attempt::Suffix(suffix));
        })
    }

    /// The page of an application that has paths of its own: what a navigation is answered with
    /// that leads to no file. Scripts, images and the like that are not there stay 404.
    ///
    /// # Panics
    /// When this is no path within the folder.
    #[must_use]
    pub fn fallback(self, page: &str) -> Self {
        let page = path_of(page);
        self.with(|rules| rules.fallback = Some(page))
    }

    /// What is shown with 404.
    ///
    /// # Panics
    /// When this is no path within the folder.
    #[must_use]
    pub fn not_found(self, page: &str) -> Self {
        let page = path_of(page);
        self.with(|rules| rules.not_found = Some(page))
    }

    /// A folder without an index is answered with a list of what is in it.
    #[must_use]
    pub fn listing(self) -> Self {
        self.with(|rules| rules.listing = Listing::On)
    }

    /// Compressed files are files like any other, and not sent for those that they stand beside.
    #[must_use]
    pub fn without_precompressed(self) -> Self {
        self.with(|rules| rules.sidecars = Sidecars::Off)
    }

    /// The Cache-Control of files.
    ///
    /// # Panics
    /// When no field can have this value.
    #[must_use]
    pub fn cache_control(self, value: &str) -> Self {
        let mut cache = CacheRules::default();
        cache.add(Pattern::everything(), value).expect("the value can stand in a field");
        self.with(|rules| rules.cache = cache)
    }

    /// Opens the folder now, so that one that is not there is an error before anybody asks.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn opened(self) -> io::Result<Self> {
        self.folder.open()?;
        Ok(self)
    }

    /// What makes the files a [`selvedge::Service`] for each worker, for
    /// [`selvedge::Server::serve_each`]: nothing is converted on a request's way.
    pub fn each_worker(&self) -> impl Fn() -> LocalSites + Send + Sync + use<> {
        let source = self.folder.clone().source();
        move || LocalSites::new(source.clone())
    }
}

super::tower_service!(ServeDir);

fn path_of(page: &str) -> SafePath {
    let absolute = format!("/{}", page.trim_start_matches('/'));
    SafePath::decode(absolute.as_bytes()).expect("a page is a path within the folder")
}

impl Folder {
    fn source(self: Arc<Self>) -> Source {
        Arc::new(move || self.open().ok())
    }

    fn open(&self) -> io::Result<Arc<SiteTable>> {
        if let Some(table) = self.table.get() {
            return Ok(table.clone());
        }
        let root = Arc::new(Root::open(&self.rules.path)?);
        let table =
            SiteTable::new(vec![self.rules.site(root)]).expect("one site that goes by every name clashes with none");
        Ok(self.table.get_or_init(|| Arc::new(table)).clone())
    }
}

impl Rules {
    fn site(&self, root: Arc<Root>) -> SiteRules {
        let mut site = SiteRules::of_directory(root.clone(), self.listing);
        let pages = self.not_found.iter().map(|page| (Status::NOT_FOUND, page.clone()));
        site.error_pages = self.not_found.is_some().then(|| ErrorPages { root, pages: pages.collect() });
        site.cache = self.cache.clone();
        for files in site.files_rules_mut() {
            files.index = self.index.clone().unwrap_or_else(|| files.index.clone());
            files.attempts.clone_from(&self.attempts);
            files.fallback.clone_from(&self.fallback);
            files.sidecars = self.sidecars;
        }
        site
    }
}
