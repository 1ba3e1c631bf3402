//! The server that is attacked: its URL, its address, and the rule which addresses are permitted.

use super::attack_connection::AttackConnection;
use super::running_server::RunningServer;
use super::tls_client::TlsClient;
use crate::site_urls::own_addresses;
use http::Uri;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest time to connect, and for a handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The protocol below HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlScheme {
    Http,
    Https,
}

/// What a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetUrl {
    pub(super) scheme: UrlScheme,
    /// Host and port as in the URL, for the field Host.
    pub(super) authority: String,
    /// The host without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query.
    pub(super) path: String,
}

/// Who permits an address that is neither of loopback nor known to the running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerConsent {
    /// The owner of the host, by an option.
    Given,
    Missing,
}

/// A server at a permitted address.
#[derive(Clone, Debug)]
pub(super) struct AttackTarget {
    pub(super) url: TargetUrl,
    pub(super) address: SocketAddr,
    tls: TlsClient,
    /// When the attacks have to be over.
    ends_at: Option<Instant>,
}

impl TargetUrl {
    /// Reads a URL of HTTP. One without a scheme is `http`.
    ///
    /// # Errors
    /// If it is invalid, or names a user.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let refused = |why: &dyn fmt::Display| format!("{text} is not a URL of a server: {why}");
        let uri: Uri = with_scheme.parse().map_err(|error| refused(&error))?;
        let scheme = match uri.scheme_str() {
            Some("http") => UrlScheme::Http,
            Some("https") => UrlScheme::Https,
            _ => return Err(refused(&"its scheme is neither http nor https")),
        };
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if authority.contains('@') {
            return Err(refused(&"it names a user"));
        }
        if host.is_empty() {
            return Err(refused(&"it names no host"));
        }
        // Without a check, the library takes an invalid port for none.
        let port = match authority.rsplit_once(':').filter(|(before, _)| *before == uri.host().unwrap_or_default()) {
            Some((_, port)) if !port.is_empty() => port.parse().map_err(|_| refused(&"its port is invalid"))?,
            _ => scheme.default_port(),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { scheme, authority, host, port, path })
    }

    /// Returns the host for a handshake, or an empty text for an address.
    pub(super) fn server_name(&self) -> &str {
        if self.host.parse::<IpAddr>().is_ok() { "" } else { &self.host }
    }
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.name(), self.authority, self.path)
    }
}

impl UrlScheme {
    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl AttackTarget {
    /// Looks up the host of a URL, and returns the first permitted address that accepts a connection.
    ///
    /// # Errors
    /// If the host is unknown, no address of it is permitted, or none accepts a connection.
    pub(super) fn find(
        url: TargetUrl,
        running: Result<&RunningServer, &str>,
        consent: OwnerConsent,
    ) -> Result<Self, String> {
        let found = (url.host.as_str(), url.port).to_socket_addrs();
        let found: Vec<_> = found.map_err(|error| format!("cannot look up {}: {error}", url.host))?.collect();
        let own = own_addresses();
        let permitted: Vec<_> =
            found.iter().copied().filter(|address| is_permitted(*address, running.ok(), &own, consent)).collect();
        if permitted.is_empty() {
            return Err(refusal(&found, running));
        }
        let mut failure = String::new();
        for address in permitted {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(_) => return Ok(Self { tls: TlsClient::new(&url.host)?, url, address, ends_at: None }),
                Err(error) => failure = format!("cannot connect to {address}: {error}"),
            }
        }
        Err(failure)
    }

    /// Returns the target for attacks that have to be over at a time.
    pub(super) fn until(self, ends_at: Instant) -> Self {
        Self { ends_at: Some(ends_at), ..self }
    }

    /// Returns when attacks have to be over, once that is known.
    pub(super) const fn ends_at(&self) -> Option<Instant> {
        self.ends_at
    }

    /// Opens a connection, with a handshake of TLS if the URL has it.
    pub(super) fn connect(&self) -> io::Result<AttackConnection> {
        self.connect_for(b"http/1.1")
    }

    /// Opens a connection for an application protocol, which only a handshake names.
    pub(super) fn connect_for(&self, protocol: &[u8]) -> io::Result<AttackConnection> {
        match self.url.scheme {
            UrlScheme::Http => self.connect_below_tls(),
            UrlScheme::Https => self.tls.encrypt(self.socket()?, protocol, None),
        }
    }

