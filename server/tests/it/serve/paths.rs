//! Request paths: each has its response, and none leads out of the root.

use crate::support::client::Response;
use crate::support::configured::Folder;
use crate::support::program::Program;
use crate::support::tree::Tree;
use std::os::unix::ffi::OsStrExt;

fn tree() -> Tree {
    let tree = Tree::new();
    tree.write("index.html", "home");
    tree.write("hello.txt", "hello");
    tree.write("dir/index.html", "dir");
    tree.write("dir/a.txt", "a");
    tree.write("dir/sub/b.txt", "b");
    tree.write("a b/\u{fc}.txt", "umlaut");
    tree.write("x.html/inner.txt", "inner");
    tree.write("%68.txt", "percent");
    tree.write("q?.txt", "question");
    tree.write("c:d;e,f+g~.txt", "marks");
    tree.write("-", "dash");
    tree.write("back\\slash.txt", "backslash");
    tree.write(std::path::Path::new(std::ffi::OsStr::from_bytes(b"latin-\xe9.txt")), "latin");
    std::fs::write(tree.outside("outside.txt"), "outside").expect("the file is writable");
    tree
}

/// Target, status, and the content of a 200 or the Location of a 301.
const RESPONSES: &[(&str, u16, &str)] = &[
    ("/", 200, "home"),
    ("/?", 200, "home"),
    ("/?a=b", 200, "home"),
    ("/index.html", 200, "home"),
    ("/hello.txt", 200, "hello"),
    ("/hello.txt?", 200, "hello"),
    ("/hello.txt?/../x", 200, "hello"),
    ("/%68ello.txt", 200, "hello"),
    ("/%2568.txt", 200, "percent"),
    ("/q%3F.txt", 200, "question"),
    ("/q?.txt", 404, ""),
    ("/c:d;e,f+g~.txt", 200, "marks"),
    ("/c%3Ad%3be%2Cf%2bg%7e.txt", 200, "marks"),
    ("/a%20b/%C3%BC.txt", 200, "umlaut"),
    ("/a%20b/%c3%bc.txt", 200, "umlaut"),
    ("/-", 200, "dash"),
    ("http://b.example/hello.txt", 200, "hello"),
    ("http://b.example", 200, "home"),
    ("HTTPS://b.example:1/?x", 200, "home"),
    // Directories.
    ("/dir", 301, "/dir/"),
    ("/dir?", 301, "/dir/?"),
    ("/dir?a=b&c=/%2f", 301, "/dir/?a=b&c=/%2f"),
    ("/%64ir", 301, "/dir/"),
    ("/a%20b", 301, "/a%20b/"),
    ("/dir/sub", 301, "/dir/sub/"),
    ("/x.html", 301, "/x.html/"),
    ("http://b.example/dir?q", 301, "/dir/?q"),
    ("/dir/", 200, "dir"),
    ("/dir/?a=b", 200, "dir"),
    ("/dir/sub/", 404, ""),
    ("/x.html/", 404, ""),
    ("/x.html/inner.txt", 200, "inner"),
    // Dot-segments (RFC 3986 §5.2.4).
    ("/.", 200, "home"),
    ("/./hello.txt", 200, "hello"),
    ("/dir/.", 200, "dir"),
    ("/dir/..", 200, "home"),
    ("/dir/../hello.txt", 200, "hello"),
    ("/dir/%2e%2E/hello.txt", 200, "hello"),
    ("/hello.txt/../hello.txt", 200, "hello"),
    ("/missing/../hello.txt", 200, "hello"),
    ("/dir/sub/..", 200, "dir"),
    ("/..", 400, ""),
    ("/../outside.txt", 400, ""),
    ("/%2e%2e/outside.txt", 400, ""),
    ("/.%2e/outside.txt", 400, ""),
    ("/%2e./site/hello.txt", 400, ""),
    ("/dir/../../outside.txt", 400, ""),
    ("/dir/sub/../../../outside.txt", 400, ""),
    ("/%%32%65%%32%65/outside.txt", 400, ""),
    ("/%252e%252e/outside.txt", 404, ""),
    ("/..%2foutside.txt", 400, ""),
    ("/dir%2f..%2f..%2foutside.txt", 400, ""),
    ("/..%5coutside.txt", 404, ""),
    ("/..;/outside.txt", 404, ""),
    ("/.../outside.txt", 404, ""),
    // Slashes.
    ("//", 200, "home"),
    ("//hello.txt", 200, "hello"),
    ("///hello.txt", 200, "hello"),
    ("//evil.example/..", 200, "home"),
    ("//dir", 301, "/dir/"),
    ("/dir//", 200, "dir"),
    ("/dir//a.txt", 200, "a"),
    ("/dir/..//hello.txt", 200, "hello"),
    ("//../outside.txt", 400, ""),
    ("/dir//../../outside.txt", 400, ""),
    ("/%2f%2fevil.example/%2e%2e", 200, "home"),
    ("/dir%2fa.txt", 404, ""),
    ("/hello.txt/", 404, ""),
    ("/hello.txt/.", 404, ""),
    ("/hello.txt/x", 404, ""),
    ("/index.html/", 404, ""),
    ("/index.html/x.php", 404, ""),
    // Bytes that are no text, and characters of the range that holds them.
    ("/latin-%E9.txt", 200, "latin"),
    ("/latin-%C3%A9.txt", 404, ""),
    ("/back%5Cslash.txt", 200, "backslash"),
    ("/latin-%F4%8F%BF%A9.txt", 404, ""),
    ("/dir%F4%8F%BC%AFa.txt", 404, ""),
    ("/hello.txt%00", 400, ""),
    ("/hello.txt%00.html", 400, ""),
    ("/%0d%0aSet-Cookie:%20a=b", 400, ""),
    ("/%7f", 400, ""),
    ("/%c0%ae%c0%ae/outside.txt", 404, ""),
    ("/%e0%80%af", 404, ""),
    ("/%ff", 404, ""),
    ("/%ed%a0%80", 404, ""),
    ("/%", 400, ""),
    ("/%2", 400, ""),
    ("/%zz", 400, ""),
    ("/%u0041", 400, ""),
    // Names are bytes: neither case nor Unicode normalization is folded.
    ("/HELLO.TXT", 404, ""),
    ("/a%20b/u%CC%88.txt", 404, ""),
    ("/hello.txt%20", 404, ""),
    ("/hello.txt.", 404, ""),
    ("/missing", 404, ""),
    ("/missing/", 404, ""),
    ("/missing?dir/", 404, ""),
];

