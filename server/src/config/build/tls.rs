//! TLS: certificates of sites, and whether listeners and sites fit together.

use super::{Builder, MachineRequirementKind};
use crate::config::model::{CertificateFiles, ClientCertificates, ClientCertificatesMode, Hsts, SiteTls, Switch};
use crate::config::position::Span;
use crate::config::problem::Problem;
use crate::config::settings::PRELOAD_MIN;
use crate::config::tree::{Block, Item};
use crate::config::value::{Address, Value};
use std::path::PathBuf;

/// Whether a listener has TLS.
pub(super) fn listener_tls(item: &Item, address: &Address) -> Switch {
    Switch::from(item.property("tls").map_or(address.has_https_port(), |given| given.flag()))
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
pub(super) fn site_tls(builder: &mut Builder<'_, '_>, block: &Block) -> SiteTls {
    let mut certificates = Vec::new();
    for item in block.all("certificate") {
        let chain = item.first();
        let key = item.property("key").unwrap_or(chain);
        let files = CertificateFiles { chain: chain.path().to_owned(), key: key.path().to_owned() };
        builder.require(chain.at, MachineRequirementKind::Certificate(files.clone()));
        certificates.push(files);
    }
    let has_certificate = block.has_any(&["certificate"]);
    for name in ["client-certificates", "https-redirect", "hsts"] {
        if let Some(item) = block.get(name)
            && !has_certificate
        {
            let problem = Problem::new(item.at, format!("`{name}` without `certificate` has no effect"));
            builder.problem(problem.suggest("write `certificate \"CHAIN\" key=\"KEY\"` in the site, or remove it"));
        }
    }
    let client_certificates = block.get("client-certificates").and_then(|item| client_certificates(builder, item));
    let https_redirect = Switch::from(block.get("https-redirect").map_or(has_certificate, |item| item.first().flag()));
    let hsts = block.get("hsts").map(|item| hsts(builder, item, https_redirect));
    SiteTls { certificates, client_certificates, https_redirect, hsts }
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

fn hsts(builder: &mut Builder<'_, '_>, item: &Item, https_redirect: Switch) -> Hsts {
    let flag = |name| Switch::from(item.required(name).flag());
    let hsts =
        Hsts { max_age: item.required("max-age").time(), subdomains: flag("subdomains"), preload: flag("preload") };
    let mut problem = |what: &str, instead: &str| builder.problem(Problem::new(item.at, what).suggest(instead));
    if https_redirect == Switch::Off {
        problem(
            "`hsts` with `https-redirect #false`",
            "remove one of them: browsers ignore the field on plain responses",
        );
    }
    if hsts.preload == Switch::On && (hsts.subdomains == Switch::Off || hsts.max_age < PRELOAD_MIN) {
        problem("`preload` without `subdomains` or with less than a year", "write subdomains=#true max-age=\"365d\"");
    }
    hsts
}

/// Reports listeners with TLS for which no site has a certificate, and certificates for which no listener has TLS.
pub(super) fn check_listeners(top: &Block, problems: &mut Vec<Problem>) {
    let sites = || top.all("site").map(Item::block);
    let certificate = sites().find_map(|site| site.get("certificate").map(|item| item.at));
    let is_unclear = sites().any(|site| site.invalid.contains(&"certificate")) || top.invalid.contains(&"listen");
    let tls: Vec<Span> = top
        .all("listen")
        .filter(|item| match &item.first().value {
            Value::Listen(address) => listener_tls(item, address) == Switch::On,
            _ => false,
        })
        .map(|item| item.at)
        .collect();
    match (certificate, tls.first()) {
        (None, Some(&listener)) if !is_unclear => {
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
