//! The URL of a request that is explained or expected: `https://example.com:8443/a?b`.

use super::ValueError;
use selvedge::proto::head::Scheme;
use selvedge::proto::target::Host;
use std::fmt::{self, Write};

/// The URL of a request. Its host is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestUrl {
    scheme: Scheme,
    /// The host, and the port unless it is that of the scheme.
    authority: String,
    /// The length of the host in the authority.
    host_bytes: usize,
    port: u16,
    /// The path and the query.
    target: String,
}

impl RequestUrl {
    /// Parses an absolute URL. A fragment is left out, and bytes that no target has are percent-encoded.
    ///
    /// # Errors
    /// If it has no scheme of HTTP, no host, or user information.
    pub(crate) fn parse(text: &str) -> Result<Self, ValueError> {
        let example = "write a URL as in \"https://example.com/path\"";
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(ValueError::new("a URL without a scheme", example));
        };
        let (scheme, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (Scheme::Http, 80),
            "https" => (Scheme::Https, 443),
            other => return Err(ValueError::new(format!("`{}` is no scheme of HTTP", other.escape_debug()), example)),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let Ok(host) = Host::parse(authority.as_bytes()) else {
            return Err(ValueError::new(format!("`{}` is not a host", authority.escape_debug()), example));
        };
        let (host_bytes, port) = (host.name.len(), host.port.unwrap_or(default_port));
        let mut authority = authority[..host_bytes].to_owned();
        if port != default_port {
            authority += &format!(":{port}");
        }
        Ok(Self { scheme, authority, host_bytes, port, target: encoded(target) })
    }

    /// Returns the scheme.
    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the host, and the port unless it is that of the scheme.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the host.
    pub(crate) fn host(&self) -> &str {
        &self.authority[..self.host_bytes]
    }

    /// Returns the port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path and the query.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }
}

/// Returns a target of visible ASCII that begins with a slash.
fn encoded(text: &str) -> String {
    let mut target = String::with_capacity(text.len() + 1);
    if !text.starts_with('/') {
        target.push('/');
    }
    for byte in text.bytes() {
        match byte.is_ascii_graphic() {
            true => target.push(char::from(byte)),
            false => write!(target, "%{byte:02X}").expect("a string has no limit"),
        }
    }
    target
}

impl fmt::Display for RequestUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}{}", self.authority, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, expected) in [
            ("https://example.com", Some(("https://example.com/", "example.com", 443))),
            ("HTTP://Example.com:80/a?b#c", Some(("http://Example.com/a?b", "Example.com", 80))),
            ("http://example.com:8080?a", Some(("http://example.com:8080/?a", "example.com", 8080))),
            ("https://[::1]:8443/ä b", Some(("https://[::1]:8443/%C3%A4%20b", "[::1]", 8443))),
            ("example.com/a", None),
            ("ftp://example.com/", None),
            ("https:///a", None),
            ("https://user@example.com/", None),
            ("https://example.com:99999/", None),
        ] {
            let url = RequestUrl::parse(text).ok();
            let parts = url.as_ref().map(|url| (url.to_string(), url.host(), url.port()));
            let expected = expected.map(|(whole, host, port)| (whole.to_owned(), host, port));
            assert_eq!(parts, expected, "{text}");
        }
    }
}
