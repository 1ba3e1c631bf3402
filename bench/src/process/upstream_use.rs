//! How a proxy uses its upstream in a window: the upstream's processor time, and whether its connections are kept.

use super::server_process::ServerProcess;
use super::tree::{self, Cpu};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The state of an upstream at the start of a window.
pub(crate) struct UpstreamUse<'a> {
    proxy: &'a ServerProcess,
    cpu: Cpu,
    sockets: BTreeSet<PathBuf>,
}

impl<'a> UpstreamUse<'a> {
    /// Begins a window. Returns `None` if the server is no proxy.
    pub(crate) fn begin(proxy: &'a ServerProcess) -> Option<Self> {
        let pids = proxy.upstream_pids();
        (!pids.is_empty()).then(|| Self { proxy, cpu: tree::cpu(&pids), sockets: sockets(&pids) })
    }

    /// Returns the cores that the upstream used since the start of the window, which was `elapsed` ago.
    pub(crate) fn busy(&self, elapsed: Duration) -> f64 {
        let (cpu, _) = tree::cpu(&self.proxy.upstream_pids()).since(self.cpu);
        cpu.as_secs_f64() / elapsed.as_secs_f64()
    }

    /// Returns the number of open upstream connections.
    ///
    /// # Errors
    /// If the proxy opened more than half of them since the start of the window: then it does not keep them.
    pub(crate) fn kept_connections(&self) -> Result<usize> {
        let now = sockets(&self.proxy.upstream_pids());
        let opened = now.difference(&self.sockets).count();
        ensure!(opened * 2 <= now.len(), "the proxy opened {opened} of {} upstream connections meanwhile", now.len());
        // One socket is the listener.
        Ok(now.len().saturating_sub(1))
    }
}

/// Returns the sockets of processes. Their names contain inode numbers, so a reused descriptor is another socket.
fn sockets(pids: &[u32]) -> BTreeSet<PathBuf> {
    pids.iter()
        .flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten())
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .collect()
}
