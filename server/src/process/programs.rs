//! Runs the programs of the configuration in a process of its own.
//!
//! The serving process has no privileges and may run nothing. Before it gives its privileges up, it starts a second
//! process, which can run these programs with any arguments, each as its user, and nothing else. That process ends when the
//! serving process does.

use super::link::Link;
use super::privileges::find_user;
use crate::certificates::RunProgram;
use crate::config::model::{Process, Program};
use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use selvedge::client::hide_inherited_descriptors;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::env;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Set for the process that runs programs; its standard input is the link to the serving process.
const RUNNER_VARIABLE: &str = "SELVEDGE_PROGRAM_RUNNER";
/// Most programs that run at once. Further ones are refused.
const RUNNING_MAX: usize = 32;
/// How much of what a program writes to its standard error becomes part of the reason.
const REASON_BYTES_MAX: u64 = 1024;
/// How often it is checked whether a program has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The first message to the runner: what it may run.
#[derive(Debug, Serialize, Deserialize)]
struct Permitted(Vec<PermittedProgram>);

#[derive(Debug, Serialize, Deserialize)]
struct PermittedProgram {
    path: std::path::PathBuf,
    user: Option<String>,
    timeout: Duration,
}

/// Each further message to the runner.
#[derive(Debug, Serialize, Deserialize)]
struct RunRequest {
    number: u64,
    program: usize,
    arguments: Vec<String>,
}

/// A message of the runner.
#[derive(Debug, Serialize, Deserialize)]
struct RunResult {
    number: u64,
    result: Result<(), String>,
}

/// The serving process's side.
pub(crate) struct ProgramRunner {
    link: Link,
    programs: Vec<Program>,
    calls: Arc<Mutex<Calls>>,
}

/// The calls that wait for a result.
#[derive(Default)]
struct Calls {
    last: u64,
    /// `None` after the runner has ended.
    waiting: Option<HashMap<u64, Sender<Result<(), String>>>>,
}

fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProgramRunner {
    /// Starts the runner with the privileges of the caller; `None` if no program is to be run.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(programs: &[Program], process: &Process) -> Result<Option<StartedRunner>, String> {
        if programs.is_empty() {
            return Ok(None);
        }
        let failed = |error: io::Error| format!("no process can be started that runs programs: {error}");
        let (link, end) = Link::pair().map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("selvedge-programs").env(RUNNER_VARIABLE, "1").stdin(Stdio::from(end)).process_group(0);
        let child = command.spawn().map_err(failed)?;
        drop(command);
        let permitted = programs.iter().map(|program| PermittedProgram {
            path: program.path.clone(),
            user: program.user.clone().or_else(|| process.user.clone()),
            timeout: program.timeout,
        });
        link.send(&Permitted(permitted.collect())).map_err(failed)?;
        Ok(Some(StartedRunner { link, child, programs: programs.to_vec() }))
    }
}

/// A runner that was started. Its messages are received once threads may start.
#[derive(Debug)]
pub(crate) struct StartedRunner {
    link: Link,
    child: Child,
    programs: Vec<Program>,
}

impl StartedRunner {
    /// Begins to receive results.
    pub(crate) fn connect(self) -> io::Result<ProgramRunner> {
        let Self { link, mut child, programs } = self;
        let calls = Arc::new(Mutex::new(Calls { last: 0, waiting: Some(HashMap::new()) }));
        let (receiver, shared) = (link.try_clone()?, calls.clone());
        thread::Builder::new().name("selvedge-programs".to_owned()).spawn(move || {
            while let Ok(Some((RunResult { number, result }, _))) = receiver.receive() {
                let caller = lock(&shared).waiting.as_mut().and_then(|waiting| waiting.remove(&number));
                // The caller waits as long as the program may run.
                caller.map(|caller| caller.send(result));
            }
            // Dropping the senders ends the calls.
            lock(&shared).waiting = None;
            let _ = child.wait();
        })?;
        Ok(ProgramRunner { link, programs, calls })
    }
}

