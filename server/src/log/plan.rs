//! What the logs are to be, as plain values: whoever knows the settings makes them.

use super::access::Format;
use std::path::PathBuf;
use std::time::Duration;

/// All logs of the program.
#[derive(Clone, Debug)]
pub(crate) struct LogPlan {
    /// The access logs, each of which any number of sites may share.
    pub(crate) access: Vec<AccessPlan>,
    /// What requests may belong to, by the number that the application gave them
    /// ([`selvedge::Request::set_label`]). The first is also for what belongs to none, such as
    /// a request whose head was refused, and for numbers beyond the last.
    pub(crate) sites: Vec<SitePlan>,
    /// The error log of the server, and of sites that have none of their own.
    pub(crate) error: ErrorPlan,
    /// Error logs of sites.
    pub(crate) site_errors: Vec<ErrorPlan>,
}

impl LogPlan {
    /// Most descriptors that the logs take: two for each, as others that take the place of these
    /// are open before these are closed.
    pub(crate) fn descriptors_max(&self) -> usize {
        let errors = self.site_errors.iter().chain([&self.error]).map(|error| &error.destination);
        let all = self.access.iter().map(|access| &access.destination).chain(errors);
        2 * all.filter(|destination| destination.takes_descriptor()).count()
    }
}

/// One access log.
#[derive(Clone, Debug)]
pub(crate) struct AccessPlan {
    pub(crate) destination: Destination,
    pub(crate) format: Format,
}

/// One site, as the logs know it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SitePlan {
    /// What `%v` writes; empty for none.
    pub(crate) name: String,
    /// Its access logs, as places in [`LogPlan::access`]; none when it has none.
    pub(crate) access: Vec<usize>,
    /// Its error log, as a place in [`LogPlan::site_errors`]; the server's when it has none.
    pub(crate) error: Option<usize>,
}

/// The error log.
#[derive(Clone, Debug)]
pub(crate) struct ErrorPlan {
    pub(crate) destination: Destination,
    pub(crate) form: ErrorForm,
    /// What is less bad is left out.
    pub(crate) level: Level,
}

/// How an error line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorForm {
    /// `TIME LEVEL NAME: text peer=… request="…" count=…`
    Text,
    /// One JSON object.
    Json,
}

/// How bad something is; what is worse is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Something that should work does not.
    Error,
    /// Something was refused or cut.
    Warn,
    /// Something is as it should be again.
    Info,
    /// What an ordinary day is made of.
    Debug,
}

impl Level {
    /// The word for it, in settings and in lines.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A file, which is appended to, and made with mode 0640 when it is not there.
    File {
        /// Its path.
        path: PathBuf,
        /// When it is put aside; `None` leaves that to others, such as logrotate.
        rotation: Option<Rotation>,
    },
    /// Standard output.
    StandardOutput,
    /// Standard error.
    StandardError,
    /// None: an error log that is off.
    Nowhere,
    /// The system's log by RFC 5424, one letter for each line.
    Syslog {
        /// Where it listens, as `/dev/log`.
        path: PathBuf,
    },
    /// The journal by its own protocol, one letter for each line.
    Journal {
        /// Where it listens, as `/run/systemd/journal/socket`.
        path: PathBuf,
    },
}

impl Destination {
    /// A file that is not put aside.
    pub(crate) fn file(path: impl Into<PathBuf>) -> Self {
        Self::File { path: path.into(), rotation: None }
    }

    fn takes_descriptor(&self) -> bool {
        match self {
            Self::File { .. } | Self::Syslog { .. } | Self::Journal { .. } => true,
            Self::StandardOutput | Self::StandardError | Self::Nowhere => false,
        }
    }

    /// What it is called in messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::StandardOutput => "on standard output".to_owned(),
            Self::StandardError => "on standard error".to_owned(),
            Self::Nowhere => "that is off".to_owned(),
            Self::Syslog { path } => format!("to syslog at {}", path.display()),
            Self::Journal { path } => format!("to the journal at {}", path.display()),
        }
    }
}

/// When a file is put aside under a name that tells the time, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Before it would be larger than this.
    pub(crate) bytes: Option<u64>,
    /// When a new span of this length begins, counted from 1970: with a day, the first line
    /// after midnight (UTC) begins a new file.
    pub(crate) every: Option<Duration>,
    /// How many that were put aside are kept.
    pub(crate) keep: usize,
    pub(crate) packing: Packing,
}

/// Whether what was put aside is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// By gzip.
    Gzip,
    /// Left as it is.
    Plain,
}
