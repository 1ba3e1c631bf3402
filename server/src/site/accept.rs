//! Whether a client prefers JSON, and errors in the form that it prefers.

use selvedge::proto::field::KnownField;
use selvedge::{Request, Response};

/// Whether the client prefers JSON to a page.
pub(super) fn prefers_json(request: &Request) -> bool {
    selvedge::proto::accept::prefers_json(request.known_field_values(KnownField::Accept))
}

/// Adds names of request fields that the response depends on, in one line with those that it has (RFC 9110 §12.5.5).
pub(super) fn add_vary(response: &mut Response, names: &[&str]) {
    let lines = response.fields().iter().filter(|(name, _)| name.eq_ignore_ascii_case("vary"));
    let known: Vec<String> = lines.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect();
    let mut all = known.join(", ");
    for name in names {
        let is_known = all.split(',').map(str::trim).any(|known| known == "*" || known.eq_ignore_ascii_case(name));
        if !is_known {
            all.push_str(if all.is_empty() { "" } else { ", " });
            all.push_str(name);
        }
    }
    response.fields_mut().set("vary", all).expect("field names are a valid value");
}

/// Replaces the page of an error by its description in JSON, if the client prefers that.
pub(super) fn with_problem(request: &Request, mut error: Response) -> Response {
    let is_page = error.fields().get("content-type").is_some_and(|kind| kind.starts_with(b"text/html"));
    if !is_page || !error.status.is_error() {
        return error;
    }
    add_vary(&mut error, &["accept"]);
    if prefers_json(request) { error.into_problem() } else { error }
}
