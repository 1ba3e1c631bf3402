//! A configuration grows without growing slow.

use super::Memory;
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::time::Duration;

/// So many sites of three lines.
fn sites(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        write!(text, "site \"host{number}.example\" {{\n    root \"/srv/host{number}\"\n    route \"/old/*\" {{ redirect \"/new/*\" status=301 }}\n}}\n")
            .expect("a string takes whatever is written to it");
        text
    })
}

/// The processor time that reading takes, which others on the machine do not change much; the
/// least of three.
fn cost(text: &str) -> Duration {
    let memory = Memory::of(text);
    let once = || {
        let before = used();
        let configuration = memory.read().expect("there is nothing wrong with it");
        assert!(!configuration.settings.sites.is_empty());
        used().saturating_sub(before)
    };
    (0..3).map(|_| once()).min().expect("three is more than none")
}

/// The processor time of this thread.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Eight times as much costs about eight times as much, and 64 times where every line looks at
/// every other.
fn grows_evenly(text: impl Fn(usize) -> String) {
    let (part, whole) = (cost(&text(1_250)), cost(&text(10_000)));
    assert!(whole < part * 24, "{part:?} for an eighth of them, {whole:?} for all");
}

#[test]
fn many_sites_cost_what_as_many_times_one_does() {
    grows_evenly(sites);
}

#[test]
fn many_routes_of_one_site_cost_what_as_many_times_one_does() {
    grows_evenly(|count| {
        let lines: String = (0..count).map(|number| format!("route \"/{number}/*\" {{ deny }}\n")).collect();
        format!("site \"a\" {{\n{lines}}}")
    });
}
