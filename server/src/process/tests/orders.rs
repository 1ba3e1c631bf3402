//! Signals and the control socket.

use super::program::{Started, begin_request, configure, end_request, folder, get, get_unix, signal, until};
use crate::process::control::ask;
use crate::process::{Answer, Form, Order};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;

#[test]
fn orders_reach_the_serving_process() {
    let mut program = Started::new("listen \"127.0.0.1:0\"");
    let ready = program.ready();
    let mode = fs::metadata(program.control()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "only the owner gives orders");
    assert_eq!(fs::read_to_string(program.folder.join("pid")).unwrap(), format!("{}\n", program.pid()));
    for form in [Form::Text, Form::Json] {
        let status = program.order(Order::Status(form));
        assert_eq!(status, Ok(Answer::Done(format!("{form:?} of {}", ready.pid))));
    }
    assert_eq!(program.order(Order::Reopen), Ok(Answer::Done("the logs are opened anew".to_owned())));
    program.says("reopened");
    signal(program.pid(), Signal::USR1);
    program.says("reopened");
    signal(program.pid(), Signal::HUP);
    program.says("reloaded");
    assert_eq!(program.order(Order::Stop), Ok(Answer::Done("stopping".to_owned())));
    assert_eq!(program.code(), Some(0));
    assert!(!program.control().exists() && !program.folder.join("pid").exists());
    assert_eq!(program.errors(), "");
    program.order(Order::Stop).unwrap_err();
}

#[test]
fn what_is_ordered_before_a_process_is_ready_it_is_told_then() {
    let folder = folder();
    let held = folder.join("selvedge.held");
    fs::write(&held, "").unwrap();
    let program = Started::with(&folder, "listen \"127.0.0.1:0\"", &std::env::current_exe().unwrap());
    program.says("held");
    signal(program.pid(), Signal::USR1);
    signal(program.pid(), Signal::HUP);
    fs::remove_file(held).unwrap();
    // In any order: `ready`, `reloaded`, `reopened`.
    let mut lines: Vec<_> = (0..3).map(|_| program.says("re")).collect();
    lines.sort();
    assert!(lines[0].starts_with("ady ") && lines[1..] == ["loaded", "opened"], "{lines:?}");
}

#[test]
fn a_reload_listens_elsewhere_and_a_restart_keeps_to_it() {
    let program = Started::new("listen \"127.0.0.1:0\"");
    let ready = program.ready();
    let (address, socket) = (ready.address.unwrap(), program.folder.join("site"));
    configure(&program.folder, "listen \"127.0.0.1:0\"\nlisten \"unix:site\" mode=\"0660\"");
    assert_eq!(program.order(Order::Reload), Ok(Answer::Done("listening at 2 places".to_owned())));
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    for answer in [get(address, "/"), get_unix(&socket, "/")] {
        assert_eq!(answer, ready.pid.to_string());
    }
    assert_eq!(get_unix(&socket, "/port"), "0", "a client without an address has the port that no other has");
    assert_ne!(get(address, "/port"), "0");

    signal(ready.pid, Signal::KILL);
    let next = program.ready();
    assert_eq!(next.address, Some(address), "a free port that was taken stays");
    assert_eq!(get_unix(&socket, "/"), next.pid.to_string());

    // What cannot be had changes nothing.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = taken.local_addr().unwrap();
    configure(
        &program.folder,
        &format!("listen \"127.0.0.1:0\"\nlisten \"unix:site\" mode=\"0660\"\nlisten \"{place}\""),
    );
    let refused = format!("cannot listen on {place}: Address already in use (os error 98)");
    assert_eq!(program.order(Order::Reload), Ok(Answer::Refused(refused)));
    assert_eq!(get(address, "/"), next.pid.to_string());

    configure(&program.folder, "listen \"unix:site\"");
    program.order(Order::Reload).unwrap();
    until("the port is let go", || TcpStream::connect(address).is_err().then_some(()));
    assert_eq!(get_unix(&socket, "/"), next.pid.to_string());
}

#[test]
fn a_stop_lets_what_has_begun_finish() {
    let mut program = Started::new("listen \"127.0.0.1:0\"");
    let address = program.ready().address.unwrap();
    let begun = begin_request(address);
    signal(program.pid(), Signal::TERM);
    until("nobody is let in", || TcpStream::connect(address).is_err().then_some(()));
    let answer = end_request(begun);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close"), "{answer}");
    assert_eq!(program.code(), Some(0));
}

#[test]
fn a_second_term_and_int_end_at_once() {
    for signals in [&[Signal::TERM, Signal::TERM][..], &[Signal::INT]] {
        let mut program = Started::new("listen \"127.0.0.1:0\"");
        let address = program.ready().address.unwrap();
        let mut begun = TcpStream::connect(address).unwrap();
        begun.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        for one in signals {
            signal(program.pid(), *one);
            until("nobody is let in", || TcpStream::connect(address).is_err().then_some(()));
        }
        let began = std::time::Instant::now();
        assert_eq!(program.code(), Some(0));
        assert!(began.elapsed() < std::time::Duration::from_secs(9), "it did not wait for what had begun");
    }
}

