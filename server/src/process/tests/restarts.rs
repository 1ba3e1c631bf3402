//! Serving processes that end without being asked.

use super::program::{PATIENCE, Started, get, signal, until};
use rustix::process::Signal;
use std::fs;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

#[test]
fn clients_of_a_killed_serving_process_wait_and_are_served() {
    let program = Started::new("listen \"127.0.0.1:0\"");
    let first = program.ready();
    let address = first.address.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let over = over.clone();
            thread::spawn(move || {
                let mut answered = 0;
                while !over.load(Ordering::Relaxed) {
                    // `get` panics where a connection is refused; one that was cut counts for nothing.
                    answered += u64::from(!get(address, "/").is_empty());
                }
                answered
            })
        })
        .collect();
    let mut current = first.pid;
    for restart in 1..=3 {
        assert_eq!(get(address, "/"), current.to_string());
        let killed = Instant::now();
        signal(current, Signal::KILL);
        let next = until("another one answers", || get(address, "/").parse().ok().filter(|pid| *pid != current));
        println!("the first answer came {:?} after the kill", killed.elapsed());
        assert!(killed.elapsed() < PATIENCE);
        let ready = program.ready();
        assert_eq!((ready.pid, ready.restarts), (next, restart));
        let note = format!("the serving process {current} was killed by signal 9; started again after ");
        assert!(ready.notes.starts_with(&note), "{ready:?}");
        assert!(program.errors().contains(&format!("selvedge: {note}")), "{}", program.errors());
        current = next;
    }
    over.store(true, Ordering::Relaxed);
    let answered: u64 = clients.into_iter().map(|client| client.join().expect("no client was refused")).sum();
    assert!(answered > 0);
}

#[test]
fn a_loop_of_ends_ends_with_its_own_code() {
    let supervision =
        "supervision { restarts-max 2; restarts-within \"1h\"; back-off-min \"1ms\"; back-off-max \"2ms\"; }";
    let mut program = Started::new(&format!("listen \"127.0.0.1:0\"\n{supervision}"));
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
fn one_that_never_was_ready_is_not_started_again() {
    let folder = super::program::folder();
    fs::write(folder.join("selvedge.broken"), "").unwrap();
    let mut program = Started::with(&folder, "listen \"127.0.0.1:0\"", &std::env::current_exe().unwrap());
    assert_eq!(program.code(), Some(7));
    assert!(!program.errors().contains("restart"), "{}", program.errors());
}

#[test]
fn a_serving_process_ends_with_its_supervisor() {
    let program = Started::new("listen \"127.0.0.1:0\"");
    let ready = program.ready();
    let address = ready.address.unwrap();
    signal(program.pid(), Signal::KILL);
    until("nobody listens any more", || TcpStream::connect(address).is_err().then_some(()));
    let process = format!("/proc/{}/stat", ready.pid);
    until("the serving process is gone", || {
        let stat = fs::read_to_string(&process).unwrap_or_default();
        // Whoever collects it in place of its parent may take its time.
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
}
