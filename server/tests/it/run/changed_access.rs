//! Access rules whose files change while the program serves: users and lists of networks.

use crate::support::configured::{Folder, get, request};
use crate::support::program::Program;
use crate::support::wait::wait_until;
use std::fs;

/// The hash of `U*U`.
const HASH: &str = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
/// `ann:U*U`
const ANN: &str = "Authorization: Basic YW5uOlUqVQ==";
/// `bob:U*U`
const BOB: &str = "Authorization: Basic Ym9iOlUqVQ==";
/// `ann:wrong`
const WRONG: &str = "Authorization: Basic YW5uOndyb25n";

const LOG: &str = "log { access \"off\"; error \"error.log\" level=\"info\"; }\n";

fn status(program: &Program, line: &str) -> u16 {
    request(&mut program.connect(), "a", "GET /", &[line]).status
}

/// Waits until the error log has a line with these texts, and returns the line.
fn wait_for_line(folder: &Folder, texts: &[&str]) -> String {
    wait_until(texts[0], || {
        folder.lines("error.log").into_iter().find(|line| texts.iter().all(|text| line.contains(text)))
    })
}

#[test]
fn an_error_line_names_the_client_behind_a_trusted_proxy() {
    let folder = Folder::new(&format!(
        "trusted-proxies \"127.0.0.1\"\n{LOG}site \"a\" {{\n\
         route \"/auth\" {{ basic-auth wrong-max=1 {{ user \"ann\" \"{HASH}\"; }}; respond 200; }}\n\
         route \"/no\" {{ deny status=403; }}\n\
         route \"/rate\" {{ rate-limit 1 per=\"1h\"; respond 200; }}\n}}"
    ));
    let program = folder.serve();
    let mut client = program.connect();
    for (host, path, expected) in [
        ("a", "/auth", 401),
        ("a", "/auth", 429),
        ("a", "/no", 403),
        ("a", "/rate", 200),
        ("a", "/rate", 429),
        ("b", "/x", 421),
    ] {
        let lines = ["X-Forwarded-For: ::ffff:203.0.113.50", WRONG];
        assert_eq!(request(&mut client, host, &format!("GET {path}"), &lines).status, expected, "{path}");
    }
    assert_eq!(request(&mut client, "a", "GET /direct", &[]).status, 404);
    program.stop();
    let lines = folder.lines("error.log");
    for (text, request) in [
        ("401 wrong user name or password", "/auth"),
        ("429 too many wrong passwords of this client or for this user", "/auth"),
        ("403 ", "/no"),
        ("429 the client exceeds its rate limit", "/rate"),
        ("421 no site has this host name", "/x"),
    ] {
        let end = format!(" client=203.0.113.50 request=\"GET {request} HTTP/1.1\"");
        let found =
            lines.iter().any(|line| line.contains(text) && line.contains(" peer=127.0.0.1:") && line.ends_with(&end));
        assert!(found, "{text}: {lines:?}");
    }
    let direct = lines.iter().find(|line| line.contains("/direct")).unwrap();
    assert!(!direct.contains("client="), "{direct}");
}
