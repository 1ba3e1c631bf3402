//! Signals and the control socket.

use super::program::{TestProgram, begin_request, configure, end_request, folder, get, get_unix, signal, until};
use crate::process::control::{call, stop};
use crate::process::{ControlCommand, ControlReply, StatusFormat};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

#[test]
fn commands_reach_the_serving_process() {
    let mut program = TestProgram::new("listen \"127.0.0.1:0\"");
    let ready = program.ready();
    let mode = fs::metadata(program.control()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "only the owner can send commands");
    assert_eq!(fs::read_to_string(program.folder.join("pid")).unwrap(), format!("{}\n", program.pid()));
    for format in [StatusFormat::Text, StatusFormat::Json] {
        let status = program.send_command(ControlCommand::Status(format));
        assert_eq!(status, Ok(ControlReply::Done(format!("{format:?} of {}", ready.pid))));
    }
    assert_eq!(
        program.send_command(ControlCommand::ReopenLogs),
        Ok(ControlReply::Done("the log files are reopened".to_owned()))
    );
    program.prints("reopened");
    signal(program.pid(), Signal::USR1);
    program.prints("reopened");
    signal(program.pid(), Signal::HUP);
    program.prints("reloaded");
    assert_eq!(program.send_command(ControlCommand::Stop), Ok(ControlReply::Done("stopping".to_owned())));
    assert_eq!(program.code(), Some(0));
    assert!(!program.control().exists() && !program.folder.join("pid").exists());
    assert_eq!(program.errors(), "");
    program.send_command(ControlCommand::Stop).unwrap_err();
}

#[test]
fn commands_before_readiness_are_delivered_afterwards() {
    let folder = folder();
    let blocked = folder.join("selvedge.blocked");
    fs::write(&blocked, "").unwrap();
    let program = TestProgram::with(&folder, "listen \"127.0.0.1:0\"", &std::env::current_exe().unwrap());
    program.prints("blocked");
    signal(program.pid(), Signal::USR1);
    signal(program.pid(), Signal::HUP);
    fs::remove_file(blocked).unwrap();
    // In any order: `ready`, `reloaded`, `reopened`.
    let mut lines: Vec<_> = (0..3).map(|_| program.prints("re")).collect();
    lines.sort();
    assert!(lines[0].starts_with("ady ") && lines[1..] == ["loaded", "opened"], "{lines:?}");
}

#[test]
fn a_stop_before_readiness_serves_the_connections_that_wait() {
    let folder = folder();
    let blocked = folder.join("selvedge.blocked");
    fs::write(&blocked, "").unwrap();
    let mut program = TestProgram::with(&folder, "listen \"unix:site\"", &std::env::current_exe().unwrap());
    program.prints("blocked");
    let socket = program.folder.join("site");
    let mut waiting = UnixStream::connect(&socket).unwrap();
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    signal(program.pid(), Signal::TERM);
    until("the stop waits", || program.errors().contains("selvedge: stops when process ").then_some(()));
    fs::remove_file(blocked).unwrap();
    let pid = program.ready().pid;
    let mut reply = String::new();
    waiting.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with(&format!("\r\n\r\n{pid}")), "{reply}");
    assert_eq!(program.code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_second_stop_before_readiness_ends_at_once() {
    for second in [Signal::TERM, Signal::INT] {
        let folder = folder();
        fs::write(folder.join("selvedge.blocked"), "").unwrap();
        let mut program = TestProgram::with(&folder, "listen \"unix:site\"", &std::env::current_exe().unwrap());
        program.prints("blocked");
        signal(program.pid(), Signal::TERM);
        until("the stop waits", || program.errors().contains("selvedge: stops when process ").then_some(()));
        signal(program.pid(), second);
        assert_eq!(program.code(), Some(0));
        assert!(!program.errors().contains("did not end in time"), "{}", program.errors());
    }
}

#[test]
fn a_stop_waits_for_readiness_within_a_bound() {
    let folder = folder();
    fs::write(folder.join("selvedge.blocked"), "").unwrap();
    let mut program = TestProgram::with(&folder, "listen \"unix:site\"", &std::env::current_exe().unwrap());
    program.prints("blocked");
    signal(program.pid(), Signal::TERM);
    assert_eq!(program.code(), Some(0));
    assert!(program.errors().contains("has started, after 5 s at the latest"), "{}", program.errors());
}

#[test]
fn reload_changes_listeners_and_restart_preserves_them() {
    let program = TestProgram::new("listen \"127.0.0.1:0\"");
    let ready = program.ready();
    let (address, socket) = (ready.address.unwrap(), program.folder.join("site"));
    configure(&program.folder, "listen \"127.0.0.1:0\"\nlisten \"unix:site\" mode=\"0660\"");
    assert_eq!(
        program.send_command(ControlCommand::Reload),
        Ok(ControlReply::Done("listening on 2 addresses".to_owned()))
    );
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    for reply in [get(address, "/"), get_unix(&socket, "/")] {
        assert_eq!(reply, ready.pid.to_string());
    }
    assert_eq!(get_unix(&socket, "/port"), "0", "a client without an address has port 0");
    assert_ne!(get(address, "/port"), "0");

    signal(ready.pid, Signal::KILL);
    let next = program.ready();
    assert_eq!(next.address, Some(address), "a restart keeps the port that was chosen");
    assert_eq!(get_unix(&socket, "/"), next.pid.to_string());

    // An address that cannot be bound changes nothing.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_address = taken.local_addr().unwrap();
    configure(
        &program.folder,
        &format!("listen \"127.0.0.1:0\"\nlisten \"unix:site\" mode=\"0660\"\nlisten \"{taken_address}\""),
    );
    let refused = format!("cannot listen on {taken_address}: Address already in use (os error 98)");
    assert_eq!(program.send_command(ControlCommand::Reload), Ok(ControlReply::Refused(refused)));
    assert_eq!(get(address, "/"), next.pid.to_string());

    configure(&program.folder, "listen \"unix:site\"");
    program.send_command(ControlCommand::Reload).unwrap();
    until("the port is released", || TcpStream::connect(address).is_err().then_some(()));
    assert_eq!(get_unix(&socket, "/"), next.pid.to_string());
}

#[test]
fn stop_finishes_requests_in_progress() {
    let mut program = TestProgram::new("listen \"127.0.0.1:0\"");
    let address = program.ready().address.unwrap();
    let connection = begin_request(address);
    signal(program.pid(), Signal::TERM);
    until("no connection is accepted", || TcpStream::connect(address).is_err().then_some(()));
    let reply = end_request(connection);
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains("connection: close"), "{reply}");
    assert_eq!(program.code(), Some(0));
}

