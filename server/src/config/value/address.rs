//! Where to listen.

use super::{Wrong, path};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// An address to listen on. Names are resolved by whoever binds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// An IP address and a port.
    Inet(SocketAddr),
    /// A host name and a port.
    Name { host: String, port: u16 },
    /// A Unix socket.
    Unix(PathBuf),
    /// A listener that the starting process has opened.
    Inherited(Descriptor),
}

/// How an inherited descriptor is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Descriptor {
    Number(u16),
    /// The name that systemd gives it (`FileDescriptorName=`).
    Name(String),
}

pub(super) fn read(text: &str, base: &Path) -> Result<Address, Wrong> {
    if let Some(path) = text.strip_prefix("unix:") {
        return path::read_path(path, base).map(Address::Unix);
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
        let instead = format!("write \"0.0.0.0:{port}\" for every IPv4 address, \"[::]:{port}\" for IPv6, too");
        return Err(Wrong::new("a port without an address", instead));
    }
    let is_name =
        host.len() <= 253 && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    let looks_like_address = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !is_name || looks_like_address {
        return Err(Wrong::new(format!("`{host}` is no address and no host name"), "as in \"0.0.0.0:8080\""));
    }
    Ok(Address::Name { host: host.to_ascii_lowercase(), port })
}

fn explain_no_port(text: &str) -> Wrong {
    if let Ok(port) = text.parse::<u16>() {
        return Wrong::new(
            "a port without an address",
            format!("write \"0.0.0.0:{port}\" for every IPv4 address, \"[::]:{port}\" for IPv6, too"),
        );
    }
    if text.starts_with('/') {
        return Wrong::new("a path without `unix:`", format!("write \"unix:{text}\""));
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Wrong::new("an address without a port", format!("write \"{}\"", SocketAddr::new(address, 8080)));
    }
    if let Some((_, port)) = text.rsplit_once(':')
        && !port.is_empty()
        && port.bytes().all(|b| b.is_ascii_digit())
    {
        return Wrong::new(format!("{port} is no port"), "a port is 0 to 65535");
    }
    Wrong::new(
        format!("`{text}` is no address with a port"),
        "as in \"0.0.0.0:8080\", \"[::]:8080\", \"unix:/path\" or \"fd:3\"",
    )
}

fn read_descriptor(text: &str) -> Result<Descriptor, Wrong> {
    if let Ok(number) = text.parse::<u16>() {
        return match number {
            0..3 => Err(Wrong::new(
                format!("descriptor {number} is a standard stream"),
                "inherited listeners begin at fd:3",
            )),
            _ => Ok(Descriptor::Number(number)),
        };
    }
    // As systemd.socket(5) has it.
    let is_name = (1..=255).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'!'..=b'~') && b != b':');
    if is_name {
        Ok(Descriptor::Name(text.to_owned()))
    } else {
        Err(Wrong::new("this is no descriptor", "as in \"fd:3\" or \"fd:web\""))
    }
}
