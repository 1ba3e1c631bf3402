//! The control socket: one line with a command, and a reply, over a Unix socket that only its owner can open.
//!
//! The reply begins with a line `ok` or `refused`; the rest is text for people.

use crate::recorder::LastQuery;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, Uid, geteuid, pidfd_open};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A control command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlCommand {
    /// Reload the configuration.
    Reload,
    /// Stop gracefully.
    Stop,
    /// Upgrade to the current binary.
    Upgrade,
    /// Reopen the log files.
    ReopenLogs,
    /// Return the status.
    Status(StatusFormat),
    /// Return the state of certificates.
    Certificates(StatusFormat),
    /// Return the last requests.
    Last(LastQuery),
    /// Explain a request, which is JSON.
    Explain(StatusFormat, String),
    /// Return the settings in force.
    Settings,
}

/// Format of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusFormat {
    Text,
    Json,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlReply {
    /// Done, with a text.
    Done(String),
    /// Refused with a reason; nothing has changed.
    Refused(String),
}

impl ControlCommand {
    /// All commands without arguments.
    const ALL: [Self; 9] = [
        Self::Reload,
        Self::Stop,
        Self::Upgrade,
        Self::ReopenLogs,
        Self::Status(StatusFormat::Text),
        Self::Status(StatusFormat::Json),
        Self::Certificates(StatusFormat::Text),
        Self::Certificates(StatusFormat::Json),
        Self::Settings,
    ];

    /// Returns the line on the control socket: a word, and the arguments as JSON.
    fn line(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Last(query) => {
                let query = serde_json::to_string(query).expect("texts and numbers");
                return Cow::Owned(format!("{LAST}{query}"));
            }
            Self::Explain(StatusFormat::Text, request) => return Cow::Owned(format!("{EXPLAIN}{request}")),
            Self::Explain(StatusFormat::Json, request) => return Cow::Owned(format!("{EXPLAIN_JSON}{request}")),
            Self::Reload => "reload",
            Self::Stop => "stop",
            Self::Upgrade => "upgrade",
            Self::ReopenLogs => "reopen-logs",
            Self::Status(StatusFormat::Text) => "status",
            Self::Status(StatusFormat::Json) => "status json",
            Self::Certificates(StatusFormat::Text) => "certificates",
            Self::Certificates(StatusFormat::Json) => "certificates json",
            Self::Settings => "settings",
        })
    }

    /// Returns how long a client waits for the reply. Reloads and upgrades may take long; other commands are
    /// immediate.
    const fn reply_timeout(&self) -> Duration {
        match self {
            Self::Reload | Self::Upgrade | Self::ReopenLogs => Duration::from_secs(120),
            Self::Stop
            | Self::Status(_)
            | Self::Certificates(_)
            | Self::Last(_)
            | Self::Explain(..)
            | Self::Settings => Duration::from_secs(10),
        }
    }

    /// Returns the command that explains a request.
    ///
    /// # Errors
    /// If the request is too long.
    pub(crate) fn explain(format: StatusFormat, request: &impl Serialize) -> Result<Self, String> {
        let request = serde_json::to_string(request).map_err(|error| error.to_string())?;
        let command = Self::Explain(format, request);
        match command.line().len() as u64 >= COMMAND_BYTES_MAX {
            true => Err("the request is longer than 32 KiB".to_owned()),
            false => Ok(command),
        }
    }

    fn from_line(line: &str) -> Option<Self> {
        if let Some(query) = line.strip_prefix(LAST) {
            return serde_json::from_str(query).ok().map(Self::Last);
        }
        for (word, format) in [(EXPLAIN_JSON, StatusFormat::Json), (EXPLAIN, StatusFormat::Text)] {
            if let Some(request) = line.strip_prefix(word) {
                return Some(Self::Explain(format, request.to_owned()));
            }
        }
        Self::ALL.into_iter().find(|command| command.line() == line)
    }
}

