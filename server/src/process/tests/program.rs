//! A program that runs a configuration with this module only, and the code that starts it.

use super::recorder::recording_observer;
use crate::config;
use crate::config::model::Settings;
use crate::preflight::Disk;
use crate::process::control::call;
use crate::process::{
    ControlCommand, ControlHandler, ControlReply, ListenAddress, RunMode, ServingProcess, StatusFormat, StopMode, start,
};
use crate::recorder::LastQuery;
use rustix::process::{Pid, Signal, kill_process};
use selvedge::service::{Body, ResponseLease};
use selvedge::{ExitCause, Handle, Limits, Request, Response, Server, StatusCode};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Timeout on the slowest machine. Only a failure takes that long.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
const CONFIGURATION: &str = "SELVEDGE_TEST_CONFIGURATION";

/// The program. Only the other tests run it.
#[test]
#[ignore = "the program that other tests start"]
fn program() {
    let Some(file) = std::env::var_os(CONFIGURATION).map(PathBuf::from) else { return };
    let settings = config::read(&file, &Disk).expect("the tests' configurations are valid").settings;
    let workers = settings.process.workers.unwrap_or(1);
    let code = match start(&settings, workers) {
        Ok(RunMode::Serve(serving, _)) => serve(&file, Arc::new(*serving), &settings),
        Ok(RunMode::Ended(code)) => {
            // `ExitCode` has no accessor; its debug text has the number.
            let text = format!("{code:?}");
            text.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a code is a number")
        }
        Err(problem) => {
            crate::log::print_line(&format!("selvedge: {problem:?}"));
            1
        }
    };
    std::process::exit(code);
}

fn serve(file: &Path, serving: Arc<ServingProcess>, settings: &Settings) -> i32 {
    if file.with_extension("broken").exists() {
        return 7;
    }
    if file.with_extension("blocked").exists() {
        print("blocked\n");
        until("the test unblocks it", || (!file.with_extension("blocked").exists()).then_some(()));
    }
    let workers = settings.process.workers.unwrap_or(1);
    let listeners =
        listen_addresses(file).iter().flat_map(|address| serving.bind(address).expect("the address is free")).collect();
    let shutdown_timeout = match file.with_extension("long-shutdown").exists() {
        true => Duration::from_secs(20),
        false => settings.limits.shutdown_timeout,
    };
    let limits = Limits { shutdown_timeout, ..Limits::default() };
    serving.set_shutdown_timeout(shutdown_timeout);
    let number = std::process::id().to_string();
    let reply = async move |request: &mut Request| match request.path() {
        "/port" => Response::new(StatusCode::OK).body(request.peer().port().to_string()),
        "/hang" => hang(),
        "/panic" => panic!("the path is /panic"),
        "/echo" => {
            let chunks = Box::pin(request.take_body());
            let response = Response::new(StatusCode::OK).body(Body::Stream { length: None, chunks });
            response.lease(ResponseLease::new())
        }
        _ => Response::new(StatusCode::OK).body(number.clone()),
    };
    let server = Server::from_listeners(listeners, workers).limits(limits);
    let running = match file.with_extension("recorded").exists() {
        true => server.observe(recording_observer(&serving, workers)).serve(reply),
        false => server.serve(reply),
    };
    let running = running.expect("threads can be started");
    let address = running.addresses().first().map_or(String::new(), ToString::to_string);
    let handler = TestHandler { serving: serving.clone(), handle: running.handle(), file: file.to_owned() };
    serving.start_commands(Arc::new(handler)).expect("commands can be accepted");
    serving.ready();
    // One write, so that lines of two processes are not mixed.
    print(&format!(
        "ready {} {address} {} {}\n",
        std::process::id(),
        serving.start_info().restarts,
        serving.start_info().notes.join("|")
    ));
    let exit_cause = running.join();
    serving.finish();
    if exit_cause == ExitCause::Stopped { 0 } else { 70 }
}

/// Blocks its worker forever.
fn hang() -> ! {
    print("hangs\n");
    loop {
        thread::park();
    }
}

fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn listen_addresses(file: &Path) -> Vec<ListenAddress> {
    let settings = config::read(file, &Disk).expect("the tests' configurations are valid").settings;
    settings.listeners.iter().map(ListenAddress::from).collect()
}

struct TestHandler {
    serving: Arc<ServingProcess>,
    handle: Handle,
    file: PathBuf,
}

