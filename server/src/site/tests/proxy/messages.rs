//! What is forwarded of requests and responses.

use super::*;
use selvedge::StatusCode;
use selvedge::proto::forward::{ForwardedFields, RequestRules};

/// The lines about the client of a test.
const ABOUT_CLIENT: &str = "x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: test\r\n";

/// Returns a request without the line of its identifier, which it has to have.
fn without_request_id(request: &str) -> String {
    let is_id = |line: &&str| line.starts_with("x-request-id: ");
    assert_eq!(request.split_inclusive('\n').filter(is_id).count(), 1, "{request}");
    request.split_inclusive('\n').filter(|line| !is_id(line)).collect()
}

#[test]
fn requests_and_responses_are_forwarded() {
    let upstream = TestUpstream::new(|mut received| {
        received.respond(201, "X-App: 1\r\nConnection: x-hop\r\nX-Hop: 2\r\nServer: app\r\n", "hello");
        Then::Continue
    });
    let server = proxy_to(&upstream);
    let response = server.request("POST", "/a%2Db/../c;x?q=1", "test", &["X-A: 1", "Content-Length: 3", "", "abc"]);
    assert_eq!(response.status_and_text(), (201, "hello"));
    assert_eq!((response.field("x-app"), response.field("x-hop")), (Some("1"), None));
    assert_ne!(response.field("server"), Some("app"));
    // The test client sends the lines of a field and the content as lines, so a line end follows the content.
    let expected =
        format!("POST /c;x?q=1 HTTP/1.1\r\nhost: test\r\nx-a: 1\r\n{ABOUT_CLIENT}content-length: 3\r\n\r\nabc");
    let requests: Vec<_> = upstream.requests().iter().map(|request| without_request_id(request)).collect();
    assert_eq!(requests, [expected]);
    let logged = server.logged();
    assert_eq!((logged.status, logged.upstream.as_deref()), (201, Some("app 1 201 -")));
}

#[test]
fn paths_are_kept_or_lose_their_prefix() {
    let upstream = TestUpstream::with_content("");
    let kept = rules(group(&[upstream.address]));
    let stripped = ProxyRules { path: PathPolicy::PrefixStripped, ..kept.clone() };
    let replaced = ProxyRules { path: PathPolicy::Replaced(Template::parse_path("/v2/{1}").unwrap()), ..kept.clone() };
    let with_query = Template::parse_path("/v2/{1}?from=proxy").unwrap();
    let with_query = ProxyRules { path: PathPolicy::Replaced(with_query), ..kept.clone() };
    for (rules, target, expected) in [
        (&kept, "/api/%7Ea%20b?x=%2F", "/api/%7Ea%20b?x=%2F"),
        (&stripped, "/api/%7Ea%20b/?x", "/%7Ea%20b/?x"),
        (&stripped, "/api", "/"),
        (&stripped, "/api/", "/"),
        (&replaced, "/api/a%20b", "/v2/a%20b"),
        (&replaced, "/api/%7Ea/%2Db?x", "/v2/%7Ea/%2Db?x"),
        (&with_query, "/api/%7Ea?x", "/v2/%7Ea?from=proxy&x"),
    ] {
        let server = proxy_at("/api/*", rules.clone());
        assert_eq!(server.get(target).status, 200, "{target}");
        let request = upstream.requests().pop().unwrap();
        assert_eq!(request.split(' ').nth(1), Some(expected), "{target}");
    }
    let rewrite = |target| Action::Rewrite(Template::parse_path(target).unwrap());
    let rewritten = TestServer::one(vec![
        route("/old/*", rewrite("/api/{1}")),
        route("/id/*", rewrite("/api/get?id={1}")),
        route("/bare/*", rewrite("/api/get?")),
        route("/api/*", Action::Proxy(Arc::new(kept))),
    ]);
    for (target, expected) in [
        ("/old/a%20b?q", "/api/a%20b?q"),
        ("/id/a%26b", "/api/get?id=a%26b"),
        ("/id/7?q", "/api/get?id=7&q"),
        ("/bare/x?q", "/api/get"),
    ] {
        assert_eq!(rewritten.get(target).status, 200, "{target}");
        assert_eq!(upstream.requests().pop().unwrap().split(' ').nth(1), Some(expected), "{target}");
    }
    // The path of a route is judged before it is forwarded.
    let count = upstream.count();
    assert_eq!(rewritten.get("/api/../../x").status, 400);
    assert_eq!(upstream.count(), count);
}

