//! The live page of the real program, and the stream of its events.

use crate::support::client::{Client, Response};
use crate::support::configured::{Folder, get, request};
use crate::support::program::Program;
use crate::support::wait::wait_until;
use serde_json::Value;

/// The hash of `U*U`.
const HASH: &str = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
/// `ann:U*U`
const ANN: &str = "Authorization: Basic YW5uOlUqVQ==";

const SITE: &str = "site \"a\" {\n    route \"/status\" { status-page; }\n    route \"/fail\" { deny status=503; }\n    \
     route \"/*\" { respond 200 \"content\"; }\n}\n";

/// The end of a stream whose content is complete.
const END_OF_CONTENT: &str = "\r\n0\r\n\r\n";

/// The place of the number of all requests among the facts of an event.
const REQUESTS: usize = 9;

/// Opens a stream on a new connection. Returns `None` in place of a response that is no stream.
fn open_stream(program: &Program, lines: &str) -> (Client, Response) {
    let mut client = program.connect();
    client.send(format!("GET /status?events HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    let head = client.receive_head().expect("it responds");
    (client, head)
}

fn open(program: &Program) -> Client {
    let (mut client, head) = open_stream(program, "");
    assert_eq!((head.status, head.field("content-type")), (200, Some("text/event-stream")));
    client.receive_past("retry: 1000\n\n");
    client
}

fn event(client: &mut Client) -> Value {
    serde_json::from_str(&client.receive_line_past("data: ")).expect("an event is JSON")
}

/// Returns the number of all requests in an event.
fn requests(event: &Value) -> u64 {
    event["facts"][REQUESTS].as_str().and_then(|text| text.parse().ok()).expect("it is a number")
}

#[test]
fn the_page_shows_failed_requests_and_loads_nothing_else() {
    let folder = Folder::new(SITE);
    let program = folder.serve();
    assert_eq!(get(&program, "a", "/fail?secret=1").status, 503);
    let page = wait_until("the request is shown", || {
        let page = get(&program, "a", "/status");
        assert_eq!(page.status, 200);
        page.text().contains(">GET /fail</th>").then_some(page)
    });
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!((page.field("cache-control"), page.field("referrer-policy")), (Some("no-store"), Some("no-referrer")));
    let policy = page.field("content-security-policy").expect("it has a policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'nonce-"), "{policy}");
    assert!(page.text().contains(">denied by a route</td>") && !page.text().contains("secret"), "{}", page.text());
    let other = get(&program, "a", "/status");
    assert_ne!(other.field("content-security-policy"), Some(policy), "each page has its own nonce");

    let head = request(&mut program.connect(), "a", "HEAD /status", &[]);
    assert_eq!((head.status, head.field("content-type")), (200, Some("text/html; charset=utf-8")));
    let head = request(&mut program.connect(), "a", "HEAD /status?events", &[]);
    assert_eq!((head.status, head.field("content-type")), (200, Some("text/event-stream")));
    for target in ["/status", "/status?events"] {
        let refused = request(&mut program.connect(), "a", &format!("POST {target}"), &["Content-Length: 0"]);
        assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD, OPTIONS")), "{target}");
        assert_eq!(request(&mut program.connect(), "a", &format!("OPTIONS {target}"), &[]).status, 204, "{target}");
    }
    program.stop();
}

#[test]
fn events_follow_each_other_until_a_reload_or_a_stop() {
    let folder = Folder::new(SITE);
    let program = folder.serve();
    let mut stream = open(&program);
    let first = event(&mut stream);
    let second = event(&mut stream);
    let time = |event: &Value| event["time"].as_u64().expect("it is a number");
    assert!(time(&second) > time(&first), "{first} {second}");
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    let before = requests(&second);
    for _ in 0..3 {
        assert_eq!(get(&program, "a", "/").status, 200);
    }
    // Each event has the state of its time. The stream itself counts at its end.
    while requests(&event(&mut stream)) < before + 3 {}

    // The route is unchanged, but its rules may not be.
    assert_eq!(folder.run("reload").code, Some(0));
    stream.receive_past(END_OF_CONTENT);
    let mut stream = open(&program);
    assert_eq!(event(&mut stream)["facts"][15], "2", "the configuration in force");
    program.stop();
    stream.receive_past(END_OF_CONTENT);
    stream.assert_closed();
}

#[test]
fn readers_at_one_moment_share_a_page_and_a_text_of_metrics() {
    let folder =
        Folder::new("site \"a\" {\n    route \"/page\" { status-page; }\n    route \"/metrics\" { metrics; }\n}\n");
    let program = folder.serve();
    for path in ["/page", "/metrics"] {
        let mut clients: Vec<_> = (0..40).map(|_| program.connect()).collect();
        for client in &mut clients {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        }
        for client in &mut clients {
            let response = client.receive("GET").expect("it responds");
            assert_eq!(response.status, 200, "{path}");
            assert!(!response.text().is_empty(), "{path}");
        }
    }
    program.stop();
}

#[test]
fn streams_are_bounded() {
    let folder = Folder::new(SITE);
    let program = folder.serve();
    let mut streams: Vec<_> = (0..32).map(|_| open(&program)).collect();
    let (_, refused) = open_stream(&program, "");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("5")));
    assert_eq!(get(&program, "a", "/status").status, 200, "the page is there without events");
    // All get the events of one thread.
    assert!(streams.iter_mut().all(|stream| event(stream)["time"].is_u64()));
    drop(streams.pop());
    wait_until("the place of a closed stream is free", || (open_stream(&program, "").1.status == 200).then_some(()));
    program.stop();
}

#[test]
fn the_page_is_protected_by_default() {
    let public = "listen \"0.0.0.0:0\"\nsite \"a\" {\n    route \"/status\" { status-page; }\n}\n";
    let folder = Folder::new(public);
    let checked = folder.run("check");
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.err.contains("selvedge.kdl:5:23: a `status-page` that every client can see"), "{checked:?}");
    assert!(checked.err.contains("status-page public=#true"), "{checked:?}");
    folder.configure(&public.replace("status-page", "status-page public=#true"));
    assert_eq!(folder.run("check").code, Some(0));

    let users = format!("basic-auth {{ user \"ann\" \"{HASH}\"; }}; status-page");
    folder.configure(&public.replace("status-page", &users).replace("listen \"0.0.0.0:0\"\n", ""));
    let program = folder.serve();
    assert_eq!(get(&program, "a", "/status").status, 401);
    assert_eq!(open_stream(&program, "").1.status, 401);
    assert_eq!(request(&mut program.connect(), "a", "GET /status", &[ANN]).status, 200);
    assert_eq!(open_stream(&program, &format!("{ANN}\r\n")).1.status, 200);
    program.stop();
}
