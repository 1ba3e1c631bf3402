//! The options for daily work, each by the responses that it changes.

use crate::support::configured::request;
use crate::support::program::{Program, run_to_exit, selvedge_command};
use crate::support::tree::Tree;
use std::process::Command;

/// The bcrypt hash of "secret".
const HASH: &str = "$2y$04$rX2/Vq/JjLsfEYgaFylR2OOfA5626U8fMGjQNDjROGQbRtYcpj2nm";

fn serve(tree: &Tree, arguments: &[&str]) -> Command {
    let mut command = selvedge_command();
    command.arg("serve").arg(tree.site()).args(["--listen", "127.0.0.1:0"]).args(arguments);
    command
}

#[test]
fn a_single_page_application_gets_its_page_for_navigations() {
    let tree = Tree::new();
    tree.write("index.html", "app");
    tree.write("app.js", "code");
    let program = Program::serve_with(&tree, &["--spa"]);
    let mut client = program.connect();
    let navigation = "Accept: text/html\r\nSec-Fetch-Mode: navigate";
    for (target, status, text) in [("/account/7", 200, "app"), ("/app.js", 200, "code")] {
        let response = client.get_with(target, navigation);
        assert_eq!((response.status, response.text()), (status, text), "{target}");
    }
    assert_eq!(client.get_with("/missing.js", "Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script").status, 404);
}

#[test]
fn the_page_for_missing_files_is_an_option_or_404_html() {
    let tree = Tree::new();
    tree.write("lost.html", "lost");
    assert_ne!(Program::serve(&tree).connect().get("/missing").text(), "lost");
    let response = Program::serve_with(&tree, &["--not-found", "lost.html"]).connect().get("/missing");
    assert_eq!((response.status, response.text()), (404, "lost"));
    tree.write("404.html", "nothing here");
    let response = Program::serve(&tree).connect().get("/missing");
    assert_eq!((response.status, response.text()), (404, "nothing here"));
}

