//! A directory as a page, and as JSON.

use super::files::root::Root;
use bytes::Bytes;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use rustix::fs::{AtFlags, Dir, FileType, statat};
use selvedge::proto::date::HttpDate;
use selvedge::proto::field::Known;
use selvedge::proto::path::{SafePath, encode_segment};
use selvedge::{Request, Response, Status, offload};
use serde::Serialize;
use std::cmp::Ordering;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most entries of one page. A larger directory says that it has more.
const ENTRIES_MAX: usize = 2_000;

/// Lists that are on their way at once, on each worker: made, waiting to be made, or not
/// yet taken by their client. With [`ENTRIES_MAX`] this bounds their memory.
const LISTS_MAX: usize = 32;
/// Lists that are made at once, so that disk threads are left for files.
const MADE_AT_ONCE_MAX: usize = 2;

/// What bounds the lists of one worker.
pub(super) struct Lists {
    places: Arc<Semaphore>,
    making: Arc<Semaphore>,
}

impl Lists {
    pub(super) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(LISTS_MAX)), making: Arc::new(Semaphore::new(MADE_AT_ONCE_MAX)) }
    }
}

/// A page that keeps its place until it has been sent.
struct Page {
    bytes: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: Kind,
    /// Bytes; absent for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// RFC 3339, UTC.
    modified: String,
    #[serde(skip)]
    modified_unix: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Directory,
    File,
}

#[derive(Debug, Serialize)]
struct Listing {
    path: String,
    entries: Vec<Entry>,
    /// There are more entries than are shown.
    truncated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Size,
    Modified,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
}

impl Column {
    const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Modified => "modified",
        }
    }
}

/// The list of a directory, as JSON for who prefers it and as a page for everybody else.
pub(super) async fn respond(
    lists: &Lists,
    request: &Request,
    path: &SafePath,
    (directory, root): (OwnedFd, Arc<Root>),
) -> Response {
    let Ok(place) = lists.places.clone().try_acquire_owned() else {
        let busy = Response::error(Status::SERVICE_UNAVAILABLE).because("too many directory lists are on their way");
        return busy.field("retry-after", "1");
    };
    let (column, order) = sorting(request.query().unwrap_or(""));
    let as_json = prefers_json(request);
    let shown = format!("/{}", path.as_str());
    let shown = if shown.ends_with('/') { shown } else { shown + "/" };
    let making = lists.making.clone().acquire_owned().await;
    let path = path.clone();
    let page = offload(move || {
        let _making = making;
        let entries = Entries { directory, root, path };
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
        return Response::error(Status::INTERNAL_SERVER_ERROR).because("a directory could not be read");
    };
    let kind = if as_json { "application/json" } else { "text/html; charset=utf-8" };
    Response::new(Status::OK)
        .field("content-type", kind)
        .field("vary", "accept")
        .field("cache-control", "no-cache")
        .body(Bytes::from_owner(Page { bytes: page, _place: place }))
}

/// `sort=name|size|modified` and `order=asc|desc`; anything else counts as absent.
fn sorting(query: &str) -> (Column, Order) {
    let (mut column, mut order) = (Column::Name, Order::Ascending);
    for pair in query.split('&') {
        match pair {
            "sort=size" => column = Column::Size,
            "sort=modified" => column = Column::Modified,
            "order=desc" => order = Order::Descending,
            _ => {}
        }
    }
    (column, order)
}

/// Whether Accept names JSON and does not like HTML more; a wildcard stands for HTML that is
/// not named, and loses against a name it equals (RFC 9110 §12.5.1).
fn prefers_json(request: &Request) -> bool {
    const MEMBERS_MAX: usize = 64;
    let (mut json, mut html, mut any) = (0.0, None, 0.0);
    for value in request.known_values(Known::Accept) {
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

/// A directory, and where it is, which is what links in it are followed from.
struct Entries {
    directory: OwnedFd,
    root: Arc<Root>,
    path: SafePath,
}

impl Entries {
    fn read(&self, shown: String, column: Column, order: Order) -> Option<Listing> {
        let (mut entries, mut truncated) = (Vec::new(), false);
        for entry in Dir::read_from(&self.directory).ok()? {
            let entry = entry.ok()?;
            // What is not served is not listed: hidden names, and names that no path can be.
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
                Column::Name => Ordering::Equal,
                Column::Size => a.size.cmp(&b.size),
                Column::Modified => a.modified_unix.cmp(&b.modified_unix),
            };
            let ordering = by_column.then_with(|| natural(&a.name, &b.name));
            a.kind.cmp(&b.kind).then(if order == Order::Descending { ordering.reverse() } else { ordering })
        });
        Some(Listing { path: shown, entries, truncated })
    }

    fn describe(&self, name: &str) -> Option<Entry> {
        let mut stat = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            // A link is listed as what it leads to, when it leads to something beneath the root.
            stat = self.root.facts(&self.path.join(name)).ok()?;
        }
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            _ => return None,
        };
        let size = (kind == Kind::File).then(|| u64::try_from(stat.st_size).unwrap_or(0));
        Some(Entry {
            name: name.to_owned(),
            kind,
            size,
            modified: HttpDate::from_unix(stat.st_mtime).format_rfc3339(),
            modified_unix: stat.st_mtime,
        })
    }
}

