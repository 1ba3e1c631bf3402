//! Selection of routes and their actions.

use super::*;
use crate::site::access::{DenialCounter, DryRunCount};
use crate::site::body_dry_run::BodyDryRun;

fn only_if(condition: Condition, base: Route) -> Route {
    Route { conditions: vec![condition], ..base }
}

fn redirect(status: u16, target: &str) -> Action {
    Action::Redirect(Redirect::new(status, Template::parse(target).unwrap()).unwrap())
}

fn rewrite(target: &str) -> Action {
    Action::Rewrite(Template::parse_path(target).unwrap())
}

#[test]
fn first_matching_route_is_used() {
    let served = TestServer::one(vec![
        route("/a", respond_with("exact")),
        route("/a/*", respond_with("beneath")),
        route("/a/b", respond_with("never")),
        route("*.txt", respond_with("name")),
    ]);
    for (target, expected) in
        [("/a", "exact"), ("/a/", "beneath"), ("/a/b", "beneath"), ("/x/y.txt", "name"), ("/%61/%62", "beneath")]
    {
        assert_eq!(served.get(target).status_and_text(), (200, expected), "{target}");
    }
    assert_eq!(served.get("/b").status, 404);
    served.clear_log();
    assert_eq!(served.get("/ab").status, 404);
    assert_eq!(served.logged().reason, Some("no route of the site matches"));
}

#[test]
fn no_spelling_of_a_path_bypasses_a_denial() {
    let folder = SiteDirectory::new(&[("secret/key.txt", "key"), ("public/a.txt", "a"), ("SECRET/b.txt", "b")]);
    let served = TestServer::one(vec![
        route("/secret/*", Action::Deny(DenyResponse::new(403).unwrap())),
        route("/*", Action::Files(folder.files())),
    ]);
    for target in [
        "/secret",
        "/secret/",
        "/secret/key.txt",
        "/%73ecret/key.txt",
        "/%73%65%63%72%65%74/key.txt",
        "/public/../secret/key.txt",
        "/public/%2e%2e/secret/key.txt",
        "/./secret/key.txt",
        "/secret/./key.txt",
        "/secret/x/../key.txt",
        "/secret?x=/public/a.txt",
        "http://test/secret/key.txt",
    ] {
        assert_eq!(served.get(target).status, 403, "{target}");
        let logged = served.logged();
        assert_eq!(logged.reason, Some("denied by a route"), "{target}");
    }
    for target in [
        "//secret/key.txt",
        "/secret//key.txt",
        "/secret%2Fkey.txt",
        "/secret%5ckey.txt",
        "/secret;/key.txt",
        "/secret./key.txt",
    ] {
        let response = served.get(target);
        assert!(
            matches!(response.status, 400 | 403 | 404) && !response.content.contains("key"),
            "{target} {response:?}"
        );
    }
    assert_eq!(served.get("/SECRET/b.txt").status_and_text(), (200, "b"), "routes are case-sensitive like files");
}

#[test]
fn conditions_select_routes() {
    let networks = |text: &str| Condition::Client(vec![text.parse().unwrap()]);
    let named = |name: &str, value: Option<&str>| {
        let values = value.map(|value| TextPattern::parse(value, CaseSensitivity::Sensitive).unwrap());
        NamedCondition { name: name.into(), values: values.into_iter().collect() }
    };
    let field = |name: &str, value| Condition::Field(named(name, value));
    let served = TestServer::one(vec![
        only_if(Condition::Method(vec!["POST".into(), "PURGE".into()]), route("/*", respond_with("method"))),
        only_if(Condition::Query(named("v", Some("2"))), route("/*", respond_with("value"))),
        only_if(Condition::Query(named("q", None)), route("/*", respond_with("name"))),
        only_if(field("X-Is", Some("yes")), route("/*", respond_with("equals"))),
        only_if(field("X-Any", None), route("/*", respond_with("present"))),
        only_if(networks("10.0.0.0/8"), route("/*", respond_with("far"))),
        only_if(networks("127.0.0.0/8"), route("/near", respond_with("near"))),
        route("/*", respond_with("else")),
    ]);
    for (target, lines, expected) in [
        ("/", &[][..], "else"),
        ("/?v=2", &[], "value"),
        ("/?a&%76=%32", &[], "value"),
        ("/?v=3&q", &[], "name"),
        ("/", &["x-is: yes"], "equals"),
        ("/", &["x-is: no", "x-is: yes"], "equals"),
        ("/", &["x-is: yes, no"], "else"),
        ("/", &["X-ANY:"], "present"),
        ("/near", &[], "near"),
    ] {
        assert_eq!(served.get_with(target, lines).content, expected, "{target} {lines:?}");
    }
    assert_eq!(served.request("PURGE", "/", "test", &[]).content, "method");
    assert_eq!(served.request("POST", "/", "test", &["Content-Length: 0"]).content, "method");
}

