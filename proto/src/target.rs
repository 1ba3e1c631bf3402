//! The request target in its four forms, and the host (RFC 9112 §3.2, RFC 3986 §3.2).
//!
//! Never maps a target to a file: see [`crate::path`] for the conversion of a target's path into
//! the path of a file.

use crate::method::Method;
use crate::reject::Reject;
use crate::swar;
use core::net::Ipv6Addr;

/// The position of a part of a head: an offset and a length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u16,
    /// The number of bytes.
    pub len: u16,
}

impl Span {
    /// Creates the span from `start` up to `end`, which is excluded. Heads are shorter than 64 KiB,
    /// so both offsets fit into 16 bits.
    pub(crate) fn between(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= crate::limits::HEAD_BYTES_CEILING);
        Self { start: start as u16, len: (end - start) as u16 }
    }

    /// Returns the bytes of the span in `bytes`, which start at the first byte of the head.
    ///
    /// # Panics
    /// If the span ends after the end of `bytes`.
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[usize::from(self.start)..usize::from(self.start) + usize::from(self.len)]
    }
}

/// The form of a target (RFC 9112 §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    #[default]
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, for CONNECT
    Authority,
    /// `*`, for OPTIONS
    Asterisk,
}

/// A parsed request target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The form.
    pub form: TargetForm,
    /// The whole target, as received.
    pub raw: Span,
    /// The path, percent-encoded; empty if an absolute-form has none.
    pub path: Span,
    /// The query after the first `?`; `None` without a `?`.
    pub query: Option<Span>,
    /// The authority of an absolute-form or authority-form, or the pseudo-field `:authority` of HTTP/2 and HTTP/3.
    pub authority: Option<Span>,
}

impl Target {
    /// Parses the target that `raw` spans in `bytes`.
    ///
    /// # Errors
    /// [`Reject::TargetInvalid`], [`Reject::TargetFormInvalid`] or [`Reject::HostInvalid`].
    pub(crate) fn parse(bytes: &[u8], raw: Span, method: Method) -> Result<Self, Reject> {
        let target = raw.of(bytes);
        let start = usize::from(raw.start);
        let end = start + target.len();
        if method == Method::Connect {
            //= RFC 9110 §9.3.6: an empty or invalid port MUST be refused; port 0 cannot be listened on
            return match Host::parse(target) {
                Ok(Host { port: Some(1..), .. }) => {
                    Ok(Self { form: TargetForm::Authority, raw, authority: Some(raw), ..Self::default() })
                }
                _ => Err(Reject::TargetFormInvalid),
            };
        }
        match target {
            [b'/', ..] => Ok(Self { form: TargetForm::Origin, raw, ..Self::parse_path_and_query(bytes, start, end) }),
            b"*" if method == Method::Options => Ok(Self { form: TargetForm::Asterisk, raw, ..Self::default() }),
            b"*" => Err(Reject::TargetFormInvalid),
            _ => Self::parse_absolute(bytes, raw, method),
        }
    }

    fn parse_path_and_query(bytes: &[u8], start: usize, end: usize) -> Self {
        let mark = swar::find(&bytes[..end], start, |word| swar::equal_to(word, b'?'));
        let query = (mark < end).then(|| Span::between(mark + 1, end));
        Self { path: Span::between(start, mark), query, ..Self::default() }
    }

    fn parse_absolute(bytes: &[u8], raw: Span, method: Method) -> Result<Self, Reject> {
        let target = raw.of(bytes);
        let scheme_len = target.windows(3).position(|w| w == b"://").ok_or(Reject::TargetInvalid)?;
        let scheme = &target[..scheme_len];
        if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
            return Err(Reject::TargetInvalid);
        }
        let authority_start = scheme_len + 3;
        let rest = &target[authority_start..];
        let authority_len = rest.iter().position(|&b| b == b'/' || b == b'?').unwrap_or(rest.len());
        Host::parse(&rest[..authority_len])?;
        let start = usize::from(raw.start);
        let path_start = start + authority_start + authority_len;
        let parts = Self::parse_path_and_query(bytes, path_start, start + target.len());
        //= RFC 9112 §3.2.4: OPTIONS with an absolute-form without path and query is about the server
        let asterisk = method == Method::Options && parts.path.len == 0 && parts.query.is_none();
        Ok(Self {
            form: if asterisk { TargetForm::Asterisk } else { TargetForm::Absolute },
            raw,
            authority: Some(Span::between(start + authority_start, path_start)),
            ..parts
        })
    }
}

