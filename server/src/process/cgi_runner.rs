//! The process that runs the programs of one folder: it starts them, limits them, and reports their ends.

use super::cgi_output::ProgramOutput;
use super::cgi_programs::{Permitted, RUNNER_VARIABLE, RunRequest, RunnerStart};
use super::cgi_watcher::{RUNS_PROGRAMS, watch};
use super::link::Link;
use super::orphans::{Left, Orphans, PROGRAM_VARIABLE};
use super::privileges::ServiceAccount;
use super::raise_descriptor_limit;
use crate::site::ProgramEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::SendFlags;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, kill_process_group, pidfd_open};
use selvedge::client::{ProgramLimits, hide_inherited_descriptors, limit_program};
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Most programs of one folder that run at once. Routes have lower bounds.
const RUNNING_MAX: usize = 4096;
/// Longest wait, if no program runs.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Wait between two attempts to end what programs have left behind.
const ORPHAN_WAIT: Duration = Duration::from_millis(10);
/// Most attempts at the end of this process.
const ORPHAN_ATTEMPTS_MAX: u32 = 100;

/// Returns the bytes of characters, each of which is one byte.
fn bytes(characters: &str) -> Option<OsString> {
    let bytes: Option<Vec<u8>> = characters.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect();
    bytes.map(OsString::from_vec)
}

/// Whether this process runs programs.
pub(crate) fn is_cgi_runner() -> bool {
    env::var_os(RUNNER_VARIABLE).is_some()
}

/// Runs programs until the serving process ends, or keeps the process running that does.
pub(crate) fn run_cgi_programs() -> ExitCode {
    if env::var_os(RUNNER_VARIABLE).is_none_or(|value| value != RUNS_PROGRAMS) {
        return watch();
    }
    let _ = rustix::thread::set_name(c"selvedge-cgi");
    let Ok(watcher) = Link::of_standard_input() else { return ExitCode::FAILURE };
    let Ok(Some((permitted, descriptors))) = watcher.receive::<Permitted>() else { return ExitCode::FAILURE };
    let Ok([link]) = <[OwnedFd; 1]>::try_from(descriptors) else { return ExitCode::FAILURE };
    let link = Link::from(link);
    let hidden =
        hide_inherited_descriptors().map_err(|error| format!("inherited descriptors would reach them: {error}"));
    let reply = match hidden.and_then(|()| permitted.become_user()) {
        Ok(()) => RunnerStart::Ready,
        Err(why) => RunnerStart::Failed(why),
    };
    if watcher.send(&reply).is_err() || matches!(reply, RunnerStart::Failed(_)) {
        return ExitCode::FAILURE;
    }
    raise_descriptor_limit();
    let mut running = RunningPrograms { permitted, programs: Vec::new(), orphans: Orphans::adopt() };
    running.run(&link);
    running.end_all();
    ExitCode::SUCCESS
}

impl Permitted {
    /// Becomes the user of the programs.
    fn become_user(&self) -> Result<(), String> {
        if let Some(account) = ServiceAccount::find(self.user.as_deref(), self.group.as_deref())? {
            account.drop_privileges()?;
        }
        match geteuid().is_root() {
            true => Err("they would run as root (write user=\"NAME\")".to_owned()),
            false => Ok(()),
        }
    }

    /// Returns the file of a program. Its path has no `..` and is one that the serving process may run.
    fn file_of(&self, program: &str) -> Result<PathBuf, String> {
        let is_beneath = Path::new(program).components().all(|component| matches!(component, Component::Normal(_)));
        let is_permitted = self.only.as_ref().is_none_or(|only| only == program);
        match is_beneath && is_permitted && !program.is_empty() {
            true => Ok(self.folder.join(program)),
            false => Err("it is not a program of the folder".to_owned()),
        }
    }
}

/// The programs of one folder that run.
struct RunningPrograms {
    permitted: Permitted,
    programs: Vec<Program>,
    orphans: Orphans,
}

/// A program that runs.
struct Program {
    child: Child,
    /// The value of [`PROGRAM_VARIABLE`].
    identity: String,
    /// Readable once the program has ended.
    exit: OwnedFd,
    lease: OwnedFd,
    output: ProgramOutput,
    deadline: Instant,
    is_reported: bool,
}

