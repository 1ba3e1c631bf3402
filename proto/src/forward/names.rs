//! The names of fields that belong to one connection, and what Connection names (RFC 9110 §7.6.1).

use crate::field::list_members;

/// Whether a field belongs to one connection: hop-by-hop fields, framing fields, and those for proxies that clients
/// choose (RFC 9110 §7.6.1, §11.7). The name is compared without case.
///
/// Trailer is none of them (RFC 9110 §6.6.2). Trailers are forwarded, and some applications take only those that it names.
pub(super) fn is_for_one_connection(name: &[u8]) -> bool {
    let names: &[&[u8]] = match name.len() {
        2 => &[b"te"],
        7 => &[b"upgrade"],
        10 => &[b"connection", b"keep-alive"],
        14 => &[b"content-length", b"http2-settings"],
        16 => &[b"proxy-connection"],
        17 => &[b"transfer-encoding"],
        18 => &[b"proxy-authenticate"],
        19 => &[b"proxy-authorization"],
        25 => &[b"proxy-authentication-info"],
        _ => &[],
    };
    names.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// Whether Connection never removes a field of this name, which is compared without case.
///
/// The sender of Connection names fields of its own connection. A client that names one of these wants to deceive:
/// the application would see a request without credentials, or would not learn who sent it.
fn is_protected(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 10] = [
        b"authorization",
        b"cache-control",
        b"cookie",
        b"forwarded",
        b"host",
        b"location",
        b"origin",
        b"set-cookie",
        b"via",
        b"x-real-ip",
    ];
    NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
        || starts_with(name, b"content-")
        || starts_with(name, b"x-forwarded-")
}

/// Whether a name begins with a prefix, which is compared without case.
pub(super) fn starts_with(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// The options of Connection that name further fields.
#[derive(Clone, Copy)]
pub(super) struct Nominations<I> {
    values: I,
    /// Whether an option may be the name of a field that is otherwise forwarded. Few messages have one.
    is_empty: bool,
}

impl<'a, I: Iterator<Item = &'a [u8]> + Clone> Nominations<I> {
    /// Reads the values of Connection.
    pub(super) fn new(values: I) -> Self {
        let mut options = values.clone().flat_map(list_members);
        let is_empty = options.all(|option| option.eq_ignore_ascii_case(b"close") || is_for_one_connection(option));
        Self { values, is_empty }
    }

    /// Whether Connection removes the field of this name.
    pub(super) fn removes(&self, name: &[u8]) -> bool {
        !self.is_empty
            && self.values.clone().flat_map(list_members).any(|option| option.eq_ignore_ascii_case(name))
            && !is_protected(name)
    }
}
