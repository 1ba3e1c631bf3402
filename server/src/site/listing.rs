//! Directory listings as HTML and JSON.

use super::files::root::Root;
use bytes::Bytes;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use rustix::fs::{AtFlags, Dir, FileType, statat};
use selvedge::proto::date::HttpDate;
use selvedge::proto::field::KnownField;
use selvedge::proto::path::{SafePath, encode_segment};
use selvedge::{Request, Response, StatusCode, spawn_blocking};
use serde::Serialize;
use std::cmp::Ordering;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of entries of a listing. A longer one is marked as truncated.
const ENTRIES_MAX: usize = 2_000;

/// The maximum number of listings of a worker that wait, are built, or are not sent yet. Together with
/// [`ENTRIES_MAX`] this bounds their memory.
const LISTINGS_MAX: usize = 32;
/// The maximum number of listings built at once, so that blocking threads are left for files.
const BUILT_AT_ONCE_MAX: usize = 2;

/// The limits on concurrent listings of a worker.
pub(super) struct ListingLimits {
    in_flight: Arc<Semaphore>,
    being_built: Arc<Semaphore>,
}

impl ListingLimits {
    pub(super) fn new() -> Self {
        Self {
            in_flight: Arc::new(Semaphore::new(LISTINGS_MAX)),
            being_built: Arc::new(Semaphore::new(BUILT_AT_ONCE_MAX)),
        }
    }
}

/// A listing that occupies its permit until it is sent.
struct ListingPage {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for ListingPage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(Debug, Serialize)]
struct ListingEntry {
    name: String,
    #[serde(rename = "type")]
    kind: EntryKind,
    /// Size in bytes; absent for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// RFC 3339, UTC.
    modified: String,
    #[serde(skip)]
    modified_unix: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum EntryKind {
    Directory,
    File,
}

#[derive(Debug, Serialize)]
struct DirectoryList {
    path: String,
    entries: Vec<ListingEntry>,
    /// Whether entries are missing.
    truncated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortColumn {
    Name,
    Size,
    Modified,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortOrder {
    Ascending,
    Descending,
}

impl SortColumn {
    const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Modified => "modified",
        }
    }
}

/// Responds with the listing of a directory: JSON if the client prefers it, otherwise HTML.
pub(super) async fn respond(
    limits: &ListingLimits,
    request: &Request,
    path: &SafePath,
    (directory, root): (OwnedFd, Arc<Root>),
) -> Response {
    let Ok(permit) = limits.in_flight.clone().try_acquire_owned() else {
        let busy =
            Response::error(StatusCode::SERVICE_UNAVAILABLE).log_reason("too many directory listings are in progress");
        return busy.field("retry-after", "1");
    };
    let (column, order) = parse_sort(request.query().unwrap_or(""));
    let as_json = prefers_json(request);
    let shown = format!("/{}", path.as_str());
    let shown = if shown.ends_with('/') { shown } else { shown + "/" };
    let build_permit = limits.being_built.clone().acquire_owned().await;
    let path = path.clone();
    let page = spawn_blocking(move || {
        let _build_permit = build_permit;
        let entries = ListedDirectory { directory, root, path };
        let listing = entries.read(shown, column, order)?;
        if as_json {
            serde_json::to_vec(&listing).ok()
        } else {
            Some(render(&listing, column, order).into_string().into_bytes())
        }
    })
    .await
    .flatten();
    let Some(page) = page else {
        return Response::error(StatusCode::INTERNAL_SERVER_ERROR).log_reason("cannot read the directory");
    };
    let media_type = if as_json { "application/json" } else { "text/html; charset=utf-8" };
    Response::new(StatusCode::OK)
        .field("content-type", media_type)
        .field("vary", "accept")
        .field("cache-control", "no-cache")
        .body(Bytes::from_owner(ListingPage { bytes: page, _permit: permit }))
}

/// Parses `sort=name|size|modified` and `order=asc|desc`. Other values are ignored.
fn parse_sort(query: &str) -> (SortColumn, SortOrder) {
    let (mut column, mut order) = (SortColumn::Name, SortOrder::Ascending);
    for pair in query.split('&') {
        match pair {
            "sort=size" => column = SortColumn::Size,
            "sort=modified" => column = SortColumn::Modified,
            "order=desc" => order = SortOrder::Descending,
            _ => {}
        }
    }
    (column, order)
}

/// Whether Accept names JSON and does not rank HTML above it. If HTML is not named, a wildcard stands for it,
/// but not above JSON of equal weight (RFC 9110 §12.5.1).
fn prefers_json(request: &Request) -> bool {
    const MEMBERS_MAX: usize = 64;
    let (mut json, mut html, mut any) = (0.0, None, 0.0);
    for value in request.known_field_values(KnownField::Accept) {
        for member in String::from_utf8_lossy(value).split(',').take(MEMBERS_MAX) {
            let mut parts = member.split(';').map(str::trim);
            let range = parts.next().unwrap_or("").to_ascii_lowercase();
            let quality: f32 = parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
            match range.as_str() {
                "application/json" => json = quality,
                "text/html" => html = Some(quality),
                "text/*" | "*/*" => any = quality.max(any),
                _ => {}
            }
        }
    }
    json > 0.0 && html.map_or(json >= any, |html| json > html)
}

/// A directory with its root and path, from which its links are resolved.
struct ListedDirectory {
    directory: OwnedFd,
    root: Arc<Root>,
    path: SafePath,
}

impl ListedDirectory {
    fn read(&self, shown: String, column: SortColumn, order: SortOrder) -> Option<DirectoryList> {
        let (mut entries, mut truncated) = (Vec::new(), false);
        for entry in Dir::read_from(&self.directory).ok()? {
            let entry = entry.ok()?;
            // What is not served is not listed: hidden names, and names that are not valid in a path.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name.starts_with('.') || name.bytes().any(|b| b < 0x20 || b == 0x7f || b == b'\\') {
                continue;
            }
            if entries.len() == ENTRIES_MAX {
                truncated = true;
                break;
            }
            let Some(entry) = self.describe(name) else { continue };
            entries.push(entry);
        }
        entries.sort_by(|a, b| {
            let by_column = match column {
                SortColumn::Name => Ordering::Equal,
                SortColumn::Size => a.size.cmp(&b.size),
                SortColumn::Modified => a.modified_unix.cmp(&b.modified_unix),
            };
            let ordering = by_column.then_with(|| compare_names(&a.name, &b.name));
            a.kind.cmp(&b.kind).then(if order == SortOrder::Descending { ordering.reverse() } else { ordering })
        });
        Some(DirectoryList { path: shown, entries, truncated })
    }

