//! The machine that measures: facts that every report contains.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;

/// The facts about the machine in a report.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) date: String,
    pub(crate) revision: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    pub(crate) system: String,
    pub(crate) compiler: String,
    /// The congestion control of the system. Empty in reports of earlier versions.
    #[serde(default)]
    pub(crate) congestion: String,
}

/// Returns the cores that this process may use. At least 2.
pub(crate) fn cores() -> Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
    ensure!(cores.len() >= 2, "cannot measure with one core: the server and the load generator need one each");
    Ok(cores)
}

impl Facts {
    /// Returns these facts with the current date.
    pub(crate) fn with_current_date(&self) -> Self {
        Self { date: date(), ..self.clone() }
    }
}

pub(crate) fn facts(cores: &[usize]) -> Facts {
    let value = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.split_once([':', '=']).map_or_else(String::new, |(_, value)| value.trim().trim_matches('"').to_owned())
    };
    let memory_kib: f64 = value("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0.0);
    Facts {
        date: date(),
        revision: command_output("git", &["describe", "--always", "--dirty"]),
        processor: value("/proc/cpuinfo", "model name"),
        cores: cores.len(),
        memory_gib: (memory_kib / 1_048_576.0 * 10.0).round() / 10.0,
        kernel: command_output("uname", &["-sr"]),
        system: value("/etc/os-release", "PRETTY_NAME"),
        compiler: command_output("rustc", &["--version"]),
        congestion: fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
            .unwrap_or_default()
            .trim()
            .to_owned(),
    }
}

fn date() -> String {
    command_output("date", &["-u", "+%Y-%m-%d %H:%M UTC"])
}

fn command_output(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).current_dir(crate::names::bench_folder()).output();
    out.map_or_else(|_| "unknown".to_owned(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
