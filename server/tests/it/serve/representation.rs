//! Representations of files: type, entity tag, date, length, and the complete content.

use crate::support::program::Program;
use crate::support::tree::{Tree, pattern};
use std::collections::HashSet;
use std::time::Duration;

/// Sizes around the limits for the memory cache (32 KiB) and for one send (1 MiB).
pub(crate) const SIZES: [usize; 9] = [0, 1, 32_767, 32_768, 32_769, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20];

#[test]
fn files_of_every_size_are_sent_completely() {
    let tree = Tree::new();
    for size in SIZES {
        tree.write(size.to_string(), pattern(size));
    }
    let program = Program::serve(&tree);
    let mut client = program.connect();
    // Before and after a worker caches them.
    for _ in 0..3 {
        for size in SIZES {
            let response = client.get(&format!("/{size}"));
            assert_eq!((response.status, response.length()), (200, size));
            assert!(response.content == pattern(size), "{size} bytes");
            assert_eq!(client.request("HEAD", &format!("/{size}"), "").length(), size);
        }
        tree.wait_until_stable("0");
    }
    // Pipelined, so that responses of all sizes follow each other.
    for size in SIZES {
        client.send_request("GET", &format!("/{size}"), "");
        client.send_request("HEAD", &format!("/{size}"), "");
    }
    for size in SIZES {
        assert!(client.receive("GET").unwrap().content == pattern(size), "{size} bytes");
        assert_eq!(client.receive("HEAD").unwrap().length(), size);
    }
}

#[test]
fn a_large_file_is_sent_to_many_clients_at_once() {
    let tree = Tree::new();
    let content = pattern(5 << 20);
    tree.write("large", &content);
    let program = Program::serve_with(&tree, &["--workers", "1"]);
    let mut clients: Vec<_> = (0..8).map(|_| program.connect()).collect();
    clients.iter_mut().for_each(|client| client.send_request("GET", "/large", ""));
    for client in &mut clients {
        assert!(client.receive("GET").unwrap().content == content);
    }
}

#[test]
fn types_follow_names() {
    let tree = Tree::new();
    let rows = [
        ("a.html", "text/html; charset=utf-8"),
        ("a.htm", "text/html; charset=utf-8"),
        ("A.HTML", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.csv", "text/csv; charset=utf-8"),
        ("a.xml", "text/xml; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.webmanifest", "application/manifest+json"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.webp", "image/webp"),
        ("a.avif", "image/avif"),
        ("a.ico", "image/x-icon"),
        ("a.woff2", "font/woff2"),
        ("a.wasm", "application/wasm"),
        ("a.pdf", "application/pdf"),
        ("a.mp4", "video/mp4"),
        ("a.txt.gz", "application/gzip"),
        ("a.unknown", "application/octet-stream"),
        ("README", "application/octet-stream"),
        ("a.", "application/octet-stream"),
    ];
    for (name, _) in rows {
        tree.write(name, name);
    }
    tree.write("index.html", "home");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for (name, expected) in rows.into_iter().chain([("", "text/html; charset=utf-8")]) {
        let response = client.get(&format!("/{name}"));
        assert_eq!((response.status, response.field("content-type")), (200, Some(expected)), "{name}");
        assert_eq!(response.field("content-encoding"), None, "{name}");
    }
}

#[test]
fn tags_follow_content_and_dates_follow_times() {
    let tree = Tree::new();
    tree.write("a", "12345");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let second = Duration::from_secs(784_111_777);
    let states: [(Duration, &str, &str); 4] = [
        (second, "12345", "Sun, 06 Nov 1994 08:49:37 GMT"),
        (second + Duration::from_nanos(1), "54321", "Sun, 06 Nov 1994 08:49:37 GMT"),
        (second + Duration::from_secs(1), "123456", "Sun, 06 Nov 1994 08:49:38 GMT"),
        (second, "", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ];
    let mut tags = HashSet::new();
    for (number, (modified, content, date)) in states.into_iter().enumerate() {
        let name = format!("a{number}");
        tree.write(&name, content);
        tree.set_modified(&name, modified);
        let response = client.get(&format!("/{name}"));
        assert_eq!(response.text(), content);
        assert!(tags.insert(response.etag().to_owned()), "{} identifies other content", response.etag());
        assert_eq!(client.get(&format!("/{name}")).etag(), response.etag());
        assert_eq!(response.field("accept-ranges"), Some("bytes"));
        assert_eq!(response.field("vary"), None);
        assert_eq!(response.field("last-modified"), Some(date));
    }
    // The tag of a small file depends on its content alone.
    tree.write("copy", "12345");
    assert!(tags.contains(client.get("/copy").etag()));
}

#[test]
fn an_index_has_the_representation_of_its_file() {
    let tree = Tree::new();
    tree.write("dir/index.html", "index");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let (as_directory, as_file) = (client.get("/dir/"), client.get("/dir/index.html"));
    assert_eq!(as_directory.content, as_file.content);
    for name in ["etag", "last-modified", "content-type", "accept-ranges"] {
        assert_eq!(as_directory.field(name), as_file.field(name), "{name}");
    }
}
