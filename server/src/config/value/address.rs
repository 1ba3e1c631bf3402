//! Listen addresses.

use super::{ValueError, path};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// An address to listen on. Names are resolved when they are bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// An IP address and a port.
    Inet(SocketAddr),
    /// A host name and a port.
    Name { host: String, port: u16 },
    /// A Unix socket.
    Unix(PathBuf),
    /// A listener that the parent process has opened.
    Inherited(Descriptor),
}

/// The port of https.
const HTTPS_PORT: u16 = 443;

impl Address {
    /// Whether only clients of this machine reach it by the network. A Unix socket is for a proxy, whose clients may be any.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Inet(address) => address.ip().is_loopback(),
            Self::Name { host, .. } => host.eq_ignore_ascii_case("localhost"),
            Self::Unix(_) | Self::Inherited(_) => false,
        }
    }

    /// Returns the port. `None` if the address has none, or if it is known only when the server listens.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Self::Inet(address) => Some(address.port()),
            Self::Name { port, .. } => Some(*port),
            Self::Unix(_) | Self::Inherited(_) => None,
        }
        .filter(|port| *port > 0)
    }

    /// Whether the port is that of https.
    pub(crate) fn has_https_port(&self) -> bool {
        self.port() == Some(HTTPS_PORT)
    }
}

/// How an inherited descriptor is identified.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Descriptor {
    Number(u16),
    /// The name that systemd gave it (`FileDescriptorName=`).
    Name(String),
}

/// Longest path of a Unix socket in Linux, which stores it with a final NUL (unix(7)).
const UNIX_PATH_BYTES_MAX: usize = 107;

pub(super) fn read(text: &str, base: &Path) -> Result<Address, ValueError> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path::read_path(path, base)?;
        check_unix_path(&path)?;
        return Ok(Address::Unix(path));
    }
    if let Some(descriptor) = text.strip_prefix("fd:") {
        return read_descriptor(descriptor).map(Address::Inherited);
    }
    if let Ok(address) = text.parse() {
        return Ok(Address::Inet(address));
    }
    if text.parse::<IpAddr>().is_ok() {
        return Err(explain_no_port(text));
    }
    let Some((host, port)) = text.rsplit_once(':') else { return Err(explain_no_port(text)) };
    let Ok(port) = port.parse::<u16>() else {
        return Err(explain_no_port(text));
    };
    if host.is_empty() || host == "*" {
        let instead = format!("write \"0.0.0.0:{port}\" for all IPv4 addresses, or \"[::]:{port}\" for IPv6 too");
        return Err(ValueError::new("a port without an address", instead));
    }
    let is_name =
        host.len() <= 253 && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    let looks_like_address = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !is_name || looks_like_address {
        return Err(ValueError::new(
            format!("`{host}` is neither an address nor a host name"),
            "write, for example, \"0.0.0.0:8080\"",
        ));
    }
    Ok(Address::Name { host: host.to_ascii_lowercase(), port })
}

/// Refuses a path that is too long for a Unix socket.
pub(super) fn check_unix_path(path: &Path) -> Result<(), ValueError> {
    let bytes = path.as_os_str().len();
    if bytes <= UNIX_PATH_BYTES_MAX {
        return Ok(());
    }
    Err(ValueError::new(
        format!("the path of a Unix socket has at most {UNIX_PATH_BYTES_MAX} bytes, and this one has {bytes}"),
        "move the socket to a folder with a shorter path, such as /run",
    ))
}

fn explain_no_port(text: &str) -> ValueError {
    if let Ok(port) = text.parse::<u16>() {
        return ValueError::new(
            "a port without an address",
            format!("write \"0.0.0.0:{port}\" for all IPv4 addresses, or \"[::]:{port}\" for IPv6 too"),
        );
    }
    if text.starts_with('/') {
        return ValueError::new("a path without `unix:`", format!("write \"unix:{text}\""));
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return ValueError::new("an address without a port", format!("write \"{}\"", SocketAddr::new(address, 8080)));
    }
    if let Some((_, port)) = text.rsplit_once(':')
        && !port.is_empty()
        && port.bytes().all(|b| b.is_ascii_digit())
    {
        return ValueError::new(format!("{port} is not a port"), "ports are 0 to 65535");
    }
    ValueError::new(
        format!("`{text}` is not an address with a port"),
        "write, for example, \"0.0.0.0:8080\", \"[::]:8080\", \"unix:/path\" or \"fd:3\"",
    )
}

fn read_descriptor(text: &str) -> Result<Descriptor, ValueError> {
    if let Ok(number) = text.parse::<u16>() {
        return match number {
            0..3 => Err(ValueError::new(
                format!("descriptor {number} is a standard stream"),
                "inherited listeners start at fd:3",
            )),
            _ => Ok(Descriptor::Number(number)),
        };
    }
    // The rule of systemd.socket(5).
    let is_name = (1..=255).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'!'..=b'~') && b != b':');
    if is_name {
        Ok(Descriptor::Name(text.to_owned()))
    } else {
        Err(ValueError::new("this is not a file descriptor", "write, for example, \"fd:3\" or \"fd:web\""))
    }
}
