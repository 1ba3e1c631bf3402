//! Sidecars: files that hold another in a content coding, chosen by Accept-Encoding.

use super::program::Program;
use super::tree::{Tree, pattern};
use super::wait::until;
use std::fs;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(1_700_000_000);

/// Writes a file and sidecars of one age, each with content that tells which it is.
fn write(tree: &Tree, name: &str, suffixes: &[&str]) {
    for suffix in [""].iter().chain(suffixes) {
        let name = format!("{name}{suffix}");
        tree.write(&name, &name);
        tree.modified(&name, TIME);
    }
}

#[test]
fn the_best_that_the_client_takes_is_sent() {
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
        // Nothing acceptable: what was not asked for serves better than 406.
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
        let answer = client.get_with(&format!("/{name}"), &fields);
        let coding = match suffix {
            ".br" => Some("br"),
            ".zst" => Some("zstd"),
            ".gz" => Some("gzip"),
            _ => None,
        };
        assert_eq!(answer.text(), format!("{name}{suffix}"), "{name} {accept:?}");
        assert_eq!((answer.status, answer.field("content-encoding")), (200, coding), "{name} {accept:?}");
        // The type is the file's, and a cache is told of every choice there was.
        assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"), "{name} {accept:?}");
        let vary = (name != "none.txt").then_some("accept-encoding");
        assert_eq!(answer.field("vary").map(str::to_ascii_lowercase).as_deref(), vary, "{name} {accept:?}");
    }
    // By its own name a sidecar is a file like others.
    let answer = client.get_with("/all.txt.gz", "Accept-Encoding: gzip");
    assert_eq!((answer.text(), answer.field("content-encoding")), ("all.txt.gz", None));
}

#[test]
fn each_coding_is_a_representation_of_its_own() {
    let tree = Tree::new();
    // The same size and time, so that nothing but the coding tells them apart.
    for name in ["a.txt", "a.txt.br", "a.txt.zst", "a.txt.gz"] {
        tree.write(name, "0123456789");
        tree.modified(name, TIME);
    }
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let codings = ["identity", "br", "zstd", "gzip"];
    let tags = codings.map(|coding| client.get_with("/a.txt", &format!("Accept-Encoding: {coding}")).etag().to_owned());
    for (place, coding) in codings.iter().enumerate() {
        for (other, tag) in tags.iter().enumerate() {
            assert_eq!(tags[place] == *tag, place == other, "{tags:?}");
            let accept = format!("Accept-Encoding: {coding}");
            let answer = client.get_with("/a.txt", &format!("{accept}\nIf-None-Match: {tag}"));
            assert_eq!(answer.status, if place == other { 304 } else { 200 }, "{coding} {tag}");
            assert_eq!(answer.field("vary"), Some("accept-encoding"));
            let answer = client.get_with("/a.txt", &format!("{accept}\nIf-Range: {tag}\nRange: bytes=1-2"));
            assert_eq!(answer.status, if place == other { 206 } else { 200 }, "{coding} {tag}");
        }
    }
}

#[test]
fn a_range_is_one_of_the_chosen_representation() {
    let tree = Tree::new();
    for (size, sidecar_size) in [(1_000, 600), (300_000, 100_000)] {
        let name = format!("{size}.txt");
        tree.write(&name, vec![b'x'; size]);
        tree.write(format!("{name}.gz"), pattern(sidecar_size));
        let program = Program::serve(&tree);
        let mut client = program.connect();
        let last = sidecar_size - 1;
        let answer = client.get_with(&format!("/{name}"), "Accept-Encoding: gzip\nRange: bytes=500-");
        assert_eq!((answer.status, answer.field("content-encoding")), (206, Some("gzip")));
        assert_eq!(answer.field("content-range"), Some(&*format!("bytes 500-{last}/{sidecar_size}")));
        assert!(answer.content == pattern(sidecar_size)[500..]);
        let answer = client.get_with(&format!("/{name}"), &format!("Accept-Encoding: gzip\nRange: bytes={size}-"));
        let expected = format!("bytes */{sidecar_size}");
        assert_eq!((answer.status, answer.field("content-range")), (416, Some(&*expected)));
        let answer = client.get_with(&format!("/{name}"), "Range: bytes=0-0");
        assert_eq!((answer.status, answer.field("content-encoding")), (206, None));
        assert_eq!(answer.field("content-range"), Some(&*format!("bytes 0-0/{size}")));
    }
}

