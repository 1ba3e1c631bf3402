//! Interference: ordinary traffic alone, then beside cold files or slow clients.

use super::throughput::add_times;
use crate::bench::{Bench, Plan, Probe};
use crate::figures::{Figure, Figures, Sample, median};
use crate::interrupt;
use crate::load::closed::{ClosedLoop, Until};
use crate::load::files::{CacheState, FileClients};
use crate::load::mix::{Mix, Persistence};
use crate::load::open::{BackgroundLoad, IdleGaps, NoBackgroundLoad, OpenLoop, Schedule};
use crate::load::slow::SlowClients;
use crate::load::window::Window;
use crate::process::server_process::ServerProcess;
use crate::servers::ContentKind;
use crate::site::{MIB, SMALL};
use anyhow::Result;
use std::time::{Duration, Instant};

/// The ordinary clients.
const CONNECTIONS: usize = 64;
/// How long a client waits for a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Requested files per second: a quarter of the throughput of a small disk.
const FILES_PER_SECOND: f64 = 100.0;
/// The number of warm files. So small that a server that caches popular files has cached them all at once.
const WARM_COUNT: usize = 8;
/// The ordinary traffic of `cold`, as a share of the server's capacity.
const COLD_LOAD_SHARE: f64 = 0.25;
/// How long to wait until the server has handled the first bytes of the slow clients.
const SETTLE: Duration = Duration::from_secs(2);
/// The ordinary traffic of `slow`, as a share of the server's capacity.
const SLOW_LOAD_SHARE: f64 = 0.5;
/// The p99 is the median of slices of this length. If the host stops the machine for 10 ms, one slice is slow, but not
/// the median. Rare delays of the server itself show in the p99.9, which covers all slices together.
const SLICE: Duration = Duration::from_millis(250);
/// The minimum number of rounds. The p99 and its ratio vary much from round to round.
const ROUNDS_MIN: usize = 5;
/// The total length of the slices, in windows.
const WINDOWS: u32 = 2;

pub(super) fn cold() -> Vec<Plan> {
    vec![plan(
        "cold",
        "Hot small files at a quarter of capacity: alone, beside 100 files per second of 256 KiB that are not in the page cache, and beside such files in the page cache",
        |bench, server, mix| {
            let schedule = schedule(bench, server, mix, COLD_LOAD_SHARE)?;
            let (alone, _) = measure_ordinary_traffic(server, mix, schedule, &mut NoBackgroundLoad)?;
            let with_files = |cache_state, count| -> Result<Figures> {
                let mut files = bench.site.cold_files()?;
                files.truncate(count);
                let mut traffic = FileClients::connect(server.address(), files, cache_state, FILES_PER_SECOND)?;
                let (mut figures, seconds) = measure_ordinary_traffic(server, mix, schedule, &mut traffic)?;
                figures.insert(Figure::BackgroundFilesPerSecond, traffic.received as f64 / seconds);
                Ok(figures)
            };
            let cold = ("beside cold files".to_owned(), with_files(CacheState::Cold, usize::MAX)?);
            let warm = ("beside warm files".to_owned(), with_files(CacheState::Warm, WARM_COUNT)?);
            Ok(with_p99_ratios(alone, [cold, warm]))
        },
    )]
}

pub(super) fn slow() -> Vec<Plan> {
    vec![plan(
        "slow",
        "Small files at half of capacity: alone and beside 5,000 slow clients (half never finish a head, half do not read 1 MiB)",
        |bench, server, mix| {
            let schedule = schedule(bench, server, mix, SLOW_LOAD_SHARE)?;
            let (alone, _) = measure_ordinary_traffic(server, mix, schedule, &mut NoBackgroundLoad)?;
            let count = bench.effort.pick(500, 5_000);
            let mut traffic = SlowClients::connect(server.address(), count, &format!("/{}", MIB.name))?;
            traffic.settle(bench.effort.pick(SETTLE / 4, SETTLE))?;
            let (mut background, _) = measure_ordinary_traffic(server, mix, schedule, &mut traffic)?;
            background.insert(Figure::SlowClientsClosed, traffic.reconnects() as f64);
            Ok(with_p99_ratios(alone, [(format!("beside {count} slow clients"), background)]))
        },
    )]
}

