//! Runs the programs of routes with `cgi`, outside the process that serves.
//!
//! Before the serving process gives its privileges up, it starts one process for each folder of programs. That process
//! becomes the user of the programs at once, so it never runs one as root, and runs programs of its folder only. It has
//! one thread (`cgi_runner`), which waits for requests, for the ends of programs, and for the ends of their leases. A lease
//! is a socket that the serving process closes when the client has left. The process ends when the serving process does, with
//! all programs. Its parent (`cgi_watcher`) starts it again if a program has ended it.

use super::link::Link;

use crate::config::model::{CgiPrograms, Process};
use crate::site::{ProgramStart, StartProgram};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Set for the process that runs programs; its standard input is the link to the serving process.
pub(super) const RUNNER_VARIABLE: &str = "SELVEDGE_CGI_RUNNER";

/// The first message to the runner: what it may run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Permitted {
    pub(super) folder: PathBuf,
    pub(super) only: Option<String>,
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    pub(super) run_timeout: Duration,
    pub(super) memory_bytes_max: u64,
}

/// The reply to the first message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RunnerStart {
    Ready,
    Failed(String),
}

/// Each further message to the runner. Its descriptors are the standard streams and the lease.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunRequest {
    pub(super) program: String,
    /// Each character is one byte, since values need not be UTF-8.
    pub(super) environment: Vec<(String, String)>,
}

/// Returns what starts the programs of a folder.
pub(crate) trait StartCgiPrograms: fmt::Debug + Send + Sync {
    /// Returns what starts programs as the settings require. Programs that were added by a reload can be started after
    /// the serving process is replaced, which that reload causes.
    fn starter(&self, programs: &CgiPrograms) -> Arc<dyn StartProgram>;
}

/// What starts programs, by the settings of their folder.
#[derive(Debug, Default)]
pub(crate) struct CgiRunners(HashMap<CgiPrograms, Arc<CgiRunner>>);

impl CgiRunners {
    /// Starts a process for each folder of programs, with the privileges of the caller. `None` without folders.
    ///
    /// # Errors
    /// If a process cannot be started, or its programs would run as root.
    pub(super) fn start<'a>(
        programs: impl Iterator<Item = &'a CgiPrograms>,
        process: &Process,
    ) -> Result<Option<Arc<dyn StartCgiPrograms>>, String> {
        let mut runners = HashMap::new();
        for settings in programs {
            if !runners.contains_key(settings) {
                runners.insert(settings.clone(), Arc::new(CgiRunner::start(settings, process)?));
            }
        }
        let is_any = !runners.is_empty();
        Ok(is_any.then(|| Arc::new(Self(runners)) as Arc<dyn StartCgiPrograms>))
    }
}

impl StartCgiPrograms for CgiRunners {
    fn starter(&self, programs: &CgiPrograms) -> Arc<dyn StartProgram> {
        match self.0.get(programs) {
            Some(runner) => runner.clone(),
            None => Arc::new(StartsLater),
        }
    }
}

/// Starts nothing: the folder was added by a reload, which replaces this process.
#[derive(Debug)]
struct StartsLater;

impl StartProgram for StartsLater {
    fn start(&self, _: ProgramStart) -> io::Result<()> {
        Err(io::Error::other("the programs can be run after the next start"))
    }
}

/// The serving process's side of one folder.
#[derive(Debug)]
pub(super) struct CgiRunner {
    link: Link,
}

impl CgiRunner {
    /// The side of a runner at the other end of a link.
    #[cfg(test)]
    pub(super) fn with_link(link: Link) -> Self {
        Self { link }
    }

    fn start(settings: &CgiPrograms, process: &Process) -> Result<Self, String> {
        let folder = settings.folder.display();
        let failed =
            |error: io::Error| format!("no process can be started that runs the programs of {folder}: {error}");
        let (link, end) = Link::pair().map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        // Its programs can read its environment, so it has none of the server's.
        command.env_clear().env(RUNNER_VARIABLE, "1");
        command.arg0("selvedge-cgi").stdin(Stdio::from(end)).process_group(0);
        // It ends with this process, so it is not waited for.
        command.spawn().map_err(failed)?;
        drop(command);
        // A group without a user is that of the server.
        let (user, group) = match &settings.user {
            Some(user) => (Some(user.clone()), None),
            None => (process.user.clone(), process.group.clone()),
        };
        let permitted = Permitted {
            folder: settings.folder.clone(),
            only: settings.program.clone(),
            user,
            group,
            run_timeout: settings.run_timeout,
            memory_bytes_max: settings.memory_bytes_max,
        };
        link.send(&permitted).map_err(failed)?;
        match link.receive().map_err(failed)? {
            Some((RunnerStart::Ready, _)) => Ok(Self { link }),
            Some((RunnerStart::Failed(why), _)) => Err(format!("the programs of {folder} cannot be run: {why}")),
            None => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

impl StartProgram for CgiRunner {
    fn start(&self, start: ProgramStart) -> io::Result<()> {
        let ProgramStart { program, environment, ends } = start;
        let environment = environment.iter().map(|(name, value)| (characters(name), characters(value))).collect();
        let [stdin, stdout, stderr] = &ends.streams;
        let descriptors = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), ends.lease.as_fd()];
        self.link.try_send_with(&RunRequest { program, environment }, &descriptors)
    }
}

/// Returns each byte as a character.
fn characters(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}
