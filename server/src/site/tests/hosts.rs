//! Selection of the site by host.

use super::*;
use crate::site::route_table::{SiteProblem, SiteProblemKind};

#[test]
fn site_is_selected_by_host() {
    let named =
        |name: &str, text, label| SiteRules { site_tag: label, ..site(name, vec![route("/*", respond_with(text))]) };
    let served = TestServer::new(vec![
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
        assert_eq!(served.request("GET", "/", host, &[]).status_and_text(), (200, text), "{host}");
        assert_eq!(served.logged().site_tag, label);
    }
    let misdirected = served.request("GET", "/", "other.example", &[]);
    assert_eq!(misdirected.status, 421);
    let logged = served.logged();
    assert_eq!((logged.status, logged.reason), (421, Some("no site has this host name")));
    // An absolute target overrides Host.
    assert_eq!(served.request("GET", "http://example.com/", "other.example", &[]).status_and_text(), (200, "exact"));
    assert_eq!(served.exchange("GET / HTTP/1.0\r\n\r\n").status, 421, "a request without a host");
}

#[test]
fn star_is_the_default_site() {
    let served = TestServer::new(vec![
        site("*", vec![route("/*", respond_with("default"))]),
        site("a.example", vec![route("/*", respond_with("a"))]),
    ]);
    assert_eq!(served.request("GET", "/", "a.example", &[]).content, "a");
    assert_eq!(served.request("GET", "/", "b.example", &[]).content, "default");
    assert_eq!(served.exchange("GET / HTTP/1.0\r\n\r\n").content, "default");
}

#[test]
fn contradictory_sites_are_rejected() {
    let mut duplicate = site("a.example", vec![]);
    duplicate.names.push("b.example".parse().unwrap());
    let target = Template::parse("/*/*").unwrap();
    duplicate.routes.push(route("/x/*", Action::Redirect(Redirect::new(301, target).unwrap())));
    let folder = SiteDirectory::new(&[]);
    let pages = vec![(selvedge::StatusCode::OK, path("/ok.html"))];
    duplicate.error_pages = Some(ErrorPages { root: folder.root(), pages });
    let problems = RouteTable::new(vec![site("B.example.", vec![]), duplicate]).unwrap_err();
    let problem = |kind| SiteProblem { site: 1, kind };
    assert_eq!(
        problems,
        [
            problem(SiteProblemKind::DuplicateName { name: 1, taken_by: 0 }),
            problem(SiteProblemKind::MissingWildcard { route: 0 }),
            problem(SiteProblemKind::PageForNonError(selvedge::StatusCode::OK)),
        ]
    );
}
