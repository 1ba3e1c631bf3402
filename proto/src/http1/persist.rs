//! Whether the connection lives on, and whether the client waits (RFC 9112 §9.3, RFC 9110 §10.1.1).

use crate::field::{Known, members};
use crate::head::{Expectation, Framing, RequestHead, Version};
use crate::reject::{Afterwards, Reject};

/// What the request allows; an answer may still close.
pub(crate) fn decide(bytes: &[u8], head: &RequestHead) -> Afterwards {
    let has = |option: &[u8]| {
        head.values(bytes, Known::Connection)
            .any(|value| members(value).any(|member| member.eq_ignore_ascii_case(option)))
    };
    match head.version {
        _ if head.value_span(Known::Connection).is_none() => match head.version {
            Version::Http11 => Afterwards::KeepOpen,
            Version::Http10 => Afterwards::Close,
        },
        _ if has(b"close") => Afterwards::Close,
        Version::Http11 => Afterwards::KeepOpen,
        Version::Http10 if has(b"keep-alive") => Afterwards::KeepOpen,
        Version::Http10 => Afterwards::Close,
    }
}

//= RFC 9110 §10.1.1: 417 to an unknown expectation; 100-continue counts only in HTTP/1.1 and
//= only when content follows
pub(crate) fn expectation(bytes: &[u8], head: &RequestHead) -> Result<Expectation, Reject> {
    let mut waits = false;
    for value in head.values(bytes, Known::Expect) {
        if !members(value).all(|member| member.eq_ignore_ascii_case(b"100-continue")) {
            return Err(Reject::ExpectationUnknown);
        }
        waits |= members(value).next().is_some();
    }
    let counts = waits && head.version == Version::Http11 && head.framing != Framing::None;
    Ok(if counts { Expectation::Continue } else { Expectation::None })
}
