//! As a service of systemd: what it is told, and sockets that it has opened.

use super::program::{Started, folder, get, signal};
use crate::process::{Answer, Order};
use rustix::process::Signal;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is told, but for what is meant for people.
fn heard(systemd: &UnixDatagram) -> String {
    let mut text = [0; 256];
    loop {
        let length = systemd.recv(&mut text).expect("something is told");
        let line = String::from_utf8(text[..length].to_vec()).unwrap();
        if !line.starts_with("STATUS=") {
            return line.lines().next().unwrap_or_default().to_owned();
        }
    }
}

/// Who is told of a program with this folder, and what begins it.
fn told_of_by(folder: &Path) -> (UnixDatagram, Command) {
    let path = folder.join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(super::program::PATIENCE)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("NOTIFY_SOCKET", &path).stdin(Stdio::null());
    (systemd, command)
}

#[test]
fn readiness_reloads_life_and_the_end_are_told() {
    for rest in ["", "\nsupervision { supervised #false; }"] {
        let folder = folder();
        let (systemd, mut command) = told_of_by(&folder);
        let mut program = Started::start(&folder, &format!("listen \"127.0.0.1:0\"{rest}"), &mut command);
        program.ready();
        assert_eq!(heard(&systemd), "READY=1");
        assert!(matches!(program.order(Order::Reload), Ok(Answer::Done(_))));
        assert_eq!((heard(&systemd), heard(&systemd)), ("RELOADING=1".to_owned(), "READY=1".to_owned()));
        program.order(Order::Stop).unwrap();
        assert_eq!(heard(&systemd), "STOPPING=1");
        assert_eq!(program.code(), Some(0));
    }
}

#[test]
fn the_watchdog_is_served_while_the_serving_process_lives() {
    for rest in ["", "\nsupervision { supervised #false; }"] {
        let folder = folder();
        let (systemd, mut command) = told_of_by(&folder);
        command.env("WATCHDOG_USEC", "200000");
        let program = Started::start(&folder, &format!("listen \"127.0.0.1:0\"{rest}"), &mut command);
        let ready = program.ready();
        let mut told = Vec::new();
        while told.iter().filter(|line| *line == "WATCHDOG=1").count() < 3 {
            told.push(heard(&systemd));
        }
        assert!(told.iter().any(|line| line == "READY=1"), "{told:?}");
        if rest.is_empty() {
            // A supervisor does not vouch for a serving process that has stopped.
            signal(ready.pid, Signal::STOP);
            systemd.set_read_timeout(Some(std::time::Duration::from_millis(400))).unwrap();
            let mut text = [0; 256];
            let is_silent = (0..100).any(|_| systemd.recv(&mut text).is_err());
            assert!(is_silent, "nobody is vouched for who does not move");
            signal(ready.pid, Signal::CONT);
        }
    }
}

#[test]
fn sockets_that_were_opened_in_advance_are_served_at() {
    for (rest, listen) in [("", "fd:web"), ("", "fd:3"), ("supervision { supervised #false; }", "fd:web")] {
        let opened = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = opened.local_addr().unwrap();
        let script = "export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web; exec \"$@\" 3<&0 < /dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(std::env::current_exe().unwrap());
        command.stdin(Stdio::from(OwnedFd::from(opened)));
        let mut program = Started::start(&folder(), &format!("listen \"{listen}\"\n{rest}"), &mut command);
        let first = program.ready();
        assert_eq!(first.address, Some(address));
        for _ in 0..8 {
            assert_eq!(get(address, "/"), first.pid.to_string());
        }
        if rest.is_empty() {
            signal(first.pid, Signal::KILL);
            let second = program.ready();
            assert_eq!(get(address, "/"), second.pid.to_string());
        }
        program.order(Order::Stop).unwrap();
        assert_eq!(program.code(), Some(0));
    }
}
