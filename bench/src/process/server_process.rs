//! A server process: started on its cores, ready when it responds to a request, and always stopped.
//!
//! Invariant: no started process outlives its [`ServerProcess`]; see `Drop`.

use super::tree;
use crate::load::mix::{Persistence, request};
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

/// How long a server may take until it serves its first request. Long enough for callgrind.
const READY_MAX: Duration = Duration::from_secs(20);
/// How long a server may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(5);

/// The ports of a server on 127.0.0.1, and that of its upstream. Servers that only speak HTTP/1 use the first alone.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    /// HTTP/1 without TLS.
    pub(crate) plain: u16,
    /// HTTP/2 without TLS.
    pub(crate) h2c: u16,
    /// TLS, with HTTP/2 and HTTP/1.1.
    pub(crate) tls: u16,
    /// The upstream of a proxy, which listens there only for workloads of proxies.
    pub(crate) upstream: u16,
}

impl Ports {
    /// Returns ports that are free at the time of the call.
    pub(crate) fn free() -> Result<Self> {
        let bind = || TcpListener::bind("127.0.0.1:0").context("cannot find a free port");
        // All are bound before one is released, so that they differ.
        let [plain, h2c, tls, upstream] = [bind()?, bind()?, bind()?, bind()?].map(|listener| listener.local_addr());
        Ok(Self { plain: plain?.port(), h2c: h2c?.port(), tls: tls?.port(), upstream: upstream?.port() })
    }
}

/// A running server.
pub(crate) struct ServerProcess {
    child: Child,
    ports: Ports,
    log: PathBuf,
    /// The upstream of a proxy. It is stopped after the proxy.
    upstream: Option<Box<Self>>,
}

/// Runs `action` with this thread, and the processes that it starts, pinned to these cores.
pub(crate) fn run_on_cores<T>(cores: &[usize], action: impl FnOnce() -> T) -> Result<T> {
    let before = rustix::thread::sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    rustix::thread::sched_setaffinity(None, &set).with_context(|| format!("cannot pin to cores {cores:?}"))?;
    let outcome = action();
    rustix::thread::sched_setaffinity(None, &before)?;
    Ok(outcome)
}

impl ServerProcess {
    /// Starts a server on these cores, and waits until it responds to a request for `path` with 200.
    pub(crate) fn start(mut command: Command, cores: &[usize], ports: Ports, path: &str, log: &Path) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("{}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let child = run_on_cores(cores, || command.spawn())?.with_context(|| format!("cannot start {command:?}"))?;
        let mut running = Self { child, ports, log: log.to_owned(), upstream: None };
        running.wait_until_ready(path)?;
        Ok(running)
    }

    /// Adds the upstream of this proxy, which runs as long as the proxy.
    pub(crate) fn with_upstream(mut self, upstream: Self) -> Self {
        self.upstream = Some(Box::new(upstream));
        self
    }

    /// Returns the processes of the upstream. Empty unless the server is a proxy.
    pub(crate) fn upstream_pids(&self) -> Vec<u32> {
        self.upstream.as_ref().map_or_else(Vec::new, |upstream| upstream.pids())
    }

    /// Returns the address for HTTP/1 without TLS.
    pub(crate) fn address(&self) -> SocketAddr {
        local_address(self.ports.plain)
    }

    pub(crate) fn ports(&self) -> Ports {
        self.ports
    }

    /// Waits until the server listens on a port.
    ///
    /// # Errors
    /// If it does not within [`READY_MAX`].
    pub(crate) fn wait_for_listener(&self, port: u16) -> Result<()> {
        let began = Instant::now();
        while TcpStream::connect_timeout(&local_address(port), Duration::from_secs(1)).is_err() {
            if began.elapsed() > READY_MAX {
                bail!("the server does not listen on port {port}: {}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns the process and its descendants.
    pub(crate) fn pids(&self) -> Vec<u32> {
        tree::descendants(self.child.id())
    }

    fn wait_until_ready(&mut self, path: &str) -> Result<()> {
        let began = Instant::now();
        let mut last = String::from("the server does not listen");
        while began.elapsed() < READY_MAX {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server exited during start-up ({status}): {}", self.log_tail());
            }
            match first_status(self.address(), path) {
                Ok(200) => return Ok(()),
                Ok(status) => last = format!("the status of {path} is {status}"),
                Err(error) => last = error.to_string(),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the server is not ready after {READY_MAX:?}: {last}; {}", self.log_tail())
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

fn local_address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Sends one request and returns the status code.
fn first_status(address: SocketAddr, path: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&request(path, Persistence::Close))?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    std::str::from_utf8(&head[9..])
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(std::io::ErrorKind::InvalidData.into())
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let tree: Vec<_> = self.pids().into_iter().map(|pid| (pid, tree::started_at(pid))).collect();
        stop(&mut self.child);
        // Kill children that outlived their parent. An equal start time shows that the process ID was not reused.
        for (pid, began) in tree.into_iter().skip(1) {
            if began.is_some() && tree::started_at(pid) == began {
                send_signal(pid, Signal::KILL);
            }
        }
    }
}

/// Sends TERM to a process, and kills it if it does not exit within [`STOP_MAX`].
pub(crate) fn stop(child: &mut Child) {
    send_signal(child.id(), Signal::TERM);
    let began = Instant::now();
    while began.elapsed() < STOP_MAX {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // A server with open connections may take longer to shut down.
    let _ = child.kill();
    let _ = child.wait();
}

/// Sends a signal. An already exited process is no error.
pub(crate) fn send_signal(pid: u32, send_signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, send_signal);
    }
}
