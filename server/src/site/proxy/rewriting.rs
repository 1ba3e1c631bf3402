//! Makes URLs and cookies of a server those of the client: in Location, Content-Location and Set-Cookie.
//!
//! Without it, a server that does not know the host or the prefix of its clients would lead them away from the proxy.

use super::outgoing::PathPrefixes;
use selvedge::proto::field::Fields;

/// How the client's view of a server differs from the server's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Hosts and ports that name the server: its own, and that of the forwarded Host field.
    pub(super) authorities: [&'a [u8]; 2],
    /// How paths of the server begin, and those of the client in their place.
    pub(super) prefixes: &'a PathPrefixes,
}

const REWRITTEN: [&str; 2] = ["location", "content-location"];

/// Rewrites the fields of a response.
pub(super) fn rewrite(fields: &mut Fields, view: View<'_>) {
    let changes: Vec<(String, Vec<u8>)> = fields
        .iter()
        .filter_map(|(name, value)| {
            let changed = match name {
                "set-cookie" => Some(view.cookie(value)),
                _ if REWRITTEN.contains(&name) => view.url(value),
                _ => None,
            };
            changed.map(|changed| (name.to_owned(), changed))
        })
        .collect();
    if changes.is_empty() {
        return;
    }
    // Several cookies have one name, and all of them are in the changes.
    for (name, _) in &changes {
        fields.remove(name);
    }
    for (name, value) in changes {
        fields.append(&name, value).expect("parts of valid values and a valid path are a valid value");
    }
}

impl View<'_> {
    /// Returns the URL at the client, if it is one of the server.
    fn url(self, url: &[u8]) -> Option<Vec<u8>> {
        let path = if let Some(rest) = strip_scheme(url).or_else(|| url.strip_prefix(b"//")) {
            let end = rest.iter().position(|b| b"/?#".contains(b)).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let is_own = |own: &&[u8]| !own.is_empty() && authority.eq_ignore_ascii_case(own);
            self.authorities.iter().find(|own| is_own(own))?;
            path
        } else if url.starts_with(b"/") {
            url
        } else {
            // Relative to the path of the request, or another host.
            return None;
        };
        let (client, server) = (&*self.prefixes.client, &*self.prefixes.server);
        Some(match self.beneath_server(path) {
            Some(rest) if !client.is_empty() => {
                let slash: &[u8] = if rest.starts_with(b"/") || !server.is_empty() { b"" } else { b"/" };
                [client, slash, rest].concat()
            }
            // Two slashes would begin a host.
            rest => [b"/", without_leading_slashes(rest.unwrap_or(path))].concat(),
        })
    }

    /// Returns what follows the server's prefix in a path, with or without a query; `None` for a path that is one of the client
    /// already, or that the client cannot request from this server.
    ///
    /// An application that knows its public address writes paths with the client's prefix, and one that does not writes paths
    /// with the server's. If a path has both, the longer prefix decides: it hardly is there by chance.
    fn beneath_server(self, path: &[u8]) -> Option<&[u8]> {
        let (client, server) = (&*self.prefixes.client, &*self.prefixes.server);
        let is_of_client = client.len() > server.len() && beneath(client, path).is_some();
        beneath(server, path).filter(|_| !is_of_client)
    }

    /// Returns a cookie with the client's path, and without the server's host.
    fn cookie(self, cookie: &[u8]) -> Vec<u8> {
        //= RFC 6265bis §4.1.3.2: a cookie whose name begins with `__Host-` has the path `/`, or browsers refuse it
        let has_fixed_path =
            cookie.trim_ascii_start().get(..7).is_some_and(|name| name.eq_ignore_ascii_case(b"__Host-"));
        let mut parts = cookie.split(|&b| b == b';');
        let mut changed = parts.next().unwrap_or_default().to_vec();
        for attribute in parts {
            let (name, value) = match attribute.iter().position(|&b| b == b'=') {
                Some(at) => (attribute[..at].trim_ascii(), attribute[at + 1..].trim_ascii()),
                None => (attribute.trim_ascii(), &[][..]),
            };
            if name.eq_ignore_ascii_case(b"domain") && self.is_own_host(value) {
                continue;
            }
            changed.push(b';');
            if name.eq_ignore_ascii_case(b"path") && value.starts_with(b"/") && !has_fixed_path {
                changed.extend_from_slice(b" Path=");
                changed.extend_from_slice(&self.path_of_cookie(value));
            } else {
                changed.extend_from_slice(attribute);
            }
        }
        changed
    }

    /// Returns the path of a cookie at the client. One of more than what this route forwards is kept.
    fn path_of_cookie(self, path: &[u8]) -> Vec<u8> {
        let mapped = self.beneath_server(path).map(|rest| [&self.prefixes.client, rest].concat());
        match mapped {
            Some(mapped) if mapped.is_empty() => b"/".to_vec(),
            mapped => mapped.unwrap_or_else(|| path.to_vec()),
        }
    }

    fn is_own_host(self, domain: &[u8]) -> bool {
        let domain = domain.strip_prefix(b".").unwrap_or(domain);
        // The first one is the server's own; the other one may be the client's.
        let host = self.authorities[0];
        let host = host.iter().rposition(|&b| b == b':').map_or(host, |colon| &host[..colon]);
        host.eq_ignore_ascii_case(domain)
    }
}

