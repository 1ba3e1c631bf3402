//! Makes URLs and cookies of a server those of the client: in Location, Content-Location and Set-Cookie.
//!
//! Without it, a server that does not know the host or the prefix of its clients would lead them away from the proxy.

use selvedge::proto::field::Fields;

/// How the client's view of a server differs from the server's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Hosts and ports that name the server: its own, and that of the forwarded Host field.
    pub(super) authorities: [&'a [u8]; 2],
    /// What stands before a path of the server at the client; without a slash at its end.
    pub(super) prefix: &'a [u8],
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
        let path = if let Some(rest) = strip_scheme(url) {
            let end = rest.iter().position(|b| b"/?#".contains(b)).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let is_own = |own: &&[u8]| !own.is_empty() && authority.eq_ignore_ascii_case(own);
            self.authorities.iter().find(|own| is_own(own))?;
            path
        } else if url.starts_with(b"/") && !url.starts_with(b"//") {
            url
        } else {
            // Relative to the path of the request, or another host.
            return None;
        };
        let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
        // Two slashes would begin a host.
        let path = if self.prefix.is_empty() { without_leading_slashes(path) } else { path };
        let slash = if self.prefix.is_empty() { b"/" } else { slash };
        Some([self.prefix, slash, path].concat())
    }

    /// Returns a cookie with the client's path, and without the server's host.
    fn cookie(self, cookie: &[u8]) -> Vec<u8> {
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
            if name.eq_ignore_ascii_case(b"path") && value.starts_with(b"/") {
                changed.extend_from_slice(b" Path=");
                changed.extend_from_slice(self.prefix);
                changed.extend_from_slice(value);
            } else {
                changed.extend_from_slice(attribute);
            }
        }
        changed
    }

    fn is_own_host(self, domain: &[u8]) -> bool {
        let domain = domain.strip_prefix(b".").unwrap_or(domain);
        // The first one is the server's own; the other one may be the client's.
        let host = self.authorities[0];
        let host = host.iter().rposition(|&b| b == b':').map_or(host, |colon| &host[..colon]);
        host.eq_ignore_ascii_case(domain)
    }
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

    fn rewritten(prefix: &str, lines: &[(&str, &str)]) -> String {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.append(name, value).unwrap());
        rewrite(&mut fields, View { authorities: [b"10.0.0.5:3000", b"example.com"], prefix: prefix.as_bytes() });
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
            ("/api", "/login", "/api/login"),
            ("/api", "http://10.0.0.5:3000", "/api/"),
            ("/api", "http://10.0.0.5:30001/", "http://10.0.0.5:30001/"),
            ("/api", "../x", "../x"),
        ] {
            assert_eq!(rewritten(prefix, &[("location", url)]), format!("location: {expected}"), "{prefix} {url}");
        }
    }

    #[test]
    fn cookies_get_the_path_of_the_client_and_lose_the_servers_host() {
        for (cookie, expected) in [
            ("a=b", "a=b"),
            ("a=b; Path=/", "a=b; Path=/api/"),
            ("a=b;path=/x ;Secure", "a=b; Path=/api/x;Secure"),
            ("a=b; Domain=10.0.0.5; HttpOnly", "a=b; HttpOnly"),
            ("a=b; Domain=example.com", "a=b; Domain=example.com"),
        ] {
            assert_eq!(rewritten("/api", &[("set-cookie", cookie)]), format!("set-cookie: {expected}"), "{cookie}");
        }
        let two = rewritten("/x", &[("set-cookie", "a=1; Path=/"), ("etag", "e"), ("set-cookie", "b=2")]);
        assert_eq!(two, "etag: e\nset-cookie: a=1; Path=/x/\nset-cookie: b=2");
    }
}
