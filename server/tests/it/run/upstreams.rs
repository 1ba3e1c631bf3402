//! Upstreams of the real program: their state in `selvedge status`, turns, and what responses and paths become.

use crate::support::backend::Backend;
use crate::support::configured::{Folder, get, request};
use crate::support::program::{Program, run_to_exit, selvedge_command};
use crate::support::wait::wait_until;
use serde_json::{Value, json};
use std::io::Write;
use std::net::{TcpListener, TcpStream};

fn status(folder: &Folder, more: &[&str]) -> String {
    let exit =
        run_to_exit(selvedge_command().arg("status").args(more).arg("--control").arg(folder.path("selvedge.sock")));
    assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""), "{exit:?}");
    exit.out
}

fn upstreams(folder: &Folder) -> Value {
    let status: Value = serde_json::from_str(&status(folder, &["--json"])).expect("it is JSON");
    status["upstreams"].clone()
}

/// Returns the lines of the error log that have a text.
fn lines_with(folder: &Folder, text: &str) -> Vec<String> {
    folder.lines("error.log").into_iter().filter(|line| line.contains(text)).collect()
}

#[test]
fn status_shows_servers_their_requests_and_failures() {
    let backend = Backend::start();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    let upstream = |more: &str| {
        format!(
            "upstream \"app\" {{\n server \"http://{}\"\n server \"http://{closed}\"\n balance \"round-robin\"\n \
             failures 1\n {more} }}\nsite \"*\" {{\n    route \"/*\" {{ proxy \"app\"; }}\n}}\n",
            backend.address()
        )
    };
    let folder = Folder::new(&upstream(""));
    let program = folder.serve();
    for _ in 0..2 {
        assert_eq!(get(&program, "a", "/").status, 200, "the other server has it");
    }
    let mut events = program.connect();
    events.send_request("GET", "/events", "");
    events.receive_past("\r\n\r\n");
    // Places are free again after the responses.
    let has_one = |now: &Value| now[0]["servers"][0]["requests"] == 1;
    let now = wait_until("one request is at work", || Some(upstreams(&folder)).filter(has_one));
    let (working, out) = (&now[0]["servers"][0], &now[0]["servers"][1]);
    assert_eq!((&now[0]["name"], &now[0]["waiting"]), (&json!("app"), &json!(0)));
    let expected = json!({"name": format!("http://{}", backend.address()), "state": "healthy", "out_seconds": null,
        "requests": 1, "waiting": 0, "failures": 0});
    assert_eq!(*working, expected);
    assert_eq!((&out["state"], &out["failures"], &out["requests"]), (&json!("out"), &json!(1), &json!(0)));
    assert!(out["out_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0 && seconds <= 10.0), "{out}");
    let text = status(&folder, &[]);
    let line = format!("upstreams      app: http://{} healthy, 1 at work\n", backend.address());
    assert!(text.contains(&line), "{text}");
    assert!(text.contains(&format!("app: http://{closed} out for ")) && text.contains(" s, 0 at work, 1 failure\n"));

    // A changed group begins with healthy servers and goes on counting, and the earlier one drains.
    folder.configure(&upstream("slow-start \"1s\";"));
    let exit = run_to_exit(selvedge_command().arg("reload").arg("--control").arg(folder.path("selvedge.sock")));
    assert_eq!(exit.code, Some(0), "{exit:?}");
    let now = upstreams(&folder);
    assert_eq!((&now[0]["servers"][1]["state"], &now[0]["servers"][1]["failures"]), (&json!("healthy"), &json!(1)));
    assert_eq!((&now[1]["servers"][0]["state"], &now[1]["servers"][0]["requests"]), (&json!("draining"), &json!(1)));
    drop(events);
    wait_until("the earlier group has no requests", || (upstreams(&folder).as_array()?.len() == 1).then_some(()));
    program.stop();
}

#[test]
fn all_workers_share_the_turns_of_a_group() {
    let backends = [Backend::start(), Backend::start(), Backend::start()];
    let [a, b, c] = backends.each_ref().map(Backend::address);
    let upstream =
        format!("upstream \"app\" {{ server \"http://{a}\" \"http://{b}\"; server \"http://{c}\" weight=2\n");
    let site = "site \"*\" {\n    route \"/*\" { proxy \"app\" { host \"upstream\"; }; }\n}\n";
    let folder = Folder::new(&format!("{upstream} balance \"round-robin\"; }}\n{site}"));
    let program = folder.serve();
    let mut counts = [0; 3];
    // Each connection belongs to one of two workers.
    for _ in 0..40 {
        let text = get(&program, "a", "/").text().to_owned();
        let at = [a, b, c].iter().position(|address| text.contains(&format!("\r\nhost: {address}\r\n")));
        counts[at.expect("a server has responded")] += 1;
    }
    assert_eq!(counts, [10, 10, 20]);
    program.stop();
}

/// Starts the program in front of an application with a prepared response.
fn with_prepared(prepared: &'static str, route: &str) -> (Backend, Folder, Program) {
    let backend = Backend::with_prepared(prepared);
    let target = format!("http://{}", backend.address());
    let routes = route.replace("APP", &target);
    let folder = Folder::new(&format!("log {{ error \"error.log\"; }}\nsite \"*\" {{\n{routes}\n}}\n"));
    let program = folder.serve();
    (backend, folder, program)
}

#[test]
fn malformed_content_at_its_start_is_502_and_later_ends_the_connection_with_one_line() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n";
    let (_backend, folder, program) = with_prepared(head, "route \"/*\" { proxy \"APP\"; }");
    let refused = get(&program, "a", "/prepared");
    assert_eq!(refused.status, 502);
    let is_logged = || lines_with(&folder, "a chunk size is invalid").pop();
    let line = wait_until("the reason is logged", is_logged);
    assert!(line.contains("Upstream: 502 read content: malformed response"), "{line}");
    program.stop();
    assert_eq!(lines_with(&folder, "StreamFailed").len(), 0);

    let cut = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8000\r\n";
    let text: &'static str = Box::leak(format!("{cut}{}\r\nx\r\n", "a".repeat(0x8000)).into_boxed_str());
    let (_backend, folder, program) = with_prepared(text, "route \"/*\" { proxy \"APP\"; }");
    let mut client = TcpStream::connect(program.address()).expect("it listens");
    client.write_all(b"GET /prepared HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
    let received = std::io::read_to_string(client).expect("it closes the connection");
    assert!(received.starts_with("HTTP/1.1 200 OK\r\n") && !received.ends_with("0\r\n\r\n"), "it is incomplete");
    wait_until("the reason is logged", || lines_with(&folder, "incomplete response of").pop());
    program.stop();
    assert_eq!(
        folder.lines("error.log").iter().filter(|line| line.contains("Failed")).count(),
        0,
        "{:?}",
        folder.lines("error.log")
    );
}

#[test]
fn date_is_that_of_the_application_and_server_is_left_out_on_request() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let prepared =
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: app\r\nContent-Length: 2\r\n\r\nok";
    let routes = "route \"/prepared\" { proxy \"APP\"; header-remove \"Server\"; }\n\
                  route \"/named\" { respond 200 \"x\"; header \"Server\" \"{host}\"; }\nroute \"/*\" { respond 200 \"x\"; }";
    let (_backend, _folder, program) = with_prepared(prepared, routes);
    let response = get(&program, "a", "/prepared");
    assert_eq!((response.field("date"), response.field("server")), (Some(date), None));
    assert_eq!(get(&program, "a", "/named").field("server"), Some("a"));
    assert_eq!(get(&program, "a", "/x").field("server"), Some("selvedge"));
    program.stop();
}

#[test]
fn paths_with_encoded_slashes_reach_the_application_but_no_other_route() {
    let routes = "route \"/admin/*\" { deny; }\nroute \"/*\" { proxy \"APP\"; }";
    let (_backend, _folder, program) = with_prepared("", routes);
    for target in ["/api/projects/a%2Fb?x", "//cdn//x", "/@scope%2fname"] {
        let response = get(&program, "a", target);
        assert!(response.text().starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{target}");
    }
    for (target, status) in [
        ("/admin%2Fx", 404),
        ("/%2Fadmin/x", 404),
        ("/a/..%5cadmin/x", 404),
        ("//admin/x", 403),
        ("/a/..%2fadmin/x", 400),
    ] {
        assert_eq!(get(&program, "a", target).status, status, "{target}");
    }
    program.stop();
}

#[test]
fn options_with_no_forwards_left_end_at_the_proxy() {
    let (backend, _folder, program) = with_prepared("", "route \"/*\" { proxy \"APP\"; }");
    let mut client = program.connect();
    assert_eq!(request(&mut client, "a", "OPTIONS /", &["Max-Forwards: 0"]).status, 204);
    assert_eq!(backend.connections(), 0);
    let forwarded = request(&mut client, "a", "OPTIONS /", &["Max-Forwards: 3"]);
    assert!(forwarded.text().contains("\r\nmax-forwards: 2\r\n"), "{}", forwarded.text());
    program.stop();
}

#[test]
fn the_command_takes_a_url_with_a_slash_and_names_the_setting_for_a_path() {
    let backend = Backend::start();
    let to = format!("http://{}/", backend.address());
    let program = Program::start(selvedge_command().args(["proxy", "--from", "127.0.0.1:0", "--to", &to]));
    assert_eq!(get(&program, "a", "/x").status, 200);
    program.stop();
    let exit = run_to_exit(selvedge_command().args(["proxy", "--to", "http://localhost:1/api"]));
    assert_eq!(exit.code, Some(2));
    assert!(exit.err.contains("proxy \"http://localhost:1\" { path \"/api/*\"; }"), "{exit:?}");
}
