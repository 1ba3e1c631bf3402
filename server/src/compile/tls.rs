//! Compiles the TLS of sites: a host for each set of certificates and rules for clients.

use super::Compiler;
use crate::certificates::{Approval, AutomaticCertificates, CertificatePaths, CertificateSet, read_file};
use crate::config::MachineRequirementKind;
use crate::config::model::{self, CertificateFiles, ClientCertificatesMode, Switch};
use crate::site::RouteTable;
use crate::syntax::HostName;
use selvedge::tls::{ClientAuth, ClientCertificates, ClientOffer, Preparation, SelectHost, TicketKeys, TlsHost};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What connections to a site have in common with connections to other sites: certificates, and rules for clients.
type HostKey<'a> = (&'a [CertificateFiles], Option<&'a model::ClientCertificates>);

/// The lowest tag of a host whose certificates the server gets by itself.
const AUTOMATIC_TAGS: u32 = 1 << 24;

/// The hosts of all sites, while they are compiled.
#[derive(Default)]
pub(super) struct Hosts<'a> {
    /// By what they have in common, each with its tag.
    known: HashMap<HostKey<'a>, (u32, Option<Arc<TlsHost>>)>,
    /// The host of each site, by number; `None` without certificates.
    of_sites: Vec<Option<Arc<TlsHost>>>,
    tickets: Option<TicketKeys>,
}

impl<'a> Hosts<'a> {
    /// Returns the hosts for a table; `None` if no site has certificates.
    pub(super) fn select(
        self,
        table: &Arc<RouteTable>,
        settings: &model::Settings,
        automatic: Option<&Arc<AutomaticCertificates>>,
    ) -> Option<SiteHosts> {
        let sites = &settings.sites;
        if self.of_sites.iter().all(Option::is_none) {
            return None;
        }
        Some(SiteHosts {
            table: table.clone(),
            hosts: self.of_sites.into(),
            without_name: site_without_name(sites),
            automatic: automatic.cloned(),
            approvals: sites.iter().map(|site| approval_of(site, &settings.acme)).collect(),
        })
    }
}

/// Chooses the host of a handshake: that of the site with its server name.
pub(crate) struct SiteHosts {
    table: Arc<RouteTable>,
    hosts: Box<[Option<Arc<TlsHost>>]>,
    /// The site for clients that send no name because they connect to an address.
    without_name: Option<u32>,
    /// Responds to validations of a certificate authority.
    automatic: Option<Arc<AutomaticCertificates>>,
    /// What approves further names of each site, by number.
    approvals: Box<[Option<FurtherNames>]>,
}

/// Names of a site beyond its configured ones.
struct FurtherNames {
    approval: Arc<Approval>,
    /// The configured names, which need no approval.
    configured: HashSet<String>,
}

impl FurtherNames {
    /// Whether a name of the site is neither configured nor covered by a configured wildcard.
    fn needs_approval(&self, name: &str) -> bool {
        let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        !self.configured.contains(name) && wildcard.is_none_or(|wildcard| !self.configured.contains(&wildcard))
    }
}

impl std::fmt::Debug for SiteHosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SiteHosts({})", self.hosts.len())
    }
}

impl SelectHost for SiteHosts {
    fn select(&self, offer: &ClientOffer<'_>) -> Option<Arc<TlsHost>> {
        if offer.is_acme_challenge {
            return self.automatic.as_ref()?.challenges().host(offer.server_name?);
        }
        let site = site_of_name(&self.table, self.without_name, offer.server_name)?;
        self.hosts.get(site as usize)?.clone()
    }

    fn prepare(&self, offer: &ClientOffer<'_>) -> Option<Preparation> {
        let name = offer.server_name.filter(|_| !offer.is_acme_challenge)?;
        let site = self.table.site_with_name(Some(name))? as usize;
        let further = self.approvals.get(site)?.as_ref().filter(|further| further.needs_approval(name))?;
        self.automatic.as_ref()?.prepare(name, &further.approval)
    }
}

/// Returns the number of the site that a handshake with this server name is for.
pub(crate) fn site_of_handshake(table: &RouteTable, sites: &[model::Site], server_name: Option<&str>) -> Option<u32> {
    site_of_name(table, site_without_name(sites), server_name)
}

fn site_of_name(table: &RouteTable, without_name: Option<u32>, server_name: Option<&str>) -> Option<u32> {
    match server_name {
        Some(name) => table.site_with_name(Some(name)),
        None => without_name.or_else(|| table.site_with_name(None)),
    }
}

