//! Finds the file for a path: tries the route's `try-files` entries in order, then the fallback page for
//! navigations.

use super::files::resolve::Resolved;
use super::files::root::Root;
use super::files::{self, FileError, Files, Resource};
use super::files_rules::{CleanUrls, FilesRules, Listing, PageAddresses, TrailingSlash, TryFile};
use super::step_texts;
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
    /// A page or directory that is at another path.
    Moved(AddressChange),
    /// A directory to be listed, and the root above it.
    Directory(OwnedFd, Arc<Root>),
}

/// How the path of a page differs from that of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressChange {
    AddSlash,
    RemoveSlash,
    /// The suffix of the file is removed, and a slash may take its place.
    RemoveSuffix(TrailingSlash),
    /// The name of the index is removed.
    RemoveIndex(TrailingSlash),
}

impl AddressChange {
    /// Returns the path of the page.
    pub(super) fn apply(self, path: &SafePath) -> SafePath {
        match self {
            Self::AddSlash => path.as_directory(),
            Self::RemoveSlash => path.as_file(),
            Self::RemoveSuffix(slash) => {
                let page = path.without_suffix(PAGE_SUFFIX).unwrap_or_else(|| path.clone());
                if slash == TrailingSlash::Add { page.as_directory() } else { page }
            }
            Self::RemoveIndex(TrailingSlash::Remove) => path.parent().as_file(),
            Self::RemoveIndex(_) => path.parent(),
        }
    }
}

/// Whether a file that is requested by its own name is redirected to the path of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnNames {
    Redirected,
    /// The path is that of a rewrite, which may be from the path of the page.
    Served,
}

/// The suffix of the files of pages.
const PAGE_SUFFIX: &str = ".html";

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
    (request, values, own_names): (&Request, &impl Fn() -> RequestValues<'v>, OwnNames),
) -> Result<FileLookup, FileError> {
    let now = request.received_at().since_worker_start;
    let lookup = Lookup { files, rules, path, now, own_names };
    match lookup.try_each(values).await {
        Err(error) if error.is_missing() => match &rules.fallback {
            Some(fallback) if is_navigation(request, path) => match resolve_path(files, fallback, now).await? {
                (Resolved::File(resource), _) => Ok(FileLookup::Fallback(FoundFile::new(resource, fallback))),
                _ => Err(error),
            },
            _ => Err(error),
        },
        found => found,
    }
}

/// The look-up of one path.
struct Lookup<'a> {
    files: &'a Files,
    rules: &'a FilesRules,
    path: &'a SafePath,
    now: Duration,
    own_names: OwnNames,
}