    fn describe(&self, name: &str) -> Option<ListingEntry> {
        let mut stat = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            // A link is listed as its target, if that is beneath the root.
            stat = self.root.stat_beneath(&self.path.join(name)).ok()?;
        }
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            _ => return None,
        };
        let size = (kind == EntryKind::File).then(|| u64::try_from(stat.st_size).unwrap_or(0));
        Some(ListingEntry {
            name: name.to_owned(),
            kind,
            size,
            modified: HttpDate::from_unix(stat.st_mtime).format_rfc3339(),
            modified_unix: stat.st_mtime,
        })
    }
}

/// Compares names without case first, then by bytes.
fn compare_names(a: &str, b: &str) -> Ordering {
    a.to_lowercase().cmp(&b.to_lowercase()).then_with(|| a.cmp(b))
}

/// Formats a size with a decimal unit.
fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

const STYLE: &str = "
:root{color-scheme:light dark;--line:light-dark(#ddd6c8,#3a362e);--soft:light-dark(#6b6353,#a59c8a);--link:light-dark(#1d4f73,#8fc1e3)}
*{box-sizing:border-box}
body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:2rem 1.25rem;background:light-dark(#fbf9f4,#1b1a17);color:light-dark(#26231d,#ece6d9)}
h1{font-size:1.25rem;font-weight:600;margin:0 0 1.25rem;overflow-wrap:anywhere}
h1 a{text-decoration:none}
h1 span{color:var(--soft);font-weight:400;padding:0 .15em}
a{color:var(--link);text-decoration:none}
a:hover,a:focus-visible{text-decoration:underline}
table{width:100%;border-collapse:collapse}
th{font-size:.8125rem;font-weight:500;text-align:left;color:var(--soft)}
th a{color:inherit;display:block}
th,td{padding:.45rem .5rem;border-bottom:1px solid var(--line);vertical-align:top}
td:first-child,th:first-child{padding-left:0;overflow-wrap:anywhere}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.n{color:var(--soft)}
p{color:var(--soft);font-size:.875rem}
@media(max-width:32rem){body{padding:1.25rem 1rem}.d{display:none}}
";

fn render(listing: &DirectoryList, column: SortColumn, order: SortOrder) -> Markup {
    let count = listing.entries.len();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (listing.path) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (breadcrumbs(&listing.path)) }
                table {
                    thead { tr {
                        (heading("Name", SortColumn::Name, column, order, ""))
                        (heading("Size", SortColumn::Size, column, order, "n"))
                        (heading("Modified", SortColumn::Modified, column, order, "n d"))
                    } }
                    tbody {
                        @if listing.path != "/" {
                            tr { td { a href="../" { "../" } } td class="n" {} td class="n d" {} }
                        }
                        @for entry in &listing.entries { (row(entry)) }
                    }
                }
                p {
                    @if listing.truncated { "The first " (count) " entries; more exist." }
                    @else if count == 1 { "1 entry" }
                    @else { (count) " entries" }
                }
            }
        }
    }
}

