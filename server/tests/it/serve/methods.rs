//! Methods: the response to each, for several targets.

use crate::support::program::Program;
use crate::support::tree::Tree;

const ALLOW: Option<&str> = Some("GET, HEAD, OPTIONS");

#[test]
fn each_method_has_its_status() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve(&tree);
    let rows: &[(&str, &str, u16, Option<&str>)] = &[
        ("GET", "/a.txt", 200, None),
        ("HEAD", "/a.txt", 200, None),
        ("OPTIONS", "/a.txt", 204, ALLOW),
        ("OPTIONS", "/", 204, ALLOW),
        ("OPTIONS", "*", 204, ALLOW),
        //= RFC 9112 §3.2.4: `OPTIONS *` in absolute-form
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
    // One connection: none of these responses closes it.
    let mut client = program.connect();
    for &(method, target, status, allow) in rows {
        let response = client.request(method, target, "");
        assert_eq!((response.status, response.field("allow")), (status, allow), "{method} {target}");
        assert_eq!(response.content == b"content", method == "GET", "{method} {target}");
        assert_eq!(response.field("connection"), None, "{method} {target}");
    }
    for (method, target) in
        [("CONNECT", "/a.txt"), ("CONNECT", "a.example"), ("CONNECT", "a.example:0"), ("GET", "*"), ("TRACE", "*")]
    {
        let mut client = program.connect();
        assert_eq!(client.request(method, target, "").status, 400, "{method} {target}");
        client.assert_closed();
    }
}

#[test]
fn trace_does_not_echo_the_request() {
    let tree = Tree::new();
    let program = Program::serve(&tree);
    let response =
        program.connect().request("TRACE", "/secret-path", "Authorization: Basic c2VjcmV0\nCookie: secret-cookie");
    assert_eq!(response.status, 405);
    assert!(!response.text().contains("secret") && !response.text().contains("c2VjcmV0"));
}

#[test]
fn head_has_the_fields_of_get() {
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
            let (get, head) = (client.request("GET", target, fields), client.request("HEAD", target, fields));
            let without_date = |fields: &[(String, String)]| -> Vec<(String, String)> {
                fields.iter().filter(|(name, _)| name != "date").cloned().collect()
            };
            assert_eq!(head.status, get.status, "{target} {fields}");
            assert_eq!(without_date(&head.fields), without_date(&get.fields), "{target} {fields}");
            if get.field("transfer-encoding").is_none() {
                assert_eq!(get.length(), get.content.len(), "{target} {fields}");
            }
        }
    }
}

#[test]
fn unread_content_is_not_parsed_as_a_request() {
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
fn connections_persist_depending_on_version_and_connection_field() {
    let tree = Tree::new();
    tree.write("a.txt", "content");
    let program = Program::serve(&tree);
    for (version, fields, connection) in [
        ("HTTP/1.1", "", None),
        ("HTTP/1.1", "Connection: close\r\n", Some("close")),
        ("HTTP/1.0", "", Some("close")),
        ("HTTP/1.0", "Connection: keep-alive\r\n", Some("keep-alive")),
    ] {
        for target in ["/a.txt", "/missing"] {
            let mut client = program.connect();
            client.send(format!("GET {target} {version}\r\nHost: a\r\n{fields}\r\n"));
            let response = client.receive("GET").unwrap();
            assert_eq!(response.field("connection"), connection, "{version} {fields:?}");
            if connection == Some("close") {
                client.assert_closed();
            } else {
                assert_eq!(client.get("/a.txt").status, 200);
            }
        }
    }
}