/// Returns the number of the site for clients that send no name because they connect to an address.
fn site_without_name(sites: &[model::Site]) -> Option<u32> {
    let has_address = |site: &model::Site| site.names.iter().any(is_address);
    sites.iter().position(has_address).and_then(|site| u32::try_from(site).ok())
}

/// Whether `on-demand-certificates` of the site decides about a handshake with this server name.
pub(crate) fn needs_approval(site: &model::Site, acme: &model::Acme, server_name: &str) -> bool {
    let name = server_name.to_ascii_lowercase();
    approval_of(site, acme).is_some_and(|further| further.needs_approval(&name))
}

fn approval_of(site: &model::Site, acme: &model::Acme) -> Option<FurtherNames> {
    let approval = Arc::new(approval(&site.tls)?);
    let configured = site.names.iter().filter(|name| acme.certifies(name)).map(HostName::certificate_name).collect();
    Some(FurtherNames { approval, configured })
}

/// Returns what approves further names of a site.
pub(crate) fn approval(tls: &model::SiteTls) -> Option<Approval> {
    Some(match tls.on_demand.as_ref()? {
        model::Approval::Program(program) => Approval::Program(program.path.clone()),
        model::Approval::Url { url, timeout } => Approval::Url { url: url.clone(), timeout: *timeout },
    })
}

fn is_address(name: &HostName) -> bool {
    matches!(name, HostName::Exact(name) if name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok())
}

/// Compiles the host of the next site. Returns its tag, 0 without certificates.
pub(super) fn tls_host<'a>(compiler: &mut Compiler<'a>, site: &'a model::Site) -> u32 {
    if site.tls.automatic == Switch::On {
        // Above the tags of hosts from files.
        let tag = u32::try_from(compiler.hosts.of_sites.len()).expect("a configuration has fewer sites");
        let tag = AUTOMATIC_TAGS + tag;
        let parts = (&site.names[..], site.tls.on_demand.as_ref(), site.tls.client_certificates.as_ref());
        let host = automatic_host(compiler, parts, tag);
        compiler.hosts.of_sites.push(host);
        return tag;
    }
    let key: HostKey<'a> = (&site.tls.certificates, site.tls.client_certificates.as_ref());
    if key.0.is_empty() {
        compiler.hosts.of_sites.push(None);
        return 0;
    }
    let (tag, host) = match compiler.hosts.known.get(&key) {
        Some(known) => known.clone(),
        None => {
            let tag = u32::try_from(compiler.hosts.known.len() + 1).expect("a configuration has fewer hosts");
            let made = (tag, host(compiler, key, tag));
            compiler.hosts.known.insert(key, made.clone());
            made
        }
    };
    compiler.hosts.of_sites.push(host);
    tag
}

/// Compiles the host of remote commands.
pub(super) fn control_host(compiler: &mut Compiler<'_>) -> Option<Arc<TlsHost>> {
    let remote = compiler.configuration.settings.remote_control.as_ref()?;
    match &remote.certificate {
        Some(files) => host(compiler, (std::slice::from_ref(files), Some(&remote.clients)), 0),
        None => {
            let names = std::slice::from_ref(&remote.host);
            automatic_host(compiler, (names, None, Some(&remote.clients)), 0)
        }
    }
}

/// The names of a host, what approves further names, and its rules for clients.
type AutomaticHost<'a> = (&'a [HostName], Option<&'a model::Approval>, Option<&'a model::ClientCertificates>);

/// Compiles a host whose certificates the server gets by itself: one for each name.
fn automatic_host(
    compiler: &mut Compiler<'_>,
    (names, on_demand, clients): AutomaticHost<'_>,
    tag: u32,
) -> Option<Arc<TlsHost>> {
    // A command that does not serve gets no certificate.
    let automatic = compiler.carried.automatic.clone()?;
    let folder = &compiler.settings().certificate_folder;
    if let Err(what) = automatic.use_folder(folder) {
        compiler.problem(&[MachineRequirementKind::CertificateFolder(folder.clone())], what);
        return None;
    }
    let mut sets = Vec::new();
    for name in names.iter().filter(|name| compiler.settings().acme.certifies(name)) {
        let text = name.certificate_name();
        match automatic.certificates(&text, name.reach()) {
            Ok(certificates) => sets.push((text, certificates)),
            Err(what) => {
                compiler.problem(&[MachineRequirementKind::CertificateFolder(folder.clone())], what);
                return None;
            }
        }
    }
    let builder = match on_demand {
        None => TlsHost::builder().certificates_by_name(sets),
        Some(_) => TlsHost::builder().certificates_by_name_or(sets, move |name| automatic.approved(name)),
    };
    let mut builder = builder.ticket_keys(ticket_keys(compiler)?).identity(format!("{names:?}")).tag(tag);
    if let Some(clients) = clients {
        builder = builder.client_certificates(client_certificates(compiler, clients)?);
    }
    match builder.build() {
        Ok(host) => Some(Arc::new(host)),
        Err(error) => {
            compiler.problem(&[MachineRequirementKind::CertificateFolder(folder.clone())], error);
            None
        }
    }
}