    /// Opens a connection with a handshake for another server name.
    pub(super) fn connect_for_name(&self, name: &str) -> io::Result<AttackConnection> {
        self.tls.encrypt(self.socket()?, b"http/1.1", Some(name))
    }

    /// Opens a connection without a handshake.
    pub(super) fn connect_below_tls(&self) -> io::Result<AttackConnection> {
        Ok(AttackConnection::plain(self.socket()?))
    }

    fn socket(&self) -> io::Result<TcpStream> {
        let rest = self.ends_at.map_or(CONNECT_TIMEOUT, |ends_at| ends_at.saturating_duration_since(Instant::now()));
        // A timeout of zero would mean none.
        let timeout = rest.clamp(Duration::from_millis(1), CONNECT_TIMEOUT);
        let socket = TcpStream::connect_timeout(&self.address, timeout)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))?;
        Ok(socket)
    }
}

/// Whether attacks on an address are permitted: it is of loopback, the running server listens on it, or its owner has
/// consented.
fn is_permitted(address: SocketAddr, running: Option<&RunningServer>, own: &[IpAddr], consent: OwnerConsent) -> bool {
    let ip = address.ip().to_canonical();
    // An address of another machine is not permitted by a listener on all addresses.
    let is_served = || own.contains(&ip) && running.is_some_and(|running| running.listens_on(address));
    ip.is_loopback() || consent == OwnerConsent::Given || is_served()
}

fn refusal(found: &[SocketAddr], running: Result<&RunningServer, &str>) -> String {
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    let why = match running {
        Ok(running) => format!("the running server listens on {}", running.listeners()),
        Err(problem) => format!("no running server is known: {problem}"),
    };
    format!(
        "{} is neither of loopback nor an address of this machine at which the running configuration listens ({why}); \
         if the host is your own, repeat the command with --i-own-this-host",
        found.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(listeners: &[&str]) -> RunningServer {
        RunningServer::listening_on(listeners)
    }

    #[test]
    fn urls_name_scheme_host_port_and_path() {
        let url = TargetUrl::read("https://a.example:8443/x?y=1").expect("it is a URL");
        assert_eq!((url.scheme, url.host.as_str(), url.port), (UrlScheme::Https, "a.example", 8443));
        assert_eq!((url.authority.as_str(), url.path.as_str()), ("a.example:8443", "/x?y=1"));
        let url = TargetUrl::read("[::1]:80").expect("it is a URL");
        assert_eq!((url.to_string().as_str(), url.host.as_str(), url.port), ("http://[::1]:80/", "::1", 80));
        for (text, port) in [("https://a", 443), ("https://[::1]/", 443), ("http://a:/", 80), ("a:65535", 65_535)] {
            assert_eq!(TargetUrl::read(text).map(|url| url.port), Ok(port), "{text}");
        }
        for invalid in [
            "http://a:65536/",
            "http://[::1]:99999/",
            "http://a:x/",
            "ftp://a/",
            "http://u@a/",
            "http:///x",
            "http://a b/",
            "",
        ] {
            assert!(TargetUrl::read(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn only_loopback_and_own_listeners_are_permitted_without_consent() {
        let own: IpAddr = "192.0.2.1".parse().unwrap();
        let permits = |address: &str, running: Option<&RunningServer>, consent| {
            is_permitted(address.parse().unwrap(), running, &[own], consent)
        };
        let missing = OwnerConsent::Missing;
        for loopback in ["127.0.0.1:80", "127.9.9.9:1", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert!(permits(loopback, None, missing), "{loopback}");
        }
        let everywhere = running(&["0.0.0.0:80", "unix:/run/a.sock"]);
        let exact = running(&["192.0.2.1:80"]);
        let dual = running(&["[::]:80"]);
        for server in [&everywhere, &exact, &dual] {
            assert!(permits("192.0.2.1:80", Some(server), missing));
            assert!(!permits("192.0.2.1:81", Some(server), missing), "another port");
            assert!(!permits("198.51.100.1:80", Some(server), missing), "another machine");
        }
        assert!(!permits("192.0.2.1:80", Some(&running(&["192.0.2.2:80"])), missing));
        assert!(!permits("192.0.2.1:80", None, missing));
        assert!(permits("198.51.100.1:80", None, OwnerConsent::Given));
    }
}
