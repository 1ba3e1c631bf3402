//! The journal of orders, from which the budget of orders and the delay after failures follow. It is a file, so that
//! neither a crash nor a bug can order without end.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Most orders for one name within a week.
const ORDERS_MAX: usize = 5;
const WEEK_SECONDS: i64 = 7 * DAY_SECONDS;
const DAY_SECONDS: i64 = 24 * 3600;
/// The delay after the first failure; it doubles with each further one.
const BACK_OFF_MIN: i64 = 60;
const BACK_OFF_MAX: i64 = DAY_SECONDS;
/// The longest wait that a certificate authority can demand.
const DEFERRAL_MAX: i64 = WEEK_SECONDS;
/// How far the clocks of servers with one folder may differ. A later event was written before the clock was set back, and
/// would delay orders until its time.
const CLOCK_DIFFERENCE_MAX: i64 = DAY_SECONDS;

/// What happened with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalEvent {
    /// An order was sent to a certificate authority. Written before it is sent.
    Ordered,
    /// A certificate was received.
    Received,
    /// An order failed.
    Failed,
    /// The certificate authority wants no order before this time in Unix seconds.
    DeferredUntil(i64),
}

/// The word before the time of [`JournalEvent::DeferredUntil`].
const DEFERRED: &str = "deferred-until-";

impl fmt::Display for JournalEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordered => f.write_str("ordered"),
            Self::Received => f.write_str("received"),
            Self::Failed => f.write_str("failed"),
            Self::DeferredUntil(at) => write!(f, "{DEFERRED}{at}"),
        }
    }
}

impl JournalEvent {
    fn from_text(text: &str) -> Option<Self> {
        if let Some(at) = text.strip_prefix(DEFERRED) {
            return at.parse().ok().map(Self::DeferredUntil);
        }
        [Self::Ordered, Self::Received, Self::Failed].into_iter().find(|event| event.to_string() == text)
    }
}

/// Formats a line of the journal.
pub(crate) fn line(now: i64, name: &str, event: JournalEvent) -> String {
    format!("{now} {name} {event}")
}

/// Returns the lines of a journal that still matter.
pub(crate) fn recent(journal: &str, now: i64) -> String {
    let is_recent = |line: &&str| parse(line).is_some_and(|(at, ..)| matters(at, now));
    journal.lines().filter(is_recent).map(|line| format!("{line}\n")).collect()
}

/// Whether an event of this time is one of the last week.
fn matters(at: i64, now: i64) -> bool {
    at > now - WEEK_SECONDS && at <= now + CLOCK_DIFFERENCE_MAX
}

/// Returns the events of a name that still matter.
fn events_of<'a>(journal: &'a str, name: &'a str, now: i64) -> impl Iterator<Item = (i64, JournalEvent)> + 'a {
    let events = journal.lines().filter_map(parse);
    events.filter(move |(at, other, _)| *other == name && matters(*at, now)).map(|(at, _, event)| (at, event))
}

fn parse(line: &str) -> Option<(i64, &str, JournalEvent)> {
    let mut words = line.split(' ');
    let (at, name, event) = (words.next()?, words.next()?, words.next()?);
    Some((at.parse().ok()?, name, JournalEvent::from_text(event)?))
}

/// Returns how many certificates for a name may be ordered now.
pub(crate) fn orders_left(journal: &str, name: &str, now: i64) -> usize {
    let orders = events_of(journal, name, now).filter(|(_, event)| *event == JournalEvent::Ordered);
    ORDERS_MAX.saturating_sub(orders.count())
}

/// Returns the earliest time at which a certificate for a name may be ordered.
pub(crate) fn earliest_order(journal: &str, name: &str, now: i64) -> i64 {
    let events = || events_of(journal, name, now);
    let mut orders: Vec<i64> =
        events().filter(|(_, event)| *event == JournalEvent::Ordered).map(|(at, _)| at).collect();
    orders.sort_unstable();
    // The order that has to leave the week before another one is in the budget.
    let by_budget = orders.iter().rev().nth(ORDERS_MAX - 1).map_or(i64::MIN, |at| at + WEEK_SECONDS);
    let failures = events().fold((0, i64::MIN), |(count, last), (at, event)| match event {
        JournalEvent::Failed => (count + 1, at),
        JournalEvent::Received => (0, i64::MIN),
        JournalEvent::Ordered | JournalEvent::DeferredUntil(_) => (count, last),
    });
    let by_deferral = events().filter_map(|(at, event)| match event {
        // A time that is implausibly late would be an order that is never sent.
        JournalEvent::DeferredUntil(until) => Some(until.min(at + DEFERRAL_MAX)),
        _ => None,
    });
    let by_failures = match failures {
        (0, _) => i64::MIN,
        (count, last) => last + back_off(count, name, last),
    };
    by_deferral.chain([by_budget, by_failures]).max().unwrap_or(i64::MIN)
}

