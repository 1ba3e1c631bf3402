//! Logs what happens to the servers of upstreams and to their names, and what scripts report after their responses.

use crate::compile::CarriedState;
use crate::log::Logs;
use crate::log::config::Level;
use crate::resolver::ResolverEvent;
use crate::site::{LateScriptMessage, ServerChange, UpstreamEvent};
use std::sync::Arc;

/// Logs changes of the servers of all upstreams and late messages of scripts from now on, in place of an earlier
/// configuration's logs.
pub(crate) fn observe(carried: &CarriedState, logs: &Arc<Logs>) {
    for upstream in carried.upstreams() {
        // The end of the server waits until nothing else holds the logs.
        let logs = Arc::downgrade(logs);
        upstream.set_observer(Arc::new(move |event: &UpstreamEvent<'_>| {
            let (level, name) = match event.change {
                ServerChange::TakenOut { .. } => (Level::Warn, "UpstreamServerTakenOut"),
                ServerChange::CheckFailed { .. } => (Level::Warn, "UpstreamCheckFailed"),
                ServerChange::Returned => (Level::Info, "UpstreamServerReturned"),
                ServerChange::CheckPassed => (Level::Info, "UpstreamCheckPassed"),
            };
            if let Some(logs) = logs.upgrade() {
                logs.log(level, name, event.to_string());
            }
        }));
    }
    for load in carried.gateway_loads() {
        let logs = Arc::downgrade(logs);
        load.set_observer(Arc::new(move |message: &LateScriptMessage<'_>| {
            if let Some(logs) = logs.upgrade() {
                logs.log_separately(Level::Error, "Script", message.to_string());
            }
        }));
    }
}

/// Logs what has happened to the names of servers since the last call.
pub(crate) fn log_names(carried: &CarriedState, logs: &Logs) {
    for event in carried.resolver().take_events() {
        match event {
            ResolverEvent::Resolved(text) => logs.log(Level::Info, "UpstreamNameResolved", text),
            ResolverEvent::Failed(text) => logs.log(Level::Warn, "UpstreamNameFailed", text),
        }
    }
}
