//! The process that keeps the one that runs the programs of a folder running.
//!
//! Programs have the user of the process that starts them, so they can end it, as can the system when memory runs out. This
//! process keeps the privileges of the server, and starts it again. They can stop it, too, as SIGSTOP does, so this process
//! continues it: requests would wait for it otherwise. It is the parent of nothing else, and receives one
//! message: what may be run.

use super::cgi_programs::{Permitted, RUNNER_VARIABLE, RunnerStart};
use super::child::describe_exit;
use super::link::Link;
use crate::log;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

/// The value of [`RUNNER_VARIABLE`] in the process that runs programs.
pub(super) const RUNS_PROGRAMS: &str = "programs";
/// Wait before a start that follows another one, and after a stop: a program may end or stop its parent each time.
const RESTART_WAIT: Duration = Duration::from_millis(100);

/// Keeps a runner running until the serving process ends.
pub(super) fn watch() -> ExitCode {
    let _ = rustix::thread::set_name(c"selvedge-cgi-w");
    let Ok(link) = Link::of_standard_input() else { return ExitCode::FAILURE };
    let Ok(Some((permitted, _))) = link.receive::<Permitted>() else { return ExitCode::FAILURE };
    let folder = permitted.folder.display();
    let (mut child, reply) = match start_runner(&link, &permitted) {
        Ok(started) => started,
        Err(error) => {
            let _ = link.send(&RunnerStart::Failed(error.to_string()));
            return ExitCode::FAILURE;
        }
    };
    if link.send(&reply).is_err() || matches!(reply, RunnerStart::Failed(_)) {
        return ExitCode::FAILURE;
    }
    loop {
        let status = wait_for_end(&mut child, &permitted);
        if status.as_ref().is_ok_and(|status| status.success()) {
            return ExitCode::SUCCESS;
        }
        let why = describe_exit(&status);
        log::print_line(&format!(
            "selvedge: the process that starts the programs of {folder} {why}; it is started again"
        ));
        child = loop {
            std::thread::sleep(RESTART_WAIT);
            match start_runner(&link, &permitted) {
                Ok((child, RunnerStart::Ready)) => break child,
                Ok((mut failed, RunnerStart::Failed(why))) => {
                    let _ = failed.wait();
                    log::print_line(&format!("selvedge: the programs of {folder} cannot be run: {why}"));
                    return ExitCode::FAILURE;
                }
                // It may have been killed again, or memory has run out.
                Err(_) => {}
            }
        };
    }
}

/// Waits for the end of a runner, and continues it when a program has stopped it.
fn wait_for_end(child: &mut Child, permitted: &Permitted) -> io::Result<ExitStatus> {
    let pid = Pid::from_child(child);
    // An end stays to be collected below.
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    while let Ok(Some(state)) = retry_on_intr(|| waitid(WaitId::Pid(pid), options)) {
        if !state.stopped() {
            break;
        }
        let _ = kill_process(pid, Signal::CONT);
        let folder = permitted.folder.display();
        log::print_line(&format!(
            "selvedge: the process that starts the programs of {folder} was stopped; it is continued"
        ));
        std::thread::sleep(RESTART_WAIT);
    }
    child.wait()
}

/// Starts a runner, which receives requests from the link.
fn start_runner(link: &Link, permitted: &Permitted) -> io::Result<(Child, RunnerStart)> {
    let (start, end) = Link::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command.env_clear().env(RUNNER_VARIABLE, RUNS_PROGRAMS);
    command.arg0("selvedge-cgi").stdin(Stdio::from(end)).process_group(0);
    let mut child = command.spawn()?;
    drop(command);
    let reply = start.send_with(permitted, &[link.as_fd()]).and_then(|()| start.receive());
    match reply {
        Ok(Some((reply, _))) => Ok((child, reply)),
        Ok(None) | Err(_) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(reply.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()))
        }
    }
}
