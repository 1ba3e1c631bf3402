//! The request target in its four forms, and the host (RFC 9112 §3.2, RFC 3986 §3.2).
//!
//! Decides what a target names, never where it leads: see [`crate::path`] for the
//! step from a target's path to a name that may be opened.

use crate::method::Method;
use crate::reject::Reject;
use crate::swar;
use core::net::Ipv6Addr;

/// Where a part of a head stands, as an offset and a length in the head's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u16,
    /// Number of bytes.
    pub len: u16,
}

impl Span {
    /// The span from one offset up to another. Heads are shorter than 64 KiB, so both fit.
    pub(crate) fn between(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= crate::limits::HEAD_BYTES_CEILING);
        Self { start: start as u16, len: (end - start) as u16 }
    }

    /// The bytes that it stands for.
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[usize::from(self.start)..usize::from(self.start) + usize::from(self.len)]
    }
}

/// Which form a target has (RFC 9112 §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
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

/// A target, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Its form.
    pub form: Form,
    /// All of it, as it came.
    pub whole: Span,
    /// The path with its percent-encoding; empty when an absolute-form has none.
    pub path: Span,
    /// What stands after the first `?`, when there is one.
    pub query: Option<Span>,
    /// The authority of an absolute-form or authority-form.
    pub authority: Option<Span>,
}

impl Target {
    /// Takes the target that stands at `whole` in `bytes` apart.
    ///
    /// # Errors
    /// [`Reject::TargetMalformed`], [`Reject::TargetFormWrong`] or [`Reject::HostInvalid`].
    pub(crate) fn parse(bytes: &[u8], whole: Span, method: Method) -> Result<Self, Reject> {
        let target = whole.of(bytes);
        let start = usize::from(whole.start);
        let end = start + target.len();
        if method == Method::Connect {
            //= RFC 9110 §9.3.6: an empty or invalid port MUST be refused, and nothing listens on port 0
            return match Host::parse(target) {
                Ok(Host { port: Some(1..), .. }) => {
                    Ok(Self { form: Form::Authority, whole, authority: Some(whole), ..Self::default() })
                }
                _ => Err(Reject::TargetFormWrong),
            };
        }
        match target {
            [b'/', ..] => Ok(Self { form: Form::Origin, whole, ..Self::path_and_query(bytes, start, end) }),
            b"*" if method == Method::Options => Ok(Self { form: Form::Asterisk, whole, ..Self::default() }),
            b"*" => Err(Reject::TargetFormWrong),
            _ => Self::absolute(bytes, whole, method),
        }
    }

    fn path_and_query(bytes: &[u8], start: usize, end: usize) -> Self {
        let mark = swar::find(&bytes[..end], start, |word| swar::equal(word, b'?'));
        let query = (mark < end).then(|| Span::between(mark + 1, end));
        Self { path: Span::between(start, mark), query, ..Self::default() }
    }

    fn absolute(bytes: &[u8], whole: Span, method: Method) -> Result<Self, Reject> {
        let target = whole.of(bytes);
        let scheme_len = target.windows(3).position(|w| w == b"://").ok_or(Reject::TargetMalformed)?;
        let scheme = &target[..scheme_len];
        if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
            return Err(Reject::TargetMalformed);
        }
        let authority_at = scheme_len + 3;
        let rest = &target[authority_at..];
        let authority_len = rest.iter().position(|&b| b == b'/' || b == b'?').unwrap_or(rest.len());
        Host::parse(&rest[..authority_len])?;
        let start = usize::from(whole.start);
        let path_at = start + authority_at + authority_len;
        let parts = Self::path_and_query(bytes, path_at, start + target.len());
        //= RFC 9112 §3.2.4: OPTIONS of an absolute-form without path and query asks about the server
        let asterisk = method == Method::Options && parts.path.len == 0 && parts.query.is_none();
        Ok(Self {
            form: if asterisk { Form::Asterisk } else { Form::Absolute },
            whole,
            authority: Some(Span::between(start + authority_at, path_at)),
            ..parts
        })
    }
}

/// A valid `uri-host [ ":" port ]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    /// The name or address, with the brackets of an IPv6 address.
    pub name: &'a [u8],
    /// The port, when there is one and it is not empty.
    pub port: Option<u16>,
}

impl<'a> Host<'a> {
    /// Reads a Host value or an authority.
    ///
    /// # Errors
    /// [`Reject::HostInvalid`]: empty, userinfo, a bad IPv6 address, a port that is no
    /// 16-bit number, or an octet that no host has.
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

/// Length of the `reg-name` (RFC 3986 §3.2.2) that the bytes begin with.
fn reg_name_len(bytes: &[u8]) -> usize {
    const PLAIN: [bool; 256] = {
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
        at += bytes[at..].iter().position(|&b| !PLAIN[usize::from(b)]).unwrap_or(bytes.len() - at);
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
    fn hosts() {
        for good in ["a", "A.example:80", "a:", "[::1]", "[::1]:8080", "1.2.3.4:1", "a%20b", "xn--a"] {
            assert!(Host::parse(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in [
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
            assert_eq!(Host::parse(bad.as_bytes()), Err(Reject::HostInvalid), "{bad}");
        }
    }

    #[test]
    fn forms() {
        let form = |text: &str, method| {
            Target::parse(text.as_bytes(), Span::between(0, text.len()), method).map(|t| {
                let part = |s: Span| String::from_utf8(s.of(text.as_bytes()).to_vec()).unwrap();
                (t.form, part(t.path), t.query.map(part), t.authority.map(part))
            })
        };
        let s = |text: &str| Some(text.to_owned());
        assert_eq!(form("/a?b?c", Method::Get), Ok((Form::Origin, "/a".into(), s("b?c"), None)));
        assert_eq!(form("HTTP://a:1/b?", Method::Get), Ok((Form::Absolute, "/b".into(), s(""), s("a:1"))));
        assert_eq!(form("http://a?x", Method::Get), Ok((Form::Absolute, String::new(), s("x"), s("a"))));
        assert_eq!(form("a:443", Method::Connect), Ok((Form::Authority, String::new(), None, s("a:443"))));
        assert_eq!(form("http://a", Method::Options), Ok((Form::Asterisk, String::new(), None, s("a"))));
        assert_eq!(form("*", Method::Get), Err(Reject::TargetFormWrong));
        assert_eq!(form("/x", Method::Connect), Err(Reject::TargetFormWrong));
        assert_eq!(form("a:443", Method::Get), Err(Reject::TargetMalformed));
        assert_eq!(form("?x", Method::Get), Err(Reject::TargetMalformed));
        assert_eq!(form("file:///x", Method::Get), Err(Reject::TargetMalformed));
        assert_eq!(form("http:///x", Method::Get), Err(Reject::HostInvalid));
        assert_eq!(form("http://u@a/x", Method::Get), Err(Reject::HostInvalid));
    }
}
