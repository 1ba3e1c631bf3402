//! The page in HTML. It loads nothing else: style and script are part of it, and have the nonce of its policy.

use super::tables::{TableColumn, ViewCell, ViewRow, ViewTable};
use super::view::{CHART_SIZE, StatusView};
use crate::compile::random_bytes;
use crate::log::utc_text;
use crate::site::StatusPageText;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use selvedge::service::PAGE_STYLE;

/// The style beside that of all pages.
const STYLE: &str = include_str!("page.css");
/// Updates the texts of the page by events.
const SCRIPT: &str = include_str!("page.js");

/// Renders the page.
pub(super) fn render(view: &StatusView) -> StatusPageText {
    let nonce: String = random_bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
    StatusPageText { html: document(view, &nonce).into_string(), nonce }
}

fn document(view: &StatusView, nonce: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Server status" }
                // Otherwise browsers request an icon from the site.
                link rel="icon" href="data:,";
                style nonce=(nonce) { (PreEscaped(PAGE_STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Server status" }
                    p { "Selvedge " (view.version) ", state of " (time(view.time, Some("time"))) }
                    p { button id="pause" type="button" hidden { "Pause" } }
                    p id="state" role="status" {}
                    noscript { p { "Without JavaScript, this page stays as it is. Load it again to see a newer state." } }
                }
                main data-version=(view.version) {
                    section { h2 { "Requests and resources" } (chart(view)) (facts(view)) }
                    @for (number, shown) in view.tables.iter().enumerate() { (table(number, shown)) }
                }
                script nonce=(nonce) { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

fn chart(view: &StatusView) -> Markup {
    let (width, height) = CHART_SIZE;
    html! {
        figure {
            svg viewBox={ "0 0 " (width) " " (height) } preserveAspectRatio="none" role="img"
                aria-label="Line of the requests per second in the last minute" {
                polyline id="line" points=(view.chart.points) {}
            }
            figcaption { "Requests per second in the last minute, at most " span id="highest" { (view.chart.highest) } }
        }
    }
}

fn facts(view: &StatusView) -> Markup {
    html! {
        dl {
            @for fact in &view.facts { div { dt { (fact.label) } dd { (fact.value) } } }
        }
    }
}

fn table(number: usize, table: &ViewTable) -> Markup {
    let (kind, is_empty) = (table.kind, table.rows.is_empty());
    let id = format!("table-{number}");
    html! {
        section {
            h2 id=(id) { (kind.title) }
            p class="empty" hidden[!is_empty] { (kind.if_empty) }
            // A narrow screen scrolls the table, also by keys.
            div class="scroll" role="group" aria-labelledby=(id) tabindex="0" hidden[is_empty] {
                table aria-labelledby=(id) {
                    thead { tr { @for column in kind.columns { (heading(column)) } } }
                    tbody { @for shown in &table.rows { (row(kind.columns, shown)) } }
                }
            }
            p class="more" hidden[table.more == 0] { "and " (table.more) " more" }
        }
    }
}

fn heading(column: &TableColumn) -> Markup {
    let (TableColumn::Text(text) | TableColumn::Number(text)) = column;
    html! { th scope="col" class=[class(column)] { (text) } }
}

fn class(column: &TableColumn) -> Option<&'static str> {
    match column {
        TableColumn::Text(_) => None,
        TableColumn::Number(_) => Some("n"),
    }
}

fn row(columns: &[TableColumn], row: &ViewRow) -> Markup {
    html! {
        tr class=[row.is_bad.then_some("bad")] {
            @for (number, (value, column)) in row.cells.iter().zip(columns).enumerate() {
                @if number == 0 {
                    th scope="row" class=[class(column)] { (cell(value)) }
                } @else {
                    td class=[class(column)] { (cell(value)) }
                }
            }
        }
    }
}

fn cell(value: &ViewCell) -> Markup {
    match value {
        ViewCell::Text(text) => html! { (text) },
        ViewCell::Time { time: milliseconds } => time(*milliseconds, None),
        ViewCell::Date { date } => {
            let text = utc_text(date.saturating_mul(1000));
            html! { time datetime=(text) data-date="" { (&text[..10]) } }
        }
    }
}

/// Renders a time of milliseconds since 1970 in UTC, in place of which the script writes the visitor's.
fn time(milliseconds: u64, id: Option<&str>) -> Markup {
    let text = utc_text(milliseconds.saturating_mul(1000));
    html! { time id=[id] datetime=(text) { (&text[11..19]) " UTC" } }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::filled;
    use super::*;

    #[test]
    fn the_page_has_the_texts_of_the_view_and_nothing_of_a_client_as_markup() {
        let StatusPageText { html, nonce } = render(&filled());
        for (what, count) in [("<script", 1), ("</script", 1), ("<style", 1), ("alert(1)", 0), ("http-equiv", 0)] {
            let found = html.matches(what).count();
            // The texts of clients have it in escaped form.
            let escaped = if what == "alert(1)" { html.matches("&lt;script&gt;alert(1)").count() } else { 0 };
            assert_eq!(found - escaped, count, "{what}");
        }
        assert!(html.contains("GET /&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;\\&quot;"), "{html}");
        for text in
            ["12.5", "2, 1 unresponsive", "out for 5 s", "and 11 more", "1.5ms", ">22:13:21 UTC<", ">2023-11-16<"]
        {
            assert!(html.contains(text), "{text}: {html}");
        }
        assert_eq!((nonce.len(), html.matches(&format!("nonce=\"{nonce}\"")).count()), (32, 2));
        assert_ne!(render(&filled()).nonce, nonce, "each page has its own");
        // Nothing is loaded, and no attribute needs another policy.
        for what in ["src=", "url(", "@import", "http:", "https:", " style=", " onclick", "innerHTML"] {
            let own = html.replace("http://10.0.0.1:80", "");
            assert!(!own.contains(what), "{what}");
        }
    }
}