#[test]
fn encoded_slashes_are_forwarded_unless_they_lead_to_another_route() {
    let upstream = TestUpstream::with_content("");
    let server = TestServer::one(vec![
        route("/admin/*", Action::Deny(DenyResponse::new(403).unwrap())),
        route("/*", Action::Proxy(Arc::new(rules(group(&[upstream.address]))))),
    ]);
    for target in ["/projects/group%2Fname", "/a//b", "/caf%E9/back%5Cslash"] {
        assert_eq!(server.get(target).status, 200, "{target}");
        assert_eq!(upstream.requests().pop().unwrap().split(' ').nth(1), Some(target));
    }
    let count = upstream.count();
    for (target, status) in [
        ("/admin%2Fx", 404),
        ("/%61dmin%2fx", 404),
        ("/x/%2E%2E%2Fadmin/x", 400),
        ("//admin/x", 403),
        ("/x//../admin/x", 403),
        ("/admin//x", 403),
    ] {
        assert_eq!(server.get(target).status, status, "{target}");
    }
    assert_eq!(upstream.count(), count);
}

#[test]
fn host_and_fields_follow_the_rules() {
    let upstream = TestUpstream::new(|mut received| {
        received.respond(200, "X-Secret: 1\r\nX-Kept: 2\r\n", "");
        Then::Continue
    });
    let mut rules = rules(group(&[upstream.address]));
    rules.host = HostPolicy::Server;
    rules.fields = RequestRules { forwarded: ForwardedFields::None, ..RequestRules::default() };
    rules.request_headers.set("x-client", text("{client} {path}"), None).unwrap();
    rules.request_headers.remove("cookie", None).unwrap();
    rules.response_headers.remove("x-secret", None).unwrap();
    rules.response_headers.set("x-method", text("{method}"), None).unwrap();
    let server = proxy(rules.clone());
    let response = server.get_with("/p", &["Cookie: a=b", "X-Client: forged", "X_Client: forged"]);
    let expected = format!("GET /p HTTP/1.1\r\nhost: {}\r\nx-client: 127.0.0.1 /p\r\n\r\n", upstream.address);
    let requests: Vec<_> = upstream.requests().iter().map(|request| without_request_id(request)).collect();
    assert_eq!(requests, [expected]);
    assert_eq!((response.field("x-secret"), response.field("x-kept")), (None, Some("2")));
    assert_eq!(response.field("x-method"), Some("GET"));
    rules.host = HostPolicy::Fixed("fixed.example".into());
    proxy(rules).get("/");
    assert!(upstream.requests()[1].contains("\r\nhost: fixed.example\r\n"));
}

#[test]
fn only_trusted_proxies_extend_forwarding_fields() {
    let upstream = TestUpstream::with_content("");
    for (trusted, expected) in [(false, "127.0.0.1"), (true, "192.0.2.7, 127.0.0.1")] {
        let mut site = site("*", vec![route("/*", Action::Proxy(Arc::new(rules(group(&[upstream.address])))))]);
        if trusted {
            site.proxies = Some(TrustedProxies {
                networks: vec!["127.0.0.0/8".parse().unwrap()],
                unix: UnixPeerTrust::Untrusted,
                field: ForwardingField::XForwardedFor,
            });
        }
        TestServer::new(vec![site]).get_with("/", &["X-Forwarded-For: 192.0.2.7"]);
        let request = upstream.requests().pop().unwrap();
        assert!(request.contains(&format!("\r\nx-forwarded-for: {expected}\r\n")), "{request}");
    }
}

