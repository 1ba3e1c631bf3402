//! Supervisor and serving process: startup, control commands, privileges, sandbox, upgrade.
//!
//! ```text
//! startup ─► supervise: owns the sockets ──link──► child: this program again ─► serving
//!   │          restarts, upgrade, notify             sockets, privileges, sandbox, control, signals
//!   └──────► serving: unsupervised, with its own sockets
//! ```

mod active_sandbox;
mod cgi_programs;
mod cgi_runner;
mod cgi_watcher;
mod child;
mod control;
mod executable;
mod file_id;
mod file_opener;
mod kill_deadline;
mod link;
mod listen_address;
mod lock;
mod notify;
mod orphans;
mod owned_file;
mod privileges;
mod programs;
mod restarts;
mod sandbox;
mod serving;
mod single_flight;
mod sockets;
mod startup;
mod supervise;
mod syslog_socket;
mod upgrade;

#[cfg(test)]
mod tests;

pub(crate) use active_sandbox::ActiveSandbox;
pub(crate) use cgi_programs::StartCgiPrograms;
pub(crate) use cgi_runner::{is_cgi_runner, run_cgi_programs};
pub(crate) use control::{ControlCall, ControlCommand, ControlReply, StatusFormat, call_with, stop};
pub(crate) use file_id::FileId;
pub(crate) use file_opener::{is_file_opener, open_files};
pub(crate) use listen_address::ListenAddress;
pub(crate) use privileges::{find_group, find_user};
pub(crate) use programs::{StartedRunner, is_program_runner, run_programs};
pub(crate) use sandbox::{Confinement, Coverage, Sandbox};
pub(crate) use serving::{ControlHandler, ServingProcess, StopMode, all_counts, hand_over_counts};
pub(crate) use startup::{ListenError, RunMode, StartError, StartedPrograms, exit_message, is_supervised, start};
pub(crate) use syslog_socket::connect;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use selvedge::Handle;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::{io, thread};

/// Raises the soft descriptor limit to the hard limit.
pub(crate) fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If the system refuses, the soft limit stays, and the connection limit follows it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// TERM and QUIT stop gracefully; INT, or a second TERM, stops at once; USR1 calls `reopen`.
pub(crate) fn obey_signals(handle: Handle, reopen: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGQUIT, SIGINT, SIGUSR1])?;
    thread::Builder::new().name("selvedge-signal".to_owned()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGUSR1 => reopen(),
                SIGINT => handle.stop_now(),
                _ if stopping => handle.stop_now(),
                _ => {
                    handle.stop();
                    stopping = true;
                }
            }
        }
    })?;
    Ok(())
}
