//! What an observer counts beside logging.

use super::{Directory, config};
use crate::log::{Counters, Format, LogObserver, Logs};
use crate::process::connect;
use selvedge::service::{CloseReason, Closed, Phase, ServerEvent, UNIX_PEER};
use selvedge::{Limits, Observer};
use std::sync::Arc;

#[test]
fn events_and_closes_are_counted_by_name() {
    let directory = Directory::new();
    let formats = [Format::named("common").unwrap()];
    let logs = Logs::start(&config(&directory, formats, vec![]), connect).unwrap_or_else(|problem| panic!("{problem}"));
    let plain = LogObserver::new(&logs, &Limits::default());
    assert!(!plain.wants_elapsed() && !plain.clone().wants_elapsed(), "the clock is not looked at for nothing");
    let counters = Arc::<Counters>::default();
    let first = plain.with_counters(&counters);
    let second = first.clone();
    for observer in [&first, &second] {
        assert!(observer.wants_elapsed());
        let (peer, message) = (UNIX_PEER, "why".to_owned());
        observer.event(&ServerEvent::Panic { peer, message });
        observer.event(&ServerEvent::ConnectionLimitReached { limit: 1 });
        observer.event(&ServerEvent::ConnectionLimitCleared);
        observer.closed(&Closed { peer, reason: CloseReason::Panicked, phase: Phase::Processing, requests: 1 });
    }
    drop(second);
    let totals = counters.totals();
    assert_eq!(totals.events, [("Panic", 2), ("ConnectionLimitReached", 2)]);
    assert_eq!((totals.requests(), totals.closes), (0, vec![("Panicked", 2)]));
    assert!(logs.losses().all(|(_, lost)| lost == 0) && logs.losses().count() == 2);
    drop(first);
    logs.flush_and_join();
}