impl Lookup<'_> {
    async fn try_each<'v>(&self, values: &impl Fn() -> RequestValues<'v>) -> Result<FileLookup, FileError> {
        let entries = if self.rules.try_files.is_empty() { &DEFAULT_TRY_FILES[..] } else { &self.rules.try_files };
        let (mut missing, mut is_directory) = (FileError::NotFound, false);
        // A file and a directory of one path are resolved together, so one look-up is enough for both entries.
        let mut at_path = None;
        for (number, entry) in entries.iter().enumerate() {
            let found = match entry {
                TryFile::File | TryFile::Directory => {
                    let resolved = match at_path.take() {
                        Some(resolved) => resolved,
                        None => resolve_path(self.files, self.path, self.now).await,
                    };
                    is_directory |=
                        *entry == TryFile::Directory && matches!(resolved, Ok((Resolved::DirectoryWithoutSlash, _)));
                    match resolved {
                        Err(error) if !error.is_missing() => Err(error),
                        resolved if *entry == TryFile::File => self.file(resolved, &mut at_path).await,
                        resolved => self.directory(resolved, &entries[number + 1..]).await,
                    }
                }
                TryFile::Suffix(suffix) if !self.path.names_directory() => {
                    self.file_at(&self.path.with_suffix(&suffix.0), FoundBy::Path).await
                }
                TryFile::Suffix(_) => Ok(None),
                TryFile::Path(template) => self.template(template, values).await,
            };
            match found {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) if error.is_missing() => missing = error,
                Err(error) => return Err(error),
            }
        }
        // No entry has a file for a directory without an index.
        if is_directory { Ok(FileLookup::Moved(AddressChange::AddSlash)) } else { Err(missing) }
    }

    /// Finds the file of an entry at a path.
    async fn file_at(
        &self,
        path: &SafePath,
        found_by: impl Fn(Duration) -> FoundBy,
    ) -> Result<Option<FileLookup>, FileError> {
        Ok(match resolve_path(self.files, path, self.now).await? {
            (Resolved::File(resource), fresh_until) => {
                Some(FileLookup::File(FoundFile::new(resource, path), found_by(fresh_until)))
            }
            _ => None,
        })
    }

    async fn template<'v>(
        &self,
        template: &Template,
        values: &impl Fn() -> RequestValues<'v>,
    ) -> Result<Option<FileLookup>, FileError> {
        // A path with a trailing slash names a directory, and this entry is for files.
        if template.has_path() && self.path.names_directory() {
            return Ok(None);
        }
        let Some(filled) = filled(template, self.path, values) else { return Ok(None) };
        let found_by = |fresh_until| match template.has_path() {
            false => FoundBy::AnyPath,
            true if template.wildcards() > 0 || template.has_variables() => FoundBy::PathAndValues,
            true => FoundBy::Path(fresh_until),
        };
        self.file_at(&filled, found_by).await
    }

    /// Finds the file at the path: itself, or the page without its suffix. What is no file stays for the next entry.
    async fn file(
        &self,
        resolved: PathResult,
        at_path: &mut Option<PathResult>,
    ) -> Result<Option<FileLookup>, FileError> {
        let addresses = self.rules.addresses;
        if self.path.names_directory() {
            *at_path = Some(resolved);
            return Ok(None);
        }
        if let Ok((Resolved::File(resource), fresh_until)) = resolved {
            return Ok(Some(match self.change_of_own_name(&resource).await {
                Some(change) => FileLookup::Moved(change),
                None => FileLookup::File(FoundFile::new(resource, self.path), FoundBy::Path(fresh_until)),
            }));
        }
        let page = match addresses.clean_urls {
            CleanUrls::On => self.page(self.path).await?,
            CleanUrls::Off => None,
        };
        *at_path = Some(resolved);
        Ok(match (page, addresses.trailing_slash) {
            (Some(FileLookup::File(..)), TrailingSlash::Add) => Some(FileLookup::Moved(AddressChange::AddSlash)),
            (page, _) => page,
        })
    }

    /// Finds the directory at the path: its index, its listing, or the path that it is at. Without an index, it leaves the
    /// path to the later entries.
    async fn directory(&self, resolved: PathResult, later: &[TryFile]) -> Result<Option<FileLookup>, FileError> {
        let PageAddresses { clean_urls, trailing_slash } = self.rules.addresses;
        let is_listed = self.rules.listing == Listing::On;
        let has_slash = self.path.names_directory();
        match resolved {
            Ok((Resolved::File(resource), fresh_until)) if has_slash => {
                let is_moved = trailing_slash == TrailingSlash::Remove && !self.path.as_str().is_empty();
                Ok(Some(match is_moved && self.own_names == OwnNames::Redirected {
                    true => FileLookup::Moved(AddressChange::RemoveSlash),
                    false => FileLookup::File(FoundFile::new(resource, self.path), FoundBy::Path(fresh_until)),
                }))
            }
            Ok((Resolved::DirectoryWithoutSlash, _)) if trailing_slash == TrailingSlash::Remove => {
                let index = self.file_at(&self.path.as_directory(), FoundBy::Path).await?;
                let moved = is_listed.then_some(FileLookup::Moved(AddressChange::AddSlash));
                Ok(index.or(moved))
            }
            Ok((Resolved::DirectoryWithoutSlash, _)) => {
                let has_page = later.is_empty()
                    || is_listed
                    || self.file_at(&self.path.as_directory(), FoundBy::Path).await?.is_some();
                Ok(has_page.then_some(FileLookup::Moved(AddressChange::AddSlash)))
            }
            Ok((Resolved::Directory(directory, root), _)) if is_listed && trailing_slash == TrailingSlash::Auto => {
                Ok(Some(FileLookup::Directory(directory, root)))
            }
            resolved => {
                let page = match has_slash && clean_urls == CleanUrls::On && !self.path.as_str().is_empty() {
                    true => self.page(&self.path.as_file()).await?,
                    false => None,
                };
                Ok(match (page, resolved) {
                    (Some(page @ FileLookup::Moved(_)), _) => Some(page),
                    (Some(page), _) if trailing_slash == TrailingSlash::Add => Some(page),
                    (Some(page), _) if self.own_names == OwnNames::Served => Some(page),
                    (Some(_), _) => Some(FileLookup::Moved(AddressChange::RemoveSlash)),
                    (None, Ok((Resolved::Directory(directory, root), _))) if is_listed => {
                        Some(FileLookup::Directory(directory, root))
                    }
                    (None, Ok((Resolved::Directory(..), _))) => return Err(FileError::NoIndex),
                    (None, Err(error)) => return Err(error),
                    (None, _) => None,
                })
            }
        }
    }

    /// Finds the page of a path without its suffix. The index of a folder is at the path of the folder alone.
    async fn page(&self, path: &SafePath) -> Result<Option<FileLookup>, FileError> {
        let file = path.with_suffix(PAGE_SUFFIX);
        let found = match self.file_at(&file, FoundBy::Path).await {
            Err(error) if error.is_missing() => return Ok(None),
            found => found?,
        };
        if self.own_names == OwnNames::Redirected
            && let Some(FileLookup::File(page, _)) = &found
            && self.is_index(&file, &page.resource).await
        {
            let change = AddressChange::RemoveIndex(self.rules.addresses.trailing_slash);
            return Ok(Some(FileLookup::Moved(change)));
        }
        Ok(found)
    }

    /// Whether the file at a path is the index that the path of its folder leads to.
    async fn is_index(&self, path: &SafePath, resource: &Resource) -> bool {
        let has_name = self.rules.index.0.iter().any(|name| **name == *path.file_name());
        has_name
            && matches!(
                resolve_path(self.files, &path.parent(), self.now).await,
                Ok((Resolved::File(index), _)) if index.name() == resource.name()
            )
    }

    /// Returns the change from the name of a file to the path of its page, if that path leads to this file.
    async fn change_of_own_name(&self, resource: &Rc<Resource>) -> Option<AddressChange> {
        let PageAddresses { clean_urls, trailing_slash } = self.rules.addresses;
        if clean_urls == CleanUrls::Off || self.own_names == OwnNames::Served {
            return None;
        }
        if self.is_index(self.path, resource).await {
            return Some(AddressChange::RemoveIndex(trailing_slash));
        }
        let resolve =
            async |path: &SafePath| resolve_path(self.files, path, self.now).await.ok().map(|(found, _)| found);
        let has_name_of_index = self.rules.index.0.iter().any(|name| **name == *self.path.file_name());
        let page = self.path.without_suffix(PAGE_SUFFIX).filter(|_| !has_name_of_index)?;
        let is_free = match trailing_slash {
            TrailingSlash::Add => !matches!(resolve(&page.as_directory()).await, Some(Resolved::File(_))),
            _ => true,
        };
        let is_free = is_free && !matches!(resolve(&page).await, Some(Resolved::File(_)));
        is_free.then_some(AddressChange::RemoveSuffix(trailing_slash))
    }
}

