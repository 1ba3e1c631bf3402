//! Counters of sites and their routes, on one worker.

use super::counter::Counter;
use super::totals::SiteTotals;
use crate::durations::{DurationCounters, Durations};
use selvedge::service::{Exchange, ResponseOutcome};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The name of a site and those of its routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SiteLabels {
    /// The first name of the site; empty for requests of no site.
    pub(crate) site: String,
    /// The names of its routes by tag, from 1.
    pub(crate) routes: Vec<String>,
}

/// The names of all sites and routes of a configuration, and the place of each among counters.
#[derive(Debug)]
pub(crate) struct CounterLabels {
    /// By site tag. The first one is for requests of no site.
    sites: Vec<SiteLabels>,
    /// The place of requests of each site without a route; those of its routes follow. Then the number of places.
    firsts: Vec<usize>,
}

impl CounterLabels {
    /// Creates the labels of sites by tag. The first one is for requests of no site.
    pub(crate) fn new(sites: Vec<SiteLabels>) -> Self {
        let sites = if sites.is_empty() { vec![SiteLabels::default()] } else { sites };
        let mut firsts = vec![0];
        firsts.extend(sites.iter().scan(0, |end, site| {
            *end += site.routes.len() + 1;
            Some(*end)
        }));
        Self { sites, firsts }
    }

    /// Returns the number of places.
    pub(crate) fn len(&self) -> usize {
        self.firsts.last().copied().unwrap_or_default()
    }

    /// Returns the place of a request. Tags of no site or route of this configuration count as none.
    pub(crate) fn place(&self, site: u32, route: u32) -> usize {
        let site = site as usize;
        let (Some(&first), Some(&end)) = (self.firsts.get(site), self.firsts.get(site + 1)) else { return 0 };
        let place = first + route as usize;
        if place < end { place } else { first }
    }

    /// Returns the names of the site and the route of each place, in order. The name of no route is empty.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sites.iter().flat_map(|site| {
            let routes = site.routes.iter().map(String::as_str);
            std::iter::once("").chain(routes).map(|route| (site.site.as_str(), route))
        })
    }
}

/// The counters of one route, aligned so that two workers share no cache line.
#[derive(Debug)]
#[repr(align(64))]
struct RouteCounters {
    /// Responses with status 1xx to 5xx.
    classes: [Counter; 5],
    content_bytes: Counter,
    durations: DurationCounters,
}

impl RouteCounters {
    fn new() -> Self {
        Self {
            classes: [const { Counter::ZERO }; 5],
            content_bytes: Counter::ZERO,
            durations: DurationCounters::default(),
        }
    }

    fn count(&self, exchange: &Exchange<'_>) {
        let class = usize::from(exchange.status.code() / 100).clamp(1, self.classes.len());
        self.classes[class - 1].add(1);
        self.content_bytes.add(exchange.content_bytes);
        if let (ResponseOutcome::Complete, Some(elapsed)) = (exchange.outcome, exchange.elapsed) {
            self.durations.count(elapsed);
        }
    }

    fn totals(&self) -> RouteTotals {
        let site =
            SiteTotals { classes: self.classes.each_ref().map(Counter::get), content_bytes: self.content_bytes.get() };
        RouteTotals { requests: site, durations: self.durations.totals() }
    }
}

/// Sums of the counters of one route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteTotals {
    /// Responses and their content.
    pub(crate) requests: SiteTotals,
    /// Times from the complete request head to the complete response.
    pub(crate) durations: Durations,
}

impl RouteTotals {
    fn add(&mut self, more: &Self) {
        self.requests.add(more.requests);
        self.durations.add(&more.durations);
    }
}

/// Sums by the names of site and route. Routes without a request are absent.
pub(crate) type RouteSums = BTreeMap<(String, String), RouteTotals>;

/// The counters of all routes of a configuration on one worker.
#[derive(Debug)]
pub(super) struct RouteCounterSet {
    pub(super) labels: Arc<CounterLabels>,
    /// The counters of some neighbouring routes each, from the first request of one of them on.
    groups: Box<[OnceLock<Box<[RouteCounters; GROUP]>>]>,
}

/// Routes whose counters are allocated together. A server with many sites of which few have requests uses little memory.
const GROUP: usize = 16;

impl RouteCounterSet {
    pub(super) fn new(labels: &Arc<CounterLabels>) -> Self {
        let groups = (0..labels.len().div_ceil(GROUP)).map(|_| OnceLock::new()).collect();
        Self { labels: labels.clone(), groups }
    }

    /// Counts a request of the route at a place, and its response.
    pub(super) fn count(&self, place: usize, exchange: &Exchange<'_>) {
        self.counters(place).count(exchange);
    }

    fn counters(&self, place: usize) -> &RouteCounters {
        let group = self.groups[place / GROUP].get_or_init(|| Box::new(std::array::from_fn(|_| RouteCounters::new())));
        &group[place % GROUP]
    }

    /// Adds the counts to sums.
    pub(super) fn add_to(&self, sums: &mut RouteSums) {
        for (place, (site, route)) in self.labels.names().enumerate() {
            let Some(group) = self.groups[place / GROUP].get() else { continue };
            let totals = group[place % GROUP].totals();
            if totals != RouteTotals::default() {
                sums.entry((site.to_owned(), route.to_owned())).or_default().add(&totals);
            }
        }
    }

    /// Counts a response of a site.
    #[cfg(test)]
    pub(super) fn count_status(&self, site: u32, class: usize) {
        self.counters(self.labels.place(site, 0)).classes[class].add(1);
    }
}

/// The memory of the counters of one route in bytes.
pub(crate) const ROUTE_COUNTER_BYTES: usize = size_of::<RouteCounters>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_site_and_each_route_has_its_place() {
        let labels = |site: &str, routes: &[&str]| SiteLabels {
            site: site.to_owned(),
            routes: routes.iter().map(|route| (*route).to_owned()).collect(),
        };
        let all = CounterLabels::new(vec![labels("", &[]), labels("a", &["/x", "/y"]), labels("b", &["/*"])]);
        let names: Vec<_> = all.names().collect();
        assert_eq!(names, [("", ""), ("a", ""), ("a", "/x"), ("a", "/y"), ("b", ""), ("b", "/*")]);
        assert_eq!(all.len(), names.len());
        for (tags, expected) in [
            ((0, 0), ("", "")),
            ((1, 0), ("a", "")),
            ((1, 2), ("a", "/y")),
            ((1, 3), ("a", "")),
            ((2, 1), ("b", "/*")),
            ((0, 1), ("", "")),
            ((3, 1), ("", "")),
            ((u32::MAX, u32::MAX), ("", "")),
        ] {
            assert_eq!(names[all.place(tags.0, tags.1)], expected, "{tags:?}");
        }
        assert_eq!(CounterLabels::new(Vec::new()).len(), 1);
    }
}
