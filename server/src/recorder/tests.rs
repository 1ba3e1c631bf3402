//! Rings that are written while they are read, that are full, and that are dumped.

use super::layout::RECORDS;
use super::{
    LastQuery, Recorder, RecorderHandle, RequestRecord, ranks_since, read_dump, record_of, select, write_dump,
};
use selvedge::detached::DetachedRequest;
use selvedge::proto::field::Fields;
use selvedge::proto::head::Version;
use selvedge::proto::limits::MessageLimits;
use selvedge::proto::{Persistence, RequestLine, StatusCode};
use selvedge::service::{Exchange, PhaseTimes, RequestPhase, ResponseOutcome, StreamId};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Returns a refused head whose length and times all state one number.
fn refused<'a>(number: u32, line: &'a str, fields: &'a Fields) -> Exchange<'a> {
    let mut phases = PhaseTimes::default();
    RequestPhase::ALL.iter().for_each(|phase| phases.set(*phase, Duration::from_micros(number.into())));
    Exchange {
        peer: ([192, 0, 2, 7], 1).into(),
        stream: StreamId(1),
        request: None,
        request_line: line.as_bytes(),
        status: StatusCode::BAD_REQUEST,
        fields,
        head_bytes: 0,
        content_bytes: number.into(),
        outcome: ResponseOutcome::Complete,
        reset: None,
        persistence: Persistence::Close,
        requests: number,
        reject: None,
        reason: Some("why"),
        upstream: None,
        unix_time: 0,
        elapsed: Some(Duration::from_micros(number.into())),
        completed_at: None,
        phases,
    }
}

/// Records a refused head whose request line states the number, too.
fn record(handle: &RecorderHandle, number: u32) {
    let (line, fields) = (format!("line {number}"), Fields::new());
    handle.record(&refused(number, &line, &fields), 1, Duration::from_micros(number.into()));
}

fn handle(recorder: &Arc<Recorder>) -> RecorderHandle {
    RecorderHandle::new(recorder, [("", ""), ("a.example", "/*")].into_iter())
}

/// Asserts that all parts of a record are of one request.
fn assert_whole(record: &RequestRecord) {
    let number = record.requests;
    assert_eq!((record.target.as_str(), record.content_bytes), (&*format!("line {number}"), number.into()));
    assert_eq!((record.elapsed_micros, record.completed_micros), (number, number.into()));
    assert!(RequestPhase::ALL.iter().all(|phase| record.phases.micros(*phase) == number));
    assert_eq!((record.site.as_str(), record.route.as_str(), record.reason.as_str()), ("a.example", "/*", "why"));
    assert_eq!((record.client.to_string().as_str(), record.status, record.version), ("192.0.2.7", 400, None));
}

#[test]
fn a_full_ring_keeps_the_newest_records() {
    let recorder = Arc::new(Recorder::new(1).unwrap());
    let handle = handle(&recorder);
    assert!(select(recorder.numbers(), &LastQuery { count_max: 1, ..LastQuery::default() }).is_empty());
    let count = RECORDS as u32 + 5;
    (1..=count).for_each(|number| record(&handle, number));
    let all = select(recorder.numbers(), &LastQuery { count_max: usize::MAX, ..LastQuery::default() });
    all.iter().for_each(assert_whole);
    let numbers: Vec<_> = all.iter().map(|record| record.requests).collect();
    // A reply is bounded.
    assert_eq!(numbers, (1..=count).rev().take(10_000).collect::<Vec<_>>());
    let slow = Duration::from_micros(u64::from(count) - 1);
    let slow = select(recorder.numbers(), &LastQuery { count_max: 9, slower: Some(slow), ..LastQuery::default() });
    assert_eq!(slow.iter().map(|record| record.requests).collect::<Vec<_>>(), [count, count - 1]);
    // Another thread would need a ring of its own.
    let other = handle.clone();
    thread::scope(|scope| scope.spawn(move || record(&other, 1)).join().unwrap());
    let newest = select(recorder.numbers(), &LastQuery { count_max: 1, ..LastQuery::default() });
    assert_eq!(newest[0].requests, count);
}

#[test]
fn readers_never_see_half_a_record() {
    let recorder = Arc::new(Recorder::new(2).unwrap());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let handle = handle(&recorder);
                scope.spawn(move || (1..=RECORDS as u32 * 2).for_each(|number| record(&handle, number)))
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut read = 0;
            while !is_over.load(Ordering::Relaxed) {
                let records = select(recorder.numbers(), &LastQuery { count_max: 50, ..LastQuery::default() });
                records.iter().for_each(assert_whole);
                read += records.len();
            }
            read
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    let last = select(recorder.numbers(), &LastQuery { count_max: 2, ..LastQuery::default() });
    assert_eq!(last.iter().map(|record| record.requests).collect::<Vec<_>>(), [RECORDS as u32 * 2; 2]);
    assert_ne!(last[0].id.0, last[1].id.0, "each thread has its ring");
}

