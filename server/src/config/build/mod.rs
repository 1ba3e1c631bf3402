//! Builds the model from items: checks that concern several settings, and values that depend on others.

mod access;
mod log;
mod route;
mod server;
mod site;
mod unreachable_routes;
mod values;
mod when;
mod wildcards;

use super::model::{Enforcement, Settings, Switch};
use super::position::Span;
use super::problem::Problem;
use super::reader::Reader;
use super::tree::{Block, Item, SpannedValue};
use super::value::{Address, Value};
use crate::syntax::Network;
use std::path::PathBuf;

/// A requirement on the machine, and the position of its setting.
#[derive(Debug)]
pub(crate) struct MachineRequirement {
    pub(crate) kind: MachineRequirementKind,
    pub(crate) at: Span,
}

/// The kind of a requirement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MachineRequirementKind {
    /// A directory that can be read.
    Root(PathBuf),
    /// A file that can be written or created.
    WritableFile(PathBuf),
    /// A folder in which a socket can be created.
    SocketDirectory(PathBuf),
    /// The pid file.
    PidFile(PathBuf),
    /// An htpasswd file.
    UserFile(PathBuf),
    /// An address of this machine, or a name of one.
    ListenAddress(Address),
    User(String),
    Group(String),
    /// An error page: a root and a path below it. It may be added later.
    ErrorPage(PathBuf, String),
    /// The settings of a site fit together; its number from 0.
    Site(usize),
    /// The settings of a route fit together; the numbers of its site and of the route.
    Route(usize, usize),
}

/// Builds the model of the top level. If the reader has problems afterwards, the model must not be used.
pub(super) fn build(top: &Block, reader: &mut Reader<'_>) -> (Settings, Vec<MachineRequirement>) {
    let mut build = Builder { reader, requirements: Vec::new() };
    let settings = build.settings(top);
    (settings, build.requirements)
}

struct Builder<'r, 'a> {
    reader: &'r mut Reader<'a>,
    requirements: Vec<MachineRequirement>,
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
