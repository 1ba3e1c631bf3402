//! Files that are remembered under the path that led to them are what the long way leads to.

use super::*;

/// A file is looked at again after half a second; with the clock's lag that is a second.
const SEEN: Duration = Duration::from_millis(1100);

#[test]
fn a_changed_file_is_seen_within_a_second() {
    let folder = Folder::new(&[("a.txt", "old"), ("b.txt", "b"), ("new", "changed")]);
    let served = Served::one(vec![
        route("/c.txt", Action::Rewrite(Template::parse_path("/b.txt").unwrap())),
        route("/*", Action::Files(folder.files())),
    ]);
    settle();
    for _ in 0..3 {
        assert_eq!(served.get("/a.txt").said(), (200, "old"));
        assert_eq!(served.get("/c.txt").said(), (200, "b"));
    }
    swap(&folder.0.join("new"), &folder.0.join("a.txt"));
    folder.write("b.txt", "b, too");
    std::thread::sleep(SEEN);
    assert_eq!(served.get("/a.txt").said(), (200, "changed"));
    assert_eq!(served.get("/c.txt").said(), (200, "b, too"));
    fs::remove_file(folder.0.join("a.txt")).unwrap();
    std::thread::sleep(SEEN);
    assert_eq!(served.get("/a.txt").status, 404);
}

#[test]
fn a_root_that_is_swapped_is_served() {
    let folder = Folder::new(&[("now/a.txt", "old"), ("next/a.txt", "new")]);
    let root = Arc::new(Root::open(&folder.0.join("now")).unwrap());
    let served = Served::one(vec![route("/*", Action::Files(files_of(root)))]);
    settle();
    assert_eq!(served.get("/a.txt").content, "old");
    assert_eq!(served.get("/a.txt").content, "old");
    swap(&folder.0.join("now"), &folder.0.join("past"));
    swap(&folder.0.join("next"), &folder.0.join("now"));
    std::thread::sleep(SEEN);
    assert_eq!(served.get("/a.txt").content, "new");
}

#[test]
fn conditions_and_hosts_hold_for_remembered_files() {
    let (one, two) = (Folder::new(&[("a.txt", "one")]), Folder::new(&[("a.txt", "two")]));
    let denied = Route {
        conditions: vec![Condition::Query { name: "no".into(), value: None }],
        ..route("/a.txt", Action::Deny(Denial::new(403).unwrap()))
    };
    let served = Served::new(vec![
        site("one.test", vec![denied, route("/*", Action::Files(one.files()))]),
        site("two.test", vec![route("/*", Action::Files(two.files()))]),
    ]);
    settle();
    for _ in 0..3 {
        assert_eq!(served.ask("GET", "/a.txt", "one.test", &[]).said(), (200, "one"));
        assert_eq!(served.ask("GET", "/a.txt?no", "one.test", &[]).status, 403);
        assert_eq!(served.ask("GET", "/a.txt", "two.test", &[]).said(), (200, "two"));
        assert_eq!(served.ask("GET", "/a.txt?no", "two.test", &[]).said(), (200, "two"));
        assert_eq!(served.ask("HEAD", "/a.txt", "two.test", &[]).said(), (200, ""));
        assert_eq!(served.ask("POST", "/a.txt", "two.test", &["Content-Length: 0"]).status, 405);
    }
}
