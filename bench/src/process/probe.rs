//! Counts the system calls of a request (strace) and its user-space instructions (the processor's counters
//! through perf, else callgrind).
//!
//! Probes slow a server down, so they have short runs of their own with an exact number of requests.

use super::server_process::{ServerProcess, send_signal, stop};
use super::tree;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// How long a tool may take to attach or to exit.
const TOOL_MAX: Duration = Duration::from_secs(10);

/// Whether a program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Whether the processor's counters are readable; in a virtual machine they often are not.
pub(crate) static HAS_COUNTERS: LazyLock<bool> = LazyLock::new(|| {
    let out = Command::new("perf").args(["stat", "-x,", "-e", "instructions:u", "true"]).output();
    out.is_ok_and(|out| out.status.success() && !String::from_utf8_lossy(&out.stderr).contains("not supported"))
});

/// Counts the system calls of a server per request, while `load` sends requests and returns their number.
pub(crate) fn system_calls(server: &ServerProcess, scratch: &Path, load: impl FnOnce() -> Result<u64>) -> Result<f64> {
    let counts = scratch.join("strace.txt");
    let pids: Vec<String> = server.pids().iter().map(u32::to_string).collect();
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(&counts);
    for pid in &pids {
        command.args(["-p", pid]);
    }
    let mut strace = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let attached = wait_until(|| server.pids().iter().all(|pid| is_traced(*pid)));
    let requests = if attached { load() } else { Err(anyhow::anyhow!("strace cannot attach to the server")) };
    // INT makes strace detach and write its table.
    send_signal(strace.id(), Signal::INT);
    wait_until(|| !matches!(strace.try_wait(), Ok(None)));
    stop(&mut strace);
    let table = std::fs::read_to_string(&counts).context("cannot read the table of strace")?;
    Ok(total_calls(&table).context("the table of strace has no total")? as f64 / requests?.max(1) as f64)
}

/// Counts the user-space instructions of a server per request with the processor's counters, while `load` sends
/// requests and returns their number.
pub(crate) fn counted_instructions(server: &ServerProcess, load: impl FnOnce() -> Result<u64>) -> Result<f64> {
    let pids = server.pids().iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let perf = Command::new("perf")
        .args(["stat", "-x,", "-e", "instructions:u", "-p", &pids])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(300));
    let requests = load();
    send_signal(perf.id(), Signal::INT);
    let out = perf.wait_with_output()?;
    let text = String::from_utf8_lossy(&out.stderr);
    let count = text.lines().find_map(|line| line.split(',').next()?.parse::<f64>().ok());
    Ok(count.context("the output of perf has no count")? / requests?.max(1) as f64)
}

/// Returns a command that runs the given one under callgrind. The counts are written to files in `scratch`.
pub(crate) fn under_callgrind(command: &Command, scratch: &Path) -> Result<Command> {
    for old in callgrind_files(scratch) {
        std::fs::remove_file(&old).with_context(|| format!("{}", old.display()))?;
    }
    let mut wrapped = Command::new("valgrind");
    wrapped.arg("--tool=callgrind").arg("--quiet");
    wrapped.arg(format!("--callgrind-out-file={}", scratch.join("callgrind.%p").display()));
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            wrapped.env(name, value);
        }
    }
    if let Some(directory) = command.get_current_dir() {
        wrapped.current_dir(directory);
    }
    Ok(wrapped)
}

/// Stops a server that ran under callgrind, and returns the instructions of all its processes.
pub(crate) fn callgrind_total(server: ServerProcess, scratch: &Path) -> Result<u64> {
    let pids = server.pids();
    drop(server);
    wait_until(|| pids.iter().all(|pid| tree::started_at(*pid).is_none()));
    let mut total = 0;
    for file in callgrind_files(scratch) {
        let text = std::fs::read_to_string(&file)?;
        let line = text.lines().rev().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
        total += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    ensure!(total > 0, "callgrind wrote no counts");
    Ok(total)
}

fn callgrind_files(scratch: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(scratch).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("/callgrind.")).collect()
}

fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
}

fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < TOOL_MAX {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Returns the sum of the column "calls": the fourth field of the line that ends with "total".
fn total_calls(table: &str) -> Option<u64> {
    let line = table.lines().find(|line| line.trim_end().ends_with("total"))?;
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_total_of_strace_is_parsed_with_and_without_errors() {
        let with = "100.00    0.010000           5      2000        12 total\n";
        let without = "100.00    0.010000           5      2000           total\n";
        assert_eq!(super::total_calls(with), Some(2000));
        assert_eq!(super::total_calls(without), Some(2000));
    }
}
