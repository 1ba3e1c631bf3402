//! What every way through a site does alike: content that nobody wants, methods that files do not
//! have, directories without a slash.

use selvedge::proto::head::Expectation;
use selvedge::proto::path::SafePath;
use selvedge::service::ContentError;
use selvedge::{Method, Request, Response, Status};

/// Longer content is left to the engine, which answers first and then closes.
const CONTENT_DISCARDED_BYTES_MAX: u64 = 256 << 10;

/// The methods that files have, for Allow (RFC 9110 §10.2.1).
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Reads content, which files have no use for, before the answer, so that a request whose
/// framing is broken is refused and not answered in part.
///
/// Content of more than `bytes_max` is refused; so is any that is announced to be longer.
pub(super) async fn discard_content(request: &mut Request, bytes_max: u64) -> Result<(), ContentError> {
    if request.body().length().is_some_and(|length| length > bytes_max) {
        return Err(ContentError::TooLarge);
    }
    match request.head().expectation {
        Expectation::None => {
            request.body().limit(bytes_max);
            request.body().discard(CONTENT_DISCARDED_BYTES_MAX).await
        }
        // Who waits to be told to go on is not told: the answer comes instead.
        Expectation::Continue => Ok(()),
    }
}

/// The answer to a method that asks for no file.
pub(super) fn answer_method(request: &Request) -> Option<Response> {
    Some(match request.method() {
        Method::Get | Method::Head => return None,
        Method::Options => Response::new(Status::NO_CONTENT).field("allow", ALLOW),
        Method::Other => Response::error_with_text(Status::NOT_IMPLEMENTED, "this method is not implemented here"),
        _ => {
            let refused = Response::error_with_text(Status::METHOD_NOT_ALLOWED, "this method is not allowed here");
            refused.field("allow", ALLOW)
        }
    })
}

/// How a client is sent to the slash that its directory lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlashRedirect {
    /// By the path, which is the server's.
    Absolute,
    /// From the path that was asked for: what stands before it at the client was taken off by
    /// somebody in between.
    Relative,
}

/// Relative links in a directory's page need the slash. The location is a path with one leading
/// slash, or begins with a dot, so it never names another host.
pub(super) fn redirect_to_slash(path: &SafePath, request: &Request, slash: SlashRedirect) -> Response {
    let mut location = match slash {
        SlashRedirect::Absolute => path.encode(),
        SlashRedirect::Relative => relative(request.path(), &path.encode()),
    };
    location.push('/');
    if let Some(query) = request.query() {
        location.push('?');
        location.push_str(query);
    }
    let mut response = Response::error(Status::MOVED_PERMANENTLY);
    match response.append("location", location) {
        Ok(()) => response,
        Err(_) => Response::error(Status::BAD_REQUEST),
    }
}

/// The way from one path to another, both with their first slash (RFC 3986 §4.2).
fn relative(from: &str, to: &str) -> String {
    let folders = from.bytes().filter(|&b| b == b'/').count().saturating_sub(1);
    let up = if folders == 0 { "./".to_owned() } else { "../".repeat(folders) };
    up + to.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::relative;

    #[test]
    fn ways_between_paths() {
        for (from, to, expected) in [
            ("/docs", "/docs", "./docs"),
            ("/a/docs", "/a/docs", "../a/docs"),
            ("/a/b/docs", "/a/b/docs", "../../a/b/docs"),
            ("/a:b", "/a:b", "./a:b"),
            // Where a rewrite has led elsewhere.
            ("/x/y", "/docs", "../docs"),
        ] {
            assert_eq!(relative(from, to), expected, "{from}");
        }
    }
}