#[test]
fn a_sidecar_older_than_its_file_belongs_to_an_earlier_state() {
    let tree = Tree::new();
    let nanosecond = Duration::from_nanos(1);
    for (name, modified, counts) in [
        ("older.txt", TIME - Duration::from_secs(3600), false),
        ("little-older.txt", TIME - nanosecond, false),
        ("same.txt", TIME, true),
        ("newer.txt", TIME + nanosecond, true),
    ] {
        write(&tree, name, &[".gz"]);
        tree.modified(&format!("{name}.gz"), modified);
        let program = Program::serve(&tree);
        let answer = program.connect().get_with(&format!("/{name}"), "Accept-Encoding: gzip");
        assert_eq!(answer.field("content-encoding").is_some(), counts, "{name}");
        assert_eq!(answer.field("vary").is_some(), counts, "{name}");
        assert_eq!(answer.text(), if counts { format!("{name}.gz") } else { name.to_owned() });
    }
}

#[test]
fn what_is_no_file_beneath_the_root_is_no_sidecar() {
    let tree = Tree::new();
    write(&tree, "a.txt", &[]);
    fs::write(tree.outside("secret"), "secret").unwrap();
    tree.dir("a.txt.br");
    tree.link("../secret", "a.txt.zst");
    tree.fifo("a.txt.gz");
    write(&tree, "b.txt", &[]);
    tree.link("b.txt.real", "b.txt.gz");
    tree.write("b.txt.real", "linked");
    let program = Program::serve_with(&tree, &["--workers", "1"]);
    let mut client = program.connect();
    let answer = client.get_with("/a.txt", "Accept-Encoding: br, zstd, gzip");
    assert_eq!((answer.text(), answer.field("content-encoding"), answer.field("vary")), ("a.txt", None, None));
    let answer = client.get_with("/b.txt", "Accept-Encoding: gzip");
    assert_eq!((answer.text(), answer.field("content-encoding")), ("linked", Some("gzip")));
}

#[test]
fn a_directory_s_index_has_sidecars() {
    let tree = Tree::new();
    write(&tree, "index.html", &[".gz"]);
    write(&tree, "dir/index.html", &[".br"]);
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for (target, expected) in [("/", "index.html.gz"), ("/index.html", "index.html.gz"), ("/dir/", "dir/index.html.br")]
    {
        let answer = client.get_with(target, "Accept-Encoding: gzip, br");
        assert_eq!(answer.text(), expected);
        assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
    }
}

#[test]
fn sidecars_come_and_go_while_the_file_is_asked_for() {
    let tree = Tree::new();
    write(&tree, "a.txt", &[]);
    tree.settled("a.txt");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    let mut becomes = |expected: &str| {
        until(expected, || {
            let answer = client.get_with("/a.txt", "Accept-Encoding: gzip");
            let says = answer.text().to_owned();
            assert_eq!(answer.field("content-encoding").is_some(), says.starts_with("coded"), "{says}");
            (says == expected).then_some(())
        });
    };
    becomes("a.txt");
    tree.replace("a.txt.gz", "coded 1");
    becomes("coded 1");
    tree.replace("a.txt.gz", "coded 2");
    becomes("coded 2");
    // A new file makes the sidecar old.
    tree.replace("a.txt", "plain");
    tree.modified("a.txt.gz", TIME);
    becomes("plain");
    tree.replace("a.txt.gz", "coded 3");
    becomes("coded 3");
    fs::remove_file(tree.path("a.txt.gz")).unwrap();
    becomes("plain");
}

#[test]
fn a_flood_of_codings_is_read_to_an_end() {
    let tree = Tree::new();
    write(&tree, "a.txt", &[".gz"]);
    let program = Program::serve(&tree);
    let accept = format!("Accept-Encoding: {}gzip", "x,".repeat(4_000));
    let answer = program.connect().get_with("/a.txt", &accept);
    assert_eq!((answer.status, answer.text()), (200, "a.txt"));
}
