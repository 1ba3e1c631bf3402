//! systemd: notifications, and inherited sockets.

use super::program::{TestProgram, folder, get, signal};
use crate::process::{ControlCommand, ControlReply};
use rustix::process::Signal;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

/// Receives a notification, without texts for people.
fn receive(systemd: &UnixDatagram) -> String {
    let mut text = [0; 256];
    loop {
        let length = systemd.recv(&mut text).expect("a notification arrives");
        let line = String::from_utf8(text[..length].to_vec()).unwrap();
        if !line.starts_with("STATUS=") {
            return line.lines().next().unwrap_or_default().to_owned();
        }
    }
}

/// Returns the socket for notifications of a program in this folder, and the command that starts it.
fn notify_command(folder: &Path) -> (UnixDatagram, Command) {
    let path = folder.join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(super::program::TIMEOUT)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("NOTIFY_SOCKET", &path).stdin(Stdio::null());
    (systemd, command)
}

#[test]
fn readiness_reloads_heartbeats_and_the_end_are_notified() {
    for rest in ["", "\nsupervision { supervised #false; }"] {
        let folder = folder();
        let (systemd, mut command) = notify_command(&folder);
        let mut program = TestProgram::start(&folder, &format!("listen \"127.0.0.1:0\"{rest}"), &mut command);
        program.ready();
        assert_eq!(receive(&systemd), "READY=1");
        assert!(matches!(program.send_command(ControlCommand::Reload), Ok(ControlReply::Done(_))));
        assert_eq!((receive(&systemd), receive(&systemd)), ("RELOADING=1".to_owned(), "READY=1".to_owned()));
        program.send_command(ControlCommand::Stop).unwrap();
        assert_eq!(receive(&systemd), "STOPPING=1");
        assert_eq!(program.code(), Some(0));
    }
}

#[test]
fn watchdog_heartbeats_need_a_live_serving_process() {
    for rest in ["", "\nsupervision { supervised #false; }"] {
        let folder = folder();
        let (systemd, mut command) = notify_command(&folder);
        command.env("WATCHDOG_USEC", "200000");
        let program = TestProgram::start(&folder, &format!("listen \"127.0.0.1:0\"{rest}"), &mut command);
        let ready = program.ready();
        let mut notified = Vec::new();
        while notified.iter().filter(|line| *line == "WATCHDOG=1").count() < 3 {
            notified.push(receive(&systemd));
        }
        assert!(notified.iter().any(|line| line == "READY=1"), "{notified:?}");
        if rest.is_empty() {
            // The supervisor sends no heartbeat for a stopped serving process.
            signal(ready.pid, Signal::STOP);
            systemd.set_read_timeout(Some(std::time::Duration::from_millis(400))).unwrap();
            let mut text = [0; 256];
            let is_silent = (0..100).any(|_| systemd.recv(&mut text).is_err());
            assert!(is_silent, "no heartbeat for a stopped process");
            signal(ready.pid, Signal::CONT);
        }
    }
}

#[test]
fn inherited_sockets_are_served() {
    for (rest, listen) in [("", "fd:web"), ("", "fd:3"), ("supervision { supervised #false; }", "fd:web")] {
        let opened = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = opened.local_addr().unwrap();
        let script = "export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web; exec \"$@\" 3<&0 < /dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(std::env::current_exe().unwrap());
        command.stdin(Stdio::from(OwnedFd::from(opened)));
        let mut program = TestProgram::start(&folder(), &format!("listen \"{listen}\"\n{rest}"), &mut command);
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
        program.send_command(ControlCommand::Stop).unwrap();
        assert_eq!(program.code(), Some(0));
    }
}