#[test]
fn redirects_fill_their_targets() {
    let served = TestServer::one(vec![
        route("/old/*", redirect(301, "/new/*")),
        route("/ext/*", redirect(308, "https://example.com/*?from=*".trim_end_matches("?from=*"))),
        route("/a*/*", redirect(302, "/*/*")),
        route("/form", redirect(303, "/done")),
    ]);
    for (target, status, location) in [
        ("/old/x%20y?a=b", 301, "/new/x%20y?a=b"),
        ("/old", 301, "/new/"),
        ("/ext/x", 308, "https://example.com/x"),
        ("/a/evil.example", 302, "/evil.example"),
        ("/form", 303, "/done"),
        ("/old/a%2Fb", 301, "/new/a%2Fb"),
        ("/old/caf%E9", 301, "/new/caf%E9"),
        ("/old//evil.example", 301, "/new/evil.example"),
        ("/a//evil.example", 302, "/evil.example"),
    ] {
        let response = served.get(target);
        assert_eq!((response.status, response.field("location")), (status, Some(location)), "{target}");
    }
    assert_eq!(served.get("/old/%0d%0aX:%20y").status, 400);
}

#[test]
fn request_is_rewritten_once() {
    let served = TestServer::one(vec![
        route("/a/*", rewrite("/b/*")),
        route("/b/*", rewrite("/a/*")),
        route("/b/x", respond_with("b")),
        route("/up/*", rewrite("/x/.*")),
        route("/x/*", respond_with("x")),
    ]);
    assert_eq!(served.get("/up/x").status_and_text(), (200, "x"));
    served.clear_log();
    for target in ["/a/x", "/b/x"] {
        assert_eq!(served.get(target).status, 404, "{target}: the second rewrite is not skipped");
        assert_eq!(served.logged().reason, Some("a request can be rewritten only once"));
    }
    assert_eq!(served.get("/up/./").status, 200, "a capture never becomes a dot segment");
}

#[test]
fn rewrite_leads_to_the_first_matching_route() {
    let folder = SiteDirectory::new(&[("index.html", "home"), ("a.txt", "a"), ("en/a.txt", "never")]);
    let served = TestServer::one(vec![
        route("*.php", rewrite("/index.html")),
        route("/en/*", rewrite("/*")),
        route("/*", Action::Files(folder.files())),
    ]);
    for (target, expected) in [("/en/a.txt", "a"), ("/en/", "home"), ("/en/y.php", "home"), ("/en", "home")] {
        assert_eq!(served.get(target).status_and_text(), (200, expected), "{target}");
    }
    assert_eq!(served.get("/en/en/a.txt").status, 404);
}

#[test]
fn static_responses_and_denials() {
    let teapot = FixedResponse::new(418, "text/plain", text("short and stout")).unwrap();
    let served = TestServer::one(vec![
        route("/tea", Action::Respond(teapot)),
        route("/none", Action::Respond(FixedResponse::new(204, "", text("")).unwrap())),
        route("/deny", Action::Deny(DenyResponse::new(403).unwrap())),
        route("/hide", Action::Deny(DenyResponse::new(404).unwrap())),
    ]);
    let tea = served.get("/tea");
    assert_eq!((tea.status_and_text(), tea.field("content-type")), ((418, "short and stout"), Some("text/plain")));
    assert_eq!(served.request("HEAD", "/tea", "test", &[]).status_and_text(), (418, ""));
    assert_eq!(served.get("/none").status_and_text(), (204, ""));
    assert_eq!((served.get("/deny").status, served.get("/hide").status), (403, 404));
    assert_eq!(served.request("OPTIONS", "*", "test", &[]).status, 204);
    let chunked = "POST /tea HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nbroken\r\n";
    assert_eq!(served.exchange(chunked).status, 400, "content is checked before the response is sent");
}

#[test]
fn a_route_that_denies_in_dry_run_mode_counts_and_is_passed_over() {
    let folder = SiteDirectory::new(&[("a.txt", "a")]);
    let (first, second) = (DenialCounter::default(), DenialCounter::default());
    let served = TestServer::one(vec![
        route("/*", Action::DryRunDeny(first.clone())),
        route("/a.txt", Action::DryRunDeny(second.clone())),
        route("/deny", Action::Deny(DenyResponse::new(403).unwrap())),
        route("/*", Action::Files(folder.files())),
    ]);
    // A cached file is counted, too.
    for count in 1..=3 {
        assert_eq!(served.get("/a.txt").status_and_text(), (200, "a"));
        assert_eq!(served.logged().reason, Some("denied by a route (dry run)"));
        assert_eq!((first.get(), second.get()), (count, 0), "the first rule would have denied it");
    }
    assert_eq!(served.get("/deny").status, 403);
    assert_eq!(served.logged().reason, Some("denied by a route"));
    let rules = site("*", vec![route("/x", Action::DryRunDeny(first.clone())), route("/y", Action::DryRunDeny(first))]);
    let counts: Vec<_> = RouteTable::new(vec![rules]).unwrap().dry_run_counts().collect();
    assert_eq!(counts, [DryRunCount { site: 0, rule: "deny", count: 4 }], "two patterns have one counter");
}

