//! Addresses of servers that requests are sent to.

use super::{ValueError, path};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The address of a server that requests are sent to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServerAddress {
    pub(crate) scheme: ServerScheme,
    pub(crate) place: ServerPlace,
}

/// Whether the connections to a server have TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ServerScheme {
    Http,
    Https,
}

/// Where a server listens. Names are resolved while the server runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ServerPlace {
    Inet(SocketAddr),
    Name { host: String, port: u16 },
    Unix(PathBuf),
}

/// Schemes of other servers, and what to write.
const FOREIGN_SCHEMES: [(&str, &str); 12] = [
    ("h2c", "write \"http://...\", and `protocol \"http2\"` in the block of its `upstream`"),
    ("h2", "write \"https://...\", and `protocol \"http2\"` in the block of its `upstream`"),
    ("grpc", "write \"http://...\", and `protocol \"http2\"` in the block of its `upstream`"),
    ("grpcs", "write \"https://...\", and `protocol \"http2\"` in the block of its `upstream`"),
    ("ws", "write \"http://...\"; WebSocket needs no scheme of its own"),
    ("wss", "write \"https://...\"; WebSocket needs no scheme of its own"),
    ("balancer", "write `proxy \"NAME\"` with the name of an `upstream`"),
    ("fcgi", "write `php \"ADDRESS\"` or `fastcgi \"ADDRESS\"`, without a scheme"),
    ("fastcgi", "write `php \"ADDRESS\"` or `fastcgi \"ADDRESS\"`, without a scheme"),
    ("scgi", "write `scgi \"ADDRESS\"`, without a scheme"),
    ("uwsgi", "uwsgi's own protocol is not supported; let the application serve HTTP, FastCGI or SCGI"),
    ("tcp", "write the address without a scheme, or with \"http://\""),
];

/// Reads the address of a server of HTTP: `http://host:port`, `https://host`, `host:port` or `unix:/path`.
pub(in crate::config) fn read_url(text: &str, base: &Path) -> Result<ServerAddress, ValueError> {
    if let Some(place) = read_unix(text, base) {
        return Ok(ServerAddress { scheme: ServerScheme::Http, place: place? });
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let place = read_authority(text, None)?;
        return Ok(ServerAddress { scheme: ServerScheme::Http, place });
    };
    let (scheme, port) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (ServerScheme::Http, 80),
        "https" => (ServerScheme::Https, 443),
        other => return Err(explain_scheme(other)),
    };
    if let Some(path) = rest.strip_prefix("unix:") {
        let path = path.trim_end_matches(':');
        return Err(ValueError::new("a Unix socket has no scheme", format!("write \"unix:{path}\"")));
    }
    if let Some(at) = rest.find(['/', '?', '#']) {
        return Err(explain_path(scheme, rest.split_at(at)));
    }
    Ok(ServerAddress { scheme, place: read_authority(rest, Some(port))? })
}

/// Reads the address of a server that runs scripts: `unix:/path` or `host:port`.
pub(super) fn read_plain(text: &str, base: &Path) -> Result<ServerPlace, ValueError> {
    if let Some(place) = read_unix(text, base) {
        return place;
    }
    match text.split_once("://") {
        Some((_, rest)) => {
            Err(ValueError::new("the address of a server that runs scripts has no scheme", format!("write \"{rest}\"")))
        }
        None => read_authority(text, None),
    }
}

/// Whether a text is meant as the address of a server, not as the name of an upstream.
pub(in crate::config) fn is_address(text: &str) -> bool {
    text.contains([':', '/', '.', '[']) || text.bytes().all(|byte| byte.is_ascii_digit()) || text == "localhost"
}

/// Reads a Unix socket; `None` if the text is another address.
fn read_unix(text: &str, base: &Path) -> Option<Result<ServerPlace, ValueError>> {
    if text.starts_with('/') {
        return Some(Err(ValueError::new("a path without `unix:`", format!("write \"unix:{text}\""))));
    }
    if let Some(path) = text.strip_prefix("unix//").or_else(|| text.strip_prefix("unix://")) {
        let path = path.trim_start_matches('/');
        return Some(Err(ValueError::new("`unix:` is followed by the path", format!("write \"unix:/{path}\""))));
    }
    let path = text.strip_prefix("unix:")?;
    Some(path::read_path(path, base).and_then(|path| {
        super::address::check_unix_path(&path)?;
        Ok(ServerPlace::Unix(path))
    }))
}

