//! HUP: the effect of a change of the configuration, and of a mistake in it.

use super::process::serving;
use crate::support::client::Client;
use crate::support::configured::{Folder, get, request};
use crate::support::program::Program;
use crate::support::wait::wait_until;
use rustix::process::{Pid, Signal};
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

/// Returns a site that responds with a version on every path.
fn version(number: u32, more: &str) -> String {
    format!(
        "{more}\nsite \"*\" {{\n    header \"X-Version\" \"{number}\"\n    route \"/*\" {{ respond 200 \"in\" }}\n}}\n"
    )
}

/// Returns how many reloads, successful or not, were reported.
fn results(program: &Program) -> usize {
    program.error_lines().iter().filter(|line| line.contains("reloaded: ")).count()
}

fn reload(program: &Program) {
    let before = results(program);
    program.signal(Signal::HUP);
    wait_until("the reload is over", || (results(program) > before).then_some(()));
}

/// Waits until no earlier configuration has connections.
fn wait_for_no_earlier_configuration(program: &Program) {
    wait_until("no earlier configuration has connections", || {
        reload(program);
        program.error_lines().last().is_some_and(|line| !line.contains("earlier")).then_some(())
    });
}

#[test]
fn new_connections_get_the_new_configuration_and_old_ones_close() {
    let folder = Folder::new(&version(1, ""));
    let program = folder.serve();
    let mut old = program.connect();
    let first = request(&mut old, "a", "GET /", &[]);
    assert_eq!((first.field("x-version"), first.field("connection")), (Some("1"), None));
    folder.configure(&version(2, ""));
    reload(&program);
    assert!(!old.was_closed(), "an idle connection stays open");
    assert_eq!(get(&program, "a", "/").field("x-version"), Some("2"));
    let last = request(&mut old, "a", "GET /", &[]);
    assert_eq!((last.field("x-version"), last.field("connection")), (Some("1"), Some("close")));
    old.assert_closed();
    let expected = "reloaded: configuration 2, 1 earlier with connections; changed: site *";
    assert!(program.error_lines().iter().any(|line| line == expected), "{:?}", program.error_lines());
    wait_for_no_earlier_configuration(&program);
}

#[test]
fn an_invalid_configuration_changes_nothing_and_its_problems_are_logged() {
    let folder = Folder::new(&version(1, "log { error \"error.log\"; }"));
    let program = folder.serve();
    let mut client = program.connect();
    request(&mut client, "a", "GET /", &[]);
    let busy = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = busy.local_addr().expect("it is bound");
    for (text, expected) in [
        (version(2, "nonsense"), &["`nonsense` is not known"][..]),
        (String::new(), &["has no sites"]),
        (
            format!("{}\nsite \"b\" {{ rot \"x\"; }}\nlimit {{ }}", version(2, "")),
            &["`rot` is not known", "`limit` is not known"],
        ),
        (version(2, &format!("listen \"{taken}\"")), &["cannot listen on 127.0.0.1:"]),
        (version(2, "log { access \"/nonsense/log\"; }"), &["the folder /nonsense"]),
        (version(2, "site \"b\" { route \"/x/*\" { redirect \"/a#*\"; }; }"), &["a fragment has no `*`"]),
        (version(2, "site \"b\" { root \"none\"; }"), &["none: it does not exist"]),
    ] {
        let before = folder.lines("error.log").len();
        folder.configure(&text);
        reload(&program);
        let lines = wait_until("it is in the error log", || {
            let lines = folder.lines("error.log").split_off(before);
            lines.iter().any(|line| line.contains("ReloadRefused")).then_some(lines)
        });
        for expected in expected {
            assert!(
                lines.iter().any(|line| line.contains(expected) && (line.contains("selvedge.kdl:") || text.is_empty())),
                "{expected}: {lines:?}"
            );
        }
        let response = request(&mut client, "a", "GET /", &[]);
        assert_eq!((response.field("x-version"), response.field("connection")), (Some("1"), None));
        assert_eq!(get(&program, "a", "/").field("x-version"), Some("1"));
    }
    drop(busy);
    folder.configure(&version(2, ""));
    reload(&program);
    assert_eq!(get(&program, "a", "/").field("x-version"), Some("2"));
}

#[test]
fn listeners_are_added_and_removed_and_the_rest_stay_open() {
    let folder = Folder::new(&version(1, ""));
    let program = folder.serve();
    let socket = folder.path("site.sock");
    // A client in the accept queue of a listener that stays.
    let mut waiting = TcpStream::connect(program.address()).expect("it listens");
    folder.configure(&version(2, "listen \"unix:site.sock\""));
    reload(&program);
    let mut unix = std::os::unix::net::UnixStream::connect(&socket).expect("it listens there now");
    unix.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
    let response = std::io::read_to_string(unix).expect("it responds");
    assert!(response.contains("x-version: 2\r\n") || response.contains("X-Version: 2\r\n"), "{response}");
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
    let response = std::io::read_to_string(waiting).expect("it responds");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    folder.configure(&version(3, ""));
    reload(&program);
    wait_until("it has ended", || (!socket.exists()).then_some(()));
    assert_eq!(get(&program, "a", "/").field("x-version"), Some("3"));
}

