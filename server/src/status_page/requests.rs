//! The requests of the last minute, as far as the flight recorder has them.

use crate::log::Latencies;
use crate::recorder::{RecordRank, RequestRecord, ranks_since, record_of};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The time that requests are shown for.
pub(super) const RECENT: Duration = Duration::from_secs(60);
/// The most requests of each list.
const LISTED_MAX: usize = 10;

/// Requests that were complete within [`RECENT`].
#[derive(Debug)]
pub(super) struct RecentRequests {
    /// Times from the complete head to the begin of the response.
    pub(super) times: Latencies,
    /// Those whose response began last, the slowest first.
    pub(super) slowest: Vec<RequestRecord>,
    /// Those with a status of 5xx, the newest first.
    pub(super) failed: Vec<RequestRecord>,
    pub(super) failed_count: u64,
}

impl RecentRequests {
    /// Reads the records of the time before `now`, which is since 1970.
    pub(super) fn of(memory: &[AtomicU64], now: Duration) -> Self {
        let since = u64::try_from(now.saturating_sub(RECENT).as_micros()).unwrap_or(u64::MAX);
        let (mut times, mut failed_count) = (Latencies::default(), 0);
        let (mut slowest, mut failed) = (TopRecords::default(), TopRecords::default());
        for rank in ranks_since(memory, since) {
            times.count_time(Duration::from_micros(rank.response_micros.into()));
            slowest.add(rank.response_micros.into(), &rank);
            if rank.status >= 500 {
                failed_count += 1;
                failed.add(rank.completed_micros, &rank);
            }
        }
        Self { times, slowest: slowest.read(memory), failed: failed.read(memory), failed_count }
    }
}

/// The records with the highest numbers, the highest first.
#[derive(Debug, Default)]
struct TopRecords(Vec<(u64, (usize, u64))>);

impl TopRecords {
    fn add(&mut self, number: u64, rank: &RecordRank) {
        if self.0.len() == LISTED_MAX && self.0.last().is_some_and(|(least, _)| *least >= number) {
            return;
        }
        let at = self.0.partition_point(|(other, _)| *other >= number);
        self.0.insert(at, (number, rank.id));
        self.0.truncate(LISTED_MAX);
    }

    /// Reads the records, without those that were replaced meanwhile.
    fn read(&self, memory: &[AtomicU64]) -> Vec<RequestRecord> {
        self.0.iter().filter_map(|(_, id)| record_of(memory, *id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{Recorder, RecorderHandle, RouteNames};
    use selvedge::proto::field::Fields;
    use selvedge::proto::{Persistence, StatusCode};
    use selvedge::service::{Exchange, PhaseTimes, RequestPhase, ResponseOutcome, StreamId};
    use std::sync::Arc;

    /// Records a request that was complete at a second, and whose response began after these milliseconds and was sent for
    /// an hour.
    fn record(handle: &RecorderHandle, (second, milliseconds): (u64, u64), status: u16) {
        let (fields, send, mut phases) = (Fields::new(), Duration::from_secs(3600), PhaseTimes::default());
        phases.set(RequestPhase::Send, send);
        let exchange = Exchange {
            peer: ([192, 0, 2, 7], 1).into(),
            stream: StreamId(1),
            request: None,
            request_line: b"GET /",
            status: StatusCode::new(status).unwrap(),
            fields: &fields,
            head_bytes: 0,
            content_bytes: 0,
            outcome: ResponseOutcome::Complete,
            reset: None,
            persistence: Persistence::Close,
            requests: 1,
            reject: None,
            reason: None,
            upstream: None,
            unix_time: 0,
            elapsed: Some(send + Duration::from_millis(milliseconds)),
            completed_at: None,
            phases,
        };
        handle.record(&exchange, 0, Duration::from_secs(second));
    }

    #[test]
    fn the_slowest_and_the_failed_requests_of_a_minute_are_listed() {
        let recorder = Arc::new(Recorder::new(1).unwrap());
        let handle = RecorderHandle::new(&recorder, [RouteNames { site: "", route: "", pattern: "" }].into_iter());
        record(&handle, (1_000, 9_999), 500);
        for second in 1_001..=1_040 {
            let milliseconds = if second % 2 == 0 { second } else { 1 };
            record(&handle, (second, milliseconds), if second % 3 == 0 { 503 } else { 200 });
        }
        let recent = RecentRequests::of(recorder.numbers(), Duration::from_secs(1_061));
        let times: Vec<_> = recent.slowest.iter().map(RequestRecord::response_micros).collect();
        let expected = (1_001..=1_040_u32).rev().filter(|second| second % 2 == 0).map(|second| second * 1000);
        assert_eq!(times, expected.take(LISTED_MAX).collect::<Vec<u32>>());
        let failed: Vec<_> = recent.failed.iter().map(|record| record.completed_micros / 1_000_000).collect();
        let expected: Vec<u64> = (1_001..=1_040).rev().filter(|second| second % 3 == 0).collect();
        assert_eq!(failed, expected[..LISTED_MAX]);
        assert_eq!((recent.failed_count, recent.times.count()), (expected.len() as u64, 40));
        // Times are those until the response began, and the request of the time before does not count.
        assert_eq!(recent.times.max_ns(), 1_040_000_000);
        assert!(RecentRequests::of(recorder.numbers(), Duration::from_secs(1_101)).slowest.is_empty());
    }
}
