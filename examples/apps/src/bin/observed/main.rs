//! Shows what goes on inside a server: runs `examples/observed` with its upstreams, a load, and a receiver of spans.
//!
//! ```text
//! examples/observed/start [--seconds N]
//! ```
//!
//! It ends by itself after N seconds, else on Ctrl-C. The exit code is 0 if each request of the load got a response with
//! a status that it may have. Environment variables: `SELVEDGE` is the server program (default: the one beside this
//! program), `SELVEDGE_PYTHON` the Python with `opentelemetry-proto` (`python3`), `OBSERVED_FOLDER` the folder with the
//! configuration (`examples/observed`). [`Addresses`] has those of the configuration.

mod children;
mod load;
#[cfg(test)]
mod tests;
mod upstreams;

use children::{Receiver, SelvedgeProcess};
use load::Load;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use upstreams::Upstreams;

/// The addresses of the example, from the variables that its configuration has with these defaults.
struct Addresses {
    site: String,
    metrics: String,
    collector: String,
    steady: String,
    flaky: String,
}

impl Addresses {
    fn from_environment() -> Self {
        let variable = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
        Self {
            site: variable("OBSERVED_SITE", "127.0.0.1:8080"),
            metrics: variable("OBSERVED_METRICS", "127.0.0.1:9100"),
            collector: variable("OBSERVED_COLLECTOR", "127.0.0.1:4318"),
            steady: variable("OBSERVED_STEADY", "127.0.0.1:3001"),
            flaky: variable("OBSERVED_FLAKY", "127.0.0.1:3002"),
        }
    }
}

/// What ends the example.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Without it, only a signal ends the example.
    seconds: Option<u64>,
}

impl Signals {
    /// Waits for a signal, or until the time is over.
    async fn wait(&mut self) {
        let seconds = self.seconds;
        let time_is_over = async {
            match seconds {
                Some(seconds) => sleep(Duration::from_secs(seconds)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = time_is_over => {}
        }
    }
}

/// Reads `--seconds N`.
fn seconds(arguments: &[String]) -> Result<Option<u64>, String> {
    match arguments {
        [] => Ok(None),
        [name, value] if name == "--seconds" => {
            value.parse().map(Some).map_err(|_| format!("--seconds needs a number, and got {value}"))
        }
        _ => Err("usage: observed [--seconds N]".to_owned()),
    }
}

/// Returns the server program: that of the variable, or the one beside this program.
fn server_program() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("SELVEDGE") {
        return Ok(path.into());
    }
    let own = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    Ok(own.with_file_name("selvedge"))
}

/// Returns the folder of the example as an absolute path, so that the commands of the guide work in any folder.
fn folder() -> Result<PathBuf, String> {
    let folder = PathBuf::from(env::var_os("OBSERVED_FOLDER").unwrap_or_else(|| "examples/observed".into()));
    let absent = |error: std::io::Error| format!("no folder {}: {error} (set OBSERVED_FOLDER)", folder.display());
    folder.canonicalize().map_err(absent)
}

/// Returns the command that sets the variables of the configuration in another shell; `None` if all have their defaults.
fn export_command(variables: impl Iterator<Item = (OsString, OsString)>) -> Option<String> {
    let of_configuration = |(name, value): (OsString, OsString)| {
        let name = name.into_string().ok().filter(|name| name.starts_with("OBSERVED_") && name != "OBSERVED_FOLDER")?;
        Some(format!(" {name}={}", value.into_string().ok()?))
    };
    let mut set: Vec<_> = variables.filter_map(of_configuration).collect();
    set.sort_unstable();
    (!set.is_empty()).then(|| format!("export{}", set.concat()))
}

/// Prints a line for the reader of the example.
#[expect(clippy::print_stdout, reason = "the example tells what to look at")]
fn print_line(line: &str) {
    println!("{line}");
}

/// Prints which page and which command shows what.
fn print_guide(program: &Path, configuration: &Path, addresses: &Addresses) {
    let (program, conf) = (program.display(), configuration.display());
    let Addresses { site, metrics, .. } = addresses;
    if let Some(command) = export_command(env::vars_os()) {
        print_line(&format!("In another shell, the commands below need these variables:\n  {command}"));
    }
    for (what, how) in [
        ("the live page", format!("http://{site}/status")),
        ("metrics, for Prometheus", format!("http://{metrics}/metrics")),
        ("failed requests", format!("{program} last --status 5xx {conf}")),
        ("what limits would refuse", format!("{program} last --dry-run {conf}")),
        ("why a request gets its status", format!("{program} explain http://{site}/private/ledger {conf}")),
        ("why it got it, by its ID in last", format!("{program} explain --request ID --config {conf}")),
        ("the expectations", format!("{program} check {conf}")),
        ("what a change would do", format!("OBSERVED_RATE=50 {program} check --diff {conf}")),
        ("small attacks, and what held", format!("{program} selftest http://{site}/ {conf}")),
        ("the state as text", format!("{program} status {conf}")),
    ] {
        print_line(&format!("  {what:<34}{how}"));
    }
}

/// Runs the example. Returns the number of requests that failed.
///
/// # Errors
/// If a part cannot be started, or the server ends by itself or with an error.
async fn run(arguments: &[String]) -> Result<usize, String> {
    let seconds = seconds(arguments)?;
    let handler = |kind| signal(kind).map_err(|error| format!("cannot handle a signal: {error}"));
    let (interrupt, terminate) = (handler(SignalKind::interrupt())?, handler(SignalKind::terminate())?);
    let mut signals = Signals { interrupt, terminate, seconds };
    let addresses = Addresses::from_environment();
    let folder = folder()?;
    let configuration = folder.join("selvedge.kdl");
    let program = server_program()?;

    let upstreams = Upstreams::start(&addresses.steady, &addresses.flaky)?;
    let [steady, flaky] = upstreams.addresses();
    print_line(&format!("upstreams: {steady}, and {flaky}, which fails now and then"));
    let receiver = Receiver::start(&folder, &addresses.collector);
    let mut server = SelvedgeProcess::start(&program, &configuration)?;
    let is_ready = tokio::select! {
        ready = server.wait_until_ready() => ready.map(|()| true)?,
        () = signals.wait() => false,
    };
    let mut load = None;
    if is_ready {
        print_guide(&program, &configuration, &addresses);
        load = Some(Load::start(&addresses.site));
        tokio::select! {
            () = signals.wait() => {}
            () = server.ended() => {}
        }
    }
    // The load ends first, so that no request meets a server that stops.
    let report = load.map(Load::stop).unwrap_or_default();
    let stopped = server.stop();
    drop(receiver);
    print_line(&report.text());
    stopped.map(|()| report.failures())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("observed: {error}");
            ExitCode::FAILURE
        }
    }
}
