//! Ends the processes that a program has left behind, also those that left its process group by `setsid`.
//!
//! The process that runs programs becomes the parent of their orphans. The environment of each process names the program
//! that it is from, unless the process was started with another environment.

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use std::fs;
use std::process::id;

/// The variable that tells which program a process is from.
pub(super) const PROGRAM_VARIABLE: &str = "SELVEDGE_PROGRAM";

/// Most searches for the processes of one program: a process that the kernel cannot end would otherwise keep this process
/// busy.
const SEARCHES_MAX: u32 = 1000;

/// Whether orphans become children of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Adoption {
    /// The orphans of programs become children of the first process of the system.
    #[default]
    Off,
    /// They become children of this process, which has no other children beside programs.
    On,
}

/// The orphans of programs.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    adoption: Adoption,
    /// Programs that have ended, until none of their processes is left.
    ended: Vec<EndedProgram>,
    started: u64,
}

/// A program that has ended.
#[derive(Debug)]
struct EndedProgram {
    /// The value of [`PROGRAM_VARIABLE`].
    program: String,
    /// How often its processes were searched for.
    searches: u32,
}

/// What of the programs that have ended is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// Processes that were killed, and may have children of their own.
    Processes,
}

impl Orphans {
    /// Makes this process the parent of all orphans of its programs. Without it, they become children of the first process,
    /// and outlive their program if they have left its group.
    pub(super) fn adopt() -> Self {
        let adoption = if set_child_subreaper(Some(getpid())).is_ok() { Adoption::On } else { Adoption::Off };
        Self { adoption, ..Self::default() }
    }

    /// Returns a value of [`PROGRAM_VARIABLE`] for a new program.
    pub(super) fn next_program(&mut self) -> String {
        self.started += 1;
        format!("{}.{}", id(), self.started)
    }

    /// Ends what a program has left behind, from the next [`Self::end_left`] on.
    pub(super) fn program_ended(&mut self, program: String) {
        if self.adoption == Adoption::On {
            self.ended.push(EndedProgram { program, searches: 0 });
        }
    }

    /// Kills processes of ended programs, and collects orphans that have ended. `running` are the programs that run.
    pub(super) fn end_left(&mut self, running: &[Pid]) -> Left {
        if self.adoption == Adoption::Off {
            return Left::Nothing;
        }
        let (mut killed, mut may_leave_more) = (Vec::new(), false);
        for child in children().into_iter().filter(|child| !running.contains(child)) {
            if matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(Some(_))) {
                may_leave_more = true;
                continue;
            }
            match origin_of(child) {
                Origin::Unknown => may_leave_more = true,
                Origin::Program(program) if self.ended.iter().any(|ended| ended.program == program) => {
                    let _ = kill_process(child, Signal::KILL);
                    killed.push(program);
                }
                Origin::Program(_) | Origin::Other => {}
            }
        }
        // A process that ends hands its children over, so another search may find more.
        self.ended.retain_mut(|ended| {
            ended.searches += 1;
            (may_leave_more || killed.contains(&ended.program)) && ended.searches < SEARCHES_MAX
        });
        if self.ended.is_empty() { Left::Nothing } else { Left::Processes }
    }
}

/// Returns the children of this process.
fn children() -> Vec<Pid> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let all: Vec<String> = threads.flatten().map(of_thread).collect();
    all.iter()
        .flat_map(|list| list.split_ascii_whitespace())
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

/// Where a process is from.
enum Origin {
    /// This program.
    Program(String),
    /// It is about to end, or has no environment at all.
    Unknown,
    /// Its environment names no program.
    Other,
}

fn origin_of(process: Pid) -> Origin {
    let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).unwrap_or_default();
    if environment.is_empty() {
        return Origin::Unknown;
    }
    let value_of = |variable: &[u8]| {
        let value = variable.strip_prefix(PROGRAM_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    };
    environment.split(|&b| b == 0).find_map(value_of).map_or(Origin::Other, Origin::Program)
}