/// A valid `uri-host [ ":" port ]` (RFC 9112 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    /// The host name or address, with the brackets of an IPv6 address.
    pub name: &'a [u8],
    /// The port; `None` if it is absent or empty.
    pub port: Option<u16>,
}

impl<'a> Host<'a> {
    /// Parses a Host value or an authority.
    ///
    /// # Errors
    /// [`Reject::HostInvalid`]: an empty name, userinfo, an invalid IPv6 address, a port that is not
    /// a 16-bit number, or a byte that is not allowed in a host.
    pub fn parse(value: &'a [u8]) -> Result<Self, Reject> {
        let (name, rest) = if value.first() == Some(&b'[') {
            let close = value.iter().position(|&b| b == b']').ok_or(Reject::HostInvalid)?;
            let address = core::str::from_utf8(&value[1..close]).map_err(|_| Reject::HostInvalid)?;
            address.parse::<Ipv6Addr>().map_err(|_| Reject::HostInvalid)?;
            value.split_at(close + 1)
        } else {
            let end = reg_name_len(value);
            if end == 0 {
                return Err(Reject::HostInvalid);
            }
            value.split_at(end)
        };
        let port = match rest {
            [] | [b':'] => None,
            [b':', digits @ ..] => Some(parse_port(digits).ok_or(Reject::HostInvalid)?),
            _ => return Err(Reject::HostInvalid),
        };
        Ok(Self { name, port })
    }
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0u32, |n, d| n * 10 + u32::from(d - b'0'));
    u16::try_from(number).ok()
}

/// Returns the length of the `reg-name` (RFC 3986 §3.2.2) at the start of the bytes.
fn reg_name_len(bytes: &[u8]) -> usize {
    const IS_REG_NAME_BYTE: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            let b = byte as u8;
            table[byte] = b.is_ascii_alphanumeric()
                || matches!(b, b'-' | b'.' | b'_' | b'~')
                || matches!(b, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
            byte += 1;
        }
        table
    };
    let mut at = 0;
    loop {
        at += bytes[at..].iter().position(|&b| !IS_REG_NAME_BYTE[usize::from(b)]).unwrap_or(bytes.len() - at);
        match bytes[at..] {
            [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => at += 3,
            _ => return at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_and_invalid_hosts() {
        for valid in ["a", "A.example:80", "a:", "[::1]", "[::1]:8080", "1.2.3.4:1", "a%20b", "xn--a"] {
            assert!(Host::parse(valid.as_bytes()).is_ok(), "{valid}");
        }
        for invalid in [
            "",
            ":80",
            "u@a",
            "a/b",
            "[::1",
            "[::g]",
            "[::1]x",
            "a:x",
            "a:-1",
            "a:65536",
            "a%zz",
            "a b",
            "\u{e9}",
            "[fe80::1%25eth0]",
        ] {
            assert_eq!(Host::parse(invalid.as_bytes()), Err(Reject::HostInvalid), "{invalid}");
        }
    }

    #[test]
    fn target_forms() {
        let form = |text: &str, method| {
            Target::parse(text.as_bytes(), Span::between(0, text.len()), method).map(|t| {
                let part = |s: Span| String::from_utf8(s.of(text.as_bytes()).to_vec()).unwrap();
                (t.form, part(t.path), t.query.map(part), t.authority.map(part))
            })
        };
        let s = |text: &str| Some(text.to_owned());
        assert_eq!(form("/a?b?c", Method::Get), Ok((TargetForm::Origin, "/a".into(), s("b?c"), None)));
        assert_eq!(form("HTTP://a:1/b?", Method::Get), Ok((TargetForm::Absolute, "/b".into(), s(""), s("a:1"))));
        assert_eq!(form("http://a?x", Method::Get), Ok((TargetForm::Absolute, String::new(), s("x"), s("a"))));
        assert_eq!(form("a:443", Method::Connect), Ok((TargetForm::Authority, String::new(), None, s("a:443"))));
        assert_eq!(form("http://a", Method::Options), Ok((TargetForm::Asterisk, String::new(), None, s("a"))));
        assert_eq!(form("*", Method::Get), Err(Reject::TargetFormInvalid));
        assert_eq!(form("/x", Method::Connect), Err(Reject::TargetFormInvalid));
        assert_eq!(form("a:443", Method::Get), Err(Reject::TargetInvalid));
        assert_eq!(form("?x", Method::Get), Err(Reject::TargetInvalid));
        assert_eq!(form("file:///x", Method::Get), Err(Reject::TargetInvalid));
        assert_eq!(form("http:///x", Method::Get), Err(Reject::HostInvalid));
        assert_eq!(form("http://u@a/x", Method::Get), Err(Reject::HostInvalid));
    }
}
