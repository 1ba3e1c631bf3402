//! Starting: the ready line, and errors that prevent the start.

use crate::support::other_driver::is_over_tls;
use crate::support::program::{Process, Program, run_to_exit, selvedge_command};
use crate::support::tree::Tree;
use std::net::TcpListener;
use std::process::Command;

#[test]
fn the_ready_line_names_the_directory_and_the_address() {
    let tree = Tree::new();
    tree.write("index.html", "home");
    let program = Program::serve(&tree);
    let address = program.address();
    assert!(address.ip().is_loopback() && address.port() != 0);
    assert_eq!(program.connect().get("/").content, b"home");
    let exit = program.stop();
    let scheme = if is_over_tls() { "https" } else { "http" };
    assert_eq!(exit.err, format!("serving {} on {scheme}://{address}/\n", tree.site().display()));
}

#[test]
fn without_a_directory_the_current_one_is_served() {
    let tree = Tree::new();
    tree.write("index.html", "home");
    let program = Program::start(selvedge_command().current_dir(tree.site()).args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "3",
    ]));
    assert_eq!(program.connect().get("/").content, b"home");
    assert!(program.stop().err.starts_with("serving . on http://127.0.0.1:"));
}

#[test]
fn a_directory_that_cannot_be_served_is_named_with_the_reason() {
    let tree = Tree::new();
    tree.write("file", "");
    for (name, reason) in [("missing", "No such file or directory"), ("file", "Not a directory")] {
        let path = tree.path(name);
        let exit = run_to_exit(selvedge_command().arg("serve").arg(&path).args(["--listen", "127.0.0.1:0"]));
        assert_eq!(exit.code, Some(1), "{exit:?}");
        let expected = format!("selvedge: cannot serve {}: {reason}", path.display());
        assert!(exit.err.starts_with(&expected) && exit.err.lines().count() == 1, "{exit:?}");
        assert_eq!(exit.out, "");
    }
}

#[test]
fn a_limit_of_open_files_that_is_too_low_is_an_error() {
    let tree = Tree::new();
    let script = "ulimit -n \"$0\"; exec \"$@\"";
    let start = |limit: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, limit]).arg(env!("CARGO_BIN_EXE_selvedge")).arg("serve").arg(tree.site());
        command.args(["--listen", "127.0.0.1:0", "--workers", "2"]);
        command
    };
    for limit in ["25", "95"] {
        let exit = run_to_exit(&mut start(limit));
        let expected = format!("the limit of {limit} open files is too low: 2 workers need 96");
        assert!(exit.code == Some(1) && exit.err.contains(&expected), "{exit:?}");
        assert_eq!((exit.err.lines().count(), exit.out.as_str()), (1, ""), "{exit:?}");
    }
    // With the lowest accepted limit, sixteen clients are served at once.
    tree.write("index.html", "home");
    let program = Program::start(&mut start("96"));
    let mut clients: Vec<_> = (0..16).map(|_| program.connect()).collect();
    for _ in 0..2 {
        clients.iter_mut().for_each(|client| assert_eq!(client.get("/").content, b"home"));
    }
}

#[test]
fn an_ipv6_address_is_served() {
    if TcpListener::bind("[::1]:0").is_err() {
        return; // This machine has no IPv6.
    }
    let tree = Tree::new();
    tree.write("index.html", "home");
    let program = Program::start(selvedge_command().arg("serve").arg(tree.site()).args(["--listen", "[::1]:0"]));
    assert!(program.address().is_ipv6());
    assert_eq!(program.connect().get("/").content, b"home");
    let exit = program.stop();
    assert!(exit.out.starts_with("::1 - - [") && exit.err.contains(" on http://[::1]:"), "{exit:?}");
}

#[test]
fn a_port_in_use_is_not_shared() {
    let tree = Tree::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    // The workers of a server share its port, but never with another process.
    let program = Program::serve(&tree);
    for address in [other.local_addr().unwrap(), program.address()] {
        let exit =
            run_to_exit(selvedge_command().arg("serve").arg(tree.site()).arg("--listen").arg(address.to_string()));
        assert_eq!(exit.code, Some(1), "{exit:?}");
        let expected = format!("selvedge: cannot listen on {address}: Address already in use");
        assert!(exit.err.starts_with(&expected) && exit.err.lines().count() == 1, "{exit:?}");
    }
}

#[test]
fn of_two_concurrent_starts_one_gets_the_port() {
    let tree = Tree::new();
    tree.write("index.html", "home");
    for round in 0..15 {
        // A port of an address that no other test uses, so that no other process binds it meanwhile.
        let free = TcpListener::bind("127.0.0.2:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let start = || {
            let listen = address.to_string();
            Process::start(selvedge_command().arg("serve").arg(tree.site()).args([
                "--listen",
                &listen,
                "--workers",
                "4",
            ]))
        };
        let (one, other) = (start(), start());
        match (one.wait_until_ready_or_exit(), other.wait_until_ready_or_exit()) {
            (Ok(program), Err(exit)) | (Err(exit), Ok(program)) => {
                assert_eq!(exit.code, Some(1), "round {round}: {exit:?}");
                let expected = format!("selvedge: cannot listen on {address}: Address already in use");
                assert!(exit.err.starts_with(&expected) && exit.err.lines().count() == 1, "round {round}: {exit:?}");
                assert_eq!(program.address(), address);
                // All connections reach the running server; none waits at an unused listener.
                for _ in 0..8 {
                    assert_eq!(program.connect().get("/").content, b"home", "round {round}");
                }
                program.stop();
            }
            (Ok(_), Ok(_)) => panic!("round {round}: both serve {address}"),
            (Err(one), Err(other)) => panic!("round {round}: neither serves {address}: {one:?} {other:?}"),
        }
    }
}

#[test]
fn invalid_arguments_are_refused() {
    let tree = Tree::new();
    let exit = run_to_exit(selvedge_command().arg("serve").arg(tree.site()).args(["--listen", "nonsense.invalid"]));
    assert_eq!(exit.code, Some(1), "{exit:?}");
    assert!(exit.err.starts_with("selvedge: cannot listen on nonsense.invalid:8080: "), "{exit:?}");
    for arguments in [
        ["--workers", "0"],
        ["--workers", "many"],
        ["--log", "verbose"],
        ["--lisssting", ""],
        ["--listen", "127.0.0.1:99999"],
    ] {
        let exit = run_to_exit(selvedge_command().arg("serve").arg(tree.site()).args(arguments));
        assert_eq!(exit.code, Some(2), "{exit:?}");
        assert!(exit.err.starts_with("error: ") && exit.err.contains(arguments[0]), "{exit:?}");
    }
}
