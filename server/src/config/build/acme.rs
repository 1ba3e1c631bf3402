//! Certificates that the server gets by itself, and the programs that take part.

use super::{Builder, MachineRequirementKind, texts};
use crate::config::model::{Acme, Approval, Challenge, ExternalAccount, Program, Switch};
use crate::config::problem::Problem;
use crate::config::settings::BlockKind;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::config::value::Value;
use crate::syntax::HostName;
use std::net::{IpAddr, SocketAddr};

const DNS_PORT: u16 = 53;

/// Builds the settings of orders.
pub(super) fn acme(builder: &mut Builder<'_, '_>, top: &Block) -> Acme {
    let defaults;
    let block = match top.get("acme") {
        Some(item) => item.block(),
        None => {
            defaults = builder.reader.block(BlockKind::Acme, &[], top.at);
            &defaults
        }
    };
    let text = |name: &str| block.get(name).map(|item| item.first().text().to_owned());
    let root = builder.path(block, "ca");
    if let Some((path, at)) = root.clone() {
        builder.require(at, MachineRequirementKind::ClientAuthorities(path));
    }
    let directories = texts(&block.item("directory").arguments);
    for (directory, given) in directories.iter().zip(&block.item("directory").arguments) {
        if !directory.starts_with("https://") {
            let problem = Problem::new(given.at, "a directory is an https address");
            builder.problem(problem.suggest("write, for example, \"https://acme.example/directory\""));
        }
    }
    let challenge = match block.item("challenge").first().text() {
        "http-01" => Challenge::Http,
        "tls-alpn-01" => Challenge::Tls,
        "dns-01" => Challenge::Dns,
        "dns-persist-01" => Challenge::DnsPersist,
        _ => Challenge::Any,
    };
    let hook = block.get("dns-hook");
    match (hook, challenge) {
        (Some(item), other) if other != Challenge::Dns => {
            let problem = Problem::new(item.at, "`dns-hook` without `challenge \"dns-01\"` has no effect");
            builder.problem(problem.suggest("write `challenge \"dns-01\"`, or remove it"));
        }
        (None, Challenge::Dns) => {
            let problem = Problem::new(block.item("challenge").at, "`dns-01` without a program that sets records");
            builder.problem(problem.suggest("write `dns-hook \"PROGRAM\"`, or `challenge \"dns-persist-01\"`"));
        }
        _ => {}
    }
    Acme {
        directories,
        email: text("email"),
        root: root.map(|(path, _)| path),
        profile: text("profile"),
        challenge,
        dns_hook: hook.map(|item| program(builder, item)),
        external_account: block.get("external-account").and_then(|item| external_account(builder, item)),
        name_server: block.get("name-server").and_then(|item| name_server(builder, item.first())),
        reach_check: Switch::from(block.item("reach-check").first().flag()),
    }
}

/// Builds a program, which has to exist.
fn program(builder: &mut Builder<'_, '_>, item: &Item) -> Program {
    let given = item.first();
    let user = item.property("user");
    if let Some(user) = user {
        builder.require(user.at, MachineRequirementKind::User(user.text().to_owned()));
    }
    let program = Program {
        path: given.path().to_owned(),
        user: user.map(|user| user.text().to_owned()),
        timeout: item.required("timeout").time(),
    };
    builder.require(given.at, MachineRequirementKind::Program(program.clone()));
    program
}

fn external_account(builder: &mut Builder<'_, '_>, item: &Item) -> Option<ExternalAccount> {
    let Some(file) = item.property("file") else {
        if item.invalid.is_empty() {
            let problem = Problem::new(item.at, "`external-account` without `file`");
            builder.problem(problem.suggest("write file=\"FILE\" with the key that the certificate authority shows"));
        }
        return None;
    };
    let key_file = file.path().to_owned();
    builder.require(file.at, MachineRequirementKind::KeyFile(key_file.clone()));
    Some(ExternalAccount { key_id: item.first().text().to_owned(), key_file })
}

fn name_server(builder: &mut Builder<'_, '_>, given: &SpannedValue) -> Option<SocketAddr> {
    let text = given.text();
    let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
    let address = text.parse::<SocketAddr>().ok().or(address.ok());
    if address.is_none() {
        let problem = Problem::new(given.at, "a name server is an IP address, with a port or without");
        builder.problem(problem.suggest("write, for example, \"127.0.0.1:53\""));
    }
    address
}

/// Builds what approves further names of a site.
pub(super) fn approval(
    builder: &mut Builder<'_, '_>,
    block: &Block,
    (names, automatic): (&[HostName], Switch),
) -> Option<Approval> {
    let item = block.get("on-demand-certificates")?;
    let has_wildcard = names.iter().any(|name| !matches!(name, HostName::Exact(_)));
    let instead = match (automatic, has_wildcard) {
        (Switch::Off, _) => "the site needs a listener with TLS, and no `certificate` of its own",
        (_, false) => "the site needs a wildcard name, such as \"*\"",
        _ => "",
    };
    if !instead.is_empty() {
        builder.problem(Problem::new(item.at, "`on-demand-certificates` has no effect").suggest(instead));
        return None;
    }
    let Value::Text(url) = &item.first().value else { return Some(Approval::Program(program(builder, item))) };
    if let Some(user) = item.property("user") {
        let problem = Problem::new(user.at, "`user` applies to programs only");
        builder.problem(problem.suggest("remove it, or name a program"));
    }
    Some(Approval::Url { url: url.clone(), timeout: item.required("timeout").time() })
}
