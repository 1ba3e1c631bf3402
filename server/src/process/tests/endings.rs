//! Serving processes that were told to end and do not.

use super::program::{Started, begin_request, end_request, get, is_alive, signal, until};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

const SHORT_DRAIN: &str = "listen \"127.0.0.1:0\"\nlimits { drain-time \"100ms\"; }";
const LONG_DRAIN: &str = "listen \"127.0.0.1:0\"\nlimits { drain-time \"1h\"; }";

#[test]
fn one_that_hangs_is_killed_when_its_time_is_over() {
    let cases = [
        (SHORT_DRAIN, &[Signal::TERM][..]),
        (LONG_DRAIN, &[Signal::TERM, Signal::TERM]),
        (LONG_DRAIN, &[Signal::TERM, Signal::INT]),
        (LONG_DRAIN, &[Signal::INT]),
    ];
    for (configuration, signals) in cases {
        let mut program = Started::new(configuration);
        let hanging = Hanging::new(program.ready().pid);
        for one in signals {
            signal(program.pid(), *one);
            // Signals that wait at the same time are one.
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(program.code(), Some(0), "{signals:?}");
        let says = format!("selvedge: process {} was told to end and has not: it is killed\n", hanging.0);
        until("it is said", || program.errors().contains(&says).then_some(()));
    }
}

#[test]
fn one_whose_place_was_taken_is_killed_when_its_time_is_over() {
    let program = Started::new(SHORT_DRAIN);
    let first = Hanging::new(program.ready().pid);
    signal(program.pid(), Signal::USR2);
    let second = program.ready();
    until("the first one is gone", || (!is_alive(first.0)).then_some(()));
    assert_eq!(get(second.address.unwrap(), "/"), second.pid.to_string());
    assert!(!program.errors().contains("started again"), "{}", program.errors());
}

#[test]
fn one_that_says_that_it_is_alive_may_take_longer_than_the_supervisor_knew() {
    let folder = super::program::folder();
    // As after a reload, which the supervisor does not read.
    fs::write(folder.join("selvedge.patient"), "").unwrap();
    let mut program = Started::with(&folder, SHORT_DRAIN, &std::env::current_exe().unwrap());
    let address = program.ready().address.unwrap();
    let begun = begin_request(address);
    signal(program.pid(), Signal::TERM);
    until("nobody is let in", || TcpStream::connect(address).is_err().then_some(()));
    thread::sleep(Duration::from_secs(7));
    let answer = end_request(begun);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(program.code(), Some(0));
    assert_eq!(program.errors(), "");
}

#[test]
fn one_whose_worker_hangs_ends_itself_also_without_its_supervisor() {
    for to_supervisor in [Signal::TERM, Signal::KILL] {
        let mut program = Started::new(SHORT_DRAIN);
        let ready = program.ready();
        let hanging = Hanging(ready.pid);
        let mut asking = TcpStream::connect(ready.address.unwrap()).unwrap();
        asking.write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        program.says("hangs");
        signal(program.pid(), to_supervisor);
        until("it is gone", || (!is_alive(hanging.0)).then_some(()));
        assert_eq!(program.code(), (to_supervisor == Signal::TERM).then_some(0));
        let says = "selvedge: a worker hangs, 5.1 s after a stop: the process ends itself\n";
        until("it is said", || program.errors().contains(says).then_some(()));
    }
}

/// A process that does nothing any more. It would stay when a test fails, so it ends with the
/// value.
struct Hanging(i32);

impl Hanging {
    fn new(pid: i32) -> Self {
        signal(pid, Signal::STOP);
        Self(pid)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        if is_alive(self.0) {
            signal(self.0, Signal::KILL);
        }
    }
}
