//! The processes that serve a configuration: control commands, their end, and their sandbox.

use crate::support::configured::{Folder, get, request};
use crate::support::program::{Exit, Program, run_to_exit, selvedge_command, write_program};
use crate::support::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn site(text: &str) -> String {
    format!(
        "log {{ error \"error.log\" level=\"info\"; }}\nsite \"*\" {{ route \"/*\" {{ respond 200 \"{text}\" }}; }}\n"
    )
}

/// Returns the only child of a process.
pub(super) fn child_of(pid: Pid) -> Option<Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let children: Vec<i32> = lists
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|number| number.parse().ok())
        .collect();
    let [child] = children[..] else { return None };
    Pid::from_raw(child)
}

pub(super) fn serving(program: &Program) -> Pid {
    wait_until("a serving process runs", || child_of(program.pid()))
}

/// Runs a control command as an operator would.
fn command(folder: &Folder, words: &[&str]) -> Exit {
    run_to_exit(selvedge_command().args(words).arg("--config").arg(folder.path("selvedge.kdl")))
}

#[test]
fn a_command_finds_the_server_by_its_configuration_and_reports_the_result() {
    let folder = Folder::new(&site("one"));
    let unused = command(&folder, &["reload"]);
    assert!(unused.code == Some(1) && unused.err.contains("cannot reach a server at "), "{unused:?}");
    let program = folder.serve();
    folder.configure(&format!("{}site \"b\" {{ route \"/*\" {{ deny; }}; }}\n", site("two")));
    let done = command(&folder, &["reload"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    let changes: Vec<_> = done.out.lines().skip(1).filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(changes, ["new: site b", "changed: site *"], "{}", done.out);
    assert_eq!(get(&program, "a", "/").text(), "two");
    folder.configure("sit \"b\" { }");
    let refused = command(&folder, &["reload"]);
    assert!(refused.code == Some(1) && refused.err.contains("selvedge.kdl:3:1: `sit` is not known"), "{refused:?}");
    assert_eq!(get(&program, "a", "/").text(), "two");
    let elsewhere = folder.path("other.sock").display().to_string();
    folder.configure(&format!("control \"{elsewhere}\"\n{}", site("two")));
    let not_there = command(&folder, &["stop"]);
    assert!(not_there.err.contains(&elsewhere) && not_there.err.contains("--control PATH"), "{not_there:?}");
    folder.configure(&site("two"));
    let stopped = command(&folder, &["stop"]);
    assert_eq!((stopped.code, stopped.out.as_str()), (Some(0), "stopped\n"));
    assert!(!folder.path("selvedge.sock").exists(), "the server has ended");
    let ended = program.exit();
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.err.matches("`sit` is not known").count(), 1, "{}", ended.err);
}

#[test]
fn a_killed_serving_process_is_replaced() {
    let folder = Folder::new(&site("in"));
    let program = folder.serve();
    for _ in 0..3 {
        let killed = serving(&program);
        kill_process(killed, Signal::KILL).expect("it is ours");
        // Clients wait meanwhile.
        assert_eq!(get(&program, "a", "/").text(), "in");
        assert_ne!(serving(&program), killed);
        let expected = format!("the serving process {} was killed by signal 9; started again", killed.as_raw_nonzero());
        wait_until("the end is in the error log", || {
            let lines = folder.lines("error.log");
            lines.iter().any(|line| line.contains("Restarted") && line.contains(&expected)).then_some(())
        });
    }
    program.stop();
}

#[test]
fn files_outside_of_the_sandbox_are_served_by_a_new_process() {
    let (folder, elsewhere) = (Folder::new("site \"*\" { root \"one/site\"; }"), Folder::new(""));
    folder.write("one/site/index.html", "one");
    elsewhere.write("two/site/index.html", "two");
    folder.configure("site \"*\" { root \"one/site\"; }");
    let program = folder.serve();
    let (first, mut kept) = (serving(&program), program.connect());
    assert_eq!(request(&mut kept, "a", "GET /", &[]).text(), "one");
    folder.configure(&format!("site \"*\" {{ root \"{}\"; }}", elsewhere.path("two/site").display()));
    let done = command(&folder, &["reload"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(get(&program, "a", "/").text(), "two");
    assert!(done.out.contains("changed: site *\n"), "{done:?}");
    if done.out.contains("has taken over") {
        assert_ne!(wait_until("the first one has ended", || child_of(program.pid())), first);
    }
    // With Landlock, the process that cannot start is a new one.
    folder.configure(&format!("site \"*\" {{ root \"{}\"; }}", folder.path("none/site").display()));
    let refused = command(&folder, &["reload"]);
    assert!(refused.code == Some(1) && refused.err.contains("none/site: it does not exist"), "{refused:?}");
    assert_eq!(get(&program, "a", "/").text(), "two");
    program.stop();
}

#[test]
fn a_swapped_link_to_a_release_replaces_no_process() {
    let (folder, elsewhere) = (Folder::new(""), Folder::new(""));
    for release in ["1", "2"] {
        elsewhere.write(&format!("releases/{release}/public/index.html"), release);
    }
    let link = |release: &str| {
        let new = elsewhere.path("current.new");
        std::os::unix::fs::symlink(format!("releases/{release}"), &new).expect("the folder is ours");
        fs::rename(new, elsewhere.path("current")).expect("the folder is ours");
    };
    link("1");
    folder.configure(&format!("site \"*\" {{ root \"{}\"; }}", elsewhere.path("current/public").display()));
    let program = folder.serve();
    let (first, mut kept) = (serving(&program), program.connect());
    for release in ["2", "1", "2"] {
        link(release);
        wait_until("the release is served", || (get(&program, "a", "/").text() == release).then_some(()));
        assert_eq!(request(&mut kept, "a", "GET /", &[]).field("connection"), None);
    }
    let reloaded = command(&folder, &["reload"]);
    assert!(reloaded.out.starts_with("configuration 2, 1 earlier"), "{reloaded:?}");
    assert_eq!(serving(&program), first);
    program.stop();
}

#[test]
fn a_first_reload_of_logs_in_a_linked_folder_replaces_no_process() {
    let (folder, elsewhere) = (Folder::new(""), Folder::new(""));
    fs::create_dir(elsewhere.path("logs")).expect("the folder is ours");
    std::os::unix::fs::symlink(elsewhere.path("logs"), folder.path("logs")).expect("the folder is ours");
    folder.configure(
        "log { access \"logs/access.log\"; error \"logs/error.log\"; }\nsite \"*\" { route \"/*\" { respond 200 \"in\"; }; }",
    );
    let program = folder.serve();
    let first = serving(&program);
    assert_eq!(get(&program, "a", "/").text(), "in");
    let reloaded = command(&folder, &["reload"]);
    assert_eq!(reloaded.out, "configuration 2\nthe settings are unchanged, and files were read again\n");
    assert_eq!(serving(&program), first);
    program.stop();
}

#[test]
fn a_configuration_that_the_user_cannot_read_is_a_warning_with_the_command_that_permits_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let text = "user \"daemon\"\nlog { access \"off\"; error \"stderr\" level=\"info\"; }\ninclude \"sites/*.kdl\"\n";
    let folder = Folder::new(text);
    folder.write("sites/a.kdl", "site \"*\" { route \"/*\" { respond 200 \"in\"; }; }\n");
    let mode = |name: &str, mode| {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(mode)).expect("the folder is ours");
    };
    mode("selvedge.kdl", 0o600);
    mode("sites", 0o700);
    let program = folder.serve();
    let expected = "the user daemon may not read ";
    wait_until("the start warns", || program.standard_error().contains(expected).then_some(()));
    let exit = program.stop();
    assert_eq!(exit.err.matches(expected).count(), 1, "{}", exit.err);
    let checked = folder.run("check");
    assert!(
        checked.code == Some(0) && checked.err.contains(&format!("selvedge.kdl:3:6: warning: {expected}")),
        "{checked:?}"
    );
    // The command that is named ends it.
    let permit = checked.err.split('`').nth(1).expect("a command");
    let run = std::process::Command::new("sh").arg("-c").arg(permit).status().expect("a shell");
    assert!(run.success(), "{permit}");
    let checked = folder.run("check");
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""));
    let program = folder.serve();
    let first = serving(&program);
    let reloaded = command(&folder, &["reload"]);
    assert_eq!(reloaded.out, "configuration 2\nthe settings are unchanged, and files were read again\n");
    assert_eq!(serving(&program), first);
    assert!(!program.stop().err.contains(expected));
}