#[test]
fn the_client_that_was_found_is_sent_in_both_families() {
    let upstream = TestUpstream::with_content("");
    let of_x = ["X-Forwarded-For: 9.9.9.9", "X-Forwarded-Proto: https", "X-Forwarded-Host: pub.example"];
    let of_forwarded = ["Forwarded: for=9.9.9.9;proto=https;host=pub.example", "X-Forwarded-For: 1.1.1.1"];
    for (field, lines) in [(ForwardingField::XForwardedFor, &of_x[..]), (ForwardingField::Forwarded, &of_forwarded)] {
        let mut rules = rules(group(&[upstream.address]));
        rules.fields.forwarded = ForwardedFields::Both;
        let mut site = site("*", vec![route("/*", Action::Proxy(Arc::new(rules)))]);
        let networks = vec!["127.0.0.0/8".parse().unwrap()];
        site.proxies = Some(TrustedProxies { networks, unix: UnixPeerTrust::Untrusted, field });
        TestServer::new(vec![site]).get_with("/", lines);
        let request = upstream.requests().pop().unwrap().to_ascii_lowercase();
        for expected in [
            "\r\nx-forwarded-for: 9.9.9.9, 127.0.0.1\r\n",
            "\r\nx-forwarded-proto: https\r\n",
            "\r\nx-forwarded-host: pub.example\r\n",
            "\r\nforwarded: for=9.9.9.9",
        ] {
            assert!(request.contains(expected), "{field:?} {expected}: {request}");
        }
        assert!(!request.contains("1.1.1.1"), "{request}");
    }
}

#[test]
fn responses_without_content_keep_their_fields() {
    let upstream = TestUpstream::new(|mut received| {
        match received.text.split(' ').next() {
            Some("HEAD") => received.send("HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nETag: \"a\"\r\n\r\n"),
            _ => received.send("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\n"),
        }
        Then::Continue
    });
    let server = proxy_to(&upstream);
    let head = server.request("HEAD", "/", "test", &[]);
    assert_eq!((head.status, head.field("content-length"), &*head.content), (200, Some("12345"), ""));
    let unmodified = server.get_with("/", &["If-None-Match: \"a\""]);
    assert_eq!((unmodified.status, unmodified.field("etag"), &*unmodified.content), (304, Some("\"a\""), ""));
    assert!(upstream.requests()[1].contains("\r\nif-none-match: \"a\"\r\n"));
}

#[test]
fn locations_and_cookies_are_rewritten_if_the_rules_demand_it() {
    let upstream = TestUpstream::new(|mut received| {
        received.respond(302, "Location: /login\r\nSet-Cookie: a=b; Path=/\r\n", "");
        Then::Continue
    });
    let mut rules = rules(group(&[upstream.address]));
    rules.path = PathPolicy::PrefixStripped;
    rules.url_rewriting = UrlRewriting::On;
    rules.proxy_status = ProxyStatus::On;
    let response = proxy_at("/app/*", rules).get("/app/x");
    assert_eq!(response.field("location"), Some("/app/login"));
    assert_eq!(response.field("set-cookie"), Some("a=b; Path=/app/"));
    assert_eq!(response.field("proxy-status"), Some("selvedge; next-hop=\"app\"; received-status=302"));
    let kept = proxy_to(&upstream).get("/app/x");
    assert_eq!((kept.field("location"), kept.field("proxy-status")), (Some("/login"), None));
}

#[test]
fn locations_and_cookies_are_mapped_back_to_the_path_of_the_route() {
    let upstream = TestUpstream::new(|mut received| {
        received.respond(302, "Location: http://test/v1/next?x\r\nSet-Cookie: a=b; Path=/v1\r\n", "");
        Then::Continue
    });
    let mut rules = rules(group(&[upstream.address]));
    rules.path = PathPolicy::Replaced(Template::parse_path("/v1/*").unwrap());
    rules.url_rewriting = UrlRewriting::On;
    let response = proxy_at("/map/*", rules).get("/map/x");
    assert_eq!(response.field("location"), Some("/map/next?x"));
    assert_eq!(response.field("set-cookie"), Some("a=b; Path=/map"));
}

