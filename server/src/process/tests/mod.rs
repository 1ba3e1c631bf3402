//! Supervision with real processes: the test binary is the program, and starts itself.
//!
//! `program` is the serving process: it responds to every request with its process ID. The other tests start it, kill
//! it, and send commands.

mod program;

mod commands;
mod kill_deadlines;
mod recorder;
mod replaced;
mod restarts;
mod systemd;
mod upgrades;

pub(super) use program::write_program;
