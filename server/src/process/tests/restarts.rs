//! Serving processes that end unexpectedly.

use super::program::{TIMEOUT, TestProgram, get, signal, until};
use rustix::process::Signal;
use std::fs;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

#[test]
fn clients_of_a_killed_serving_process_wait_and_are_served() {
    let program = TestProgram::new("listen \"127.0.0.1:0\"");
    let first = program.ready();
    let address = first.address.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let done = done.clone();
            thread::spawn(move || {
                let mut responses = 0;
                while !done.load(Ordering::Relaxed) {
                    // `get` panics if a connection is refused; an aborted one does not count.
                    responses += u64::from(!get(address, "/").is_empty());
                }
                responses
            })
        })
        .collect();
    let mut current = first.pid;
    for restart in 1..=3 {
        assert_eq!(get(address, "/"), current.to_string());
        let killed = Instant::now();
        signal(current, Signal::KILL);
        let next = until("another process responds", || get(address, "/").parse().ok().filter(|pid| *pid != current));
        println!("the first response took {:?} after the kill", killed.elapsed());
        assert!(killed.elapsed() < TIMEOUT);
        let ready = program.ready();
        assert_eq!((ready.pid, ready.restarts), (next, restart));
        let note = format!("the serving process {current} was killed by signal 9; started again after ");
        assert!(ready.notes.starts_with(&note), "{ready:?}");
        assert!(program.errors().contains(&format!("selvedge: {note}")), "{}", program.errors());
        current = next;
    }
    done.store(true, Ordering::Relaxed);
    let responses: u64 = clients.into_iter().map(|client| client.join().expect("no client was refused")).sum();
    assert!(responses > 0);
}

#[test]
fn too_many_restarts_end_the_program_with_code_3() {
    let supervision =
        "supervision { restarts-max 2; restarts-within \"1h\"; back-off-min \"1ms\"; back-off-max \"2ms\"; }";
    let mut program = TestProgram::new(&format!("listen \"127.0.0.1:0\"\n{supervision}"));
    let address = program.ready().address.unwrap();
    // From now on it ends before it is ready.
    fs::write(program.folder.join("selvedge.broken"), "").unwrap();
    signal(get(address, "/").parse().unwrap(), Signal::KILL);
    assert_eq!(program.code(), Some(3));
    let errors = program.errors();
    assert!(errors.contains("(restart 1 of 2 within 3600 s)") && errors.contains("(restart 2 of 2"), "{errors}");
    assert!(errors.contains("ended with code 7, after 2 restarts within 3600 s: giving up"), "{errors}");
    assert!(TcpStream::connect(address).is_err(), "the sockets are closed");
    assert!(!program.control().exists() && !program.folder.join("pid").exists());
}

#[test]
fn a_process_that_was_never_ready_is_not_restarted() {
    let folder = super::program::folder();
    fs::write(folder.join("selvedge.broken"), "").unwrap();
    let mut program = TestProgram::with(&folder, "listen \"127.0.0.1:0\"", &std::env::current_exe().unwrap());
    assert_eq!(program.code(), Some(7));
    assert!(!program.errors().contains("restart"), "{}", program.errors());
}

#[test]
fn a_serving_process_ends_with_its_supervisor() {
    let program = TestProgram::new("listen \"127.0.0.1:0\"");
    let ready = program.ready();
    let address = ready.address.unwrap();
    signal(program.pid(), Signal::KILL);
    until("no process listens", || TcpStream::connect(address).is_err().then_some(()));
    let process = format!("/proc/{}/stat", ready.pid);
    until("the serving process has ended", || {
        let stat = fs::read_to_string(&process).unwrap_or_default();
        // A zombie counts as ended: its new parent may reap it late.
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
}
