//! The same requests in every way, answer by answer.

use super::asking::{Answer, Ask, Server};
use super::folder::Folder;
use axum::Router;
use selvedge_server::ServeDir;

/// Larger than files that are kept as bytes.
fn large() -> Vec<u8> {
    (0..300_000).map(|at| b'a' + (at % 23) as u8).collect()
}

fn folder() -> Folder {
    let large = large();
    Folder::new(&[
        ("index.html", b"<!doctype html>home"),
        ("hello.txt", b"0123456789"),
        ("empty.txt", b""),
        ("large.txt", &large),
        ("style.css", b"body { color: black }"),
        ("style.css.br", b"a brotli stream"),
        ("style.css.gz", b"a gzip stream"),
        ("docs/index.html", b"docs"),
        ("docs/deep/page.html", b"deep"),
        ("list/one.txt", b"1"),
        ("sp ace.txt", b"space"),
        (".secret", b"secret"),
        (".well-known/security.txt", b"contact"),
    ])
}

const RANGES: [&[(&str, &str)]; 8] = [
    &[("range", "bytes=2-4")],
    &[("range", "bytes=-3")],
    &[("range", "bytes=8-")],
    &[("range", "bytes=20-30")],
    &[("range", "bytes=0-1,4-5")],
    &[("range", "lines=1-2")],
    &[("range", "bytes=2-4"), ("if-range", "\"other\"")],
    &[("range", "bytes=2-4"), ("if-range", "Thu, 01 Jan 1970 00:00:00 GMT")],
];

const CONDITIONS: [&[(&str, &str)]; 7] = [
    &[("if-none-match", "*")],
    &[("if-none-match", "\"other\"")],
    &[("if-match", "\"other\"")],
    &[("if-match", "*")],
    &[("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT")],
    &[("if-modified-since", "Thu, 01 Jan 2099 00:00:00 GMT")],
    &[("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT")],
];

const CODINGS: [&[(&str, &str)]; 6] = [
    &[("accept-encoding", "br")],
    &[("accept-encoding", "gzip, br;q=0.5")],
    &[("accept-encoding", "zstd")],
    &[("accept-encoding", "identity;q=0, *;q=0")],
    &[("accept-encoding", "gzip"), ("range", "bytes=0-3")],
    &[("accept-encoding", "gzip"), ("accept-encoding", "br")],
];

const PATHS: &str = "/ /hello.txt /empty.txt /large.txt /style.css /docs /docs?a=b /docs/ /docs/deep /list/ /none /none/ \
    /hello.txt/ /sp%20ace.txt /hell%6f.txt /.secret /.well-known/security.txt /docs/../.secret /%2e%2e/%2e%2e/etc/passwd \
    /..%2f..%2fetc%2fpasswd /docs%2findex.html //hello.txt /%00 /%ff /hello.txt% /hello.txt?x=1";

/// Every kind of request that a folder makes a difference of.
fn asks() -> Vec<Ask<'static>> {
    let get = Ask::get;
    let of = |method, path| Ask { method, path, fields: &[], content: "" };
    let mut asks: Vec<_> = PATHS.split_whitespace().flat_map(|path| [get(path), of("HEAD", path)]).collect();
    for fields in RANGES.into_iter().chain(CONDITIONS) {
        asks.extend([get("/hello.txt"), of("HEAD", "/hello.txt"), get("/large.txt")].map(|ask| ask.with(fields)));
    }
    asks.extend(CODINGS.map(|fields| get("/style.css").with(fields)));
    for method in ["OPTIONS", "POST", "PUT", "DELETE", "BREW"] {
        asks.extend([of(method, "/hello.txt"), Ask { content: "some content", ..of(method, "/hello.txt") }]);
    }
    asks
}

#[test]
fn every_way_has_the_answers_of_the_program() {
    let folder = folder();
    let dir = ServeDir::new(folder.path());
    let direct = selvedge::Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let direct = Server::Selvedge(direct.serve_each(dir.each_worker()).expect("threads start"));
    let app = || Router::new().fallback_service(dir.clone());
    let ways = [
        ("through axum here", Server::selvedge(app())),
        ("on axum's server", Server::axum(app())),
        ("by a plain call", Server::plain(app())),
    ];
    for ask in asks() {
        // Twice, since the second time it may be remembered.
        let expected = [direct.ask(ask), direct.ask(ask)];
        assert_eq!(expected[0], expected[1], "{ask:?}");
        for (way, server) in &ways {
            for expected in &expected {
                assert_eq!(server.ask(ask), *expected, "{ask:?} {way}");
            }
        }
    }
}

#[test]
fn what_is_answered_is_right() {
    let folder = folder();
    let app = || Router::new().fallback_service(ServeDir::new(folder.path()));
    for server in [Server::selvedge(app()), Server::axum(app()), Server::plain(app())] {
        let whole = server.get("/large.txt");
        assert!(whole.status == 200 && whole.content == large());
        let tag = whole.field("etag").expect("a file has a tag").to_owned();
        assert_eq!(server.ask(Ask::get("/large.txt").with(&[("if-none-match", &tag)])).status, 304);
        let part = [("range", "bytes=100000-200000"), ("if-range", tag.as_str())];
        let part = server.ask(Ask::get("/large.txt").with(&part));
        assert!(part.status == 206 && part.content == large()[100_000..=200_000]);
        let coded = server.ask(Ask::get("/style.css").with(&[("accept-encoding", "br")]));
        assert_eq!((coded.field("content-encoding"), coded.text()), (Some("br"), "a brotli stream"));
        for (path, status) in [("/.secret", 404), ("/docs/../.secret", 404), ("/%2e%2e/%2e%2e/etc/passwd", 400)] {
            assert_eq!(server.get(path).status, status, "{path}");
        }
        let refused = server.ask(Ask { method: "POST", content: "x", ..Ask::get("/hello.txt") });
        assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
}

#[test]
fn a_directory_beneath_a_prefix_gets_its_slash() {
    let folder = folder();
    let dir = ServeDir::new(folder.path());
    let app = || Router::new().nest_service("/static/files", dir.clone());
    for server in [Server::selvedge(app()), Server::axum(app()), Server::plain(app())] {
        let location = |path| {
            let Answer { status, fields, .. } = server.get(path);
            let location = fields.into_iter().find(|(name, _)| name == "location");
            (status, location.map(|(_, value)| value).unwrap_or_default())
        };
        assert_eq!(location("/static/files/docs"), (301, "./docs/".to_owned()));
        assert_eq!(location("/static/files/docs/deep?a=b"), (301, "../docs/deep/?a=b".to_owned()));
        assert_eq!(server.get("/static/files/docs/").text(), "docs");
        assert_eq!(server.get("/static/files/docs/deep/page.html").text(), "deep");
    }
}