fn breadcrumbs(path: &str) -> Markup {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let depth = segments.len();
    html! {
        a href=(if depth == 0 { "./".to_owned() } else { "../".repeat(depth) }) { "/" }
        @for (index, segment) in segments.iter().enumerate() {
            @if index > 0 { span { "/" } }
            @if index + 1 == depth { (segment) } @else { a href=("../".repeat(depth - index - 1)) { (segment) } }
        }
    }
}

fn heading(text: &str, own: SortColumn, column: SortColumn, order: SortOrder, class: &str) -> Markup {
    let (sorted, next) = match (own == column, order) {
        (true, SortOrder::Ascending) => (Some("ascending"), "desc"),
        (true, SortOrder::Descending) => (Some("descending"), "asc"),
        (false, _) => (None, "asc"),
    };
    let mark = match sorted {
        Some("ascending") => " \u{2191}",
        Some(_) => " \u{2193}",
        None => "",
    };
    html! {
        th class=(class) aria-sort=[sorted] { a href={ "?sort=" (own.name()) "&order=" (next) } { (text) (mark) } }
    }
}

fn row(entry: &ListingEntry) -> Markup {
    let mut href = String::from("./");
    encode_segment(&entry.name, &mut href);
    let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
    href.push_str(slash);
    html! {
        tr {
            td { a href=(href) { (entry.name) (slash) } }
            td class="n" { @if let Some(size) = entry.size { span title={ (size) " bytes" } { (format_size(size)) } } }
            td class="n d" { time datetime=(entry.modified) { (entry.modified[..16].replace('T', " ")) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        let entry = ListingEntry {
            name: "<img src=x onerror=alert(1)>&\"'.txt".to_owned(),
            kind: EntryKind::File,
            size: Some(1_500),
            modified: HttpDate::from_unix(0).format_rfc3339(),
            modified_unix: 0,
        };
        let row = row(&entry).into_string();
        assert!(!row.contains("<img"), "{row}");
        assert!(row.contains("href=\"./%3Cimg%20src=x%20onerror=alert(1)%3E&amp;%22'.txt\""), "{row}");
        assert!(row.contains("1.5 kB") && row.contains("1970-01-01 00:00"), "{row}");
    }

    #[test]
    fn sizes_and_sort_parameters() {
        assert_eq!(
            [format_size(0), format_size(999), format_size(1_000), format_size(999_950), format_size(5_000_000_000)],
            ["0 B", "999 B", "1.0 kB", "1.0 MB", "5.0 GB"]
        );
        assert_eq!(parse_sort("sort=size&order=desc"), (SortColumn::Size, SortOrder::Descending));
        assert_eq!(parse_sort("sort=<script>"), (SortColumn::Name, SortOrder::Ascending));
    }
}
