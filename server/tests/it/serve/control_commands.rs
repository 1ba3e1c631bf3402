//! `selvedge reload`, `stop`, `upgrade`, `reopen-logs` and `status`: the command over the control
//! socket, and the exit of the program.

use crate::support::program::{run_to_exit, selvedge_command};
use crate::support::tree::Tree;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread;

const COMMANDS: [(&[&str], &str); 6] = [
    (&["reload"], "reload"),
    (&["stop"], "stop"),
    (&["upgrade"], "upgrade"),
    (&["reopen-logs"], "reopen-logs"),
    (&["status"], "status"),
    (&["status", "--json"], "status json"),
];

#[test]
fn a_command_is_one_line_and_its_reply_is_printed() {
    let tree = Tree::new();
    let path = tree.outside("control");
    let server = UnixListener::bind(&path).unwrap();
    for (arguments, line) in COMMANDS {
        for (reply, code, out, err) in [
            ("ok\none\ntwo\n", 0, "one\ntwo\n", ""),
            ("refused\nwhy\n", 1, "", "selvedge: why\n"),
            ("", 1, "", "ended before it replied\n"),
            ("neither\n", 1, "", "ended before it replied\n"),
        ] {
            if line == "stop" && code == 0 {
                // It waits for the end of the server, which is this process.
                continue;
            }
            let listener = server.try_clone().unwrap();
            let received = thread::spawn(move || {
                let (mut caller, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&caller).read_line(&mut line).unwrap();
                caller.write_all(reply.as_bytes()).unwrap();
                line
            });
            let exit = run_to_exit(selvedge_command().args(arguments).arg("--control").arg(&path));
            // Before the join: if the command did not connect, the thread waits without end.
            assert_eq!((exit.code, exit.out.as_str()), (Some(code), out), "{exit:?}");
            assert_eq!(received.join().unwrap(), format!("{line}\n"));
            assert!(exit.err.ends_with(err) && exit.err.is_empty() == err.is_empty(), "{exit:?}");
        }
    }
}

#[test]
fn without_a_server_a_command_fails() {
    let tree = Tree::new();
    for (arguments, _) in COMMANDS {
        let exit = run_to_exit(selvedge_command().current_dir(tree.site()).args(arguments));
        assert!(exit.code == Some(1) && exit.err.starts_with("selvedge: no configuration: neither "), "{exit:?}");
    }
    tree.write("selvedge.kdl", "site \"a\" { route \"/\" { deny; }; }");
    for (arguments, _) in COMMANDS {
        let exit = run_to_exit(selvedge_command().current_dir(tree.site()).args(arguments));
        assert_eq!(exit.code, Some(1), "{exit:?}");
        let socket = tree.site().join("selvedge.sock");
        let expected = format!("selvedge: cannot reach a server at {}: No such file or directory", socket.display());
        assert!(exit.err.starts_with(&expected) && exit.err.lines().count() == 1, "{exit:?}");
    }
}