#[test]
fn a_failed_upgrade_leaves_no_socket_open() {
    let folder = Folder::new(&site("in"));
    let program = folder.serve();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = |listener: &TcpListener| listener.local_addr().expect("it has an address");
    let (taken_at, free_at) = (address(&taken), address(&free));
    drop(free);
    folder.configure(&format!("listen \"{free_at}\"\nlisten \"{taken_at}\"\n{}", site("out")));
    let refused = command(&folder, &["upgrade"]);
    assert!(refused.code == Some(1) && refused.err.contains("cannot listen on"), "{refused:?}");
    wait_until("no process listens there", || TcpStream::connect(free_at).is_err().then_some(()));
    assert_eq!(get(&program, "a", "/").text(), "in");
    program.stop();
}

#[test]
fn a_reload_reads_files_outside_of_the_sandbox() {
    let (folder, elsewhere) = (Folder::new(&site("one")), Folder::new(""));
    let program = folder.serve();
    elsewhere.write("more/x.kdl", "site \"b\" { route \"/*\" { respond 200 \"two\"; }; }\n");
    let included = elsewhere.path("more/x.kdl");
    folder.configure(&format!("{}include \"{}\"\n", site("one"), included.display()));
    let done = command(&folder, &["reload"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(get(&program, "b", "/").text(), "two");
    fs::remove_file(&included).expect("it is there");
    let refused = command(&folder, &["reload"]);
    assert!(refused.code == Some(1) && refused.err.contains("x.kdl"), "{refused:?}");
    assert_eq!(get(&program, "b", "/").text(), "two");
    program.stop();
}

#[test]
fn an_upgrade_starts_the_new_binary() {
    let folder = Folder::new(&site("in"));
    let binary = folder.path("selvedge");
    write_program(&binary, &fs::read(env!("CARGO_BIN_EXE_selvedge")).expect("it is there"));
    let program =
        Program::start(std::process::Command::new(&binary).arg("run").arg("--config").arg(folder.path("selvedge.kdl")));
    let first = serving(&program);
    assert_eq!(name(first), "selvedge");
    replace(&binary, b"#!/bin/sh\nexit 9\n");
    let refused = command(&folder, &["upgrade"]);
    assert!(refused.code == Some(1) && refused.err.contains("ended with code 9 before it was ready"), "{refused:?}");
    assert_eq!(get(&program, "a", "/").text(), "in");
    assert_eq!(serving(&program), first);
    let mut kept = program.connect();
    request(&mut kept, "a", "GET /", &[]);
    replace(&binary, &fs::read(env!("CARGO_BIN_EXE_selvedge")).expect("it is there"));
    let done = command(&folder, &["upgrade"]);
    assert!(done.code == Some(0) && done.out.contains("has taken over"), "{done:?}");
    assert_eq!(get(&program, "a", "/").text(), "in");
    let second = wait_until("the first one has ended", || child_of(program.pid()).filter(|pid| *pid != first));
    assert_eq!(name(second), "selvedge");
    program.stop();
}

/// Returns the name of a process in process lists.
fn name(pid: Pid) -> String {
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    name.expect("it is alive").trim_end().to_owned()
}

fn replace(binary: &Path, content: &[u8]) {
    let new = binary.with_extension("new");
    write_program(&new, content);
    fs::rename(&new, binary).expect("the folder is ours");
}

#[test]
fn without_a_supervisor_there_is_one_process() {
    let folder = Folder::new(&format!("supervision {{ supervised #false; }}\npid-file \"pid\"\n{}", site("alone")));
    let program = folder.serve();
    assert_eq!(child_of(program.pid()), None);
    assert_eq!(folder.read("pid"), format!("{}\n", program.pid().as_raw_nonzero()));
    assert_eq!(get(&program, "a", "/").text(), "alone");
    folder.configure(&format!("supervision {{ supervised #false; }}\npid-file \"pid\"\n{}", site("still")));
    assert_eq!(command(&folder, &["reload"]).code, Some(0));
    assert_eq!(get(&program, "a", "/").text(), "still");
    let refused = command(&folder, &["upgrade"]);
    assert!(refused.code == Some(1) && refused.err.contains("needs a supervisor"), "{refused:?}");
    program.stop();
    assert!(!folder.path("pid").exists());
}

/// A replaced folder of the configuration is outside of the sandbox.
#[test]
fn logs_and_roots_in_recreated_directories_are_opened_again() {
    let (folder, logs) = (Folder::new(""), Folder::new(""));
    folder.write("data/site/index.html", "old");
    fs::create_dir_all(logs.path("in/logs")).expect("the folder is ours");
    let access = logs.path("in/logs/access.log");
    folder.configure(&format!(
        "log {{ access \"{}\" format=\"%r\"; }}\nsite \"*\" {{ root \"data/site\"; }}",
        access.display()
    ));
    let program = folder.serve();
    assert_eq!(get(&program, "a", "/").text(), "old");
    wait_until("it is logged", || (!folder.lines(access.to_str().expect("a name")).is_empty()).then_some(()));
    fs::remove_dir_all(logs.path("in/logs")).expect("the folder is ours");
    fs::create_dir(logs.path("in/logs")).expect("the folder is ours");
    wait_until("it is logged again", || {
        get(&program, "a", "/logged");
        fs::read_to_string(&access).ok().filter(|text| text.contains("/logged"))
    });
    fs::rename(folder.path("data"), folder.path("data2")).expect("the folder is ours");
    folder.write("data/site/index.html", "new");
    wait_until("the new one is served", || (get(&program, "a", "/").text() == "new").then_some(()));
    program.stop();
}

#[test]
fn a_reload_checks_only_requirements_of_the_serving_process() {
    let folder = Folder::new("");
    fs::create_dir(folder.path("own")).expect("the folder is ours");
    let text = |more: &str| format!("control \"own/control\"\npid-file \"own/pid\"\n{}{more}", site("in"));
    folder.configure(&text(""));
    let program = folder.serve();
    // As for a process that has dropped its privileges.
    fs::set_permissions(folder.path("own"), PermissionsExt::from_mode(0o500)).expect("it is ours");
    folder.configure(&text("site \"b\" { route \"/*\" { deny; }; }\n"));
    let done = command(&folder, &["reload"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    // A command finds its server even if the configuration is invalid.
    folder.configure(&text("site \"b\" { rot \"x\"; }\n"));
    let refused = command(&folder, &["reload"]);
    assert!(refused.code == Some(1) && refused.err.contains("`rot` is not known"), "{refused:?}");
    fs::set_permissions(folder.path("own"), PermissionsExt::from_mode(0o700)).expect("it is ours");
    // Opening a FIFO would block forever.
    let fifo = folder.path("own/x.kdl");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("a FIFO");
    folder.configure(&text("include \"own/*.kdl\"\n"));
    let refused = command(&folder, &["reload"]);
    assert!(refused.code == Some(1) && refused.err.contains("it is not a regular file"), "{refused:?}");
    program.stop();
}