/// Returns what follows a prefix in a path, with or without a query.
fn beneath<'p>(prefix: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(prefix)?;
    let is_boundary = prefix.is_empty() || matches!(rest.first(), None | Some(b'/' | b'?' | b'#'));
    is_boundary.then_some(rest)
}

fn strip_scheme(url: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"].iter().find_map(|scheme| {
        let start = url.get(..scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then(|| &url[scheme.len()..])
    })
}

fn without_leading_slashes(mut path: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] = path {
        path = rest;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rewrites lines. The prefix is that of the client, and that of the server after a space.
    fn rewritten(prefixes: &str, lines: &[(&str, &str)]) -> String {
        let (client, server) = prefixes.split_once(' ').unwrap_or((prefixes, ""));
        let prefixes = PathPrefixes { client: client.as_bytes().into(), server: server.as_bytes().into() };
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.append(name, value).unwrap());
        rewrite(&mut fields, View { authorities: [b"10.0.0.5:3000", b"example.com"], prefixes: &prefixes });
        String::from_utf8(fields.lines().to_vec()).unwrap().replace("\r\n", "\n").trim_end().to_owned()
    }

    #[test]
    fn urls_of_the_server_become_urls_of_the_client() {
        for (prefix, url, expected) in [
            ("", "http://10.0.0.5:3000/login?a=b", "/login?a=b"),
            ("", "HTTPS://EXAMPLE.com", "/"),
            ("", "http://example.com?q", "/?q"),
            ("", "/login", "/login"),
            ("", "http://10.0.0.5:3000//evil.example/", "/evil.example/"),
            ("", "http://other.example/x", "http://other.example/x"),
            ("", "//other.example/x", "//other.example/x"),
            ("", "next", "next"),
            ("", "//10.0.0.5:3000/login", "/login"),
            ("/api", "//10.0.0.5:3000/login", "/api/login"),
            ("/api", "/login", "/api/login"),
            // An application that knows its public address.
            ("/api", "/api/login", "/api/login"),
            ("/api", "/api?q", "/api?q"),
            ("/api", "http://example.com/api/login", "/api/login"),
            ("/api", "/apis", "/api/apis"),
            ("/api /v1", "/api/login", "/api/login"),
            ("/api/v1 /api", "/api/v1/x", "/api/v1/x"),
            ("/api/v1 /api", "/api/x", "/api/v1/x"),
            ("/api /api/v1", "/api/v1/x", "/api/x"),
            ("/api", "http://10.0.0.5:3000", "/api/"),
            ("/api", "http://10.0.0.5:30001/", "http://10.0.0.5:30001/"),
            ("/api", "../x", "../x"),
            ("/api", "http://10.0.0.5:3000?q", "/api/?q"),
            ("/api /v1", "/v1/next", "/api/next"),
            ("/api /v1", "http://10.0.0.5:3000/v1/next?x=/v1", "/api/next?x=/v1"),
            ("/api /v1", "/v1", "/api"),
            ("/api /v1", "/v1?q#f", "/api?q#f"),
            ("/api /v1", "/v10/next", "/v10/next"),
            ("/api /v1", "http://10.0.0.5:3000/login", "/login"),
            ("/api /v1", "http://10.0.0.5:3000//evil.example", "/evil.example"),
            ("/api /v1", "http://10.0.0.5:3000", "/"),
            (" /v1", "/v1/next", "/next"),
            (" /v1", "/v1//evil.example", "/evil.example"),
            (" /v1", "/v1", "/"),
        ] {
            assert_eq!(rewritten(prefix, &[("location", url)]), format!("location: {expected}"), "{prefix} {url}");
        }
    }

    #[test]
    fn cookies_get_the_path_of_the_client_and_lose_the_servers_host() {
        for (cookie, expected) in [
            ("a=b", "a=b"),
            ("a=b; Path=/", "a=b; Path=/api/"),
            ("__Host-a=b; Path=/; Secure", "__Host-a=b; Path=/; Secure"),
            ("__host-a=b; Path=/", "__host-a=b; Path=/"),
            ("__Secure-a=b; Path=/", "__Secure-a=b; Path=/api/"),
            ("a=b; Path=/api/x", "a=b; Path=/api/x"),
            ("a=b; Path=/api", "a=b; Path=/api"),
            ("a=b;path=/x ;Secure", "a=b; Path=/api/x;Secure"),
            ("a=b; Domain=10.0.0.5; HttpOnly", "a=b; HttpOnly"),
            ("a=b; Domain=example.com", "a=b; Domain=example.com"),
        ] {
            assert_eq!(rewritten("/api", &[("set-cookie", cookie)]), format!("set-cookie: {expected}"), "{cookie}");
        }
        for (prefixes, path, expected) in [
            ("/api /v1", "/v1", "/api"),
            ("/api /v1", "/v1/users", "/api/users"),
            ("/api /v1", "/", "/"),
            ("/api /v1", "/v10", "/v10"),
            (" /v1", "/v1", "/"),
            (" /v1", "/v1/x", "/x"),
        ] {
            let cookie = rewritten(prefixes, &[("set-cookie", &format!("a=b; Path={path}"))]);
            assert_eq!(cookie, format!("set-cookie: a=b; Path={expected}"), "{prefixes} {path}");
        }
        let two = rewritten("/x", &[("set-cookie", "a=1; Path=/"), ("etag", "e"), ("set-cookie", "b=2")]);
        assert_eq!(two, "etag: e\nset-cookie: a=1; Path=/x/\nset-cookie: b=2");
    }
}
