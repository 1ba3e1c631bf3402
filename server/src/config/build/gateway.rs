//! The route actions that run scripts and programs: `php`, `fastcgi`, `scgi` and `cgi`.

use super::upstream::is_listener;
use super::{Builder, Inherited, MachineRequirementKind, texts};
use crate::config::model::{CgiPrograms, Files, Gateway, ScriptRunner, SendFile, Switch, TrailingSlash};
use crate::config::problem::Problem;
use crate::config::tree::{Block, Item};
use crate::config::value::{ServerPlace, Value};
use crate::syntax::{Pattern, TryPath};
use std::path::PathBuf;

pub(super) fn gateway(builder: &mut Builder<'_, '_>, item: &Item, patterns: &[Pattern], site: &Inherited) -> Gateway {
    let block = item.block();
    let time = |name: &str| block.item(name).first().time();
    let runner = match item.setting.name {
        "php" => php(builder, item, site),
        "fastcgi" => ScriptRunner::FastCgi {
            address: script_server(builder, item),
            root: document_root(builder, item, site),
            idle_connections_max: idle_connections_max(block),
        },
        "scgi" => {
            ScriptRunner::Scgi { address: script_server(builder, item), root: document_root(builder, item, site) }
        }
        _ => ScriptRunner::Cgi(cgi(builder, item, patterns)),
    };
    Gateway {
        connect_timeout: (!matches!(runner, ScriptRunner::Cgi(_))).then(|| time("connect-timeout")),
        runner,
        variables: variables(builder, block),
        requests_max: u32::try_from(block.item("requests-max").first().number()).expect("its range is within u32"),
        response_timeout: time("response-timeout"),
        silence_timeout: time("silence-timeout"),
        spool_bytes_max: block.item("spool-bytes-max").first().number(),
        send_file: block.get("send-file").map(|item| send_file(builder, item)),
    }
}

fn php(builder: &mut Builder<'_, '_>, item: &Item, site: &Inherited) -> ScriptRunner {
    let block = item.block();
    let root = document_root(builder, item, site);
    if root.is_none() && !item.invalid.contains(&"root") {
        let problem = Problem::new(item.at, "`php` needs a root");
        builder.problem(problem.suggest("write `root PATH` in the site, or root=PATH here"));
    }
    ScriptRunner::Php {
        address: script_server(builder, item),
        files: Files {
            root: root.unwrap_or_default(),
            strip_prefix: Switch::Off,
            index: block.get("index").map_or_else(|| site.index.clone(), |item| texts(&item.arguments)),
            fallback: None,
            listing: Switch::Off,
            precompressed: item
                .property("precompressed")
                .map_or(site.precompressed, |given| Switch::from(given.flag())),
            try_files: vec![TryPath::Request],
            clean_urls: Switch::Off,
            trailing_slash: TrailingSlash::Auto,
            link_targets: site.link_targets.clone(),
        },
        front_controller: item.required("front-controller").text().to_owned(),
        root_there: block.get("root-there").map(|item| item.first().path().to_owned()),
        idle_connections_max: idle_connections_max(block),
    }
}

/// Returns the root of an application: its own, or that of its site.
fn document_root(builder: &mut Builder<'_, '_>, item: &Item, site: &Inherited) -> Option<PathBuf> {
    let Some(given) = item.property("root") else { return site.root.clone() };
    builder.require(given.at, MachineRequirementKind::Root(given.path().to_owned()));
    Some(given.path().to_owned())
}

fn script_server(builder: &mut Builder<'_, '_>, item: &Item) -> ServerPlace {
    let given = item.first();
    let Value::ScriptServer(place) = &given.value else { unreachable!("the table requires a server") };
    if builder.listeners.iter().any(|listener| is_listener(place, listener)) {
        let problem = Problem::new(given.at, "this is a listener of this configuration");
        builder.problem(problem.suggest("write the address of the server that runs the scripts"));
    }
    place.clone()
}

fn cgi(builder: &mut Builder<'_, '_>, item: &Item, patterns: &[Pattern]) -> CgiPrograms {
    let block = item.block();
    let given = item.first();
    let user = item.property("user");
    if let Some(user) = user {
        builder.require(user.at, MachineRequirementKind::User(user.text().to_owned()));
    }
    let program = item.property("program").map(|given| given.text().to_owned());
    if let Some(pattern) = patterns.iter().find(|pattern| program.is_none() && !pattern.ends_with_rest()) {
        let problem = Problem::new(item.at, format!("`{pattern}` names no program of the folder"));
        builder.problem(problem.suggest("write a pattern that ends with `/*`, or program=\"NAME\""));
    }
    let number = |name: &str| block.item(name).first().number();
    let programs = CgiPrograms {
        folder: given.path().to_owned(),
        user: user.map(|user| user.text().to_owned()),
        program,
        run_timeout: block.item("run-timeout").first().time(),
        memory_bytes_max: number("memory-bytes-max"),
        output_bytes_max: number("output-bytes-max"),
    };
    builder.require(given.at, MachineRequirementKind::CgiPrograms(programs.clone()));
    programs
}

fn variables(builder: &mut Builder<'_, '_>, block: &Block) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for item in block.all("env") {
        let [name, value] = [0, 1].map(|number: usize| item.arguments[number].text().to_owned());
        if variables.iter().any(|(known, _)| *known == name) {
            let problem = Problem::new(item.at, format!("variable `{name}` is repeated"));
            builder.problem(problem.suggest("remove one of them"));
        }
        if value.contains('\0') {
            let problem = Problem::new(item.at, "the value of a variable contains a NUL");
            builder.problem(problem.suggest("remove it"));
        }
        variables.push((name, value));
    }
    variables
}

fn send_file(builder: &mut Builder<'_, '_>, item: &Item) -> SendFile {
    let given = item.first();
    builder.require(given.at, MachineRequirementKind::Root(given.path().to_owned()));
    SendFile { folder: given.path().to_owned(), prefix: item.required("prefix").text().to_owned() }
}

fn idle_connections_max(block: &Block) -> u32 {
    u32::try_from(block.item("idle-connections-max").first().number()).expect("its range is within u32")
}
