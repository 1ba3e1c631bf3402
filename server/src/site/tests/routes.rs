//! Which route answers, and what it does.

use super::*;

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
fn the_first_route_that_matches_counts() {
    let served = Served::one(vec![
        route("/a", say("exact")),
        route("/a/*", say("beneath")),
        route("/a/b", say("never")),
        route("*.txt", say("name")),
    ]);
    for (target, expected) in
        [("/a", "exact"), ("/a/", "beneath"), ("/a/b", "beneath"), ("/x/y.txt", "name"), ("/%61/%62", "beneath")]
    {
        assert_eq!(served.get(target).said(), (200, expected), "{target}");
    }
    assert_eq!(served.get("/b").status, 404);
    served.clear_log();
    assert_eq!(served.get("/ab").status, 404);
    assert_eq!(served.logged().reason, Some("no route of the site matches"));
}

#[test]
fn no_way_to_write_a_path_gets_around_a_denial() {
    let folder = Folder::new(&[("secret/key.txt", "key"), ("public/a.txt", "a"), ("SECRET/b.txt", "b")]);
    let served = Served::one(vec![
        route("/secret/*", Action::Deny(Denial::new(403).unwrap())),
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
        assert_eq!(logged.reason, Some("a route denies it"), "{target}");
    }
    for target in [
        "//secret/key.txt",
        "/secret//key.txt",
        "/secret%2Fkey.txt",
        "/secret%5ckey.txt",
        "/secret;/key.txt",
        "/secret./key.txt",
    ] {
        let answer = served.get(target);
        assert!(matches!(answer.status, 400 | 403 | 404) && !answer.content.contains("key"), "{target} {answer:?}");
    }
    assert_eq!(served.get("/SECRET/b.txt").said(), (200, "b"), "case tells files apart, and so it does routes");
}

#[test]
fn conditions_decide_too() {
    let networks = |text: &str| Condition::Client(vec![text.parse().unwrap()]);
    let field = |name: &str, test| Condition::Field(FieldCondition::new(name, test).unwrap());
    let served = Served::one(vec![
        only_if(Condition::Method(vec!["POST".into(), "PURGE".into()]), route("/*", say("method"))),
        only_if(Condition::Query { name: "v".into(), value: Some("2".into()) }, route("/*", say("value"))),
        only_if(Condition::Query { name: "q".into(), value: None }, route("/*", say("name"))),
        only_if(field("X-Is", FieldTest::Equals("yes".into())), route("/*", say("equals"))),
        only_if(field("X-Any", FieldTest::Present), route("/*", say("present"))),
        only_if(networks("10.0.0.0/8"), route("/*", say("far"))),
        only_if(networks("127.0.0.0/8"), route("/near", say("near"))),
        route("/*", say("else")),
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
    assert_eq!(served.ask("PURGE", "/", "test", &[]).content, "method");
    assert_eq!(served.ask("POST", "/", "test", &["Content-Length: 0"]).content, "method");
}

#[test]
fn redirects() {
    let served = Served::one(vec![
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
    ] {
        let answer = served.get(target);
        assert_eq!((answer.status, answer.field("location")), (status, Some(location)), "{target}");
    }
    assert_eq!(served.get("/old/%0d%0aX:%20y").status, 400);
    assert_eq!(served.get("/old//evil.example").status, 404);
}

#[test]
fn a_rewrite_happens_once() {
    let served = Served::one(vec![
        route("/a/*", rewrite("/b/*")),
        route("/b/*", rewrite("/a/*")),
        route("/b/x", say("b")),
        route("/up/*", rewrite("/x/.*")),
        route("/x/*", say("x")),
    ]);
    assert_eq!(served.get("/up/x").said(), (200, "x"));
    served.clear_log();
    for target in ["/a/x", "/b/x"] {
        assert_eq!(served.get(target).status, 404, "{target}: no route is passed over");
        assert_eq!(served.logged().reason, Some("a route would rewrite what was rewritten already"));
    }
    assert_eq!(served.get("/up/./").status, 200, "a capture is never a segment of dots that leads out");
}

#[test]
fn a_rewrite_leads_to_the_first_route_that_matches() {
    let folder = Folder::new(&[("index.html", "home"), ("a.txt", "a"), ("en/a.txt", "never")]);
    let served = Served::one(vec![
        route("*.php", rewrite("/index.html")),
        route("/en/*", rewrite("/*")),
        route("/*", Action::Files(folder.files())),
    ]);
    for (target, expected) in [("/en/a.txt", "a"), ("/en/", "home"), ("/en/y.php", "home"), ("/en", "home")] {
        assert_eq!(served.get(target).said(), (200, expected), "{target}");
    }
    assert_eq!(served.get("/en/en/a.txt").status, 404);
}

#[test]
fn replies_and_denials() {
    let teapot = Reply::new(418, "text/plain", "short and stout").unwrap();
    let served = Served::one(vec![
        route("/tea", Action::Respond(teapot)),
        route("/none", Action::Respond(Reply::new(204, "", "").unwrap())),
        route("/deny", Action::Deny(Denial::new(403).unwrap())),
        route("/hide", Action::Deny(Denial::new(404).unwrap())),
    ]);
    let tea = served.get("/tea");
    assert_eq!((tea.said(), tea.field("content-type")), ((418, "short and stout"), Some("text/plain")));
    assert_eq!(served.ask("HEAD", "/tea", "test", &[]).said(), (418, ""));
    assert_eq!(served.get("/none").said(), (204, ""));
    assert_eq!((served.get("/deny").status, served.get("/hide").status), (403, 404));
    assert_eq!(served.ask("OPTIONS", "*", "test", &[]).status, 204);
    let chunked = "POST /tea HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nbroken\r\n";
    assert_eq!(served.exchange(chunked).status, 400, "content is judged before the answer");
}
