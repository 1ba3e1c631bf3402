//! Handles what all routes with files share: request content, methods, directories without a trailing slash.

use selvedge::proto::head::Expectation;
use selvedge::proto::path::SafePath;
use selvedge::service::{ContentError, UNIX_PEER};
use selvedge::{Method, Request, Response, StatusCode};

/// Content up to this length is read and discarded. For longer content the engine sends the response and then
/// closes the connection.
const DISCARD_BYTES_MAX: u64 = 256 << 10;

/// The methods of a file, for the Allow field (RFC 9110 §10.2.1).
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Limits the request content that an action may read.
///
/// # Errors
/// [`ContentError::TooLarge`] if Content-Length announces more than `bytes_max`.
pub(super) fn limit_content(request: &mut Request, bytes_max: u64) -> Result<(), ContentError> {
    if request.body().length().is_some_and(|length| length > bytes_max) {
        return Err(ContentError::TooLarge);
    }
    request.body().set_bytes_max(bytes_max);
    Ok(())
}

/// Reads and discards request content before the response of an action that does not use it, so that a request with
/// broken framing is rejected as a whole.
///
/// # Errors
/// [`ContentError::TooLarge`] for content beyond the limit.
pub(super) async fn discard_content(request: &mut Request) -> Result<(), ContentError> {
    match request.head().expectation {
        Expectation::None => request.body().discard(DISCARD_BYTES_MAX).await,
        // The client waits for 100 (Continue). It gets the final response instead.
        Expectation::Continue => Ok(()),
    }
}

/// Returns the response to a method other than GET and HEAD.
pub(super) fn respond_to_method(request: &Request) -> Option<Response> {
    Some(match request.method() {
        Method::Get | Method::Head => return None,
        Method::Options => Response::new(StatusCode::NO_CONTENT).field("allow", ALLOW),
        Method::Other => Response::error_with_text(StatusCode::NOT_IMPLEMENTED, "this method is not implemented here"),
        _ => {
            let refused = Response::error_with_text(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed here");
            refused.field("allow", ALLOW)
        }
    })
}

/// How a request for a directory without its trailing slash is redirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlashRedirect {
    /// To the absolute path on this server.
    Absolute,
    /// To a path relative to the request path, because a router in front has removed a prefix that the client
    /// sees.
    Relative,
}

/// Redirects to the path of a page, such as that of a directory with its trailing slash, which relative links in its
/// index need. The location starts with a single slash or a dot, so it never names another host.
pub(super) fn redirect_to_path(path: &SafePath, request: &Request, slash: SlashRedirect) -> Response {
    let mut location = match slash {
        SlashRedirect::Absolute => path.encode(),
        // What a parent folder is depends on the client where a path has empty segments.
        SlashRedirect::Relative if request.path().starts_with("//") => return Response::error(StatusCode::NOT_FOUND),
        SlashRedirect::Relative => relative_path(request.path(), &path.encode()),
    };
    if let Some(query) = request.query() {
        location.push('?');
        location.push_str(query);
    }
    let mut response = Response::error(StatusCode::MOVED_PERMANENTLY);
    match response.append("location", location) {
        Ok(()) => response,
        Err(_) => Response::error(StatusCode::BAD_REQUEST),
    }
}

/// Redirects a plain request to https. `None` for one that has no path, or whose client is a proxy at a Unix socket.
pub(super) fn redirect_to_https(request: &Request, port: u16) -> Option<Response> {
    const HTTPS_PORT: u16 = 443;
    let host = request.host().filter(|_| request.peer() != UNIX_PEER)?;
    let name = std::str::from_utf8(host.name).ok()?;
    let path = Some(request.path()).filter(|path| path.starts_with('/'))?;
    let port = if port == HTTPS_PORT { String::new() } else { format!(":{port}") };
    let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::error(StatusCode::PERMANENT_REDIRECT);
    match response.append("location", format!("https://{name}{port}{path}{query}")) {
        Ok(()) => Some(response),
        Err(_) => Some(Response::error(StatusCode::BAD_REQUEST)),
    }
}

/// Returns the relative reference from one absolute path to another (RFC 3986 §4.2).
fn relative_path(from: &str, to: &str) -> String {
    let depth = from.bytes().filter(|&b| b == b'/').count().saturating_sub(1);
    let up = if depth == 0 { "./".to_owned() } else { "../".repeat(depth) };
    up + to.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::relative_path;

    #[test]
    fn relative_paths() {
        for (from, to, expected) in [
            ("/docs", "/docs", "./docs"),
            ("/a/docs", "/a/docs", "../a/docs"),
            ("/a/b/docs", "/a/b/docs", "../../a/b/docs"),
            ("/a:b", "/a:b", "./a:b"),
            // After a rewrite to another path.
            ("/x/y", "/docs", "../docs"),
        ] {
            assert_eq!(relative_path(from, to), expected, "{from}");
        }
    }
}
