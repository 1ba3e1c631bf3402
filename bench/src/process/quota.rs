//! A part of a core for a server, so that the load on the other core can offer three times what it
//! can serve: over loopback a new connection costs the client as much as the server.
//!
//! Needs a writable cgroup with the processor controller (version 1 or 2); else there is none, and
//! the report says so.

use std::fs;
use std::path::{Path, PathBuf};

/// The server may run so long…
const QUOTA_US: u32 = 1_000;
/// …in each of these: short, so that the pauses do not show in the times.
const PERIOD_US: u32 = 6_000;

/// A group of processes that share a part of a core, until it is dropped.
pub(crate) struct Quota {
    directory: PathBuf,
    parent: PathBuf,
}

impl Quota {
    /// Makes the group, where that is possible.
    pub(crate) fn new() -> Option<Self> {
        let name = format!("selvedge-bench-{}", std::process::id());
        Self::version_1(&name).or_else(|| Self::version_2(&name))
    }

    fn version_1(name: &str) -> Option<Self> {
        let quota = Self::make(Path::new("/sys/fs/cgroup/cpu"), name)?;
        fs::write(quota.directory.join("cpu.cfs_period_us"), PERIOD_US.to_string()).ok()?;
        fs::write(quota.directory.join("cpu.cfs_quota_us"), QUOTA_US.to_string()).ok()?;
        Some(quota)
    }

    fn version_2(name: &str) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        fs::read_to_string(root.join("cgroup.subtree_control")).ok()?.contains("cpu").then_some(())?;
        let quota = Self::make(root, name)?;
        fs::write(quota.directory.join("cpu.max"), format!("{QUOTA_US} {PERIOD_US}")).ok()?;
        Some(quota)
    }

    fn make(parent: &Path, name: &str) -> Option<Self> {
        let directory = parent.join(name);
        fs::create_dir(&directory).ok()?;
        Some(Self { directory, parent: parent.to_owned() })
    }

    /// From now on, these processes are held to it.
    pub(crate) fn hold(&self, pids: &[u32]) -> std::io::Result<()> {
        pids.iter().try_for_each(|pid| fs::write(self.directory.join("cgroup.procs"), pid.to_string()))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // A group can only go when it is empty; whoever is still in it is sent back.
        for pid in fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(self.parent.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.directory);
    }
}
