//! Preconditions: 304 and 412, in the order of RFC 9110 §13.2.2.

use crate::support::program::Program;
use crate::support::tree::Tree;
use std::time::Duration;

const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const EQUAL: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

/// Returns fields and the expected status; `TAG` is a placeholder for the file's entity tag.
fn rows() -> Vec<(String, u16)> {
    let rows: &[(&str, u16)] = &[
        ("If-None-Match: TAG", 304),
        ("If-None-Match: W/TAG", 304),
        ("If-None-Match: *", 304),
        ("If-None-Match: \"x\", TAG", 304),
        ("If-None-Match: \"x\"\nIf-None-Match: TAG", 304),
        ("If-None-Match: \"x\"", 200),
        ("If-None-Match: x", 200),
        ("If-None-Match: \"\"", 200),
        ("If-Modified-Since: EQUAL", 304),
        ("If-Modified-Since: AFTER", 304),
        ("If-Modified-Since: BEFORE", 200),
        ("If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT", 304),
        ("If-Modified-Since: Sun Nov  6 08:49:37 1994", 304),
        ("If-Modified-Since: yesterday", 200),
        ("If-Match: TAG", 200),
        ("If-Match: *", 200),
        ("If-Match: \"x\", TAG", 200),
        ("If-Match: W/TAG", 412),
        ("If-Match: \"x\"", 412),
        ("If-Unmodified-Since: EQUAL", 200),
        ("If-Unmodified-Since: AFTER", 200),
        ("If-Unmodified-Since: BEFORE", 412),
        ("If-Unmodified-Since: yesterday", 200),
        // If a tag is present, the date is ignored.
        ("If-None-Match: \"x\"\nIf-Modified-Since: EQUAL", 200),
        ("If-None-Match: TAG\nIf-Modified-Since: BEFORE", 304),
        ("If-Match: TAG\nIf-Unmodified-Since: BEFORE", 200),
        // If-Match and If-Unmodified-Since are evaluated before If-None-Match and If-Modified-Since.
        ("If-Match: \"x\"\nIf-None-Match: TAG", 412),
        ("If-Match: TAG\nIf-None-Match: TAG", 304),
        ("If-Unmodified-Since: BEFORE\nIf-None-Match: TAG", 412),
        ("If-Unmodified-Since: EQUAL\nIf-Modified-Since: EQUAL", 304),
        // Preconditions are evaluated before Range.
        ("If-None-Match: TAG\nRange: bytes=0-0", 304),
        ("If-Match: \"x\"\nRange: bytes=0-0", 412),
        ("If-None-Match: TAG\nRange: bytes=999999999-", 304),
    ];
    let dated = |fields: &str| fields.replace("BEFORE", BEFORE).replace("EQUAL", EQUAL).replace("AFTER", AFTER);
    rows.iter().map(|&(fields, status)| (dated(fields), status)).collect()
}

#[test]
fn preconditions_are_evaluated_in_order() {
    let tree = Tree::new();
    // Cached in memory, sent from the file, and the index of a directory.
    for (name, content) in [("small", vec![b'A'; 10]), ("large", vec![b'A'; 70_000]), ("dir/index.html", vec![b'A'; 5])]
    {
        tree.write(name, content);
        tree.set_modified(name, Duration::from_secs(784_111_777));
    }
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for target in ["/small", "/large", "/dir/"] {
        let plain = client.get(target);
        for (fields, status) in rows() {
            let fields = fields.replace("TAG", plain.etag());
            for method in ["GET", "HEAD"] {
                let response = client.request(method, target, &fields);
                assert_eq!(response.status, status, "{method} {target} {fields}");
                match status {
                    200 => assert!(method == "HEAD" || response.content == plain.content),
                    //= RFC 9110 §15.4.5: the validators of a 200 response, and no content
                    304 => {
                        assert_eq!(response.field("etag"), plain.field("etag"));
                        assert_eq!(response.field("last-modified"), plain.field("last-modified"));
                        assert_eq!(response.field("content-type"), None);
                    }
                    _ => assert_eq!(response.field("etag"), None),
                }
            }
        }
    }
}

#[test]
fn missing_files_and_redirects_ignore_preconditions() {
    let tree = Tree::new();
    tree.create_dir("dir");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for fields in ["If-None-Match: *", "If-Match: *", "If-Match: \"x\"", "Range: bytes=0-0"] {
        for (target, status) in [("/missing", 404), ("/dir", 301), ("/dir/", 404)] {
            assert_eq!(client.get_with(target, fields).status, status, "{target} {fields}");
        }
    }
}
