//! Range requests: 206 with one part or several, 416, and ignored Range fields.

use super::representation::SIZES;
use crate::support::client::{Client, Response};
use crate::support::program::Program;
use crate::support::tree::{Tree, pattern};
use crate::support::wait::wait_until;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The expected outcome of a Range request.
#[derive(Debug)]
enum Outcome {
    Whole,
    Part(Range<usize>),
    Parts(Vec<Range<usize>>),
    Unsatisfiable,
}

/// Returns Range values and their outcomes for a file of this size.
fn rows(size: usize) -> Vec<(String, Outcome)> {
    use Outcome::{Part, Parts, Unsatisfiable, Whole};
    let mut rows = vec![
        (format!("bytes={size}-"), Unsatisfiable),
        (format!("bytes={}-{}", size + 5, size + 9), Unsatisfiable),
        ("bytes=-0".to_owned(), Unsatisfiable),
        ("bytes=18446744073709551616-".to_owned(), Unsatisfiable),
        (format!("bytes={size}-,{}-", size + 1), Unsatisfiable),
    ];
    for ignored in
        ["bytes=", "bytes=5-2", "bytes=a-b", "items=0-0", "0-0", "bytes=0-0x", "bytes=-9223372036854775608,-17208"]
    {
        // An empty file has no suffix of any length.
        if size > 0 || ignored.len() < 20 {
            rows.push((ignored.to_owned(), Whole));
        }
    }
    if size == 0 {
        rows.extend(["bytes=0-", "bytes=0-0"].map(|value| (value.to_owned(), Unsatisfiable)));
        // A suffix with a length is satisfiable, and Content-Range cannot describe nothing (RFC 9110 §14.1.2).
        rows.push(("bytes=-5".to_owned(), Whole));
        return rows;
    }
    rows.extend([
        ("bytes=0-0".to_owned(), Part(0..1)),
        ("bytes=0-".to_owned(), Part(0..size)),
        ("Bytes=0-".to_owned(), Part(0..size)),
        ("bytes=0-18446744073709551616".to_owned(), Part(0..size)),
        ("bytes=-1".to_owned(), Part(size - 1..size)),
        ("bytes=-99999999".to_owned(), Part(0..size)),
        (format!("bytes={}-", size - 1), Part(size - 1..size)),
        (format!("bytes={}-{}", size / 2, size / 2), Part(size / 2..size / 2 + 1)),
        (format!("bytes=0-0,{size}-"), Part(0..1)),
        ("bytes=0-,0-".to_owned(), Whole),
        (format!("bytes=0-0{}", ",0-0".repeat(1299)), Whole),
    ]);
    if size < 65_535 {
        return rows;
    }
    let (third, last) = (size / 3, size - 1);
    rows.extend([
        (format!("bytes={third}-{last}"), Part(third..size)),
        (format!("bytes=1-{}", last - 1), Part(1..last)),
        ("bytes=65000-65534".to_owned(), Part(65_000..65_535)),
        ("bytes=0-0,-1".to_owned(), Parts(vec![0..1, last..size])),
        ("bytes=-1 , 0-0".to_owned(), Parts(vec![last..size, 0..1])),
        // The whole file in two parts, the second one first.
        (format!("bytes={third}-{last},0-{}", third - 1), Parts(vec![third..size, 0..third])),
        (format!("bytes=0-9,10-19,{size}-"), Parts(vec![0..10, 10..20])),
        ("bytes=0-9,9-19".to_owned(), Whole),
        (separate_ranges(16), Parts((0..16).map(|n| n * 100..n * 100 + 10).collect())),
        (separate_ranges(17), Whole),
    ]);
    rows
}

/// Returns a Range value with `count` ranges that do not touch.
fn separate_ranges(count: usize) -> String {
    let ranges: Vec<String> = (0..count).map(|n| format!("{}-{}", n * 100, n * 100 + 9)).collect();
    format!("bytes={}", ranges.join(","))
}

#[test]
fn ranges_of_files_of_every_size() {
    let tree = Tree::new();
    for size in SIZES {
        tree.write(size.to_string(), pattern(size));
    }
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for size in SIZES {
        let content = pattern(size);
        let target = format!("/{size}");
        let plain = client.request("HEAD", &target, "");
        for (value, outcome) in rows(size) {
            let fields = format!("Range: {value}");
            check(&client.get_with(&target, &fields), &plain, &content, &outcome, &value);
            //= RFC 9110 §14.2: a Range is ignored unless the method is GET
            let head = client.request("HEAD", &target, &fields);
            assert_eq!((head.status, head.length(), head.field("content-range")), (200, size, None), "{value}");
        }
    }
}

fn check(response: &Response, plain: &Response, content: &[u8], outcome: &Outcome, value: &str) {
    let size = content.len();
    let content_range = |range: &Range<usize>| format!("bytes {}-{}/{size}", range.start, range.end - 1);
    match outcome {
        Outcome::Unsatisfiable => {
            let expected = format!("bytes */{size}");
            assert_eq!(
                (response.status, response.field("content-range")),
                (416, Some(&*expected)),
                "{value} of {size}"
            );
            return;
        }
        Outcome::Whole => {
            assert_eq!((response.status, response.field("content-range")), (200, None), "{value} of {size}");
            assert!(response.content == content, "{value} of {size}");
        }
        Outcome::Part(range) => {
            let expected = content_range(range);
            assert_eq!(
                (response.status, response.field("content-range")),
                (206, Some(&*expected)),
                "{value} of {size}"
            );
            assert!(response.content == content[range.clone()], "{value} of {size}");
        }
        Outcome::Parts(ranges) => {
            assert_eq!((response.status, response.field("content-range")), (206, None), "{value} of {size}");
            let parts = parts_of(response);
            let expected: Vec<_> = ranges.iter().map(|range| (content_range(range), &content[range.clone()])).collect();
            assert_eq!(parts.len(), expected.len(), "{value} of {size}");
            for ((kind, place, bytes), (expected_place, expected_bytes)) in parts.iter().zip(expected) {
                assert_eq!(Some(kind.as_str()), plain.field("content-type"), "{value} of {size}");
                assert_eq!(*place, expected_place, "{value} of {size}");
                assert!(bytes == expected_bytes, "{value} of {size}: {place}");
            }
        }
    }
    for name in ["etag", "last-modified", "accept-ranges"] {
        assert_eq!(response.field(name), plain.field(name), "{name}: {value} of {size}");
    }
}

