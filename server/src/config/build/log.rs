//! The logs of the server and of sites.

use super::{Build, Claimed};
use crate::config::model::{AccessLog, ErrorFormat, ErrorLog, Level, Logs, Rotation, Switch};
use crate::config::problem::Problem;
use crate::config::tree::{Block, Item};
use crate::config::value::{LogTarget, Value};

impl Build<'_, '_> {
    pub(super) fn logs(&mut self, block: &Block) -> Logs {
        Logs { access: self.access_log(block.one("access")), error: self.error_log(block.one("error")) }
    }

    pub(super) fn access_log(&mut self, item: &Item) -> AccessLog {
        let (target, rotation) = self.log_target(item);
        AccessLog { target, format: item.the("format").text().to_owned(), rotation }
    }

    pub(super) fn error_log(&mut self, item: &Item) -> ErrorLog {
        let (target, rotation) = self.log_target(item);
        let level = match item.the("level").text() {
            "error" => Level::Error,
            "info" => Level::Info,
            "debug" => Level::Debug,
            _ => Level::Warn,
        };
        let format = match item.the("format").text() {
            "json" => ErrorFormat::Json,
            _ => ErrorFormat::Text,
        };
        ErrorLog { target, level, format, rotation }
    }

    fn log_target(&mut self, item: &Item) -> (LogTarget, Option<Rotation>) {
        let given = item.first();
        let Value::LogTarget(target) = &given.value else { unreachable!("the table says that it is a target") };
        if let LogTarget::File(path) = target {
            self.claim(given.at, Claimed::Written(path.clone()));
        }
        let rotation = item.inside().get("rotate").map(|rotate| self.rotation(rotate, target));
        (target.clone(), rotation)
    }

    fn rotation(&mut self, item: &Item, target: &LogTarget) -> Rotation {
        let rotation = Rotation {
            size_max: item.property("size").map(|given| given.number()),
            age_max: item.property("age").map(|given| given.time()),
            files_kept_max: usize::try_from(item.the("keep").number()).unwrap_or(usize::MAX),
            compress: Switch::from(item.the("compress").flag()),
        };
        if rotation.size_max.is_none() && rotation.age_max.is_none() {
            let problem = Problem::new(item.at, "rotation without a size and without an age");
            self.problem(problem.instead("as in `rotate size=\"100MiB\" age=\"1d\" keep=14`"));
        }
        if !matches!(target, LogTarget::File(_)) {
            self.problem(Problem::new(item.at, "rotation of what is no file").instead("only files are rotated"));
        }
        rotation
    }
}
