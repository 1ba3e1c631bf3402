//! Fields of answers, and pages for errors.

use super::*;
use selvedge::Status;

fn with_headers(edit: impl Fn(&mut HeaderEdits)) -> HeaderEdits {
    let mut headers = HeaderEdits::default();
    edit(&mut headers);
    headers
}

#[test]
fn fields_on_every_status() {
    let folder = Folder::new(&[("a.txt", "0123456789"), ("big.bin", &"x".repeat(100_000))]);
    let mut rules = site(
        "*",
        vec![
            route("/deny", Action::Deny(Denial::new(403).unwrap())),
            route("/say", say("hello")),
            Route {
                headers: with_headers(|headers| {
                    headers.set("X-Site", "route").unwrap();
                    headers.add("X-More", "2").unwrap();
                }),
                ..route("/*", Action::Files(folder.files()))
            },
        ],
    );
    rules.headers = with_headers(|headers| {
        headers.set("X-Content-Type-Options", "nosniff").unwrap();
        headers.set("X-Site", "site").unwrap();
        headers.add("X-More", "1").unwrap();
        headers.remove("Accept-Ranges").unwrap();
    });
    rules.cache.add(Pattern::parse("*.txt").unwrap(), "max-age=60").unwrap();
    let served = Served::new(vec![rules]);
    settle();
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
            let answer = served.get_with(target, lines);
            assert_eq!(answer.status, status, "{target} {lines:?} {round}");
            assert_eq!(answer.values("x-content-type-options"), ["nosniff"], "{target} {round}");
            let by_route = !matches!(target, "/deny" | "/say" | "/%zz");
            assert_eq!(
                answer.values("x-site"),
                [if by_route { "route" } else { "site" }],
                "{target} {lines:?} {round}"
            );
            assert_eq!(answer.values("x-more"), if by_route { &["1", "2"][..] } else { &["1"] }, "{target} {round}");
            assert_eq!(answer.field("accept-ranges"), None, "{target}");
            assert_eq!(answer.field("cache-control"), of_file.then_some("max-age=60"), "{target} {lines:?} {round}");
        }
        let parts = served.get_with("/a.txt", &["Range: bytes=2-3,5-6"]);
        assert!(parts.field("content-type").unwrap().starts_with("multipart/byteranges; boundary="));
        let part = served.get_with("/a.txt", &["Range: bytes=2-3"]);
        assert_eq!((part.field("content-range"), &*part.content), (Some("bytes 2-3/10"), "23"));
    }
}

#[test]
fn pages_for_errors() {
    let folder = Folder::new(&[("errors/404.html", "lost"), ("errors/403.html", "no"), ("page.html", "page")]);
    let sure = Reply::new(404, "text/plain", "as written").unwrap();
    let mut rules = site(
        "*",
        vec![
            route("/deny", Action::Deny(Denial::new(403).unwrap())),
            route("/written", Action::Respond(sure)),
            route("/*", Action::Files(folder.files())),
        ],
    );
    let pages = [(404, "/errors/404.html"), (403, "/errors/403.html"), (405, "/errors/none.html")];
    let pages = pages.map(|(status, page)| (Status::new(status).unwrap(), path(page))).to_vec();
    rules.error_pages = Some(ErrorPages { root: folder.root(), pages });
    rules.headers = with_headers(|headers| headers.set("X-Site", "1").unwrap());
    let served = Served::new(vec![rules]);
    settle();
    let page = served.get("/none");
    assert_eq!(page.said(), (404, "lost"));
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!((page.field("x-site"), page.field("etag"), page.field("last-modified")), (Some("1"), None, None));
    // Neither a precondition nor a range of what was asked for is about the page.
    let lines = ["If-None-Match: *", "Range: bytes=0-1", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"];
    assert_eq!(served.get_with("/none", &lines).said(), (404, "lost"));
    let head = served.ask("HEAD", "/none", "test", &[]);
    assert_eq!((head.said(), head.field("content-length")), ((404, ""), Some("4")));
    served.clear_log();
    assert_eq!(served.get("/deny").said(), (403, "no"));
    assert_eq!(served.logged().reason, Some("a route denies it"), "the page takes nothing from the log");
    assert_eq!(served.get("/written").said(), (404, "as written"));
    assert_eq!(served.get("/errors/404.html").said(), (200, "lost"), "it is a file like others, too");
    served.clear_log();
    let without = served.ask("DELETE", "/page.html", "test", &[]);
    assert!(without.status == 405 && without.content.contains("405"), "{without:?}");
    assert_eq!(without.field("allow"), Some("GET, HEAD, OPTIONS"));
    assert_eq!(served.logged().reason, Some("the page of the site for this error cannot be read"));
}
