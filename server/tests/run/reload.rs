//! HUP: what a change of the configuration does, and what a mistake in it does not.

use super::configured::{Folder, ask, get};
use super::process::serving;
use super::program::Program;
use super::wait::until;
use rustix::process::{Pid, Signal};
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

/// A site that says a version, on every path.
fn version(number: u32, more: &str) -> String {
    format!(
        "{more}\nsite \"*\" {{\n    header \"X-Version\" \"{number}\"\n    route \"/*\" {{ respond 200 \"in\" }}\n}}\n"
    )
}

/// How often it said that it has reloaded, or has not.
fn results(program: &Program) -> usize {
    program.error_lines().iter().filter(|line| line.contains("reloaded: ")).count()
}

fn reload(program: &Program) {
    let before = results(program);
    program.signal(Signal::HUP);
    until("the reload is over", || (results(program) > before).then_some(()));
}

/// Waits until no earlier configuration has connections.
fn none_is_left(program: &Program) {
    until("no earlier one is left", || {
        reload(program);
        program.error_lines().last().is_some_and(|line| !line.contains("earlier")).then_some(())
    });
}

#[test]
fn new_connections_get_the_new_one_and_old_ones_are_told_to_close() {
    let folder = Folder::new(&version(1, ""));
    let program = folder.serve();
    let mut old = program.connect();
    let first = ask(&mut old, "a", "GET /", &[]);
    assert_eq!((first.field("x-version"), first.field("connection")), (Some("1"), None));
    folder.configure(&version(2, ""));
    reload(&program);
    assert!(!old.has_ended(), "an idle connection is left alone");
    assert_eq!(get(&program, "a", "/").field("x-version"), Some("2"));
    let last = ask(&mut old, "a", "GET /", &[]);
    assert_eq!((last.field("x-version"), last.field("connection")), (Some("1"), Some("close")));
    old.is_closed();
    let says = "reloaded: configuration 2, 1 earlier with connections; changed: site *";
    assert!(program.error_lines().iter().any(|line| line == says), "{:?}", program.error_lines());
    none_is_left(&program);
}

#[test]
fn followers_take_the_new_one_at_their_next_request() {
    let folder = Folder::new(&version(1, ""));
    let program = folder.serve();
    let mut client = program.connect();
    ask(&mut client, "a", "GET /", &[]);
    for number in 2..5 {
        folder.configure(&version(number, "existing-connections \"follow\""));
        reload(&program);
        let answer = ask(&mut client, "a", "GET /", &[]);
        assert_eq!((answer.field("x-version"), answer.field("connection")), (Some(&*number.to_string()), None));
    }
    // The new configuration says what becomes of those who are there.
    folder.configure(&version(5, ""));
    reload(&program);
    let last = ask(&mut client, "a", "GET /", &[]);
    assert_eq!((last.field("x-version"), last.field("connection")), (Some("4"), Some("close")));
}

#[test]
fn a_mistake_changes_nothing_and_every_problem_is_in_the_error_log() {
    let folder = Folder::new(&version(1, "log { error \"error.log\"; }"));
    let program = folder.serve();
    let mut client = program.connect();
    ask(&mut client, "a", "GET /", &[]);
    let busy = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = busy.local_addr().expect("it is bound");
    for (text, says) in [
        (version(2, "nonsense"), &["`nonsense` is not known"][..]),
        (String::new(), &["has no site any more"]),
        (
            format!("{}\nsite \"b\" {{ rot \"x\"; }}\nlimit {{ }}", version(2, "")),
            &["`rot` is not known", "`limit` is not known"],
        ),
        (version(2, &format!("listen \"{taken}\"")), &["cannot listen on 127.0.0.1:"]),
        (version(2, "log { access \"/nonsense/log\"; }"), &["the folder /nonsense"]),
        (version(2, "site \"b\" { route \"/x/*\" { redirect \"/a#*\"; }; }"), &["a fragment has no stars"]),
    ] {
        let before = folder.lines("error.log").len();
        folder.configure(&text);
        reload(&program);
        let lines = until("it is in the error log", || {
            let lines = folder.lines("error.log").split_off(before);
            lines.iter().any(|line| line.contains("ReloadRefused")).then_some(lines)
        });
        for says in says {
            assert!(
                lines.iter().any(|line| line.contains(says) && (line.contains("selvedge.kdl:") || text.is_empty())),
                "{says}: {lines:?}"
            );
        }
        let answer = ask(&mut client, "a", "GET /", &[]);
        assert_eq!((answer.field("x-version"), answer.field("connection")), (Some("1"), None));
        assert_eq!(get(&program, "a", "/").field("x-version"), Some("1"));
    }
    drop(busy);
    folder.configure(&version(2, ""));
    reload(&program);
    assert_eq!(get(&program, "a", "/").field("x-version"), Some("2"));
}