#[test]
fn encoded_slashes_and_empty_segments_are_forwarded_within_their_route() {
    let upstream = TestUpstream::with_content("");
    let kept = rules(group(&[upstream.address]));
    let mut mapped = kept.clone();
    mapped.path = PathPolicy::Replaced(Template::parse_path("/v1/*").unwrap());
    mapped.request_headers.set("x-project", text("{1}"), None).unwrap();
    let folder = SiteDirectory::new(&[("a", "")]);
    let admin = ProxyRules { path: PathPolicy::PrefixStripped, ..kept.clone() };
    let server = TestServer::one(vec![
        route("/admin/*", Action::Proxy(Arc::new(admin))),
        route("/files/*", Action::Files(folder.files())),
        route("/map/*", Action::Proxy(Arc::new(mapped))),
        route("/*", Action::Proxy(Arc::new(kept))),
    ]);
    for (target, expected) in [
        ("/api/projects/a%2Fb?q", "/api/projects/a%2Fb?q"),
        ("/@scope%2fname", "/@scope%2fname"),
        ("/a%2F%5C", "/a%2F%5C"),
        ("/http://a/b", "/http://a/b"),
        ("//x//", "//x//"),
        ("/a%2Fb/../c%2Fd", "/c%2Fd"),
        ("/map/a%2Fb//c", "/v1/a%2Fb//c"),
        ("/admin/a%2Fb//", "/a%2Fb//"),
    ] {
        assert_eq!(server.get(target).status, 200, "{target}");
        let request = upstream.requests().pop().unwrap();
        assert_eq!(request.split(' ').nth(1), Some(expected), "{target}");
        if target.starts_with("/map") {
            assert!(request.contains("\r\nx-project: a%2Fb/c\r\n"), "{request}");
        }
    }
    let count = upstream.count();
    for (target, status) in [
        ("/admin%2Fx", 404),
        ("/admin%2F", 404),
        ("//admin", 404),
        ("//admin/x", 404),
        ("/%2Fadmin/x", 404),
        ("/a/..%5cadmin/x", 404),
        ("/..%5cx", 404),
        ("/a//../admin", 404),
        ("/a/..%2fadmin", 400),
        ("/a/%2e%2e%2Fadmin", 400),
        ("/a//../../admin", 400),
        ("/map%2Fx", 404),
        ("/files/a%2Fb", 404),
        ("/files//b", 404),
        ("/files%2Fb", 404),
        ("/a%2F/../..", 400),
    ] {
        assert_eq!(server.get(target).status, status, "{target}");
    }
    assert_eq!(upstream.count(), count, "none is forwarded");
}

#[test]
fn an_encoded_slash_that_separates_is_forwarded_as_a_slash() {
    let upstream = TestUpstream::with_content("");
    let kept = rules(group(&[upstream.address]));
    let stripped = ProxyRules { path: PathPolicy::PrefixStripped, ..kept.clone() };
    let routes = vec![
        route("/admin/*", Action::Deny(DenyResponse::new(403).unwrap())),
        route("/api/*", Action::Proxy(Arc::new(stripped))),
        route("/*", Action::Proxy(Arc::new(kept))),
    ];
    let server = TestServer::new(vec![SiteRules { encoded_slash: EncodedSlash::Separator, ..site("*", routes) }]);
    for (target, expected) in [
        ("/api/a%2Fb/c", "/a/b/c"),
        ("/a%2Fb//c", "/a/b//c"),
        ("/a%252Fb", "/a%252Fb"),
        ("/a/b%2F./c", "/a/b/c"),
        ("/api%2Fx", "/x"),
    ] {
        assert_eq!(server.get(target).status, 200, "{target}");
        assert_eq!(upstream.requests().pop().unwrap().split(' ').nth(1), Some(expected), "{target}");
    }
    let count = upstream.count();
    for (target, status) in
        [("/admin%2Fx", 403), ("/a%2F..%2Fadmin/x", 403), ("//admin%2Fx", 403), ("/api%2F%5C..%5Cx", 404)]
    {
        assert_eq!(server.get(target).status, status, "{target}");
    }
    assert_eq!(upstream.count(), count);
}

#[test]
fn max_forwards_is_decremented_and_ends_at_this_server() {
    let upstream = TestUpstream::with_content("");
    let server = proxy_to(&upstream);
    for (method, value, expected) in [
        ("OPTIONS", "5", Some("4")),
        ("TRACE", "1", Some("0")),
        ("OPTIONS", "99999999999999999999", Some("18446744073709551614")),
        ("OPTIONS", "x", Some("x")),
        ("GET", "0", Some("0")),
    ] {
        assert_eq!(server.request(method, "/", "test", &[&format!("Max-Forwards: {value}")]).status, 200);
        let request = upstream.requests().pop().unwrap();
        let sent = request.lines().find_map(|line| line.strip_prefix("max-forwards: "));
        assert_eq!(sent, expected, "{method} {value}");
    }
    let count = upstream.count();
    assert_eq!(server.request("OPTIONS", "/", "test", &["Max-Forwards: 0"]).status, 204);
    let refused = server.request("TRACE", "/", "test", &["Max-Forwards: 0"]);
    assert!(refused.status == 405 && refused.field("allow").is_some());
    assert_eq!(upstream.count(), count);
}

