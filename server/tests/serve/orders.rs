//! `selvedge reload`, `stop`, `upgrade`, `reopen` and `status`: what is asked for over the
//! control socket, and how the command ends.

use super::program::{command, run};
use super::tree::Tree;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread;

const ORDERS: [(&[&str], &str); 6] = [
    (&["reload"], "reload"),
    (&["stop"], "stop"),
    (&["upgrade"], "upgrade"),
    (&["reopen"], "reopen"),
    (&["status"], "status"),
    (&["status", "--json"], "status json"),
];

#[test]
fn an_order_is_one_line_and_its_answer_is_printed() {
    let tree = Tree::new();
    let path = tree.outside("control");
    let server = UnixListener::bind(&path).unwrap();
    for (arguments, line) in ORDERS {
        for (answer, code, out, err) in [
            ("ok\none\ntwo\n", 0, "one\ntwo\n", ""),
            ("refused\nwhy\n", 1, "", "selvedge: why\n"),
            ("", 1, "", "ended before it answered\n"),
            ("neither\n", 1, "", "ended before it answered\n"),
        ] {
            let answering = server.try_clone().unwrap();
            let asked = thread::spawn(move || {
                let (mut caller, _) = answering.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&caller).read_line(&mut line).unwrap();
                caller.write_all(answer.as_bytes()).unwrap();
                line
            });
            let exit = run(command().args(arguments).arg("--control").arg(&path));
            assert_eq!(asked.join().unwrap(), format!("{line}\n"));
            assert_eq!((exit.code, exit.out.as_str()), (Some(code), out), "{exit:?}");
            assert!(exit.err.ends_with(err) && exit.err.is_empty() == err.is_empty(), "{exit:?}");
        }
    }
}

#[test]
fn without_a_server_an_order_says_so() {
    let tree = Tree::new();
    for (arguments, _) in ORDERS {
        let exit = run(command().current_dir(tree.site()).args(arguments));
        assert_eq!(exit.code, Some(1), "{exit:?}");
        let expected = "selvedge: cannot reach a server at selvedge.sock: No such file or directory";
        assert!(exit.err.starts_with(expected) && exit.err.lines().count() == 1, "{exit:?}");
    }
}
