//! The settings of remote commands.

use super::print::{quote, quote_path};
use super::{CertificateFiles, ClientCertificates, Listener, Switch};
use crate::config::value::Address;
use crate::syntax::HostName;
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv6Addr};

const HTTPS_PORT: u16 = 443;

/// An https address for remote commands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemoteControl {
    /// The name or address by which clients reach it.
    pub(crate) host: HostName,
    pub(crate) port: u16,
    pub(crate) clients: ClientCertificates,
    /// `None`: the server gets a certificate by itself.
    pub(crate) certificate: Option<CertificateFiles>,
}

impl RemoteControl {
    /// Returns the host and port as clients send them, with the port of the socket.
    pub(crate) fn authority(&self, port: u16) -> String {
        match port {
            HTTPS_PORT => self.host.to_string(),
            port => format!("{}:{port}", self.host),
        }
    }

    /// Returns the IP address, if clients reach it by one.
    pub(crate) fn ip_address(&self) -> Option<IpAddr> {
        self.host.to_string().trim_matches(['[', ']']).parse().ok()
    }

    /// Returns the listener: at its IP address, or at all of this machine.
    pub(crate) fn listener(&self) -> Listener {
        let address = self.ip_address().unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let address = Address::Inet((address, self.port).into());
        Listener {
            address,
            mode: 0,
            is_ipv6_only: false,
            tls: Switch::On,
            plain_http2: Switch::Off,
            proxy_protocol: Switch::Off,
        }
    }
}

impl Display for RemoteControl {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let url = format!("https://{}:{}", self.host, self.port);
        write!(f, "control {} client-ca={}", quote(&url), quote_path(&self.clients.authorities))?;
        match &self.certificate {
            Some(files) => write!(f, " certificate={} key={}", quote_path(&files.chain), quote_path(&files.key)),
            None => Ok(()),
        }
    }
}
