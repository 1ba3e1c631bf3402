//! Writes the records of one worker.

use super::Recorder;
use super::labels::route_label;
use super::layout::{RECORD_NUMBERS, record_at, ring_count};
use super::record::{RecordLabels, RecordNumbers};
use selvedge::service::{Exchange, UpstreamFacts};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Texts whose numbers a worker knows. The numbers of further ones are looked up under a lock.
const KNOWN_MAX: usize = 256;

/// Records the requests of one worker. A clone is for another worker, or for another configuration.
#[derive(Clone, Debug)]
pub(crate) struct RecorderHandle {
    recorder: Arc<Recorder>,
    /// By the place of the route among the counters.
    places: Arc<[KnownPlace]>,
    reasons: RefCell<Vec<(&'static str, u32)>>,
    upstreams: RefCell<Vec<KnownUpstream>>,
}

/// A site and a route whose texts have numbers.
#[derive(Clone, Debug)]
struct KnownPlace {
    site_name: Arc<str>,
    site: u32,
    route: u32,
}

/// The names of a route, for records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteNames<'n> {
    /// The first name of the site; empty for requests of no site.
    pub(crate) site: &'n str,
    /// The name of the route; empty for requests of no route.
    pub(crate) route: &'n str,
    /// Its first pattern.
    pub(crate) pattern: &'n str,
}

/// A server whose text has a number.
#[derive(Clone, Debug)]
struct KnownUpstream {
    group: Box<str>,
    address: Box<str>,
    number: u32,
}

impl RecorderHandle {
    /// Creates a handle for routes with these names, in the order of their places.
    pub(crate) fn new<'n>(recorder: &Arc<Recorder>, names: impl Iterator<Item = RouteNames<'n>>) -> Self {
        let mut site_name: Arc<str> = Arc::from("");
        let places = names.map(|RouteNames { site, route, pattern }| {
            // The places of a site follow each other.
            if *site_name != *site {
                site_name = site.into();
            }
            let route = recorder.label(&route_label(route, pattern));
            KnownPlace { site_name: site_name.clone(), site: recorder.label(site), route }
        });
        let places = places.collect();
        Self { recorder: recorder.clone(), places, reasons: RefCell::default(), upstreams: RefCell::default() }
    }

    /// Records a request of the route at a place, which was complete at a time since 1970.
    pub(crate) fn record(&self, exchange: &Exchange<'_>, place: usize, completed: Duration) {
        let Some(ring) = self.recorder.own_ring() else { return };
        let place = self.places.get(place);
        let labels = place.map(|KnownPlace { site_name, site, route }| RecordLabels {
            site_name,
            site: *site,
            route: *route,
            ..RecordLabels::default()
        });
        let mut labels = labels.unwrap_or_default();
        if let Some(reason) = reason_of(exchange) {
            labels.reason = self.reason_number(reason);
        }
        if let Some(upstream) = exchange.upstream {
            labels.upstream = self.upstream_number(&upstream.facts());
        }
        self.write(ring, &RecordNumbers::of(exchange, labels, completed));
    }

    fn write(&self, ring: usize, record: &RecordNumbers) {
        let memory = self.recorder.numbers();
        let count = &memory[ring_count(ring)];
        // Only this thread writes it.
        let number = count.load(Ordering::Relaxed);
        let at = record_at(ring, number);
        let place = &memory[at..at + RECORD_NUMBERS];
        // An odd number tells readers that the rest is incomplete.
        place[0].store(2 * number + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (place, number) in place[1..].iter().zip(&record.numbers[1..record.used]) {
            place.store(*number, Ordering::Relaxed);
        }
        place[0].store(2 * number + 2, Ordering::Release);
        count.store(number + 1, Ordering::Release);
    }

    fn reason_number(&self, reason: &'static str) -> u32 {
        let mut known = self.reasons.borrow_mut();
        // Most comparisons are of addresses: a reason is a text of the program.
        if let Some((_, number)) = known.iter().find(|(text, _)| std::ptr::eq(*text, reason) || *text == reason) {
            return *number;
        }
        let number = self.recorder.label(reason);
        if known.len() < KNOWN_MAX {
            known.push((reason, number));
        }
        number
    }

    fn upstream_number(&self, facts: &UpstreamFacts) -> u32 {
        let mut known = self.upstreams.borrow_mut();
        let is_it = |known: &&KnownUpstream| *known.address == *facts.address && *known.group == *facts.group;
        if let Some(known) = known.iter().find(is_it) {
            return known.number;
        }
        let number = match (&*facts.group, &*facts.address) {
            (group, "") => self.recorder.label(group),
            (group, address) if group == address => self.recorder.label(group),
            (group, address) => self.recorder.label(&format!("{group} {address}")),
        };
        if known.len() < KNOWN_MAX {
            known.push(KnownUpstream { group: (*facts.group).into(), address: (*facts.address).into(), number });
        }
        number
    }
}

/// Returns why a request was refused or failed, in the words or by the name that the log has.
fn reason_of(exchange: &Exchange<'_>) -> Option<&'static str> {
    if let Some(reject) = exchange.reject {
        return Some(reject.name());
    }
    let of_upstream = exchange.upstream.map(|record| record.facts().failure_kind).filter(|kind| !kind.is_empty());
    of_upstream.or(exchange.reason).or_else(|| exchange.reset.map(|reset| reset.name()))
}
