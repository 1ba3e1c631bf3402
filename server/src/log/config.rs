//! The configuration of the logs as plain values.

use super::access::Format;
use std::path::PathBuf;
use std::time::Duration;

/// All logs of the program.
#[derive(Clone, Debug)]
pub(crate) struct LogConfig {
    /// The access logs. Several sites may share one.
    pub(crate) access: Vec<AccessLogConfig>,
    /// Log configuration by site tag ([`selvedge::Request::set_site_tag`]). The first also applies to requests
    /// without a site, such as refused heads, and to unknown tags.
    pub(crate) sites: Vec<SiteLogConfig>,
    /// The error log of the server, and of sites without their own.
    pub(crate) error: ErrorLogConfig,
    /// Error logs of sites.
    pub(crate) site_errors: Vec<ErrorLogConfig>,
}

impl LogConfig {
    /// Returns the number of logs.
    pub(crate) fn count(&self) -> usize {
        self.access.len() + self.site_errors.len() + 1
    }

    /// Returns the most descriptors that the logs use: two for each, because a reload opens new ones before it closes
    /// the old ones.
    pub(crate) fn descriptors_max(&self) -> usize {
        let errors = self.site_errors.iter().chain([&self.error]).map(|error| &error.destination);
        let all = self.access.iter().map(|access| &access.destination).chain(errors);
        2 * all.filter(|destination| destination.uses_descriptor()).count()
    }
}

/// One access log.
#[derive(Clone, Debug)]
pub(crate) struct AccessLogConfig {
    pub(crate) destination: Destination,
    pub(crate) format: Format,
}

/// The logs of one site.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteLogConfig {
    /// The value of `%v`; empty for none.
    pub(crate) name: String,
    /// Its access logs, as indexes of [`LogConfig::access`].
    pub(crate) access: Vec<usize>,
    /// Its error log, as an index of [`LogConfig::site_errors`]; `None` for the server's.
    pub(crate) error: Option<usize>,
}

/// An error log.
#[derive(Clone, Debug)]
pub(crate) struct ErrorLogConfig {
    pub(crate) destination: Destination,
    pub(crate) format: ErrorFormat,
    /// Less severe events are not written.
    pub(crate) level: Level,
}

/// Format of an error line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// `TIME LEVEL NAME: text peer=… request="…" count=…`
    Text,
    /// One JSON object.
    Json,
}

/// Severity. More severe levels compare as less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// A failure.
    Error,
    /// A refusal or an abort.
    Warn,
    /// A recovery.
    Info,
    /// A routine event.
    Debug,
}

impl Level {
    /// Returns the name in settings and lines.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Where lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A file, opened for appending and created with mode 0640.
    File {
        /// Its path.
        path: PathBuf,
        /// When it is rotated; `None` leaves that to another program such as logrotate.
        rotation: Option<Rotation>,
    },
    /// Standard output.
    StandardOutput,
    /// Standard error.
    StandardError,
    /// Nowhere: an error log that is off.
    Discard,
    /// Syslog by RFC 5424, one datagram for each line.
    Syslog {
        /// Path of the socket, such as `/dev/log`.
        path: PathBuf,
    },
    /// The journal's native protocol, one datagram for each line.
    Journal {
        /// Path of the socket, such as `/run/systemd/journal/socket`.
        path: PathBuf,
    },
}

impl Destination {
    /// Creates a destination for a file without rotation.
    #[cfg(test)]
    pub(crate) fn file(path: impl Into<PathBuf>) -> Self {
        Self::File { path: path.into(), rotation: None }
    }

    fn uses_descriptor(&self) -> bool {
        match self {
            Self::File { .. } | Self::Syslog { .. } | Self::Journal { .. } => true,
            Self::StandardOutput | Self::StandardError | Self::Discard => false,
        }
    }

    /// Returns the name in messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::StandardOutput => "on standard output".to_owned(),
            Self::StandardError => "on standard error".to_owned(),
            Self::Discard => "that is off".to_owned(),
            Self::Syslog { path } => format!("to syslog at {}", path.display()),
            Self::Journal { path } => format!("to the journal at {}", path.display()),
        }
    }
}

/// When a file is rotated, and what happens to rotated files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Before it would exceed this size.
    pub(crate) bytes: Option<u64>,
    /// At the start of each period of this length since 1970. With one day, the first line after midnight (UTC)
    /// starts a new file.
    pub(crate) every: Option<Duration>,
    /// Number of rotated files to keep.
    pub(crate) keep: usize,
    pub(crate) format: RotatedFormat,
}

/// Whether rotated files are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RotatedFormat {
    /// By gzip.
    Gzip,
    /// Not compressed.
    Plain,
}