/// Returns the delay after a number of failures in a row: up to a quarter less, so that servers with one folder and names
/// of one outage do not return at once.
fn back_off(failures: u32, name: &str, last: i64) -> i64 {
    let delay = BACK_OFF_MIN.checked_shl(failures - 1).filter(|delay| (1..BACK_OFF_MAX).contains(delay));
    let delay = delay.unwrap_or(BACK_OFF_MAX);
    let mut hasher = DefaultHasher::new();
    (name, last).hash(&mut hasher);
    delay - (hasher.finish() % 1024) as i64 * delay / 4096
}

#[cfg(test)]
mod tests {
    use super::*;
    use JournalEvent::{DeferredUntil, Failed, Ordered, Received};

    const NOW: i64 = 1_800_000_000;

    fn journal(events: &[(i64, &str, JournalEvent)]) -> String {
        events.iter().map(|(at, name, event)| line(*at, name, *event) + "\n").collect()
    }

    #[test]
    fn five_orders_in_a_week_are_the_budget() {
        let mut events: Vec<_> = (0..4).map(|day| (NOW + day * DAY_SECONDS, "a", Ordered)).collect();
        let earliest = |events: &[_], name, now| earliest_order(&journal(events), name, now);
        assert_eq!(earliest(&events, "a", NOW + 4 * DAY_SECONDS), i64::MIN);
        events.push((NOW + 5 * DAY_SECONDS, "a", Ordered));
        assert_eq!(earliest(&events, "a", NOW + 5 * DAY_SECONDS), NOW + WEEK_SECONDS);
        events.push((NOW + WEEK_SECONDS, "a", Ordered));
        let later = NOW + WEEK_SECONDS;
        assert_eq!(earliest(&events, "a", later), NOW + DAY_SECONDS + WEEK_SECONDS);
        assert_eq!(earliest(&events, "b", later), i64::MIN);
        let left = |after: i64| orders_left(&journal(&events), "a", NOW + after);
        assert_eq!((left(6 * DAY_SECONDS), left(WEEK_SECONDS), left(9 * DAY_SECONDS)), (0, 0, 2));
        // A success does not restore the budget: a loop of successes is a bug as well.
        events.push((NOW + WEEK_SECONDS, "a", Received));
        assert_eq!(earliest_order(&journal(&events), "a", later), NOW + DAY_SECONDS + WEEK_SECONDS);
    }

    #[test]
    fn events_from_before_the_clock_was_set_back_delay_nothing() {
        let events = [Failed, Ordered, Ordered, Ordered, Ordered, Ordered, DeferredUntil(NOW + 42 * DAY_SECONDS)];
        let text = journal(&events.map(|event| (NOW + 40 * DAY_SECONDS, "a", event)));
        assert_eq!((earliest_order(&text, "a", NOW), orders_left(&text, "a", NOW)), (i64::MIN, ORDERS_MAX));
        assert_eq!(recent(&text, NOW), "");
        // Another server with this folder may have a clock that is ahead.
        let text = journal(&events.map(|event| (NOW + 60, "a", event)));
        assert!(earliest_order(&text, "a", NOW) > NOW && orders_left(&text, "a", NOW) == 0);
    }

    #[test]
    fn the_delay_after_failures_doubles_up_to_a_day() {
        let mut events = Vec::new();
        let mut last = 0;
        for count in 1..20 {
            events.push((NOW, "a", Failed));
            let delay = earliest_order(&journal(&events), "a", NOW) - NOW;
            let full = (BACK_OFF_MIN << (count - 1).min(20)).min(BACK_OFF_MAX);
            assert!(delay > full * 3 / 4 - 1 && delay <= full, "{count}: {delay}");
            assert!(delay >= last);
            last = delay;
        }
        events.push((NOW, "a", Received));
        assert_eq!(earliest_order(&journal(&events), "a", NOW), i64::MIN);
        events.push((NOW, "a", Failed));
        assert!(earliest_order(&journal(&events), "a", NOW) <= NOW + BACK_OFF_MIN);
    }

    #[test]
    fn a_certificate_authority_can_defer_orders() {
        for (until, expected) in [(3600, 3600), (10 * WEEK_SECONDS, WEEK_SECONDS)] {
            let text = line(NOW, "a", DeferredUntil(NOW + until)) + "\n";
            assert_eq!(earliest_order(&text, "a", NOW), NOW + expected);
            assert_eq!(earliest_order(&text, "b", NOW), i64::MIN);
        }
    }

    #[test]
    fn old_and_invalid_lines_are_dropped() {
        let text = journal(&[(NOW - WEEK_SECONDS, "a", Ordered), (NOW, "a", Ordered)]) + "nonsense\n" + "1 a lost\n";
        assert_eq!(recent(&text, NOW), format!("{NOW} a ordered\n"));
    }
}