#[test]
fn fields_origins_and_caching_are_options() {
    let tree = Tree::new();
    tree.write("about.html", "about");
    let options = ["--header", "X-Frame-Options: DENY", "--header=X-Two:a: b", "--cors", "--no-cache", "--clean-urls"];
    let program = Program::serve_with(&tree, &options);
    let mut client = program.connect();
    let response = client.get_with("/about", "Origin: https://app.example");
    assert_eq!((response.status, response.text()), (200, "about"));
    assert_eq!(response.field("x-frame-options"), Some("DENY"));
    assert_eq!(response.field("x-two"), Some("a: b"));
    assert_eq!(response.field("access-control-allow-origin"), Some("*"));
    assert_eq!(response.field("cache-control"), Some("no-cache"));
    let response = client.get("/about");
    assert_eq!(response.field("access-control-allow-origin"), Some("*"), "a cache may use it for another origin");
    assert_eq!(client.get("/about.html").status, 301);
    let program = Program::serve_with(&tree, &["--cors=https://app.example"]);
    let mut client = program.connect();
    let of = |origin: &str| format!("Origin: {origin}");
    let response = client.get_with("/about.html", &of("https://app.example"));
    assert_eq!(response.field("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(client.get_with("/about.html", &of("https://b.example")).field("access-control-allow-origin"), None);
}

#[test]
fn a_password_is_required_by_an_option_or_a_variable() {
    let tree = Tree::new();
    tree.write("index.html", "home");
    let user = format!("alice:{HASH}");
    let by_variable = &mut serve(&tree, &[]);
    let by_variable = by_variable.env("SELVEDGE_SERVE_AUTH", format!("{user}\nbob:{HASH}"));
    for program in [Program::start(&mut serve(&tree, &["--auth", &user])), Program::start(by_variable)] {
        let mut client = program.connect();
        let response = client.get("/");
        assert_eq!(response.status, 401);
        assert!(response.field("www-authenticate").is_some_and(|value| value.starts_with("Basic ")));
        // "alice:secret"
        let response = client.get_with("/", "Authorization: Basic YWxpY2U6c2VjcmV0");
        assert_eq!((response.status, response.text()), (200, "home"));
    }
    let exit = run_to_exit(&mut serve(&tree, &["--auth", "alice:secret"]));
    assert!(exit.code == Some(2) && exit.err.contains("hash-password"), "{exit:?}");
}

#[test]
fn a_header_may_be_repeated_with_one_name() {
    let tree = Tree::new();
    tree.write("index.html", "home");
    let options = ["--header", "Set-Cookie: a=1", "--header", "X-One: 1", "--header", "set-cookie: b=2"];
    let response = Program::serve_with(&tree, &options).connect().get("/");
    let cookies = response.fields.iter().filter(|(name, _)| name == "set-cookie");
    assert_eq!(cookies.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["a=1", "b=2"]);
    assert_eq!(response.field("x-one"), Some("1"));
}

#[test]
fn options_on_the_command_line_override_variables_that_they_exclude() {
    let tree = Tree::new();
    tree.write("index.html", "home");
    let mut command = serve(&tree, &[]);
    command.env("SELVEDGE_SERVE_PORT", "1").env("SELVEDGE_SERVE_DOMAIN", "example.com");
    assert_eq!(Program::start(command.env("SELVEDGE_SERVE_CORS", "true")).connect().get("/").status, 200);
    let exit = run_to_exit(serve(&tree, &[]).env("SELVEDGE_SERVE_WORKERS", "many"));
    assert!(exit.code == Some(2) && exit.err.contains("variable SELVEDGE_SERVE_WORKERS"), "{exit:?}");
}

#[test]
fn pages_of_other_origins_can_use_a_site_with_passwords() {
    let tree = Tree::new();
    tree.write("index.html", "home");
    let program = Program::serve_with(&tree, &["--cors", "--auth", &format!("alice:{HASH}")]);
    let mut client = program.connect();
    let preflight = ["Origin: https://app.example", "Access-Control-Request-Method: GET"];
    let response = request(&mut client, "a", "OPTIONS /", &preflight);
    assert_eq!((response.status, response.field("access-control-allow-origin")), (204, Some("*")));
    for (line, lines) in [("OPTIONS /", &preflight[..1]), ("GET /", &preflight[..])] {
        let response = request(&mut client, "a", line, lines);
        assert_eq!((response.status, response.field("access-control-allow-origin")), (401, Some("*")), "{line}");
    }
    let with_password = [preflight[0], "Authorization: Basic YWxpY2U6c2VjcmV0"];
    assert_eq!(request(&mut client, "a", "GET /", &with_password).status, 200);
}

#[test]
fn variables_are_options_and_the_command_line_overrides_them() {
    let tree = Tree::new();
    tree.write("folder/a.txt", "a");
    let mut command = serve(&tree, &[]);
    command.env("SELVEDGE_SERVE_LISTING", "true").env("SELVEDGE_SERVE_HEADER", "X-One: 1\nX-Two: 2");
    let response = Program::start(&mut command).connect().get("/folder/");
    assert_eq!((response.status, response.field("x-one"), response.field("x-two")), (200, Some("1"), Some("2")));
    let mut command = serve(&tree, &["--header", "X-Three: 3"]);
    command.env("SELVEDGE_SERVE_LISTING", "no").env("SELVEDGE_SERVE_HEADER", "X-One: 1");
    let response = Program::start(&mut command).connect().get("/folder/");
    assert_eq!((response.status, response.field("x-one"), response.field("x-three")), (404, None, Some("3")));
    let mut command = selvedge_command();
    command.args(["serve", "-p", "0"]).env("SELVEDGE_SERVE_DIR", tree.site().join("folder"));
    assert_eq!(Program::start(&mut command).connect().get("/a.txt").text(), "a");
    let exit = run_to_exit(serve(&tree, &[]).env("SELVEDGE_SERVE_TLS", "perhaps"));
    assert!(exit.code == Some(2) && exit.err.contains("--tls"), "{exit:?}");
}

#[test]
fn a_value_that_is_no_setting_is_refused_as_in_a_configuration() {
    let tree = Tree::new();
    for (arguments, expected) in [
        (["--header", "Content-Length: 3"], "Content-Length"),
        (["--cors=app.example", "--tls"], "app.example"),
        (["--cors=app.example", "--listing"], "`--cors`: "),
        (["--not-found", "../x"], "`--not-found`: "),
        (["--header", "X: {NONE}"], "`--header`: "),
        (["--port", "0"], "`--port 0` has no effect"),
    ] {
        let exit = run_to_exit(&mut serve(&tree, &arguments));
        assert!(exit.code == Some(1) && exit.err.contains(expected), "{arguments:?}: {exit:?}");
        assert_eq!(exit.out, "", "{arguments:?}");
    }
}
