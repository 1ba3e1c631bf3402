//! TLS: certificates of sites, and whether listeners and sites fit together.

use super::acme::approval;
use super::{Builder, MachineRequirementKind};
use crate::config::model::{
    Acme, CertificateFiles, ClientCertificates, ClientCertificatesMode, Hsts, Listener, RemoteControl, Site, SiteTls,
    Switch, has_automatic_certificate,
};
use crate::config::problem::Problem;
use crate::config::settings::PRELOAD_MIN;
use crate::config::tree::{Block, Item, SpannedValue};
use crate::config::value::{Address, Value};
use crate::syntax::{HostName, NameReach};
use std::net::Ipv6Addr;
use std::path::PathBuf;

/// Whether a listener has TLS.
pub(super) fn listener_tls(item: &Item, address: &Address) -> Switch {
    Switch::from(item.property("tls").map_or(address.has_https_port(), |given| given.flag()))
}

/// Whether a listener accepts HTTP/2 without TLS.
pub(super) fn listener_plain_http2(builder: &mut Builder<'_, '_>, item: &Item, tls: Switch) -> Switch {
    let Some(given) = item.property("http2") else { return Switch::Off };
    if tls == Switch::On {
        let problem = Problem::new(given.at, "`http2` is for listeners without TLS".to_owned());
        let instead = "remove it: with TLS, each client chooses HTTP/2 or HTTP/1.1 in the handshake";
        builder.problem(problem.suggest(instead));
    }
    Switch::from(given.flag())
}

/// Builds the paths of the secrets of session tickets.
pub(super) fn ticket_keys(builder: &mut Builder<'_, '_>, top: &Block) -> Vec<PathBuf> {
    let Some(item) = top.get("ticket-keys") else { return Vec::new() };
    for given in &item.arguments {
        builder.require(given.at, MachineRequirementKind::TicketKeys(given.path().to_owned()));
    }
    item.arguments.iter().map(|given| given.path().to_owned()).collect()
}

/// Builds the TLS settings of a site.
pub(super) fn site_tls(builder: &mut Builder<'_, '_>, block: &Block, names: &[HostName]) -> SiteTls {
    let mut certificates = Vec::new();
    for item in block.all("certificate") {
        let chain = item.first();
        let key = item.property("key").unwrap_or(chain);
        let files = CertificateFiles { chain: chain.path().to_owned(), key: key.path().to_owned() };
        builder.require(chain.at, MachineRequirementKind::Certificate(files.clone()));
        certificates.push(files);
    }
    let has_certificate = block.has_any(&["certificate"]);
    let automatic = automatic(builder, block, names);
    let has_tls = has_certificate || automatic == Switch::On;
    for name in ["client-certificates", "https-redirect", "hsts"] {
        if let Some(item) = block.get(name)
            && !has_tls
        {
            let problem = Problem::new(item.at, format!("`{name}` without a certificate has no effect"));
            let instead =
                "write `listen \"[::]:443\"`, or `certificate \"CHAIN\" key=\"KEY\"` in the site, or remove it";
            builder.problem(problem.suggest(instead));
        }
    }
    let on_demand = approval(builder, block, (names, automatic));
    let client_certificates = block.get("client-certificates").and_then(|item| client_certificates(builder, item));
    let https_redirect = Switch::from(block.get("https-redirect").map_or(has_tls, |item| item.first().flag()));
    if let Some(item) = block.get("hsts")
        && has_tls
        && https_redirect == Switch::Off
    {
        let problem = Problem::new(item.at, "`hsts` with `https-redirect #false`");
        builder.problem(problem.suggest("remove one of them: browsers ignore the field on plain responses"));
    }
    let hsts = block.get("hsts").map(|item| hsts(builder, item));
    SiteTls { certificates, automatic, on_demand, client_certificates, https_redirect, hsts }
}

/// Whether the server gets the certificates of a site by itself.
fn automatic(builder: &mut Builder<'_, '_>, block: &Block, names: &[HostName]) -> Switch {
    let has_certificate = block.has_any(&["certificate"]);
    let written = block.get("automatic-certificate");
    let certifies = |name: &HostName| builder.acme.as_ref().is_some_and(|acme| acme.certifies(name));
    let has_approval = block.has_any(&["on-demand-certificates"]);
    let is_possible = builder.has_tls && (has_approval || names.iter().any(certifies));
    match written.map(|item| (item.at, item.first().flag())) {
        Some((at, true)) if has_certificate => {
            builder.problem(
                Problem::new(at, "`automatic-certificate` beside `certificate`").suggest("remove one of them"),
            );
            Switch::Off
        }
        Some((at, true)) if !is_possible => {
            let problem = Problem::new(at, "`automatic-certificate` has no effect");
            let instead = "it needs a listener with TLS, and a name that is no wildcard or a `challenge` by records";
            builder.problem(problem.suggest(instead));
            Switch::Off
        }
        Some((_, false)) => Switch::Off,
        _ => Switch::from(is_possible && !has_certificate),
    }
}