/// Parses multipart/byteranges content (RFC 9110 §14.6, RFC 2046 §5.1.1). Returns the Content-Type, Content-Range
/// and bytes of each part.
fn parts_of(response: &Response) -> Vec<(String, String, Vec<u8>)> {
    let kind = response.field("content-type").expect("the response has a Content-Type");
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect(kind);
    assert!((1..=70).contains(&boundary.len()) && boundary.bytes().all(|b| b.is_ascii_alphanumeric()), "{boundary}");
    let (between, end) = (format!("\r\n--{boundary}\r\n"), format!("\r\n--{boundary}--\r\n"));
    let mut rest = response.content.strip_suffix(end.as_bytes()).expect("the content ends with the last boundary");
    let mut parts = Vec::new();
    while !rest.is_empty() {
        rest = rest.strip_prefix(between.as_bytes()).expect("a part begins with the boundary");
        let head_end = find(rest, b"\r\n\r\n").expect("a part has a head");
        let head = std::str::from_utf8(&rest[..head_end]).expect("a part's head is ASCII");
        let field = |name: &str| {
            let value = head.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.expect("a part has the field").to_owned()
        };
        rest = &rest[head_end + 4..];
        let length = find(rest, between.as_bytes()).unwrap_or(rest.len());
        parts.push((field("content-type"), field("content-range"), rest[..length].to_vec()));
        rest = &rest[length..];
    }
    parts
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[test]
fn boundaries_are_unpredictable() {
    let tree = Tree::new();
    tree.write("a", "0123456789");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let mut kind = || client.get_with("/a", "Range: bytes=0-0,2-2").field("content-type").map(str::to_owned);
    assert_ne!(kind(), kind());
}

#[test]
fn two_range_lines_are_ignored() {
    let tree = Tree::new();
    tree.write("a", "0123456789");
    let program = Program::serve(&tree);
    let response = program.connect().get_with("/a", "Range: bytes=0-0\nRange: bytes=2-2");
    assert_eq!((response.status, response.text()), (200, "0123456789"));
}

#[test]
fn if_range_matches_only_the_exact_state() {
    let tree = Tree::new();
    for (name, size) in [("small", 100), ("large", 200_000)] {
        tree.write(name, pattern(size));
        tree.set_modified(name, Duration::from_secs(784_111_777));
    }
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for target in ["/small", "/large"] {
        let tag = client.get(target).etag().to_owned();
        for (if_range, status) in [
            (tag.clone(), 206),
            // The time was set, so it can be that of another content, too.
            ("Sun, 06 Nov 1994 08:49:37 GMT".to_owned(), 200),
            //= RFC 9110 §13.1.5: a weak tag never matches
            (format!("W/{tag}"), 200),
            ("\"x\"".to_owned(), 200),
            (format!("{tag}, \"x\""), 200),
            ("*".to_owned(), 200),
            ("Sun, 06 Nov 1994 08:49:36 GMT".to_owned(), 200),
            ("Sun, 06 Nov 1994 08:49:38 GMT".to_owned(), 200),
            (String::new(), 200),
        ] {
            for range in ["bytes=0-0", "bytes=0-0,5-5"] {
                let response = client.get_with(target, &format!("Range: {range}\nIf-Range: {if_range}"));
                assert_eq!(response.status, status, "{target} {range} If-Range: {if_range}");
            }
            // An unsatisfiable range is ignored if If-Range does not match.
            let response = client.get_with(target, &format!("Range: bytes=9999999-\nIf-Range: {if_range}"));
            assert_eq!(response.status, if status == 206 { 416 } else { 200 }, "{target} If-Range: {if_range}");
        }
        // If-Range without Range is ignored.
        assert_eq!(client.get_with(target, &format!("If-Range: {tag}")).status, 200);
    }
    assert_a_date_joins_no_contents(&tree, &mut client);
}

//= RFC 9110 §8.8.2.2: a file may change twice in a second
fn assert_a_date_joins_no_contents(tree: &Tree, client: &mut Client) {
    let modified = |path: &Path| path.metadata().and_then(|facts| facts.modified()).expect("a time");
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    let mut attempts = 0;
    let (name, path, date) = wait_until("two contents have one date", || {
        attempts += 1;
        let name = format!("new-{attempts}");
        let first = seconds(modified(&tree.write(&name, pattern(100_000))));
        let date = client.get(&format!("/{name}")).field("last-modified").map(str::to_owned)?;
        let path = tree.write(&name, vec![b'x'; 100_000]);
        (seconds(modified(&path)) == first).then_some((name, path, date))
    });
    wait_until("the date is that of an earlier second", || {
        (seconds(SystemTime::now()) > seconds(modified(&path))).then_some(())
    });
    let response = client.get_with(&format!("/{name}"), &format!("Range: bytes=5-\nIf-Range: {date}"));
    assert_eq!((response.status, response.field("last-modified")), (200, Some(date.as_str())));
}
