//! The logs of the server and of sites.

use super::{Builder, MachineRequirementKind};
use crate::config::model::{AccessLog, ErrorFormat, ErrorLog, Level, Rotation, Switch};
use crate::config::problem::Problem;
use crate::config::tree::Item;
use crate::config::value::{LogTarget, Value};

impl Builder<'_, '_> {
    pub(super) fn access_log(&mut self, item: &Item) -> AccessLog {
        let (target, rotation) = self.log_target(item);
        AccessLog { target, format: item.required("format").text().to_owned(), rotation }
    }

    pub(super) fn error_log(&mut self, item: &Item) -> ErrorLog {
        let (target, rotation) = self.log_target(item);
        let level = match item.required("level").text() {
            "error" => Level::Error,
            "info" => Level::Info,
            "debug" => Level::Debug,
            _ => Level::Warn,
        };
        let format = match item.required("format").text() {
            "json" => ErrorFormat::Json,
            _ => ErrorFormat::Text,
        };
        ErrorLog { target, level, format, rotation }
    }

    fn log_target(&mut self, item: &Item) -> (LogTarget, Option<Rotation>) {
        let given = item.first();
        let Value::LogTarget(target) = &given.value else { unreachable!("the table requires a log target") };
        if let LogTarget::File(path) = target {
            self.require(given.at, MachineRequirementKind::WritableFile(path.clone()));
        }
        let rotation = item.block().get("rotate").map(|rotate| self.rotation(rotate, target));
        (target.clone(), rotation)
    }

    fn rotation(&mut self, item: &Item, target: &LogTarget) -> Rotation {
        let rotation = Rotation {
            size_max: item.property("size").map(|given| given.number()),
            age_max: item.property("age").map(|given| given.time()),
            files_max: usize::try_from(item.required("keep").number()).unwrap_or(usize::MAX),
            compress: Switch::from(item.required("compress").flag()),
        };
        if rotation.size_max.is_none() && rotation.age_max.is_none() {
            let problem = Problem::new(item.at, "`rotate` without `size` and `age`");
            self.problem(problem.suggest("write, for example, `rotate size=\"100MiB\" age=\"1d\" keep=14`"));
        }
        if !matches!(target, LogTarget::File(_)) {
            self.problem(
                Problem::new(item.at, "`rotate` for a target that is not a file")
                    .suggest("remove it, or log to a file"),
            );
        }
        rotation
    }
}
