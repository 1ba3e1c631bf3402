//! The programs that the example starts: the server, and the receiver of spans. They end with the example.

use crate::print_line;
use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// The longest wait for a server that starts.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The last line that a server with `metrics` prints when it is ready.
const READY: &str = "serving metrics on ";
/// The module of `opentelemetry-proto` that the receiver needs.
const MODULE: &str = "opentelemetry.proto.collector.trace.v1.trace_service_pb2";

/// `selvedge run`. Dropping it kills the supervisor, whose serving process then ends.
pub(crate) struct SelvedgeProcess {
    program: PathBuf,
    configuration: PathBuf,
    child: Child,
    /// Lines of its standard error; closed when it has ended.
    lines: UnboundedReceiver<String>,
}

impl SelvedgeProcess {
    /// Starts the server.
    pub(crate) fn start(program: &Path, configuration: &Path) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.arg("run").arg(configuration).stdin(Stdio::null()).stderr(Stdio::piped());
        // In a group of its own, Ctrl-C reaches this program only, which stops the load before the server.
        let started = command.process_group(0).spawn();
        let mut child = started.map_err(|error| {
            format!("cannot start {}: {error} (set SELVEDGE to the path of the program)", program.display())
        })?;
        let stderr = child.stderr.take().expect("it is piped");
        let (sender, lines) = unbounded_channel();
        thread::spawn(move || pass_on(stderr, &sender));
        Ok(Self { program: program.to_owned(), configuration: configuration.to_owned(), child, lines })
    }

    /// Waits until the server serves.
    pub(crate) async fn wait_until_ready(&mut self) -> Result<(), String> {
        let ready = async {
            while let Some(line) = self.lines.recv().await {
                if line.starts_with(READY) {
                    return Ok(());
                }
            }
            Err("the server did not start; its messages are above".to_owned())
        };
        let late = |_| Err(format!("the server is not ready after {} s", START_TIMEOUT.as_secs()));
        timeout(START_TIMEOUT, ready).await.unwrap_or_else(late)
    }

    /// Waits until the server has ended.
    pub(crate) async fn ended(&mut self) {
        while self.lines.recv().await.is_some() {}
    }

    /// Stops the server gracefully, and waits until it has ended.
    ///
    /// # Errors
    /// If it has ended before, or ends with an error.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        if self.lines.is_closed() {
            let status = self.child.wait().map_err(|error| format!("cannot wait for the server: {error}"))?;
            return Err(format!("the server has ended by itself with {status}"));
        }
        let stopped = Command::new(&self.program).arg("stop").arg(&self.configuration).stdout(Stdio::null()).status();
        if !stopped.is_ok_and(|status| status.success()) {
            return Err("`selvedge stop` failed, so the server is killed".to_owned());
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the server has ended with {status}")),
            Err(error) => Err(format!("cannot wait for the server: {error}")),
        }
    }
}

impl Drop for SelvedgeProcess {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints what a server prints, and sends a copy of each line.
fn pass_on(stderr: ChildStderr, sender: &UnboundedSender<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        eprintln!("{line}");
        // After the start, the program receives no more lines before the end.
        let _ = sender.send(line);
    }
}

/// The receiver of spans, if Python has the package for it.
pub(crate) struct Receiver(Option<Child>);

impl Receiver {
    /// Starts the receiver, or prints how to get what it needs.
    pub(crate) fn start(folder: &Path, address: &str) -> Self {
        let python = env::var("SELVEDGE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = folder.join("receiver.py");
        let mut has_package = Command::new(&python);
        has_package.args(["-c", &format!("import {MODULE}")]).stderr(Stdio::null());
        if !has_package.status().is_ok_and(|status| status.success()) {
            print_line(&format!(
                "no receiver of spans: {python} has no package opentelemetry-proto, so spans are dropped"
            ));
            print_line("  python3 -m venv /tmp/observed && /tmp/observed/bin/pip install opentelemetry-proto");
            print_line("  SELVEDGE_PYTHON=/tmp/observed/bin/python examples/observed/start");
            return Self(None);
        }
        let started = Command::new(python).arg(script).arg(address).stdin(Stdio::null()).process_group(0).spawn();
        if let Err(error) = &started {
            print_line(&format!("no receiver of spans: {error}"));
        }
        Self(started.ok())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Both fail if it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