#[test]
fn second_term_and_int_stop_immediately() {
    for signals in [&[Signal::TERM, Signal::TERM][..], &[Signal::INT]] {
        let mut program = TestProgram::new("listen \"127.0.0.1:0\"");
        let address = program.ready().address.unwrap();
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        for one in signals {
            signal(program.pid(), *one);
            until("no connection is accepted", || TcpStream::connect(address).is_err().then_some(()));
        }
        let start = std::time::Instant::now();
        assert_eq!(program.code(), Some(0));
        assert!(start.elapsed() < Duration::from_secs(9), "it did not wait for the request in progress");
    }
}

#[test]
fn an_unsupervised_process_accepts_commands_and_refuses_upgrades() {
    let mut program = TestProgram::new("listen \"127.0.0.1:0\"\nsupervision { supervised #false; }");
    let ready = program.ready();
    assert_eq!(ready.pid, program.pid());
    assert_eq!(get(ready.address.unwrap(), "/"), ready.pid.to_string());
    let refused = program.send_command(ControlCommand::Upgrade).unwrap();
    assert_eq!(refused, ControlReply::Refused("an upgrade needs a supervisor, and this process has none".to_owned()));
    signal(program.pid(), Signal::USR2);
    signal(program.pid(), Signal::HUP);
    program.prints("reloaded");
    signal(program.pid(), Signal::TERM);
    assert_eq!(program.code(), Some(0));
    assert!(!program.control().exists() && !program.folder.join("pid").exists());
}

#[test]
fn two_programs_cannot_share_a_control_socket() {
    let first = TestProgram::new("listen \"127.0.0.1:0\"");
    let ready = first.ready();
    // In this folder the control socket is taken; the second program removes no file of the first.
    let binary = std::env::current_exe().unwrap();
    let mut second = TestProgram::with(&first.folder, "listen \"127.0.0.1:0\"\nlisten \"unix:site\"", &binary);
    assert_eq!(second.code(), Some(1));
    let control = first.control();
    let expected = format!("another server accepts control commands at {} (stop it", control.display());
    assert!(second.errors().contains(&expected), "{}", second.errors());
    assert!(!first.folder.join("site").exists());
    let status = first.send_command(ControlCommand::Status(StatusFormat::Text));
    assert_eq!(status, Ok(ControlReply::Done(format!("Text of {}", ready.pid))));
}

