//! Reloads for included lists that have changed.

use super::{LiveServer, ReloadSource};
use crate::log::config::Level;
use crate::watched_lists::ListChange;

impl LiveServer {
    /// Puts an included list into force that has changed.
    pub(crate) fn reload_changed_lists(&mut self) {
        if self.serving_process.is_shutting_down() {
            return;
        }
        let changes = self.lists.take_changes();
        for change in &changes {
            let (level, name, text) = match change {
                ListChange::Changed(list) => (Level::Info, "ListChanged", format!("{} has changed", list.display())),
                ListChange::Removed(list) => {
                    let text = "was removed; if its name is written out, its earlier entries stay in force";
                    (Level::Error, "ListRemoved", format!("{} {text}", list.display()))
                }
            };
            self.snapshot.logs.log_separately(level, name, text);
        }
        if !changes.is_empty() {
            // Its result is in the log.
            let _ = self.reload_and_log(ReloadSource::RunningWithNewLists);
        }
    }
}
