//! Which logs there are, and which of them each site writes to.

use super::Compiler;
use crate::config::model::{AccessLog, ErrorFormat, ErrorLog, Level, Rotation, Switch};
use crate::config::value::{Kind, LogTarget};
use crate::config::{Claimed, Passage, Problem};
use crate::log::plan::{self, AccessPlan, Destination, ErrorForm, ErrorPlan, LogPlan, Packing, SitePlan};
use crate::log::{Format, FormatProblem};
use std::collections::HashMap;
use std::hash::Hash;

/// Where the system's log listens.
const SYSLOG: &str = "/dev/log";
/// Where the journal listens.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Logs so far: what is said twice is one log.
#[derive(Default)]
struct Logs<'a> {
    access: Distinct<'a, AccessLog>,
    errors: Distinct<'a, ErrorLog>,
}

/// Values that differ, each with its place among them.
struct Distinct<'a, T> {
    all: Vec<&'a T>,
    places: HashMap<&'a T, usize>,
}

impl<T> Default for Distinct<'_, T> {
    fn default() -> Self {
        Self { all: Vec::new(), places: HashMap::new() }
    }
}

impl<'a, T: Eq + Hash> Distinct<'a, T> {
    /// The place of a value, which is one of them from now on.
    fn place_of(&mut self, value: &'a T) -> usize {
        *self.places.entry(value).or_insert_with(|| {
            self.all.push(value);
            self.all.len() - 1
        })
    }
}

impl Compiler<'_> {
    pub(super) fn logs(&mut self) -> LogPlan {
        let settings = self.settings();
        let (servers, mut logs) = (&settings.logs, Logs::default());
        let mut sites = vec![SitePlan { access: logs.access(&servers.access), ..SitePlan::default() }];
        for site in &settings.sites {
            let own_error = site.error_log.as_ref().filter(|own| **own != servers.error);
            sites.push(SitePlan {
                name: site.names.first().map(ToString::to_string).unwrap_or_default(),
                access: logs.access(site.access_log.as_ref().unwrap_or(&servers.access)),
                error: own_error.map(|own| logs.errors.place_of(own)),
            });
        }
        self.judge_formats();
        self.judge_files(&logs);
        let access = logs.access.all.iter().filter_map(|log| self.access_plan(log)).collect();
        let site_errors = logs.errors.all.iter().map(|log| error_plan(log)).collect();
        LogPlan { access, sites, error: error_plan(&servers.error), site_errors }
    }

    fn access_plan(&mut self, log: &AccessLog) -> Option<AccessPlan> {
        // What is wrong with it stands among the problems already.
        let format = Format::read(&log.format).ok()?;
        Some(AccessPlan { destination: destination(&log.target, log.rotation.as_ref()), format })
    }

    /// Every format that is written somewhere, also those of logs that are off.
    fn judge_formats(&mut self) {
        let formats = self.configuration.passages.iter().filter(|passage| passage.kind == Kind::LogFormat);
        self.problems.extend(formats.filter_map(|Passage { text, at, .. }| {
            let FormatProblem { at: byte, text: what, hint } = Format::read(text).err()?;
            Some(Problem::of_world(*at, format!("{what} (at byte {})", byte + 1), hint.to_owned()))
        }));
    }

    /// Two logs in one file would tear each other's lines and put it aside twice.
    fn judge_files(&mut self, logs: &Logs<'_>) {
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
            let at = super::place_of_any(self.configuration, &[Claimed::Written(path.clone())]);
            let what = format!("two logs that differ are written to {}", path.display());
            let instead = "say the same of both, or give each a file of its own";
            self.problems.push(Problem::of_world(at, what, instead.to_owned()));
        }
    }
}

impl<'a> Logs<'a> {
    fn access(&mut self, log: &'a AccessLog) -> Vec<usize> {
        match log.target {
            LogTarget::Off => Vec::new(),
            _ => vec![self.access.place_of(log)],
        }
    }
}

fn error_plan(log: &ErrorLog) -> ErrorPlan {
    ErrorPlan {
        destination: destination(&log.target, log.rotation.as_ref()),
        form: match log.format {
            ErrorFormat::Text => ErrorForm::Text,
            ErrorFormat::Json => ErrorForm::Json,
        },
        level: match log.level {
            Level::Error => plan::Level::Error,
            Level::Warn => plan::Level::Warn,
            Level::Info => plan::Level::Info,
            Level::Debug => plan::Level::Debug,
        },
    }
}

fn destination(target: &LogTarget, rotation: Option<&Rotation>) -> Destination {
    match target {
        LogTarget::Off => Destination::Nowhere,
        LogTarget::Stdout => Destination::StandardOutput,
        LogTarget::Stderr => Destination::StandardError,
        LogTarget::Syslog => Destination::Syslog { path: SYSLOG.into() },
        LogTarget::Journald => Destination::Journal { path: JOURNAL.into() },
        LogTarget::File(path) => Destination::File {
            path: path.clone(),
            rotation: rotation.map(|rotation| plan::Rotation {
                bytes: rotation.size_max,
                every: rotation.age_max,
                keep: rotation.files_kept_max,
                packing: if rotation.compress == Switch::On { Packing::Gzip } else { Packing::Plain },
            }),
        },
    }
}