fn plan(
    workload: &'static str,
    title: &str,
    measure: impl Fn(&Bench, &ServerProcess, &Mix) -> Result<Vec<Sample>> + 'static,
) -> Plan {
    let path = format!("/{}", SMALL.name);
    let mix = Mix::one(&path, Persistence::KeepAlive);
    let load = mix.clone();
    Plan {
        workload,
        name: workload.to_owned(),
        title: title.to_owned(),
        content: ContentKind::Tree,
        path,
        mix,
        connections: CONNECTIONS,
        workers: 1,
        rounds_min: ROUNDS_MIN,
        probe: Probe::None,
        upstream: None,
        measure: Box::new(move |bench, server| measure(bench, server, &load)),
    }
}

/// Measures the capacity of the server, and returns a schedule at this share of it.
fn schedule(bench: &Bench, server: &ServerProcess, mix: &Mix, share: f64) -> Result<Schedule> {
    let mut closed = ClosedLoop::connect(server.address(), mix.clone(), CONNECTIONS)?;
    closed.run(Until::Elapsed(bench.effort.warm_up()))?;
    let capacity = closed.run(Until::Elapsed(bench.effort.warm_up()))?.completed_per_second();
    Ok(Schedule {
        rate: (capacity * share).max(1.0),
        duration: bench.effort.window(),
        timeout: TIMEOUT,
        connections_max: CONNECTIONS,
        idle_gaps: IdleGaps::Regular,
    })
}

/// Measures the ordinary traffic. Returns its figures, and the elapsed seconds including idle gaps.
fn measure_ordinary_traffic(
    server: &ServerProcess,
    mix: &Mix,
    schedule: Schedule,
    background: &mut dyn BackgroundLoad,
) -> Result<(Figures, f64)> {
    let slice = Schedule { duration: schedule.duration.min(SLICE), ..schedule };
    let (mut whole, mut limited, mut p99s) = (Window::new(), 0, Vec::new());
    let slices = (schedule.duration * WINDOWS).as_millis().div_ceil(slice.duration.as_millis().max(1));
    let mut clients = OpenLoop::connect(server.address(), mix, slice)?;
    let began = Instant::now();
    for _ in 0..slices {
        let seen = clients.run(background)?;
        limited += u32::from(seen.generator_limited);
        p99s.push(seen.window.quantile_us(0.99));
        whole.add(&seen.window);
        // Do not wait for the timeout repeatedly if the server does not respond.
        if seen.window.completed == 0 || interrupt::is_requested() {
            break;
        }
    }
    let mut figures = Figures::from([
        (Figure::OfferedPerSecond, schedule.rate),
        (Figure::RequestsPerSecond, whole.completed_per_second()),
        (Figure::Errors, whole.errors as f64),
        (Figure::Timeouts, whole.timeouts as f64),
        (Figure::GeneratorStalled, whole.stalled.as_secs_f64() * 1e3 / whole.elapsed.as_secs_f64()),
        (Figure::GeneratorLimited, f64::from(u8::from(limited as usize > p99s.len() / 2))),
    ]);
    add_times(&mut figures, &whole);
    figures.insert(Figure::P99Us, median(p99s));
    Ok((figures, began.elapsed().as_secs_f64()))
}

/// Returns the samples of the ordinary traffic alone and under interference. The latter have their p99 as a multiple of
/// the p99 alone.
fn with_p99_ratios(alone: Figures, others: impl IntoIterator<Item = (String, Figures)>) -> Vec<Sample> {
    let before = alone.get(&Figure::P99Us).copied();
    let mut samples = vec![Sample { condition: "alone".to_owned(), figures: alone }];
    for (condition, mut figures) in others {
        if let (Some(before), Some(after)) = (before, figures.get(&Figure::P99Us).copied()) {
            figures.insert(Figure::P99ToAlone, after / before.max(1.0));
        }
        samples.push(Sample { condition, figures });
    }
    samples
}
