//! The traces of a configuration.

use super::Snapshot;
use crate::compile;
use crate::config::model::{Route, Settings, Site};
use crate::log::config::Level;
use crate::traces::{ExportEvent, SpanCounts, SpanWriter};
use std::iter;
use std::sync::Arc;

impl Snapshot {
    /// Returns what writes the spans of requests, if the configuration has traces.
    pub(super) fn span_writer(&self) -> Option<SpanWriter> {
        self.table.tracer().map(|tracer| SpanWriter::new(tracer, route_patterns(&self.settings)))
    }

    /// Sends the traces of this configuration to its collector.
    pub(crate) fn apply_traces(&self) {
        let Some(exporter) = self.carried.exporter() else { return };
        if let Err(error) = exporter.apply(compile::collector(&self.settings)) {
            let text = format!("cannot start the thread that sends spans: {error}");
            self.logs.log(Level::Error, "SpansNotSent", text);
        }
    }

    /// Logs what has happened to the export of traces.
    pub(crate) fn log_span_events(&self) {
        for event in self.carried.exporter().map(|exporter| exporter.take_events()).unwrap_or_default() {
            match event {
                ExportEvent::Failing(text) => self.logs.log(Level::Warn, "SpansNotSent", text),
                ExportEvent::Recovered(text) => self.logs.log(Level::Info, "SpansSent", text),
            }
        }
    }

    /// Returns what became of the spans of this process, if the configuration has traces.
    pub(crate) fn span_counts(&self) -> Option<SpanCounts> {
        self.settings.traces.as_ref()?;
        self.carried.exporter().map(|exporter| exporter.queue().counts())
    }
}

/// Returns the first pattern of each route, in the order of the counters. Requests without a route have an empty one.
pub(super) fn route_patterns(settings: &Settings) -> Arc<[Box<str>]> {
    let of_route = |route: &Route| route.patterns.first().map(ToString::to_string).unwrap_or_default().into();
    let of_site = |site: &Site| {
        let routes: Vec<Box<str>> = site.routes.iter().map(of_route).collect();
        iter::once(Box::default()).chain(routes)
    };
    iter::once(Box::default()).chain(settings.sites.iter().flat_map(of_site)).collect()
}
