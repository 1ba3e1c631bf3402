//! Finds the file for a path: tries the route's `try-files` entries in order, then the fallback page for
//! navigations.

use super::files::resolve::Resolved;
use super::files::root::Root;
use super::files::{self, FileError, Files, Resource};
use super::files_rules::{FilesRules, Listing, TryFile};
use crate::syntax::{RequestValues, Template, absolute_path};
use selvedge::Request;
use selvedge::proto::field::{KnownField, list_members, trim};
use selvedge::proto::path::SafePath;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What a path leads to.
pub(super) enum FileLookup {
    /// A file.
    File(FoundFile, FoundBy),
    /// The fallback page: the request path leads to nothing, and the request is a navigation.
    Fallback(FoundFile),
    /// A directory whose request path has no trailing slash.
    DirectoryWithoutSlash,
    /// A directory to be listed, and the root above it.
    Directory(OwnedFd, Arc<Root>),
}

/// What led to a file.
pub(super) enum FoundBy {
    /// The path of the request alone. With the time since worker start until which the file is fresh.
    Path(Duration),
    /// The path of the request and other values of it, so that the file must not be cached under the path.
    PathAndValues,
    /// An entry without the path of the request. Clients choose how many paths lead to the file.
    AnyPath,
}

/// A file and its path in the form that patterns match: that of an index file has its name.
pub(super) struct FoundFile {
    pub(super) resource: Rc<Resource>,
    pub(super) path: String,
}

impl FoundFile {
    pub(super) fn new(resource: Rc<Resource>, path: &SafePath) -> Self {
        let mut text = absolute_path(path);
        text.truncate(text.rfind('/').map_or(0, |slash| slash + 1));
        text.push_str(resource.name());
        Self { resource, path: text }
    }
}

/// The entries that are tried if the route sets none.
const DEFAULT_TRY_FILES: [TryFile; 2] = [TryFile::File, TryFile::Directory];

/// Finds what a path leads to. `values` fill the placeholders of entries.
pub(super) async fn find_file<'v>(
    files: &Files,
    rules: &FilesRules,
    path: &SafePath,
    (request, values): (&Request, &impl Fn() -> RequestValues<'v>),
) -> Result<FileLookup, FileError> {
    let now = request.received_at().since_worker_start;
    match try_each(files, rules, path, (now, values)).await {
        Ok(found) => Ok(found),
        Err(FileError::NotFound) => match &rules.fallback {
            Some(fallback) if is_navigation(request, path) => match resolve_path(files, fallback, now).await? {
                (Resolved::File(resource), _) => Ok(FileLookup::Fallback(FoundFile::new(resource, fallback))),
                _ => Err(FileError::NotFound),
            },
            _ => Err(FileError::NotFound),
        },
        Err(error) => Err(error),
    }
}

async fn try_each<'v>(
    files: &Files,
    rules: &FilesRules,
    path: &SafePath,
    (now, values): (Duration, &impl Fn() -> RequestValues<'v>),
) -> Result<FileLookup, FileError> {
    // A file and a directory of one path are resolved together, so one look-up is enough for both entries.
    let (mut resolved, mut is_resolved) = (None, false);
    let entries = if rules.try_files.is_empty() { &DEFAULT_TRY_FILES[..] } else { &rules.try_files };
    for entry in entries {
        if let TryFile::Suffix(suffix) = entry {
            if path.names_directory() {
                continue;
            }
            let with_suffix = path.with_suffix(&suffix.0);
            match resolve_path(files, &with_suffix, now).await {
                Ok((Resolved::File(resource), fresh_until)) => {
                    return Ok(FileLookup::File(FoundFile::new(resource, &with_suffix), FoundBy::Path(fresh_until)));
                }
                Ok(_) | Err(FileError::NotFound) => continue,
                Err(error) => return Err(error),
            }
        }
        if let TryFile::Path(template) = entry {
            // A path with a trailing slash names a directory, and this entry is for files.
            if template.has_path() && path.names_directory() {
                continue;
            }
            let Some(filled) = filled(template, path, values) else { continue };
            match resolve_path(files, &filled, now).await {
                Ok((Resolved::File(resource), fresh_until)) => {
                    let found_by = match template.has_path() {
                        false => FoundBy::AnyPath,
                        true if template.wildcards() > 0 || template.has_variables() => FoundBy::PathAndValues,
                        true => FoundBy::Path(fresh_until),
                    };
                    return Ok(FileLookup::File(FoundFile::new(resource, &filled), found_by));
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
            return Ok(match found {
                Resolved::File(resource) => {
                    FileLookup::File(FoundFile::new(resource, path), FoundBy::Path(fresh_until))
                }
                Resolved::DirectoryWithoutSlash => FileLookup::DirectoryWithoutSlash,
                Resolved::Directory(directory, root) => FileLookup::Directory(directory, root),
            });
        }
    }
    Err(FileError::NotFound)
}

/// Returns the path of an entry with the values of the request. `None` if a value makes a segment `.` or `..` of it,
/// which could lead to a folder that the entry does not name.
fn filled<'v>(template: &Template, path: &SafePath, values: &impl Fn() -> RequestValues<'v>) -> Option<SafePath> {
    let path = absolute_path(path);
    let filled = template.path_with(&RequestValues { path: &path, ..values() });
    let has_dots = filled.split('/').any(|segment| matches!(segment, "." | ".."));
    SafePath::decode(filled.as_bytes()).ok().filter(|_| !has_dots)
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