/// How long a caller may take to send its command and to read the reply.
const CALLER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest command.
const COMMAND_BYTES_MAX: u64 = 32 << 10;
/// The word of [`ControlCommand::Last`].
const LAST: &str = "last ";
/// The words of [`ControlCommand::Explain`].
const EXPLAIN: &str = "explain ";
const EXPLAIN_JSON: &str = "explain json ";
/// Callers that are served at once.
const CALLERS_MAX: usize = 64;

/// Serves callers on a thread until the other end of `until` is closed. Each call in progress holds a clone of
/// `calls`.
pub(super) fn serve(
    control: UnixListener,
    until: UnixStream,
    calls: Arc<()>,
    execute: impl Fn(ControlCommand) -> ControlReply + Send + Sync + 'static,
) -> io::Result<()> {
    control.set_nonblocking(true)?;
    let execute = Arc::new(execute);
    thread::Builder::new().name("selvedge-control".to_owned()).spawn(move || {
        let idle_count = Arc::strong_count(&calls);
        while let Some(caller) = accept(&control, &until) {
            if Arc::strong_count(&calls) - idle_count >= CALLERS_MAX {
                // If the refusal cannot be sent, the caller sees the connection end.
                let _ = refuse_caller(caller);
                continue;
            }
            let (execute, calls) = (execute.clone(), calls.clone());
            let thread = thread::Builder::new().name("selvedge-reply".to_owned());
            // If the caller has left or no thread can be started, the connection just ends.
            let _ = thread.spawn(move || {
                let _ = handle_caller(caller, &*execute);
                drop(calls);
            });
        }
    })?;
    Ok(())
}

