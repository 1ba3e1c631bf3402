//! Response fields and error pages.

use super::*;
use selvedge::StatusCode;

fn with_headers(edit: impl Fn(&mut HeaderEdits)) -> HeaderEdits {
    let mut headers = HeaderEdits::default();
    edit(&mut headers);
    headers
}

#[test]
fn header_edits_apply_to_every_status() {
    let folder = SiteDirectory::new(&[("a.txt", "0123456789"), ("big.bin", &"x".repeat(100_000))]);
    let mut rules = site(
        "*",
        vec![
            route("/deny", Action::Deny(DenyResponse::new(403).unwrap())),
            route("/say", respond_with("hello")),
            Route {
                headers: with_headers(|headers| {
                    headers.set("X-Site", text("route"), None).unwrap();
                    headers.add("X-More", text("2"), None).unwrap();
                }),
                ..route("/*", Action::Files(folder.files()))
            },
        ],
    );
    rules.headers = with_headers(|headers| {
        headers.set("X-Content-Type-Options", text("nosniff"), None).unwrap();
        headers.set("X-Site", text("site"), None).unwrap();
        headers.add("X-More", text("1"), None).unwrap();
        headers.remove("Accept-Ranges", None).unwrap();
        for (name, pattern) in [("X-Any", "/*"), ("X-Text", "*.txt"), ("X-Invalid", "/%zz")] {
            let only_for = ResponseSelector::Path(Pattern::parse(pattern).unwrap());
            headers.set(name, text("1"), Some(only_for)).unwrap();
        }
    });
    rules.file_fields.add(ResponseSelector::Path(Pattern::parse("*.txt").unwrap()), "max-age=60").unwrap();
    let served = TestServer::new(vec![rules]);
    wait_until_stable();
    let etag = format!("If-None-Match: {}", served.get("/a.txt").field("etag").unwrap());
    for round in 0..3 {
        for (target, lines, status, of_file) in [
            ("/a.txt", &[][..], 200, true),
            ("/a.txt", &[&*etag], 304, true),
            ("/a.txt", &["Range: bytes=2-3"], 206, true),
            ("/a.txt", &["Range: bytes=2-3,5-6"], 206, true),
            ("/a.txt", &["Range: bytes=20-"], 416, false),
            ("/a.txt", &["If-Match: \"no\""], 412, false),
            ("/big.bin", &[], 200, false),
            ("/none.txt", &[], 404, false),
            ("/deny", &[], 403, false),
            ("/say", &[], 200, false),
            ("/%zz", &[], 400, false),
        ] {
            let response = served.get_with(target, lines);
            assert_eq!(response.status, status, "{target} {lines:?} {round}");
            assert_eq!(response.values("x-content-type-options"), ["nosniff"], "{target} {round}");
            let by_route = !matches!(target, "/deny" | "/say" | "/%zz");
            assert_eq!(
                response.values("x-site"),
                [if by_route { "route" } else { "site" }],
                "{target} {lines:?} {round}"
            );
            assert_eq!(response.values("x-more"), if by_route { &["1", "2"][..] } else { &["1"] }, "{target} {round}");
            assert_eq!(response.field("accept-ranges"), None, "{target}");
            let only_for = ["x-any", "x-text", "x-invalid"].map(|name| response.field(name).is_some());
            assert_eq!(only_for, [true, target.ends_with(".txt"), target == "/%zz"], "{target} {round}");
            assert_eq!(response.field("cache-control"), of_file.then_some("max-age=60"), "{target} {lines:?} {round}");
        }
        let parts = served.get_with("/a.txt", &["Range: bytes=2-3,5-6"]);
        assert!(parts.field("content-type").unwrap().starts_with("multipart/byteranges; boundary="));
        let part = served.get_with("/a.txt", &["Range: bytes=2-3"]);
        assert_eq!((part.field("content-range"), &*part.content), (Some("bytes 2-3/10"), "23"));
    }
}

#[test]
fn error_pages_replace_errors() {
    let folder = SiteDirectory::new(&[("errors/404.html", "lost"), ("errors/403.html", "no"), ("page.html", "page")]);
    let fixed = FixedResponse::new(404, "text/plain", text("as written")).unwrap();
    let mut rules = site(
        "*",
        vec![
            route("/deny", Action::Deny(DenyResponse::new(403).unwrap())),
            route("/written", Action::Respond(fixed)),
            route("/*", Action::Files(folder.files())),
        ],
    );
    let pages = [(404, "/errors/404.html"), (403, "/errors/403.html"), (405, "/errors/none.html")];
    let pages = pages.map(|(status, page)| (StatusCode::new(status).unwrap(), path(page))).to_vec();
    rules.error_pages = Some(ErrorPages { root: folder.root(), pages });
    rules.headers = with_headers(|headers| headers.set("X-Site", text("1"), None).unwrap());
    let served = TestServer::new(vec![rules]);
    wait_until_stable();
    let page = served.get("/none");
    assert_eq!(page.status_and_text(), (404, "lost"));
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!((page.field("x-site"), page.field("etag"), page.field("last-modified")), (Some("1"), None, None));
    // Preconditions and ranges are about the requested resource, not about the error page.
    let lines = ["If-None-Match: *", "Range: bytes=0-1", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"];
    assert_eq!(served.get_with("/none", &lines).status_and_text(), (404, "lost"));
    let head = served.request("HEAD", "/none", "test", &[]);
    assert_eq!((head.status_and_text(), head.field("content-length")), ((404, ""), Some("4")));
    served.clear_log();
    assert_eq!(served.get("/deny").status_and_text(), (403, "no"));
    assert_eq!(served.logged().reason, Some("denied by a route"), "the error page does not change the log reason");
    assert_eq!(served.get("/written").status_and_text(), (404, "as written"));
    assert_eq!(
        served.get("/errors/404.html").status_and_text(),
        (200, "lost"),
        "an error page is also served as a file"
    );
    served.clear_log();
    let unreadable_page = served.request("DELETE", "/page.html", "test", &[]);
    assert!(unreadable_page.status == 405 && unreadable_page.content.contains("405"), "{unreadable_page:?}");
    assert_eq!(unreadable_page.field("allow"), Some("GET, HEAD, OPTIONS"));
    assert_eq!(served.logged().reason, Some("cannot read the error page of the site"));
}
