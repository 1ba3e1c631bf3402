//! Compression of responses that no precompressed file exists for.

use crate::support::backend::Backend;
use crate::support::client::Response;
use crate::support::configured::Folder;
use crate::support::program::Program;
use crate::support::tree::Tree;
use crate::support::wait::wait_until;
use std::io::Read;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(1_700_000_000);

fn text(length: usize) -> String {
    let lines = (0_u64..).map(|number| format!("line {}\n", number * number % 977));
    lines.scan(0, |written, line| (*written < length).then(|| (*written += line.len(), line).1)).collect()
}

fn write(tree: &Tree, name: &str, content: &str) {
    tree.write(name, content);
    tree.set_modified(name, TIME);
}

fn decoded(response: &Response) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(&response.content[..]).read_to_string(&mut text).expect("the content is gzip");
    text
}

#[test]
fn a_file_is_compressed_at_once_and_better_later() {
    // In memory, in an open file that is cached, and in one that is compressed each time.
    for length in [20_000, 200_000, 5 << 20] {
        let (tree, content) = (Tree::new(), text(length));
        write(&tree, "a.css", &content);
        let program = Program::serve(&tree);
        let mut client = program.connect();
        let plain = client.get("/a.css");
        assert_eq!((plain.text(), plain.field("content-encoding")), (&*content, None));
        assert_eq!(plain.field("vary"), Some("accept-encoding"));
        let first = client.get_with("/a.css", "Accept-Encoding: gzip");
        assert_eq!((first.status, first.field("content-encoding")), (200, Some("gzip")), "{length}");
        assert_eq!(decoded(&first), content);
        let tag = format!("{}-gzip\"", plain.etag().trim_end_matches('"'));
        assert_eq!((first.etag(), first.field("accept-ranges")), (&*tag, None));
        if length <= 4 << 20 {
            wait_until("the file is compressed at the best level", || {
                let later = client.get_with("/a.css", "Accept-Encoding: gzip");
                assert_eq!(decoded(&later), content);
                assert_eq!(later.field("content-length"), Some(&*later.content.len().to_string()));
                (later.content.len() < first.content.len()).then_some(())
            });
        }
        let head = client.request("HEAD", "/a.css", "Accept-Encoding: gzip");
        assert_eq!((head.status, head.field("content-encoding"), head.etag()), (200, Some("gzip"), &*tag));
        let known = client.get_with("/a.css", &format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}"));
        assert_eq!((known.status, known.etag()), (304, &*tag));
        // A range is one of the file itself.
        let part = client.get_with("/a.css", "Accept-Encoding: gzip\r\nRange: bytes=0-3");
        assert_eq!((part.status, part.text(), part.field("content-encoding")), (206, "line", None));
        for coding in ["br", "zstd"] {
            let response = client.get_with("/a.css", &format!("Accept-Encoding: {coding}"));
            assert_eq!(response.field("content-encoding"), Some(coding));
            assert!(response.content.len() < content.len());
        }
    }
}

#[test]
fn what_does_not_shrink_is_sent_as_it_is() {
    let tree = Tree::new();
    write(&tree, "short.txt", "short");
    write(&tree, "a.jpg", &text(20_000));
    write(&tree, "b.css", &text(20_000));
    write(&tree, "b.css.gz", "precompressed");
    write(&tree, "a.svgz", &text(20_000));
    let mut seed = 1_u64;
    let noise = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    });
    tree.write("noise.txt", noise.take(5_000).collect::<Vec<_>>());
    tree.set_modified("noise.txt", TIME);
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for (path, coding) in
        [("/short.txt", None), ("/a.jpg", None), ("/noise.txt", None), ("/noise.txt", None), ("/b.css", Some("gzip"))]
    {
        let response = client.get_with(path, "Accept-Encoding: gzip");
        assert_eq!((response.status, response.field("content-encoding")), (200, coding), "{path}");
    }
    // Its own coding is the only one.
    let own = client.get_with("/a.svgz", "Accept-Encoding: br");
    assert_eq!((own.text(), own.field("content-encoding"), own.field("vary")), (&*text(20_000), Some("gzip"), None));
    assert_eq!(client.get_with("/b.css", "Accept-Encoding: gzip").text(), "precompressed");
    assert_eq!(client.get_with("/b.css", "Accept-Encoding: br").field("content-encoding"), Some("br"));
    let plain = Program::serve_with(&tree, &["--no-compress"]);
    let response = plain.connect().get_with("/b.css", "Accept-Encoding: br");
    assert_eq!((response.field("content-encoding"), response.field("vary")), (None, Some("accept-encoding")));
}