impl ControlHandler for TestHandler {
    /// Listens on the addresses of the current configuration.
    fn reload(&self) -> ControlReply {
        let wanted = listen_addresses(&self.file);
        let bound = self.serving.addresses();
        for address in wanted.iter().filter(|address| !bound.contains(address)) {
            match self.serving.bind(address) {
                Ok(listeners) => {
                    listeners
                        .into_iter()
                        .for_each(|listener| self.handle.add_listener(listener).expect("enough descriptors"));
                }
                Err(text) => return ControlReply::Refused(text),
            }
        }
        for address in bound.iter().filter(|address| !wanted.contains(address)) {
            self.serving.release(address).iter().for_each(|endpoint| self.handle.remove_listener(endpoint));
        }
        print("reloaded\n");
        ControlReply::Done(format!("listening on {} addresses", wanted.len()))
    }

    fn status(&self, format: StatusFormat) -> String {
        format!("{format:?} of {}", std::process::id())
    }

    fn last(&self, query: &LastQuery) -> String {
        format!("{query:?}")
    }

    fn certificates(&self, format: StatusFormat) -> String {
        format!("{format:?} of {}", std::process::id())
    }

    fn explain(&self, format: StatusFormat, request: &str) -> ControlReply {
        ControlReply::Done(format!("{format:?} of {request}"))
    }

    fn settings(&self) -> String {
        "// none\n".to_owned()
    }

    fn stop_listening(&self) {}

    fn lasting_responses(&self) -> usize {
        self.handle.leased_responses()
    }

    fn reopen_logs(&self) {
        print("reopened\n");
    }

    fn stop(&self, mode: StopMode) {
        match mode {
            StopMode::HandOver => self.handle.hand_over(),
            StopMode::Graceful => self.handle.stop(),
            StopMode::Immediate => self.handle.stop_now(),
        }
    }
}

/// A running program, killed on drop.
pub(super) struct TestProgram {
    child: Child,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    reads_errors: JoinHandle<()>,
    pub(super) folder: PathBuf,
}

/// A serving process that has reported that it is ready.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) pid: i32,
    pub(super) address: Option<SocketAddr>,
    pub(super) restarts: u64,
    pub(super) notes: String,
}

impl TestProgram {
    /// Starts a program in a new folder, with a configuration that starts with common settings.
    pub(super) fn new(rest: &str) -> Self {
        Self::with(&folder(), rest, &std::env::current_exe().unwrap())
    }

    pub(super) fn with(folder: &Path, rest: &str, binary: &Path) -> Self {
        Self::start(folder, rest, Command::new(binary).stdin(Stdio::null()))
    }

    pub(super) fn start(folder: &Path, rest: &str, command: &mut Command) -> Self {
        configure(folder, rest);
        let name = "process::tests::program::program";
        command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(CONFIGURATION, folder.join("selvedge.kdl")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = { command.spawn().unwrap() };
        let (lines, received) = channel();
        let out = child.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        let (errors, mut err) = (Arc::new(Mutex::new(String::new())), child.stderr.take().unwrap());
        let into = errors.clone();
        let reads_errors = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = err.read(&mut piece) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        });
        Self { child, lines: received, errors, reads_errors, folder: folder.to_owned() }
    }

    /// Waits for a line with this beginning, and returns the rest.
    pub(super) fn prints(&self, beginning: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(rest) {
                // The test harness may print before the line.
                Ok(line) => {
                    if let Some((_, rest)) = line.split_once(beginning) {
                        return rest.to_owned();
                    }
                }
                Err(error) => panic!("it never printed {beginning}: {error}; {}", self.errors()),
            }
        }
    }

    /// Waits until a serving process is ready.
    pub(super) fn ready(&self) -> Ready {
        let line = self.prints("ready ");
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        Ready {
            pid: word().parse().unwrap(),
            address: word().parse().ok(),
            restarts: word().parse().unwrap(),
            notes: word(),
        }
    }

    pub(super) fn errors(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    pub(super) fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_nonzero().get()
    }

    pub(super) fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    pub(super) fn send_command(&self, command: ControlCommand) -> Result<ControlReply, String> {
        call(&self.control(), command)
    }

    /// Waits for the end and for all output. Returns the exit code.
    pub(super) fn code(&mut self) -> Option<i32> {
        let status = until("the program has ended", || self.child.try_wait().unwrap());
        until("no more output", || self.reads_errors.is_finished().then_some(()));
        status.code()
    }
}

