//! Compiles the logs, and which of them each site writes to.

use super::Compiler;
use crate::config::model::{AccessLog, ErrorFormat, ErrorLog, Level, Rotation, Switch};
use crate::config::value::{LogTarget, ValueKind};
use crate::config::{MachineRequirementKind, Problem, RawValue};
use crate::log::config::{self, AccessLogConfig, Destination, ErrorLogConfig, LogConfig, RotatedFormat, SiteLogConfig};
use crate::log::{Format, FormatProblem};
use std::collections::HashMap;
use std::hash::Hash;

/// Socket of syslog.
const SYSLOG: &str = "/dev/log";
/// Socket of the journal.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// The logs so far. Equal settings share one log.
#[derive(Default)]
struct Logs<'a> {
    access: Distinct<'a, AccessLog>,
    errors: Distinct<'a, ErrorLog>,
}

/// Distinct values with their indexes.
struct Distinct<'a, T> {
    all: Vec<&'a T>,
    indexes: HashMap<&'a T, usize>,
}

impl<T> Default for Distinct<'_, T> {
    fn default() -> Self {
        Self { all: Vec::new(), indexes: HashMap::new() }
    }
}

impl<'a, T: Eq + Hash> Distinct<'a, T> {
    /// Returns the index of a value, and adds it if it is new.
    fn index_of(&mut self, value: &'a T) -> usize {
        *self.indexes.entry(value).or_insert_with(|| {
            self.all.push(value);
            self.all.len() - 1
        })
    }
}

impl Compiler<'_> {
    pub(super) fn logs(&mut self) -> LogConfig {
        let settings = self.settings();
        let (servers, mut logs) = (&settings.logs, Logs::default());
        let mut sites = vec![SiteLogConfig { access: logs.access(&servers.access), ..SiteLogConfig::default() }];
        for site in &settings.sites {
            let own_error = site.error_log.as_ref().filter(|own| **own != servers.error);
            sites.push(SiteLogConfig {
                name: site.names.first().map(ToString::to_string).unwrap_or_default(),
                access: logs.access(site.access_log.as_ref().unwrap_or(&servers.access)),
                error: own_error.map(|own| logs.errors.index_of(own)),
            });
        }
        self.check_formats();
        self.check_files(&logs);
        let access = logs.access.all.iter().filter_map(|log| self.access_log_config(log)).collect();
        let site_errors = logs.errors.all.iter().map(|log| error_log_config(log)).collect();
        LogConfig { access, sites, error: error_log_config(&servers.error), site_errors }
    }

    fn access_log_config(&mut self, log: &AccessLog) -> Option<AccessLogConfig> {
        // An invalid format has been reported.
        let format = Format::read(&log.format).ok()?;
        Some(AccessLogConfig { destination: destination(&log.target, log.rotation.as_ref()), format })
    }

    /// Checks every format of the configuration, also of logs that are off.
    fn check_formats(&mut self) {
        let formats = self.configuration.raw_values.iter().filter(|passage| passage.kind == ValueKind::LogFormat);
        self.problems.extend(formats.filter_map(|RawValue { text, at, .. }| {
            let FormatProblem { at: byte, text: what, hint } = Format::read(text).err()?;
            Some(Problem::with_suggestion(*at, format!("{what} (at byte {})", byte + 1), hint.to_owned()))
        }));
    }

    /// Refuses two logs in one file: they would break each other's lines and rotate twice.
    fn check_files(&mut self, logs: &Logs<'_>) {
        let targets =
            logs.access.all.iter().map(|log| &log.target).chain(logs.errors.all.iter().map(|log| &log.target));
        let mut counts = HashMap::new();
        for target in targets.chain([&self.settings().logs.error.target]) {
            *counts.entry(target).or_insert(0) += 1;
        }
        let twice = counts.into_iter().filter(|(_, count)| *count > 1);
        let paths = twice.filter_map(|(target, _)| match target {
            LogTarget::File(path) => Some(path.clone()),
            _ => None,
        });
        for path in paths.collect::<Vec<_>>() {
            let at = super::position_of_any(self.configuration, &[MachineRequirementKind::WritableFile(path.clone())]);
            let what = format!("two logs with different settings are written to {}", path.display());
            let instead = "use equal settings for both, or give each its own file";
            self.problems.push(Problem::with_suggestion(at, what, instead.to_owned()));
        }
    }
}

impl<'a> Logs<'a> {
    fn access(&mut self, log: &'a AccessLog) -> Vec<usize> {
        match log.target {
            LogTarget::Off => Vec::new(),
            _ => vec![self.access.index_of(log)],
        }
    }
}

fn error_log_config(log: &ErrorLog) -> ErrorLogConfig {
    ErrorLogConfig {
        destination: destination(&log.target, log.rotation.as_ref()),
        format: match log.format {
            ErrorFormat::Text => config::ErrorFormat::Text,
            ErrorFormat::Json => config::ErrorFormat::Json,
        },
        level: match log.level {
            Level::Error => config::Level::Error,
            Level::Warn => config::Level::Warn,
            Level::Info => config::Level::Info,
            Level::Debug => config::Level::Debug,
        },
    }
}

fn destination(target: &LogTarget, rotation: Option<&Rotation>) -> Destination {
    match target {
        LogTarget::Off => Destination::Discard,
        LogTarget::Stdout => Destination::StandardOutput,
        LogTarget::Stderr => Destination::StandardError,
        LogTarget::Syslog => Destination::Syslog { path: SYSLOG.into() },
        LogTarget::Journald => Destination::Journal { path: JOURNAL.into() },
        LogTarget::File(path) => Destination::File {
            path: path.clone(),
            rotation: rotation.map(|rotation| config::Rotation {
                bytes: rotation.size_max,
                every: rotation.age_max,
                keep: rotation.files_max,
                format: if rotation.compress == Switch::On { RotatedFormat::Gzip } else { RotatedFormat::Plain },
            }),
        },
    }
}
