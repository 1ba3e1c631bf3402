//! What a route with files has for a path: one attempt after the other, and for navigations
//! the page of the application.

use super::action::{Attempt, FilesRules, Listing};
use super::files::resolve::Found;
use super::files::root::Root;
use super::files::{Failure, Files, Resource};
use super::pattern::Captures;
use selvedge::Request;
use selvedge::proto::field::{Known, members, trim};
use selvedge::proto::path::SafePath;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What there is.
pub(super) enum Looked<'r> {
    /// A file, and when it was looked at if the path leads to it; not if any other path would, too.
    File(Rc<Resource>, Option<Duration>),
    /// The page of the application, whose path this is: the path leads to nothing, and the
    /// request is a navigation.
    Fallback(Rc<Resource>, &'r SafePath),
    /// A directory, asked for without the slash.
    DirectoryWithoutSlash,
    /// A directory to be listed, and the root that it is beneath.
    Directory(OwnedFd, Arc<Root>),
}

/// What is tried when nothing else is said.
const ATTEMPTS: [Attempt; 2] = [Attempt::File, Attempt::Directory];

/// Looks for what a path means.
pub(super) async fn look_for<'r>(
    files: &Files,
    rules: &'r FilesRules,
    path: &SafePath,
    request: &Request,
) -> Result<Looked<'r>, Failure> {
    let now = request.moment().since_start;
    match attempt_all(files, rules, path, now).await {
        Ok((Found::File(resource), checked)) => Ok(Looked::File(resource, checked)),
        Ok((Found::DirectoryWithoutSlash, _)) => Ok(Looked::DirectoryWithoutSlash),
        Ok((Found::Directory(directory, root), _)) => Ok(Looked::Directory(directory, root)),
        Err(Failure::NotFound) => match &rules.fallback {
            Some(fallback) if is_navigation(request, path) => match find(files, fallback, now).await? {
                (Found::File(resource), _) => Ok(Looked::Fallback(resource, fallback)),
                _ => Err(Failure::NotFound),
            },
            _ => Err(Failure::NotFound),
        },
        Err(failure) => Err(failure),
    }
}

async fn attempt_all(
    files: &Files,
    rules: &FilesRules,
    path: &SafePath,
    now: Duration,
) -> Result<(Found, Option<Duration>), Failure> {
    // A file and a directory of the same path are seen with one look.
    let (mut seen, mut has_looked) = (None, false);
    let attempts = if rules.attempts.is_empty() { &ATTEMPTS[..] } else { &rules.attempts };
    for attempt in attempts {
        if let Attempt::Suffix(suffix) = attempt {
            if path.names_directory() {
                continue;
            }
            match find(files, &path.with_suffix(&suffix.0), now).await {
                Ok((found @ Found::File(_), checked)) => return Ok((found, Some(checked))),
                Ok(_) | Err(Failure::NotFound) => continue,
                Err(failure) => return Err(failure),
            }
        }
        if let Attempt::Path(template) = attempt {
            // A name with a slash at its end is that of a directory, and this is a file's.
            if template.stars() > 0 && path.names_directory() {
                continue;
            }
            let filled = template.path_with(&Captures::whole(path.as_str()));
            let Ok(filled) = SafePath::decode(filled.as_bytes()) else { continue };
            match find(files, &filled, now).await {
                Ok((found @ Found::File(_), checked)) => {
                    return Ok((found, (template.stars() > 0).then_some(checked)));
                }
                Ok(_) | Err(Failure::NotFound) => continue,
                Err(failure) => return Err(failure),
            }
        }
        if !has_looked {
            has_looked = true;
            seen = match find(files, path, now).await {
                Err(Failure::NotFound) => None,
                done => Some(done?),
            };
        }
        let is_meant = match seen.as_ref().map(|(found, _)| found) {
            Some(Found::File(_)) => path.names_directory() == (*attempt == Attempt::Directory),
            Some(Found::DirectoryWithoutSlash) => *attempt == Attempt::Directory,
            Some(Found::Directory(..)) => *attempt == Attempt::Directory && rules.listing == Listing::On,
            None => false,
        };
        if is_meant && let Some((found, checked)) = seen.take() {
            return Ok((found, Some(checked)));
        }
    }
    Err(Failure::NotFound)
}

/// What a path leads to, and when it was seen to.
pub(super) async fn find(files: &Files, path: &SafePath, now: Duration) -> Result<(Found, Duration), Failure> {
    let plain = path.encode();
    if let Some((resource, checked)) = files.recall(now, plain.as_bytes()) {
        return Ok((Found::File(resource), checked));
    }
    Ok((files.find(now, plain.as_bytes(), path).await?, now))
}

/// Whether a browser is about to show what comes as a page of its own. Where it does not say
/// so, who takes HTML and asks for no name with an extension is taken for one.
fn is_navigation(request: &Request, path: &SafePath) -> bool {
    match request.field("sec-fetch-mode") {
        Some(mode) => mode == b"navigate",
        None => !path.name().contains('.') && request.known_values(Known::Accept).any(takes_html),
    }
}

fn takes_html(accept: &[u8]) -> bool {
    members(accept).any(|member| {
        let mut parts = member.split(|&b| b == b';').map(trim);
        let is_html = parts.next().is_some_and(|range| range.eq_ignore_ascii_case(b"text/html"));
        is_html && !parts.any(is_zero_weight)
    })
}

/// `q=0`, and the same with zeros behind a dot: not at all (RFC 9110 §12.4.2).
fn is_zero_weight(parameter: &[u8]) -> bool {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
    value.is_some_and(|value| value.starts_with(b"0") && value.iter().all(|b| matches!(b, b'0' | b'.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_html() {
        for (accept, expected) in [
            ("text/html", true),
            ("text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("application/json, TEXT/HTML ; q=0.5", true),
            ("*/*", false),
            ("", false),
            ("application/json", false),
            ("text/html;q=0", false),
            ("text/html;q=0.000", false),
            ("text/html;level=1;q=0.1", true),
            ("text/htmlx", false),
        ] {
            assert_eq!(takes_html(accept.as_bytes()), expected, "{accept}");
        }
    }
}
