//! What the serving process is told of a program whose output has ended while the program goes on.

use crate::site::ProgramEnd;
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, recv};
use rustix::process::Pid;
use std::fs;
use std::os::fd::BorrowedFd;

/// The flag of a process that is about to end, in `/proc/PID/stat` (`PF_EXITING` of Linux).
const EXITING: u64 = 0x4;

/// The output of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ProgramOutput {
    /// It may follow.
    #[default]
    Open,
    /// The serving process has received its end.
    Ended,
    /// The serving process knows that the program goes on without it.
    Reported,
}

impl ProgramOutput {
    /// Receives what the serving process tells of the output of a program that has not ended. Returns what is to be reported.
    pub(super) fn update(&mut self, lease: BorrowedFd<'_>, program: Pid) -> Option<ProgramEnd> {
        if *self == Self::Open && has_message(lease) {
            *self = Self::Ended;
        }
        // A program that is about to end has closed its output, too, and its end is reported soon.
        if *self != Self::Ended || is_exiting(program) {
            return None;
        }
        *self = Self::Reported;
        Some(ProgramEnd::OutputOnly)
    }
}

/// Receives a message that has arrived. Returns whether one has.
fn has_message(lease: BorrowedFd<'_>) -> bool {
    let received = retry_on_intr(|| recv(lease, &mut [0; 8], RecvFlags::DONTWAIT));
    matches!(received, Ok((1.., _)))
}

/// Whether a process is about to end. One of which nothing is known is taken for one that is.
fn is_exiting(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    flags_of(&stat).is_none_or(|flags| flags & EXITING != 0)
}

/// Returns the flags in the text of `/proc/PID/stat`.
fn flags_of(stat: &str) -> Option<u64> {
    // The name of the process may have spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_follow_the_name() {
        let stat = "71 (a) b (c) S 1 71 71 0 -1 4194304 113 0";
        assert_eq!(flags_of(stat), Some(4_194_304));
        assert_eq!(flags_of("71 (a"), None);
        assert_eq!(flags_of(""), None);
    }

    #[test]
    fn a_process_that_works_is_not_exiting() {
        assert!(!is_exiting(rustix::process::getpid()));
    }
}
