//! Supervision with real processes: the test binary is the program, and starts itself.
//!
//! `program` is what a serving process is: it answers every request with its number. The
//! others start it, kill it, and give it orders.

mod program;

mod endings;
mod orders;
mod restarts;
mod systemd;
mod upgrades;
