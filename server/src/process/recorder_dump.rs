//! Dumps of the flight recorder, which the supervisor writes: the memory outlives the serving process.

use super::child::ChildProcess;
use crate::log::{print_line, utc_text};
use crate::recorder::write_dump;
use std::fs::File;
use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Writes dumps on threads, so that a restart does not wait for the disk.
#[derive(Debug)]
pub(super) struct RecorderDumps {
    folder: PathBuf,
    threads: Vec<JoinHandle<()>>,
}

impl RecorderDumps {
    /// Writes dumps into a folder.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, threads: Vec::new() }
    }

    /// Dumps the last requests of a process, if it has a recorder.
    pub(super) fn write(&mut self, process: &ChildProcess, why: &str) {
        let memory = process.recorder.as_ref().and_then(|memory| memory.try_clone().ok());
        self.write_memory(memory, process.pid().as_raw_nonzero(), why.to_owned());
    }

    /// Dumps the memory of the process with this number.
    pub(super) fn write_memory(&mut self, memory: Option<File>, pid: NonZeroI32, why: String) {
        let (Some(memory), folder) = (memory, self.folder.clone()) else { return };
        self.threads.retain(|thread| !thread.is_finished());
        let thread = thread::Builder::new().name("selvedge-dump".to_owned()).spawn(move || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            print_line(&match write_dump(&memory, &folder, &format!("{}-{pid}", compact(since))) {
                Ok(path) => format!("selvedge: {why}; its last requests are in {}", path.display()),
                Err(error) => {
                    format!("selvedge: {why}; its last requests cannot be written to {}: {error}", folder.display())
                }
            });
        });
        self.threads.extend(thread);
    }

    /// Dumps the last requests of each process that sends no heartbeats, once.
    pub(super) fn write_unresponsive(
        &mut self,
        processes: &mut [ChildProcess],
        is_alive: impl Fn(&ChildProcess) -> bool,
    ) {
        for process in processes.iter_mut().filter(|process| !process.is_dumped && !is_alive(process)) {
            process.is_dumped = true;
            let why = format!("process {} sends no heartbeat", process.pid().as_raw_nonzero());
            self.write(process, &why);
        }
    }

    /// Waits until all dumps are written.
    pub(super) fn finish(&mut self) {
        for thread in self.threads.drain(..) {
            // A thread that panicked has written why.
            let _ = thread.join();
        }
    }
}

/// Keeps the memory that the process with this number has sent.
pub(super) fn keep(processes: &mut [ChildProcess], number: u64, descriptors: Vec<OwnedFd>) {
    if let Some(process) = processes.iter_mut().find(|process| process.number == number) {
        process.recorder = descriptors.into_iter().next().map(File::from);
    }
}

/// Returns a time in UTC as `20261128T234501.123456Z`.
fn compact(since_1970: Duration) -> String {
    let micros = u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX);
    utc_text(micros).replace(['-', ':'], "")
}
