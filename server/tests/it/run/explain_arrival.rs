//! How an explained request arrives: listeners, handshakes, and the options that are about them.

use crate::support::configured::Folder;
use crate::support::program::{Exit, run_to_exit, selvedge_command};
use crate::support::tls::Authority;
use crate::support::wait::wait_until;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Runs a command with words in front of the configuration of a folder.
fn command(folder: &Folder, words: &[&str]) -> Exit {
    run_to_exit(selvedge_command().args(words).arg("--config").arg(folder.path("selvedge.kdl")))
}

fn folder(text: &str) -> Folder {
    let folder = Folder::new("");
    folder.write("selvedge.kdl", text);
    folder
}

/// Asserts that explanations succeed and have these lines.
fn assert_lines(folder: &Folder, words: &[&str], expected: &[&str]) {
    let done = command(folder, &[&["explain"], words].concat());
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    for expected in expected {
        assert!(done.out.contains(&format!("{expected}\n")), "{words:?}, missing: {expected}\n{}", done.out);
    }
}

const BOTH: &str = "\
listen \"127.0.0.1:8080\"
listen \"127.0.0.1:8443\" tls=#true
site \"a.test\" {
    https-redirect #false
    route \"/*\" { respond 200 \"in\"; }
    expect \"/\" status=200
    expect \"http://a.test:8080/\" status=200
    expect \"http://a.test:8443/\" status=400 content-type=\"text/plain\"
    expect \"http://a.test/\" response=#false
}
";

#[test]
fn a_request_needs_a_listener_with_its_port_and_its_scheme() {
    let folder = folder(BOTH);
    for (url, expected) in [
        ("http://a.test:8080/", ["+ listener 127.0.0.1:8080 without TLS (selvedge.kdl:1)", "= 200 OK"]),
        ("https://a.test:8443/", ["+ listener 127.0.0.1:8443 with TLS (selvedge.kdl:2)", "= 200 OK"]),
        (
            "http://a.test:8443/",
            [
                "! listener 127.0.0.1:8443 has TLS, so a plain request gets 400 (selvedge.kdl:2)",
                "= 400 Bad Request: the client sent plain HTTP to a TLS port\n  content-type: text/plain",
            ],
        ),
        (
            "https://a.test:8080/",
            ["! listener 127.0.0.1:8080 has no TLS, so the handshake fails (selvedge.kdl:1)", "= no response"],
        ),
        (
            "http://a.test/",
            ["! listener none has port 80, but 8080, 8443; the request reaches no site", "= no response"],
        ),
    ] {
        assert_lines(&folder, &[url], &expected);
    }
}

