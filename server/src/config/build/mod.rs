//! Builds the model from items: checks that concern several settings, and values that depend on others.

mod access;
mod acme;
mod expect;
mod gateway;
mod log;
mod proxy;
mod remote_control;
mod rewrites;
mod route;
mod server;
mod site;
mod status_page;
mod tls;
mod traces;
mod unreachable_routes;
mod upstream;
mod values;
mod when;
mod wildcards;

use super::model::{
    AccessSettings, Acme, BodyLimit, Enforcement, Expectation, Listener, Settings, Switch, TrailingSlash, Upstream,
};
use super::position::Span;
use super::problem::Problem;
use super::reader::Reader;
use super::requirement::{MachineRequirement, MachineRequirementKind, PageUse};
use super::tree::{Block, Item, SpannedValue};
use super::value::Value;
use crate::syntax::Network;
use std::path::PathBuf;

/// Builds the model of the top level. If the reader has problems afterwards, the model must not be used.
pub(super) fn build(top: &Block, reader: &mut Reader<'_>) -> (Settings, Vec<MachineRequirement>) {
    let mut build = Builder {
        reader,
        requirements: Vec::new(),
        has_tls: false,
        acme: None,
        listeners: Vec::new(),
        is_local: false,
        upstreams: Vec::new(),
        has_invalid_upstream: false,
        expectations: Vec::new(),
    };
    let settings = build.settings(top);
    (settings, build.requirements)
}

struct Builder<'r, 'a> {
    reader: &'r mut Reader<'a>,
    requirements: Vec<MachineRequirement>,
    /// Whether a listener has TLS.
    has_tls: bool,
    /// How certificates are ordered, once it is known.
    acme: Option<Acme>,
    /// The listeners, once they are known.
    listeners: Vec<Listener>,
    /// Whether only clients of this machine reach the server, and no proxy for others is among them.
    is_local: bool,
    /// The upstreams that are declared, and the groups of URLs in routes.
    upstreams: Vec<KnownUpstream>,
    /// Whether an upstream has a problem that hides its name.
    has_invalid_upstream: bool,
    /// Those that were built so far.
    expectations: Vec<Expectation>,
}

/// What a route inherits from its site.
struct Inherited {
    root: Option<PathBuf>,
    index: Vec<String>,
    listing: Switch,
    precompressed: Switch,
    clean_urls: Switch,
    trailing_slash: TrailingSlash,
    link_targets: Vec<PathBuf>,
    body_limit: BodyLimit,
    compress: Switch,
    access: AccessSettings,
    /// Whether clients need a certificate, or a rule about them has a problem.
    restricts_clients: bool,
}

/// An upstream with what is known of its text.
struct KnownUpstream {
    upstream: Upstream,
    /// The name, or the first URL of a route.
    at: Span,
    /// Whether a route names it.
    is_used: bool,
}

impl Builder<'_, '_> {
    fn problem(&mut self, problem: Problem) {
        self.reader.problems.push(problem);
    }

    fn require(&mut self, at: Span, kind: MachineRequirementKind) {
        self.requirements.push(MachineRequirement { kind, at });
    }

    /// Returns the path of a setting, if it is set.
    fn path(&self, block: &Block, name: &str) -> Option<(PathBuf, Span)> {
        block.get(name).map(|item| (item.first().path().to_owned(), item.first().at))
    }
}

impl From<bool> for Switch {
    fn from(flag: bool) -> Self {
        if flag { Self::On } else { Self::Off }
    }
}

/// Returns the limit of content of a site or a route. A limit in dry-run mode leaves that of the block around it in force.
fn body_limit(block: &Block, around: BodyLimit) -> BodyLimit {
    let Some(item) = block.get("body-bytes-max") else { return around };
    let bytes = item.first().number();
    match enforcement(item) {
        Enforcement::Enforce => BodyLimit { bytes_max: bytes, dry_run_bytes_max: None },
        Enforcement::DryRun => BodyLimit { dry_run_bytes_max: Some(bytes), ..around },
    }
}

/// Whether an item is enforced or in dry-run mode.
fn enforcement(item: &Item) -> Enforcement {
    if item.required("dry-run").flag() { Enforcement::DryRun } else { Enforcement::Enforce }
}

fn networks(arguments: &[SpannedValue]) -> Vec<Network> {
    let network = |given: &SpannedValue| match given.value {
        Value::Network(network) => Some(network),
        _ => None,
    };
    arguments.iter().filter_map(network).collect()
}

fn texts(arguments: &[SpannedValue]) -> Vec<String> {
    arguments.iter().map(|given| given.text().to_owned()).collect()
}
