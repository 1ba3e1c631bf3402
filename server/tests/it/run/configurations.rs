//! What the files of `examples/configurations` promise.

use crate::support::configured::{Folder, request};
use crate::support::program::{run_to_exit, selvedge_command};
use crate::support::wait::wait_until;
use std::fs;
use std::path::{Path, PathBuf};

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/configurations");
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.sort();
    files
}

const CSP: Field = ("content-security-policy", Some("default-src 'self'; frame-ancestors 'none'; base-uri 'none'"));
const NO_CSP: Field = ("content-security-policy", None);
const NOSNIFF: Field = ("x-content-type-options", Some("nosniff"));

/// A field of a response and its value.
type Field = (&'static str, Option<&'static str>);

/// A request and what the response has: status, fields, and a part of the text.
type Row = (&'static str, &'static str, &'static [&'static str], u16, &'static [Field], &'static str);

fn check_rows(name: &str, rows: &[Row]) {
    let file = examples().into_iter().find(|file| file.file_stem().is_some_and(|stem| stem == name));
    let folder = Folder::of_configuration(&file.expect("the example is there"));
    let program = folder.serve();
    let mut client = program.connect();
    for (host, line, lines, status, fields, text) in rows {
        let response = request(&mut client, host, line, lines);
        assert_eq!(response.status, *status, "{name}: {host} {line}");
        for (field, value) in *fields {
            assert_eq!(response.field(field), *value, "{name}: {host} {line} {field}");
        }
        assert!(response.text().contains(text), "{name}: {host} {line}: {}", response.text());
    }
}

#[test]
fn every_example_is_valid_and_formatted() {
    assert!(examples().len() >= 6);
    for file in examples() {
        let exit = run_to_exit(selvedge_command().arg("check").arg(&file));
        assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""), "{exit:?}");
        let exit = run_to_exit(selvedge_command().arg("fmt").arg("--check").arg(&file));
        assert_eq!(exit.code, Some(0), "{exit:?}");
    }
}

#[test]
fn a_static_site_has_its_fields_by_type() {
    check_rows(
        "static-site",
        &[
            ("a", "GET /", &[], 200, &[("cache-control", Some("no-cache")), CSP, NOSNIFF], "<title>"),
            ("a", "GET /", &[], 200, &[("cache-control", Some("no-cache")), CSP, NOSNIFF], "<title>"),
            ("a", "GET /about/", &[], 200, &[("cache-control", Some("no-cache")), CSP], ""),
            ("a", "GET /style.css", &[], 200, &[("cache-control", Some("max-age=31536000")), NO_CSP, NOSNIFF], ""),
            ("a", "GET /favicon.svg", &[], 200, &[("cache-control", Some("max-age=2592000"))], ""),
            ("a", "GET /none.html", &[], 404, &[("cache-control", None), NO_CSP, NOSNIFF], "<title>"),
            ("a", "GET /.refresh", &[], 404, &[], ""),
            ("a", "GET /x/.git/config", &[], 404, &[], ""),
            ("a", "GET /DB.SQL", &[], 404, &[], ""),
            ("a", "GET /about", &[], 301, &[("cache-control", None), NO_CSP], ""),
        ],
    );
}

#[test]
fn an_application_and_its_api_have_their_own_rules() {
    let page = &["Accept: text/html"];
    check_rows(
        "spa-with-api",
        &[
            (
                "App.example:80",
                "GET /api/health",
                &[],
                200,
                &[("content-type", Some("application/json"))],
                "\"host\": \"app.example\"",
            ),
            ("a", "POST /api/x%3Cy", &[], 503, &[("cache-control", Some("no-store"))], "\"path\": \"/api/x%3Cy\""),
            (
                "a",
                "OPTIONS /api/x",
                &["Origin: https://app.example.com", "Access-Control-Request-Method: PUT"],
                204,
                &[
                    ("access-control-allow-origin", Some("https://app.example.com")),
                    ("access-control-allow-methods", Some("GET, PUT")),
                    ("access-control-allow-headers", Some("Content-Type, Authorization")),
                    ("access-control-max-age", Some("600")),
                    ("vary", Some("origin")),
                ],
                "",
            ),
            (
                "a",
                "OPTIONS /api/x",
                &["Origin: https://evil.example", "Access-Control-Request-Method: PUT"],
                403,
                &[("access-control-allow-origin", None), ("vary", Some("accept, origin"))],
                "",
            ),
            (
                "a",
                "GET /api/x",
                &["Origin: https://a.example.org"],
                503,
                &[("access-control-allow-origin", Some("https://a.example.org"))],
                "",
            ),
            ("a", "GET /api/x", &[], 503, &[("access-control-allow-origin", None), ("vary", Some("origin"))], ""),
            ("a", "GET /some/page", page, 200, &[("cache-control", Some("no-cache"))], "<title>"),
            ("a", "GET /assets/none.js", page, 404, &[("cache-control", None)], ""),
        ],
    );
}

#[test]
fn a_flag_file_switches_maintenance_on() {
    let file = examples().into_iter().find(|file| file.ends_with("spa-with-api.kdl")).expect("the example is there");
    let folder = Folder::of_configuration(&file);
    folder.write("maintenance.flag", "");
    let program = folder.serve();
    let response = request(&mut program.connect(), "a", "GET /", &[]);
    assert_eq!((response.status, response.field("retry-after")), (503, Some("300")));
}

