//! What a process owes its system: limits and signals.

mod letters;

pub(crate) use letters::connect;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use selvedge::Handle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
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

/// What a signal asks for beside an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// USR1: log files that were moved away are opened anew.
    ReopenLogs,
    /// HUP: the configuration is read again.
    Reload,
}

/// TERM and QUIT stop gracefully; INT, or a second TERM, stops at once; `obey` is told of those
/// of `orders` that come.
pub(crate) fn obey_signals(handle: Handle, orders: &[Order], obey: impl Fn(Order) + Send + 'static) -> io::Result<()> {
    let mut watched = vec![SIGTERM, SIGQUIT, SIGINT];
    watched.extend(orders.iter().map(|order| match order {
        Order::ReopenLogs => SIGUSR1,
        Order::Reload => SIGHUP,
    }));
    let mut signals = Signals::new(watched)?;
    thread::Builder::new().name("selvedge-signal".to_owned()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGUSR1 => obey(Order::ReopenLogs),
                SIGHUP => obey(Order::Reload),
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
