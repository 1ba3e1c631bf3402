//! Routes that serve files.

use super::*;

#[test]
fn index_names_and_slash_redirects() {
    let folder =
        SiteDirectory::new(&[("a/home.htm", "home"), ("b/index.html", "index"), ("b/home.htm", "no"), ("c/x", "x")]);
    let rules = FilesRules { index: IndexNames::new(["index.html", "home.htm"]).unwrap(), ..folder.files() };
    let served = TestServer::one(vec![route("/*", Action::Files(rules))]);
    assert_eq!(served.get("/a/").status_and_text(), (200, "home"));
    assert_eq!(served.get("/a/").field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(served.get("/b/").status_and_text(), (200, "index"));
    assert_eq!(served.get("/c/").status, 404);
    let response = served.get("/a?x");
    assert_eq!((response.status, response.field("location")), (301, Some("/a/?x")));
    assert_eq!(served.request("DELETE", "/a/", "test", &[]).status, 405);
}

#[test]
fn directory_is_listed_if_the_route_allows_it() {
    let folder = SiteDirectory::new(&[("d/one.txt", "1"), ("e/two.txt", "2")]);
    let listed = FilesRules { listing: Listing::On, ..folder.files() };
    let served =
        TestServer::one(vec![route("/d/*", Action::Files(listed)), route("/*", Action::Files(folder.files()))]);
    assert!(served.get("/d/").content.contains("one.txt"));
    assert_eq!(served.get("/e/").status, 404);
}

#[test]
fn listing_has_only_links_that_are_served() {
    let folder = SiteDirectory::new(&[("releases/2/a", "a"), ("downloads/x", "x")]);
    std::os::unix::fs::symlink("../releases/2", folder.0.join("downloads/latest")).unwrap();
    std::os::unix::fs::symlink("/etc", folder.0.join("downloads/outside")).unwrap();
    let listed = FilesRules { listing: Listing::On, ..folder.files() };
    let served = TestServer::one(vec![route("/*", Action::Files(listed))]);
    assert_eq!(served.get("/downloads/latest/a").status_and_text(), (200, "a"));
    assert_eq!(served.get("/downloads/outside/").status, 404);
    let list = served.get("/downloads/").content;
    assert!(list.contains("latest/") && !list.contains("outside"), "{list}");
}

#[test]
fn try_files_in_order() {
    let folder =
        SiteDirectory::new(&[("a.html", "page"), ("a/index.html", "folder"), ("b/index.html", "b"), ("c", "c")]);
    let html = || TryFile::Suffix(Suffix::new(".html").unwrap());
    let rules = |try_files| FilesRules { try_files, ..folder.files() };
    let served = TestServer::new(vec![
        site("first.test", vec![route("/*", Action::Files(rules(vec![TryFile::File, html(), TryFile::Directory])))]),
        site("last.test", vec![route("/*", Action::Files(rules(vec![TryFile::File, TryFile::Directory, html()])))]),
        site("files.test", vec![route("/*", Action::Files(rules(vec![TryFile::File])))]),
    ]);
    let get = |host: &str, target: &str| served.request("GET", target, host, &[]);
    assert_eq!(get("first.test", "/a").status_and_text(), (200, "page"));
    assert_eq!(get("first.test", "/a").field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(get("first.test", "/a/").status_and_text(), (200, "folder"));
    assert_eq!(get("first.test", "/b").field("location"), Some("/b/"));
    assert_eq!(get("first.test", "/c").status_and_text(), (200, "c"));
    assert_eq!(get("first.test", "/d").status, 404);
    assert_eq!(get("last.test", "/a").field("location"), Some("/a/"));
    assert_eq!(get("files.test", "/b/").status, 404);
    assert_eq!(get("files.test", "/c").status_and_text(), (200, "c"));
}

#[test]
fn fallback_is_served_for_navigations_only() {
    let folder = SiteDirectory::new(&[("app/index.html", "app"), ("app/main.js", "js")]);
    let rules = FilesRules { fallback: Some(path("/app/index.html")), ..folder.files() };
    let mut rules = site("*", vec![route("/app/*", Action::Files(rules))]);
    rules.file_fields.add(ResponseSelector::Path(Pattern::parse("*.html").unwrap()), "no-cache").unwrap();
    rules.file_fields.add(ResponseSelector::Path(Pattern::parse("/app/*").unwrap()), "immutable").unwrap();
    let served = TestServer::new(vec![rules]);
    for (target, lines, expected) in [
        ("/app/people/7", &["Accept: text/html"][..], (200, "app")),
        ("/app/people/7", &["Accept: */*", "Sec-Fetch-Mode: navigate"], (200, "app")),
        ("/app/v1.2/", &["Sec-Fetch-Mode: navigate"], (200, "app")),
        ("/app/main.js", &["Accept: text/html"], (200, "js")),
    ] {
        assert_eq!(served.get_with(target, lines).status_and_text(), expected, "{target} {lines:?}");
    }
    for (target, lines) in [
        ("/app/people/7", &[][..]),
        ("/app/people/7", &["Accept: application/json"]),
        ("/app/people/7", &["Accept: text/html", "Sec-Fetch-Mode: cors"]),
        ("/app/none.js", &["Accept: text/html"]),
        ("/other", &["Accept: text/html"]),
    ] {
        let response = served.get_with(target, lines);
        assert_eq!(response.status, 404, "{target} {lines:?}");
    }
    let page = served.get_with("/app/people/7", &["Accept: text/html"]);
    assert_eq!(page.field("vary"), Some("accept, sec-fetch-mode"));
    assert_eq!(page.field("cache-control"), Some("no-cache"), "that of the fallback page, not of the request path");
    assert_eq!(served.get("/app/people/7").field("vary"), Some("accept, sec-fetch-mode"));
    assert_eq!(served.get("/app/main.js").field("cache-control"), Some("immutable"));
    let revalidation =
        served.get_with("/app/x", &["Accept: text/html", &format!("If-None-Match: {}", page.field("etag").unwrap())]);
    assert_eq!(revalidation.status, 304, "the fallback page is a conditional resource");
    assert_eq!(served.request("POST", "/app/x", "test", &["Accept: text/html"]).status, 405);
}

#[test]
fn try_files_has_placeholders() {
    let folder = SiteDirectory::new(&[
        ("docs/intro.html", "intro"),
        ("v1/a.txt", "versioned"),
        ("a.example/x/b", "of the host"),
        ("secret.html", "secret"),
    ]);
    let entries = |texts: &[&str]| {
        let entry = |text: &&str| match TryPath::parse(text).unwrap() {
            TryPath::Path(template) => TryFile::Path(template),
            other => panic!("{other} is not a path"),
        };
        Action::Files(FilesRules { try_files: texts.iter().map(entry).collect(), ..folder.files() })
    };
    let server = TestServer::one(vec![
        route("/docs/{page}/", entries(&["/docs/{page}.html"])),
        route("/*/v{version}/{name...}", entries(&["/v{2}/{name}", "/{host}/{name}"])),
        route("/up/x{part}", entries(&["/docs/{part}/secret.html"])),
        route("/*", entries(&["/{host}*"])),
    ]);
    assert_eq!(server.get("/docs/intro/").status_and_text(), (200, "intro"));
    assert_eq!(server.get("/x/v1/a.txt").status_and_text(), (200, "versioned"));
    // A segment of dots would lead out of the folder.
    for missing in ["/docs/none/", "/x/v2/a.txt", "/up/x.."] {
        assert_eq!(server.get(missing).status, 404, "{missing}");
    }
    assert_eq!(server.request("GET", "/x/v2/x/b", "A.example", &[]).status_and_text(), (200, "of the host"));
    for _ in 0..2 {
        assert_eq!(server.request("GET", "/x/b", "a.example", &[]).status_and_text(), (200, "of the host"));
        assert_eq!(
            server.request("GET", "/x/b", "b.example", &[]).status,
            404,
            "a file of a host is not cached by path"
        );
    }
    assert_eq!(server.request("GET", "/secret.html", "..", &[]).status, 404);
}

#[test]
fn path_of_the_request_does_not_decide_the_caching_of_a_file_that_is_elsewhere() {
    let folder = SiteDirectory::new(&[("index.html", "page"), ("assets/a.js", "script")]);
    let mut fields = FileFieldRules::default();
    let selector = |text| ResponseSelector::parse(text, CaseSensitivity::Sensitive).unwrap();
    fields.add(selector("/assets/*"), "immutable").unwrap();
    fields.add(selector("*.html"), "no-cache").unwrap();
    let fixed = TryFile::Path(Template::parse_path("/index.html").unwrap());
    let by_entry = FilesRules { try_files: vec![TryFile::File, fixed], ..folder.files() };
    let by_fallback = FilesRules { fallback: Some(path("/index.html")), ..folder.files() };
    for rules in [by_entry, by_fallback] {
        let server = TestServer::one(vec![Route { file_fields: fields.clone(), ..route("/*", Action::Files(rules)) }]);
        let page = |target| server.get_with(target, &["Sec-Fetch-Mode: navigate"]);
        for _ in 0..2 {
            assert_eq!(page("/assets/a.js").field("cache-control"), Some("immutable"));
            let missing = page("/assets/b.js");
            assert_eq!((missing.status_and_text(), missing.field("cache-control")), ((200, "page"), Some("no-cache")));
        }
    }
}

#[test]
fn routes_have_separate_roots() {
    let (one, two) =
        (SiteDirectory::new(&[("x/a.txt", "one")]), SiteDirectory::new(&[("y/a.txt", "two"), ("x/a.txt", "no")]));
    let served =
        TestServer::one(vec![route("/x/*", Action::Files(one.files())), route("/y/*", Action::Files(two.files()))]);
    wait_until_stable();
    for _ in 0..3 {
        assert_eq!(served.get("/x/a.txt").status_and_text(), (200, "one"));
        assert_eq!(served.get("/y/a.txt").status_and_text(), (200, "two"));
    }
    assert_eq!(served.get("/x/../../etc/passwd").status, 400);
    assert_eq!(served.get("/x/.hidden").status, 404);
}
