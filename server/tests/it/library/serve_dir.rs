//! The options of `ServeDir`.

use super::client::{TIMEOUT, TestRequest, TestServer};
use crate::support::temp_directory::TempDirectory;
use axum::Router;
use selvedge_server::ServeDir;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

fn serve(dir: ServeDir) -> TestServer {
    TestServer::selvedge(Router::new().fallback_service(dir))
}

#[test]
fn index_fallback_and_error_pages() {
    let folder = TempDirectory::new(&[
        ("app.html", b"the application"),
        ("lost.html", b"nothing here"),
        ("about.html", b"about"),
        ("home/start.htm", b"start"),
        ("bare/only.txt", b"only"),
    ]);
    let dir = || ServeDir::new(folder.path());
    let server = serve(dir().not_found("lost.html"));
    assert_eq!((server.get("/none").status, server.get("/none").text()), (404, "nothing here"));
    let server = serve(dir().fallback("/app.html"));
    let navigation = server.send(TestRequest::get("/some/path").with(&[("sec-fetch-mode", "navigate")]));
    assert_eq!((navigation.status, navigation.text()), (200, "the application"));
    assert_eq!(server.get("/some/script.js").status, 404);
    let server = serve(dir().suffix(".html").index(["start.html", "start.htm"]));
    assert_eq!((server.get("/about").text(), server.get("/home/").text()), ("about", "start"));
    assert_eq!((server.get("/home").status, server.get("/bare/").status), (301, 404));
    folder.write("both.htm", b"page");
    folder.write("both/only.txt", b"only");
    let server = serve(dir().suffix(".html").suffix(".htm"));
    assert_eq!((server.get("/both").text(), server.get("/about").text()), ("page", "about"));
    let server = serve(dir().listing());
    let list = server.get("/bare/");
    assert!(list.status == 200 && list.text().contains("only.txt"));
}

#[test]
fn cache_control_and_precompressed_files() {
    let folder = TempDirectory::new(&[("a.js", b"plain"), ("a.js.gz", b"coded")]);
    let server = serve(ServeDir::new(folder.path()).cache_control("max-age=60"));
    let request = TestRequest::get("/a.js").with(&[("accept-encoding", "gzip")]);
    let response = server.send(request);
    assert_eq!((response.text(), response.field("cache-control")), ("coded", Some("max-age=60")));
    assert_eq!(server.get("/none").field("cache-control"), None);
    let server = serve(ServeDir::new(folder.path()).without_precompressed());
    let response = server.send(request);
    assert_eq!((response.text(), response.field("vary")), ("plain", None));
}

#[test]
fn directory_that_is_created_later_is_served() {
    let folder = TempDirectory::new(&[]);
    let dir = ServeDir::new(folder.path().join("later"));
    assert!(dir.clone().opened().is_err());
    let server = serve(dir.clone());
    assert_eq!(server.get("/").status, 500);
    folder.write("later/index.html", b"here");
    assert_eq!((server.get("/").status, dir.opened().is_ok()), (200, true));
}

#[test]
fn change_is_visible() {
    let folder = TempDirectory::new(&[("a.txt", b"old")]);
    for server in [serve(ServeDir::new(folder.path())), {
        TestServer::axum(Router::new().fallback_service(ServeDir::new(folder.path())))
    }] {
        folder.write("a.txt", b"old");
        assert_eq!(server.get("/a.txt").text(), "old");
        fs::write(folder.path().join("a.txt"), "new").expect("the test writes its file");
        let began = Instant::now();
        while server.get("/a.txt").text() != "new" {
            assert!(began.elapsed() < TIMEOUT, "the change is not visible");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
#[should_panic(expected = "a page is a path within the directory")]
fn page_outside_of_the_directory_panics() {
    drop(ServeDir::new(".").not_found("../secret.html"));
}
