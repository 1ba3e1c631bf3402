//! Ordinary traffic, alone and then beside what may hold it up: cold files, slow clients.

use super::throughput::add_times;
use crate::bench::{Bench, Plan, Probe};
use crate::figures::{Figure, Figures, Sample, median};
use crate::interrupt;
use crate::load::closed::{Closed, Until};
use crate::load::files::{Files, Temperature};
use crate::load::mix::{Afterwards, Mix};
use crate::load::open::{Alone, Beside, Open, Rests, Schedule};
use crate::load::slow::Slow;
use crate::load::window::Window;
use crate::process::running::Running;
use crate::servers::Content;
use crate::site::{MIB, SMALL};
use anyhow::Result;
use std::time::{Duration, Instant};

/// The ordinary clients.
const CONNECTIONS: usize = 64;
/// A client that waits longer has lost patience.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Files asked for in a second: a quarter of what a small disk gives.
const FILES_PER_SECOND: f64 = 100.0;
/// Warm ones are so few that whoever makes something of a file that is asked for often has done so at once.
const WARM_COUNT: usize = 8;
/// Of what the server can do, the part that the ordinary traffic asks for.
const COLD_HOT_PART: f64 = 0.25;
/// Until the slow clients have had their first bytes.
const SETTLE: Duration = Duration::from_secs(2);
const SLOW_NORMAL_PART: f64 = 0.5;
/// The p99 is the median of slices of this length: a machine that is somebody else's for ten milliseconds
/// makes one of them slow, where it would decide the p99 of a second. What a server does to itself once in
/// a while shows in the p99.9, which is of all slices together.
const SLICE: Duration = Duration::from_millis(250);
/// Their p99 and its ratio vary from round to round by as much as what is shown: their medians need so many.
const ROUNDS_MIN: usize = 5;
/// How many windows long the slices are together.
const WINDOWS: u32 = 2;

pub(super) fn cold() -> Vec<Plan> {
    vec![plan(
        "cold",
        "Hot small files at a quarter of capacity, alone and beside 100 files a second of 256 KiB that are not in the page cache, and beside such as are",
        |bench, server, mix| {
            let schedule = schedule(bench, server, mix, COLD_HOT_PART)?;
            let (alone, _) = hot(server, mix, schedule, &mut Alone)?;
            let beside = |temperature, count| -> Result<Figures> {
                let mut files = bench.site.cold()?;
                files.truncate(count);
                let mut traffic = Files::connect(server.address(), files, temperature, FILES_PER_SECOND)?;
                let (mut figures, seconds) = hot(server, mix, schedule, &mut traffic)?;
                figures.insert(Figure::BesidePerSecond, traffic.answered as f64 / seconds);
                Ok(figures)
            };
            let cold = ("beside cold files".to_owned(), beside(Temperature::Cold, usize::MAX)?);
            let warm = ("beside warm files".to_owned(), beside(Temperature::Warm, WARM_COUNT)?);
            Ok(compared(alone, [cold, warm]))
        },
    )]
}

pub(super) fn slow() -> Vec<Plan> {
    vec![plan(
        "slow",
        "Small files at half of capacity, alone and beside 5,000 slow clients (half never finish a head, half do not read 1 MiB)",
        |bench, server, mix| {
            let schedule = schedule(bench, server, mix, SLOW_NORMAL_PART)?;
            let (alone, _) = hot(server, mix, schedule, &mut Alone)?;
            let count = bench.effort.pick(500, 5_000);
            let mut traffic = Slow::connect(server.address(), count, &format!("/{}", MIB.name))?;
            traffic.settle(bench.effort.pick(SETTLE / 4, SETTLE))?;
            let (mut beside, _) = hot(server, mix, schedule, &mut traffic)?;
            beside.insert(Figure::SlowEnded, traffic.returns() as f64);
            Ok(compared(alone, [(format!("beside {count} slow clients"), beside)]))
        },
    )]
}

fn plan(
    workload: &'static str,
    title: &str,
    measure: impl Fn(&Bench, &Running, &Mix) -> Result<Vec<Sample>> + 'static,
) -> Plan {
    let path = format!("/{}", SMALL.name);
    let mix = Mix::one(&path, Afterwards::KeepAlive);
    let load = mix.clone();
    Plan {
        workload,
        name: workload.to_owned(),
        title: title.to_owned(),
        content: Content::Tree,
        path,
        mix,
        connections: CONNECTIONS,
        workers: 1,
        rounds_min: ROUNDS_MIN,
        probe: Probe::Nothing,
        measure: Box::new(move |bench, server| measure(bench, server, &load)),
    }
}

/// A part of what the server can do, found out first.
fn schedule(bench: &Bench, server: &Running, mix: &Mix, part: f64) -> Result<Schedule> {
    let mut closed = Closed::connect(server.address(), mix.clone(), CONNECTIONS)?;
    closed.run(Until::Elapsed(bench.effort.warm()))?;
    let capacity = closed.run(Until::Elapsed(bench.effort.warm()))?.rate();
    Ok(Schedule {
        rate: (capacity * part).max(1.0),
        duration: bench.effort.window(),
        timeout: TIMEOUT,
        connections_max: CONNECTIONS,
        rests: Rests::Regular,
    })
}

/// The figures of the ordinary traffic, and how many seconds it took with its rests.
fn hot(server: &Running, mix: &Mix, schedule: Schedule, beside: &mut dyn Beside) -> Result<(Figures, f64)> {
    let slice = Schedule { duration: schedule.duration.min(SLICE), ..schedule };
    let (mut whole, mut limited, mut p99s) = (Window::new(), 0, Vec::new());
    let slices = (schedule.duration * WINDOWS).as_millis().div_ceil(slice.duration.as_millis().max(1));
    let mut clients = Open::connect(server.address(), mix, slice)?;
    let began = Instant::now();
    for _ in 0..slices {
        let seen = clients.run(beside)?;
        limited += u32::from(seen.generator_limited);
        p99s.push(seen.window.quantile_us(0.99));
        whole.add(&seen.window);
        // Who answers nobody is not waited for again and again.
        if seen.window.answered == 0 || interrupt::requested() {
            break;
        }
    }
    let mut figures = Figures::from([
        (Figure::OfferedPerSecond, schedule.rate),
        (Figure::RequestsPerSecond, whole.rate()),
        (Figure::Errors, whole.errors as f64),
        (Figure::Timeouts, whole.timeouts as f64),
        (Figure::GeneratorHeldUp, whole.held_up.as_secs_f64() * 1e3 / whole.elapsed.as_secs_f64()),
        (Figure::GeneratorLimited, f64::from(u8::from(limited as usize > p99s.len() / 2))),
    ]);
    add_times(&mut figures, &whole);
    figures.insert(Figure::P99Us, median(p99s));
    Ok((figures, began.elapsed().as_secs_f64()))
}

/// The figures of the ordinary traffic alone, and those beside something else, with their p99 as a multiple of it.
fn compared(alone: Figures, others: impl IntoIterator<Item = (String, Figures)>) -> Vec<Sample> {
    let before = alone.get(&Figure::P99Us).copied();
    let mut samples = vec![Sample { at: "alone".to_owned(), figures: alone }];
    for (at, mut figures) in others {
        if let (Some(before), Some(after)) = (before, figures.get(&Figure::P99Us).copied()) {
            figures.insert(Figure::P99ToAlone, after / before.max(1.0));
        }
        samples.push(Sample { at, figures });
    }
    samples
}
