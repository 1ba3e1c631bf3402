//! Methods: what each is answered with, wherever it is asked.

use super::program::Program;
use super::tree::Tree;

const ALLOW: Option<&str> = Some("GET, HEAD, OPTIONS");

#[test]
fn each_method_has_one_fate() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve(&tree);
    let rows: &[(&str, &str, u16, Option<&str>)] = &[
        ("GET", "/a.txt", 200, None),
        ("HEAD", "/a.txt", 200, None),
        ("OPTIONS", "/a.txt", 204, ALLOW),
        ("OPTIONS", "/", 204, ALLOW),
        ("OPTIONS", "*", 204, ALLOW),
        //= RFC 9112 §3.2.4: the same question, in absolute-form
        ("OPTIONS", "http://a.example", 204, ALLOW),
        ("POST", "/a.txt", 405, ALLOW),
        ("PUT", "/a.txt", 405, ALLOW),
        ("DELETE", "/a.txt", 405, ALLOW),
        ("PATCH", "/a.txt", 405, ALLOW),
        ("TRACE", "/a.txt", 405, ALLOW),
        ("POST", "/missing", 405, ALLOW),
        ("CONNECT", "a.example:443", 405, ALLOW),
        ("CONNECT", "127.0.0.1:22", 405, ALLOW),
        ("BREW", "/a.txt", 501, None),
        ("PROPFIND", "/a.txt", 501, None),
        //= RFC 9110 §9.1: methods are case-sensitive
        ("get", "/a.txt", 501, None),
        ("Get", "/a.txt", 501, None),
        ("GETS", "/a.txt", 501, None),
    ];
    // One connection: none of these endings leaves it in doubt.
    let mut client = program.connect();
    for &(method, target, status, allow) in rows {
        let answer = client.ask(method, target, "");
        assert_eq!((answer.status, answer.field("allow")), (status, allow), "{method} {target}");
        assert_eq!(answer.content == b"content", method == "GET", "{method} {target}");
        assert_eq!(answer.field("connection"), None, "{method} {target}");
    }
    for (method, target) in
        [("CONNECT", "/a.txt"), ("CONNECT", "a.example"), ("CONNECT", "a.example:0"), ("GET", "*"), ("TRACE", "*")]
    {
        let mut client = program.connect();
        assert_eq!(client.ask(method, target, "").status, 400, "{method} {target}");
        client.is_closed();
    }
}

#[test]
fn trace_repeats_nothing() {
    let tree = Tree::new();
    let program = Program::serve(&tree);
    let answer = program.connect().ask("TRACE", "/secret-path", "Authorization: Basic c2VjcmV0\nCookie: secret-cookie");
    assert_eq!(answer.status, 405);
    assert!(!answer.text().contains("secret") && !answer.text().contains("c2VjcmV0"));
}

#[test]
fn head_says_what_get_says() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    tree.write("a.txt.gz", "not really gzip");
    tree.write("empty", "");
    tree.write("large", vec![b'A'; 200_000]);
    tree.write("dir/a", "");
    let program = Program::serve_with(&tree, &["--listing"]);
    let mut client = program.connect();
    for target in ["/a.txt", "/empty", "/large", "/dir", "/dir/", "/missing", "/%zz"] {
        for fields in ["", "Accept-Encoding: gzip", "Accept: application/json", "If-Match: \"x\"", "If-None-Match: *"] {
            let (get, head) = (client.ask("GET", target, fields), client.ask("HEAD", target, fields));
            let but_for_date = |fields: &[(String, String)]| -> Vec<(String, String)> {
                fields.iter().filter(|(name, _)| name != "date").cloned().collect()
            };
            assert_eq!(head.status, get.status, "{target} {fields}");
            assert_eq!(but_for_date(&head.fields), but_for_date(&get.fields), "{target} {fields}");
            assert_eq!(get.length(), get.content.len(), "{target} {fields}");
        }
    }
}

#[test]
fn content_that_nobody_wants_does_not_become_a_request() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve(&tree);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n";
    for method in ["GET", "HEAD", "OPTIONS", "POST", "PUT"] {
        let mut client = program.connect();
        let length = smuggled.len();
        client.send(format!(
            "{method} /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{smuggled}\
             GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        let first = client.receive(method).unwrap();
        assert!(matches!(first.status, 200 | 204 | 405), "{method}");
        let second = client.receive("GET").unwrap();
        assert_eq!((second.status, &second.content[..]), (200, &b"content"[..]), "{method}");
    }
}

#[test]
fn connections_live_on_as_the_version_and_the_client_want() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve(&tree);
    for (version, fields, says) in [
        ("HTTP/1.1", "", None),
        ("HTTP/1.1", "Connection: close\r\n", Some("close")),
        ("HTTP/1.0", "", Some("close")),
        ("HTTP/1.0", "Connection: keep-alive\r\n", Some("keep-alive")),
    ] {
        for target in ["/a.txt", "/missing"] {
            let mut client = program.connect();
            client.send(format!("GET {target} {version}\r\nHost: a\r\n{fields}\r\n"));
            let answer = client.receive("GET").unwrap();
            assert_eq!(answer.field("connection"), says, "{version} {fields:?}");
            if says == Some("close") {
                client.is_closed();
            } else {
                assert_eq!(client.get("/a.txt").status, 200);
            }
        }
    }
}
