//! The machine that measures: what has to stand beside every figure.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;

/// What the report says about the machine.
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
    /// How the system controls congestion. Reports of earlier versions do not say.
    #[serde(default)]
    pub(crate) congestion: String,
}

/// The cores this process may use.
pub(crate) fn cores() -> Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
    ensure!(cores.len() >= 2, "a server and the load each need a core of their own; this machine gives one");
    Ok(cores)
}

impl Facts {
    /// The same machine, now.
    pub(crate) fn now(&self) -> Self {
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
        revision: says("git", &["describe", "--always", "--dirty"]),
        processor: value("/proc/cpuinfo", "model name"),
        cores: cores.len(),
        memory_gib: (memory_kib / 1_048_576.0 * 10.0).round() / 10.0,
        kernel: says("uname", &["-sr"]),
        system: value("/etc/os-release", "PRETTY_NAME"),
        compiler: says("rustc", &["--version"]),
        congestion: fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
            .unwrap_or_default()
            .trim()
            .to_owned(),
    }
}

fn date() -> String {
    says("date", &["-u", "+%Y-%m-%d %H:%M UTC"])
}

fn says(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).current_dir(crate::servers::bench_folder()).output();
    out.map_or_else(|_| "unknown".to_owned(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
