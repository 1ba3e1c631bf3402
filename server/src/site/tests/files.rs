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
fn pages_are_at_clean_urls() {
    let folder = SiteDirectory::new(&[
        ("index.html", "home"),
        ("about.html", "about"),
        ("both.html", "both page"),
        ("both/index.html", "both index"),
        ("join.html", "join"),
        ("join/dev.html", "dev"),
        ("docs/index.html", "docs"),
        ("empty/x.txt", "x"),
        ("twice.html.html", "twice"),
        ("plain", "plain"),
        ("plain.html", "hidden by the file"),
    ]);
    let served = |trailing_slash, listing| {
        let addresses = PageAddresses { clean_urls: CleanUrls::On, trailing_slash };
        TestServer::one(vec![
            route("/old/*", Action::Rewrite(Template::parse_path("/*.html").unwrap())),
            route("/*", Action::Files(FilesRules { addresses, listing, ..folder.files() })),
        ])
    };
    // Each path with the text of its page, or with its redirect.
    let all = [
        ("/", ["home", "home", "home"]),
        ("/index.html", ["> /", "> /", "> /"]),
        ("/about", ["about", "> /about/", "about"]),
        ("/about/", ["> /about", "about", "> /about"]),
        ("/about.html", ["> /about", "> /about/", "> /about"]),
        ("/both", ["both page", "> /both/", "both page"]),
        ("/both/", ["both index", "both index", "> /both"]),
        ("/both.html", ["> /both", "both page", "> /both"]),
        ("/both/index.html", ["> /both/", "> /both/", "> /both"]),
        ("/join", ["join", "> /join/", "join"]),
        ("/join/", ["> /join", "join", "> /join"]),
        ("/join/dev", ["dev", "> /join/dev/", "dev"]),
        ("/docs", ["> /docs/", "> /docs/", "docs"]),
        ("/docs/", ["docs", "docs", "> /docs"]),
        ("/docs/index.html", ["> /docs/", "> /docs/", "> /docs"]),
        ("/empty/", ["404", "404", "404"]),
        ("/none", ["404", "404", "404"]),
        ("/none/", ["404", "404", "404"]),
        ("/plain", ["plain", "plain", "plain"]),
        ("/plain.html", ["hidden by the file"; 3]),
        ("/twice.html", ["twice", "> /twice.html/", "twice"]),
        ("/old/about", ["about", "about", "about"]),
    ];
    for (number, slash) in [TrailingSlash::Auto, TrailingSlash::Add, TrailingSlash::Remove].into_iter().enumerate() {
        let served = served(slash, Listing::Off);
        for (target, expected) in &all {
            // Twice, because the second response is from the cache.
            for _ in 0..2 {
                let response = served.get(target);
                let found = match response.field("location") {
                    Some(location) => format!("> {location}"),
                    None if response.status == 200 => response.content.clone(),
                    None => response.status.to_string(),
                };
                assert_eq!(found, expected[number], "{slash:?} {target}");
            }
        }
        assert_eq!(served.get("/about.html?q=1").field("location").map(|to| to.ends_with("?q=1")), Some(true));
    }
    let listed = served(TrailingSlash::Remove, Listing::On);
    assert_eq!(listed.get("/empty").field("location"), Some("/empty/"), "a listing is at the path with a slash");
    assert!(listed.get("/empty/").content.contains("x.txt"));
}

#[test]
fn slashes_are_merged_for_files_and_rules() {
    let folder =
        SiteDirectory::new(&[("style.css", "css"), ("d/f.txt", "f"), ("d/index.html", "i"), ("p/s", "secret")]);
    let served = TestServer::one(vec![
        route("/p/*", Action::Deny(DenyResponse::new(403).unwrap())),
        route("/*", Action::Files(folder.files())),
    ]);
    for (target, expected) in [
        ("//style.css", (200, "css")),
        ("///style.css", (200, "css")),
        ("/d//f.txt", (200, "f")),
        ("/d//", (200, "i")),
        ("//d/", (200, "i")),
    ] {
        for _ in 0..2 {
            assert_eq!(served.get(target).status_and_text(), expected, "{target}");
        }
    }
    assert_eq!(served.get("//d").field("location"), Some("/d/"));
    for target in ["//p/s", "/p//s", "///p///s", "/d/..//p/s", "//d//../p/s"] {
        assert_eq!(served.get(target).status, 403, "{target}");
    }
    for target in ["/p%2Fs", "/d/..%2Fp%2Fs", "/%70/%2e/s"] {
        assert_ne!(served.get(target).status, 200, "{target}");
    }
}

