//! Processor time and memory of a process tree, from `/proc`.

use std::fs;
use std::time::Duration;

/// Processor time since the start of the processes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cpu {
    /// The exact total.
    pub(crate) total: Duration,
    /// Clock ticks in user space and in the kernel, which give the shares of the total.
    user_ticks: u64,
    system_ticks: u64,
}

impl Cpu {
    /// Returns the time since `before`, and the share of it in user space.
    pub(crate) fn since(self, before: Self) -> (Duration, f64) {
        let user = self.user_ticks.saturating_sub(before.user_ticks) as f64;
        let system = self.system_ticks.saturating_sub(before.system_ticks) as f64;
        let user_share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
        (self.total.saturating_sub(before.total), user_share)
    }
}

/// Memory of all processes, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    pub(crate) private: u64,
    pub(crate) resident: u64,
}

/// Returns a process and all its descendants.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = stat_fields(pid).and_then(|fields| fields.get(1)?.parse().ok()) {
            parents.push((pid, parent));
        }
    }
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        tree.extend(
            parents
                .iter()
                .filter(|(pid, of)| *of == parent && !tree.contains(pid))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        next += 1;
    }
    tree
}

/// Returns the processor time of these processes. The exact total excludes ended threads; the measured servers end
/// no thread during a measurement.
pub(crate) fn cpu(pids: &[u32]) -> Cpu {
    let mut cpu = Cpu::default();
    for pid in pids {
        if let Some(fields) = stat_fields(*pid) {
            let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            cpu.user_ticks += ticks(11);
            cpu.system_ticks += ticks(12);
        }
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let ran = text.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            cpu.total += Duration::from_nanos(ran);
        }
    }
    cpu
}

/// Returns the memory of these processes.
pub(crate) fn memory(pids: &[u32]) -> Memory {
    let mut memory = Memory::default();
    for pid in pids {
        for line in fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default().lines() {
            let mut words = line.split_ascii_whitespace();
            let (name, kib) = (words.next().unwrap_or(""), words.next().and_then(|kib| kib.parse::<u64>().ok()));
            let bytes = kib.unwrap_or(0) * 1024;
            match name {
                "Private_Clean:" | "Private_Dirty:" => memory.private += bytes,
                "Rss:" => memory.resident += bytes,
                _ => {}
            }
        }
    }
    memory
}

/// Returns the processor time of the whole machine, from clock ticks.
pub(crate) fn machine_cpu() -> Duration {
    /// The fields user, nice, system, irq, softirq and steal; idle and iowait do not count.
    const BUSY: [usize; 6] = [1, 2, 3, 6, 7, 8];
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<&str> = text.lines().next().unwrap_or_default().split_ascii_whitespace().collect();
    let ticks: u64 = BUSY.iter().filter_map(|index| fields.get(*index)?.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the start time of a process, in clock ticks since boot.
pub(crate) fn started_at(pid: u32) -> Option<String> {
    stat_fields(pid)?.get(19).cloned()
}

/// Returns the fields of `/proc/PID/stat` after the name. The first is the state.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    Some(after_name.split_ascii_whitespace().map(str::to_owned).collect())
}
