//! Whether a client prefers JSON, and errors in the form that it prefers.

use selvedge::proto::field::KnownField;
use selvedge::{Request, Response};

/// Whether Accept names JSON and does not rank HTML above it. If HTML is not named, a wildcard stands for it,
/// but not above JSON of equal weight (RFC 9110 §12.5.1).
pub(super) fn prefers_json(request: &Request) -> bool {
    const MEMBERS_MAX: usize = 64;
    let (mut json, mut html, mut any) = (0.0, None, 0.0);
    for value in request.known_field_values(KnownField::Accept) {
        for member in String::from_utf8_lossy(value).split(',').take(MEMBERS_MAX) {
            let mut parts = member.split(';').map(str::trim);
            let range = parts.next().unwrap_or("").to_ascii_lowercase();
            let quality: f32 = parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
            match range.as_str() {
                "application/json" | PROBLEM_TYPE => json = quality.max(json),
                "text/html" => html = Some(quality),
                "text/*" | "*/*" => any = quality.max(any),
                _ => {}
            }
        }
    }
    json > 0.0 && html.map_or(json >= any, |html| json > html)
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

/// The media type of a description of an error (RFC 9457 §3).
const PROBLEM_TYPE: &str = "application/problem+json";

/// Replaces the page of an error by its description in JSON, if the client prefers that.
pub(super) fn with_problem(request: &Request, mut error: Response) -> Response {
    let is_page = error.fields().get("content-type").is_some_and(|kind| kind.starts_with(b"text/html"));
    if !is_page || !error.status.is_error() {
        return error;
    }
    add_vary(&mut error, &["accept"]);
    if !prefers_json(request) {
        return error;
    }
    // Without a type of its own, the title is the name of the status (RFC 9457 §4.2.1).
    let (code, title) = (error.status.code(), error.status.reason_phrase());
    let problem = serde_json::json!({ "type": "about:blank", "title": title, "status": code });
    error.fields_mut().set("content-type", PROBLEM_TYPE).expect("a media type is a valid value");
    error.body = format!("{problem}\n").into();
    error
}
