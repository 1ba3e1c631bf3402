//! Sites of a configuration among an application's routes.
#![cfg(feature = "configuration")]

use super::asking::{Ask, Server};
use super::folder::Folder;
use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use selvedge_server::Sites;
use std::net::SocketAddr;

fn text(folder: &Folder) -> String {
    format!(
        r#"
        site "a.example" {{
            root "{root}"
            header "X-Site" "a"
            error-page 404 "/404.html"
            route "/old/*" {{ redirect "/new/*" status=301 }}
            route "/inside/*" {{ clients {{ allow "127.0.0.0/8" }}; files }}
            route "/*" {{ files }}
        }}
        site "*" {{ route "/*" {{ respond 200 "somebody else" }} }}
        "#,
        root = folder.path().display()
    )
}

fn folder() -> Folder {
    Folder::new(&[("index.html", b"home"), ("404.html", b"lost"), ("inside/plan.txt", b"the plan")])
}

/// Asks for a path of the first site.
fn ask(server: &Server, path: &str) -> (u16, String) {
    let uri = format!("http://a.example{path}");
    let answer = server.ask(Ask::get(&uri));
    (answer.status, answer.text().to_owned())
}

#[test]
fn a_configuration_is_part_of_an_application() {
    let folder = folder();
    let sites = Sites::from_text(&text(&folder)).expect("the configuration is right");
    let app = || Router::new().route("/api", get(async || "api")).fallback_service(sites.clone());
    for server in [Server::selvedge(app()), Server::axum(app()), Server::plain(app())] {
        assert_eq!(ask(&server, "/api"), (200, "api".to_owned()));
        assert_eq!(ask(&server, "/"), (200, "home".to_owned()));
        assert_eq!(ask(&server, "/none"), (404, "lost".to_owned()));
        assert_eq!(server.get("/").text(), "somebody else");
        let redirect = server.ask(Ask::get("http://a.example/old/x?y"));
        assert_eq!((redirect.status, redirect.field("location")), (301, Some("/new/x?y")));
        assert_eq!(redirect.field("x-site"), Some("a"));
    }
}

#[test]
fn who_asks_is_known_here_and_can_be_told_elsewhere() {
    let folder = folder();
    let sites = Sites::from_text(&text(&folder)).expect("the configuration is right");
    let app = |sites: &Sites| Router::new().fallback_service(sites.clone());
    let inside = |server: &Server| ask(server, "/inside/plan.txt").0;
    assert_eq!(inside(&Server::selvedge(app(&sites))), 200);
    assert_eq!(inside(&Server::axum(app(&sites))), 403, "nobody has said who asks");
    let told = sites.peers(|extensions| extensions.get().map(|ConnectInfo::<SocketAddr>(peer)| *peer));
    assert_eq!(inside(&Server::axum(app(&told))), 200);
}

#[test]
fn a_file_is_read_and_its_problems_are_told() {
    let folder = folder();
    let file = folder.path().join("sites.kdl");
    std::fs::write(&file, "site \"a\" { root \".\" }\nlisten \"127.0.0.1:80\"\n").expect("a file can be written");
    Sites::from_configuration(&file).expect("what listeners need is not looked at");
    std::fs::write(&file, "site \"a\" { rot \"x\" }\n").expect("a file can be written");
    let problems = Sites::from_configuration(&file).expect_err("`rot` is nothing").to_string();
    assert!(problems.contains("sites.kdl:1:12") && problems.contains("did you mean `root`"), "{problems}");
    let problems = Sites::from_text("site \"a\" { root \"/nowhere/at/all\" }").expect_err("there is no such root");
    assert!(problems.to_string().starts_with("configuration:1:"), "{problems}");
}
