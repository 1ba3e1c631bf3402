//! Limits a server to a share of a core, so that the load generator on another core can offer three times its
//! capacity. Over loopback a new connection costs the client as much as the server.
//!
//! Needs a writable cgroup with the processor controller (version 1 or 2). Without one, the workload is skipped
//! and the report has a note.

use std::fs;
use std::path::{Path, PathBuf};

/// The processor time that the server may use…
const QUOTA_US: u32 = 1_000;
/// …in each of these periods. Short, so that the pauses do not show in the latencies.
const PERIOD_US: u32 = 6_000;

/// A cgroup of processes that share a part of a core. Dropping it removes the cgroup.
pub(crate) struct Quota {
    directory: PathBuf,
    parent: PathBuf,
}

impl Quota {
    /// Creates the cgroup. Returns `None` if that is not possible.
    pub(crate) fn new() -> Option<Self> {
        let name = format!("selvedge-bench-{}", std::process::id());
        Self::version_1(&name).or_else(|| Self::version_2(&name))
    }

    fn version_1(name: &str) -> Option<Self> {
        let quota = Self::create(Path::new("/sys/fs/cgroup/cpu"), name)?;
        fs::write(quota.directory.join("cpu.cfs_period_us"), PERIOD_US.to_string()).ok()?;
        fs::write(quota.directory.join("cpu.cfs_quota_us"), QUOTA_US.to_string()).ok()?;
        Some(quota)
    }

    fn version_2(name: &str) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        fs::read_to_string(root.join("cgroup.subtree_control")).ok()?.contains("cpu").then_some(())?;
        let quota = Self::create(root, name)?;
        fs::write(quota.directory.join("cpu.max"), format!("{QUOTA_US} {PERIOD_US}")).ok()?;
        Some(quota)
    }

    fn create(parent: &Path, name: &str) -> Option<Self> {
        let directory = parent.join(name);
        fs::create_dir(&directory).ok()?;
        Some(Self { directory, parent: parent.to_owned() })
    }

    /// Moves processes into the cgroup.
    pub(crate) fn add_processes(&self, pids: &[u32]) -> std::io::Result<()> {
        pids.iter().try_for_each(|pid| fs::write(self.directory.join("cgroup.procs"), pid.to_string()))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // A cgroup must be empty to be removed, so move its processes back to the parent.
        for pid in fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(self.parent.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.directory);
    }
}
