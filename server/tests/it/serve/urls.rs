//! Where `selvedge serve` listens, what it prints about that, and the browser.

use crate::support::program::{Program, run_to_exit, selvedge_command, write_program};
use crate::support::tree::Tree;
use crate::support::wait::wait_until;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

fn ready_urls(program: &Program) -> Vec<String> {
    let text = program.standard_error();
    text.lines()
        .filter_map(|line| line.strip_prefix("serving ")?.split_once(" on "))
        .map(|(_, url)| url.to_owned())
        .collect()
}

#[test]
fn all_addresses_are_printed_as_urls_that_can_be_clicked() {
    let tree = Tree::new();
    tree.write("index.html", "home");
    let program =
        Program::start(selvedge_command().arg("serve").arg(tree.site()).args(["--listen", "0.0.0.0", "-p", "0"]));
    assert_eq!(program.connect().get("/").content, b"home");
    let port = program.address().port();
    let urls = ready_urls(&program);
    assert_eq!(urls[0], format!("http://127.0.0.1:{port}/"));
    assert!(urls.iter().all(|url| url.ends_with(&format!(":{port}/")) && !url.contains("0.0.0.0")), "{urls:?}");
    let program = Program::start(selvedge_command().arg("serve").arg(tree.site()).args(["-p", "0"]));
    assert_eq!(ready_urls(&program), [format!("http://{}/", program.address())]);
    assert!(program.address().ip().is_loopback());
}

#[test]
fn several_listeners_and_a_unix_socket_serve_one_directory() {
    let tree = Tree::new();
    tree.write("index.html", "home");
    let socket = tree.outside("site.sock");
    let unix = format!("unix:{}", socket.display());
    let program = Program::start(
        selvedge_command()
            .arg("serve")
            .arg(tree.site())
            .args(["--listen", "127.0.0.1:0", "--listen", "127.0.0.3:0"])
            .args(["--listen", &unix]),
    );
    let urls = ready_urls(&program);
    assert!(urls[0].starts_with("http://127.0.0.1:") && urls[1].starts_with("http://127.0.0.3:"), "{urls:?}");
    assert_eq!(urls[2], unix);
    assert_eq!(program.connect().get("/").content, b"home");
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("home"), "{response}");
    program.stop();
    assert!(!socket.exists(), "the socket's file is removed");
}

#[test]
fn the_browser_gets_the_first_url() {
    let tree = Tree::new();
    tree.write("index.html", "home");
    let (browser, opened) = (tree.outside("browser"), tree.outside("opened"));
    let script = format!("#!/bin/sh\necho \"$1\" > {}.part && mv {0}.part {0}\n", opened.display());
    write_program(&browser, script.as_bytes());
    let mut command = selvedge_command();
    command.arg("serve").arg(tree.site()).args(["-p", "0", "--open"]);
    let program = Program::start(command.env("BROWSER", &browser));
    let url = wait_until("the browser has started", || fs::read_to_string(&opened).ok());
    assert_eq!(url, format!("http://{}/\n", program.address()));
    let program = Program::start(command.env("BROWSER", tree.outside("missing")));
    let expected = format!("cannot start {} to open http://", tree.outside("missing").display());
    wait_until("the problem is reported", || program.standard_error().contains(&expected).then_some(()));
}

#[test]
fn a_directory_without_an_index_has_a_hint() {
    let tree = Tree::new();
    let program = Program::start(selvedge_command().arg("serve").arg(tree.site()).args(["-p", "0"]));
    let expected =
        format!("hint: {} has no index.html, so its page is 404; `--listing` lists directories", tree.site().display());
    wait_until("the hint is printed", || program.standard_error().contains(&expected).then_some(()));
    let program = Program::start(selvedge_command().arg("serve").arg(tree.site()).args(["-p", "0", "--listing"]));
    assert_eq!(program.connect().get("/").status, 200);
    assert!(!program.standard_error().contains("hint"));
    tree.write("docs/read.me", "text");
    let program = Program::start(selvedge_command().arg("serve").arg(tree.site()).args(["-p", "0"]));
    assert_eq!(program.connect().get("/docs/").status, 404);
    let expected = "the directory has no index file; `listing`, or `serve --listing`, would list it";
    wait_until("the reason is logged", || program.standard_error().contains(expected).then_some(()));
    let options = ["-p", "0", "--spa", "--not-found", "lost.html"];
    let program = Program::start(selvedge_command().arg("serve").arg(tree.site()).args(options));
    for expected in
        ["no index.html, which `--spa` sends", "no file lost.html, so missing files get the page of the server"]
    {
        wait_until("the hint is printed", || program.standard_error().contains(expected).then_some(()));
    }
}

#[test]
fn mistakes_get_the_right_option() {
    let tree = Tree::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    for (arguments, code, expected) in [
        (
            &["serve", "8000"][..],
            1,
            "cannot serve 8000: No such file or directory (os error 2); `--port 8000` is a port",
        ),
        (&["serve", "http://localhost:3000"], 1, "`selvedge proxy --to http://localhost:3000`"),
        (&["serve", "site.kdl"], 1, "`selvedge run site.kdl` serves a configuration"),
        (&["serve", "-p", &port], 1, "; `--port 0` takes a free port"),
        (&["serve", "--listen", "http://localhost:1/"], 2, "write `--listen localhost:1`"),
        (&["serve", "--browse"], 2, "tip: `--listing` lists directories"),
        (&["serve", "--domain", "example.com", "-p", "80"], 2, "'--port <PORT>'"),
        (&["."], 2, "tip: `selvedge serve .` serves a directory"),
    ] {
        let exit = run_to_exit(selvedge_command().current_dir(tree.site()).args(arguments));
        assert!(exit.code == Some(code) && exit.err.contains(expected), "{arguments:?}: {exit:?}");
    }
}
