//! What the serving process uses of the machine, how much it does in a second, and its time limits, for `status`.

use crate::log::Totals;
use rustix::process::{Resource, getrlimit};
use selvedge::Limits;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::fs;
use std::time::{Duration, Instant};

/// The times over which rates are taken.
const WINDOWS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];
/// Samples are as far apart as the checks of files, and a few more are kept than the longest window needs.
const SAMPLES_MAX: usize = 64;

/// The time limits of clients, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LimitStatus {
    pub(crate) header_timeout_ms: u64,
    pub(crate) body_timeout_ms: u64,
    pub(crate) send_timeout_ms: u64,
    pub(crate) http2_settings_timeout_ms: u64,
}

impl LimitStatus {
    pub(crate) fn of(limits: &Limits) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            header_timeout_ms: ms(limits.header_timeout),
            body_timeout_ms: ms(limits.body_timeout),
            send_timeout_ms: ms(limits.send_timeout),
            http2_settings_timeout_ms: limits.http2.settings_timeout_ms,
        }
    }
}

/// Counts at a time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    requests: u64,
    connections: u64,
    sent_bytes: u64,
}

impl Sample {
    fn of(totals: &Totals, at: Instant) -> Self {
        let sent_bytes = totals.head_bytes + totals.content_bytes;
        Self { at, requests: totals.requests(), connections: totals.accepted, sent_bytes }
    }
}

/// The counts of the last minute.
#[derive(Debug, Default)]
pub(crate) struct RateHistory(VecDeque<Sample>);

/// Rates over the last seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rates {
    /// Over how many seconds, which are fewer after a start.
    pub(crate) seconds: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) connections_per_second: f64,
    pub(crate) sent_bytes_per_second: f64,
}

impl RateHistory {
    /// Records the counts of this process.
    pub(crate) fn record(&mut self, totals: &Totals, at: Instant) {
        if self.0.len() == SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Sample::of(totals, at));
    }

    /// Returns the rates up to now, one for each window.
    pub(crate) fn rates(&self, totals: &Totals, now: Instant) -> Vec<Rates> {
        let last = Sample::of(totals, now);
        WINDOWS.iter().filter_map(|window| self.rate(*window, last)).collect()
    }

    /// Returns the requests per second of the last minute, one number for each time between two records, the oldest first.
    pub(crate) fn request_rates(&self) -> Vec<f64> {
        let times = self.0.iter().zip(self.0.iter().skip(1));
        let rates = times.map(|(first, last)| {
            let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
            last.requests.saturating_sub(first.requests) as f64 / seconds.max(0.1)
        });
        rates.collect()
    }

    fn rate(&self, window: Duration, last: Sample) -> Option<Rates> {
        let is_within = |sample: &&Sample| last.at.saturating_duration_since(sample.at) <= window;
        let first = self.0.iter().find(is_within)?;
        let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
        // Rates over a few milliseconds would be noise.
        let rate = |from: u64, to: u64| (to.saturating_sub(from) as f64 / seconds.max(1.0) * 10.0).round() / 10.0;
        Some(Rates {
            seconds: (seconds * 10.0).round() / 10.0,
            requests_per_second: rate(first.requests, last.requests),
            connections_per_second: rate(first.connections, last.connections),
            sent_bytes_per_second: rate(first.sent_bytes, last.sent_bytes),
        })
    }
}

impl Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, requests_per_second, connections_per_second, sent_bytes_per_second } = self;
        let sent = bytes(*sent_bytes_per_second as u64);
        write!(
            f,
            "{requests_per_second} requests/s, {connections_per_second} connections/s, {sent}/s over {seconds:.0} s"
        )
    }
}

/// Memory of the serving process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MemoryStatus {
    /// Resident now; `None` if the system does not tell.
    pub(crate) resident_bytes: Option<u64>,
    /// The most that was resident.
    pub(crate) peak_bytes: Option<u64>,
}

impl MemoryStatus {
    /// Reads what the system has of this process.
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self { resident_bytes: kilobytes(&text, "VmRSS:"), peak_bytes: kilobytes(&text, "VmHWM:") }
    }
}

/// Returns the bytes of a line such as `VmRSS: 1234 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

impl Display for MemoryStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.resident_bytes, self.peak_bytes) {
            (Some(resident), Some(peak)) => write!(f, "{} resident, at most {}", bytes(resident), bytes(peak)),
            _ => f.write_str("unknown"),
        }
    }
}

/// File descriptors of the serving process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DescriptorStatus {
    /// Open now; `None` if the system does not tell.
    pub(crate) open: Option<u64>,
    /// The limit of open files; `None` without one.
    pub(crate) limit: Option<u64>,
}

impl DescriptorStatus {
    /// Reads what the system has of this process.
    pub(crate) fn now() -> Self {
        // Before Linux 6.2, the size is 0. A process that has changed its user may not list this folder, but read its size.
        let size = fs::metadata("/proc/self/fd").map_or(0, |facts| facts.len());
        let listed = || fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64);
        let open = Some(size).filter(|size| *size > 0).or_else(listed);
        Self { open, limit: getrlimit(Resource::Nofile).current }
    }
}

impl Display for DescriptorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.open {
            Some(open) => write!(f, "{open}")?,
            None => f.write_str("unknown")?,
        }
        self.limit.map_or(Ok(()), |limit| write!(f, " of {limit}"))
    }
}

/// Returns a number of bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") };
    }
    let power = (count.ilog2() / 10) as usize;
    format!("{:.1} {}", count as f64 / 1024_f64.powi(power as i32), UNITS[power - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(number: u64) -> Totals {
        Totals {
            classes: [0, number, 0, 0, 0],
            accepted: number / 10,
            content_bytes: number * 100,
            ..Totals::default()
        }
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let (mut history, start) = (RateHistory::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        // 10 requests per second for 60 seconds, then 100.
        for seconds in (0..=80).step_by(2) {
            let number = if seconds <= 60 { seconds * 10 } else { 600 + (seconds - 60) * 100 };
            history.record(&totals(number), at(seconds));
        }
        let rates = history.rates(&totals(2_600), at(80));
        let short: Vec<_> = rates.iter().map(|rates| (rates.seconds, rates.requests_per_second)).collect();
        assert_eq!(short, [(10.0, 100.0), (60.0, 40.0)]);
        assert_eq!((rates[0].connections_per_second, rates[0].sent_bytes_per_second), (10.0, 10_000.0));
        assert_eq!(rates[0].to_string(), "100 requests/s, 10 connections/s, 9.8 KiB/s over 10 s");
        assert!(history.0.len() <= SAMPLES_MAX);
        let rates = history.request_rates();
        assert_eq!((rates.len(), rates[0], rates[rates.len() - 1]), (40, 10.0, 100.0));
        assert!(history.rates(&totals(0), at(1_000)).is_empty(), "no sample is recent");
    }

    #[test]
    fn the_system_tells_what_this_process_uses() {
        let text = "Name:\tselvedge\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!((kilobytes(text, "VmRSS:"), kilobytes(text, "VmData:")), (Some(1 << 20), None));
        let (memory, descriptors) = (MemoryStatus::now(), DescriptorStatus::now());
        assert!(
            memory.resident_bytes.is_some_and(|bytes| bytes > 1 << 20) && memory.peak_bytes >= memory.resident_bytes
        );
        let before = descriptors.open.expect("a process has open files");
        let files: Vec<_> = (0..5).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        assert!(DescriptorStatus::now().open.is_some_and(|open| open > before || before > 100));
        drop(files);
    }
}
