//! The query of a listing: order, page and filter.

use selvedge::proto::path::encode_text;
use std::fmt::Write as _;

/// The maximum length of a filter in bytes. The rest is ignored.
const FILTER_BYTES_MAX: usize = 255;

/// What a request for a listing selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListingQuery {
    pub(super) column: SortColumn,
    pub(super) order: SortOrder,
    /// From 1. A page that does not exist is the last one.
    pub(super) page: usize,
    /// A part of the names, in lower case. Empty for all.
    pub(super) filter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortColumn {
    Name,
    Size,
    Modified,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortOrder {
    Ascending,
    Descending,
}

impl SortColumn {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Modified => "modified",
        }
    }
}

impl SortOrder {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ascending => "asc",
            Self::Descending => "desc",
        }
    }
}

impl ListingQuery {
    /// Parses `sort=name|size|modified`, `order=asc|desc`, `page=NUMBER` and `filter=TEXT`. Other values are ignored.
    pub(super) fn parse(query: &str) -> Self {
        let mut parsed = Self { column: SortColumn::Name, order: SortOrder::Ascending, page: 1, filter: String::new() };
        for pair in query.split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("sort", "name") => parsed.column = SortColumn::Name,
                ("sort", "size") => parsed.column = SortColumn::Size,
                ("sort", "modified") => parsed.column = SortColumn::Modified,
                ("order", "asc") => parsed.order = SortOrder::Ascending,
                ("order", "desc") => parsed.order = SortOrder::Descending,
                ("page", number) => parsed.page = number.parse().unwrap_or(1),
                ("filter", text) => parsed.filter = decode(text).trim().to_lowercase(),
                _ => {}
            }
        }
        parsed
    }

    /// Whether a name has the text of the filter, in any case.
    pub(super) fn selects(&self, name: &[u8]) -> bool {
        self.filter.is_empty() || String::from_utf8_lossy(name).to_lowercase().contains(&self.filter)
    }

    /// Returns the query of the first page in an order.
    pub(super) fn sorted(&self, column: SortColumn, order: SortOrder) -> String {
        let mut query = format!("?sort={}&order={}", column.name(), order.name());
        if !self.filter.is_empty() {
            query.push_str("&filter=");
            encode_text(&self.filter, b"-._~", &mut query);
        }
        query
    }

    /// Returns the query of a page.
    pub(super) fn page(&self, page: usize) -> String {
        let mut query = self.sorted(self.column, self.order);
        let _ = write!(query, "&page={page}");
        query
    }
}

/// Decodes a value of a form. An invalid escape stands for itself.
fn decode(text: &str) -> String {
    let mut bytes = text.bytes().take(FILTER_BYTES_MAX * 3);
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits: Vec<u8> = bytes.clone().take(2).collect();
                match std::str::from_utf8(&digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                    Some(byte) if digits.len() == 2 => {
                        bytes.nth(1);
                        byte
                    }
                    _ => b'%',
                }
            }
            other => other,
        });
    }
    decoded.truncate(FILTER_BYTES_MAX);
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let query = ListingQuery::parse("sort=size&order=desc&page=3&filter=A%20b%2B%zz+c");
        assert_eq!((query.column, query.order, query.page), (SortColumn::Size, SortOrder::Descending, 3));
        assert_eq!(query.filter, "a b+%zz c");
        assert!(query.selects(b"x A B+%ZZ C y") && !query.selects(b"other"));
        assert_eq!(query.page(4), "?sort=size&order=desc&filter=a%20b%2B%25zz%20c&page=4");
        assert_eq!(ListingQuery::parse(&query.page(3)[1..]), query);
        let other = ListingQuery::parse("sort=<script>&order=&page=x");
        assert_eq!(other.sorted(other.column, other.order), "?sort=name&order=asc");
        assert_eq!(other.page, 1);
    }
}
