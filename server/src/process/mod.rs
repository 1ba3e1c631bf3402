//! What a process owes its system: limits and signals.

mod letters;

pub(crate) use letters::connect;

use crate::log::Reopener;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use selvedge::Handle;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::{io, thread};

/// Takes as many descriptors as the system allows without asking.
pub(crate) fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Refused, the limit stays where it was, and the connection limit follows it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// TERM and QUIT stop gracefully; INT, or a second TERM, stops at once; USR1 opens the log
/// files anew.
pub(crate) fn obey_signals(handle: Handle, logs: Reopener) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGQUIT, SIGINT, SIGUSR1])?;
    thread::Builder::new().name("selvedge-signal".to_owned()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            if signal == SIGUSR1 {
                logs.reopen();
            } else if stopping || signal == SIGINT {
                handle.stop_now();
            } else {
                handle.stop();
                stopping = true;
            }
        }
    })?;
    Ok(())
}