/// The folder of certificates for the configuration of a system, whose own folder the user of a service may not write.
const CERTIFICATES_OF_SYSTEM: &str = "/var/lib/selvedge/certificates";

/// Builds the folder of certificates, which is needed if the server gets one by itself.
pub(super) fn certificate_folder(
    builder: &mut Builder<'_, '_>,
    top: &Block,
    (sites, remote): (&[Site], Option<&RemoteControl>),
) -> PathBuf {
    let given = top.item("certificate-folder").first();
    let path = match given.at == top.at && builder.reader.is_of_system() {
        true => PathBuf::from(CERTIFICATES_OF_SYSTEM),
        false => given.path().to_owned(),
    };
    if has_automatic_certificate(sites, remote) {
        builder.require(given.at, MachineRequirementKind::CertificateFolder(path.clone()));
    }
    path
}

/// Whether a site is for public names, and does not refuse certificates.
pub(super) fn has_public_site(top: &Block, acme: &Acme) -> bool {
    let is_public = |given: &SpannedValue| matches!(&given.value, Value::Host(name) if acme.certifies(name) && name.reach() != NameReach::Internal);
    let is_off = |item: &Item| item.block().get("automatic-certificate").is_some_and(|flag| !flag.first().flag());
    let has_approval = |item: &Item| item.block().has_any(&["on-demand-certificates"]);
    top.all("site").any(|item| (item.arguments.iter().any(is_public) || has_approval(item)) && !is_off(item))
}

/// Returns the listeners of a configuration with a public site that names none.
pub(super) fn https_listeners() -> Vec<Listener> {
    let listener = |port, tls| Listener {
        address: Address::Inet((Ipv6Addr::UNSPECIFIED, port).into()),
        mode: 0,
        is_ipv6_only: false,
        plain_http2: Switch::Off,
        proxy_protocol: Switch::Off,
        tls,
    };
    vec![listener(80, Switch::Off), listener(443, Switch::On)]
}

fn client_certificates(builder: &mut Builder<'_, '_>, item: &Item) -> Option<ClientCertificates> {
    let Some(authorities) = item.property("ca") else {
        if item.invalid.is_empty() {
            let problem = Problem::new(item.at, "`client-certificates` without `ca`");
            builder.problem(problem.suggest("write ca=\"FILE\" with the authorities that sign client certificates"));
        }
        return None;
    };
    let path = authorities.path().to_owned();
    builder.require(authorities.at, MachineRequirementKind::ClientAuthorities(path.clone()));
    let mode = match item.first().text() {
        "optional" => ClientCertificatesMode::Optional,
        _ => ClientCertificatesMode::Required,
    };
    Some(ClientCertificates { mode, authorities: path })
}

fn hsts(builder: &mut Builder<'_, '_>, item: &Item) -> Hsts {
    let flag = |name| Switch::from(item.required(name).flag());
    let hsts =
        Hsts { max_age: item.required("max-age").time(), subdomains: flag("subdomains"), preload: flag("preload") };
    if hsts.preload == Switch::On && (hsts.subdomains == Switch::Off || hsts.max_age < PRELOAD_MIN) {
        let problem = Problem::new(item.at, "`preload` without `subdomains` or with less than a year");
        builder.problem(problem.suggest("write subdomains=#true max-age=\"365d\""));
    }
    hsts
}

/// Reports listeners with TLS for which no site has a certificate, and certificates for which no listener has TLS.
pub(super) fn check_listeners(top: &Block, sites: &[Site], problems: &mut Vec<Problem>) {
    let blocks = || top.all("site").map(Item::block);
    let certificate = blocks().find_map(|site| site.get("certificate").map(|item| item.at));
    let is_unclear = blocks().any(|site| site.invalid.contains(&"certificate")) || top.invalid.contains(&"listen");
    let is_automatic = sites.iter().any(|site| site.tls.automatic == Switch::On);
    let with_tls = |item: &&Item| match &item.first().value {
        Value::Listen(address) => listener_tls(item, address) == Switch::On,
        _ => false,
    };
    match (certificate, top.all("listen").find(with_tls).map(|item| item.at)) {
        (None, Some(listener)) if !is_unclear && !is_automatic => {
            let problem = Problem::new(listener, "no site has a certificate for this listener with TLS");
            problems.push(problem.suggest("write `certificate \"CHAIN\" key=\"KEY\"` in a site, or `tls=#false` here"));
        }
        (Some(certificate), None) if !is_unclear => {
            let problem = Problem::new(certificate, "no listener has TLS, so the certificate has no effect");
            problems.push(problem.suggest("write `listen \"[::]:443\"`, or `tls=#true` at a listener"));
        }
        _ => {}
    }
}
