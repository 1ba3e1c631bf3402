//! Replaced processes that serve on what outlives a replacement.

use super::kill_deadlines::Hanging;
use super::program::{Echo, Ready, TestProgram, get, is_alive, signal, until};
use rustix::process::Signal;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

/// The timeout is short, so that a process is killed soon after it.
const CONFIGURATION: &str = "listen \"127.0.0.1:0\"\nlimits { shutdown-timeout \"100ms\"; }";

/// Replaces the process that serves.
fn replace(program: &TestProgram, address: SocketAddr) -> Ready {
    signal(program.pid(), Signal::USR2);
    let next = program.ready();
    until("the new process responds", || (get(address, "/") == next.pid.to_string()).then_some(()));
    next
}

#[test]
fn a_replaced_process_ends_with_its_last_response() {
    let program = TestProgram::new(CONFIGURATION);
    let first = program.ready();
    let address = first.address.unwrap();
    let mut echo = Echo::begin(address, first.pid);
    let second = Hanging::new(replace(&program, address).pid);
    signal(program.pid(), Signal::USR2);
    program.ready();
    // It was replaced later, so the time of the first one has passed, too.
    until("the second one is killed", || (!is_alive(second.0)).then_some(()));
    echo.exchange("the process lives");
    echo.end();
    until("the first one has ended", || (!is_alive(first.pid)).then_some(()));
    assert_eq!(program.errors().matches("is killed").count(), 1, "{}", program.errors());
}

#[test]
fn a_stop_ends_replaced_processes() {
    for to_supervisor in [Signal::TERM, Signal::INT, Signal::KILL] {
        let mut program = TestProgram::new(CONFIGURATION);
        let first = program.ready();
        let address = first.address.unwrap();
        let mut echo = Echo::begin(address, first.pid);
        replace(&program, address);
        echo.exchange("the process lives");
        signal(program.pid(), to_supervisor);
        echo.wait_closed();
        until("the process has ended", || (!is_alive(first.pid)).then_some(()));
        assert_eq!(program.code(), (to_supervisor != Signal::KILL).then_some(0));
        assert!(!program.errors().contains("is killed"), "{}", program.errors());
    }
}

#[test]
fn the_oldest_of_five_replaced_processes_is_stopped() {
    let program = TestProgram::new(CONFIGURATION);
    let first = program.ready();
    let address = first.address.unwrap();
    let mut echoes = vec![Echo::begin(address, first.pid)];
    for _ in 0..4 {
        let next = replace(&program, address);
        echoes.push(Echo::begin(address, next.pid));
    }
    let stopped = format!("selvedge: the replaced process {} is stopped with its connections", first.pid);
    echoes.iter_mut().for_each(|echo| echo.exchange("four remain"));
    assert!(!program.errors().contains(&stopped), "{}", program.errors());
    replace(&program, address);
    echoes.remove(0).wait_closed();
    until("the oldest one has ended", || (!is_alive(first.pid)).then_some(()));
    echoes.iter_mut().for_each(|echo| echo.exchange("four remain"));
    until("it is reported", || program.errors().contains(&stopped).then_some(()));
    assert_eq!(program.errors().matches("is stopped").count(), 1, "{}", program.errors());
}

#[test]
fn a_replaced_process_with_a_hanging_worker_kills_itself() {
    let program = TestProgram::new(CONFIGURATION);
    let first = program.ready();
    let mut connection = TcpStream::connect(first.address.unwrap()).unwrap();
    connection.write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    program.prints("hangs");
    signal(program.pid(), Signal::USR2);
    program.ready();
    until("it has ended", || (!is_alive(first.pid)).then_some(()));
    let prints = "selvedge: a worker hangs 5.1 s after a stop; the process kills itself\n";
    until("it is reported", || program.errors().contains(prints).then_some(()));
}
