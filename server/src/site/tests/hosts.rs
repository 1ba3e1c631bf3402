//! Which site answers.

use super::*;
use crate::site::table::{SiteProblem, SiteProblemKind};

#[test]
fn the_site_of_a_host_answers() {
    let named = |name: &str, text, label| SiteRules { label, ..site(name, vec![route("/*", say(text))]) };
    let served = Served::new(vec![
        named("example.com", "exact", 7),
        named("*.example.com", "wild", 8),
        named("[::1]", "address", 9),
    ]);
    for (host, text, label) in [
        ("example.com", "exact", 7),
        ("EXAMPLE.com.:8080", "exact", 7),
        ("a.b.example.com", "wild", 8),
        ("[0:0::1]:80", "address", 9),
    ] {
        assert_eq!(served.ask("GET", "/", host, &[]).said(), (200, text), "{host}");
        assert_eq!(served.logged().label, label);
    }
    let stranger = served.ask("GET", "/", "other.example", &[]);
    assert_eq!(stranger.status, 421);
    let logged = served.logged();
    assert_eq!((logged.status, logged.reason), (421, Some("no site has this name")));
    // The target names the host where it has one.
    assert_eq!(served.ask("GET", "http://example.com/", "other.example", &[]).said(), (200, "exact"));
    assert_eq!(served.exchange("GET / HTTP/1.0\r\n\r\n").status, 421, "a request without a host");
}

#[test]
fn a_star_is_the_default() {
    let served =
        Served::new(vec![site("*", vec![route("/*", say("default"))]), site("a.example", vec![route("/*", say("a"))])]);
    assert_eq!(served.ask("GET", "/", "a.example", &[]).content, "a");
    assert_eq!(served.ask("GET", "/", "b.example", &[]).content, "default");
    assert_eq!(served.exchange("GET / HTTP/1.0\r\n\r\n").content, "default");
}

#[test]
fn sites_that_do_not_go_together() {
    let mut twice = site("a.example", vec![]);
    twice.names.push("b.example".parse().unwrap());
    let target = Template::parse("/*/*").unwrap();
    twice.routes.push(route("/x/*", Action::Redirect(Redirect::new(301, target).unwrap())));
    let folder = Folder::new(&[]);
    let pages = vec![(selvedge::Status::OK, path("/ok.html"))];
    twice.error_pages = Some(ErrorPages { root: folder.root(), pages });
    let problems = SiteTable::new(vec![site("B.example.", vec![]), twice]).unwrap_err();
    let problem = |kind| SiteProblem { site: 1, kind };
    assert_eq!(
        problems,
        [
            problem(SiteProblemKind::NameTaken { name: 1, by: 0 }),
            problem(SiteProblemKind::TooFewStars { route: 0 }),
            problem(SiteProblemKind::PageOfNoError(selvedge::Status::OK)),
        ]
    );
}