#[test]
fn matrix_and_mail_find_their_servers() {
    check_rows(
        "matrix-and-mail",
        &[
            (
                "example.org",
                "GET /.well-known/matrix/server",
                &[],
                200,
                &[("access-control-allow-origin", None)],
                "{\"m.server\": \"matrix.example.org:443\"}",
            ),
            (
                "example.com",
                "GET /.well-known/matrix/client",
                &[],
                200,
                &[("access-control-allow-origin", Some("*"))],
                "https://matrix.example.com",
            ),
            (
                "example.com",
                "GET /mail/config-v1.1.xml?emailaddress=a",
                &[],
                200,
                &[],
                "<hostname>imap.example.com</hostname>",
            ),
            (
                "example.com",
                "POST /Autodiscover/Autodiscover.xml",
                &[],
                302,
                &[("location", Some("https://autodiscover.example.com/autodiscover/autodiscover.xml"))],
                "",
            ),
        ],
    );
}

#[test]
fn moved_pages_are_redirected() {
    check_rows(
        "documentation",
        &[
            ("a", "GET /v2.1/getting-started.html", &[], 301, &[("location", Some("/v2.1/getting-started/"))], ""),
            ("a", "GET /docs/12-install/?a=b", &[], 301, &[("location", Some("/install?a=b"))], ""),
            ("a", "GET /manual/setup?lang=de", &[], 301, &[("location", Some("/translations/setup"))], ""),
            ("a", "GET /manual/setup?lang=es", &[], 404, &[], ""),
            ("a", "GET /latest/a/b?q", &[], 302, &[("location", Some("/v3/a/b?q"))], ""),
            ("a", "GET /index.html", &[], 301, &[("location", Some("/"))], ""),
            ("a", "GET /about/index.html", &[], 301, &[("location", Some("/about/"))], ""),
            ("a", "GET /about", &[], 301, &[("location", Some("/about/"))], ""),
        ],
    );
}

#[test]
fn one_rule_sends_every_host_to_https() {
    check_rows(
        "many-hosts",
        &[
            (
                "www.one.example:80",
                "GET /a%20b/?q=1",
                &[],
                301,
                &[("location", Some("https://one.example/a%20b/?q=1"))],
                "",
            ),
            ("WWW.Two.example", "GET /", &[], 301, &[("location", Some("https://two.example/"))], ""),
            ("three.example", "GET /x", &[], 301, &[("location", Some("https://three.example/x"))], ""),
            ("a", "GET /.well-known/acme-challenge/none", &[], 404, &[], ""),
        ],
    );
}

#[test]
fn nextclouds_rules_hold() {
    check_rows(
        "nextcloud",
        &[
            ("a", "GET /", &["User-Agent: DavClnt"], 302, &[("location", Some("/remote.php/webdav/"))], ""),
            ("a", "GET /", &[], 200, &[("x-frame-options", Some("SAMEORIGIN"))], ""),
            ("a", "GET /.well-known/caldav", &[], 301, &[("location", Some("/remote.php/dav/"))], ""),
            (
                "a",
                "GET /.well-known/webfinger?resource=x",
                &[],
                301,
                &[("location", Some("/index.php/.well-known/webfinger?resource=x"))],
                "",
            ),
            ("a", "GET /config/config.php", &[], 404, &[], ""),
            ("a", "GET /.refresh", &[], 404, &[], ""),
            ("a", "GET /apps/INDEX.PHP", &[], 404, &[], ""),
            ("a", "GET /style.css?v=1", &[], 200, &[("cache-control", Some("max-age=15778463, immutable"))], ""),
            ("a", "GET /style.css", &[], 200, &[("cache-control", Some("max-age=15778463"))], ""),
        ],
    );
}

#[test]
fn requests_in_progress_are_limited_for_each_route() {
    let text = "site \"a\" {\n    route \"/slow/*\" { requests-at-once-max 1; respond 200 \"ok\"; }\n    route \"/*\" { respond 200 \"free\"; }\n}";
    let folder = Folder::new(text);
    let program = folder.serve();
    // The content of the first request never ends, so it stays in progress. When a probe is in progress as it
    // arrives, it is refused instead, so each probe has a new first request.
    let start = || {
        let mut client = program.connect();
        client.send("POST /slow/a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx");
        client
    };
    let mut first = start();
    let mut second = program.connect();
    let refused = wait_until("the first request is in progress", || {
        let response = request(&mut second, "a", "GET /slow/b", &[]);
        if response.status == 200 {
            first = start();
        }
        (response.status != 200).then_some(response)
    });
    assert_eq!((refused.status, refused.field("retry-after")), (429, Some("1")));
    assert_eq!(request(&mut second, "a", "GET /", &[]).status, 200, "another route has no limit");
    drop(first);
    wait_until("the first request has ended", || {
        (request(&mut second, "a", "GET /slow/b", &[]).status == 200).then_some(())
    });
}

#[test]
fn crawlers_and_other_sites_are_refused_and_a_password_is_enough() {
    check_rows(
        "access",
        &[
            ("a", "GET /", &["User-Agent: Mozilla/5.0 (compatible; gptbot/1.0)"], 403, &[], ""),
            ("a", "GET /", &["User-Agent: Mozilla/5.0"], 200, &[], ""),
            ("a", "GET /art/x.png", &["Referer: https://other.example/"], 403, &[], ""),
            ("a", "GET /art/x.png", &["Referer: https://example.com/a"], 404, &[], ""),
            ("a", "GET /art/x.png", &[], 404, &[], ""),
            ("a", "GET /requests/", &[], 401, &[], ""),
            ("a", "GET /requests/", &["Authorization: Basic YW5uOndhcnAgYW5kIHdlZnQ="], 200, &[], ""),
        ],
    );
}
