//! The cookie that keeps a client at its server.
//!
//! Its value is a keyed hash of the group and the server, so a client can neither invent one nor learn an address from it.
//! The values are computed once; a request only compares.

use super::rules::StickyRules;
use blake2::Blake2sMac256;
use blake2::digest::{KeyInit, Mac};
use selvedge::Request;
use selvedge::proto::head::Scheme;

/// Bytes of the keyed hash that a value has: too many to guess.
const TOKEN_BYTES: usize = 16;

/// The cookie values of the servers of a group.
#[derive(Debug)]
pub(super) struct StickyCookie {
    name: Box<str>,
    attributes: Box<str>,
    /// In the order of the servers.
    tokens: Box<[Box<str>]>,
}

impl StickyCookie {
    /// Computes the values for the servers of a group.
    pub(super) fn new<'a>(rules: &StickyRules, group: &str, servers: impl Iterator<Item = &'a str>) -> Self {
        let token = |server: &str| {
            let mut mac = Blake2sMac256::new_from_slice(&rules.secret).expect("BLAKE2s accepts a key of 32 bytes");
            // A name has no NUL, so two pairs of names are never one text.
            [group, "\0", server].iter().for_each(|part| mac.update(part.as_bytes()));
            let hash = mac.finalize().into_bytes();
            hash[..TOKEN_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
        };
        Self { name: rules.cookie.clone(), attributes: rules.attributes.clone(), tokens: servers.map(token).collect() }
    }

    /// Returns the server that a value names.
    pub(super) fn server_of(&self, value: &[u8]) -> Option<usize> {
        self.tokens.iter().position(|token| token.as_bytes() == value)
    }

    /// Returns the name of the cookie.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the Set-Cookie value for a server. One that a client got over https is never sent over http.
    pub(super) fn set_cookie(&self, server: usize, scheme: Scheme) -> String {
        let secure = match scheme {
            Scheme::Https => "; Secure",
            Scheme::Http => "",
        };
        format!("{}={}{}{secure}", self.name, self.tokens[server], self.attributes)
    }
}

/// Returns the value of a cookie of a request: the first one of this name (RFC 6265 §5.4).
pub(super) fn cookie<'a>(request: &'a Request, name: &str) -> Option<&'a [u8]> {
    let lines = request.fields().filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie")).map(|(_, value)| value);
    lines.flat_map(|line| line.split(|&b| b == b';')).find_map(|pair| cookie_value(pair, name))
}

fn cookie_value<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let pair = pair.trim_ascii();
    pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sticky(secret: u8, group: &str, servers: &[&str]) -> StickyCookie {
        let attributes = "; Path=/; HttpOnly".into();
        let rules = StickyRules { cookie: "node".into(), attributes, secret: [secret; 32] };
        StickyCookie::new(&rules, group, servers.iter().copied())
    }

    #[test]
    fn a_value_names_its_server_only() {
        let cookie = sticky(1, "app", &["a", "b"]);
        let value = |cookie: &StickyCookie, server: usize| cookie.tokens[server].to_string();
        assert_eq!(cookie.server_of(value(&cookie, 1).as_bytes()), Some(1));
        assert_eq!(value(&cookie, 0).len(), 2 * TOKEN_BYTES);
        // A server keeps its value if others are added, and another secret or group has other values.
        assert_eq!(value(&sticky(1, "app", &["c", "b", "a"]), 1), value(&cookie, 1));
        for other in [sticky(2, "app", &["a", "b"]), sticky(1, "api", &["a", "b"])] {
            assert!((0..2).all(|server| cookie.server_of(value(&other, server).as_bytes()).is_none()));
        }
        for invented in ["", "a", "0", "00000000000000000000000000000000"] {
            assert_eq!(cookie.server_of(invented.as_bytes()), None);
        }
        assert_eq!(cookie.set_cookie(0, Scheme::Http), format!("node={}; Path=/; HttpOnly", value(&cookie, 0)));
        assert_eq!(
            cookie.set_cookie(0, Scheme::Https),
            format!("node={}; Path=/; HttpOnly; Secure", value(&cookie, 0))
        );
    }

    #[test]
    fn cookie_pairs() {
        for (pair, expected) in
            [("node=x", Some("x")), (" node=x=y ", Some("x=y")), ("node", None), ("anode=x", None), ("nodex=y", None)]
        {
            assert_eq!(cookie_value(pair.as_bytes(), "node"), expected.map(str::as_bytes), "{pair}");
        }
    }
}
