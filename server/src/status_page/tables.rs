//! The tables of the page. Each has a bound, and states how many rows are left out.

use super::facts::CertificateExpiry;
use crate::recorder::RequestRecord;
use crate::status::{ConnectionStates, RequestStatus, ServerStatus, SiteStatus};
use crate::status_resources::bytes;
use crate::upstream_status::{GroupStatus, UpstreamServerStatus};
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt::Display;
use std::time::Duration;

/// The most rows of a table.
const ROWS_MAX: usize = 20;
/// A certificate with less time left is shown as a problem. Automatic renewal of the shortest ones begins earlier.
const CERTIFICATE_SECONDS_MIN: i64 = 2 * SECONDS_OF_DAY;
const SECONDS_OF_DAY: i64 = 24 * 3600;

/// A table as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct ViewTable {
    #[serde(skip)]
    pub(super) kind: &'static TableKind,
    pub(super) rows: Vec<ViewRow>,
    /// Rows that are left out.
    pub(super) more: u64,
}

/// What a table has in every page.
#[derive(Debug)]
pub(super) struct TableKind {
    pub(super) title: &'static str,
    /// The first column names the row.
    pub(super) columns: &'static [TableColumn],
    /// The text in place of a table without rows.
    pub(super) if_empty: &'static str,
}