/// What a path names, and the time until which this is fresh.
type PathResult = Result<(Resolved, Duration), FileError>;

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
    let resolved = files.resolve(now, canonical.as_bytes(), path).await;
    if let Some(recorder) = files.recorder() {
        step_texts::record_look_up(recorder, (files, path), &resolved);
    }
    Ok((resolved?, files::fresh_until(now)))
}

/// Whether the response is going to be shown as a page, or described as one.
///
/// Browsers state it with Sec-Fetch-Mode. Without that, a path with a file extension is no page, and neither is a request
/// of a script. Otherwise Accept decides: it names HTML, or it is absent or `*/*` alone, as those of previews of links, of
/// monitors and of command-line clients. Images and the libraries of scripts name other types beside `*/*`.
fn is_navigation(request: &Request, path: &SafePath) -> bool {
    if let Some(mode) = request.field("sec-fetch-mode") {
        return mode == b"navigate";
    }
    if path.file_name().contains('.') {
        return false;
    }
    if let Some(destination) = request.field("sec-fetch-dest") {
        return matches!(destination, b"document" | b"iframe" | b"frame");
    }
    let is_script =
        request.field("x-requested-with").is_some_and(|value| value.eq_ignore_ascii_case(b"XMLHttpRequest"));
    !is_script && accepts_page(request.known_field_values(KnownField::Accept))
}

/// Whether Accept names HTML, or accepts everything and names nothing (RFC 9110 §12.5.1).
fn accepts_page<'a>(accept: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut names_html, mut names_other) = (false, false);
    for member in accept.flat_map(list_members) {
        let mut parts = member.split(|&b| b == b';').map(trim);
        let range = parts.next().unwrap_or_default();
        let is_refused = parts.any(is_weight_zero);
        names_html |= range.eq_ignore_ascii_case(b"text/html") && !is_refused;
        names_other |= range != b"*/*" || is_refused;
    }
    names_html || !names_other
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
    fn page_acceptance() {
        for (accept, expected) in [
            ("text/html", true),
            ("text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("application/json, TEXT/HTML ; q=0.5", true),
            ("*/*", true),
            ("*/*;q=0.8", true),
            ("", true),
            ("application/json", false),
            ("application/json, text/plain, */*", false),
            ("image/avif,image/webp,*/*;q=0.8", false),
            ("text/css,*/*;q=0.1", false),
            ("*/*;q=0", false),
            ("text/html;q=0", false),
            ("text/html;q=0.000", false),
            ("text/html;level=1;q=0.1", true),
            ("text/htmlx", false),
        ] {
            assert_eq!(accepts_page([accept.as_bytes()].into_iter()), expected, "{accept}");
        }
        assert!(accepts_page([].into_iter()));
    }
}