impl RunningPrograms {
    fn run(&mut self, link: &Link) {
        loop {
            let left = self.end_orphans();
            let Some(has_request) = self.wait(link, left) else { return };
            let now = Instant::now();
            let timeout = self.permitted.run_timeout;
            for ended in self.programs.extract_if(.., |program| !program.is_running(now, timeout)) {
                self.orphans.program_ended(ended.identity);
            }
            if !has_request {
                continue;
            }
            match link.receive::<RunRequest>() {
                Ok(Some((request, descriptors))) => self.start(request, descriptors),
                // A later version of the serving process may send what this one does not know.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Kills what programs that have ended have left behind.
    fn end_orphans(&mut self) -> Left {
        let running: Vec<Pid> = self.programs.iter().map(|program| Pid::from_child(&program.child)).collect();
        self.orphans.end_left(&running)
    }

    /// Kills all programs and what they have started.
    fn end_all(&mut self) {
        for mut program in self.programs.drain(..) {
            program.kill();
            // It was killed, so it ends.
            let _ = program.child.wait();
            self.orphans.program_ended(program.identity);
        }
        for _ in 0..ORPHAN_ATTEMPTS_MAX {
            if self.end_orphans() == Left::Nothing {
                return;
            }
            std::thread::sleep(ORPHAN_WAIT);
        }
    }

    /// Waits for an event. Returns whether a request has arrived; `None` if waiting fails.
    fn wait(&self, link: &Link, left: Left) -> Option<bool> {
        let mut watched = Vec::with_capacity(1 + 2 * self.programs.len());
        watched.push(PollFd::new(link, PollFlags::IN));
        for program in &self.programs {
            watched.push(PollFd::new(&program.exit, PollFlags::IN));
            // The end of the peer is reported without being requested.
            let of_output = if program.output == ProgramOutput::Open { PollFlags::IN } else { PollFlags::empty() };
            watched.push(PollFd::new(&program.lease, of_output));
        }
        let next = self.programs.iter().filter(|program| !program.is_reported).map(|program| program.deadline).min();
        let wait = next.map_or(LONGEST_WAIT, |next| next.saturating_duration_since(Instant::now()));
        let longest = if left == Left::Nothing { LONGEST_WAIT } else { ORPHAN_WAIT };
        let wait = Timespec::try_from(wait.min(longest)).ok();
        retry_on_intr(|| poll(&mut watched, wait.as_ref())).ok()?;
        Some(!watched[0].revents().is_empty())
    }

    fn start(&mut self, request: RunRequest, descriptors: Vec<OwnedFd>) {
        let Ok([stdin, stdout, stderr, lease]) = <[OwnedFd; 4]>::try_from(descriptors) else { return };
        let not_started = |why: String| ProgramEnd::NotStarted(format!("{}: {why}", request.program));
        let identity = self.orphans.next_program();
        let started = match self.programs.len() < RUNNING_MAX {
            true => self.spawn((&request, &identity), [stdin, stdout, stderr]),
            false => Err("too many programs run".to_owned()),
        };
        match started {
            Ok((child, exit)) => self.programs.push(Program {
                child,
                identity,
                exit,
                lease,
                output: ProgramOutput::Open,
                deadline: Instant::now() + self.permitted.run_timeout,
                is_reported: false,
            }),
            Err(why) => report(&lease, &not_started(why)),
        }
    }

    /// Starts a program. Returns it with a descriptor of its process.
    fn spawn(
        &self,
        (request, identity): (&RunRequest, &str),
        streams: [OwnedFd; 3],
    ) -> Result<(Child, OwnedFd), String> {
        let file = self.permitted.file_of(&request.program)?;
        let [stdin, stdout, stderr] = streams.map(Stdio::from);
        let mut command = Command::new(&file);
        command.env_clear().stdin(stdin).stdout(stdout).stderr(stderr).process_group(0);
        //= RFC 3875 §7.2: the current directory is that of the script
        command.current_dir(file.parent().unwrap_or(&self.permitted.folder));
        for (name, value) in &request.environment {
            let (Some(name), Some(value)) = (bytes(name), bytes(value)) else {
                return Err("a variable is invalid".into());
            };
            command.env(name, value);
        }
        command.env(PROGRAM_VARIABLE, identity);
        let memory_bytes_max = self.permitted.memory_bytes_max;
        let cpu_seconds_max = self.permitted.run_timeout.as_secs().max(1);
        limit_program(&mut command, ProgramLimits { memory_bytes_max, cpu_seconds_max });
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let pid = Pid::from_child(&child);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(exit) => Ok((child, exit)),
            Err(error) => {
                let _ = kill_process_group(pid, Signal::KILL);
                let _ = child.wait();
                Err(error.to_string())
            }
        }
    }
}

impl Program {
    /// Kills a program whose time is over or whose client has left. Reports the end of one that has ended, and returns
    /// whether it has not.
    fn is_running(&mut self, now: Instant, timeout: Duration) -> bool {
        match self.child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => {
                let end = match (status.code(), status.signal()) {
                    (Some(code), _) => ProgramEnd::Exited(code),
                    (None, signal) => ProgramEnd::Killed(signal.unwrap_or(0)),
                };
                self.report(&end);
                // What it has started ends with it, which also ends its output.
                self.kill();
                return false;
            }
            Err(_) => {
                self.kill();
                return false;
            }
        }
        if !self.is_reported && now >= self.deadline {
            self.report(&ProgramEnd::TimedOut(timeout.as_secs()));
            self.kill();
        } else if !self.is_reported && is_closed(self.lease.as_fd()) {
            self.is_reported = true;
            self.kill();
        } else if let Some(end) = self.output.update(self.lease.as_fd(), Pid::from_child(&self.child)) {
            report(&self.lease, &end);
        }
        true
    }

    fn report(&mut self, end: &ProgramEnd) {
        if !std::mem::replace(&mut self.is_reported, true) {
            report(&self.lease, end);
        }
    }

    fn kill(&self) {
        // It fails if no process of the group is left.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

/// Whether the other end of a lease is closed.
fn is_closed(lease: BorrowedFd<'_>) -> bool {
    let mut watched = [PollFd::new(&lease, PollFlags::empty())];
    let polled = retry_on_intr(|| poll(&mut watched, Some(&Timespec::default())));
    polled.is_ok() && !watched[0].revents().is_empty()
}

/// Reports the end of a program. If the serving process has left, no process needs the report.
fn report(lease: &OwnedFd, end: &ProgramEnd) {
    if let Ok(text) = serde_json::to_vec(end) {
        let _ = rustix::net::send(lease, &text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::write_program;
    use super::*;
    use crate::process::cgi_programs::CgiRunner;
    use crate::site::{ProgramStart, StartProgram};
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, send, socketpair};
    use std::fs::{self, File};
    use std::io::{Read, Write};

    /// A program that was started for a test, with the test's ends of its streams.
    struct Started {
        stdin: Option<File>,
        stdout: File,
        stderr: File,
        lease: OwnedFd,
    }

    impl Started {
        fn output(&mut self) -> (String, String, ProgramEnd) {
            let [mut output, mut errors] = [String::new(), String::new()];
            self.stdout.read_to_string(&mut output).unwrap();
            let end = self.end();
            self.stderr.read_to_string(&mut errors).unwrap();
            (output, errors, end)
        }

        /// Waits for the next report.
        fn end(&self) -> ProgramEnd {
            let mut text = [0; 4096];
            let mut received = recv(&self.lease, &mut text, RecvFlags::empty());
            if received == Err(Errno::CONNRESET) {
                // The runner has left before it received a message of this end. Its report follows.
                received = recv(&self.lease, &mut text, RecvFlags::empty());
            }
            let (count, _) = received.unwrap();
            serde_json::from_slice(&text[..count]).unwrap()
        }
    }

    /// Runs a test with a runner on a thread, whose folder has these programs.
    fn with_runner(name: &str, programs: &[(&str, &str)], run_timeout: Duration, test: impl FnOnce(&CgiRunner)) {
        let folder = env::temp_dir().join(format!("selvedge-cgi-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("sub")).unwrap();
        for (name, text) in programs {
            write_program(&folder.join(name), text.as_bytes());
        }
        let (link, end) = Link::pair().unwrap();
        let permitted = Permitted {
            folder: folder.clone(),
            only: None,
            user: None,
            group: None,
            run_timeout,
            memory_bytes_max: 1 << 30,
        };
        let runner = std::thread::spawn(move || {
            // Only a process of its own can collect orphans.
            let mut running = RunningPrograms { permitted, programs: Vec::new(), orphans: Orphans::default() };
            running.run(&Link::from(end));
            running.programs.iter().for_each(Program::kill);
        });
        test(&CgiRunner::with_link(link));
        runner.join().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    fn start(runner: &CgiRunner, program: &str, variables: &[(&str, &[u8])]) -> Started {
        let pipe = || io::pipe().map(|(reader, writer)| (OwnedFd::from(reader), OwnedFd::from(writer))).unwrap();
        let ((stdin_read, stdin), (stdout, stdout_write), (stderr, stderr_write)) = (pipe(), pipe(), pipe());
        let (lease, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let environment = variables.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect();
        let ends = selvedge::client::ProgramEnds { streams: [stdin_read, stdout_write, stderr_write], lease: other };
        runner.start(ProgramStart { program: program.to_owned(), environment, ends }).unwrap();
        Started { stdin: Some(stdin.into()), stdout: stdout.into(), stderr: stderr.into(), lease }
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_program_gets_its_variables_and_its_input_and_nothing_else() {
        let echo =
            "#!/bin/sh\nread -r line\necho \"$line:$VALUE:$HOME:$(pwd | sed 's,.*/,,')\"\necho oops >&2\nexit 3\n";
        with_runner("echo", &[("sub/echo", echo)], LONG, |runner| {
            let mut program = start(runner, "sub/echo", &[("VALUE", b"v w"), ("PATH", b"/usr/bin:/bin")]);
            program.stdin.take().unwrap().write_all(b"input\n").unwrap();
            let expected = ("input:v w::sub\n".to_owned(), "oops\n".to_owned(), ProgramEnd::Exited(3));
            assert_eq!(program.output(), expected);
        });
    }

    #[test]
    fn a_program_that_closes_its_output_goes_on() {
        let program = "#!/bin/sh\necho done\nexec 1>&-\nread -r line\nexit 3\n";
        let killed = "#!/bin/sh\necho done\nkill -9 $$\n";
        with_runner("closed", &[("closed", program), ("killed", killed)], LONG, |runner| {
            let report_end = |program: &mut Started| {
                let mut output = String::new();
                program.stdout.read_to_string(&mut output).unwrap();
                assert_eq!(output, "done\n");
                // The runner may have left after a report.
                let _ = send(&program.lease, b"end", SendFlags::NOSIGNAL);
            };
            let mut goes_on = start(runner, "closed", &[]);
            report_end(&mut goes_on);
            assert_eq!(goes_on.end(), ProgramEnd::OutputOnly);
            goes_on.stdin.take().unwrap().write_all(b"end\n").unwrap();
            assert_eq!(goes_on.end(), ProgramEnd::Exited(3));
            let mut ended = start(runner, "killed", &[]);
            report_end(&mut ended);
            assert_eq!(ended.end(), ProgramEnd::Killed(9));
        });
    }

    #[test]
    fn any_byte_is_passed_in_a_variable() {
        let all: Vec<u8> = (1..=255).collect();
        with_runner(
            "bytes",
            &[("bytes", "#!/bin/sh\nprintf %s \"$ALL\" | od -An -v -tx1 | tr -d ' \\n'\n")],
            LONG,
            |runner| {
                let mut program = start(runner, "bytes", &[("ALL", &all), ("PATH", b"/usr/bin:/bin")]);
                let expected: String = all.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(program.output().0, expected);
            },
        );
    }

    #[test]
    fn what_is_not_a_program_of_the_folder_is_not_started() {
        with_runner("none", &[("plain", "no program"), ("sub/x", "")], LONG, |runner| {
            for program in ["../../bin/ls", "/bin/ls", "", ".", "sub/../plain", "nothing", "sub"] {
                let (output, _, end) = start(runner, program, &[]).output();
                assert!(output.is_empty() && matches!(end, ProgramEnd::NotStarted(_)), "{program}: {end:?}");
            }
        });
    }

    #[test]
    fn a_program_and_its_children_end_with_their_time_and_their_lease() {
        let forever = "#!/bin/sh\necho started\nsleep 1000 &\nsleep 1000\n";
        with_runner("timeout", &[("forever", forever)], Duration::from_millis(50), |runner| {
            let (output, _, end) = start(runner, "forever", &[("PATH", b"/usr/bin:/bin")]).output();
            assert!(output == "started\n" || output.is_empty());
            assert_eq!(end, ProgramEnd::TimedOut(0));
        });
        with_runner("lease", &[("forever", forever)], LONG, |runner| {
            let Started { stdin, mut stdout, stderr: _stderr, lease } =
                start(runner, "forever", &[("PATH", b"/usr/bin:/bin")]);
            let mut started = [0; 8];
            stdout.read_exact(&mut started).unwrap();
            drop((lease, stdin));
            // The output ends when the program and its child have ended.
            assert_eq!(stdout.read(&mut started).unwrap(), 0);
        });
    }
}
