//! Content codings and Accept-Encoding (RFC 9110 §8.4.1, §12.5.3).

use crate::field::trim;
use crate::limits::CODINGS_MAX;

/// A content coding that the server supports.
///
/// The order is the server's preference among codings to which the client gives equal quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// RFC 7932
    Brotli,
    /// RFC 8878
    Zstd,
    /// RFC 1952
    Gzip,
}

impl Coding {
    /// All codings, the preferred one first.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// Returns the name in Content-Encoding and Accept-Encoding.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the suffix of the name of a precompressed file in this coding.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    fn from_name(name: &[u8]) -> Option<Self> {
        let alias = if name.eq_ignore_ascii_case(b"x-gzip") { b"gzip" } else { name };
        Self::ALL.into_iter().find(|coding| alias.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// A quality value (`q`) in thousandths.
pub type Quality = u16;

/// The quality that a client gives to each coding and to identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedCodings {
    codings: [Quality; Coding::ALL.len()],
    identity: Quality,
}

impl AcceptedCodings {
    /// Parses the lines of Accept-Encoding.
    ///
    /// Without a line, only identity is acceptable. RFC 9110 allows any coding then, but a client
    /// that sends no Accept-Encoding rarely decodes.
    pub fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut codings = [None; Coding::ALL.len()];
        let (mut identity, mut wildcard) = (None, None);
        let list = lines.flat_map(|line| line.split(|&b| b == b',')).map(trim).filter(|member| !member.is_empty());
        for member in list.take(CODINGS_MAX) {
            let (name, quality) = parse_member(member);
            match Coding::from_name(name) {
                Some(coding) => codings[coding as usize] = Some(quality),
                None if name == b"*" => wildcard = Some(quality),
                None if name.eq_ignore_ascii_case(b"identity") => identity = Some(quality),
                None => {}
            }
        }
        Self {
            codings: codings.map(|quality| quality.or(wildcard).unwrap_or(0)),
            //= RFC 9110 §12.5.3: identity is acceptable unless `identity;q=0` or `*;q=0` excludes it
            identity: identity.or(wildcard.filter(|&quality| quality == 0)).unwrap_or(1),
        }
    }

    /// Chooses the best of the available codings; `None` stands for identity.
    ///
    /// Returns identity too if the client accepts no available coding and excludes identity: it is
    /// more useful to the client than 406 (RFC 9110 §12.5.3).
    pub fn choose(&self, is_available: impl Fn(Coding) -> bool) -> Option<Coding> {
        self.choose_from(Coding::ALL.into_iter().filter(|&coding| is_available(coding)))
    }

    /// Chooses the best of `codings`; `None` stands for identity.
    ///
    /// Among codings of equal quality the earlier one is chosen. Returns identity too if the client
    /// accepts none of them and excludes identity.
    pub fn choose_from(&self, codings: impl DoubleEndedIterator<Item = Coding>) -> Option<Coding> {
        // `max_by_key` returns the last of equal elements, so the order is reversed.
        let best = codings.rev().max_by_key(|&coding| self.codings[coding as usize])?;
        self.accepts(best).then_some(best)
    }

    /// Whether the client accepts this coding and gives it at least the quality of identity.
    pub fn accepts(&self, coding: Coding) -> bool {
        let quality = self.codings[coding as usize];
        quality > 0 && quality >= self.identity
    }
}

/// Parses `name [;q=quality]`. An invalid quality becomes 0, so that it never selects a coding.
fn parse_member(member: &[u8]) -> (&[u8], Quality) {
    let Some(mark) = member.iter().position(|&b| b == b';') else { return (member, 1000) };
    let weight = trim(&member[mark + 1..]);
    let quality = match weight {
        [b'q' | b'Q', b'=', value @ ..] => parse_quality(value).unwrap_or(0),
        _ => 0,
    };
    (trim(&member[..mark]), quality)
}

/// Parses a quality value (RFC 9110 §12.4.2): `0[.ddd]` or `1[.000]`. Returns `None` for another text.
pub fn parse_quality(value: &[u8]) -> Option<Quality> {
    let (&whole, rest) = value.split_first()?;
    let decimals = match rest {
        [] => &[][..],
        [b'.', decimals @ ..] if decimals.len() <= 3 && decimals.iter().all(u8::is_ascii_digit) => decimals,
        _ => return None,
    };
    let thousandths =
        [100, 10, 1].iter().zip(decimals).map(|(factor, d)| factor * Quality::from(d - b'0')).sum::<Quality>();
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: Option<&str>, expected: Option<Coding>) {
        let chosen = AcceptedCodings::parse(value.iter().map(|v| v.as_bytes())).choose(|_| true);
        assert_eq!(chosen, expected, "{value:?}");
    }

    #[test]
    fn coding_is_chosen_by_quality() {
        check(None, None);
        check(Some(""), None);
        check(Some("gzip, deflate, br, zstd"), Some(Coding::Brotli));
        check(Some("gzip, zstd"), Some(Coding::Zstd));
        check(Some("GZIP"), Some(Coding::Gzip));
        check(Some("x-gzip"), Some(Coding::Gzip));
        check(Some("br;q=0.5, gzip;q=0.8"), Some(Coding::Gzip));
        check(Some("br;q=0, gzip"), Some(Coding::Gzip));
        check(Some("*"), Some(Coding::Brotli));
        check(Some("*;q=0"), None);
        check(Some("br;q=0, *"), Some(Coding::Zstd));
        check(Some("identity, gzip;q=0.5"), None);
        check(Some("gzip;q=0"), None);
        check(Some("gzip;q=0.001"), Some(Coding::Gzip));
        check(Some("gzip;q=1.001"), None);
        check(Some("gzip;q=.5"), None);
        check(Some("gzip ; q=1.000"), Some(Coding::Gzip));
        check(Some("identity;q=0"), None);
        check(Some("compress, bogus"), None);
    }

    #[test]
    fn order_decides_among_codings_of_equal_quality() {
        let order = [Coding::Zstd, Coding::Gzip, Coding::Brotli];
        for (value, expected) in [
            ("gzip, br, zstd", Some(Coding::Zstd)),
            ("gzip, br", Some(Coding::Gzip)),
            ("br, zstd;q=0.9", Some(Coding::Brotli)),
            ("*;q=0.5", Some(Coding::Zstd)),
            ("identity, *;q=0.5", None),
        ] {
            let accepted = AcceptedCodings::parse([value.as_bytes()].into_iter());
            assert_eq!(accepted.choose_from(order.into_iter()), expected, "{value}");
        }
        let accepted = AcceptedCodings::parse([&b"br, gzip;q=0"[..]].into_iter());
        assert_eq!(order.map(|coding| accepted.accepts(coding)), [false, false, true]);
        assert_eq!(accepted.choose_from([].into_iter()), None);
    }

    #[test]
    fn only_available_codings_are_chosen_and_the_list_is_bounded() {
        let all = AcceptedCodings::parse([&b"br, zstd, gzip"[..]].into_iter());
        assert_eq!(all.choose(|coding| coding == Coding::Gzip), Some(Coding::Gzip));
        assert_eq!(all.choose(|_| false), None);
        let long = "x,".repeat(10_000) + "gzip";
        check(Some(&long), None);
    }
}
