//! Supervisor and serving process: startup, control commands, privileges, sandbox, upgrade.
//!
//! ```text
//! startup ─► supervise: owns the sockets ──link──► child: this program again ─► serving
//!   │          restarts, upgrade, notify             sockets, privileges, sandbox, control, signals
//!   └──────► serving: unsupervised, with its own sockets
//! ```

mod active_sandbox;
mod cgi_output;
mod cgi_programs;
mod cgi_runner;
mod cgi_watcher;
mod child;
mod control;
mod cookie_secret;
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
mod readable;
mod recorder_dump;
mod restarts;
mod sandbox;
mod serving;
mod single_flight;
mod sockets;
mod startup;
mod stop;
mod supervise;
mod syslog_socket;
mod upgrade;

#[cfg(test)]
mod tests;

pub(crate) use active_sandbox::ActiveSandbox;
pub(crate) use cgi_programs::StartCgiPrograms;
pub(crate) use cgi_runner::{is_cgi_runner, run_cgi_programs};
pub(crate) use control::{ControlCommand, ControlReply, StatusFormat, call, stop};
pub(crate) use cookie_secret::CookieSecret;
pub(crate) use file_id::FileId;
pub(crate) use file_opener::{is_file_opener, open_files};
pub(crate) use listen_address::ListenAddress;
pub(crate) use privileges::{find_group, find_user};
pub(crate) use programs::{StartedRunner, is_program_runner, run_programs};
pub(crate) use readable::UnreadableFiles;
pub(crate) use sandbox::{Confinement, Coverage, Sandbox};
pub(crate) use serving::{
    ControlHandler, PanicWatch, ServingProcess, StopMode, all_counts, hand_over_counts, hand_over_recorder,
    report_configuration,
};
pub(crate) use startup::{ListenError, RunMode, StartError, StartedPrograms, exit_message, is_supervised, start};
pub(crate) use syslog_socket::connect;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use selvedge::Handle;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::{io, thread};

/// Raises the soft descriptor limit to the hard limit.
pub(crate) fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If the system refuses, the soft limit stays, and the connection limit follows it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// TERM and QUIT stop gracefully; INT, or a second TERM, stops at once; USR1 calls `reopen`. For a process that accepts no
/// commands.
pub(crate) fn obey_signals(
    handle: Handle,
    serving: Arc<ServingProcess>,
    reopen: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGQUIT, SIGINT, SIGUSR1])?;
    thread::Builder::new().name("selvedge-signal".to_owned()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            if signal == SIGUSR1 {
                reopen();
                continue;
            }
            serving.stop_listening(None);
            if stopping || signal == SIGINT {
                handle.stop_now()
            } else {
                handle.stop()
            }
            stopping = true;
        }
    })?;
    Ok(())
}
