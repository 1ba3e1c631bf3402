//! An explanation, and the configuration that it is about, as plain values.

use crate::config::Places;
use crate::config::model::Settings;
use crate::site::{Producer, RouteTable, StepVerdict};
use selvedge::proto::limits::MessageLimits;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A configuration whose requests can be explained.
#[derive(Clone, Debug)]
pub(crate) struct Explainable {
    pub(crate) settings: Arc<Settings>,
    pub(crate) places: Arc<Places>,
    pub(crate) table: Arc<RouteTable>,
    pub(crate) limits: MessageLimits,
    /// The port of https, if a listener has TLS.
    pub(crate) https_port: Option<u16>,
}

/// What the server does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// The request in a line.
    pub(crate) request: String,
    /// The first name of the site.
    pub(crate) site: Option<String>,
    /// The pattern of the route.
    pub(crate) route: Option<String>,
    /// Its name in metrics and in the flight recorder.
    pub(crate) route_name: Option<String>,
    pub(crate) steps: Vec<PlacedStep>,
    pub(crate) response: ExplainedResponse,
}

/// A step with the place of its setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedStep {
    pub(crate) stage: &'static str,
    pub(crate) verdict: StepVerdict,
    pub(crate) text: String,
    pub(crate) place: Option<StepPlace>,
}

/// The file and line of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepPlace {
    pub(crate) file: PathBuf,
    /// From 1.
    pub(crate) line: usize,
}

/// What the client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExplainedResponse {
    /// No response, because the handshake fails.
    NoResponse,
    /// A response of this server.
    Response { status: u16, reason: Option<&'static str>, fields: Vec<(String, String)> },
    /// A response of another one, with these fields in addition.
    Produced { producer: Producer, fields: Vec<(String, String)> },
}

impl StepPlace {
    /// Returns the place in words: without the folder, if the file is in this one.
    pub(super) fn beside(&self, folder: Option<&Path>) -> String {
        let file = folder.and_then(|folder| self.file.strip_prefix(folder).ok()).unwrap_or(&self.file);
        format!("{}:{}", file.display(), self.line)
    }
}
