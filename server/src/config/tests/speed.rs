//! Reading time is linear in the size of a configuration.

use super::Memory;
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::time::Duration;

/// Returns sites of three lines.
fn sites(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        write!(text, "site \"host{number}.example\" {{\n    root \"/srv/host{number}\"\n    route \"/old/*\" {{ redirect \"/new/*\" status=301 }}\n}}\n")
            .expect("writing to a String never fails");
        text
    })
}

/// Returns the processor time of reading, which other processes hardly affect; the least of three.
fn cost(text: &str) -> Duration {
    let memory = Memory::of(text);
    let once = || {
        let before = used();
        let configuration = memory.read().expect("the configuration is valid");
        assert!(!configuration.settings.sites.is_empty());
        used().saturating_sub(before)
    };
    (0..3).map(|_| once()).min().expect("three is more than none")
}

/// Returns the processor time of this thread.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Eight times the text may take about eight times as long; a quadratic reader takes 64 times.
fn grows_evenly(text: impl Fn(usize) -> String) {
    let (part, whole) = (cost(&text(1_250)), cost(&text(10_000)));
    assert!(whole < part * 24, "{part:?} for an eighth of them, {whole:?} for all");
}

#[test]
fn reading_time_is_linear_in_sites() {
    grows_evenly(sites);
}

#[test]
fn reading_time_is_linear_in_routes_of_one_site() {
    grows_evenly(|count| {
        let lines: String = (0..count).map(|number| format!("route \"/{number}/*\" {{ deny }}\n")).collect();
        format!("site \"a\" {{\n{lines}}}")
    });
}