#[test]
fn content_beyond_a_limit_in_dry_run_mode_is_counted_and_permitted() {
    let dry_run = Arc::new(BodyDryRun::new(5, DenialCounter::default()));
    let limited =
        Route { body_bytes_max: 8, body_dry_run: Some(dry_run.clone()), ..route("/limited", respond_with("done")) };
    let served = TestServer::one(vec![limited]);
    let post =
        |lines: &str| served.exchange(&format!("POST /limited HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{lines}"));
    let reason = Some("the request content is too large (dry run)");
    for (lines, status, count, expected) in [
        ("Content-Length: 5\r\n\r\n12345", 200, 0, None),
        ("Content-Length: 6\r\n\r\n123456", 200, 1, reason),
        ("Transfer-Encoding: chunked\r\n\r\n3\r\n123\r\n2\r\n45\r\n0\r\n\r\n", 200, 1, None),
        ("Transfer-Encoding: chunked\r\n\r\n3\r\n123\r\n3\r\n456\r\n0\r\n\r\n", 200, 2, reason),
        ("Content-Length: 9\r\n\r\n123456789", 413, 2, None),
    ] {
        assert_eq!(post(lines).status, status, "{lines:?}");
        assert_eq!(dry_run.denials().get(), count, "{lines:?}");
        let logged = served.logged().reason;
        // The reason of the enforced limit is that of the engine.
        assert!(logged == expected || status == 413, "{lines:?}: {logged:?}");
    }
}

#[test]
fn a_redirect_to_the_requested_host_needs_one() {
    let served = TestServer::new(vec![site("*", vec![route("/*", redirect(301, "https://{host}{path}"))])]);
    let response = served.exchange("GET /a HTTP/1.0\r\nHost: A.example:80\r\n\r\n");
    assert_eq!((response.status, response.field("location")), (301, Some("https://a.example/a")));
    assert_eq!(served.exchange("GET /a HTTP/1.0\r\n\r\n").status, 400);
    let response = served.exchange("GET http://b.example/a?b HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    assert_eq!(response.field("location"), Some("https://b.example/a?b"));
}

#[test]
fn the_path_of_a_route_is_taken_off() {
    let folder = SiteDirectory::new(&[("a.css", "css"), ("docs/index.html", "index"), ("static/b.css", "whole path")]);
    let stripped = |pattern: &str| {
        let mut rules = folder.files();
        rules.path_prefix = PathPrefix::Stripped;
        route(pattern, Action::Files(rules))
    };
    let served = TestServer::one(vec![
        stripped("/static/*"),
        stripped("/u/{name}/{rest...}"),
        route("/*", Action::Files(folder.files())),
    ]);
    for (target, status, text) in [
        ("/static/a.css", 200, "css"),
        ("/static/docs/", 200, "index"),
        ("/u/ann/a.css", 200, "css"),
        ("/static/b.css", 404, ""),
        ("/static/../a.css", 200, "css"),
        ("/static/%2e%2e/a.css", 200, "css"),
    ] {
        let response = served.get(target);
        assert_eq!(response.status, status, "{target}");
        assert!(response.content.contains(text), "{target}");
    }
    for (target, location) in [("/static", "/static/"), ("/static/docs?q", "/static/docs/?q")] {
        let response = served.get(target);
        assert_eq!((response.status, response.field("location")), (301, Some(location)), "{target}");
    }
}

#[test]
fn limit_on_chunked_content_holds_as_far_as_it_is_read() {
    let limited = |pattern, bytes_max| Route { body_bytes_max: bytes_max, ..route(pattern, respond_with("done")) };
    let server = TestServer::one(vec![limited("/small", 1000), limited("/large", 1 << 20)]);
    let post = |target: &str, framing: &str, content: &str| {
        server.exchange(&format!("POST {target} HTTP/1.1\r\nHost: test\r\n{framing}\r\n\r\n{content}"))
    };
    let chunked = |bytes: usize| format!("{bytes:x}\r\n{}\r\n", "x".repeat(bytes));
    let close = "Transfer-Encoding: chunked\r\nConnection: close";
    assert_eq!(post("/small", close, &(chunked(1000) + "0\r\n\r\n")).status_and_text(), (200, "done"));
    assert_eq!(post("/small", close, &chunked(1001)).status, 413);
    assert_eq!(post("/large", "Content-Length: 1048577", "").status, 413, "the length is known");
    // The action needs no content: after 256 KiB the response is sent, and the connection closes by itself.
    let response = post("/large", "Transfer-Encoding: chunked", &chunked(768 << 10));
    assert_eq!(response.status_and_text(), (200, "done"));
}
