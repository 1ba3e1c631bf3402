//! What an observer counts, beside what it logs.

use super::{Directory, plan};
use crate::log::{Format, LogObserver, Logs, Tallies};
use crate::process::connect;
use selvedge::service::{CloseReason, Closed, Incident, Phase, UNIX_PEER};
use selvedge::{Limits, Observer};
use std::sync::Arc;

#[test]
fn incidents_and_ends_are_counted_by_name_and_nothing_is_where_nobody_asks() {
    let directory = Directory::new();
    let formats = [Format::named("common").unwrap()];
    let logs = Logs::start(&plan(&directory, formats, vec![]), connect).unwrap_or_else(|problem| panic!("{problem}"));
    let plain = LogObserver::new(&logs, &Limits::default());
    assert!(!plain.times() && !plain.clone().times(), "the clock is not looked at for nothing");
    let tallies = Arc::<Tallies>::default();
    let first = plain.counting(&tallies);
    let second = first.clone();
    for observer in [&first, &second] {
        assert!(observer.times());
        let (peer, message) = (UNIX_PEER, "why".to_owned());
        observer.incident(&Incident::Panic { peer, message });
        observer.incident(&Incident::ConnectionsFull { limit: 1 });
        observer.incident(&Incident::ConnectionsFree);
        observer.closed(&Closed { peer, reason: CloseReason::Panicked, phase: Phase::Answering, requests: 1 });
    }
    drop(second);
    let totals = tallies.totals();
    assert_eq!(totals.incidents, [("Panic", 2), ("ConnectionsFull", 2)]);
    assert_eq!((totals.requests(), totals.closes), (0, vec![("Panicked", 2)]));
    assert!(logs.losses().all(|(_, lost)| lost == 0) && logs.losses().count() == 2);
    drop(first);
    logs.finish();
}
