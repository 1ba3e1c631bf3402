//! Files served from the cache by the fast path.

use super::*;

#[test]
fn changed_file_becomes_visible() {
    let folder = SiteDirectory::new(&[("a.txt", "old"), ("b.txt", "b"), ("new", "changed")]);
    let served = TestServer::one(vec![
        route("/c.txt", Action::Rewrite(Template::parse_path("/b.txt").unwrap())),
        route("/*", Action::Files(folder.files())),
    ]);
    wait_until_stable();
    for _ in 0..3 {
        assert_eq!(served.get("/a.txt").status_and_text(), (200, "old"));
        assert_eq!(served.get("/c.txt").status_and_text(), (200, "b"));
    }
    rename_over(&folder.0.join("new"), &folder.0.join("a.txt"));
    folder.write("b.txt", "b, too");
    until("the new file is served", || served.get("/a.txt").status_and_text() == (200, "changed"));
    until("the new content is served", || served.get("/c.txt").status_and_text() == (200, "b, too"));
    fs::remove_file(folder.0.join("a.txt")).unwrap();
    until("the file is missing", || served.get("/a.txt").status == 404);
}

#[test]
fn replaced_root_is_served() {
    let folder = SiteDirectory::new(&[("now/a.txt", "old"), ("next/a.txt", "new")]);
    let root = Arc::new(Root::open(&folder.0.join("now")).unwrap());
    let served = TestServer::one(vec![route("/*", Action::Files(files_rules(root)))]);
    wait_until_stable();
    assert_eq!(served.get("/a.txt").content, "old");
    assert_eq!(served.get("/a.txt").content, "old");
    rename_over(&folder.0.join("now"), &folder.0.join("past"));
    rename_over(&folder.0.join("next"), &folder.0.join("now"));
    until("the new root is served", || served.get("/a.txt").content == "new");
}

#[test]
fn conditions_and_hosts_apply_to_cached_files() {
    let (one, two) = (SiteDirectory::new(&[("a.txt", "one")]), SiteDirectory::new(&[("a.txt", "two")]));
    let denied = Route {
        conditions: vec![Condition::Query(NamedCondition { name: "no".into(), values: Vec::new() })],
        ..route("/a.txt", Action::Deny(DenyResponse::new(403).unwrap()))
    };
    let served = TestServer::new(vec![
        site("one.test", vec![denied, route("/*", Action::Files(one.files()))]),
        site("two.test", vec![route("/*", Action::Files(two.files()))]),
    ]);
    wait_until_stable();
    for _ in 0..3 {
        assert_eq!(served.request("GET", "/a.txt", "one.test", &[]).status_and_text(), (200, "one"));
        assert_eq!(served.request("GET", "/a.txt?no", "one.test", &[]).status, 403);
        assert_eq!(served.request("GET", "/a.txt", "two.test", &[]).status_and_text(), (200, "two"));
        assert_eq!(served.request("GET", "/a.txt?no", "two.test", &[]).status_and_text(), (200, "two"));
        assert_eq!(served.request("HEAD", "/a.txt", "two.test", &[]).status_and_text(), (200, ""));
        assert_eq!(served.request("POST", "/a.txt", "two.test", &["Content-Length: 0"]).status, 405);
    }
}
