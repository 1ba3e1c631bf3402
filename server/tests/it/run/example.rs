//! What `examples/sites` promises, line by line of its configuration.

use crate::support::configured::{Folder, get, request};
use crate::support::program::Program;
use crate::support::wait::wait_until;
use rustix::process::Signal;
use std::fs;

const WEAVING: &str = "weaving.example";
const DRAFTS: &str = "drafts.example";
/// `ann:warp and weft`
const ANN: &str = "Authorization: Basic YW5uOndhcnAgYW5kIHdlZnQ=";
const NAVIGATION: &str = "Accept: text/html";

fn example() -> (Folder, Program) {
    let folder = Folder::of_example();
    let program = folder.serve();
    (folder, program)
}

#[test]
fn the_example_has_no_problems() {
    let exit = Folder::of_example().run("check");
    assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""), "{exit:?}");
    assert!(exit.out.ends_with("selvedge.kdl: 2 sites, 9 routes, no problems\n"), "{}", exit.out);
}

#[test]
fn two_hosts_are_served_and_others_get_421() {
    let (_folder, program) = example();
    assert!(get(&program, WEAVING, "/").text().contains("<title>Weaving</title>"));
    assert!(get(&program, "WWW.weaving.example:8080", "/").text().contains("<title>Weaving</title>"));
    assert!(get(&program, DRAFTS, "/").text().contains("<title>Drafts</title>"));
    assert_eq!(get(&program, "other.example", "/").status, 421);
}

#[test]
fn a_single_page_application_gets_its_fallback_page() {
    let (_folder, program) = example();
    let mut client = program.connect();
    let page = request(&mut client, DRAFTS, "GET /twill", &[NAVIGATION]);
    assert_eq!((page.status, page.text().contains("<title>Drafts</title>")), (200, true));
    assert_eq!(request(&mut client, DRAFTS, "GET /twill.json", &["Accept: application/json"]).status, 404);
    let script = request(&mut client, DRAFTS, "GET /assets/app.js", &[]);
    assert_eq!((script.status, script.field("cache-control")), (200, Some("max-age=31536000, immutable")));
    let missing = request(&mut client, DRAFTS, "GET /assets/none.js", &[NAVIGATION]);
    assert_eq!((missing.status, missing.field("cache-control")), (404, None), "no fallback page for a script");
    assert_eq!(missing.field("content-security-policy"), Some("default-src 'self'"), "on every status");
    let response = request(&mut client, DRAFTS, "GET /api/drafts", &[]);
    assert_eq!((response.status, response.text()), (200, "{\"drafts\": 3}\n"));
    assert_eq!(response.field("content-type"), Some("application/json"));
}

#[test]
fn a_trusted_proxy_names_the_client() {
    let (_folder, program) = example();
    let mut client = program.connect();
    let mut status = |line: &str| request(&mut client, DRAFTS, "GET /api/drafts", &[line]).status;
    assert_eq!(status("X-Forwarded-For: 10.1.2.3"), 200);
    assert_eq!(status("X-Forwarded-For: 192.0.2.1"), 403);
    assert_eq!(status("X-Forwarded-For: 10.1.2.3, 192.0.2.1"), 403, "addresses on the left are the client's claims");
    assert_eq!(status("Forwarded: for=192.0.2.1"), 200, "the other field is not read");
}

#[test]
fn redirects_and_try_files_work() {
    let (_folder, program) = example();
    for (target, status, location) in [
        ("/looms", 301, Some("/")),
        ("/looms.php?id=3", 301, Some("/?id=3")),
        ("/news/2026/may?x", 308, Some("/journal/2026/may?x")),
        ("/news", 308, Some("/journal/")),
        ("/journal", 200, None),
        ("/journal.html", 200, None),
        ("/journal/", 404, None),
    ] {
        let response = get(&program, WEAVING, target);
        assert_eq!((response.status, response.field("location")), (status, location), "{target}");
        assert_eq!(response.field("x-content-type-options"), Some("nosniff"), "{target}");
    }
    assert_eq!(get(&program, WEAVING, "/style.css").field("cache-control"), Some("max-age=86400"));
}

