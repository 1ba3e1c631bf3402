//! Compares the responses of all kinds of embedding.

use super::client::{TestRequest, TestResponse, TestServer};
use crate::support::temp_directory::TempDirectory;
use axum::Router;
use selvedge_server::ServeDir;

/// Larger than files that are cached in memory.
fn large() -> Vec<u8> {
    (0..300_000).map(|at| b'a' + (at % 23) as u8).collect()
}

fn folder() -> TempDirectory {
    let large = large();
    TempDirectory::new(&[
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

/// Returns requests for every feature of the file service.
fn requests() -> Vec<TestRequest<'static>> {
    let get = TestRequest::get;
    let of = |method, path| TestRequest { method, path, fields: &[], content: "" };
    let mut requests: Vec<_> = PATHS.split_whitespace().flat_map(|path| [get(path), of("HEAD", path)]).collect();
    for fields in RANGES.into_iter().chain(CONDITIONS) {
        requests.extend(
            [get("/hello.txt"), of("HEAD", "/hello.txt"), get("/large.txt")].map(|request| request.with(fields)),
        );
    }
    requests.extend(CODINGS.map(|fields| get("/style.css").with(fields)));
    for method in ["OPTIONS", "POST", "PUT", "DELETE", "BREW"] {
        requests
            .extend([of(method, "/hello.txt"), TestRequest { content: "some content", ..of(method, "/hello.txt") }]);
    }
    requests
}

#[test]
fn every_embedding_responds_as_the_program_does() {
    let folder = folder();
    let dir = ServeDir::new(folder.path());
    let direct = selvedge::Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let direct = TestServer::Selvedge(direct.serve_each(dir.each_worker()).expect("threads start"));
    let app = || Router::new().fallback_service(dir.clone());
    let embeddings = [
        ("through axum here", TestServer::selvedge(app())),
        ("on axum's server", TestServer::axum(app())),
        ("by a plain call", TestServer::plain(app())),
    ];
    for request in requests() {
        // Twice, because the second response may be from the cache.
        let expected = [direct.send(request), direct.send(request)];
        assert_eq!(expected[0], expected[1], "{request:?}");
        for (embedding, server) in &embeddings {
            for expected in &expected {
                assert_eq!(server.send(request), *expected, "{request:?} {embedding}");
            }
        }
    }
}

#[test]
fn responses_are_correct() {
    let folder = folder();
    let app = || Router::new().fallback_service(ServeDir::new(folder.path()));
    for server in [TestServer::selvedge(app()), TestServer::axum(app()), TestServer::plain(app())] {
        let whole = server.get("/large.txt");
        assert!(whole.status == 200 && whole.content == large());
        let tag = whole.field("etag").expect("a file has a tag").to_owned();
        assert_eq!(server.send(TestRequest::get("/large.txt").with(&[("if-none-match", &tag)])).status, 304);
        let part = [("range", "bytes=100000-200000"), ("if-range", tag.as_str())];
        let part = server.send(TestRequest::get("/large.txt").with(&part));
        assert!(part.status == 206 && part.content == large()[100_000..=200_000]);
        let coded = server.send(TestRequest::get("/style.css").with(&[("accept-encoding", "br")]));
        assert_eq!((coded.field("content-encoding"), coded.text()), (Some("br"), "a brotli stream"));
        for (path, status) in [("/.secret", 404), ("/docs/../.secret", 404), ("/%2e%2e/%2e%2e/etc/passwd", 400)] {
            assert_eq!(server.get(path).status, status, "{path}");
        }
        let refused = server.send(TestRequest { method: "POST", content: "x", ..TestRequest::get("/hello.txt") });
        assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
}

#[test]
fn slash_redirect_keeps_a_removed_prefix() {
    let folder = folder();
    let dir = ServeDir::new(folder.path());
    let app = || Router::new().nest_service("/static/files", dir.clone());
    for server in [TestServer::selvedge(app()), TestServer::axum(app()), TestServer::plain(app())] {
        let location = |path| {
            let TestResponse { status, fields, .. } = server.get(path);
            let location = fields.into_iter().find(|(name, _)| name == "location");
            (status, location.map(|(_, value)| value).unwrap_or_default())
        };
        assert_eq!(location("/static/files/docs"), (301, "./docs/".to_owned()));
        assert_eq!(location("/static/files/docs/deep?a=b"), (301, "../docs/deep/?a=b".to_owned()));
        assert_eq!(server.get("/static/files/docs/").text(), "docs");
        #[cfg(feature = "axum")]
        {
            assert_eq!(location("/static/files"), (301, "./files/".to_owned()));
            assert_eq!(location("/static/files?a=b"), (301, "./files/?a=b".to_owned()));
            assert_eq!(location("/static/files/").1, "");
        }
        assert_eq!(server.get("/static/files/docs/deep/page.html").text(), "deep");
    }
}
