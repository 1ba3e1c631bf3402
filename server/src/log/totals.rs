//! Sums of counters. A serving process hands them to its supervisor, so that they outlive it.
//!
//! What is handed over is what was added since the last time, in parts of bounded size.

use super::histogram::Latencies;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Counts by name. Names that never occurred are absent.
pub(crate) type NamedCounts = BTreeMap<Cow<'static, str>, u64>;

/// Most sites of one part. A part is at most 64 KiB long.
const SITES_OF_PART: usize = 100;

/// Sums of all counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Totals {
    /// Responses by the first digit of their status, from 1xx on.
    pub(crate) classes: [u64; 5],
    /// Responses that were incomplete when their connection ended.
    pub(crate) aborted: u64,
    /// Bytes of response heads.
    pub(crate) head_bytes: u64,
    /// Bytes of response content.
    pub(crate) content_bytes: u64,
    /// Accepted connections, including refused ones.
    pub(crate) accepted: u64,
    /// Time from the complete request head to the complete response.
    pub(crate) latencies: Latencies,
    /// Requests that the engine refused, by reason.
    pub(crate) rejects: NamedCounts,
    /// Errors of applications, by reason.
    pub(crate) reasons: NamedCounts,
    /// Closed connections, by reason.
    pub(crate) closes: NamedCounts,
    /// Events of the server, by name.
    pub(crate) events: NamedCounts,
    /// Requests of each site, by its first name.
    pub(crate) sites: BTreeMap<String, SiteTotals>,
    /// Requests that rules in dry-run mode would have refused, by rule and site. The server has an empty name.
    pub(crate) dry_run: BTreeMap<String, BTreeMap<String, u64>>,
}

/// Sums of the counters of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SiteTotals {
    /// Responses by the first digit of their status, from 1xx on.
    pub(crate) classes: [u64; 5],
    /// Bytes of response content.
    pub(crate) content_bytes: u64,
}

impl SiteTotals {
    /// Returns the number of responses.
    pub(crate) fn requests(&self) -> u64 {
        self.classes.iter().sum()
    }

    pub(super) fn add(&mut self, more: Self) {
        self.combine(more, u64::wrapping_add);
    }

    fn combine(&mut self, other: Self, combine: fn(u64, u64) -> u64) {
        self.classes.iter_mut().zip(other.classes).for_each(|(own, other)| *own = combine(*own, other));
        self.content_bytes = combine(self.content_bytes, other.content_bytes);
    }
}

impl Totals {
    /// Returns the number of responses.
    pub(crate) fn requests(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Returns the number of panics of the application and the engine.
    pub(crate) fn panics(&self) -> u64 {
        self.events.get("Panic").copied().unwrap_or_default()
    }

    /// Adds other sums.
    pub(crate) fn add(&mut self, more: &Self) {
        self.latencies.add(&more.latencies);
        self.combine(more, u64::wrapping_add);
    }

    /// Returns what was added since these sums were `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut added = self.clone();
        added.latencies.subtract(&earlier.latencies);
        added.combine(earlier, u64::saturating_sub);
        for counts in [&mut added.rejects, &mut added.reasons, &mut added.closes, &mut added.events] {
            counts.retain(|_, count| *count > 0);
        }
        added.sites.retain(|_, site| *site != SiteTotals::default());
        added.dry_run.values_mut().for_each(|sites| sites.retain(|_, count| *count > 0));
        added.dry_run.retain(|_, sites| !sites.is_empty());
        added
    }

    fn combine(&mut self, other: &Self, combine: fn(u64, u64) -> u64) {
        self.classes.iter_mut().zip(other.classes).for_each(|(own, other)| *own = combine(*own, other));
        for (own, other) in [
            (&mut self.aborted, other.aborted),
            (&mut self.head_bytes, other.head_bytes),
            (&mut self.content_bytes, other.content_bytes),
            (&mut self.accepted, other.accepted),
        ] {
            *own = combine(*own, other);
        }
        combine_counts(&mut self.rejects, &other.rejects, combine);
        combine_counts(&mut self.reasons, &other.reasons, combine);
        combine_counts(&mut self.closes, &other.closes, combine);
        combine_counts(&mut self.events, &other.events, combine);
        for (name, site) in &other.sites {
            self.sites.entry(name.clone()).or_default().combine(*site, combine);
        }
        for (rule, sites) in &other.dry_run {
            combine_counts(self.dry_run.entry(rule.clone()).or_default(), sites, combine);
        }
    }

    /// Splits these sums into parts that fit into a message.
    pub(crate) fn into_parts(mut self) -> Vec<Self> {
        let mut sites = std::mem::take(&mut self.sites).into_iter();
        let mut dry_run: Vec<_> = std::mem::take(&mut self.dry_run)
            .into_iter()
            .flat_map(|(rule, sites)| sites.into_iter().map(move |(site, count)| (rule.clone(), site, count)))
            .collect();
        let mut parts = vec![self];
        loop {
            let part: BTreeMap<_, _> = sites.by_ref().take(SITES_OF_PART).collect();
            if part.is_empty() {
                break;
            }
            parts.push(Self { sites: part, ..Self::default() });
        }
        while !dry_run.is_empty() {
            let rest = dry_run.split_off(dry_run.len().min(SITES_OF_PART));
            let mut part = Self::default();
            for (rule, site, count) in std::mem::replace(&mut dry_run, rest) {
                part.dry_run.entry(rule).or_default().insert(site, count);
            }
            parts.push(part);
        }
        parts
    }
}

fn combine_counts<K: Ord + Clone>(own: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>, combine: fn(u64, u64) -> u64) {
    for (name, count) in other {
        let own = own.entry(name.clone()).or_default();
        *own = combine(*own, *count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(number: u64) -> Totals {
        let site = SiteTotals { classes: [0, number, 0, 0, 0], content_bytes: number };
        let counts = NamedCounts::from([(Cow::Borrowed("X"), number)]);
        Totals {
            classes: [0, number, 0, 0, 0],
            accepted: number,
            closes: counts,
            sites: (0..250).map(|name| (format!("site-{name}"), site)).collect(),
            dry_run: BTreeMap::from([("rate-limit".to_owned(), BTreeMap::from([(String::new(), number)]))]),
            ..Totals::default()
        }
    }

    #[test]
    fn what_was_added_is_handed_over_in_parts_that_fit_into_a_message() {
        let (earlier, now) = (totals(3), totals(10));
        let added = now.since(&earlier);
        assert_eq!(added, totals(7));
        assert_eq!(now.since(&now), Totals::default());
        let parts = added.into_parts();
        assert_eq!(parts.len(), 5);
        let mut sum = earlier;
        for part in &parts {
            let text = serde_json::to_vec(part).unwrap();
            assert!(text.len() < 64 * 1024, "{}", text.len());
            sum.add(&serde_json::from_slice(&text).unwrap());
        }
        assert_eq!(sum, now);
    }
}
