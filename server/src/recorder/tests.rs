//! Rings that are written while they are read, that are full, and that are dumped.

use super::layout::{FORMAT, RECORDS, record_at, ring_count};
use super::{
    LastQuery, Recorder, RecorderHandle, RequestRecord, RouteNames, ranks_since, read_dump, record_of, select,
    write_dump,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use selvedge::detached::DetachedRequest;
use selvedge::proto::field::Fields;
use selvedge::proto::head::Version;
use selvedge::proto::limits::{METHOD_BYTES_MAX, MessageLimits};
use selvedge::proto::{Persistence, RequestLine, StatusCode};
use selvedge::service::{Exchange, PhaseTimes, RequestPhase, ResponseOutcome, StreamId};
use std::fs::File;
use std::io::{ErrorKind, Write};
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
    let of = |site, route, pattern| RouteNames { site, route, pattern };
    RecorderHandle::new(recorder, [of("", "", ""), of("a.example", "all", "/*")].into_iter())
}

/// Asserts that all parts of a record are of one request.
fn assert_whole(record: &RequestRecord) {
    let number = record.requests;
    assert_eq!((record.target.as_str(), record.content_bytes), (&*format!("line {number}"), number.into()));
    assert_eq!((record.elapsed_micros, record.completed_micros), (number, number.into()));
    assert!(RequestPhase::ALL.iter().all(|phase| record.phases.micros(*phase) == number));
    assert_eq!((record.site.as_str(), record.route.as_str(), record.reason.as_str()), ("a.example", "all", "why"));
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
fn a_route_is_found_by_its_name_and_by_its_first_pattern() {
    let recorder = Arc::new(Recorder::new(1).unwrap());
    record(&handle(&recorder), 1);
    for (route, count) in [("all", 1), ("/*", 1), ("", 0), ("a", 0), ("all\n/*", 0)] {
        let query = LastQuery { route: Some(route.to_owned()), count_max: 9, ..LastQuery::default() };
        assert_eq!(select(recorder.numbers(), &query).len(), count, "{route:?}");
    }
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
    // What is written has another name.
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 4);
    let numbers = read_dump(&folder.join("selvedge-last-6.gz")).unwrap();
    let records = select(&numbers, &LastQuery { count_max: 9, ..LastQuery::default() });
    records.iter().for_each(assert_whole);
    assert_eq!(records.iter().map(|record| record.requests).collect::<Vec<_>>(), [3, 2, 1]);
    std::fs::write(folder.join("other"), "text").unwrap();
    assert!(read_dump(&folder.join("other")).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_file_that_is_no_dump_is_not_read_to_its_end() {
    let path = std::env::temp_dir().join(format!("selvedge-no-dump-{}", std::process::id()));
    let header = |rings: u64| [FORMAT.to_ne_bytes(), rings.to_ne_bytes()].concat();
    for begin in [vec![0; 16], header(0), header(1), header(u64::MAX)] {
        // The end is broken, so a read up to it fails in another way.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&begin).unwrap();
        encoder.write_all(&vec![0; 20 << 20]).unwrap();
        let mut bytes = encoder.finish().unwrap();
        bytes.truncate(bytes.len() - 16);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(read_dump(&path).unwrap_err().kind(), ErrorKind::InvalidData, "{begin:?}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn damaged_numbers_are_skipped() {
    let recorder = Arc::new(Recorder::new(1).unwrap());
    (1..=3).for_each(|number| record(&handle(&recorder), number));
    let memory = recorder.numbers();
    let all = || select(memory, &LastQuery { count_max: usize::MAX, ..LastQuery::default() });
    assert_eq!(all().len(), 3);
    for damaged in [u64::MAX, u64::MAX - 1, u64::MAX / 2, 1 << 62] {
        memory[ring_count(0)].store(damaged, Ordering::Relaxed);
        assert_eq!(all(), [], "{damaged}");
        let id = Some((0, damaged - 1));
        assert_eq!(select(memory, &LastQuery { id, count_max: 1, ..LastQuery::default() }), [], "{damaged}");
    }
    // Any content of a record has a text.
    memory[ring_count(0)].store(3, Ordering::Relaxed);
    for seed in [1_u64, 0x9e37_79b9_7f4a_7c15, u64::MAX] {
        for (at, place) in memory[record_at(0, 1) + 1..record_at(0, 2)].iter().enumerate() {
            place.store(seed.wrapping_mul(at as u64 + 1), Ordering::Relaxed);
        }
        assert_eq!(all().len(), 3);
    }
}

/// Returns the record of a request for a path of a host, by a site with this first name.
fn recorded(site: &str, host: &str, path: &str) -> RequestRecord {
    recorded_request("GET", site, host, path)
}

/// Returns a recorder with this number of refused heads.
pub(crate) fn recorder_with(count: u32) -> Arc<Recorder> {
    let recorder = Arc::new(Recorder::new(1).unwrap());
    let handle = handle(&recorder);
    (1..=count).for_each(|number| record(&handle, number));
    recorder
}

/// Returns the record of a request.
pub(crate) fn sample_record() -> RequestRecord {
    recorded("a.example", "a.example", "/x")
}

/// Returns the record of a request with a method.
fn recorded_request(method: &str, site: &str, host: &str, path: &str) -> RequestRecord {
    let line = RequestLine { method: method.as_bytes(), target: path.as_bytes(), version: Version::Http11 };
    let fields = vec![(&b"host"[..], host.as_bytes())];
    let request = DetachedRequest { line, fields, peer: ([192, 0, 2, 7], 1).into(), tls: None };
    let request = request.build(&MessageLimits::default()).unwrap();
    let recorder = Arc::new(Recorder::new(1).unwrap());
    let handle = RecorderHandle::new(&recorder, [RouteNames { site, route: "/*", pattern: "/*" }].into_iter());
    handle.record(&Exchange { request: Some(&request), ..refused(1, "", &Fields::new()) }, 0, Duration::ZERO);
    let of = |id| select(recorder.numbers(), &LastQuery { id: Some(id), count_max: 1, ..LastQuery::default() });
    assert!([(0, 1), (1, 0), (0, u64::MAX)].into_iter().all(|other| of(other).is_empty()));
    of((0, 0)).remove(0)
}

#[test]
fn the_line_of_a_refused_head_has_no_query_and_no_password() {
    let long = format!("GET /{}", "a".repeat(80));
    for (line, expected, is_cut) in [
        ("GET /x HTTP/1.1", "GET /x HTTP/1.1", false),
        ("GET /x?token=secret HTTP/1.1", "GET /x", true),
        ("GET http://user:secret@a/x HTTP/1.1", "GET http://", true),
        ("GET http://user:a/b?c@d/x HTTP/1.1", "GET http://", true),
        ("GET http://a/x HTTP/1.1", "GET http://a/x HTTP/1.1", false),
        ("GET /@user HTTP/1.1", "GET /@user HTTP/1.1", false),
        ("", "", false),
        (&long, &long[..72], true),
    ] {
        let recorder = Arc::new(Recorder::new(1).unwrap());
        handle(&recorder).record(&refused(1, line, &Fields::new()), 1, Duration::ZERO);
        let record = record_of(recorder.numbers(), (0, 0)).unwrap();
        assert_eq!((record.target.as_str(), record.is_target_cut), (expected, is_cut), "{line}");
    }
}

#[test]
fn a_method_is_recorded_whole() {
    let longest = "M".repeat(METHOD_BYTES_MAX);
    let cut_path = format!("/{}", "b".repeat(71));
    for (method, host, path, expected, is_cut) in [
        ("DELETE", "b", "/x", "b /x", false),
        ("VERSIONS", "b", "/x", "b /x", false),
        ("PROPPATCH", "a.example", "/x", "a.example /x", false),
        ("MKCALENDAR", "b", "/x", "b /x", false),
        (&longest, "b", &cut_path, &format!("b {}", &cut_path[..72 - 25 - 1]), true),
        (&longest, "a.example", &cut_path, &format!("a.example {}", &cut_path[..72 - 25]), true),
    ] {
        let record = recorded_request(method, "a.example", host, path);
        assert_eq!(record.method, method);
        assert_eq!((format!("{} {}", record.host, record.target).as_str(), record.is_target_cut), (expected, is_cut));
    }
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
