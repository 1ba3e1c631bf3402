//! The HTML page of a listing.

use super::entries::{DirectoryList, EntryKind, ListingEntry};
use super::query::{ListingQuery, SortColumn, SortOrder};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use selvedge::proto::path::encode_segment;
use selvedge::service::PAGE_STYLE;
use std::borrow::Cow;

/// The style of the table, besides that of all pages.
const TABLE_STYLE: &str = "
body{max-width:60rem}
h1{font-size:1.25rem}
h1 a{display:inline-block;min-width:1.5rem;text-align:center}
h1 span{color:var(--soft);font-weight:400}
form{display:flex;flex-wrap:wrap;gap:.5rem;align-items:center;margin:0 0 1rem;color:var(--soft);font-size:.875rem}
input,button{font:inherit;color:inherit;background:transparent;border:1px solid var(--soft);border-radius:.25rem;padding:.25rem .5rem;min-height:2rem}
input{flex:1 1 8rem;max-width:20rem;color:var(--text)}
table{width:100%;border-collapse:collapse}
td a{text-decoration:none;display:inline-block;min-height:1.5rem}
th{font-size:.8125rem;font-weight:500;text-align:left;color:var(--soft)}
th a{color:inherit;display:block;text-decoration:none;min-height:1.5rem}
th,td{padding:.35rem .5rem;border-bottom:1px solid var(--line);vertical-align:top}
td:first-child,th:first-child{padding-left:0;overflow-wrap:anywhere}
th:last-child,td:last-child{padding-right:0}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.n{color:var(--soft)}
nav a{display:inline-block;min-height:1.5rem;margin-right:1rem}
@media(max-width:34rem){time span,th small{display:none}.n{font-size:.8125rem}}
";

/// Renders a page of a listing.
pub(super) fn render(listing: &DirectoryList, query: &ListingQuery) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (listing.path) }
                style { (PreEscaped(PAGE_STYLE)) (PreEscaped(TABLE_STYLE)) }
            }
            body { main {
                h1 { (breadcrumbs(&listing.path)) }
                (filter(listing, query))
                table {
                    thead { tr {
                        (heading(html! { "Name" }, SortColumn::Name, query, ""))
                        (heading(html! { "Size" }, SortColumn::Size, query, "n"))
                        (heading(html! { "Modified" small { " (UTC)" } }, SortColumn::Modified, query, "n"))
                    } }
                    tbody {
                        @if listing.path != "/" {
                            tr { td { a href="../" { "../" } } td class="n" {} td class="n" {} }
                        }
                        @for entry in &listing.entries { (row(entry)) }
                    }
                }
                p { (count(listing, query)) " Times are in UTC." }
                @if listing.pages > 1 { (pages(listing, query)) }
            } }
        }
    }
}

/// Renders the form of the filter, which is of use for more than a few entries.
fn filter(listing: &DirectoryList, query: &ListingQuery) -> Markup {
    const ENTRIES_MIN: usize = 10;
    html! {
        @if listing.total >= ENTRIES_MIN || !query.filter.is_empty() {
            form method="get" role="search" {
                label for="filter" { "Names with" }
                input id="filter" name="filter" type="search" value=(query.filter) autocomplete="off";
                input type="hidden" name="sort" value=(query.column.name());
                input type="hidden" name="order" value=(query.order.name());
                button { "Filter" }
                @if !query.filter.is_empty() { a href="./" { "All entries" } }
            }
        }
    }
}

/// Renders the number of entries.
fn count(listing: &DirectoryList, query: &ListingQuery) -> Markup {
    let entries = if listing.total == 1 { "entry" } else { "entries" };
    html! {
        (listing.total) " " (entries)
        @if !query.filter.is_empty() { " with this filter" }
        @if listing.pages > 1 { ", page " (listing.page) " of " (listing.pages) }
        @if listing.truncated { "; more exist, which are not listed" }
        "."
    }
}

fn pages(listing: &DirectoryList, query: &ListingQuery) -> Markup {
    let DirectoryList { page, pages, .. } = *listing;
    html! {
        nav aria-label="Pages" {
            @if page > 1 {
                a href=(query.page(1)) { "First page" }
                a href=(query.page(page - 1)) rel="prev" { "Previous page" }
            }
            @if page < pages {
                a href=(query.page(page + 1)) rel="next" { "Next page" }
                a href=(query.page(pages)) { "Last page" }
            }
        }
    }
}