impl Drop for TestProgram {
    fn drop(&mut self) {
        // The serving process sees its supervisor end, and ends too.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Writes a program, by a child process. A descriptor of this process could be inherited by a child of another test that
/// has not begun its program yet, and a program that is open for writing cannot be started.
pub(in crate::process) fn write_program(path: &Path, content: &[u8]) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"]).arg(path).stdin(Stdio::piped());
    let mut child = shell.spawn().expect("a shell can be started");
    let mut input = child.stdin.take().expect("its input is piped");
    input.write_all(content).expect("the shell reads its input");
    drop(input);
    assert!(child.wait().expect("the shell ends").success(), "{} cannot be written", path.display());
}

/// Creates a folder.
pub(super) fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("selvedge-process-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    folder
}

/// Writes the configuration of the program in this folder.
pub(super) fn configure(folder: &Path, rest: &str) {
    let text = format!("workers 2\ncontrol \"control\"\npid-file \"pid\"\n{rest}\n");
    fs::write(folder.join("selvedge.kdl"), text).unwrap();
}

pub(super) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

pub(super) fn is_alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until `check` returns a value.
pub(super) fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(seen) = check() {
            return seen;
        }
        assert!(Instant::now() < deadline, "timed out: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a request on a new connection. Returns the response; empty if the connection was aborted.
pub(super) fn get(address: SocketAddr, path: &str) -> String {
    exchange(TcpStream::connect(address).expect("no connection is refused"), path)
}

pub(super) fn get_unix(socket: &Path, path: &str) -> String {
    exchange(UnixStream::connect(socket).expect("no connection is refused"), path)
}

/// Opens a connection and completes one request, so that its process is known.
pub(super) fn open_idle_connection(address: SocketAddr, pid: i32) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    while !reply.ends_with(format!("\r\n\r\n{pid}").as_bytes()) {
        let mut piece = [0; 256];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&reply));
        reply.extend_from_slice(&piece[..count]);
    }
    stream
}

/// Opens a connection, if the process of this ID accepts it.
fn connect_to(address: SocketAddr, pid: i32) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (mut reply, expected) = (Vec::new(), format!("\r\n\r\n{pid}").into_bytes());
    while !reply.ends_with(&expected) {
        let mut piece = [0; 256];
        let count = stream.read(&mut piece).ok()?;
        reply.extend_from_slice(&piece[..count]);
        let content = reply.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(reply.len());
        if count == 0 || !expected.starts_with(&reply[content..]) {
            return None;
        }
    }
    Some(stream)
}

/// Opens a connection with a partial request that the process has received.
pub(super) fn begin_request(address: SocketAddr) -> TcpStream {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    // Later connections to each worker got responses, so this one was accepted.
    for _ in 0..8 {
        get(address, "/");
    }
    connection
}

/// Completes a partial request, and returns the response.
pub(super) fn end_request(mut connection: TcpStream) -> String {
    let mut reply = String::new();
    connection.write_all(b"Host: a\r\n\r\n").unwrap();
    connection.read_to_string(&mut reply).unwrap();
    reply
}

/// A response that lasts as long as its request, whose content it returns.
pub(super) struct Echo(TcpStream);

impl Echo {
    /// Begins one with the process of this ID. Another process may accept a few connections until it has handed over.
    pub(super) fn begin(address: SocketAddr, pid: i32) -> Self {
        let mut stream = until("the process accepts", || connect_to(address, pid));
        stream.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let mut echo = Self(stream);
        echo.exchange("begun");
        echo
    }

    /// Sends a text, and receives until it returns.
    pub(super) fn exchange(&mut self, text: &str) {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        self.0.write_all(chunk.as_bytes()).unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(chunk.as_bytes()) {
            let mut piece = [0; 256];
            let count = self.0.read(&mut piece).unwrap();
            assert!(count > 0, "the connection was closed: {}", String::from_utf8_lossy(&reply));
            reply.extend_from_slice(&piece[..count]);
        }
    }

    /// Waits until the program closes the connection.
    pub(super) fn wait_closed(mut self) {
        let _ = self.0.read_to_end(&mut Vec::new());
    }

    /// Ends the content.
    pub(super) fn end(mut self) {
        self.0.write_all(b"0\r\n\r\n").unwrap();
        self.wait_closed();
    }
}

fn exchange(mut stream: impl Read + Write, path: &str) -> String {
    let mut reply = String::new();
    let requested = write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    // The caller judges aborted connections by the bytes received.
    let _ = requested.and_then(|()| stream.read_to_string(&mut reply));
    reply.split_once("\r\n\r\n").map_or(String::new(), |(_, content)| content.to_owned())
}