fn host(compiler: &mut Compiler<'_>, (files, clients): HostKey<'_>, tag: u32) -> Option<Arc<TlsHost>> {
    let set = certificate_set(compiler, files)?;
    let mut builder = TlsHost::builder()
        .certificates(set.certificates().clone())
        .ticket_keys(ticket_keys(compiler)?)
        .identity(format!("{files:?}"))
        .tag(tag);
    if let Some(clients) = clients {
        builder = builder.client_certificates(client_certificates(compiler, clients)?);
    }
    match builder.build() {
        Ok(host) => Some(Arc::new(host)),
        Err(error) => {
            compiler.problem(&[MachineRequirementKind::Certificate(files[0].clone())], error);
            None
        }
    }
}

/// Loads certificates, or continues with those of the previous configuration.
fn certificate_set(compiler: &mut Compiler<'_>, files: &[CertificateFiles]) -> Option<Arc<CertificateSet>> {
    let paths: Vec<_> =
        files.iter().map(|files| CertificatePaths { chain: files.chain.clone(), key: files.key.clone() }).collect();
    if let Some(set) = compiler.carried.certificates.get(&paths).or_else(|| compiler.earlier.certificates.get(&paths)) {
        let set = set.clone();
        compiler.carried.certificates.insert(paths, set.clone());
        return Some(set);
    }
    match CertificateSet::load(&paths) {
        Ok(set) => {
            let set = Arc::new(set);
            compiler.carried.certificates.insert(paths, set.clone());
            Some(set)
        }
        Err(errors) => {
            for (index, error) in errors {
                compiler.problem(&[MachineRequirementKind::Certificate(files[index].clone())], error);
            }
            None
        }
    }
}

/// Reads the authorities of client certificates. Without them, the site is not served.
fn client_certificates(compiler: &mut Compiler<'_>, clients: &model::ClientCertificates) -> Option<ClientCertificates> {
    let mode = match clients.mode {
        ClientCertificatesMode::Required => ClientAuth::Required,
        ClientCertificatesMode::Optional => ClientAuth::Optional,
    };
    match read_authorities(mode, &clients.authorities) {
        Ok(certificates) => Some(certificates),
        Err(what) => {
            compiler.problem(&[MachineRequirementKind::ClientAuthorities(clients.authorities.clone())], what);
            None
        }
    }
}

/// Returns the keys of session tickets.
fn ticket_keys(compiler: &mut Compiler<'_>) -> Option<TicketKeys> {
    if let Some(keys) = &compiler.hosts.tickets {
        return Some(keys.clone());
    }
    let mut secrets = Vec::new();
    for path in &compiler.settings().ticket_keys {
        match read_secrets(path) {
            Ok(read) => secrets.extend(read),
            Err(what) => {
                compiler.problem(&[MachineRequirementKind::TicketKeys(path.clone())], what);
                return None;
            }
        }
    }
    let keys = TicketKeys::from_secrets(&secrets).unwrap_or_else(|| TicketKeys::of_process().clone());
    compiler.hosts.tickets = Some(keys.clone());
    Some(keys)
}

/// Reads the authorities that sign client certificates.
pub(crate) fn read_authorities(mode: ClientAuth, path: &Path) -> Result<ClientCertificates, String> {
    let text = read_file(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    ClientCertificates::from_pem(mode, &text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads the secrets of a file, or of the files of a folder, the last name first.
pub(crate) fn read_secrets(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
    let mut files: Vec<PathBuf> = if path.is_dir() {
        let entries = fs::read_dir(path).map_err(|error| failed(path, &error))?;
        let entries: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
        entries.map_err(|error| failed(path, &error))?.into_iter().filter(|file| file.is_file()).collect()
    } else {
        vec![path.to_owned()]
    };
    files.sort_by(|a, b| b.cmp(a));
    let mut secrets = Vec::new();
    for file in files {
        let secret = read_file(&file).map_err(|error| failed(&file, &error))?;
        if TicketKeys::from_secrets(std::slice::from_ref(&secret)).is_none() {
            return Err(format!("{} has {} bytes; a secret has at least 32", file.display(), secret.len()));
        }
        secrets.push(secret);
    }
    if secrets.is_empty() {
        return Err(format!("{} has no file with a secret", path.display()));
    }
    Ok(secrets)
}