#[test]
fn encoded_slash_is_data_or_a_separator() {
    let folder = SiteDirectory::new(&[("@scope/pkg/index.json", "{}"), ("p/s", "secret")]);
    let routes = || {
        let entry = match TryPath::parse("*/index.json").unwrap() {
            TryPath::Path(template) => TryFile::Path(template),
            other => panic!("{other} is not a path"),
        };
        vec![
            route("/p/*", Action::Deny(DenyResponse::new(403).unwrap())),
            route("/one/{name}", respond_with("{name}")),
            route("/*", Action::Files(FilesRules { try_files: vec![TryFile::File, entry], ..folder.files() })),
        ]
    };
    let data = TestServer::one(routes());
    assert_eq!(data.get("/one/group%2Fname").status_and_text(), (200, "group%2Fname"));
    assert_eq!(data.get("/@scope%2fpkg").status, 404);
    assert_eq!(data.get("/p%2Fs").status, 404);
    let rules = SiteRules { encoded_slash: EncodedSlash::Separator, ..site("*", routes()) };
    let separator = TestServer::new(vec![rules]);
    assert_eq!(separator.get("/@scope%2fpkg").status_and_text(), (200, "{}"));
    assert_eq!(separator.get("/p%2Fs").status, 403, "a rule sees what files see");
    assert_eq!(separator.get("/one/group%2Fname").status, 404);
    let rules = SiteRules { encoded_slash_of_files: EncodedSlash::Separator, ..site("*", routes()) };
    let of_files = TestServer::new(vec![rules]);
    for _ in 0..2 {
        assert_eq!(of_files.get("/@scope%2fpkg").status_and_text(), (200, "{}"));
        assert_eq!(of_files.get("/@scope%2fpkg/index.json").status_and_text(), (200, "{}"));
        assert_eq!(of_files.get("/p%2Fs").status, 404, "a file of another route");
        assert_eq!(of_files.get("/one/group%2Fname").status_and_text(), (200, "group%2Fname"));
        assert_eq!(of_files.get("/@scope%252fpkg").status, 404, "a percent sign of a name");
    }
}

#[test]
fn names_are_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let folder = SiteDirectory::new(&[("back\\slash.txt", "backslash")]);
    fs::write(folder.0.join(std::ffi::OsStr::from_bytes(b"caf\xe9.txt")), "latin").unwrap();
    let listed = FilesRules { listing: Listing::On, ..folder.files() };
    let served = TestServer::one(vec![route("/*", Action::Files(listed))]);
    for _ in 0..2 {
        assert_eq!(served.get("/caf%E9.txt").status_and_text(), (200, "latin"));
        assert_eq!(served.get("/back%5Cslash.txt").status_and_text(), (200, "backslash"));
    }
    assert_eq!(served.get("/caf%C3%A9.txt").status, 404);
    let page = served.get("/").content;
    assert!(page.contains("href=\"./caf%E9.txt\"") && page.contains("href=\"./back%5Cslash.txt\""), "{page}");
}

#[test]
fn errors_are_json_for_clients_that_prefer_it() {
    let folder = SiteDirectory::new(&[]);
    let served = TestServer::one(vec![route("/*", Action::Files(folder.files()))]);
    for (accept, expected) in [
        ("Accept: application/json", true),
        ("Accept: application/json, text/plain, */*", true),
        ("Accept: application/problem+json", true),
        ("Accept: text/html, application/json;q=0.9", false),
        ("Accept: */*", false),
    ] {
        let error = served.get_with("/none", &[accept]);
        assert_eq!((error.status, error.field("vary")), (404, Some("accept")), "{accept}");
        match expected {
            true => {
                assert_eq!(error.field("content-type"), Some("application/problem+json"), "{accept}");
                let problem: serde_json::Value = serde_json::from_str(&error.content).unwrap();
                let expected = serde_json::json!({"type": "about:blank", "title": "Not Found", "status": 404});
                assert_eq!(problem, expected);
            }
            false => assert!(error.content.contains("<a href=\"/\">"), "{accept}: a page has a way back"),
        }
    }
}

/// The fields that tell a navigation.
const VARY: &str = "accept, sec-fetch-mode, sec-fetch-dest, x-requested-with";

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
        ("/app/people/7", &[], (200, "app")),
        ("/app/people/7", &["Accept: */*"], (200, "app")),
        ("/app/@scope%2Fname", &["Sec-Fetch-Mode: navigate"], (200, "app")),
    ] {
        assert_eq!(served.get_with(target, lines).status_and_text(), expected, "{target} {lines:?}");
    }
    for (target, lines) in [
        ("/app/people/7", &["Accept: application/json"][..]),
        ("/app/people/7", &["Accept: application/json, text/plain, */*"]),
        ("/app/people/7", &["Accept: image/avif,image/webp,*/*;q=0.8"]),
        ("/app/people/7", &["Accept: */*", "X-Requested-With: XMLHttpRequest"]),
        ("/app/people/7", &["Accept: */*", "Sec-Fetch-Dest: image"]),
        ("/app/people/7", &["Accept: */*", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"]),
        ("/app/none.js", &["Accept: */*"]),
        ("/app/people/7", &["Accept: text/html", "Sec-Fetch-Mode: cors"]),
        ("/app/none.js", &["Accept: text/html"]),
        ("/other", &["Accept: text/html"]),
    ] {
        let response = served.get_with(target, lines);
        assert_eq!(response.status, 404, "{target} {lines:?}");
    }
    let page = served.get_with("/app/people/7", &["Accept: text/html"]);
    assert_eq!(page.field("vary"), Some(VARY));
    assert_eq!(page.field("cache-control"), Some("no-cache"), "that of the fallback page, not of the request path");
    assert_eq!(served.get("/app/people/7").field("vary"), Some(VARY));
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
