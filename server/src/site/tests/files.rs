//! Routes with files.

use super::*;

#[test]
fn index_names_and_slashes() {
    let folder = Folder::new(&[("a/home.htm", "home"), ("b/index.html", "index"), ("b/home.htm", "no"), ("c/x", "x")]);
    let rules = FilesRules { index: IndexNames::new(["index.html", "home.htm"]).unwrap(), ..folder.files() };
    let served = Served::one(vec![route("/*", Action::Files(rules))]);
    assert_eq!(served.get("/a/").said(), (200, "home"));
    assert_eq!(served.get("/a/").field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(served.get("/b/").said(), (200, "index"));
    assert_eq!(served.get("/c/").status, 404);
    let answer = served.get("/a?x");
    assert_eq!((answer.status, answer.field("location")), (301, Some("/a/?x")));
    assert_eq!(served.ask("DELETE", "/a/", "test", &[]).status, 405);
}

#[test]
fn a_list_where_the_route_wants_one() {
    let folder = Folder::new(&[("d/one.txt", "1"), ("e/two.txt", "2")]);
    let listed = FilesRules { listing: Listing::On, ..folder.files() };
    let served = Served::one(vec![route("/d/*", Action::Files(listed)), route("/*", Action::Files(folder.files()))]);
    assert!(served.get("/d/").content.contains("one.txt"));
    assert_eq!(served.get("/e/").status, 404);
}

#[test]
fn a_list_has_the_links_that_are_served() {
    let folder = Folder::new(&[("releases/2/a", "a"), ("downloads/x", "x")]);
    std::os::unix::fs::symlink("../releases/2", folder.0.join("downloads/latest")).unwrap();
    std::os::unix::fs::symlink("/etc", folder.0.join("downloads/outside")).unwrap();
    let listed = FilesRules { listing: Listing::On, ..folder.files() };
    let served = Served::one(vec![route("/*", Action::Files(listed))]);
    assert_eq!(served.get("/downloads/latest/a").said(), (200, "a"));
    assert_eq!(served.get("/downloads/outside/").status, 404);
    let list = served.get("/downloads/").content;
    assert!(list.contains("latest/") && !list.contains("outside"), "{list}");
}

#[test]
fn attempts_in_order() {
    let folder = Folder::new(&[("a.html", "page"), ("a/index.html", "folder"), ("b/index.html", "b"), ("c", "c")]);
    let html = || Attempt::Suffix(Suffix::new(".html").unwrap());
    let rules = |attempts| FilesRules { attempts, ..folder.files() };
    let served = Served::new(vec![
        site("first.test", vec![route("/*", Action::Files(rules(vec![Attempt::File, html(), Attempt::Directory])))]),
        site("last.test", vec![route("/*", Action::Files(rules(vec![Attempt::File, Attempt::Directory, html()])))]),
        site("files.test", vec![route("/*", Action::Files(rules(vec![Attempt::File])))]),
    ]);
    let get = |host: &str, target: &str| served.ask("GET", target, host, &[]);
    assert_eq!(get("first.test", "/a").said(), (200, "page"));
    assert_eq!(get("first.test", "/a").field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(get("first.test", "/a/").said(), (200, "folder"));
    assert_eq!(get("first.test", "/b").field("location"), Some("/b/"));
    assert_eq!(get("first.test", "/c").said(), (200, "c"));
    assert_eq!(get("first.test", "/d").status, 404);
    assert_eq!(get("last.test", "/a").field("location"), Some("/a/"));
    assert_eq!(get("files.test", "/b/").status, 404);
    assert_eq!(get("files.test", "/c").said(), (200, "c"));
}

#[test]
fn a_fallback_is_for_navigations() {
    let folder = Folder::new(&[("app/index.html", "app"), ("app/main.js", "js")]);
    let rules = FilesRules { fallback: Some(path("/app/index.html")), ..folder.files() };
    let mut rules = site("*", vec![route("/app/*", Action::Files(rules))]);
    rules.cache.add(Pattern::parse("*.html").unwrap(), "no-cache").unwrap();
    rules.cache.add(Pattern::parse("/app/*").unwrap(), "immutable").unwrap();
    let served = Served::new(vec![rules]);
    for (target, lines, expected) in [
        ("/app/people/7", &["Accept: text/html"][..], (200, "app")),
        ("/app/people/7", &["Accept: */*", "Sec-Fetch-Mode: navigate"], (200, "app")),
        ("/app/v1.2/", &["Sec-Fetch-Mode: navigate"], (200, "app")),
        ("/app/main.js", &["Accept: text/html"], (200, "js")),
    ] {
        assert_eq!(served.get_with(target, lines).said(), expected, "{target} {lines:?}");
    }
    for (target, lines) in [
        ("/app/people/7", &[][..]),
        ("/app/people/7", &["Accept: application/json"]),
        ("/app/people/7", &["Accept: text/html", "Sec-Fetch-Mode: cors"]),
        ("/app/none.js", &["Accept: text/html"]),
        ("/other", &["Accept: text/html"]),
    ] {
        let answer = served.get_with(target, lines);
        assert_eq!(answer.status, 404, "{target} {lines:?}");
    }
    let page = served.get_with("/app/people/7", &["Accept: text/html"]);
    assert_eq!(page.field("vary"), Some("accept, sec-fetch-mode"));
    assert_eq!(page.field("cache-control"), Some("no-cache"), "its own, not that of the path it stands for");
    assert_eq!(served.get("/app/people/7").field("vary"), Some("accept, sec-fetch-mode"));
    assert_eq!(served.get("/app/main.js").field("cache-control"), Some("immutable"));
    let again =
        served.get_with("/app/x", &["Accept: text/html", &format!("If-None-Match: {}", page.field("etag").unwrap())]);
    assert_eq!(again.status, 304, "it is a file, and the client has it");
    assert_eq!(served.ask("POST", "/app/x", "test", &["Accept: text/html"]).status, 405);
}

#[test]
fn roots_of_routes_are_apart() {
    let (one, two) = (Folder::new(&[("x/a.txt", "one")]), Folder::new(&[("y/a.txt", "two"), ("x/a.txt", "no")]));
    let served =
        Served::one(vec![route("/x/*", Action::Files(one.files())), route("/y/*", Action::Files(two.files()))]);
    settle();
    for _ in 0..3 {
        assert_eq!(served.get("/x/a.txt").said(), (200, "one"));
        assert_eq!(served.get("/y/a.txt").said(), (200, "two"));
    }
    assert_eq!(served.get("/x/../../etc/passwd").status, 400);
    assert_eq!(served.get("/x/.hidden").status, 404);
}