#[test]
fn alone_it_takes_orders_and_nobody_replaces_it() {
    let mut program = Started::new("listen \"127.0.0.1:0\"\nsupervision { supervised #false; }");
    let ready = program.ready();
    assert_eq!(ready.pid, program.pid());
    assert_eq!(get(ready.address.unwrap(), "/"), ready.pid.to_string());
    let refused = program.order(Order::Upgrade).unwrap();
    assert_eq!(refused, Answer::Refused("an upgrade needs a supervisor, and there is none".to_owned()));
    signal(program.pid(), Signal::USR2);
    signal(program.pid(), Signal::HUP);
    program.says("reloaded");
    signal(program.pid(), Signal::TERM);
    assert_eq!(program.code(), Some(0));
    assert!(!program.control().exists() && !program.folder.join("pid").exists());
}

#[test]
fn two_programs_do_not_take_orders_at_one_place() {
    let first = Started::new("listen \"127.0.0.1:0\"");
    let ready = first.ready();
    // The same folder, and so the same control socket; it removes nothing that is not its own.
    let binary = std::env::current_exe().unwrap();
    let mut second = Started::with(&first.folder, "listen \"127.0.0.1:0\"\nlisten \"unix:site\"", &binary);
    assert_eq!(second.code(), Some(1));
    let control = first.control();
    let expected = format!("cannot take orders at {}: Address already in use", control.display());
    assert!(second.errors().contains(&expected), "{}", second.errors());
    assert!(!first.folder.join("site").exists());
    let status = first.order(Order::Status(Form::Text));
    assert_eq!(status, Ok(Answer::Done(format!("Text of {}", ready.pid))));
}

#[test]
fn orders_that_come_at_once_are_all_answered() {
    let program = Started::new("listen \"127.0.0.1:0\"");
    program.ready();
    let callers: Vec<_> = (0..40)
        .map(|_| {
            let control = program.control();
            thread::spawn(move || ask(&control, Order::Reload))
        })
        .collect();
    let answers: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    let done = Ok(Answer::Done("listening at 1 places".to_owned()));
    assert!(answers.iter().all(|answer| *answer == done), "{answers:?}");
}

#[test]
fn a_stop_can_be_watched() {
    for (rest, by_signal) in [("", true), ("", false), ("supervision { supervised #false; }", true)] {
        let mut program = Started::new(&format!("listen \"127.0.0.1:0\"\n{rest}"));
        let ready = program.ready();
        let address = ready.address.unwrap();
        let begun = begin_request(address);
        match by_signal {
            true => signal(program.pid(), Signal::TERM),
            false => assert_eq!(program.order(Order::Stop), Ok(Answer::Done("stopping".to_owned()))),
        }
        until("nobody is let in", || TcpStream::connect(address).is_err().then_some(()));
        for _ in 0..3 {
            let status = program.order(Order::Status(Form::Text));
            assert_eq!(status, Ok(Answer::Done(format!("Text of {}", ready.pid))));
        }
        assert_eq!(program.order(Order::Stop), Ok(Answer::Done("stopping".to_owned())));
        for order in [Order::Reload, Order::Upgrade, Order::Reopen] {
            assert_eq!(program.order(order), Ok(Answer::Refused("the server is stopping".to_owned())));
        }
        end_request(begun);
        assert_eq!(program.code(), Some(0));
        assert!(!program.control().exists());
    }
}

#[test]
fn a_pid_file_belongs_to_one_living_server() {
    for rest in ["", "supervision { supervised #false; }"] {
        let rest = format!("listen \"127.0.0.1:0\"\n{rest}");
        let binary = std::env::current_exe().unwrap();
        let (first_folder, second_folder) = (folder(), folder());
        // The same file for two configurations that have nothing else in common.
        let pid_file = first_folder.join("pid");
        symlink(&pid_file, second_folder.join("pid")).unwrap();
        let mut first = Started::with(&first_folder, &rest, &binary);
        first.ready();
        let mut second = Started::with(&second_folder, &rest, &binary);
        assert_eq!(second.code(), Some(1));
        let says = format!("another server has the pid file {}", second_folder.join("pid").display());
        until("it says why", || second.errors().contains(&says).then_some(()));
        assert_eq!(fs::read_to_string(&pid_file).unwrap(), format!("{}\n", first.pid()));
        assert!(!second.control().exists());
        // One that was left behind is nobody's.
        signal(first.pid(), Signal::KILL);
        first.code();
        let third = Started::with(&second_folder, &rest, &binary);
        third.ready();
        assert_eq!(fs::read_to_string(&pid_file).unwrap(), format!("{}\n", third.pid()));
    }
}

#[test]
fn a_pid_file_that_is_another_by_now_stays() {
    let mut program = Started::new("listen \"127.0.0.1:0\"");
    program.ready();
    let pid_file = program.folder.join("pid");
    fs::write(program.folder.join("other"), "1\n").unwrap();
    fs::rename(program.folder.join("other"), &pid_file).unwrap();
    signal(program.pid(), Signal::TERM);
    assert_eq!(program.code(), Some(0));
    assert_eq!(fs::read_to_string(&pid_file).unwrap(), "1\n");
}
