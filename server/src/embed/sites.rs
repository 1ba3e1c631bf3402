//! Serves the sites of a configuration.

use super::{LocalSites, TableSource};
use crate::compile::{self, CarriedState, Compiled};
use crate::config::{self, Problems, Sources};
use crate::preflight::{self, CheckScope, Disk};
use crate::site::RouteTable;
use selvedge::Embedded;
use selvedge::tower::{BoxError, EmbeddedFuture};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tower_service::Service as _;

/// The sites of a configuration, as `selvedge run` serves them: hosts, routes, access rules, fields, error
/// pages. Settings of listeners, limits, logs and the process are ignored.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use selvedge_server::Sites;
///
/// let sites = Sites::from_configuration("selvedge.kdl")?;
/// let app: Router = Router::new().route("/api/hello", get(async || "Hello!")).fallback_service(sites);
/// # Ok::<(), selvedge_server::InvalidConfiguration>(())
/// ```
///
/// A change of a file is visible within one second. The configuration is read once. Targets of redirects are
/// absolute paths, also beneath a prefix that `nest_service` removes.
#[derive(Clone, Debug)]
pub struct Sites {
    table: Arc<RouteTable>,
    service: Embedded<LocalSites>,
}

/// All problems of a configuration, with their positions and suggestions.
pub struct InvalidConfiguration(Problems);

/// Used if `main` returns the error.
impl fmt::Debug for InvalidConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration cannot be used\n{self}")
    }
}

impl fmt::Display for InvalidConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for InvalidConfiguration {}

impl From<InvalidConfiguration> for std::io::Error {
    fn from(invalid: InvalidConfiguration) -> Self {
        Self::new(std::io::ErrorKind::InvalidInput, invalid)
    }
}

impl Sites {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// All problems of the configuration.
    pub fn from_configuration(file: impl AsRef<Path>) -> Result<Self, InvalidConfiguration> {
        Self::read(file.as_ref(), &Disk)
    }

    /// Reads a configuration from a text. Relative paths start at the current directory.
    ///
    /// # Errors
    /// All problems of the configuration.
    pub fn from_text(text: &str) -> Result<Self, InvalidConfiguration> {
        Self::read(Path::new(TEXT), &TextSources { text })
    }

    fn read(file: &Path, sources: &dyn Sources) -> Result<Self, InvalidConfiguration> {
        let mut configuration = config::read(file, sources).map_err(InvalidConfiguration)?;
        let made = match preflight::problems(&configuration.requirements, CheckScope::Sites) {
            problems if problems.is_empty() => compile::compile(&configuration, &CarriedState::default(), sources),
            problems => Err(problems),
        };
        match made {
            Ok(Compiled { table, .. }) => Ok(Self::from_table(table)),
            Err(problems) => {
                let texts = std::mem::take(&mut configuration.texts);
                Err(InvalidConfiguration(Problems::new(problems, texts)))
            }
        }
    }

    /// Responds to a request of the ecosystem's types.
    fn respond<B>(&mut self, request: http::Request<B>) -> EmbeddedFuture<LocalSites, B>
    where
        B: http_body::Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.service.call(request)
    }

    fn from_table(table: Arc<RouteTable>) -> Self {
        let source = source(&table);
        Self { table, service: Embedded::new(move || LocalSites::new(source.clone())) }
    }

    /// Sets how the client's address is found in the extensions of a request, for access rules and conditions
    /// on clients. Selvedge's own server provides it. On other servers the client is unknown and in no network,
    /// unless you set this:
    ///
    /// ```no_run
    /// # use axum::extract::ConnectInfo;
    /// # use std::net::SocketAddr;
    /// # let sites = selvedge_server::Sites::from_configuration("selvedge.kdl")?;
    /// let sites = sites.find_peer(|extensions| extensions.get().map(|ConnectInfo::<SocketAddr>(peer)| *peer));
    /// # Ok::<(), selvedge_server::InvalidConfiguration>(())
    /// ```
    #[must_use]
    pub fn find_peer(self, find: impl Fn(&http::Extensions) -> Option<SocketAddr> + Send + Sync + 'static) -> Self {
        Self { service: self.service.find_peer(find), ..self }
    }

    /// Returns a function that creates a [`selvedge::Service`] for each worker, for
    /// [`selvedge::Server::serve_each`]. Requests are not converted to `http` types.
    pub fn each_worker(&self) -> impl Fn() -> LocalSites + Send + Sync + use<> {
        let source = source(&self.table);
        move || LocalSites::new(source.clone())
    }
}

super::tower_service!(Sites);

fn source(table: &Arc<RouteTable>) -> TableSource {
    let table = table.clone();
    Arc::new(move || Some(table.clone()))
}

/// The file name that problems of a text are reported with.
const TEXT: &str = "configuration";

/// Sources with the text of the configuration; everything else is on the disk.
struct TextSources<'t> {
    text: &'t str,
}

impl Sources for TextSources<'_> {
    fn text(&self, file: &Path) -> Result<String, String> {
        if file == Path::new(TEXT) { Ok(self.text.to_owned()) } else { Disk.text(file) }
    }

    fn matching_files(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        Disk.matching_files(folder, pattern)
    }

    fn variable(&self, name: &str) -> Option<String> {
        Disk.variable(name)
    }
}