/// A column with its heading.
#[derive(Debug)]
pub(super) enum TableColumn {
    Text(&'static str),
    Number(&'static str),
}

/// A row.
#[derive(Debug, Serialize)]
pub(super) struct ViewRow {
    pub(super) cells: Vec<ViewCell>,
    /// Whether it is about a problem.
    #[serde(rename = "bad")]
    pub(super) is_bad: bool,
}

/// A cell. Times are in milliseconds since 1970.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ViewCell {
    Text(String),
    Time { time: u64 },
    Date { date: u64 },
}

const REQUEST_COLUMNS: &[TableColumn] = &[
    TableColumn::Text("Request"),
    TableColumn::Number("Status"),
    TableColumn::Number("Response after"),
    TableColumn::Number("Sent within"),
    TableColumn::Text("Reason"),
    TableColumn::Text("Site and route"),
    TableColumn::Text("Client"),
    TableColumn::Text("Upstream"),
    TableColumn::Text("Completed"),
];

/// Requests with a status of 5xx.
pub(super) const FAILED: TableKind = TableKind {
    title: "Failed requests of the last minute",
    columns: REQUEST_COLUMNS,
    if_empty: "No response with a status of 5xx.",
};

/// The requests with the latest begin of the response.
pub(super) const SLOWEST: TableKind =
    TableKind { title: "Slowest requests of the last minute", columns: REQUEST_COLUMNS, if_empty: "No request." };

const UPSTREAMS: TableKind = TableKind {
    title: "Upstreams",
    columns: &[
        TableColumn::Text("Server"),
        TableColumn::Text("Upstream"),
        TableColumn::Text("State"),
        TableColumn::Number("At work"),
        TableColumn::Number("Waiting"),
        TableColumn::Number("Tries"),
        TableColumn::Number("Failures"),
    ],
    if_empty: "No upstream.",
};

const DRY_RUN: TableKind = TableKind {
    title: "Limits in dry-run mode",
    columns: &[
        TableColumn::Text("Rule"),
        TableColumn::Text("Site or upstream"),
        TableColumn::Number("Would have refused"),
    ],
    if_empty: "No rule is in dry-run mode.",
};

const CERTIFICATES: TableKind = TableKind {
    title: "Certificates",
    columns: &[TableColumn::Text("Name"), TableColumn::Number("Days left"), TableColumn::Text("Valid until")],
    if_empty: "No certificate.",
};

const CONNECTIONS: TableKind = TableKind {
    title: "Open connections",
    columns: &[TableColumn::Text("State"), TableColumn::Number("Connections")],
    if_empty: "No connection.",
};

const SITES: TableKind = TableKind {
    title: "Sites since the start",
    columns: &[
        TableColumn::Text("Site"),
        TableColumn::Number("Requests"),
        TableColumn::Number("2xx"),
        TableColumn::Number("3xx"),
        TableColumn::Number("4xx"),
        TableColumn::Number("5xx"),
        TableColumn::Number("Content"),
    ],
    if_empty: "No request.",
};

const REASONS: TableKind = TableKind {
    title: "Refusals and errors since the start",
    columns: &[TableColumn::Text("Reason"), TableColumn::Number("Requests")],
    if_empty: "No request was refused.",
};

impl ViewTable {
    /// Keeps the first rows.
    fn new(kind: &'static TableKind, mut rows: Vec<ViewRow>) -> Self {
        let more = rows.len().saturating_sub(ROWS_MAX) as u64;
        rows.truncate(ROWS_MAX);
        Self { kind, rows, more }
    }
}

impl ViewRow {
    fn of<const COUNT: usize>(cells: [ViewCell; COUNT]) -> Self {
        Self { cells: cells.into(), is_bad: false }
    }
}

impl<T: Display> From<T> for ViewCell {
    fn from(value: T) -> Self {
        Self::Text(value.to_string())
    }
}

/// Returns a table of requests, of which the recorder has `count` or those that are listed.
pub(super) fn requests(kind: &'static TableKind, records: &[RequestRecord], count: u64) -> ViewTable {
    let row = |record: &RequestRecord| ViewRow { is_bad: record.status >= 500, ..request_row(record) };
    let more = count.saturating_sub(records.len() as u64);
    ViewTable { kind, rows: records.iter().map(row).collect(), more }
}

fn request_row(record: &RequestRecord) -> ViewRow {
    let RequestRecord { method, target, status, reason, site, route, client, upstream, tries, .. } = record;
    let cut = if record.is_target_cut { "…" } else { "" };
    // The target is as the client sent it, or the text of a refused head.
    let request = format!("{method} {}{cut}", target.escape_debug());
    let tries = if *tries > 1 { format!(" ({tries} tries)") } else { String::new() };
    let micros = |micros: u32| duration(Duration::from_micros(micros.into()));
    let response = record.response_micros();
    let sent = match record.elapsed_micros - response {
        0 => "no wait".to_owned(),
        sent => micros(sent),
    };
    ViewRow::of([
        request.trim_start().into(),
        status.into(),
        micros(response).into(),
        sent.into(),
        reason.into(),
        [&**site, &**route].join(" ").trim().into(),
        client.into(),
        format!("{upstream}{tries}").into(),
        ViewCell::Time { time: record.completed_micros / 1000 },
    ])
}

/// Returns the servers of all groups, those with a problem first.
pub(super) fn upstreams(groups: &[GroupStatus]) -> ViewTable {
    let mut rows = Vec::new();
    for group in groups {
        if group.waiting > 0 {
            let (name, none) = (&group.name, "");
            rows.push(ViewRow::of([
                "any server".into(),
                name.into(),
                none.into(),
                none.into(),
                group.waiting.into(),
                none.into(),
                none.into(),
            ]));
        }
        rows.extend(group.servers.iter().map(|server| upstream_row(group, server)));
    }
    rows.sort_by_key(|row| !row.is_bad);
    ViewTable::new(&UPSTREAMS, rows)
}

fn upstream_row(group: &GroupStatus, server: &UpstreamServerStatus) -> ViewRow {
    let mut state = server.state.replace('-', " ");
    if let Some(seconds) = server.out_seconds {
        state += &format!(" for {:.0} s", seconds.ceil());
    }
    let row = ViewRow::of([
        (&server.name).into(),
        (&group.name).into(),
        state.into(),
        server.requests.into(),
        server.waiting.into(),
        server.counts.tries.into(),
        server.failures.into(),
    ]);
    ViewRow { is_bad: !matches!(server.state, "healthy" | "draining"), ..row }
}

/// Returns the rules that refuse nothing, with what they would have refused.
pub(super) fn dry_run(status: &ServerStatus) -> ViewTable {
    let mut counts: Vec<_> = status
        .dry_run
        .iter()
        .map(|rule| (rule.rule, rule.site.clone().unwrap_or_else(|| "the server".to_owned()), rule.count))
        .collect();
    for group in &status.upstreams {
        let held_back = group.servers.iter().filter(|server| server.counts.beyond_limit > 0);
        counts.extend(held_back.map(|server| ("adaptive", server.name.clone(), server.counts.beyond_limit)));
    }
    counts.sort_by_key(|(_, _, count)| Reverse(*count));
    let row = |(rule, place, count): (&str, String, u64)| ViewRow::of([rule.into(), place.into(), count.into()]);
    ViewTable::new(&DRY_RUN, counts.into_iter().map(row).collect())
}

/// Returns the certificates at a time in Unix seconds, those that end first in front.
pub(super) fn certificates(expiry: &CertificateExpiry, now: i64) -> ViewTable {
    let mut by_end: Vec<_> = expiry.iter().map(|(name, last)| (*last, name)).collect();
    by_end.sort();
    let row = |(last, name): (i64, &String)| {
        let left = last - now;
        let days = if left < 0 { "expired".to_owned() } else { (left / SECONDS_OF_DAY).to_string() };
        let date = u64::try_from(last).unwrap_or_default().saturating_mul(1000);
        let row = ViewRow::of([name.into(), days.into(), ViewCell::Date { date }]);
        ViewRow { is_bad: left < CERTIFICATE_SECONDS_MIN, ..row }
    };
    ViewTable::new(&CERTIFICATES, by_end.into_iter().map(row).collect())
}

/// Returns the open connections by state.
pub(super) fn connections(states: &ConnectionStates) -> ViewTable {
    let ConnectionStates { idle, receiving_head, receiving_content, processing, sending, lingering, unknown } = states;
    let rows = [
        ("idle", idle),
        ("receiving a head", receiving_head),
        ("receiving content", receiving_content),
        ("processing", processing),
        ("sending", sending),
        ("lingering", lingering),
        ("unknown, of a worker without a reply", unknown),
    ];
    ViewTable::new(&CONNECTIONS, rows.map(|(state, count)| ViewRow::of([state.into(), count.into()])).into())
}

/// Returns the sites with the most requests.
pub(super) fn sites(sites: &[SiteStatus]) -> ViewTable {
    let mut busiest: Vec<_> = sites.iter().collect();
    busiest.sort_by_key(|site| Reverse(site.requests));
    let row = |site: &SiteStatus| {
        let classes = &site.by_status;
        ViewRow::of([
            site.site.as_deref().unwrap_or("no site").into(),
            site.requests.into(),
            classes.successful.into(),
            classes.redirection.into(),
            classes.client_error.into(),
            classes.server_error.into(),
            bytes(site.content_bytes).into(),
        ])
    };
    ViewTable::new(&SITES, busiest.into_iter().map(row).collect())
}

/// Returns why requests were refused or failed, the most frequent reason first.
pub(super) fn reasons(requests: &RequestStatus) -> ViewTable {
    let mut counts: Vec<_> = requests.refused.iter().chain(&requests.reasons).collect();
    counts.sort_by_key(|(_, count)| Reverse(**count));
    let rows = counts.into_iter().map(|(reason, count)| ViewRow::of([reason.into(), count.into()]));
    ViewTable::new(&REASONS, rows.collect())
}

/// Returns a time for people.
pub(super) fn duration(time: Duration) -> String {
    // The recorder has microseconds.
    if time < Duration::from_micros(1) { "under 1 µs".to_owned() } else { format!("{time:.1?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_bounded_and_states_how_many_rows_are_left_out() {
        let expiry: CertificateExpiry =
            (0..25).map(|number| (format!("{number:02}.example"), 1_000_000 - number)).collect();
        let table = certificates(&expiry, 0);
        assert_eq!((table.rows.len(), table.more), (ROWS_MAX, 5));
        assert!(matches!(&table.rows[0].cells[0], ViewCell::Text(name) if name == "24.example"), "{:?}", table.rows[0]);
    }

    #[test]
    fn certificates_that_end_soon_are_problems() {
        let expiry = [("a", -1), ("b", SECONDS_OF_DAY), ("c", 3 * SECONDS_OF_DAY)];
        let expiry: CertificateExpiry = expiry.map(|(name, last)| (name.to_owned(), last + 100)).into();
        let table = certificates(&expiry, 100);
        let shown = |row: &ViewRow| match &row.cells[1] {
            ViewCell::Text(days) => (days.clone(), row.is_bad),
            other => panic!("{other:?}"),
        };
        let expected = [("expired", true), ("1", true), ("3", false)];
        let rows: Vec<_> = table.rows.iter().map(shown).collect();
        assert_eq!(rows, expected.map(|(days, is_bad)| (days.to_owned(), is_bad)));
    }
}