#[test]
fn concurrent_commands_all_get_a_reply() {
    let program = TestProgram::new("listen \"127.0.0.1:0\"");
    program.ready();
    let callers: Vec<_> = (0..40)
        .map(|_| {
            let control = program.control();
            thread::spawn(move || call(&control, ControlCommand::Reload))
        })
        .collect();
    let replies: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    let done = Ok(ControlReply::Done("listening on 1 addresses".to_owned()));
    assert!(replies.iter().all(|reply| *reply == done), "{replies:?}");
}

#[test]
fn status_is_served_during_a_stop() {
    for (rest, by_signal) in [("", true), ("", false), ("supervision { supervised #false; }", true)] {
        let mut program = TestProgram::new(&format!("listen \"127.0.0.1:0\"\n{rest}"));
        let ready = program.ready();
        let address = ready.address.unwrap();
        let connection = begin_request(address);
        match by_signal {
            true => signal(program.pid(), Signal::TERM),
            false => {
                assert_eq!(program.send_command(ControlCommand::Stop), Ok(ControlReply::Done("stopping".to_owned())))
            }
        }
        until("no connection is accepted", || TcpStream::connect(address).is_err().then_some(()));
        for _ in 0..3 {
            let status = program.send_command(ControlCommand::Status(StatusFormat::Text));
            assert_eq!(status, Ok(ControlReply::Done(format!("Text of {}", ready.pid))));
        }
        assert_eq!(program.send_command(ControlCommand::Stop), Ok(ControlReply::Done("stopping".to_owned())));
        for command in [ControlCommand::Reload, ControlCommand::Upgrade, ControlCommand::ReopenLogs] {
            assert_eq!(program.send_command(command), Ok(ControlReply::Refused("the server is stopping".to_owned())));
        }
        end_request(connection);
        assert_eq!(program.code(), Some(0));
        assert!(!program.control().exists());
    }
}

#[test]
fn stop_waits_until_the_process_has_ended() {
    for rest in ["", "supervision { supervised #false; }"] {
        let mut program = TestProgram::new(&format!("listen \"127.0.0.1:0\"\n{rest}"));
        let address = program.ready().address.unwrap();
        let connection = begin_request(address);
        let control = program.control();
        let caller = thread::spawn(move || stop(&control, Duration::from_secs(60)));
        until("no connection is accepted", || TcpStream::connect(address).is_err().then_some(()));
        let late = stop(&program.control(), Duration::from_millis(1)).unwrap_err();
        assert!(late.ends_with("still stops after 0.001 s"), "{late}");
        end_request(connection);
        assert_eq!(caller.join().unwrap(), Ok(ControlReply::Done("stopped".to_owned())));
        assert!(!program.control().exists() && TcpStream::connect(address).is_err());
        assert_eq!(program.code(), Some(0));
    }
}

#[test]
fn a_pid_file_belongs_to_one_running_server() {
    for rest in ["", "supervision { supervised #false; }"] {
        let rest = format!("listen \"127.0.0.1:0\"\n{rest}");
        let binary = std::env::current_exe().unwrap();
        let (first_folder, second_folder) = (folder(), folder());
        // One pid file for two otherwise unrelated configurations.
        let pid_file = first_folder.join("pid");
        symlink(&pid_file, second_folder.join("pid")).unwrap();
        let mut first = TestProgram::with(&first_folder, &rest, &binary);
        first.ready();
        let mut second = TestProgram::with(&second_folder, &rest, &binary);
        assert_eq!(second.code(), Some(1));
        let prints = format!("another server has the pid file {}", second_folder.join("pid").display());
        until("it reports the reason", || second.errors().contains(&prints).then_some(()));
        assert_eq!(fs::read_to_string(&pid_file).unwrap(), format!("{}\n", first.pid()));
        assert!(!second.control().exists());
        // A pid file without an owner can be taken.
        signal(first.pid(), Signal::KILL);
        first.code();
        let third = TestProgram::with(&second_folder, &rest, &binary);
        third.ready();
        assert_eq!(fs::read_to_string(&pid_file).unwrap(), format!("{}\n", third.pid()));
    }
}

#[test]
fn a_replaced_pid_file_is_not_removed() {
    let mut program = TestProgram::new("listen \"127.0.0.1:0\"");
    program.ready();
    let pid_file = program.folder.join("pid");
    fs::write(program.folder.join("other"), "1\n").unwrap();
    fs::rename(program.folder.join("other"), &pid_file).unwrap();
    signal(program.pid(), Signal::TERM);
    assert_eq!(program.code(), Some(0));
    assert_eq!(fs::read_to_string(&pid_file).unwrap(), "1\n");
}
