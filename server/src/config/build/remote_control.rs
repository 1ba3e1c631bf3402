//! Where control commands are accepted: the Unix socket, and an https address.

use super::{Builder, MachineRequirementKind};
use crate::config::model::{
    Acme, CertificateFiles, ClientCertificates, ClientCertificatesMode, Listener, RemoteControl,
};
use crate::config::problem::Problem;
use crate::config::settings::BlockKind;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::config::value::Value;
use crate::syntax::HostName;
use std::path::PathBuf;

const HTTPS_PORT: u16 = 443;

/// The Unix socket of the configuration of a system, whose folder the user of a service may not write.
const SOCKET_OF_SYSTEM: &str = "/run/selvedge/control";

/// Builds the path of the Unix socket.
pub(super) fn control_socket(builder: &mut Builder<'_, '_>, top: &Block) -> PathBuf {
    let is_path = |item: &&Item| matches!(item.first().value, Value::Path(_));
    let mut paths = top.all("control").filter(is_path);
    let first = paths.next().map(Item::first);
    if let Some(second) = paths.next() {
        builder.problem(Problem::new(second.at, "a second Unix socket for commands").suggest("remove one of them"));
    }
    for item in top.all("control").filter(is_path) {
        if let Some(property) = ["client-ca", "certificate", "key"].into_iter().find_map(|name| item.property(name)) {
            let problem = Problem::new(property.at, "a Unix socket has no certificates");
            builder.problem(problem.suggest("remove it, or write an https address"));
        }
    }
    let defaults;
    let given = match first {
        Some(given) => given,
        None => {
            defaults = builder.reader.block(BlockKind::Top, &[], top.at);
            defaults.item("control").first()
        }
    };
    let path = match given.at == top.at && builder.reader.is_of_system() {
        true => PathBuf::from(SOCKET_OF_SYSTEM),
        false => given.path().to_owned(),
    };
    builder.require(given.at, MachineRequirementKind::SocketDirectory(path.clone()));
    path
}

/// Builds the https address for remote commands.
pub(super) fn remote_control(
    builder: &mut Builder<'_, '_>,
    top: &Block,
    (listeners, acme): (&[Listener], &Acme),
) -> Option<RemoteControl> {
    let mut urls = top.all("control").filter(|item| matches!(item.first().value, Value::Text(_)));
    let item = urls.next()?;
    if let Some(second) = urls.next() {
        let problem = Problem::new(second.at, "a second https address for commands");
        builder.problem(problem.suggest("remove one of them"));
    }
    let (host, port) = host_and_port(builder, item.first())?;
    let Some(authorities) = item.property("client-ca") else {
        let problem = Problem::new(item.at, "an https address for commands without `client-ca`");
        builder.problem(problem.suggest("write client-ca=\"FILE\" with the authorities that sign client certificates"));
        return None;
    };
    let authorities = (authorities.path().to_owned(), authorities.at);
    builder.require(authorities.1, MachineRequirementKind::ClientAuthorities(authorities.0.clone()));
    let clients = ClientCertificates { mode: ClientCertificatesMode::Required, authorities: authorities.0 };
    let certificate = item.property("certificate").map(|chain| {
        let key = item.property("key").unwrap_or(chain);
        let files = CertificateFiles { chain: chain.path().to_owned(), key: key.path().to_owned() };
        builder.require(chain.at, MachineRequirementKind::Certificate(files.clone()));
        files
    });
    if certificate.is_none() && !acme.certifies(&host) {
        let problem = Problem::new(item.first().at, "the server cannot get a certificate for this address by itself");
        builder.problem(problem.suggest("write certificate=\"CHAIN\" key=\"KEY\""));
        return None;
    }
    let remote = RemoteControl { host, port, clients, certificate };
    let listener = remote.listener();
    if listeners.iter().any(|other| other.address == listener.address) {
        let problem = Problem::new(item.first().at, "a listener of sites has this address and port");
        builder.problem(problem.suggest("write another port"));
        return None;
    }
    builder.require(item.first().at, MachineRequirementKind::ListenAddress(listener.address));
    Some(remote)
}

fn host_and_port(builder: &mut Builder<'_, '_>, given: &SpannedValue) -> Option<(HostName, u16)> {
    let authority = given.text().strip_prefix("https://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let parsed = authority.and_then(|authority| match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => Some((host.parse().ok()?, port.parse().ok()?)),
        _ => Some((authority.parse().ok()?, HTTPS_PORT)),
    });
    let is_unspecified = |host: &HostName| ["0.0.0.0", "[::]", "::"].contains(&host.to_string().as_str());
    match parsed {
        Some((host @ HostName::Exact(_), port)) if !is_unspecified(&host) => Some((host, port)),
        _ => {
            let problem =
                Problem::new(given.at, "remote commands need an https address with the name that clients use");
            builder.problem(problem.suggest("write, for example, \"https://control.example.com:8443\""));
            None
        }
    }
}