/// Reads a host with a port. `default_port` is that of the scheme.
fn read_authority(text: &str, default_port: Option<u16>) -> Result<ServerPlace, ValueError> {
    if let Some(at) = text.find(['/', '?', '#']) {
        return Err(explain_path(ServerScheme::Http, text.split_at(at)));
    }
    if let Some((_, host)) = text.rsplit_once('@') {
        let scheme = match default_port {
            Some(443) => "https://",
            Some(_) => "http://",
            None => "",
        };
        let instead = format!(
            "write \"{scheme}{host}\"; `header-up \"Authorization\" \"Basic ...\"` sends a user and a password to the server"
        );
        return Err(ValueError::new("a user in the address of a server", instead));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') && !host.contains(':') | host.ends_with(']') => {
            (host, Some(read_port(host, port)?))
        }
        _ => (text, None),
    };
    if host.is_empty() || host == "*" {
        let port = port.or(default_port).unwrap_or(8080);
        return Err(ValueError::new("a port without a host", format!("write \"localhost:{port}\"")));
    }
    let Some(port) = port.or(default_port) else { return Err(explain_no_port(host)) };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        if ip.is_ipv6() && bare == host {
            // The last group may be meant as the port.
            let (address, port) = match bare.rsplit_once(':') {
                Some((address, port)) if address.parse::<IpAddr>().is_ok() => (address, port.to_owned()),
                _ => (bare, port.to_string()),
            };
            let instead = format!("write \"[{address}]:{port}\"");
            return Err(ValueError::new("an IPv6 address without brackets", instead));
        }
        return read_ip(ip, port);
    }
    let is_name = host.len() <= 253
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
        && !host.starts_with(['.', '-'])
        && !host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !is_name {
        return Err(ValueError::new(
            format!("`{}` is neither an address nor a host name", host.escape_debug()),
            "write, for example, \"http://127.0.0.1:3000\"",
        ));
    }
    Ok(ServerPlace::Name { host: host.trim_end_matches('.').to_ascii_lowercase(), port })
}

fn read_ip(ip: IpAddr, port: u16) -> Result<ServerPlace, ValueError> {
    if ip.is_unspecified() {
        let loopback = if ip.is_ipv4() { "127.0.0.1" } else { "[::1]" };
        return Err(ValueError::new(
            format!("{ip} is an address to listen on, not to connect to"),
            format!("write \"{loopback}:{port}\" for this machine"),
        ));
    }
    Ok(ServerPlace::Inet(SocketAddr::new(ip, port)))
}

fn read_port(host: &str, port: &str) -> Result<u16, ValueError> {
    match port.parse() {
        Ok(0) => Err(ValueError::new("port 0 is no port to connect to", "ports are 1 to 65535")),
        Ok(port) => Ok(port),
        Err(_) if port.is_empty() => {
            Err(ValueError::new("a colon without a port", format!("write, for example, \"{host}:8080\"")))
        }
        Err(_) => Err(ValueError::new(format!("`{}` is not a port", port.escape_debug()), "ports are 1 to 65535")),
    }
}

fn explain_scheme(scheme: &str) -> ValueError {
    let instead = match FOREIGN_SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some((_, instead)) => instead,
        None => "write \"http://host:port\", \"https://host\" or \"unix:/path\"",
    };
    ValueError::new(format!("`{}://` is not a scheme of an upstream", scheme.escape_debug()), instead)
}

fn explain_path(scheme: ServerScheme, (host, path): (&str, &str)) -> ValueError {
    let host = match scheme {
        ServerScheme::Http => format!("http://{host}"),
        ServerScheme::Https => format!("https://{host}"),
    };
    let instead = match path {
        "/" => format!(
            "write \"{host}\"; `strip-prefix=#true` takes the path of the route off, and `path` in the block of `proxy` \
             changes it"
        ),
        path => format!(
            "write \"{host}\"; `path \"{}/*\"` in the block of `proxy` changes the path",
            path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/').escape_debug()
        ),
    };
    ValueError::new("the address of a server has no path", instead)
}

fn explain_no_port(host: &str) -> ValueError {
    if host.parse::<u16>().is_ok() {
        return ValueError::new("a port without a host", format!("write \"localhost:{host}\""));
    }
    if let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return ValueError::new("an address without a port", format!("write \"{}\"", SocketAddr::new(ip, 8080)));
    }
    ValueError::new("a host without a port", format!("write \"{host}:8080\", or \"http://{host}\" for port 80"))
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place, self.scheme) {
            (place @ ServerPlace::Unix(_), _) => write!(f, "{place}"),
            (place, ServerScheme::Http) => write!(f, "http://{place}"),
            (place, ServerScheme::Https) => write!(f, "https://{place}"),
        }
    }
}

impl fmt::Display for ServerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => write!(f, "{address}"),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
