//! Finds the file for a path: tries the route's `try-files` entries in order, then the fallback page for
//! navigations.

use super::action::{FilesRules, Listing, TryFile};
use super::files::resolve::Resolved;
use super::files::root::Root;
use super::files::{self, FileError, Files, Resource};
use crate::syntax::Captures;
use selvedge::Request;
use selvedge::proto::field::{KnownField, list_members, trim};
use selvedge::proto::path::SafePath;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a path leads to.
pub(super) enum FileLookup<'r> {
    /// A file, and the time since worker start until which it is fresh. `None` if other paths lead to it as
    /// well, so that its path must not be cached.
    File(Rc<Resource>, Option<Duration>),
    /// The fallback page and its path: the request path leads to nothing, and the request is a navigation.
    Fallback(Rc<Resource>, &'r SafePath),
    /// A directory whose request path has no trailing slash.
    DirectoryWithoutSlash,
    /// A directory to be listed, and the root above it.
    Directory(OwnedFd, Arc<Root>),
}

/// The entries that are tried if the route sets none.
const DEFAULT_TRY_FILES: [TryFile; 2] = [TryFile::File, TryFile::Directory];

/// Finds what a path leads to.
pub(super) async fn find_file<'r>(
    files: &Files,
    rules: &'r FilesRules,
    path: &SafePath,
    request: &Request,
) -> Result<FileLookup<'r>, FileError> {
    let now = request.received_at().since_worker_start;
    match try_each(files, rules, path, now).await {
        Ok((Resolved::File(resource), fresh_until)) => Ok(FileLookup::File(resource, fresh_until)),
        Ok((Resolved::DirectoryWithoutSlash, _)) => Ok(FileLookup::DirectoryWithoutSlash),
        Ok((Resolved::Directory(directory, root), _)) => Ok(FileLookup::Directory(directory, root)),
        Err(FileError::NotFound) => match &rules.fallback {
            Some(fallback) if is_navigation(request, path) => match resolve_path(files, fallback, now).await? {
                (Resolved::File(resource), _) => Ok(FileLookup::Fallback(resource, fallback)),
                _ => Err(FileError::NotFound),
            },
            _ => Err(FileError::NotFound),
        },
        Err(error) => Err(error),
    }
}

async fn try_each(
    files: &Files,
    rules: &FilesRules,
    path: &SafePath,
    now: Duration,
) -> Result<(Resolved, Option<Duration>), FileError> {
    // A file and a directory of one path are resolved together, so one look-up is enough for both entries.
    let (mut resolved, mut is_resolved) = (None, false);
    let entries = if rules.try_files.is_empty() { &DEFAULT_TRY_FILES[..] } else { &rules.try_files };
    for entry in entries {
        if let TryFile::Suffix(suffix) = entry {
            if path.names_directory() {
                continue;
            }
            match resolve_path(files, &path.with_suffix(&suffix.0), now).await {
                Ok((found @ Resolved::File(_), fresh_until)) => return Ok((found, Some(fresh_until))),
                Ok(_) | Err(FileError::NotFound) => continue,
                Err(error) => return Err(error),
            }
        }
        if let TryFile::Path(template) = entry {
            // A path with a trailing slash names a directory, and this entry is for files.
            if template.stars() > 0 && path.names_directory() {
                continue;
            }
            let filled = template.path_with(&Captures::whole(path.as_str()));
            let Ok(filled) = SafePath::decode(filled.as_bytes()) else { continue };
            match resolve_path(files, &filled, now).await {
                Ok((found @ Resolved::File(_), fresh_until)) => {
                    return Ok((found, (template.stars() > 0).then_some(fresh_until)));
                }
                Ok(_) | Err(FileError::NotFound) => continue,
                Err(error) => return Err(error),
            }
        }
        if !is_resolved {
            is_resolved = true;
            resolved = match resolve_path(files, path, now).await {
                Err(FileError::NotFound) => None,
                result => Some(result?),
            };
        }
        let applies = match resolved.as_ref().map(|(found, _)| found) {
            Some(Resolved::File(_)) => path.names_directory() == (*entry == TryFile::Directory),
            Some(Resolved::DirectoryWithoutSlash) => *entry == TryFile::Directory,
            Some(Resolved::Directory(..)) => *entry == TryFile::Directory && rules.listing == Listing::On,
            None => false,
        };
        if applies && let Some((found, fresh_until)) = resolved.take() {
            return Ok((found, Some(fresh_until)));
        }
    }
    Err(FileError::NotFound)
}

/// Resolves a path, from the cache if it is fresh. Also returns the time until which the result is fresh.
pub(super) async fn resolve_path(
    files: &Files,
    path: &SafePath,
    now: Duration,
) -> Result<(Resolved, Duration), FileError> {
    let canonical = path.encode();
    if let Some((resource, fresh_until)) = files.get_cached(now, canonical.as_bytes()) {
        return Ok((Resolved::File(resource), fresh_until));
    }
    Ok((files.resolve(now, canonical.as_bytes(), path).await?, files::fresh_until(now)))
}

/// Whether the browser is going to show the response as a page. If Sec-Fetch-Mode is absent, a request that
/// accepts HTML and whose path has no file extension counts as a navigation.
fn is_navigation(request: &Request, path: &SafePath) -> bool {
    match request.field("sec-fetch-mode") {
        Some(mode) => mode == b"navigate",
        None => !path.file_name().contains('.') && request.known_field_values(KnownField::Accept).any(accepts_html),
    }
}

fn accepts_html(accept: &[u8]) -> bool {
    list_members(accept).any(|member| {
        let mut parts = member.split(|&b| b == b';').map(trim);
        let is_html = parts.next().is_some_and(|range| range.eq_ignore_ascii_case(b"text/html"));
        is_html && !parts.any(is_weight_zero)
    })
}

/// Whether a parameter is `q=0`, with or without decimals, which means "not acceptable" (RFC 9110 §12.4.2).
fn is_weight_zero(parameter: &[u8]) -> bool {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
    value.is_some_and(|value| value.starts_with(b"0") && value.iter().all(|b| matches!(b, b'0' | b'.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_acceptance() {
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
            assert_eq!(accepts_html(accept.as_bytes()), expected, "{accept}");
        }
    }
}
