//! `selvedge explain`.

use crate::support::backend::Backend;
use crate::support::configured::{Folder, get, request};
use crate::support::program::{Exit, Program, run_to_exit, selvedge_command};
use crate::support::wait::wait_until;
use serde_json::Value;

/// Runs a command with words in front of the configuration of a folder.
pub(super) fn command(folder: &Folder, words: &[&str]) -> Exit {
    run_to_exit(selvedge_command().args(words).arg("--config").arg(folder.path("selvedge.kdl")))
}

/// Explains a request by the file, and returns the lines without the first two, which name the request and the file.
fn explained(folder: &Folder, words: &[&str]) -> String {
    let done = command(folder, &[&["explain"], words].concat());
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    let source = format!("by {}", folder.path("selvedge.kdl").display());
    assert_eq!(done.out.lines().nth(1), Some(source.as_str()), "{}", done.out);
    done.out.lines().skip(2).map(|line| format!("{line}\n")).collect()
}

/// Compares lines, in which `ROOT` stands for the folder of a site.
fn assert_explained(folder: &Folder, words: &[&str], expected: &str) {
    let root = folder.path("site").display().to_string();
    assert_eq!(explained(folder, words).replace(&root, "ROOT"), expected, "{words:?}");
}

const SITES: &str = "\
listen \"127.0.0.1:80\"
site \"a.example\" \"*.b.example\" {
    root \"site\"
    ip-access { deny \"192.0.2.0/24\"; }
    header \"X-Site\" \"a\"
    error-page 404 \"/404.html\"
    route \"/old/*\" {
        when { method \"POST\"; }
        deny
    }
    route \"/old/*\" {
        header \"X-Host\" \"{host}\"
        redirect \"/new/*\" status=301
    }
    route \"/short\" { rewrite \"/page.html\"; }
    route \"/hidden/*\" { ip-access { deny \"127.0.0.0/8\"; }; deny status=410; }
    route \"/quiet\" { log #false; respond 204; }
}
";

fn sites() -> Folder {
    let folder = Folder::new(SITES);
    folder.write("site/page.html", "a page");
    folder.write("site/404.html", "not here");
    folder
}

