//! Precompressed files (sidecars): encoded copies of a file, chosen by Accept-Encoding.

use crate::support::program::Program;
use crate::support::tree::{Tree, pattern};
use crate::support::wait::wait_until;
use std::fs;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(1_700_000_000);

/// Writes a file and its precompressed files with equal modification times. The content of each is its name.
fn write(tree: &Tree, name: &str, suffixes: &[&str]) {
    for suffix in [""].iter().chain(suffixes) {
        let name = format!("{name}{suffix}");
        tree.write(&name, &name);
        tree.set_modified(&name, TIME);
    }
}

#[test]
fn the_best_acceptable_coding_is_sent() {
    let tree = Tree::new();
    write(&tree, "all.txt", &[".br", ".zst", ".gz"]);
    write(&tree, "gz.txt", &[".gz"]);
    write(&tree, "zst-gz.txt", &[".zst", ".gz"]);
    write(&tree, "none.txt", &[]);
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let rows: &[(&str, Option<&str>, &str)] = &[
        ("all.txt", None, ""),
        ("all.txt", Some(""), ""),
        ("all.txt", Some("gzip, deflate, br, zstd"), ".br"),
        ("all.txt", Some("gzip, zstd"), ".zst"),
        ("all.txt", Some("gzip"), ".gz"),
        ("all.txt", Some("x-gzip"), ".gz"),
        ("all.txt", Some("GZIP"), ".gz"),
        ("all.txt", Some("*"), ".br"),
        ("all.txt", Some("br;q=0, *"), ".zst"),
        ("all.txt", Some("br;q=0.5, gzip;q=0.8, zstd;q=0.7"), ".gz"),
        ("all.txt", Some("br;q=0.001"), ".br"),
        ("all.txt", Some("gzip;q=0"), ""),
        ("all.txt", Some("*;q=0"), ""),
        // No acceptable coding: the file itself is more useful than 406.
        ("all.txt", Some("identity;q=0"), ""),
        ("all.txt", Some("identity;q=0, gzip"), ".gz"),
        ("all.txt", Some("identity, gzip;q=0.5"), ""),
        ("all.txt", Some("identity;q=0.5, gzip;q=0.5"), ".gz"),
        ("all.txt", Some("gzip;q=1.001"), ""),
        ("all.txt", Some("gzip;q=zzz, br;q=0.1"), ".br"),
        ("all.txt", Some("compress, deflate"), ""),
        ("all.txt", Some("gzip\nAccept-Encoding: br"), ".br"),
        ("gz.txt", Some("gzip, br"), ".gz"),
        ("gz.txt", Some("br"), ""),
        ("gz.txt", Some("br, gzip;q=0.1"), ".gz"),
        ("zst-gz.txt", Some("br, gzip, zstd"), ".zst"),
        ("none.txt", Some("gzip, br"), ""),
    ];
    for &(name, accept, suffix) in rows {
        let fields = accept.map_or(String::new(), |accept| format!("Accept-Encoding: {accept}"));
        let response = client.get_with(&format!("/{name}"), &fields);
        let coding = match suffix {
            ".br" => Some("br"),
            ".zst" => Some("zstd"),
            ".gz" => Some("gzip"),
            _ => None,
        };
        assert_eq!(response.text(), format!("{name}{suffix}"), "{name} {accept:?}");
        assert_eq!((response.status, response.field("content-encoding")), (200, coding), "{name} {accept:?}");
        // The type is that of the file, and Vary is present if the file has precompressed files.
        assert_eq!(response.field("content-type"), Some("text/plain; charset=utf-8"), "{name} {accept:?}");
        let vary = (name != "none.txt").then_some("accept-encoding");
        assert_eq!(response.field("vary").map(str::to_ascii_lowercase).as_deref(), vary, "{name} {accept:?}");
    }
    // Requested by its own name, a precompressed file is an ordinary file.
    let response = client.get_with("/all.txt.gz", "Accept-Encoding: gzip");
    assert_eq!((response.text(), response.field("content-encoding")), ("all.txt.gz", None));
}

#[test]
fn each_coding_is_a_representation_of_its_own() {
    let tree = Tree::new();
    // Equal sizes and times, so that only the coding distinguishes them.
    for name in ["a.txt", "a.txt.br", "a.txt.zst", "a.txt.gz"] {
        tree.write(name, "0123456789");
        tree.set_modified(name, TIME);
    }
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let codings = ["identity", "br", "zstd", "gzip"];
    let tags = codings.map(|coding| client.get_with("/a.txt", &format!("Accept-Encoding: {coding}")).etag().to_owned());
    for (index, coding) in codings.iter().enumerate() {
        for (other, tag) in tags.iter().enumerate() {
            assert_eq!(tags[index] == *tag, index == other, "{tags:?}");
            let accept = format!("Accept-Encoding: {coding}");
            let response = client.get_with("/a.txt", &format!("{accept}\nIf-None-Match: {tag}"));
            assert_eq!(response.status, if index == other { 304 } else { 200 }, "{coding} {tag}");
            assert_eq!(response.field("vary"), Some("accept-encoding"));
            let response = client.get_with("/a.txt", &format!("{accept}\nIf-Range: {tag}\nRange: bytes=1-2"));
            assert_eq!(response.status, if index == other { 206 } else { 200 }, "{coding} {tag}");
        }
    }
}

