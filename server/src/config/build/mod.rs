//! From items to the model: what no single value can tell, and what follows from what.

mod gate;
mod log;
mod reach;
mod route;
mod server;
mod site;

use super::model::{Enforcement, Settings, Switch};
use super::place::Span;
use super::problem::Problem;
use super::reader::Reader;
use super::tree::{Block, Given, Item};
use super::value::{Address, Network, Value};
use std::path::PathBuf;

/// What the world has to hold for the settings to work, and where that is written.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) claimed: Claimed,
    pub(crate) at: Span,
}

/// See [`Claim`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Claimed {
    /// A directory that can be read.
    Root(PathBuf),
    /// A file that can be written, or made.
    Written(PathBuf),
    /// A folder in which a socket can be made.
    SocketFolder(PathBuf),
    /// The file with the number of the process.
    PidFile(PathBuf),
    /// An htpasswd file.
    UserFile(PathBuf),
    /// An address of this machine, or a name of one.
    Listens(Address),
    User(String),
    Group(String),
    /// A page for errors: a root, and the path of a file beneath it. It may come later.
    Page(PathBuf, String),
    /// That what a site says goes together: its number, from 0.
    Site(usize),
    /// The same of a route, by the numbers of its site and its own.
    Route(usize, usize),
}

/// Makes the model of what the top level says. Where that is wrong, the reader has problems
/// afterwards, and the model is of no use.
pub(super) fn build(top: &Block, reader: &mut Reader<'_>) -> (Settings, Vec<Claim>) {
    let mut build = Build { reader, claims: Vec::new() };
    let settings = build.settings(top);
    (settings, build.claims)
}

struct Build<'r, 'a> {
    reader: &'r mut Reader<'a>,
    claims: Vec<Claim>,
}

impl Build<'_, '_> {
    fn problem(&mut self, problem: Problem) {
        self.reader.problems.push(problem);
    }

    fn claim(&mut self, at: Span, claimed: Claimed) {
        self.claims.push(Claim { claimed, at });
    }

    /// The path of a setting, if it is said.
    fn path(&self, block: &Block, name: &str) -> Option<(PathBuf, Span)> {
        block.get(name).map(|item| (item.first().path().to_owned(), item.first().at))
    }
}

impl From<bool> for Switch {
    fn from(flag: bool) -> Self {
        if flag { Self::On } else { Self::Off }
    }
}

/// Whether an item is enforced or only observed.
fn enforcement(item: &Item) -> Enforcement {
    if item.the("observe").flag() { Enforcement::Observe } else { Enforcement::Enforce }
}

fn networks(arguments: &[Given]) -> Vec<Network> {
    let network = |given: &Given| match given.value {
        Value::Network(network) => Some(network),
        _ => None,
    };
    arguments.iter().filter_map(network).collect()
}

fn texts(arguments: &[Given]) -> Vec<String> {
    arguments.iter().map(|given| given.text().to_owned()).collect()
}
