//! Replacing a serving process by another.

use super::program::{TestProgram, folder, get, is_alive, open_idle_connection, signal, until, write_program};
use crate::process::control::call;
use crate::process::{ControlCommand, ControlReply};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Starts a program whose binary can be replaced.
fn start() -> (TestProgram, PathBuf) {
    let folder = folder();
    let binary = folder.join("selvedge");
    install(&std::env::current_exe().unwrap(), &binary);
    (TestProgram::with(&folder, "listen \"127.0.0.1:0\"", &binary), binary)
}

/// Installs a program by a rename.
fn install(from: &Path, to: &Path) {
    let new = to.with_extension("new");
    write_program(&new, &fs::read(from).unwrap());
    fs::rename(&new, to).unwrap();
}

#[test]
fn a_new_binary_takes_over_without_a_lost_request() {
    let (program, binary) = start();
    let first = program.ready();
    let address = first.address.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let done = done.clone();
            thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    assert_ne!(get(address, "/"), "", "every request gets a response");
                }
            })
        })
        .collect();
    install(&std::env::current_exe().unwrap(), &binary);
    let Ok(ControlReply::Done(text)) = program.send_command(ControlCommand::Upgrade) else {
        panic!("{}", program.errors())
    };
    let second = program.ready();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("process {} has taken over: version {version} of {}", second.pid, binary.display());
    assert_eq!(text, expected);
    until("the new process responds", || (get(address, "/") == second.pid.to_string()).then_some(()));
    // By the signal as well.
    install(&std::env::current_exe().unwrap(), &binary);
    signal(program.pid(), Signal::USR2);
    let third = program.ready();
    until("the old process has ended", || (!is_alive(second.pid)).then_some(()));
    assert_eq!(get(address, "/"), third.pid.to_string());
    done.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("no request was lost"));
    // A restart uses the new binary.
    assert!(!program.errors().contains("started again"), "{}", program.errors());
}

#[test]
fn the_old_process_finishes_its_requests() {
    let (program, _) = start();
    let first = program.ready();
    let address = first.address.unwrap();
    let idle: Vec<_> = (0..16).map(|_| open_idle_connection(address, first.pid)).collect();
    let mut connection = open_idle_connection(address, first.pid);
    connection.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(matches!(program.send_command(ControlCommand::Upgrade), Ok(ControlReply::Done(_))));
    let second = program.ready();
    until("the new process responds", || (get(address, "/") == second.pid.to_string()).then_some(()));
    // Each worker closes idle connections when it drains.
    idle.into_iter().for_each(|mut idle| assert_eq!(idle.read(&mut [0]).unwrap(), 0));
    connection.write_all(b"Host: a\r\n\r\n").unwrap();
    let mut reply = String::new();
    connection.read_to_string(&mut reply).unwrap();
    assert!(reply.ends_with(&first.pid.to_string()) && reply.contains("connection: close"), "{reply}");
    until("the old process has ended", || (!is_alive(first.pid)).then_some(()));
}

#[test]
fn a_new_binary_that_fails_changes_nothing() {
    let (program, binary) = start();
    let first = program.ready();
    let address = first.address.unwrap();
    let script = |text: &str| {
        let new = binary.with_extension("new");
        write_program(&new, text.as_bytes());
        fs::rename(&new, &binary).unwrap();
    };
    script("#!/bin/sh\nexit 9\n");
    let refused = "the new process ended with code 9 before it was ready";
    assert_eq!(program.send_command(ControlCommand::Upgrade), Ok(ControlReply::Refused(refused.to_owned())));
    fs::remove_file(&binary).unwrap();
    let Ok(ControlReply::Refused(text)) = program.send_command(ControlCommand::Upgrade) else {
        panic!("the file does not exist")
    };
    assert_eq!(text, "the new process cannot be started: No such file or directory (os error 2)");
    assert_eq!(get(address, "/"), first.pid.to_string());
    // A restart does not need the removed file.
    signal(first.pid, Signal::KILL);
    let second = program.ready();
    assert_eq!(get(address, "/"), second.pid.to_string());
}

#[test]
fn only_one_upgrade_runs_and_a_stop_ends_it() {
    let (mut program, binary) = start();
    let first = program.ready();
    let new = binary.with_extension("new");
    let started = program.folder.join("started");
    write_program(&new, format!("#!/bin/sh\n: > {}\nexec sleep 100\n", started.display()).as_bytes());
    fs::rename(&new, &binary).unwrap();
    let control = program.control();
    let waits = thread::spawn(move || call(&control, ControlCommand::Upgrade));
    until("the new process has started", || started.exists().then_some(()));
    let refused = ControlReply::Refused("another upgrade is in progress".to_owned());
    assert_eq!(program.send_command(ControlCommand::Upgrade), Ok(refused));
    signal(program.pid(), Signal::USR2);
    until("it is refused", || program.errors().contains("another upgrade is in progress").then_some(()));
    assert_eq!(get(first.address.unwrap(), "/"), first.pid.to_string());
    signal(program.pid(), Signal::TERM);
    assert_eq!(program.code(), Some(0));
    let refused = "the new process was killed by signal 9 before it was ready";
    assert_eq!(waits.join().unwrap(), Ok(ControlReply::Refused(refused.to_owned())));
}

#[test]
fn upgrade_starts_the_binary_at_the_original_path() {
    let (program, binary) = start();
    let first = program.ready();
    fs::rename(&binary, binary.with_extension("old")).unwrap();
    install(&std::env::current_exe().unwrap(), &binary);
    program.send_command(ControlCommand::Upgrade).unwrap();
    let second = program.ready();
    assert_ne!(second.pid, first.pid);
    assert_eq!(executable_of(second.pid), binary);
}

#[test]
fn a_link_to_the_binary_is_resolved_again() {
    let folder = folder();
    let [one, two, link] = ["one", "two", "selvedge"].map(|name| folder.join(name));
    install(&std::env::current_exe().unwrap(), &one);
    install(&std::env::current_exe().unwrap(), &two);
    symlink(&one, &link).unwrap();
    let program = TestProgram::with(&folder, "listen \"127.0.0.1:0\"", &link);
    assert_eq!(executable_of(program.ready().pid), one);
    fs::remove_file(&link).unwrap();
    symlink(&two, &link).unwrap();
    program.send_command(ControlCommand::Upgrade).unwrap();
    assert_eq!(executable_of(program.ready().pid), two);
}

#[test]
fn a_restart_runs_the_binary_that_was_ready() {
    let (program, binary) = start();
    let first = program.ready();
    install(&std::env::current_exe().unwrap(), &binary);
    program.send_command(ControlCommand::Upgrade).unwrap();
    let second = program.ready();
    fs::write(binary.with_extension("new"), "no program").unwrap();
    fs::rename(binary.with_extension("new"), &binary).unwrap();
    signal(second.pid, Signal::KILL);
    let third = program.ready();
    fs::remove_file(&binary).unwrap();
    signal(third.pid, Signal::KILL);
    let fourth = program.ready();
    // Until then it takes connections that wait in the queue.
    until("the replaced process has ended", || (!is_alive(first.pid)).then_some(()));
    assert_eq!(get(fourth.address.unwrap(), "/"), fourth.pid.to_string());
}

/// Returns the executable of a process.
fn executable_of(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/exe")).unwrap()
}
