//! What an observer counts beside logging.

use super::{Directory, config, lines};
use crate::log::{CounterLabels, Counters, Format, LogObserver, Logs, NamedCounts, SiteLabels};
use crate::process::connect;
use selvedge::proto::field::Fields;
use selvedge::proto::field_section::MalformedMessage;
use selvedge::proto::http2::StreamError;
use selvedge::proto::{Persistence, StatusCode};
use selvedge::service::{
    CloseReason, Closed, Exchange, Phase, PhaseTimes, ResponseOutcome, ServerEvent, StreamId, UNIX_PEER,
};
use selvedge::{Limits, Observer};
use std::sync::Arc;

fn named<const N: usize>(counts: [(&'static str, u64); N]) -> NamedCounts {
    counts.into_iter().map(|(name, count)| (name.into(), count)).collect()
}

/// Requests of no site only.
fn labels() -> Arc<CounterLabels> {
    Arc::new(CounterLabels::new(vec![SiteLabels::default()]))
}

#[test]
fn a_stream_that_is_reset_has_a_line_with_its_reason() {
    let directory = Directory::new();
    let logs = Logs::start(&config(&directory, [], vec![]), connect).unwrap_or_else(|problem| panic!("{problem}"));
    let counters = Arc::<Counters>::default();
    let observer = LogObserver::new(&logs, &Limits::default()).with_counters(&counters, &labels());
    let malformed = CloseReason::MessageMalformed(MalformedMessage::HostDiffers);
    for (status, reset) in [(200, CloseReason::SendTooSlow), (400, malformed), (499, CloseReason::ClientCancelled)] {
        observer.finished(&Exchange {
            peer: UNIX_PEER,
            stream: StreamId(9),
            request: None,
            request_line: b"GET /film HTTP/2.0",
            status: StatusCode::new(status).unwrap(),
            fields: &Fields::new(),
            head_bytes: 0,
            content_bytes: 0,
            outcome: ResponseOutcome::Aborted,
            reset: Some(reset),
            persistence: Persistence::KeepAlive,
            requests: 5,
            reject: None,
            reason: None,
            upstream: None,
            unix_time: 0,
            elapsed: None,
            completed_at: None,
            phases: PhaseTimes::default(),
        });
    }
    observer.event(&ServerEvent::StreamsRefused { peer: UNIX_PEER, error: StreamError::StreamsTooMany, count: 28 });
    drop(observer);
    logs.flush_and_join();
    let lines = lines(&directory.path("error"));
    let texts: Vec<&str> = lines.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    for (text, expected) in texts.iter().zip([
        "warn SendTooSlow: 200 the client received the response too slowly (bound: 30s or 500 B/s), on stream 9",
        "warn HostDiffers: 400 the Host field differs from the authority, on stream 9",
        "debug ClientCancelled: 499 the client cancelled the request, on stream 9",
        "warn StreamsTooMany: too many streams are open (bound: 100); the stream is reset",
    ]) {
        assert!(text.starts_with(expected), "{text}");
    }
    assert!(texts.len() == 4 && texts[3].ends_with("count=28"), "{texts:?}");
    assert_eq!(counters.totals().events, named([("StreamsTooMany", 1)]));
}

#[test]
fn events_and_closes_are_counted_by_name() {
    let directory = Directory::new();
    let formats = [Format::named("common").unwrap()];
    let logs = Logs::start(&config(&directory, formats, vec![]), connect).unwrap_or_else(|problem| panic!("{problem}"));
    let plain = LogObserver::new(&logs, &Limits::default());
    assert!(plain.wants_elapsed() && plain.clone().wants_elapsed(), "lines have a place among those of other workers");
    let none =
        Logs::start(&config(&Directory::new(), [], vec![]), connect).unwrap_or_else(|problem| panic!("{problem}"));
    assert!(!LogObserver::new(&none, &Limits::default()).wants_elapsed(), "the clock is not looked at for nothing");
    none.flush_and_join();
    let counters = Arc::<Counters>::default();
    let first = plain.with_counters(&counters, &labels());
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
    assert_eq!(totals.events, named([("Panic", 2), ("ConnectionLimitReached", 2)]));
    assert_eq!((totals.requests(), totals.closes), (0, named([("Panicked", 2)])));
    assert!(logs.losses().all(|(_, lost)| lost == 0) && logs.losses().count() == 2);
    drop(first);
    logs.flush_and_join();
    let closes: Vec<_> =
        lines(&directory.path("error")).into_iter().filter(|line| line.contains("Panicked: ")).collect();
    assert!(closes[0].contains(", after 1 request") && !closes[0].contains("requests"), "{closes:?}");
}