#[test]
fn places_to_listen_come_and_go_and_those_that_stay_are_not_closed() {
    let folder = Folder::new(&version(1, ""));
    let program = folder.serve();
    let socket = folder.path("site.sock");
    // In the queue of the listener that stays while the configuration changes.
    let mut waiting = TcpStream::connect(program.address()).expect("it listens");
    folder.configure(&version(2, "listen \"unix:site.sock\""));
    reload(&program);
    let mut unix = std::os::unix::net::UnixStream::connect(&socket).expect("it listens there now");
    unix.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
    let answer = std::io::read_to_string(unix).expect("it answers");
    assert!(answer.contains("x-version: 2\r\n") || answer.contains("X-Version: 2\r\n"), "{answer}");
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
    let answer = std::io::read_to_string(waiting).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    folder.configure(&version(3, ""));
    reload(&program);
    until("it is gone", || (!socket.exists()).then_some(()));
    assert_eq!(get(&program, "a", "/").field("x-version"), Some("3"));
}

#[test]
fn counts_stay_with_a_rate_that_stays() {
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
    assert_eq!(get(&program, "a", "/").status, 200, "another rate begins anew");
}

#[test]
fn logs_that_move_are_opened_and_the_old_ones_are_written_to_their_end() {
    let with = |name: &str| version(1, &format!("log {{ access \"{name}\" format=\"common\"; }}"));
    let folder = Folder::new(&with("one.log"));
    let program = folder.serve();
    let mut old = program.connect();
    ask(&mut old, "a", "GET /1", &[]);
    folder.configure(&with("two.log"));
    reload(&program);
    assert!(folder.path("two.log").exists(), "it is opened before anything is served");
    get(&program, "a", "/2");
    ask(&mut old, "a", "GET /3", &[]);
    old.is_closed();
    program.stop();
    let asked = |name: &str| -> Vec<String> {
        folder.lines(name).iter().map(|line| line.split(' ').nth(6).expect("a target").to_owned()).collect()
    };
    assert_eq!((asked("one.log"), asked("two.log")), (vec!["/1".into(), "/3".into()], vec!["/2".into()]));
}

#[test]
fn what_cannot_change_is_said_and_a_storm_is_a_few() {
    let folder = Folder::new(&version(1, ""));
    let program = folder.serve();
    folder.write("selvedge.kdl", &format!("listen \"127.0.0.1:0\"\nworkers 3\n{}", version(2, "")));
    reload(&program);
    let says = "reloaded: configuration 2; what has changed of workers counts from the next start on; changed: site *";
    assert!(program.error_lines().iter().any(|line| line == says), "{:?}", program.error_lines());
    for _ in 0..200 {
        program.signal(Signal::HUP);
    }
    folder.write("selvedge.kdl", &format!("listen \"127.0.0.1:0\"\nworkers 3\n{}", version(3, "")));
    program.signal(Signal::HUP);
    until("the last one counts", || (get(&program, "a", "/").field("x-version") == Some("3")).then_some(()));
    assert!(results(&program) < 150, "200 signals were {} reloads", results(&program));
    program.stop();
}

#[test]
fn an_earlier_configuration_ends_at_the_drain_limit() {
    let with = |number| version(number, "limits { drain-time \"300ms\"; }");
    let folder = Folder::new(&with(1));
    let program = folder.serve();
    let mut idle = program.connect();
    ask(&mut idle, "a", "GET /", &[]);
    let mut begun = program.connect();
    ask(&mut begun, "a", "GET /", &[]);
    begun.send("GET / HTTP/1.1\r\nHost: a\r\n");
    folder.configure(&with(2));
    reload(&program);
    until("the idle one is closed", || idle.has_ended().then_some(()));
    until("the other one is cut", || begun.has_ended().then_some(()));
    none_is_left(&program);
}

/// How many descriptors of a process lead to a place.
fn descriptors_of(pid: Pid, place: &Path) -> usize {
    let all = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).expect("the process is ours");
    all.filter(|entry| entry.as_ref().is_ok_and(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == place)))
        .count()
}

#[test]
fn a_root_is_open_once_however_many_sites_and_configurations_have_it() {
    let text = "site \"a\" { root \"public\"; route \"/more/*\" { files root=\"public\"; }; }\nsite \"b\" { root \"public\"; }\n";
    let folder = Folder::new(text);
    folder.write("public/index.html", "first");
    let program = folder.serve();
    let serving = serving(&program);
    let place = folder.path("public").canonicalize().expect("it is there");
    assert_eq!(descriptors_of(serving, &place), 1);
    let mut held = Vec::new();
    for number in 0..3 {
        // A connection of each configuration keeps it.
        let mut client = program.connect();
        ask(&mut client, "a", "GET /", &[]);
        held.push(client);
        folder.configure(&format!("{text}site \"c{number}\" {{ root \"public\"; }}\n"));
        reload(&program);
        assert_eq!(descriptors_of(serving, &place), 1, "after {number} reloads");
    }
    // Another directory in its place is another root, for the reload as for those connected.
    fs::rename(&place, folder.path("before")).expect("it is ours");
    folder.write("public/index.html", "second");
    reload(&program);
    assert_eq!(get(&program, "a", "/").text(), "second");
    assert_eq!(descriptors_of(serving, &place), 1);
    program.stop();
}
