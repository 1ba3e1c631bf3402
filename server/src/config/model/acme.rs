//! The settings of certificates that the server gets by itself, and of the programs that take part.

use super::print::{Printer, flag, quote, quote_path};
use super::print_site::quoted;
use super::{RemoteControl, Settings, Site, Switch};
use crate::config::value::write_time;
use crate::syntax::{HostName, NameReach};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How certificates are ordered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Acme {
    /// At least one.
    pub(crate) directories: Vec<String>,
    pub(crate) email: Option<String>,
    /// `None`: the roots of the system.
    pub(crate) root: Option<PathBuf>,
    pub(crate) profile: Option<String>,
    pub(crate) challenge: Challenge,
    /// The program of [`Challenge::Dns`].
    pub(crate) dns_hook: Option<Program>,
    pub(crate) external_account: Option<ExternalAccount>,
    /// `None`: those of the system.
    pub(crate) name_server: Option<SocketAddr>,
    pub(crate) reach_check: Switch,
}

impl Acme {
    /// Whether the server can get a certificate for a name by itself.
    pub(crate) fn certifies(&self, name: &HostName) -> bool {
        match name.reach() {
            NameReach::Public | NameReach::Internal => true,
            NameReach::PublicWildcard => matches!(self.challenge, Challenge::Dns | Challenge::DnsPersist),
            NameReach::Unknown => false,
        }
    }
}

/// Whether the server gets a certificate for a site or for remote commands by itself.
pub(crate) fn has_automatic_certificate(sites: &[Site], remote: Option<&RemoteControl>) -> bool {
    remote.is_some_and(|remote| remote.certificate.is_none())
        || sites.iter().any(|site| site.tls.automatic == Switch::On)
}

impl Settings {
    /// Returns the folder of the certificates that the server gets by itself; `None` if it gets none.
    pub(crate) fn needed_certificate_folder(&self) -> Option<&Path> {
        has_automatic_certificate(&self.sites, self.remote_control.as_ref()).then_some(&*self.certificate_folder)
    }

    /// Returns the programs that the server runs, each once.
    pub(crate) fn programs(&self) -> Vec<Program> {
        let approvals = self.sites.iter().filter_map(|site| match &site.tls.on_demand {
            Some(Approval::Program(program)) => Some(program.clone()),
            _ => None,
        });
        let programs: BTreeSet<Program> = self.acme.dns_hook.iter().cloned().chain(approvals).collect();
        programs.into_iter().collect()
    }

    /// Returns the files of certificates and keys, each once.
    pub(crate) fn private_files(&self) -> BTreeSet<PathBuf> {
        let control = self.remote_control.as_ref();
        let certificates = self.sites.iter().flat_map(|site| &site.tls.certificates);
        let certificates = certificates.chain(control.and_then(|control| control.certificate.as_ref()));
        let clients = self.sites.iter().filter_map(|site| site.tls.client_certificates.as_ref());
        let clients = clients.chain(control.map(|control| &control.clients));
        let accounts = self.acme.external_account.iter().map(|account| &account.key_file);
        certificates
            .flat_map(|files| [&files.chain, &files.key])
            .chain(clients.map(|clients| &clients.authorities))
            .chain(accounts)
            .chain(&self.ticket_keys)
            .chain(self.upstreams.iter().flat_map(super::Upstream::private_files))
            .cloned()
            .collect()
    }
}

/// A program that the server runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// `None`: the user of the server.
    pub(crate) user: Option<String>,
    pub(crate) timeout: Duration,
}

/// An account that a certificate authority has for its customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExternalAccount {
    pub(crate) key_id: String,
    pub(crate) key_file: PathBuf,
}

/// What approves further names of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    Program(Program),
    Url { url: String, timeout: Duration },
}

/// How names are validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    Any,
    Http,
    Tls,
    Dns,
    DnsPersist,
}

impl Acme {
    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        lines.line(format_args!("directory {}", quoted(&self.directories)))?;
        for (name, text) in [("email", &self.email), ("profile", &self.profile)] {
            if let Some(text) = text {
                lines.line(format_args!("{name} {}", quote(text)))?;
            }
        }
        if let Some(root) = &self.root {
            lines.line(format_args!("ca {}", quote_path(root)))?;
        }
        let challenge = match self.challenge {
            Challenge::Any => "any",
            Challenge::Http => "http-01",
            Challenge::Tls => "tls-alpn-01",
            Challenge::Dns => "dns-01",
            Challenge::DnsPersist => "dns-persist-01",
        };
        lines.line(format_args!("challenge \"{challenge}\""))?;
        if let Some(program) = &self.dns_hook {
            lines.line(format_args!("dns-hook {program}"))?;
        }
        if let Some(ExternalAccount { key_id, key_file }) = &self.external_account {
            lines.line(format_args!("external-account {} file={}", quote(key_id), quote_path(key_file)))?;
        }
        if let Some(address) = &self.name_server {
            lines.line(format_args!("name-server \"{address}\""))?;
        }
        lines.line(format_args!("reach-check {}", flag(self.reach_check)))
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", quote_path(&self.path))?;
        if let Some(user) = &self.user {
            write!(f, " user={}", quote(user))?;
        }
        write!(f, " timeout=\"{}\"", write_time(self.timeout))
    }
}

impl Display for Approval {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(program) => program.fmt(f),
            Self::Url { url, timeout } => write!(f, "{} timeout=\"{}\"", quote(url), write_time(*timeout)),
        }
    }
}
