//! Sites of a configuration among the routes of an application.
#![cfg(feature = "configuration")]

use super::client::{TestRequest, TestServer};
use crate::support::temp_directory::TempDirectory;
use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use selvedge_server::Sites;
use std::net::SocketAddr;

fn text(folder: &TempDirectory) -> String {
    format!(
        r#"
        site "a.example" {{
            root "{root}"
            header "X-Site" "a"
            error-page 404 "/404.html"
            route "/old/*" {{ redirect "/new/*" status=301 }}
            route "/inside/*" {{ ip-access {{ allow "127.0.0.0/8" }}; files }}
            route "/*" {{ files }}
        }}
        site "*" {{ route "/*" {{ respond 200 "default site" }} }}
        "#,
        root = folder.path().display()
    )
}

fn folder() -> TempDirectory {
    TempDirectory::new(&[("index.html", b"home"), ("404.html", b"lost"), ("inside/plan.txt", b"the plan")])
}

/// Sends a request for a path of the first site.
fn get_from_first_site(server: &TestServer, path: &str) -> (u16, String) {
    let uri = format!("http://a.example{path}");
    let response = server.send(TestRequest::get(&uri));
    (response.status, response.text().to_owned())
}

#[test]
fn configured_sites_are_part_of_an_application() {
    let folder = folder();
    let sites = Sites::from_text(&text(&folder)).expect("the configuration is valid");
    let app = || Router::new().route("/api", get(async || "api")).fallback_service(sites.clone());
    for server in [TestServer::selvedge(app()), TestServer::axum(app()), TestServer::plain(app())] {
        assert_eq!(get_from_first_site(&server, "/api"), (200, "api".to_owned()));
        assert_eq!(get_from_first_site(&server, "/"), (200, "home".to_owned()));
        assert_eq!(get_from_first_site(&server, "/none"), (404, "lost".to_owned()));
        assert_eq!(server.get("/").text(), "default site");
        let redirect = server.send(TestRequest::get("http://a.example/old/x?y"));
        assert_eq!((redirect.status, redirect.field("location")), (301, Some("/new/x?y")));
        assert_eq!(redirect.field("x-site"), Some("a"));
    }
}

#[test]
fn find_peer_sets_the_client_on_other_servers() {
    let folder = folder();
    let sites = Sites::from_text(&text(&folder)).expect("the configuration is valid");
    let app = |sites: &Sites| Router::new().fallback_service(sites.clone());
    let inside = |server: &TestServer| get_from_first_site(server, "/inside/plan.txt").0;
    assert_eq!(inside(&TestServer::selvedge(app(&sites))), 200);
    assert_eq!(inside(&TestServer::axum(app(&sites))), 403, "the client is unknown");
    let with_peer = sites.find_peer(|extensions| extensions.get().map(|ConnectInfo::<SocketAddr>(peer)| *peer));
    assert_eq!(inside(&TestServer::axum(app(&with_peer))), 200);
}

#[test]
fn configuration_file_is_read_and_its_problems_are_reported() {
    let folder = folder();
    let file = folder.path().join("sites.kdl");
    std::fs::write(&file, "site \"a\" { root \".\" }\nlisten \"127.0.0.1:80\"\n").expect("the test writes its file");
    Sites::from_configuration(&file).expect("settings of listeners are ignored");
    std::fs::write(&file, "site \"a\" { rot \"x\" }\n").expect("the test writes its file");
    let problems = Sites::from_configuration(&file).expect_err("`rot` is not a setting").to_string();
    assert!(problems.contains("sites.kdl:1:12") && problems.contains("did you mean `root`"), "{problems}");
    let problems = Sites::from_text("site \"a\" { root \"/nowhere/at/all\" }").expect_err("the root does not exist");
    assert!(problems.to_string().starts_with("configuration:1:"), "{problems}");
}