#[test]
fn an_unchanged_rate_limit_keeps_its_counts() {
    let site = |requests: u32| {
        format!("site \"*\" {{\n    rate-limit {requests} per=\"1h\"\n    route \"/*\" {{ respond 200 \"in\" }}\n}}")
    };
    let folder = Folder::new(&site(3));
    let program = folder.serve();
    let statuses: Vec<u16> = (0..4).map(|_| get(&program, "a", "/").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    folder.configure(&format!("{}\nsite \"b\" {{ route \"/*\" {{ deny; }}; }}", site(3)));
    reload(&program);
    assert_eq!((get(&program, "a", "/").status, get(&program, "b", "/").status), (429, 403));
    folder.configure(&site(4));
    reload(&program);
    assert_eq!(get(&program, "a", "/").status, 200, "a changed rate limit starts at zero");
}

#[test]
fn new_log_files_are_opened_and_old_ones_get_their_last_lines() {
    let with = |name: &str| version(1, &format!("log {{ access \"{name}\" format=\"common\"; }}"));
    let folder = Folder::new(&with("one.log"));
    let program = folder.serve();
    let mut old = program.connect();
    request(&mut old, "a", "GET /1", &[]);
    folder.configure(&with("two.log"));
    reload(&program);
    assert!(folder.path("two.log").exists(), "it is opened before anything is served");
    get(&program, "a", "/2");
    request(&mut old, "a", "GET /3", &[]);
    old.assert_closed();
    program.stop();
    let response = |name: &str| -> Vec<String> {
        folder.lines(name).iter().map(|line| line.split(' ').nth(6).expect("a target").to_owned()).collect()
    };
    assert_eq!((response("one.log"), response("two.log")), (vec!["/1".into(), "/3".into()], vec!["/2".into()]));
}

#[test]
fn settings_that_need_a_restart_are_named_and_reload_signals_are_coalesced() {
    let folder = Folder::new(&version(1, ""));
    let program = folder.serve();
    folder.write("selvedge.kdl", &format!("listen \"127.0.0.1:0\"\nworkers 3\n{}", version(2, "")));
    reload(&program);
    let expected = "reloaded: configuration 2; changes to workers take effect after a restart; changed: site *";
    assert!(program.error_lines().iter().any(|line| line == expected), "{:?}", program.error_lines());
    for _ in 0..200 {
        program.signal(Signal::HUP);
    }
    folder.write("selvedge.kdl", &format!("listen \"127.0.0.1:0\"\nworkers 3\n{}", version(3, "")));
    program.signal(Signal::HUP);
    wait_until("the last configuration is in force", || {
        (get(&program, "a", "/").field("x-version") == Some("3")).then_some(())
    });
    assert!(results(&program) < 150, "200 signals were {} reloads", results(&program));
    program.stop();
}

#[test]
fn an_earlier_configuration_ends_at_the_shutdown_timeout() {
    let with = |number| version(number, "limits { shutdown-timeout \"300ms\"; }");
    let folder = Folder::new(&with(1));
    let program = folder.serve();
    let mut idle = program.connect();
    request(&mut idle, "a", "GET /", &[]);
    let mut begun = program.connect();
    request(&mut begun, "a", "GET /", &[]);
    begun.send("GET / HTTP/1.1\r\nHost: a\r\n");
    folder.configure(&with(2));
    reload(&program);
    wait_until("the idle one is closed", || idle.was_closed().then_some(()));
    wait_until("the other connection is closed", || begun.was_closed().then_some(()));
    wait_for_no_earlier_configuration(&program);
}

/// Returns how many descriptors of a process lead to a path.
fn descriptors_of(pid: Pid, place: &Path) -> usize {
    let all = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("the process is ours");
    all.filter(|entry| entry.as_ref().is_ok_and(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == place)))
        .count()
}

#[test]
fn a_root_is_opened_once_for_all_sites_and_configurations() {
    let text = "site \"a\" { root \"public\"; route \"/more/*\" { files root=\"public\"; }; }\nsite \"b\" { root \"public\"; }\n";
    let folder = Folder::new(text);
    folder.write("public/index.html", "first");
    let program = folder.serve();
    let serving = serving(&program);
    let place = folder.path("public").canonicalize().expect("it is there");
    assert_eq!(descriptors_of(serving, &place), 1);
    let mut held = Vec::new();
    for number in 0..3 {
        // A connection of each configuration keeps that configuration open.
        let mut client = program.connect();
        request(&mut client, "a", "GET /", &[]);
        held.push(client);
        folder.configure(&format!("{text}site \"c{number}\" {{ root \"public\"; }}\n"));
        reload(&program);
        assert_eq!(descriptors_of(serving, &place), 1, "after {number} reloads");
    }
    // A directory that replaces another is a new root, for the reload and for open connections.
    fs::rename(&place, folder.path("before")).expect("it is ours");
    folder.write("public/index.html", "second");
    reload(&program);
    assert_eq!(get(&program, "a", "/").text(), "second");
    assert_eq!(descriptors_of(serving, &place), 1);
    program.stop();
}

#[test]
fn an_address_may_become_narrower_and_wider() {
    let folder = Folder::new("");
    let text = |listen: &str| {
        format!("control \"control\"\nworkers 2\n{listen}\nsite \"*\" {{ route \"/*\" {{ respond 200 \"in\"; }}; }}\n")
    };
    folder.write("selvedge.kdl", &text("listen \"[::]:0\""));
    let program = folder.serve();
    let port = program.address().port();
    for addresses in [&["0.0.0.0"][..], &["127.0.0.1"], &["[::]"], &["0.0.0.0", "[::]"], &["[::]"], &["127.0.0.1"]] {
        let lines: Vec<_> = addresses.iter().map(|address| format!("listen \"{address}:{port}\"")).collect();
        folder.write("selvedge.kdl", &text(&lines.join("\n")));
        let done = folder.run("reload");
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{addresses:?}: {done:?}");
        let response = Client::connect(([127, 0, 0, 1], port).into()).get("/");
        assert_eq!(response.text(), "in", "{addresses:?}");
    }
    program.stop();
}