/// Malformed targets, after which the server closes the connection.
const REFUSED: &[&str] =
    &["hello.txt", "?x", "/..\\outside.txt", "/a#b", "/a\tb", "/hello.txt \0.php", "/\u{e9}", "file:///etc/passwd"];

fn check(response: &Response, target: &str, status: u16, detail: &str) {
    assert_eq!(response.status, status, "{target}: {}", String::from_utf8_lossy(&response.content));
    match status {
        200 => assert_eq!(response.text(), detail, "{target}"),
        301 => assert_eq!(response.field("location"), Some(detail), "{target}"),
        _ => {}
    }
    assert_eq!(response.field("location").is_some(), status == 301, "{target}");
    // An absolute path with one leading slash, so that it cannot name another host.
    let leads_away = |location: &str| !location.starts_with('/') || location.starts_with("//");
    assert!(!response.field("location").is_some_and(leads_away), "{target}");
    assert!(!response.text().contains("outside"), "{target}");
}

#[test]
fn each_path_has_its_response() {
    let tree = tree();
    let program = Program::serve(&tree);
    // Twice on one connection: the second time from the worker's cache.
    let mut client = program.connect();
    for _ in 0..2 {
        for &(target, status, detail) in RESPONSES {
            check(&client.get(target), target, status, detail);
        }
        tree.wait_until_stable("-");
    }
    for target in REFUSED {
        let mut client = program.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.receive("GET").unwrap().status, 400, "{target:?}");
        client.assert_closed();
    }
}

#[test]
fn a_redirect_target_serves_the_file() {
    let tree = tree();
    let program = Program::serve(&tree);
    let mut client = program.connect();
    for target in ["/dir", "/%64ir", "/dir/sub/../../dir", "/dir?q=1"] {
        let location = client.get(target).field("location").unwrap().to_owned();
        assert_eq!(client.get(&location).text(), "dir", "{target}");
    }
}

#[test]
fn too_long_paths_are_not_found_or_refused() {
    let tree = Tree::new();
    let name = "n".repeat(255);
    tree.write(&name, "long");
    let program = Program::serve(&tree);
    let mut client = program.connect();
    assert_eq!(client.get(&format!("/{name}")).text(), "long");
    // Longer than the system's limits for a file name and a path.
    assert_eq!(client.get(&format!("/{name}n")).status, 404);
    assert_eq!(client.get(&format!("/{}", "d/".repeat(3_900))).status, 404);
    assert_eq!(client.get(&format!("/{}", "%41".repeat(2_500))).status, 404);
    assert_eq!(client.get(&format!("/?{}", "q".repeat(8_000))).status, 404, "no index, and a query that fits");
    let too_long = client.get(&format!("/{}", "x".repeat(9_000)));
    assert_eq!(too_long.status, 414);
    client.assert_closed();
}