impl RunProgram for ProgramRunner {
    fn run(&self, program: &Path, arguments: &[String]) -> Result<(), String> {
        let named = program.display();
        let index = self.programs.iter().position(|known| known.path == program);
        let index = index.ok_or_else(|| format!("{named} can be run after the next start"))?;
        let ended = || format!("{named} cannot be run: the process that runs programs has ended");
        let (sender, receiver) = channel();
        let number = {
            let mut calls = lock(&self.calls);
            calls.last += 1;
            let number = calls.last;
            calls.waiting.as_mut().ok_or_else(ended)?.insert(number, sender);
            number
        };
        let request = RunRequest { number, program: index, arguments: arguments.to_vec() };
        self.link.send(&request).map_err(|error| format!("{named} cannot be run: {error}"))?;
        receiver.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// Whether this process runs programs.
pub(crate) fn is_program_runner() -> bool {
    env::var_os(RUNNER_VARIABLE).is_some()
}

/// Runs programs until the serving process ends.
pub(crate) fn run_programs() -> ExitCode {
    let _ = rustix::thread::set_name(c"selvedge-progs");
    let Ok(link) = Link::of_standard_input() else { return ExitCode::FAILURE };
    let Ok(Some((Permitted(programs), _))) = link.receive() else { return ExitCode::FAILURE };
    if hide_inherited_descriptors().is_err() {
        return ExitCode::FAILURE;
    }
    let (programs, link) = (Arc::new(programs), Arc::new(link));
    let mut running: Vec<thread::JoinHandle<()>> = Vec::new();
    while let Ok(Some((RunRequest { number, program, arguments }, _))) = link.receive() {
        running.retain(|thread| !thread.is_finished());
        let (programs, replies) = (programs.clone(), link.clone());
        let run = move || {
            let result = match programs.get(program) {
                Some(program) => program.run(&arguments),
                None => Err("no such program".to_owned()),
            };
            // Without a serving process, no process needs the result.
            let _ = replies.send(&RunResult { number, result });
        };
        let started = match running.len() < RUNNING_MAX {
            true => thread::Builder::new().spawn(run).ok(),
            false => None,
        };
        match started {
            Some(thread) => running.push(thread),
            None => drop(link.send(&RunResult { number, result: Err("too many programs run".to_owned()) })),
        }
    }
    // Each ends in time.
    running.into_iter().for_each(|thread| drop(thread.join()));
    ExitCode::SUCCESS
}

impl PermittedProgram {
    fn run(&self, arguments: &[String]) -> Result<(), String> {
        let named = self.path.display();
        let mut command = Command::new(&self.path);
        command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some(path) = env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.current_dir("/").process_group(0);
        if let Some(name) = &self.user {
            let user = find_user(name)?;
            if user.uid.as_raw() != geteuid().as_raw() {
                // The groups of this process are given up, too.
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            }
        }
        let mut child = command.spawn().map_err(|error| format!("{named} cannot be run: {error}"))?;
        let output = child.stderr.take().map(OwnedFd::from);
        let reader = thread::spawn(move || read_reason(output));
        let status = self.wait(&mut child);
        let reason = reader.join().unwrap_or_default();
        match status {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(format!("{named} ended with {status}{reason}")),
            Ok(None) => Err(format!("{named} did not end within {} s{reason}", self.timeout.as_secs())),
            Err(error) => Err(format!("{named}: {error}")),
        }
    }

    /// Waits for a program, and kills it when its time is over.
    fn wait(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(status) = child.try_wait()? {
                // What it has started ends with it, which also ends its output.
                kill_group(child);
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                kill_group(child);
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            thread::sleep(CHECK_INTERVAL);
        }
    }
}

fn kill_group(child: &Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It fails if no process is left.
    group.map(|group| kill_process_group(group, Signal::KILL));
}

/// Reads the first line that a program writes to its standard error, and the rest for nothing.
fn read_reason(output: Option<OwnedFd>) -> String {
    let Some(output) = output else { return String::new() };
    let mut output = std::fs::File::from(output);
    let mut bytes = Vec::new();
    let _ = output.by_ref().take(REASON_BYTES_MAX).read_to_end(&mut bytes);
    // A pipe that is full would stop the program.
    let _ = io::copy(&mut output, &mut io::sink());
    let text = String::from_utf8_lossy(&bytes);
    match text.trim().lines().next() {
        Some(line) if !line.is_empty() => format!(": {line}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn run(script: &str, timeout: Duration) -> Result<(), String> {
        let program = PermittedProgram { path: PathBuf::from("/bin/sh"), user: None, timeout };
        program.run(&["-c".to_owned(), script.to_owned(), "x y".to_owned()])
    }

    #[test]
    fn the_result_is_the_exit_code_and_the_reason_the_first_line() {
        const LONG: Duration = Duration::from_secs(60);
        assert_eq!(run("test \"$0\" = 'x y' && test -z \"$HOME\"", LONG), Ok(()));
        assert_eq!(
            run("echo no >&2; echo more >&2; exit 3", LONG),
            Err("/bin/sh ended with exit status: 3: no".to_owned())
        );
        // A program that writes much, or leaves another one behind, ends nevertheless.
        assert_eq!(run("yes 0123456789 | head -c 1000000 >&2; sleep 100 & exit 0", LONG), Ok(()));
    }

    #[test]
    fn a_program_is_killed_when_its_time_is_over() {
        let result = run("sleep 100; echo done", Duration::from_millis(1));
        assert_eq!(result, Err("/bin/sh did not end within 0 s".to_owned()));
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let program =
            PermittedProgram { path: PathBuf::from("/nowhere/program"), user: None, timeout: Duration::from_secs(1) };
        assert!(program.run(&[]).unwrap_err().starts_with("/nowhere/program cannot be run: "));
    }
}
