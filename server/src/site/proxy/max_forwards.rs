//! Max-Forwards: how often requests with the methods OPTIONS and TRACE may be forwarded (RFC 9110 §7.6.2).

use selvedge::{Method, Request, Response, StatusCode};

/// The name of the field.
pub(super) const FIELD: &str = "max-forwards";

/// Returns how often a request may be forwarded. `None` without the field, with one that is no number, and for methods
/// for which it has no meaning.
fn forwards_left(request: &Request) -> Option<u64> {
    if !matches!(request.method(), Method::Options | Method::Trace) {
        return None;
    }
    let text = request.field(FIELD).and_then(|value| str::from_utf8(value).ok())?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A recipient may send a lower number than the received one minus 1.
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Returns the value of the field in the forwarded request, if it changes.
pub(super) fn forwarded(request: &Request) -> Option<u64> {
    forwards_left(request).map(|left| left.saturating_sub(1))
}

/// Returns the response to a request that may not be forwarded.
pub(super) fn final_response(request: &Request) -> Option<Response> {
    //= RFC 9110 §7.6.2: with the value 0, the recipient MUST NOT forward, and MUST respond itself
    (forwards_left(request)? == 0).then(|| match request.method() {
        Method::Options => Response::new(StatusCode::NO_CONTENT),
        // The fields of the request may be secrets of the client, so they are not sent back.
        _ => Response::error(StatusCode::METHOD_NOT_ALLOWED).field("allow", ALLOW).log_reason(REASON),
    })
}

/// The methods that are forwarded without a limit.
const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
const REASON: &str = "TRACE with Max-Forwards 0 is not forwarded";