#[test]
fn a_dump_has_the_records_and_a_folder_keeps_four() {
    let recorder = Arc::new(Recorder::new(1).unwrap());
    let handle = handle(&recorder);
    (1..=3).for_each(|number| record(&handle, number));
    let folder = std::env::temp_dir().join(format!("selvedge-dumps-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let memory = File::from(recorder.as_fd().try_clone_to_owned().unwrap());
    // The writer need not live any more.
    drop((handle, recorder));
    let paths = [1, 2, 3, 4, 5, 6].map(|number| write_dump(&memory, &folder, &number.to_string()).unwrap());
    assert_eq!(paths.map(|path| path.exists()), [false, false, true, true, true, true]);
    let numbers = read_dump(&folder.join("selvedge-last-6.gz")).unwrap();
    let records = select(&numbers, &LastQuery { count_max: 9, ..LastQuery::default() });
    records.iter().for_each(assert_whole);
    assert_eq!(records.iter().map(|record| record.requests).collect::<Vec<_>>(), [3, 2, 1]);
    std::fs::write(folder.join("other"), "text").unwrap();
    assert!(read_dump(&folder.join("other")).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Returns the record of a request for a path of a host, by a site with this first name.
fn recorded(site: &str, host: &str, path: &str) -> RequestRecord {
    let line = RequestLine { method: b"GET", target: path.as_bytes(), version: Version::Http11 };
    let fields = vec![(&b"host"[..], host.as_bytes())];
    let request = DetachedRequest { line, fields, peer: ([192, 0, 2, 7], 1).into(), tls: None };
    let request = request.build(&MessageLimits::default()).unwrap();
    let recorder = Arc::new(Recorder::new(1).unwrap());
    let handle = RecorderHandle::new(&recorder, [(site, "/*")].into_iter());
    handle.record(&Exchange { request: Some(&request), ..refused(1, "", &Fields::new()) }, 0, Duration::ZERO);
    let of = |id| select(recorder.numbers(), &LastQuery { id: Some(id), count_max: 1, ..LastQuery::default() });
    assert!([(0, 1), (1, 0), (0, u64::MAX)].into_iter().all(|other| of(other).is_empty()));
    of((0, 0)).remove(0)
}

#[test]
fn a_host_is_recorded_unless_it_is_the_name_of_the_site() {
    let (long_host, long_path) = (format!("{}.example", "a".repeat(33)), format!("/{}", "b".repeat(71)));
    for (site, host, path, expected, is_cut) in [
        ("a.example", "A.example", "/x/y?q", "a.example /x/y", false),
        ("a.example", "a.example", &long_path, &format!("a.example {long_path}"), false),
        ("a.example", "a.example:80", "/x", "a.example:80 /x", false),
        ("a.example", "[::1]:80", "/", "[::1]:80 /", false),
        ("*.example", "b.example", "/x", "b.example /x", false),
        ("", "c", &long_path, &format!("c {}", &long_path[..71]), true),
        // The path would have less room than the host.
        ("a.example", &long_host, "/x", " /x", false),
        ("*", &long_host, "/x", " /x", false),
    ] {
        let record = recorded(site, host, path);
        assert_eq!((format!("{} {}", record.host, record.target).as_str(), record.is_target_cut), (expected, is_cut));
        assert_eq!((record.site.as_str(), record.method.as_str(), record.status), (site, "GET", 400));
    }
}

#[test]
fn ranks_are_those_of_the_records_since_a_time() {
    let recorder = Arc::new(Recorder::new(2).unwrap());
    let handle = handle(&recorder);
    (1..=RECORDS as u32 + 9).for_each(|number| record(&handle, number));
    let other = handle.clone();
    thread::scope(|scope| scope.spawn(move || record(&other, 7)).join().unwrap());
    let memory = recorder.numbers();
    let since = RECORDS as u64 + 8;
    let ranks: Vec<_> = ranks_since(memory, since).collect();
    assert_eq!(ranks.iter().map(|rank| rank.completed_micros).collect::<Vec<_>>(), [since + 1, since]);
    let all: Vec<_> = ranks_since(memory, 0).collect();
    assert_eq!(all.len(), RECORDS + 1, "a full ring, and one with a record");
    for rank in [ranks[0], all[RECORDS]] {
        let record = record_of(memory, rank.id).unwrap();
        assert_whole(&record);
        // Every phase took as long as the whole.
        assert_eq!((rank.response_micros, record.response_micros()), (0, 0));
        assert_eq!((rank.id, rank.completed_micros, rank.status), (record.id, record.completed_micros, record.status));
    }
    for replaced in [(0, 0), (0, u64::from(u32::MAX)), (2, 0)] {
        assert_eq!(record_of(memory, replaced), None, "{replaced:?}");
    }
}