#[test]
fn a_range_applies_to_the_chosen_representation() {
    let tree = Tree::new();
    for (size, sidecar_size) in [(1_000, 600), (300_000, 100_000)] {
        let name = format!("{size}.txt");
        tree.write(&name, vec![b'x'; size]);
        tree.write(format!("{name}.gz"), pattern(sidecar_size));
        let program = Program::serve(&tree);
        let mut client = program.connect();
        let last = sidecar_size - 1;
        let response = client.get_with(&format!("/{name}"), "Accept-Encoding: gzip\nRange: bytes=500-");
        assert_eq!((response.status, response.field("content-encoding")), (206, Some("gzip")));
        assert_eq!(response.field("content-range"), Some(&*format!("bytes 500-{last}/{sidecar_size}")));
        assert!(response.content == pattern(sidecar_size)[500..]);
        let response = client.get_with(&format!("/{name}"), &format!("Accept-Encoding: gzip\nRange: bytes={size}-"));
        let expected = format!("bytes */{sidecar_size}");
        assert_eq!((response.status, response.field("content-range")), (416, Some(&*expected)));
        let response = client.get_with(&format!("/{name}"), "Range: bytes=0-0");
        assert_eq!((response.status, response.field("content-encoding")), (206, None));
        assert_eq!(response.field("content-range"), Some(&*format!("bytes 0-0/{size}")));
    }
}

#[test]
fn a_precompressed_file_older_than_its_file_is_ignored() {
    let tree = Tree::new();
    let nanosecond = Duration::from_nanos(1);
    for (name, modified, is_used) in [
        ("older.txt", TIME - Duration::from_secs(3600), false),
        ("little-older.txt", TIME - nanosecond, false),
        ("same.txt", TIME, true),
        ("newer.txt", TIME + nanosecond, true),
    ] {
        write(&tree, name, &[".gz"]);
        tree.set_modified(&format!("{name}.gz"), modified);
        let program = Program::serve(&tree);
        let response = program.connect().get_with(&format!("/{name}"), "Accept-Encoding: gzip");
        assert_eq!(response.field("content-encoding").is_some(), is_used, "{name}");
        assert_eq!(response.field("vary").is_some(), is_used, "{name}");
        assert_eq!(response.text(), if is_used { format!("{name}.gz") } else { name.to_owned() });
    }
}

#[test]
fn only_regular_files_below_the_root_are_precompressed_files() {
    let tree = Tree::new();
    write(&tree, "a.txt", &[]);
    fs::write(tree.outside("secret"), "secret").unwrap();
    tree.create_dir("a.txt.br");
    tree.symlink("../secret", "a.txt.zst");
    tree.fifo("a.txt.gz");
    write(&tree, "b.txt", &[]);
    tree.symlink("b.txt.real", "b.txt.gz");
    tree.write("b.txt.real", "linked");
    let program = Program::serve_with(&tree, &["--workers", "1"]);
    let mut client = program.connect();
    let response = client.get_with("/a.txt", "Accept-Encoding: br, zstd, gzip");
    assert_eq!((response.text(), response.field("content-encoding"), response.field("vary")), ("a.txt", None, None));
    let response = client.get_with("/b.txt", "Accept-Encoding: gzip");
    assert_eq!((response.text(), response.field("content-encoding")), ("linked", Some("gzip")));
}

#[test]
fn a_directory_index_has_precompressed_files() {
    let tree = Tree::new();
    write(&tree, "index.html", &[".gz"]);
    write(&tree, "dir/index.html", &[".br"]);
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for (target, expected) in [("/", "index.html.gz"), ("/index.html", "index.html.gz"), ("/dir/", "dir/index.html.br")]
    {
        let response = client.get_with(target, "Accept-Encoding: gzip, br");
        assert_eq!(response.text(), expected);
        assert_eq!(response.field("content-type"), Some("text/html; charset=utf-8"));
    }
}

#[test]
fn precompressed_files_may_appear_and_disappear() {
    let tree = Tree::new();
    write(&tree, "a.txt", &[]);
    tree.wait_until_stable("a.txt");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let mut becomes = |expected: &str| {
        wait_until(expected, || {
            let response = client.get_with("/a.txt", "Accept-Encoding: gzip");
            let content = response.text().to_owned();
            assert_eq!(response.field("content-encoding").is_some(), content.starts_with("coded"), "{content}");
            (content == expected).then_some(())
        });
    };
    becomes("a.txt");
    tree.replace("a.txt.gz", "coded 1");
    becomes("coded 1");
    tree.replace("a.txt.gz", "coded 2");
    becomes("coded 2");
    // After a change of the file, its precompressed file is outdated.
    tree.replace("a.txt", "plain");
    tree.set_modified("a.txt.gz", TIME);
    becomes("plain");
    tree.replace("a.txt.gz", "coded 3");
    becomes("coded 3");
    fs::remove_file(tree.path("a.txt.gz")).unwrap();
    becomes("plain");
    // An empty file is no content in a coding.
    tree.replace("a.txt", "next");
    tree.replace("a.txt.gz", "");
    becomes("next");
}

#[test]
fn a_very_long_accept_encoding_is_parsed() {
    let tree = Tree::new();
    write(&tree, "a.txt", &[".gz"]);
    let program = Program::serve(&tree);
    let accept = format!("Accept-Encoding: {}gzip", "x,".repeat(4_000));
    let response = program.connect().get_with("/a.txt", &accept);
    assert_eq!((response.status, response.text()), (200, "a.txt"));
}
