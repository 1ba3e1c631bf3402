//! Lets pages of other origins use responses (the CORS protocol of the Fetch Standard).

use super::accept::add_vary;
use crate::syntax::TextPattern;
use selvedge::{Method, Request, Response, StatusCode};

/// Which origins may use responses, and how.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CorsRules {
    pub(crate) origins: AllowedOrigins,
    /// Methods and fields that a preflight request may announce, separated by commas.
    pub(crate) methods: Box<str>,
    pub(crate) headers: Box<str>,
    pub(crate) credentials: CorsCredentials,
    /// Seconds for which a client remembers the response to a preflight request.
    pub(crate) max_age: u64,
}

/// The origins that may use responses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AllowedOrigins {
    /// Every origin, so that responses do not depend on it.
    Any,
    /// Those that match.
    Some(Vec<TextPattern>),
}

/// Whether requests of other origins may have cookies and passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CorsCredentials {
    Allowed,
    NotAllowed,
}

/// Whether a text has the form of an origin, so that a wildcard of a pattern matches a part of a host only.
fn is_origin(text: &str) -> bool {
    let is_host = |host: &str| host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b));
    text == "null" || text.split_once("://").is_some_and(|(_, host)| is_host(host))
}

/// Whether a request has the form of a preflight request.
pub(super) fn is_preflight(request: &Request) -> bool {
    request.method() == Method::Options && request.field("access-control-request-method").is_some()
}

impl CorsRules {
    /// Responds to a preflight request; `None` for any other request.
    pub(super) fn preflight(&self, request: &Request) -> Option<Response> {
        if !is_preflight(request) {
            return None;
        }
        if self.allowed_origin(request).is_none() {
            // The response has no field of the protocol, so the client stops.
            return Some(Response::error(StatusCode::FORBIDDEN).log_reason("the origin is not allowed"));
        }
        let mut response = Response::new(StatusCode::NO_CONTENT);
        let max_age = self.max_age.to_string();
        for (name, value) in [
            ("access-control-allow-methods", &*self.methods),
            ("access-control-allow-headers", &*self.headers),
            ("access-control-max-age", max_age.as_str()),
        ] {
            if !value.is_empty() {
                response.append(name, value).expect("the configuration was validated");
            }
        }
        Some(response)
    }

    /// Adds the fields that let the origin of a request use its response.
    pub(super) fn apply(&self, request: &Request, response: &mut Response) {
        if matches!(self.origins, AllowedOrigins::Some(_)) {
            add_vary(response, &["origin"]);
        }
        let Some(origin) = self.allowed_origin(request) else { return };
        // The settings of the site may have added the field.
        response.fields_mut().remove("access-control-allow-origin");
        // A value of a request is a valid value of a response.
        let _ = response.append("access-control-allow-origin", origin);
        if self.credentials == CorsCredentials::Allowed {
            response.append("access-control-allow-credentials", "true").expect("it is a valid value");
        }
    }

    /// Returns the value that allows the origin of a request, if it is allowed.
    fn allowed_origin(&self, request: &Request) -> Option<String> {
        let patterns = match &self.origins {
            // A cache may use the response to a request without an origin for a later one that has an origin.
            AllowedOrigins::Any => return Some("*".to_owned()),
            AllowedOrigins::Some(patterns) => patterns,
        };
        let origin = std::str::from_utf8(request.field("origin")?).ok().filter(|origin| is_origin(origin))?;
        patterns.iter().any(|pattern| pattern.is_match(origin)).then(|| origin.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_have_a_scheme_and_a_host() {
        for text in ["https://a.example", "http://localhost:3000", "https://[::1]:1", "app://x", "null"] {
            assert!(is_origin(text), "{text}");
        }
        for text in
            ["", "a.example", "https://evil.example/.ok.example", "https://evil#.ok.example", "https://u@ok.example"]
        {
            assert!(!is_origin(text), "{text}");
        }
    }
}