#[test]
fn each_step_has_the_place_of_its_setting() {
    let folder = sites();
    let expected = "\
+ listener 127.0.0.1:80 without TLS (selvedge.kdl:3)
+ site     a.example: the host is a name of the site (selvedge.kdl:4)
- route    /old/*: the path matches, but not the condition `method \"POST\"` (selvedge.kdl:10)
+ route    /old/*: the path /old/x matches (selvedge.kdl:13)
+ access   ip-access: no rule has the network of 127.0.0.1, so it is allowed (selvedge.kdl:6)
+ action   redirect to /new/x?q=1 with status 301 (selvedge.kdl:15)
+ field    X-Site is a (selvedge.kdl:7)
+ field    X-Host is a.example (selvedge.kdl:14)
= 301 Moved Permanently
  content-type: text/html; charset=utf-8
  location: /new/x?q=1
  x-site: a
  x-host: a.example
";
    assert_explained(&folder, &["http://a.example/old/x?q=1"], expected);
    let expected = "\
+ listener 127.0.0.1:80 without TLS (selvedge.kdl:3)
+ site     *.b.example: the wildcard is the longest that the host matches (selvedge.kdl:4)
+ route    /old/*: the path /old/x matches, and all conditions (selvedge.kdl:9)
! access   ip-access: a rule has the network of 192.0.2.7, so it is denied: 403 (selvedge.kdl:6)
+ field    X-Site is a (selvedge.kdl:7)
= 403 Forbidden: the client's network is not allowed
  content-type: text/html; charset=utf-8
  vary: accept
  x-site: a
";
    let words = ["http://x.b.example/old/x", "-X", "POST", "--client", "192.0.2.7"];
    assert_explained(&folder, &words, expected);
}

#[test]
fn files_rewrites_and_error_pages_are_explained() {
    let folder = sites();
    let lines = explained(&folder, &["http://a.example/short"]);
    for expected in [
        "+ action   rewrite to /page.html, whose route is looked for (selvedge.kdl:17)\n",
        "+ route    /*: the path /page.html matches (selvedge.kdl:5)\n",
        "+ action   files beneath ",
        "/page.html beneath ",
        ": 6 bytes, text/html; charset=utf-8\n",
        "+ file     the file /page.html (selvedge.kdl:5)\n",
        "= 200 OK\n",
    ] {
        assert!(lines.contains(expected), "missing: {expected}\n{lines}");
    }
    let lines = explained(&folder, &["http://a.example/none"]);
    for expected in [
        "- file     /none beneath ",
        ": no file, or a hidden one\n",
        "- file     no file (selvedge.kdl:5)\n",
        "+ content  the page /404.html replaces the content of the error (selvedge.kdl:8)\n",
        "= 404 Not Found\n",
    ] {
        assert!(lines.contains(expected), "missing: {expected}\n{lines}");
    }
    let lines = explained(&folder, &["http://a.example/quiet"]);
    assert!(lines.contains("  log      the access log has no line of it (selvedge.kdl:19)\n"), "{lines}");
    let lines = explained(&folder, &["http://a.example/hidden/x"]);
    assert!(lines.contains("so it is denied: 403 (selvedge.kdl:18)\n"), "{lines}");
}

#[test]
fn hosts_without_a_site_and_invalid_requests_are_explained() {
    let folder = sites();
    let lines = explained(&folder, &["http://c.example/"]);
    assert!(lines.contains("! site     no site has this host name\n= 421 Misdirected Request"), "{lines}");
    let with_tls = "listen \"127.0.0.1:443\" tls=#true\nsite \"c.example\" { route \"/*\" { respond 200; }; }\n";
    let without = SITES.replace("root \"site\"", "root \"site\"\nautomatic-certificate #false");
    folder.write("selvedge.kdl", &format!("{with_tls}{without}"));
    let lines = explained(&folder, &["https://a.example/"]);
    let expected =
        "! tls      the server name a.example: the site a.example has no certificate, so the handshake fails";
    assert!(lines.contains(expected) && lines.ends_with("= no response\n"), "{lines}");
    folder.configure(SITES);
    let lines = explained(&folder, &["http://a.example/", "-H", "Host: a b"]);
    let expected = "= 400 Bad Request: the host is invalid\n  content-type: text/html; charset=utf-8\n  vary: accept\n";
    assert!(lines.ends_with(expected), "{lines}");
    for (url, more, refusal) in [
        ("http://a.example/%zz", &[][..], "400"),
        ("http://a.example/../x", &[], "400"),
        ("http://a.example/page.html", &["-X", "DELETE"], "this method is not allowed here: 405"),
        ("http://a.example/page.html", &["-X", "BREW"], "this method is not implemented here: 501"),
    ] {
        let lines = explained(&folder, &[&[url], more].concat());
        let refused: Vec<_> = lines.lines().filter(|line| line.starts_with("! response ")).collect();
        assert!(refused.len() == 1 && refused[0].ends_with(refusal), "{lines}");
    }
    for (words, expected) in [
        (&["explain", "a.example/x"][..], "a URL without a scheme"),
        (&["explain", "http://a.example/", "-H", "Content-Length: 3"], "only requests without content"),
        (&["explain", "http://a.example/", "--running"], "cannot reach a server at "),
    ] {
        let refused = command(&folder, words);
        assert!(refused.code == Some(1) && refused.err.contains(expected), "{refused:?}");
    }
}

/// Compares the fields of an explanation with those of the response of the running server. The engine adds some of them.
fn assert_as_received(folder: &Folder, program: &Program, target: &str, lines: &[&str]) {
    const OF_ENGINE: [&str; 5] = ["date", "server", "content-length", "transfer-encoding", "connection"];
    let response = request(&mut program.connect(), "a.example", &format!("GET {target}"), lines);
    let received = response.fields.iter().filter(|(name, _)| !OF_ENGINE.contains(&&**name));
    let mut received: Vec<_> = received.map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Some((_, policy)) = received.iter_mut().find(|(name, _)| name == "content-security-policy")
        && let Some((_, rest)) = policy.clone().split_once("script-src 'nonce-")
    {
        *policy = policy.replace(rest.split('\'').next().unwrap_or_default(), "NONCE");
    }
    let url = format!("http://a.example{target}");
    let fields = lines.iter().flat_map(|line| ["-H", *line]);
    let words: Vec<_> = ["explain", &*url, "--running", "--json"].into_iter().chain(fields).collect();
    let done = command(folder, &words);
    let json: Value = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("no JSON: {done:?}"));
    let explained = json["response"]["fields"].as_array().expect("it is a list").iter();
    let text = |value: &Value| value.as_str().expect("it is a text").to_owned();
    let mut explained: Vec<_> = explained.map(|field| (text(&field[0]), text(&field[1]))).collect();
    received.sort();
    explained.sort();
    assert_eq!(
        (json["response"]["status"].as_u64(), &explained),
        (Some(response.status.into()), &received),
        "{target} {lines:?}"
    );
}

#[test]
fn an_explanation_has_the_fields_of_the_response() {
    let folder = Folder::new(
        "site \"a.example\" {\n\
         compress #true\n\
         header-add \"X-Css\" \"1\" for=\"*.css\"\n\
         header-add \"X-Api\" \"1\" for=\"/api/*\"\n\
         route \"/m\" { metrics; }\n\
         route \"/s\" { status-page public=#true; }\n\
         route \"/own\" { status-page public=#true; header \"Content-Security-Policy\" \"default-src 'self'\"; }\n\
         route \"/*\" { respond 200 \"in\"; }\n}\n",
    );
    let program = folder.serve();
    for target in ["/m", "/s", "/own", "/x", "/api/x"] {
        for lines in [&[][..], &["Accept-Encoding: gzip"], &["Accept: application/openmetrics-text"]] {
            assert_as_received(&folder, &program, target, lines);
        }
    }
    for target in ["/%zz", "/api/%00", "/%2e%2e/x.css"] {
        assert_as_received(&folder, &program, target, &[]);
    }
    for lines in [&["Expect: x"][..], &["Expect: x", "Accept: application/json"], &["A b: c"]] {
        assert_as_received(&folder, &program, "/x", lines);
    }
    program.stop();
}

#[test]
fn the_explanation_is_json_on_request() {
    let folder = sites();
    let done = command(&folder, &["explain", "http://a.example/old/x", "--json"]);
    let json: Value = serde_json::from_str(&done.out).expect("it is JSON");
    assert_eq!((json["site"].as_str(), json["route"].as_str()), (Some("a.example"), Some("/old/*")));
    assert_eq!(json["route_name"], "/old/*");
    assert_eq!(json["response"]["status"], 301);
    let action = json["steps"].as_array().unwrap().iter().find(|step| step["stage"] == "action").unwrap();
    assert_eq!((action["verdict"].as_str(), action["line"].as_u64()), (Some("yes"), Some(15)));
    assert_eq!(action["file"].as_str(), folder.path("selvedge.kdl").to_str());
}

#[test]
fn a_route_has_its_name_and_a_client_the_reason_why_it_is_that() {
    let folder = Folder::new(
        "trusted-proxies \"127.0.0.0/8\"\n\
         site \"a\" { route \"/api/*\" \"/v1/*\" { name \"api\"; header \"ETag\" \"\\\"1\\\"\"; respond 200; }; }\n",
    );
    let lines = explained(&folder, &["http://a/v1/x"]);
    for expected in [
        "- route    api, /api/*: the path is another one (selvedge.kdl:4)\n",
        "+ route    api, /v1/*: the path /v1/x matches (selvedge.kdl:4)\n",
        "  client   127.0.0.1, the trusted proxy, because it names no client in X-Forwarded-For (selvedge.kdl:3)\n",
        "  etag: \"1\"\n",
    ] {
        assert!(lines.contains(expected), "missing: {expected}\n{lines}");
    }
    let lines = explained(&folder, &["http://a/v1/x", "-H", "X-Forwarded-For: 192.0.2.1"]);
    assert!(lines.contains("192.0.2.1, as the trusted proxy 127.0.0.1 states in X-Forwarded-For"), "{lines}");
    let lines = explained(&folder, &["http://a/v1/x", "--client", "192.0.2.1"]);
    assert!(lines.contains("192.0.2.1, because it is no trusted proxy"), "{lines}");
    let json = command(&folder, &["explain", "http://a/v1/x", "--json"]).out;
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((json["route"].as_str(), json["route_name"].as_str()), (Some("/v1/*"), Some("api")));
}

#[test]
fn fields_that_a_proxy_adds_are_in_the_explanation_and_meet_expectations() {
    let backend = Backend::start();
    let text = |value: &str| {
        format!(
            "upstream \"u\" {{ server \"http://{}\"; balance \"sticky\" cookie=\"server\"; }}\n\
             site \"a\" {{\n\
             route \"/*\" {{ proxy \"u\" {{ header-down \"X-Down\" \"d\"; header-down-add \"X-More\" \"{{path}}\"; }}; }}\n\
             expect \"/x\" {{ header \"X-Down\" \"{value}\"; header \"X-More\" \"/x\"; }}\n}}\n",
            backend.address()
        )
    };
    let folder = Folder::new(&text("d"));
    assert_eq!(command(&folder, &["check"]).err, "");
    let json = command(&folder, &["explain", "http://a/x", "--json"]).out;
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    let fields = json["response"]["fields"].as_array().unwrap();
    let names: Vec<_> = fields.iter().map(|field| field[0].as_str().unwrap()).collect();
    assert_eq!(names, ["set-cookie", "x-down", "x-more"], "{json}");
    folder.configure(&text("\\\"d\\\""));
    let refused = command(&folder, &["check"]).err;
    assert!(refused.contains(r#"expected X-Down "\"d\"", and it is "d""#), "{refused}");
}

#[test]
fn the_running_server_explains_by_its_configuration_and_nothing_is_sent_or_counted() {
    let backend = Backend::start();
    let text = |status: u32| {
        format!(
            "log {{ access \"access.log\"; }}\nsite \"a\" {{\n\
             route \"/app/*\" {{ proxy \"http://{}\"; }}\n\
             route \"/*\" {{ rate-limit 1 per=\"1h\"; respond {status} \"in\"; }}\n}}\n",
            backend.address()
        )
    };
    let folder = Folder::new(&text(200));
    let program = folder.serve();
    folder.configure(&text(202));
    for _ in 0..3 {
        let running = command(&folder, &["explain", "http://a/x", "--running"]);
        assert_eq!(running.code, Some(0), "{running:?}");
        let source = format!("by configuration 1 of the running server, {}\n", folder.path("selvedge.kdl").display());
        assert!(running.out.contains(&source) && running.out.contains("\n= 200 OK\n"), "{}", running.out);
        assert!(running.out.contains("+ access   rate-limit: the client is within its rate"), "{}", running.out);
    }
    assert!(command(&folder, &["explain", "http://a/x"]).out.contains("\n= 202 Accepted\n"));
    let proxied = command(&folder, &["explain", "http://a/app/x", "--running", "-H", "X-A: 1"]).out;
    for expected in [
        format!("+ action   forward to a server of http://{}", backend.address()),
        format!("+ upstream http://{}: the less loaded one of two", backend.address()),
        "+ upstream it gets GET /app/x with host a".to_owned(),
        "= the response of the server that the request is forwarded to".to_owned(),
    ] {
        assert!(proxied.contains(&expected), "missing: {expected}\n{proxied}");
    }
    assert_eq!(backend.connections(), 0, "no server was contacted");
    assert_eq!(get(&program, "a", "/x").status, 200, "the token of the rate limit is there");
    assert_eq!(get(&program, "a", "/x").status, 429);
    let denied = command(&folder, &["explain", "http://a/x", "--running"]).out;
    assert!(denied.contains("! access   rate-limit: the client exceeds its rate limit: 429"), "{denied}");
    let status = command(&folder, &["status", "--json"]).out;
    let status: Value = serde_json::from_str(&status).expect("it is JSON");
    assert_eq!(status["requests"]["total"], 2, "{}", status["requests"]);
    program.stop();
    assert_eq!(folder.lines("access.log").len(), 2);
}

#[test]
fn loops_and_cookies_of_a_proxy_and_preflight_requests_are_explained() {
    let backend = Backend::start();
    let folder = Folder::new(&format!(
        "upstream \"u\" {{ server \"http://{}\"; balance \"sticky\" cookie=\"server\"; }}\n\
         site \"a\" {{\n\
         route \"/app/*\" {{ proxy \"u\"; }}\n}}\n\
         site \"c\" {{\n\
         basic-auth {{ user \"ann\" \"$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\"; }}\n\
         route \"/*\" {{ cors \"https://b.example\"; respond 200; }}\n}}\n",
        backend.address()
    ));
    let program = folder.serve();
    let explained = |words: &[&str]| {
        let done = command(&folder, &[&["explain", "--running"], words].concat());
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
        done.out
    };
    let forwarded = explained(&["http://a/app/x"]);
    let field = |name: &str| {
        let begin = format!("it gets {name}: ");
        let line = forwarded.lines().find_map(|line| line.split_once(&begin));
        line.and_then(|(_, value)| value.split(" (").next()).unwrap_or_else(|| panic!("no {name}\n{forwarded}"))
    };
    let cookie = forwarded.lines().find_map(|line| line.split_once("the response gets set-cookie: "));
    let (_, cookie) = cookie.unwrap_or_else(|| panic!("no cookie\n{forwarded}"));
    let cookie = cookie.split(';').next().unwrap_or_default();
    let known = explained(&["http://a/app/x", "-H", &format!("Cookie: {cookie}")]);
    assert!(known.contains("the one that the cookie names") && !known.contains("set-cookie"), "{known}");
    let circle = explained(&["http://a/app/x", "-H", &format!("Via: {}", field("via"))]);
    let expected = "! upstream a loop: the request has passed this server before (selvedge.kdl:5)\n";
    assert!(circle.contains(expected) && circle.contains("\n= 508 Loop Detected"), "{circle}");
    assert_eq!(backend.connections(), 0, "no server was contacted");
    let words = ["http://c/x", "-X", "OPTIONS", "-H", "Access-Control-Request-Method: GET"];
    let preflight = explained(&[&words[..], &["-H", "Origin: https://b.example"]].concat());
    let expected =
        "  access   basic-auth: a preflight request has no credentials, so the cors of its route decides first";
    assert!(preflight.contains(expected) && preflight.contains("\n= 204 No Content\n"), "{preflight}");
    program.stop();
}

/// Waits until the program has recorded its only request, and returns the identifier.
fn recorded(folder: &Folder) -> String {
    wait_until("the request is recorded", || {
        let last = command(folder, &["last", "--json"]).out;
        let record: Value = serde_json::from_str(last.lines().next()?).expect("it is JSON");
        Some(record["id"].as_str().expect("it is a text").to_owned())
    })
}

#[test]
fn a_request_of_the_flight_recorder_is_explained_and_no_explanation_is_recorded() {
    let folder = Folder::new(
        "site \"a.example\" \"b.example\" {\n\
         route \"/x\" { deny dry-run=#true; }\n\
         route \"/m\" { metrics; }\n\
         route \"/*\" { ip-access { deny \"127.0.0.0/8\"; }; respond 200 \"in\"; }\n}\n",
    );
    let program = folder.serve();
    assert_eq!(request(&mut program.connect(), "b.example:8080", "POST /x?q=1", &[]).status, 403);
    let id = recorded(&folder);
    for (more, source) in [(&[] as &[&str], "by "), (&["--running"], "by configuration 1 of the running server, ")] {
        let done = command(&folder, &[&["explain", "--request", &id], more].concat());
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
        for expected in [
            "POST http://b.example:8080/x from 127.0.0.1\n",
            source,
            "~ route    /x: the path matches, and `deny` would refuse the request without `dry-run` (selvedge.kdl:4)\n",
            "! access   ip-access: a rule has the network of 127.0.0.1, so it is denied: 403 (selvedge.kdl:6)\n",
            "\n= 403 Forbidden",
        ] {
            assert!(done.out.contains(expected), "missing: {expected}\n{}", done.out);
        }
        let other =
            command(&folder, &[&["explain", "--request", &id, "--client", "192.0.2.1", "-X", "GET"], more].concat());
        let begins = "GET http://b.example:8080/x from 192.0.2.1\n";
        assert!(other.out.starts_with(begins) && other.out.contains("\n= 200 OK"), "{}", other.out);
        let metrics = command(&folder, &[&["explain", "http://a.example/m"], more].concat()).out;
        assert!(
            metrics.contains("+ action   the metrics of the server") && metrics.contains("\n= 200 OK\n"),
            "{metrics}"
        );
    }
    assert_eq!(command(&folder, &["last", "--json"]).out.lines().count(), 1, "no explanation is recorded");
    let metrics = get(&program, "a.example", "/m").text().to_owned();
    let requests: Vec<_> = metrics.lines().filter(|line| line.starts_with("selvedge_requests_total{")).collect();
    assert_eq!(requests, ["selvedge_requests_total{site=\"a.example\",route=\"/*\",status=\"4xx\"} 1"]);
    let refusals: Vec<_> =
        metrics.lines().filter(|line| line.starts_with("selvedge_dry_run_refusals_total{")).collect();
    assert_eq!(refusals, ["selvedge_dry_run_refusals_total{site=\"a.example\",rule=\"deny\"} 1"]);
    for (words, expected) in [
        (["--request", "0-999"], "is not recorded, or later ones have replaced it"),
        (["--request", "4711"], "expected a worker and a number"),
        (["--dump", "x"], "--request"),
    ] {
        let refused = command(&folder, &[&["explain"], &words[..]].concat());
        assert!(refused.code != Some(0) && refused.err.contains(expected), "{refused:?}");
    }
    program.stop();
}