/// Accepts the next caller; `None` at the end.
fn accept(control: &UnixListener, until: &UnixStream) -> Option<UnixStream> {
    loop {
        let mut watched = [PollFd::new(control, PollFlags::IN), PollFd::new(until, PollFlags::empty())];
        if retry_on_intr(|| poll(&mut watched, None)).is_err() || !watched[1].revents().is_empty() {
            return None;
        }
        match control.accept() {
            Ok((caller, _)) => return Some(caller),
            // Another process with this socket was faster, or descriptors ran out.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Reads the command of one caller and writes the reply.
fn handle_caller(mut caller: UnixStream, execute: &dyn Fn(ControlCommand) -> ControlReply) -> io::Result<()> {
    caller.set_nonblocking(false)?;
    caller.set_read_timeout(Some(CALLER_TIMEOUT))?;
    caller.set_write_timeout(Some(CALLER_TIMEOUT))?;
    let caller_uid = socket_peercred(&caller)?.uid;
    if caller_uid != Uid::ROOT && caller_uid != geteuid() {
        return write_reply(&mut caller, &ControlReply::Refused("only the owner may send commands".to_owned()));
    }
    let mut line = String::new();
    BufReader::new(Read::by_ref(&mut caller).take(COMMAND_BYTES_MAX)).read_line(&mut line)?;
    let reply = match line.strip_suffix('\n').and_then(ControlCommand::from_line) {
        Some(command) => execute(command),
        None if line.len() as u64 == COMMAND_BYTES_MAX => {
            ControlReply::Refused(format!("the command is longer than {COMMAND_BYTES_MAX} bytes"))
        }
        None => ControlReply::Refused(format!("`{}` is not a control command", line.trim_end().escape_default())),
    };
    write_reply(&mut caller, &reply)
}

/// Refuses a caller without reading.
fn refuse_caller(mut caller: UnixStream) -> io::Result<()> {
    caller.set_nonblocking(true)?;
    write_reply(&mut caller, &ControlReply::Refused("too many commands at once".to_owned()))
}

fn write_reply(to: &mut UnixStream, reply: &ControlReply) -> io::Result<()> {
    let (word, text) = match reply {
        ControlReply::Done(text) => ("ok", text),
        ControlReply::Refused(text) => ("refused", text),
    };
    to.write_all(format!("{word}\n{text}").as_bytes())
}

/// Sends a command to the server behind a control socket, and waits for the reply.
pub(crate) fn call(control: &Path, command: ControlCommand) -> Result<ControlReply, String> {
    let timeout = command.reply_timeout();
    call_within(control, &command, timeout)
}

/// Stops the server behind a control socket, and waits at most `time` until its process has ended: the supervisor, or
/// the serving process if it has none.
pub(crate) fn stop(control: &Path, time: Duration) -> Result<ControlReply, String> {
    let server = connect(control)?;
    // Opened before the command, so that it refers to this server, not to a later process with its number.
    let process = socket_peercred(&server).and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()));
    let reply = exchange(server, control, &ControlCommand::Stop, ControlCommand::Stop.reply_timeout())?;
    // The process of a server in another container cannot be seen.
    let (ControlReply::Done(_), Ok(process)) = (&reply, process) else { return Ok(reply) };
    let seconds = time.as_secs_f64();
    match wait_for_end(&process, time) {
        Ok(true) => Ok(ControlReply::Done("stopped".to_owned())),
        Ok(false) => Err(format!("the server at {} still stops after {seconds} s", control.display())),
        Err(error) => Err(format!("cannot wait for the end of the server at {}: {error}", control.display())),
    }
}

/// Waits until a process has ended, and returns whether it has.
fn wait_for_end(process: &OwnedFd, time: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + time;
    loop {
        let rest = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(rest).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut watched = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut watched, Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn connect(control: &Path) -> Result<UnixStream, String> {
    UnixStream::connect(control).map_err(|error| format!("cannot reach a server at {}: {error}", control.display()))
}

fn call_within(control: &Path, command: &ControlCommand, time: Duration) -> Result<ControlReply, String> {
    exchange(connect(control)?, control, command, time)
}

fn exchange(
    mut server: UnixStream,
    control: &Path,
    command: &ControlCommand,
    time: Duration,
) -> Result<ControlReply, String> {
    let failed = |what: &str, error: io::Error| format!("{what} {}: {error}", control.display());
    let mut reply = Vec::new();
    let sent =
        server.set_read_timeout(Some(time)).and_then(|()| server.write_all(format!("{}\n", command.line()).as_bytes()));
    // A server that refuses before it has read the command causes a reset, which is not an error here.
    let outcome = sent.and(server.read_to_end(&mut reply).map(drop));
    let reply = String::from_utf8_lossy(&reply);
    match (reply.split_once('\n'), outcome) {
        (Some(("refused", text)), _) => Ok(ControlReply::Refused(text.to_owned())),
        (_, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(format!("no reply from the server at {} within {} s", control.display(), time.as_secs_f64()))
        }
        (_, Err(error)) => Err(failed("no reply from the server at", error)),
        (Some(("ok", text)), Ok(())) => Ok(ControlReply::Done(text.to_owned())),
        _ => Err(format!("the server at {} ended before it replied", control.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn commands_are_served_until_the_end() {
        let path = std::env::temp_dir().join(format!("selvedge-control-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (until, end) = UnixStream::pair().unwrap();
        let executed = Arc::new(Mutex::new(Vec::new()));
        let into = executed.clone();
        let execute = move |command| {
            into.lock().unwrap().push(ControlCommand::clone(&command));
            match command {
                ControlCommand::Reload => ControlReply::Refused("line 1\nline 2\n".to_owned()),
                _ => ControlReply::Done(command.line().into_owned()),
            }
        };
        serve(UnixListener::bind(&path).unwrap(), until, Arc::default(), execute).unwrap();
        let query = LastQuery { client: Some("::1".to_owned()), count_max: 3, ..LastQuery::default() };
        let explained =
            [StatusFormat::Text, StatusFormat::Json].map(|format| ControlCommand::explain(format, &1).unwrap());
        let with_arguments = explained.into_iter().chain([ControlCommand::Last(query)]);
        let commands: Vec<_> = ControlCommand::ALL.into_iter().chain(with_arguments).collect();
        for command in commands.clone() {
            let expected = match command {
                ControlCommand::Reload => ControlReply::Refused("line 1\nline 2\n".to_owned()),
                _ => ControlReply::Done(command.line().into_owned()),
            };
            assert_eq!(call(&path, command), Ok(expected));
        }
        assert_eq!(*executed.lock().unwrap(), commands);
        let mut other_client = UnixStream::connect(&path).unwrap();
        other_client.write_all(b"\x1bGET / HTTP/1.1\r\n").unwrap();
        let mut reply = String::new();
        other_client.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, "refused\n`\\u{1b}GET / HTTP/1.1` is not a control command");
        drop(end);
        // After the end, connections are closed with the socket.
        let ended = call(&path, ControlCommand::Stop).unwrap_err();
        assert!(ended.contains(path.to_str().unwrap()), "{ended}");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(executed.lock().unwrap().len(), commands.len());
    }

    #[test]
    fn a_command_is_bounded() {
        let path = std::env::temp_dir().join(format!("selvedge-control-long-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (until, end) = UnixStream::pair().unwrap();
        let execute = |command| match command {
            ControlCommand::Explain(StatusFormat::Json, request) => ControlReply::Done(request),
            other => ControlReply::Refused(format!("{other:?}")),
        };
        serve(UnixListener::bind(&path).unwrap(), until, Arc::default(), execute).unwrap();
        let command = |length: usize| ControlCommand::explain(StatusFormat::Json, &"a".repeat(length));
        // With the word before the request, the quotes, and the end of the line.
        let most = COMMAND_BYTES_MAX as usize - EXPLAIN_JSON.len() - 3;
        for length in [0, 1, 4096, most] {
            let expected = ControlReply::Done(format!("\"{}\"", "a".repeat(length)));
            assert_eq!(call(&path, command(length).unwrap()), Ok(expected));
        }
        assert_eq!(command(most + 1).unwrap_err(), "the request is longer than 32 KiB");
        let long = ControlCommand::Explain(StatusFormat::Json, "a".repeat(COMMAND_BYTES_MAX as usize));
        let refused = ControlReply::Refused("the command is longer than 32768 bytes".to_owned());
        assert_eq!(call(&path, long), Ok(refused));
        drop(end);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn call_times_out_if_the_server_hangs() {
        let path = std::env::temp_dir().join(format!("selvedge-control-hangs-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let _hangs = UnixListener::bind(&path).unwrap();
        let text = call_within(&path, &ControlCommand::Reload, Duration::from_millis(100)).unwrap_err();
        assert_eq!(text, format!("no reply from the server at {} within 0.1 s", path.display()));
        assert_eq!(ControlCommand::Status(StatusFormat::Text).reply_timeout(), Duration::from_secs(10));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn callers_beyond_the_limit_are_refused() {
        let path = std::env::temp_dir().join(format!("selvedge-control-many-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (until, end) = UnixStream::pair().unwrap();
        let calls = Arc::new(());
        let execute = |_| ControlReply::Done(String::new());
        serve(UnixListener::bind(&path).unwrap(), until, calls.clone(), execute).unwrap();
        // They send nothing, so they occupy their threads for a while.
        let silent: Vec<_> = (0..CALLERS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for _ in 0..20 {
            let refused = ControlReply::Refused("too many commands at once".to_owned());
            assert_eq!(call(&path, ControlCommand::Status(StatusFormat::Text)), Ok(refused));
        }
        drop(silent);
        while Arc::strong_count(&calls) > 2 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(call(&path, ControlCommand::Status(StatusFormat::Text)), Ok(ControlReply::Done(String::new())));
        drop(end);
        std::fs::remove_file(&path).unwrap();
    }
}
