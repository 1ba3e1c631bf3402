//! A configuration grows without growing slow.

use super::Memory;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// So many sites of three lines.
fn sites(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        write!(text, "site \"host{number}.example\" {{\n    root \"/srv/host{number}\"\n    route \"/old/*\" {{ redirect \"/new/*\" status=301 }}\n}}\n")
            .expect("a string takes whatever is written to it");
        text
    })
}

/// The best of three, since others may use the machine.
fn time(text: &str) -> Duration {
    let memory = Memory::of(text);
    let once = || {
        let start = Instant::now();
        let configuration = memory.read().expect("there is nothing wrong with it");
        assert!(!configuration.settings.sites.is_empty());
        start.elapsed()
    };
    (0..3).map(|_| once()).min().expect("three is more than none")
}

/// Under a second when optimised, so a few without; twice as many cost about twice as much.
#[test]
fn ten_thousand_sites_are_read_in_time() {
    let (half, whole) = (time(&sites(5_000)), time(&sites(10_000)));
    assert!(whole < Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 }), "{whole:?}");
    assert!(whole < half * 4, "{half:?} for half of them, {whole:?} for all");
}

#[test]
fn ten_thousand_routes_of_one_site_are_read_in_time() {
    let routes = |count: usize| {
        let lines: String = (0..count).map(|number| format!("route \"/{number}/*\" {{ deny }}\n")).collect();
        format!("site \"a\" {{\n{lines}}}")
    };
    let (half, whole) = (time(&routes(5_000)), time(&routes(10_000)));
    assert!(whole < half * 4, "{half:?} for half of them, {whole:?} for all");
}