/// Case and then octets decide, so that a list reads as people expect.
fn natural(a: &str, b: &str) -> Ordering {
    a.to_lowercase().cmp(&b.to_lowercase()).then_with(|| a.cmp(b))
}

/// A size as people read it.
fn human(bytes: u64) -> String {
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

fn render(listing: &Listing, column: Column, order: Order) -> Markup {
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
                        (heading("Name", Column::Name, column, order, ""))
                        (heading("Size", Column::Size, column, order, "n"))
                        (heading("Modified", Column::Modified, column, order, "n d"))
                    } }
                    tbody {
                        @if listing.path != "/" {
                            tr { td { a href="../" { "../" } } td class="n" {} td class="n d" {} }
                        }
                        @for entry in &listing.entries { (row(entry)) }
                    }
                }
                p {
                    @if listing.truncated { "The first " (count) " entries; there are more." }
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
        @for (place, segment) in segments.iter().enumerate() {
            @if place > 0 { span { "/" } }
            @if place + 1 == depth { (segment) } @else { a href=("../".repeat(depth - place - 1)) { (segment) } }
        }
    }
}

fn heading(text: &str, own: Column, column: Column, order: Order, class: &str) -> Markup {
    let (sorted, next) = match (own == column, order) {
        (true, Order::Ascending) => (Some("ascending"), "desc"),
        (true, Order::Descending) => (Some("descending"), "asc"),
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

fn row(entry: &Entry) -> Markup {
    let mut href = String::from("./");
    encode_segment(&entry.name, &mut href);
    let slash = if entry.kind == Kind::Directory { "/" } else { "" };
    href.push_str(slash);
    html! {
        tr {
            td { a href=(href) { (entry.name) (slash) } }
            td class="n" { @if let Some(size) = entry.size { span title={ (size) " bytes" } { (human(size)) } } }
            td class="n d" { time datetime=(entry.modified) { (entry.modified[..16].replace('T', " ")) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        let entry = Entry {
            name: "<img src=x onerror=alert(1)>&\"'.txt".to_owned(),
            kind: Kind::File,
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
    fn sizes_and_sorting() {
        assert_eq!(
            [human(0), human(999), human(1_000), human(999_950), human(5_000_000_000)],
            ["0 B", "999 B", "1.0 kB", "1.0 MB", "5.0 GB"]
        );
        assert_eq!(sorting("sort=size&order=desc"), (Column::Size, Order::Descending));
        assert_eq!(sorting("sort=<script>"), (Column::Name, Order::Ascending));
    }
}