#[test]
fn a_changed_file_is_compressed_again() {
    let tree = Tree::new();
    write(&tree, "a.css", &text(20_000));
    let program = Program::serve(&tree);
    let mut client = program.connect();
    assert_eq!(decoded(&client.get_with("/a.css", "Accept-Encoding: gzip")), text(20_000));
    write(&tree, "a.css", &text(30_000));
    wait_until("the new file is sent", || {
        (decoded(&client.get_with("/a.css", "Accept-Encoding: gzip")) == text(30_000)).then_some(())
    });
}

#[test]
fn responses_of_applications_are_compressed_unless_they_may_have_secrets() {
    let backend = Backend::start();
    let configured = Folder::new(&format!(
        "site \"*\" {{\n    compress #true\n    route \"/text/raw\" {{ compress #false; proxy \"http://{0}\"; }}\n    \
         route \"/*\" {{ proxy \"http://{0}\"; }}\n}}\n",
        backend.address()
    ));
    let program = configured.serve();
    let mut client = program.connect();
    let whole = client.get("/text");
    let response = client.get_with("/text", "Accept-Encoding: gzip");
    assert_eq!((response.status, response.field("content-encoding")), (200, Some("gzip")));
    assert_eq!((decoded(&response).as_str(), response.field("etag")), (whole.text(), Some("W/\"1\"")));
    for (path, fields) in [("/text", "Accept-Encoding: gzip\r\nCookie: a=b"), ("/text/raw", "Accept-Encoding: gzip")] {
        let response = client.get_with(path, fields);
        assert_eq!((response.text(), response.field("content-encoding")), (whole.text(), None), "{path}");
    }
}

#[test]
fn fields_of_the_site_forbid_codings_of_files() {
    let digest = "header \"Content-Digest\" \"sha-256=:RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=:\"";
    let configured = Folder::new(&format!(
        "site \"*\" {{\n    root \"www\"\n    compress #true\n    cache-control \"*.js\" \"no-transform, max-age=60\"\n    \
         route \"/raw/*\" {{ files; header \"Cache-Control\" \"no-transform\"; }}\n    \
         route \"/host/*\" {{ files; header \"Cache-Control\" \"no-transform\"; header \"X-Host\" \"{{host}}\"; }}\n    \
         route \"/sum/*\" {{ files; {digest}; }}\n    route \"/page/*\" {{ files fallback=\"/app.js\"; }}\n}}\n"
    ));
    for name in ["a.css", "app.js", "raw/a.css", "host/a.css", "sum/a.css"] {
        configured.write(&format!("www/{name}"), &text(4_000));
        configured.write(&format!("www/{name}.gz"), "precompressed");
    }
    let program = configured.serve();
    let mut client = program.connect();
    // At first from the disk, later from the cache.
    for round in 0..40 {
        for (target, zstd, gzip) in [
            ("/a.css", Some("zstd"), Some("gzip")),
            ("/app.js", None, Some("gzip")),
            ("/page/none", None, Some("gzip")),
            ("/raw/a.css", None, Some("gzip")),
            ("/host/a.css", None, Some("gzip")),
            ("/sum/a.css", None, None),
        ] {
            for (accepted, expected) in [("zstd", zstd), ("gzip", gzip), ("zstd, gzip;q=0.5", zstd.or(gzip))] {
                let lines = format!("Accept-Encoding: {accepted}\nSec-Fetch-Mode: navigate");
                let response = client.get_with(target, &lines);
                let coding = response.field("content-encoding");
                assert_eq!((response.status, coding), (200, expected), "{target} {accepted} {round}");
                assert!(coding.is_some() || response.text() == text(4_000), "{target}");
            }
        }
        if round == 20 {
            wait_until("the files are cached", || {
                let changed = std::fs::metadata(configured.path("www/sum/a.css.gz")).ok()?.modified().ok()?;
                (changed.elapsed().ok()? > Duration::from_millis(200)).then_some(())
            });
        }
    }
}
