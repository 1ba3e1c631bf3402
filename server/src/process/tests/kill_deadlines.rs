//! Serving processes that do not end after a stop.

use super::program::{TestProgram, begin_request, end_request, get, is_alive, signal, until};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

const SHORT_DRAIN: &str = "listen \"127.0.0.1:0\"\nlimits { shutdown-timeout \"100ms\"; }";
const LONG_DRAIN: &str = "listen \"127.0.0.1:0\"\nlimits { shutdown-timeout \"1h\"; }";

#[test]
fn a_hanging_process_is_killed_at_its_deadline() {
    let cases = [
        (SHORT_DRAIN, &[Signal::TERM][..]),
        (LONG_DRAIN, &[Signal::TERM, Signal::TERM]),
        (LONG_DRAIN, &[Signal::TERM, Signal::INT]),
        (LONG_DRAIN, &[Signal::INT]),
    ];
    for (configuration, signals) in cases {
        let mut program = TestProgram::new(configuration);
        let hanging = Hanging::new(program.ready().pid);
        signal(program.pid(), signals[0]);
        for second in &signals[1..] {
            // One that the program takes together with an earlier one does not count.
            until("it has ended", || {
                let is_over = !is_alive(program.pid());
                signal(program.pid(), *second);
                is_over.then_some(())
            });
        }
        assert_eq!(program.code(), Some(0), "{signals:?}");
        let prints = format!("selvedge: process {} did not end in time and is killed\n", hanging.0);
        until("it is reported", || program.errors().contains(&prints).then_some(()));
    }
}

#[test]
fn a_hanging_replaced_process_is_killed_at_its_deadline() {
    let program = TestProgram::new(SHORT_DRAIN);
    let first = Hanging::new(program.ready().pid);
    signal(program.pid(), Signal::USR2);
    let second = program.ready();
    until("the first one has ended", || (!is_alive(first.0)).then_some(()));
    assert_eq!(get(second.address.unwrap(), "/"), second.pid.to_string());
    assert!(!program.errors().contains("started again"), "{}", program.errors());
}

#[test]
fn heartbeats_extend_the_kill_deadline() {
    let folder = super::program::folder();
    // The process has a longer timeout, as after a reload, which the supervisor does not see.
    fs::write(folder.join("selvedge.long-shutdown"), "").unwrap();
    let mut program = TestProgram::with(&folder, SHORT_DRAIN, &std::env::current_exe().unwrap());
    let address = program.ready().address.unwrap();
    let connection = begin_request(address);
    signal(program.pid(), Signal::TERM);
    until("no connection is accepted", || TcpStream::connect(address).is_err().then_some(()));
    thread::sleep(Duration::from_secs(7));
    let reply = end_request(connection);
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    assert_eq!(program.code(), Some(0));
    assert_eq!(program.errors(), "");
}

#[test]
fn a_process_with_a_hanging_worker_kills_itself() {
    for to_supervisor in [Signal::TERM, Signal::KILL] {
        let mut program = TestProgram::new(SHORT_DRAIN);
        let ready = program.ready();
        let hanging = Hanging(ready.pid);
        let mut connection = TcpStream::connect(ready.address.unwrap()).unwrap();
        connection.write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        program.prints("hangs");
        signal(program.pid(), to_supervisor);
        until("it has ended", || (!is_alive(hanging.0)).then_some(()));
        assert_eq!(program.code(), (to_supervisor == Signal::TERM).then_some(0));
        let prints = "selvedge: a worker hangs 5.1 s after a stop; the process kills itself\n";
        until("it is reported", || program.errors().contains(prints).then_some(()));
    }
}

/// A stopped process, killed on drop, so that it does not outlive a failed test.
pub(super) struct Hanging(pub(super) i32);

impl Hanging {
    pub(super) fn new(pid: i32) -> Self {
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