fn breadcrumbs(path: &str) -> Markup {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let depth = segments.len();
    html! {
        a href=(if depth == 0 { "./".to_owned() } else { "../".repeat(depth) }) aria-label="Start" { "/" }
        @for (index, segment) in segments.iter().enumerate() {
            @if index > 0 { span { "/" } }
            @if index + 1 == depth { (segment) } @else { a href=("../".repeat(depth - index - 1)) { (segment) } }
        }
    }
}

fn heading(text: Markup, own: SortColumn, query: &ListingQuery, class: &str) -> Markup {
    let (sorted, next) = match (own == query.column, query.order) {
        (true, SortOrder::Ascending) => (Some("ascending"), SortOrder::Descending),
        (true, SortOrder::Descending) => (Some("descending"), SortOrder::Ascending),
        (false, _) => (None, SortOrder::Ascending),
    };
    let mark = match sorted {
        Some("ascending") => " \u{2191}",
        Some(_) => " \u{2193}",
        None => "",
    };
    html! {
        th scope="col" class=(class) aria-sort=[sorted] { a href=(query.sorted(own, next)) { (text) (mark) } }
    }
}

fn row(entry: &ListingEntry) -> Markup {
    let mut href = String::from("./");
    match &entry.href {
        Some(encoded) => href.push_str(encoded),
        None => encode_segment(&entry.name, &mut href),
    }
    let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
    href.push_str(slash);
    let (date, time) = (&entry.modified[..10], &entry.modified[11..16]);
    html! {
        tr {
            td { a href=(href) { (shown(&entry.name)) (slash) } }
            td class="n" { @if let Some(size) = entry.size { span title=(bytes(size)) { (format_size(size)) } } }
            td class="n" { time datetime=(entry.modified) { (date) span { " " (time) } } }
        }
    }
}

/// Returns a name as it is shown: control characters are escaped as in source text, `\n` for a line feed.
fn shown(name: &str) -> Cow<'_, str> {
    if !name.contains(char::is_control) {
        return Cow::Borrowed(name);
    }
    let mut text = String::new();
    for character in name.chars() {
        match character.is_control() {
            true => text.extend(character.escape_default()),
            false => text.push(character),
        }
    }
    Cow::Owned(text)
}

/// Formats an exact size.
fn bytes(count: u64) -> String {
    let unit = if count == 1 { "byte" } else { "bytes" };
    format!("{count} {unit}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge::proto::date::HttpDate;

    #[test]
    fn names_are_escaped() {
        let entry = ListingEntry {
            name: "<img src=x onerror=alert(1)>&\"'.txt".to_owned(),
            kind: EntryKind::File,
            size: Some(1_500),
            modified: HttpDate::from_unix(0).format_rfc3339(),
            href: None,
        };
        let row = row(&entry).into_string();
        assert!(!row.contains("<img"), "{row}");
        assert!(row.contains("href=\"./%3Cimg%20src=x%20onerror=alert(1)%3E&amp;%22'.txt\""), "{row}");
        assert!(
            row.contains("1.5 kB")
                && row.contains("title=\"1500 bytes\"")
                && row.contains("1970-01-01<span> 00:00</span>"),
            "{row}"
        );
    }

    #[test]
    fn control_characters_are_shown_escaped() {
        for (name, expected) in [
            ("a\nb", "a\\nb"),
            ("\t\u{1b}[1m\u{7f}", "\\t\\u{1b}[1m\\u{7f}"),
            ("\u{85}", "\\u{85}"),
            ("\u{e9}\\n", "\u{e9}\\n"),
        ] {
            assert_eq!(shown(name), expected);
        }
    }

    #[test]
    fn sizes() {
        assert_eq!([bytes(0), bytes(1), bytes(2)], ["0 bytes", "1 byte", "2 bytes"]);
        assert_eq!(
            [format_size(0), format_size(999), format_size(1_000), format_size(999_950), format_size(5_000_000_000)],
            ["0 B", "999 B", "1.0 kB", "1.0 MB", "5.0 GB"]
        );
    }
}