#[test]
fn error_pages_belong_to_their_site() {
    let (_folder, program) = example();
    let missing = get(&program, WEAVING, "/none");
    assert_eq!((missing.status, missing.text().contains("<title>No such page</title>")), (404, true));
    let hidden = get(&program, WEAVING, "/errors/404.html");
    assert_eq!((hidden.status, hidden.text().contains("<title>No such page</title>")), (404, true));
    assert!(!get(&program, DRAFTS, "/none.txt").text().contains("No such page"), "error pages belong to their site");
}

#[test]
fn downloads_need_a_password() {
    let (folder, program) = example();
    let mut client = program.connect();
    let refused = request(&mut client, WEAVING, "GET /downloads/twill.txt", &[]);
    assert_eq!(refused.status, 401);
    assert_eq!(refused.field("www-authenticate"), Some("Basic realm=\"Downloads\", charset=\"UTF-8\""));
    assert!(refused.text().contains("<title>A password is needed</title>"));
    let wrong = "Authorization: Basic YW5uOndyb25n";
    assert_eq!(request(&mut client, WEAVING, "GET /downloads/twill.txt", &[wrong]).status, 401);
    for _ in 0..3 {
        let file = request(&mut client, WEAVING, "GET /downloads/twill.txt", &[ANN]);
        assert_eq!((file.status, file.field("cache-control")), (200, Some("private")));
        assert_eq!(
            request(&mut client, WEAVING, "GET /downloads/twill.txt", &[]).status,
            401,
            "other clients still need a password"
        );
    }
    assert!(request(&mut client, WEAVING, "GET /downloads/", &[ANN]).text().contains("twill.txt"), "a list");
    let line = wait_until("the user is in the log", || {
        folder.lines("logs/weaving.json").into_iter().find(|line| line.contains("\"status\":200"))
    });
    let line: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
    assert_eq!(line["user_id"], "ann");
}

#[test]
fn a_client_over_its_rate_limit_gets_429() {
    let (_folder, program) = example();
    let mut client = program.connect();
    let mut request_as =
        |who: &str| request(&mut client, WEAVING, "GET /search", &[&format!("X-Forwarded-For: {who}")]);
    let statuses: Vec<u16> = (0..6).map(|_| request_as("192.0.2.1").status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    let refused = request_as("192.0.2.1");
    assert!(refused.text().contains("<title>One moment</title>"));
    let wait: u32 = refused.field("retry-after").expect("it has Retry-After").parse().expect("a number of seconds");
    assert!((1..=12).contains(&wait), "{wait}");
    assert_eq!(request_as("192.0.2.2").status, 200, "other clients are not limited");
}

#[test]
fn three_logs_with_three_formats_are_reopened() {
    let (folder, program) = example();
    let logs = ["logs/access.log", "logs/weaving.json", "logs/drafts.log"];
    let request_all = || {
        get(&program, "other.example", "/other");
        get(&program, WEAVING, "/style.css");
        request(&mut program.connect(), DRAFTS, "GET /assets/app.js", &["Referer: http://drafts.example/"]);
    };
    request_all();
    let first = logs.map(|log| wait_until(log, || folder.lines(log).first().cloned()));
    assert!(
        first[0].starts_with("127.0.0.1 - - [") && first[0].contains("\"GET /other HTTP/1.1\" 421 "),
        "{}",
        first[0]
    );
    let json: serde_json::Value = serde_json::from_str(&first[1]).expect("it is JSON");
    assert_eq!((json["request"]["uri"].as_str(), json["status"].as_u64()), (Some("/style.css"), Some(200)));
    assert!(first[2].ends_with(" http://drafts.example/") && first[2].contains("\"GET /assets/app.js HTTP/1.1\" 200 "));
    for log in logs {
        fs::rename(folder.path(log), folder.path(&format!("{log}.old"))).expect("a file can be moved");
    }
    program.signal(Signal::USR1);
    wait_until("all log files exist again", || logs.iter().all(|log| folder.path(log).exists()).then_some(()));
    request_all();
    for log in logs {
        wait_until(log, || (folder.lines(log).len() == 1).then_some(()));
        assert_eq!(folder.lines(&format!("{log}.old")).len(), 1, "{log}");
    }
    let exit = program.stop();
    assert_eq!((exit.out.as_str(), exit.err.lines().count()), ("", 1), "{exit:?}");
    assert!(folder.lines("logs/error.log").iter().any(|line| line.contains("421 no site has this host name")));
}