#[test]
fn an_expectation_needs_a_listener_that_takes_its_request() {
    let met = folder(BOTH);
    let checked = command(&met, &["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let unmet = BOTH.replace("status=400 content-type=\"text/plain\"", "status=200");
    let unmet = unmet.replace("\"http://a.test/\" response=#false", "\"http://a.test/\" status=200");
    let unmet = unmet.replace("8080/\" status=200", "8080/\" response=#false");
    let refused = command(&folder(&unmet), &["check"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for expected in [
        "GET http://a.test:8443/: expected status 200, and it is 400: the client sent plain HTTP to a TLS port\n",
        "! listener 127.0.0.1:8443 has TLS, so a plain request gets 400 (selvedge.kdl:2)\n",
        "GET http://a.test/: the request gets no response: listener none has port 80, but 8080, 8443; the request reaches no site\n",
        "GET http://a.test:8080/: the request gets a response\n",
        "\n3 problems\n",
    ] {
        assert!(refused.err.contains(expected), "missing: {expected}\n{}", refused.err);
    }
}

#[test]
fn the_response_to_a_plain_request_at_a_tls_port_is_that_of_the_server() {
    let folder = folder("listen \"127.0.0.1:0\" tls=#true\nsite \"a.test\" { route \"/*\" { respond 200; }; }\n");
    let program = folder.serve();
    let mut client = TcpStream::connect(program.address()).expect("the server listens");
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("the server reads");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("the server responds and closes");
    let explained = command(&folder, &["explain", "http://a.test/", "--running", "--json"]).out;
    let explained: Value = serde_json::from_str(&explained).expect("it is JSON");
    let status = &explained["response"]["status"];
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{status}\n{response}");
    // Those of the framing are not part of an explanation.
    let (head, _) = response.split_once("\r\n\r\n").expect("the head is whole");
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let fields: Vec<_> = fields.filter(|(name, _)| !["content-length", "connection"].contains(name)).collect();
    assert_eq!(explained["response"]["fields"], serde_json::json!(fields));
    program.stop();
}

#[test]
fn a_recorded_request_has_arrived_at_a_listener() {
    let folder = Folder::new("site \"a.test\" { route \"/*\" { respond 200 \"in\"; }; }\n");
    let program = folder.serve();
    let port = format!("127.0.0.1:{}", program.address().port());
    let mut client = program.connect();
    client.send("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.receive("GET").expect("the server responds").status, 200);
    let id = wait_until("the request is recorded", || {
        let last = command(&folder, &["last", "--json"]).out;
        let record: Value = serde_json::from_str(last.lines().next()?).expect("it is JSON");
        Some(record["id"].as_str().expect("it is a text").to_owned())
    });
    // Clients use port 80, from which another program forwards connections.
    folder.write("selvedge.kdl", &folder.read("selvedge.kdl").replace("127.0.0.1:0", &port));
    let expected = ["  listener one without TLS, which is not recorded", "= 200 OK"];
    assert_lines(&folder, &["--request", &id], &expected);
    program.stop();
}

const CLIENTS: &str = "\
listen \"127.0.0.1:8443\" tls=#true
site \"a.test\" {
    client-certificates \"required\" ca=\"clients.pem\"
    route \"/*\" { when { client-certificate \"CN=alice\"; }; respond 200 \"alice\"; }
    route \"/*\" { respond 403 \"another\"; }
    expect \"/\" response=#false
    expect \"/\" status=200 client-certificate=\"CN=alice\"
    expect \"/\" status=403 client-certificate=\"CN=bob\"
}
";

#[test]
fn a_client_without_the_required_certificate_gets_no_response() {
    let required = folder(CLIENTS);
    required.write("clients.pem", &Authority::new().pem());
    let checked = command(&required, &["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let begin = "tls      the server name a.test: the certificate of the site a.test";
    let url = "https://a.test:8443/";
    let denied = format!("! {begin}; the client has no certificate, so the handshake is refused (selvedge.kdl:2)");
    assert_lines(&required, &[url], &[&denied, "= no response"]);
    let trusted = format!("+ {begin}; the client has a trusted one of CN=alice (selvedge.kdl:2)");
    assert_lines(&required, &[url, "--client-certificate", "CN=alice"], &[&trusted, "= 200 OK"]);
    let optional = CLIENTS.replace("required", "optional");
    required.write("selvedge.kdl", &optional.replace("response=#false", "status=403"));
    let allowed = format!("+ {begin}; the client has none, which is allowed (selvedge.kdl:2)");
    assert_lines(&required, &[url], &[&allowed, "= 403 Forbidden"]);
    let checked = command(&required, &["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn the_approval_of_a_further_name_is_not_tried_and_not_passed_over() {
    let folder = folder(
        "listen \"127.0.0.1:8443\" tls=#true\nsite \"*.a.test\" {\n\
         on-demand-certificates \"http://127.0.0.1:9/allowed\"\nroute \"/*\" { respond 200; }\n}\n",
    );
    let begin = ": the certificate of the site *.a.test";
    let further = format!(
        "  tls      the server name c.b.a.test{begin}, if `on-demand-certificates` approves the name, which is not tried \
         (selvedge.kdl:2)"
    );
    assert_lines(&folder, &["https://c.b.a.test:8443/"], &[&further, "= 200 OK"]);
    let covered = format!("+ tls      the server name b.a.test{begin} (selvedge.kdl:2)");
    assert_lines(&folder, &["https://b.a.test:8443/"], &[&covered, "= 200 OK"]);
}

#[test]
fn the_name_in_via_is_that_of_a_running_server_only() {
    let folder =
        folder("listen \"127.0.0.1:8080\"\nsite \"a.test\" { route \"/*\" { proxy \"http://127.0.0.1:9\"; }; }\n");
    let expected = "+ field    it gets via: 1.1 selvedge-ID (selvedge.kdl:2)";
    assert_lines(&folder, &["http://a.test:8080/"], &[expected]);
}

#[test]
fn options_without_an_effect_are_refused() {
    let folder = folder("listen \"127.0.0.1:8080\"\nsite \"a.test\" { route \"/*\" { respond 200; }; }\n");
    for (words, expected) in [
        (&["http://a.test:8080/", "--dump", "x"], "cannot be used with"),
        (&["http://a.test:8080/", "--tls", "a.test"], "need a URL with https"),
        (&["http://a.test:8080/", "--client-certificate", "CN=a"], "need a URL with https"),
    ] {
        let refused = command(&folder, &[&["explain"], &words[..]].concat());
        assert!(refused.code != Some(0) && refused.err.contains(expected), "{refused:?}");
    }
}

#[test]
fn the_example_of_the_page_is_met_and_its_change_has_the_message_of_the_page() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/explain.md")).expect("it is there");
    let (_, rest) = page.split_once("```kdl\n").expect("the page has a configuration");
    let (example, rest) = rest.split_once("```\n").expect("the block ends");
    let met = command(&folder(example), &["check"]);
    assert_eq!(met.code, Some(0), "{met:?}");
    let (_, message) = rest.split_once("```\n").expect("the page has a message");
    let (message, _) = message.split_once("  ...\n").expect("it is shortened");
    let changed = folder(&example.replace("\"/new/*\" status=301", "\"/new/*\" status=302"));
    let refused = command(&changed, &["check"]);
    assert!(refused.code == Some(1) && refused.err.contains(message), "{message}\n{}", refused.err);
}
