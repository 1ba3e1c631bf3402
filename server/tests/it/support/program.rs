//! The program as a process: arguments, output streams, signals and exit.

use super::client::Client;
use super::other_driver::is_over_tls;
use super::tls::TlsClient;
use super::tree::Tree;
use super::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A running `selvedge`. Dropping it kills the process.
pub(crate) struct Program {
    process: Process,
    address: SocketAddr,
    /// Connects to a program that serves a tree over TLS.
    tls: Option<TlsClient>,
}

/// A started process, which may not be ready yet. Dropping it kills the process.
pub(crate) struct Process {
    child: Child,
    out: CapturedOutput,
    err: CapturedOutput,
}

/// The output of a process so far.
struct CapturedOutput {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

/// The exit code of a process and its output, without hints.
#[derive(Debug)]
pub(crate) struct Exit {
    /// `None` if a signal killed it.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Program {
    /// Serves a tree with default options.
    pub(crate) fn serve(tree: &Tree) -> Self {
        Self::serve_with(tree, &[])
    }

    /// Serves a tree with these arguments. With TLS in a run over TLS.
    pub(crate) fn serve_with(tree: &Tree, arguments: &[&str]) -> Self {
        let mut command = selvedge_command();
        command.arg("serve").arg(tree.site()).args(["--listen", "127.0.0.1:0"]).args(arguments);
        if !is_over_tls() {
            return Self::start(&mut command);
        }
        let data = tree.outside("data");
        let mut program = Self::start(command.arg("--tls").env("XDG_DATA_HOME", &data));
        let root = std::fs::read_to_string(data.join("selvedge/certificates/local-authority.pem"));
        program.tls = Some(TlsClient::trusting(&root.expect("the program has created it"), None));
        program
    }

    /// Starts a command and waits for its ready line.
    pub(crate) fn start(command: &mut Command) -> Self {
        match Process::start(command).wait_until_ready_or_exit() {
            Ok(program) => program,
            Err(exit) => panic!("the program exited instead of serving: {exit:?}"),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the listener with TLS.
    pub(crate) fn https_address(&self) -> SocketAddr {
        self.process.https_address()
    }

    /// Opens a connection.
    pub(crate) fn connect(&self) -> Client {
        match &self.tls {
            Some(tls) => Client::connect_over_tls(self.address, tls),
            None => Client::connect(self.address),
        }
    }

    /// Returns the lines of the access log so far.
    pub(crate) fn access_lines(&self) -> Vec<String> {
        whole_lines(&self.process.out.text())
    }

    /// Returns the lines of standard error so far, without the ready line and a hint.
    pub(crate) fn error_lines(&self) -> Vec<String> {
        let mut lines = whole_lines(&self.process.err.text());
        lines.retain(|line| !line.starts_with("serving ") && !line.starts_with("hint: "));
        lines
    }

    /// Returns standard error so far.
    pub(crate) fn standard_error(&self) -> String {
        self.process.err.text()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process is a child that was not reaped");
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process.child)
    }

    /// Waits until new connections are refused, which shows that a shutdown has started.
    pub(crate) fn wait_until_connections_are_refused(&self) {
        wait_until("the listener is closed", || std::net::TcpStream::connect(self.address).is_err().then_some(()));
    }

    /// Waits until the process has exited.
    pub(crate) fn exit(self) -> Exit {
        self.process.exit()
    }

    /// Shuts down gracefully with TERM. Asserts that the exit code is 0.
    pub(crate) fn stop(self) -> Exit {
        self.signal(Signal::TERM);
        let exit = self.exit();
        assert_eq!(exit.code, Some(0), "{exit:?}");
        exit
    }
}

impl Process {
    /// Starts a command without waiting for it.
    pub(crate) fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the program can be started");
        let out = CapturedOutput::of(child.stdout.take().expect("the stream is piped"));
        let err = CapturedOutput::of(child.stderr.take().expect("the stream is piped"));
        Self { child, out, err }
    }

    /// Returns the address of the listener with TLS.
    pub(crate) fn https_address(&self) -> SocketAddr {
        wait_until("a listener with TLS is reported", || {
            let lines = whole_lines(&self.err.text());
            let (_, address) = lines.iter().find_map(|line| line.rsplit_once(" on https://"))?;
            address.strip_suffix('/')?.parse().ok()
        })
    }

    /// Waits for the ready line, or until the process has exited.
    pub(crate) fn wait_until_ready_or_exit(mut self) -> Result<Program, Exit> {
        let address = wait_until("the program is ready or has exited", || {
            // Check for the exit before reading the output, so that the output is complete if the process has exited.
            let has_exited = self.child.try_wait().expect("the process is a child of the test").is_some();
            let lines = whole_lines(&self.err.text());
            match lines.iter().find(|line| line.starts_with("serving ")) {
                Some(line) if !has_exited => Some(Some(address_of(line))),
                _ => has_exited.then_some(None),
            }
        });
        match address {
            Some(address) => Ok(Program { process: self, address, tls: None }),
            None => Err(self.exit()),
        }
    }

    /// Waits until the process has exited.
    fn exit(mut self) -> Exit {
        let status =
            wait_until("the program has exited", || self.child.try_wait().expect("the process is a child of the test"));
        // A hint depends on the files of the tree, which most tests do not choose for it.
        let err = self.err.all().split_inclusive('\n').filter(|line| !line.starts_with("hint: ")).collect();
        Exit { code: status.code(), out: self.out.all(), err }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a shell command that serves a tree. The script changes the environment, then runs `"$@"`.
pub(crate) fn selvedge_serve_in_shell(tree: &Tree, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg("sh").arg(env!("CARGO_BIN_EXE_selvedge"));
    command.arg("serve").arg(tree.site()).args(["--listen", "127.0.0.1:0"]);
    command
}

/// Returns a command of the program without arguments.
pub(crate) fn selvedge_command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_selvedge"))
}

/// Runs a command until it exits.
pub(crate) fn run_to_exit(command: &mut Command) -> Exit {
    Process::start(command).exit()
}

impl CapturedOutput {
    fn of(mut stream: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let into = text.clone();
        let reader = thread::spawn(move || {
            let mut piece = [0; 16 * 1024];
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                into.lock().expect("no thread panics while it has the lock").extend_from_slice(&piece[..count]);
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        let bytes = self.text.lock().expect("no thread panics while it has the lock").clone();
        String::from_utf8(bytes).expect("the program writes ASCII")
    }

    /// Returns the complete output of an exited process.
    fn all(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reading does not panic");
        }
        self.text()
    }
}

/// Returns the complete lines of a text.
fn whole_lines(text: &str) -> Vec<String> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}

fn address_of(line: &str) -> SocketAddr {
    let (_, address) = line.rsplit_once("://").expect("the ready line names an address");
    address.strip_suffix('/').and_then(|address| address.parse().ok()).expect("the ready line has a valid address")
}

/// Writes a program, by a child process. A descriptor of this process could be inherited by a child of another test that
/// has not begun its program yet, and a program that is open for writing cannot be started.
pub(crate) fn write_program(path: &Path, content: &[u8]) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"]).arg(path).stdin(Stdio::piped());
    let mut child = shell.spawn().expect("a shell can be started");
    let mut input = child.stdin.take().expect("its input is piped");
    input.write_all(content).expect("the shell reads its input");
    drop(input);
    assert!(child.wait().expect("the shell ends").success(), "{} cannot be written", path.display());
}
