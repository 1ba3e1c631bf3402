//! One serving process in the place of another.

use super::program::{Started, folder, get, is_alive, keep, programs, signal, until};
use crate::process::control::ask;
use crate::process::{Answer, Order};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A program whose binary can be replaced.
fn start() -> (Started, PathBuf) {
    let folder = folder();
    let binary = folder.join("selvedge");
    put(&std::env::current_exe().unwrap(), &binary);
    (Started::with(&folder, "listen \"127.0.0.1:0\"", &binary), binary)
}

/// Puts a program in place by a rename.
fn put(from: &Path, to: &Path) {
    let new = to.with_extension("new");
    let _nobody_starts = programs();
    fs::copy(from, &new).unwrap();
    fs::rename(&new, to).unwrap();
}

#[test]
fn a_new_binary_takes_over_without_a_lost_request() {
    let (program, binary) = start();
    let first = program.ready();
    let address = first.address.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let over = over.clone();
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    assert_ne!(get(address, "/"), "", "every request is answered");
                }
            })
        })
        .collect();
    put(&std::env::current_exe().unwrap(), &binary);
    let Ok(Answer::Done(text)) = program.order(Order::Upgrade) else { panic!("{}", program.errors()) };
    let second = program.ready();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("process {} serves in its place: version {version} of {}", second.pid, binary.display());
    assert_eq!(text, expected);
    until("the new one answers", || (get(address, "/") == second.pid.to_string()).then_some(()));
    // By the signal, too.
    put(&std::env::current_exe().unwrap(), &binary);
    signal(program.pid(), Signal::USR2);
    let third = program.ready();
    until("the old one is gone", || (!is_alive(second.pid)).then_some(()));
    assert_eq!(get(address, "/"), third.pid.to_string());
    over.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("no request was lost"));
    // A restart is one of the new binary.
    assert!(!program.errors().contains("started again"), "{}", program.errors());
}

#[test]
fn the_old_one_finishes_what_it_has_begun() {
    let (program, _) = start();
    let first = program.ready();
    let address = first.address.unwrap();
    let idle: Vec<_> = (0..16).map(|_| keep(address, first.pid)).collect();
    let mut begun = keep(address, first.pid);
    begun.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(matches!(program.order(Order::Upgrade), Ok(Answer::Done(_))));
    let second = program.ready();
    until("the new one answers", || (get(address, "/") == second.pid.to_string()).then_some(()));
    // Each worker closes those that do nothing, once it was told.
    idle.into_iter().for_each(|mut idle| assert_eq!(idle.read(&mut [0]).unwrap(), 0));
    begun.write_all(b"Host: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    begun.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(&first.pid.to_string()) && answer.contains("connection: close"), "{answer}");
    until("the old one is gone", || (!is_alive(first.pid)).then_some(()));
}

#[test]
fn a_new_binary_that_fails_changes_nothing() {
    let (program, binary) = start();
    let first = program.ready();
    let address = first.address.unwrap();
    let script = |text: &str| {
        let new = binary.with_extension("new");
        let _nobody_starts = programs();
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&new, &binary).unwrap();
    };
    script("#!/bin/sh\nexit 9\n");
    let refused = "the new process ended with code 9 before it was ready";
    assert_eq!(program.order(Order::Upgrade), Ok(Answer::Refused(refused.to_owned())));
    fs::remove_file(&binary).unwrap();
    let Ok(Answer::Refused(text)) = program.order(Order::Upgrade) else { panic!("there is nothing to start") };
    assert_eq!(text, "the new process cannot be started: No such file or directory (os error 2)");
    assert_eq!(get(address, "/"), first.pid.to_string());
    // What was not there any more is not needed for a restart.
    signal(first.pid, Signal::KILL);
    let second = program.ready();
    assert_eq!(get(address, "/"), second.pid.to_string());
}

#[test]
fn only_one_upgrade_is_under_way_and_a_stop_ends_it() {
    let (mut program, binary) = start();
    let first = program.ready();
    let new = binary.with_extension("new");
    let started = program.folder.join("started");
    let nobody_starts = programs();
    fs::write(&new, format!("#!/bin/sh\n: > {}\nexec sleep 100\n", started.display())).unwrap();
    drop(nobody_starts);
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, &binary).unwrap();
    let control = program.control();
    let waits = thread::spawn(move || ask(&control, Order::Upgrade));
    until("the new one has begun", || started.exists().then_some(()));
    let refused = Answer::Refused("another upgrade is under way".to_owned());
    assert_eq!(program.order(Order::Upgrade), Ok(refused));
    signal(program.pid(), Signal::USR2);
    until("it is refused", || program.errors().contains("another upgrade is under way").then_some(()));
    assert_eq!(get(first.address.unwrap(), "/"), first.pid.to_string());
    signal(program.pid(), Signal::TERM);
    assert_eq!(program.code(), Some(0));
    let refused = "the new process was killed by signal 9 before it was ready";
    assert_eq!(waits.join().unwrap(), Ok(Answer::Refused(refused.to_owned())));
}

#[test]
fn the_new_binary_is_looked_for_where_the_old_one_was_begun() {
    let (program, binary) = start();
    let first = program.ready();
    fs::rename(&binary, binary.with_extension("old")).unwrap();
    put(&std::env::current_exe().unwrap(), &binary);
    program.order(Order::Upgrade).unwrap();
    let second = program.ready();
    assert_ne!(second.pid, first.pid);
    assert_eq!(runs(second.pid), binary);
}

#[test]
fn a_link_to_the_binary_is_followed_anew() {
    let folder = folder();
    let [one, two, link] = ["one", "two", "selvedge"].map(|name| folder.join(name));
    put(&std::env::current_exe().unwrap(), &one);
    put(&std::env::current_exe().unwrap(), &two);
    symlink(&one, &link).unwrap();
    let program = Started::with(&folder, "listen \"127.0.0.1:0\"", &link);
    assert_eq!(runs(program.ready().pid), one);
    fs::remove_file(&link).unwrap();
    symlink(&two, &link).unwrap();
    program.order(Order::Upgrade).unwrap();
    assert_eq!(runs(program.ready().pid), two);
}

#[test]
fn what_has_become_ready_is_what_is_started_again() {
    let (program, binary) = start();
    program.ready();
    put(&std::env::current_exe().unwrap(), &binary);
    program.order(Order::Upgrade).unwrap();
    let second = program.ready();
    fs::write(binary.with_extension("new"), "no program").unwrap();
    fs::rename(binary.with_extension("new"), &binary).unwrap();
    signal(second.pid, Signal::KILL);
    let third = program.ready();
    fs::remove_file(&binary).unwrap();
    signal(third.pid, Signal::KILL);
    let fourth = program.ready();
    assert_eq!(get(fourth.address.unwrap(), "/"), fourth.pid.to_string());
}

/// What a process runs.
fn runs(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/exe")).unwrap()
}
