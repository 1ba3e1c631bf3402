//! A server that runs: started on its cores, asked whether it serves, stopped for certain.
//!
//! Invariant: whatever happens here, nothing that was started is left behind; see `Drop`.

use super::tree;
use crate::load::mix::{Afterwards, request};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use rustix::thread::CpuSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to serve its first request; under callgrind, so much more.
const READY_MAX: Duration = Duration::from_secs(20);
/// How long it may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(5);

/// A server that runs.
pub(crate) struct Running {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").context("a free port")?.local_addr()?.port())
}

/// Runs `then` with this thread, and what it starts, on these cores.
pub(crate) fn on_cores<T>(cores: &[usize], then: impl FnOnce() -> T) -> Result<T> {
    let before = rustix::thread::sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    rustix::thread::sched_setaffinity(None, &set).with_context(|| format!("pinning to cores {cores:?}"))?;
    let outcome = then();
    rustix::thread::sched_setaffinity(None, &before)?;
    Ok(outcome)
}

impl Running {
    /// Starts a server on these cores; it is ready when it answers for this path with success.
    pub(crate) fn start(mut command: Command, cores: &[usize], port: u16, path: &str, log: &Path) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("{}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let child = on_cores(cores, || command.spawn())?.with_context(|| format!("starting {command:?}"))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut running = Self { child, address, log: log.to_owned() };
        running.wait_until_ready(path)?;
        Ok(running)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        tree::descendants(self.child.id())
    }

    fn wait_until_ready(&mut self, path: &str) -> Result<()> {
        let began = Instant::now();
        let mut last = String::from("it does not listen");
        while began.elapsed() < READY_MAX {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended at once ({status}): {}", self.last_words());
            }
            match first_status(self.address, path) {
                Ok(200) => return Ok(()),
                Ok(status) => last = format!("it answers {path} with {status}"),
                Err(error) => last = error.to_string(),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("not ready after {READY_MAX:?}: {last}; {}", self.last_words())
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

/// Asks once and reads the status.
fn first_status(address: SocketAddr, path: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&request(path, Afterwards::Close))?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    std::str::from_utf8(&head[9..])
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(std::io::ErrorKind::InvalidData.into())
}

impl Drop for Running {
    fn drop(&mut self) {
        let tree: Vec<_> = self.pids().into_iter().map(|pid| (pid, tree::started_at(pid))).collect();
        stop(&mut self.child);
        // A child that outlives its parent; that it began at the same moment shows that it is the same.
        for (pid, began) in tree.into_iter().skip(1) {
            if began.is_some() && tree::started_at(pid) == began {
                signal(pid, Signal::KILL);
            }
        }
    }
}

/// Asks a process to stop, and makes it.
pub(crate) fn stop(child: &mut Child) {
    signal(child.id(), Signal::TERM);
    let began = Instant::now();
    while began.elapsed() < STOP_MAX {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // It was asked and waited for; a server with connections open may take its time.
    let _ = child.kill();
    let _ = child.wait();
}

/// Sends a signal; that the process is gone already is as good.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