#[test]
fn hidden_names_are_not_served() {
    let tree = Tree::new();
    let names = [
        ".env",
        ".git/config",
        ".hidden/index.html",
        "dir/.htaccess",
        "dir/.well-known/a.txt",
        ".well-known/.secret",
        ".well-known/.dir/a.txt",
        ".well-known.txt",
        "..double",
    ];
    for name in names {
        tree.write(name, "secret");
    }
    tree.write(".well-known/security.txt", "open");
    let program = Program::serve_with(&tree, &["--listing"]);
    let mut client = program.connect();
    for name in names {
        let plain = format!("/{name}");
        let encoded = format!("/{}", name.replace('.', "%2e"));
        for target in [&plain, &encoded] {
            assert_eq!(client.get(target).status, 404, "{target}");
        }
    }
    for target in ["/.git", "/.git/", "/.hidden", "/.hidden/", "/.well-known/../.env", "/dir/.well-known/"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    assert_eq!(client.get("/.well-known/security.txt").text(), "open");
    assert_eq!(client.get("/%2ewell-known/security.txt").text(), "open");
    assert_eq!(client.get("/.well-known").field("location"), Some("/.well-known/"));
}

#[test]
fn error_pages_are_small_and_do_not_echo_the_request() {
    let tree = Tree::new();
    tree.write("a.txt", "a");
    let program = Program::serve(&tree);
    for (method, target, fields, status, name) in [
        ("GET", "/%3Cscript%3Ealert(1)%3C/script%3E", "", 404, "Not Found"),
        ("GET", "/%zz%3Cscript%3E", "", 400, "Bad Request"),
        ("POST", "/a.txt", "", 405, "Method Not Allowed"),
        ("BREW", "/a.txt", "", 501, "Not Implemented"),
        ("GET", "/a.txt", "If-Match: \"<script>\"", 412, "Precondition Failed"),
        ("GET", "/a.txt", "Range: bytes=9-", 416, "Range Not Satisfiable"),
        ("GET", "/a.txt", "Host: again", 400, "Bad Request"),
        ("GET", "/a.txt", "Expect: <script>", 417, "Expectation Failed"),
    ] {
        let response = program.connect().request(method, target, fields);
        let page = response.text();
        assert_eq!(response.status, status, "{target}");
        assert_eq!(response.field("content-type"), Some("text/html; charset=utf-8"));
        assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"), "{page}");
        assert!(page.contains(&format!("<title>{status} {name}</title>")) && page.len() < 2048, "{page}");
        assert!(!page.contains("<script") && !page.contains("%3C") && !page.contains("a.txt"), "{page}");
        // An error page is not a representation of the file, so it has none of the file's validators.
        assert_eq!((response.field("etag"), response.field("last-modified")), (None, None));
    }
}

#[test]
fn refused_heads_and_replaced_pages_are_json_for_clients_that_prefer_it() {
    let configured = Folder::new(
        "limits { request-line-bytes-max \"200B\"; head-bytes-max \"400B\"; }\n\
         site \"*\" { root \"www\"; error-page 404 \"/lost.html\"; }\n",
    );
    configured.write("www/lost.html", "lost");
    let program = configured.serve();
    let long = "x".repeat(300);
    for (head, status) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\nACCEPT-LINE\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nACCEPT-LINE\r\nX: {long}{long}\r\n"), 431),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\nACCEPT-LINE\r\n".to_owned(), 417),
        ("GET / HTTP/3.0\r\nHost: a\r\nACCEPT-LINE\r\n".to_owned(), 505),
        ("GET / HTTP/1.1\r\nACCEPT-LINE\r\n".to_owned(), 400),
        ("GET /none HTTP/1.1\r\nHost: a\r\nACCEPT-LINE\r\n".to_owned(), 404),
    ] {
        for (accept, is_json) in
            [("Accept: application/json", true), ("Accept: text/html, application/json;q=0.9", false), ("X: y", false)]
        {
            let mut client = program.connect();
            // The first request of a connection may be that of HTTP/2.
            assert_eq!(client.get("/lost.html").status, 200);
            client.send(format!("{}\r\n", head.replace("ACCEPT-LINE", accept)));
            let response = client.receive("GET").expect("a response");
            assert_eq!(response.status, status, "{head}");
            if is_json {
                assert_eq!(response.field("content-type"), Some("application/problem+json"), "{status}");
                let problem: serde_json::Value = serde_json::from_slice(&response.content).expect("JSON");
                assert_eq!((&problem["status"], &problem["type"]), (&status.into(), &"about:blank".into()));
                assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{problem}");
            } else {
                assert_eq!(response.field("content-type"), Some("text/html; charset=utf-8"), "{status} {accept}");
            }
            let varies = response.field("vary").is_some_and(|vary| vary.contains("accept"));
            assert!(varies, "{status}: a cache may keep it, and another client gets another page");
        }
    }
}
