//! The sites of a configuration.

use super::{LocalSites, Source};
use crate::compile::{self, Compiled, Kept};
use crate::config::{self, Problems, Sources};
use crate::site::SiteTable;
use crate::world::{self, Disk, Needs};
use selvedge::Embedded;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The sites of a configuration, as `selvedge run` serves them: hosts, routes, gates, fields,
/// error pages. What it says of listeners, limits, logs and the process is a matter of the program,
/// and not looked at.
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
/// A change of a file is seen within a second; the configuration is read once. Targets of
/// redirects are paths of the server, also beneath a prefix that `nest_service` has taken off.
#[derive(Clone, Debug)]
pub struct Sites {
    table: Arc<SiteTable>,
    service: Embedded<LocalSites>,
}

/// Everything that is wrong with a configuration: where, and what to write instead.
pub struct InvalidConfiguration(Problems);

/// What `main` prints of an error that it returns.
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
    /// Those of a file.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn from_configuration(file: impl AsRef<Path>) -> Result<Self, InvalidConfiguration> {
        Self::read(file.as_ref(), &Disk)
    }

    /// Those of a text, whose relative paths begin at the current folder.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn from_text(text: &str) -> Result<Self, InvalidConfiguration> {
        Self::read(Path::new(TEXT), &Given { text })
    }

    fn read(file: &Path, sources: &dyn Sources) -> Result<Self, InvalidConfiguration> {
        let mut configuration = config::read(file, sources).map_err(InvalidConfiguration)?;
        let made = match world::problems(&configuration.claims, Needs::SitesAlone) {
            problems if problems.is_empty() => compile::compile(&configuration, &Kept::default(), sources),
            problems => Err(problems),
        };
        match made {
            Ok(Compiled { table, .. }) => Ok(Self::of(table)),
            Err(problems) => {
                let texts = std::mem::take(&mut configuration.texts);
                Err(InvalidConfiguration(Problems::new(problems, texts)))
            }
        }
    }

    fn of(table: Arc<SiteTable>) -> Self {
        let source = source(&table);
        Self { table, service: Embedded::new(move || LocalSites::new(source.clone())) }
    }

    /// With a way to tell from a request's extensions who asks, for gates and conditions that are
    /// about clients. This library's server tells it by itself; on others nobody does, and a client
    /// that nobody knows is in no network:
    ///
    /// ```no_run
    /// # use axum::extract::ConnectInfo;
    /// # use std::net::SocketAddr;
    /// # let sites = selvedge_server::Sites::from_configuration("selvedge.kdl")?;
    /// let sites = sites.peers(|extensions| extensions.get().map(|ConnectInfo::<SocketAddr>(peer)| *peer));
    /// # Ok::<(), selvedge_server::InvalidConfiguration>(())
    /// ```
    #[must_use]
    pub fn peers(self, find: impl Fn(&http::Extensions) -> Option<SocketAddr> + Send + Sync + 'static) -> Self {
        Self { service: self.service.peers(find), ..self }
    }

    /// What makes the sites a [`selvedge::Service`] for each worker, for
    /// [`selvedge::Server::serve_each`]: nothing is converted on a request's way.
    pub fn each_worker(&self) -> impl Fn() -> LocalSites + Send + Sync + use<> {
        let source = source(&self.table);
        move || LocalSites::new(source.clone())
    }
}

super::tower_service!(Sites);

fn source(table: &Arc<SiteTable>) -> Source {
    let table = table.clone();
    Arc::new(move || Some(table.clone()))
}

/// What a text that has no file is called where its problems are told.
const TEXT: &str = "configuration";

/// A text, and for all else the disk.
struct Given<'t> {
    text: &'t str,
}

impl Sources for Given<'_> {
    fn text(&self, file: &Path) -> Result<String, String> {
        if file == Path::new(TEXT) { Ok(self.text.to_owned()) } else { Disk.text(file) }
    }

    fn matches(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        Disk.matches(folder, pattern)
    }

    fn variable(&self, name: &str) -> Option<String> {
        Disk.variable(name)
    }
}
