//! Reads the entries of a directory, sorts all of them, and describes those of one page.

use super::query::{ListingQuery, SortColumn, SortOrder};
use crate::site::files::root::Root;
use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};
use selvedge::proto::date::HttpDate;
use selvedge::proto::path::{SafePath, encode_segment, text_of_name};
use serde::Serialize;
use std::cmp::Reverse;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The maximum number of entries of a directory that are read, which takes less than a second. A longer listing states
/// that entries are missing.
pub(super) const ENTRIES_MAX: usize = 100_000;

/// A directory with its root and path, from which its links are resolved.
pub(super) struct ListedDirectory {
    pub(super) directory: OwnedFd,
    pub(super) root: Arc<Root>,
    pub(super) path: SafePath,
}

/// One page of a listing.
#[derive(Debug, Serialize)]
pub(super) struct DirectoryList {
    /// The path of the directory as text.
    pub(super) path: String,
    pub(super) entries: Vec<ListingEntry>,
    /// The number of this page, from 1.
    pub(super) page: usize,
    /// The number of pages; at least 1.
    pub(super) pages: usize,
    /// The number of entries on all pages.
    pub(super) total: usize,
    /// Whether the directory has more entries than are read.
    pub(super) truncated: bool,
}

/// An entry as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct ListingEntry {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: EntryKind,
    /// Size in bytes; absent for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<u64>,
    /// RFC 3339, UTC.
    pub(super) modified: String,
    /// The name percent-encoded, if it is not UTF-8 or has control characters, so that `name` is not the whole of it or
    /// cannot be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) href: Option<String>,
}

/// The kind of an entry, in the order of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EntryKind {
    Directory,
    File,
}

/// An entry before its page is known.
struct FoundEntry {
    name: Box<[u8]>,
    kind: EntryKind,
    /// Size and modification time, if they were needed already.
    facts: Option<(u64, i64)>,
}

impl ListedDirectory {
    /// Reads a page of the listing.
    pub(super) fn read(&self, query: &ListingQuery, page_entries: usize) -> Option<DirectoryList> {
        let (mut found, truncated) = self.find(query)?;
        sort(&mut found, query);
        let total = found.len();
        let pages = total.div_ceil(page_entries).max(1);
        let page = query.page.clamp(1, pages);
        let on_page = found.into_iter().skip((page - 1) * page_entries).take(page_entries);
        let entries = on_page.filter_map(|entry| self.describe(entry)).collect();
        let text = String::from_utf8_lossy(&selvedge::proto::path::path_bytes(self.path.as_str())).into_owned();
        let path = if text.is_empty() { "/".to_owned() } else { format!("/{text}/") };
        Some(DirectoryList { path, entries, page, pages, total, truncated })
    }

    /// Finds the entries that are served and match the filter, and whether the directory has too many.
    fn find(&self, query: &ListingQuery) -> Option<(Vec<FoundEntry>, bool)> {
        let mut found = Vec::new();
        for (number, entry) in Dir::read_from(&self.directory).ok()?.enumerate() {
            if number == ENTRIES_MAX {
                return Some((found, true));
            }
            let entry = entry.ok()?;
            let name = entry.file_name().to_bytes();
            // Hidden names are not served.
            if name.starts_with(b".") || !query.selects(name) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => Some(EntryKind::File),
                FileType::Directory => Some(EntryKind::Directory),
                // A link is as its target, and some file systems do not tell the type.
                FileType::Symlink | FileType::Unknown => None,
                _ => continue,
            };
            match kind {
                Some(kind) if query.column == SortColumn::Name => {
                    found.push(FoundEntry { name: name.into(), kind, facts: None });
                }
                _ => found.extend(self.look_at(name)),
            }
        }
        Some((found, false))
    }

    /// Reads the facts of an entry. `None` for one that is not served.
    fn look_at(&self, name: &[u8]) -> Option<FoundEntry> {
        let mut stat = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            // A link is listed as its target, if links may lead there.
            stat = self.root.stat_beneath(&self.path.join(&text_of_name(name))).ok()?;
        }
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            _ => return None,
        };
        Some(FoundEntry { name: name.into(), kind, facts: Some(facts_of(&stat)) })
    }

    fn describe(&self, entry: FoundEntry) -> Option<ListingEntry> {
        let entry = if entry.facts.is_some() { entry } else { self.look_at(&entry.name)? };
        let FoundEntry { name, kind, facts } = entry;
        let (size, modified) = facts?;
        let is_text = std::str::from_utf8(&name).is_ok_and(|text| !text.contains(char::is_control));
        let href = (!is_text).then(|| {
            let mut href = String::new();
            encode_segment(&text_of_name(&name), &mut href);
            href
        });
        Some(ListingEntry {
            name: String::from_utf8_lossy(&name).into_owned(),
            kind,
            size: (kind == EntryKind::File).then_some(size),
            modified: HttpDate::from_unix(modified).format_rfc3339(),
            href,
        })
    }
}

fn facts_of(stat: &Stat) -> (u64, i64) {
    (u64::try_from(stat.st_size).unwrap_or(0), stat.st_mtime)
}

/// Sorts entries: directories first, then by the column, then by name without case.
fn sort(found: &mut [FoundEntry], query: &ListingQuery) {
    found.sort_by_cached_key(|entry| {
        let (size, modified) = entry.facts.unwrap_or_default();
        let value = match (query.column, entry.kind) {
            (SortColumn::Size, EntryKind::File) => i128::from(size),
            (SortColumn::Modified, _) => i128::from(modified),
            (SortColumn::Name, _) | (SortColumn::Size, EntryKind::Directory) => 0,
        };
        let lower = String::from_utf8_lossy(&entry.name).to_lowercase();
        (Reverse(entry.kind == EntryKind::Directory), value, lower, entry.name.clone())
    });
    if query.order == SortOrder::Descending {
        let directories = found.iter().take_while(|entry| entry.kind == EntryKind::Directory).count();
        let (directories, files) = found.split_at_mut(directories);
        directories.reverse();
        files.reverse();
    }
}
