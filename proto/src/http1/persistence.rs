//! Decides the persistence of the connection (RFC 9112 §9.3) and whether the client waits for
//! `100 Continue` (RFC 9110 §10.1.1).

use crate::field::{KnownField, list_members};
use crate::head::{Expectation, RequestFraming, RequestHead, Version};
use crate::reject::{Persistence, Reject};

/// Returns whether the request allows the connection to persist. The response may still close it.
pub(crate) fn persistence(bytes: &[u8], head: &RequestHead) -> Persistence {
    let has = |option: &[u8]| {
        head.values(bytes, KnownField::Connection)
            .any(|value| list_members(value).any(|member| member.eq_ignore_ascii_case(option)))
    };
    match head.version {
        _ if head.value_span(KnownField::Connection).is_none() => match head.version {
            Version::Http11 | Version::Http2 | Version::Http3 => Persistence::KeepAlive,
            Version::Http10 => Persistence::Close,
        },
        //= RFC 9113 §8.2.2: no field of a request decides it
        Version::Http2 | Version::Http3 => Persistence::KeepAlive,
        _ if has(b"close") => Persistence::Close,
        Version::Http11 => Persistence::KeepAlive,
        Version::Http10 if has(b"keep-alive") => Persistence::KeepAlive,
        Version::Http10 => Persistence::Close,
    }
}

/// Returns whether the client waits for `100 Continue`.
//= RFC 9110 §10.1.1: 417 to an unknown expectation; 100-continue does not apply in HTTP/1.0 or
//= without content
pub(crate) fn expectation(bytes: &[u8], head: &RequestHead) -> Result<Expectation, Reject> {
    let mut expects_continue = false;
    for value in head.values(bytes, KnownField::Expect) {
        if !list_members(value).all(|member| member.eq_ignore_ascii_case(b"100-continue")) {
            return Err(Reject::ExpectationNotSupported);
        }
        expects_continue |= list_members(value).next().is_some();
    }
    let applies = expects_continue && head.version != Version::Http10 && head.framing != RequestFraming::None;
    Ok(if applies { Expectation::Continue } else { Expectation::None })
}