#[test]
fn trailers_have_no_names_of_fields_that_the_rules_write() {
    let upstream = TestUpstream::new(|mut received| {
        // The content follows as another text that ends with an empty line.
        if received.number == 1 {
            received.respond(200, "", "");
        }
        Then::Continue
    });
    let mut rules = rules(group(&[upstream.address]));
    rules.hidden_trailers = Arc::from([Box::from("x-user"), Box::from("X-Group")]);
    let lines = ["Transfer-Encoding: chunked", "", "3", "abc", "0", "X-User: forged", "x-group: admin", "X-Sum: 1", ""];
    assert_eq!(proxy(rules).request("POST", "/", "test", &lines).status, 200);
    assert_eq!(upstream.requests()[1], "3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n");
}

#[test]
fn malformed_content_that_arrives_with_the_head_is_a_bad_gateway() {
    let upstream = TestUpstream::new(|mut received| {
        received.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n");
        Then::Close
    });
    let server = proxy_to(&upstream);
    assert_eq!(server.request("POST", "/", "test", &["Content-Length: 0"]).status, 502);
    let logged = server.logged().upstream.unwrap();
    assert!(logged.contains("read content: malformed response: a chunk size is invalid"), "{logged}");
}

#[test]
fn date_is_that_of_the_upstream_and_server_can_be_set() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let upstream = TestUpstream::new(move |mut received| {
        let date = if received.text.starts_with("GET /dated") { date } else { "yesterday" };
        received.respond(200, &format!("Date: {date}\r\nServer: app\r\n"), "");
        Then::Continue
    });
    let mut named = rules(group(&[upstream.address]));
    let server = proxy(named.clone());
    assert_eq!(server.get("/dated").field("date"), Some(date));
    let replaced = server.get("/other");
    assert!(replaced.field("date").is_some_and(|date| date.ends_with(" GMT") && !date.contains("1994")));
    assert_eq!(replaced.field("server"), Some("selvedge"));
    named.response_headers.set("Server", text("mine"), None).unwrap();
    assert_eq!(proxy(named.clone()).get("/").field("server"), Some("mine"));
    named.response_headers.remove("Server", None).unwrap();
    assert_eq!(proxy(named).get("/").field("server"), None);
}

#[test]
fn error_pages_replace_only_errors_of_the_proxy() {
    let upstream = TestUpstream::new(|mut received| {
        received.respond(502, "", "from the application");
        Then::Continue
    });
    let folder = SiteDirectory::new(&[("502.html", "from the site")]);
    let pages = ErrorPages { root: folder.root(), pages: vec![(StatusCode::BAD_GATEWAY, path("/502.html"))] };
    for (address, expected) in [(upstream.address, "from the application"), (closed_address(), "from the site")] {
        let routes = vec![route("/*", Action::Proxy(Arc::new(rules(group(&[address])))))];
        let site = SiteRules { error_pages: Some(pages.clone()), ..site("*", routes) };
        assert_eq!(TestServer::new(vec![site]).get("/").status_and_text(), (502, expected));
    }
}

#[test]
fn connections_begin_with_a_proxy_header_if_the_rules_demand_it() {
    let seen = Arc::new(Mutex::new(String::new()));
    let (sink, listener) = (seen.clone(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0];
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            text.push(byte[0]);
        }
        *sink.lock().unwrap() = String::from_utf8(text).unwrap();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let mut group = group(&[address]);
    group.servers[0].proxy_header = Some(ProxyHeaderVersion::V1);
    let server = proxy(rules(group));
    assert_eq!(server.request("GET", "/", "a.example:1234", &[]).status, 204);
    let port = server.running.as_ref().unwrap().addresses()[0].port().to_string();
    let text = seen.lock().unwrap().clone();
    let (header, request) = text.split_once("\r\n").unwrap();
    let parts: Vec<&str> = header.split(' ').collect();
    assert_eq!((parts[..4].join(" "), parts[5]), ("PROXY TCP4 127.0.0.1 127.0.0.1".to_owned(), &*port));
    assert!(parts[4].parse::<u16>().unwrap() > 0 && request.starts_with("GET / HTTP/1.1\r\n"));
}
