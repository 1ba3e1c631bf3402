//! The program as a process: its arguments, its two streams, its signals, its end.

use super::client::Client;
use super::tree::Tree;
use super::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A running `selvedge`. It ends with the value.
pub(crate) struct Program {
    process: Process,
    address: SocketAddr,
}

/// A process that was started and need not have said anything yet. It ends with the value.
pub(crate) struct Process {
    child: Child,
    out: Captured,
    err: Captured,
}

/// What a process said, as far as it has come.
struct Captured {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

/// How a process ended, and all that it said.
#[derive(Debug)]
pub(crate) struct Exit {
    /// `None` when a signal killed it.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Program {
    /// Serves a tree with what the command line does when nothing is said.
    pub(crate) fn serve(tree: &Tree) -> Self {
        Self::serve_with(tree, &[])
    }

    /// Serves a tree with these arguments.
    pub(crate) fn serve_with(tree: &Tree, arguments: &[&str]) -> Self {
        let mut command = command();
        command.arg("serve").arg(tree.site()).args(["--listen", "127.0.0.1:0"]).args(arguments);
        Self::start(&mut command)
    }

    /// Starts a command and waits until it says that it is ready.
    pub(crate) fn start(command: &mut Command) -> Self {
        match Process::start(command).serves_or_ends() {
            Ok(program) => program,
            Err(exit) => panic!("the program ended instead of serving: {exit:?}"),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// The access log's lines so far.
    pub(crate) fn access_lines(&self) -> Vec<String> {
        whole_lines(&self.process.out.text())
    }

    /// Standard error's lines so far, but for the ready line.
    pub(crate) fn error_lines(&self) -> Vec<String> {
        let mut lines = whole_lines(&self.process.err.text());
        lines.retain(|line| !line.starts_with("serving "));
        lines
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process is ours and was not waited for");
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process.child)
    }

    /// Waits until nobody is let in any more, which is when a stop has begun.
    pub(crate) fn refuses_connections(&self) {
        until("the listener is closed", || std::net::TcpStream::connect(self.address).is_err().then_some(()));
    }

    /// Waits for the end.
    pub(crate) fn exit(self) -> Exit {
        self.process.exit()
    }

    /// Stops it as an operator would, and waits for the end.
    pub(crate) fn stop(self) -> Exit {
        self.signal(Signal::TERM);
        let exit = self.exit();
        assert_eq!(exit.code, Some(0), "{exit:?}");
        exit
    }
}

impl Process {
    /// Starts a command and waits for nothing.
    pub(crate) fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the program can be started");
        let out = Captured::of(child.stdout.take().expect("it was piped"));
        let err = Captured::of(child.stderr.take().expect("it was piped"));
        Self { child, out, err }
    }

    /// Waits until the program says that it is ready, or ends instead.
    pub(crate) fn serves_or_ends(mut self) -> Result<Program, Exit> {
        let address = until("the program is ready or has ended", || {
            // Looked at before what was said, of which nothing can come behind the end.
            let ended = self.child.try_wait().expect("the process is ours").is_some();
            let lines = whole_lines(&self.err.text());
            match lines.iter().find(|line| line.starts_with("serving ")) {
                Some(line) if !ended => Some(Some(address_of(line))),
                _ => ended.then_some(None),
            }
        });
        match address {
            Some(address) => Ok(Program { process: self, address }),
            None => Err(self.exit()),
        }
    }

    /// Waits for the end.
    fn exit(mut self) -> Exit {
        let status = until("the program has ended", || self.child.try_wait().expect("the process is ours"));
        Exit { code: status.code(), out: self.out.all(), err: self.err.all() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A shell that serves a tree: what it does first may bend the world, and ends with `"$@"`.
pub(crate) fn command_in_shell(tree: &Tree, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg("sh").arg(env!("CARGO_BIN_EXE_selvedge"));
    command.arg("serve").arg(tree.site()).args(["--listen", "127.0.0.1:0"]);
    command
}

/// The program, not yet told what to do.
pub(crate) fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_selvedge"))
}

/// Runs a command that is to end by itself.
pub(crate) fn run(command: &mut Command) -> Exit {
    Process::start(command).exit()
}

impl Captured {
    fn of(mut stream: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let into = text.clone();
        let reader = thread::spawn(move || {
            let mut piece = [0; 16 * 1024];
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                into.lock().expect("nobody panics with it").extend_from_slice(&piece[..count]);
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        let bytes = self.text.lock().expect("nobody panics with it").clone();
        String::from_utf8(bytes).expect("the program writes ASCII, whatever it was sent")
    }

    /// All of it, once the process has ended.
    fn all(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reading does not panic");
        }
        self.text()
    }
}

/// Lines that are complete.
fn whole_lines(text: &str) -> Vec<String> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}

fn address_of(line: &str) -> SocketAddr {
    let (_, address) = line.rsplit_once(" on http://").expect("the ready line names an address");
    address.strip_suffix('/').and_then(|address| address.parse().ok()).expect("the address is one")
}
