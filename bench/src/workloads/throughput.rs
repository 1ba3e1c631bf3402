//! As many requests as the server can answer, then half of that for the times.

use crate::bench::{Bench, Measure, Plan, Probe, open_connections};
use crate::figures::{Figure, Figures, Sample};
use crate::load::closed::{Closed, Until};
use crate::load::mix::Mix;
use crate::load::open::{self, Alone, Rests, Schedule};
use crate::load::window::Window;
use crate::process::running::Running;
use crate::process::tree;
use crate::servers::Content;
use anyhow::{Result, ensure};
use std::time::Duration;

const MIB: f64 = 1_048_576.0;
/// How long a client waits at half load.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A core that is busier than this has nothing left.
const SATURATED: f64 = 0.9;

/// Where the times come from.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Times {
    /// The open loop, at half of what the server can do.
    HalfLoad,
    /// The closed loop itself: with one connection there is nothing to wait behind.
    AsMeasured,
    /// The open loop, at so many requests a second for every server, and the processor time, too:
    /// what a server costs that is not driven to its limit, where another one may stand still.
    AtRate(f64),
}

/// A throughput table.
pub(crate) struct Throughput {
    pub(crate) workload: &'static str,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) content: Content,
    pub(crate) path: String,
    pub(crate) mix: Mix,
    pub(crate) connections: usize,
    pub(crate) workers: usize,
    /// The condition, where one table has several.
    pub(crate) at: String,
    pub(crate) times: Times,
    pub(crate) probe: Probe,
}

impl Throughput {
    pub(crate) fn plan(self) -> Plan {
        let Self { workload, name, title, content, path, mix, connections, workers, at, times, probe } = self;
        let load = mix.clone();
        let measure: Measure = Box::new(move |bench, server| {
            let warm = if content == Content::LongFile { bench.effort.warm_of_long() } else { bench.effort.warm() };
            let figures = measure(bench, server, &Clients { mix: &load, connections, warm }, times)?;
            Ok(vec![Sample { at: at.clone(), figures }])
        });
        Plan { workload, name, title, content, path, mix, connections, workers, rounds_min: 1, probe, measure }
    }
}

/// Whoever asks.
struct Clients<'a> {
    mix: &'a Mix,
    connections: usize,
    /// How long they ask before it counts.
    warm: Duration,
}

fn measure(bench: &Bench, server: &Running, clients: &Clients<'_>, times: Times) -> Result<Figures> {
    if let Times::AtRate(rate) = times {
        return measure_at(bench, server, clients, rate);
    }
    let &Clients { mix, connections, warm } = clients;
    let mut load = Closed::connect(server.address(), mix.clone(), connections)?;
    load.run(Until::Elapsed(warm))?;
    let pids = server.pids();
    let (before, machine) = (tree::cpu(&pids), tree::machine_cpu());
    let window = load.run(Until::Elapsed(bench.effort.window()))?;
    ensure!(window.answered > 0, "no request was answered");
    let (cpu, user_part) = tree::cpu(&pids).since(before);
    let machine = (tree::machine_cpu() - machine).as_secs_f64() / window.elapsed.as_secs_f64();
    let memory = tree::memory(&pids);
    drop(load);
    let server_busy = cpu.as_secs_f64() / window.elapsed.as_secs_f64();
    let limited = window.generator_busy > SATURATED && server_busy < SATURATED;
    let cpu_us = cpu.as_secs_f64() * 1e6 / window.answered.max(1) as f64;
    let mut figures = Figures::from([
        (Figure::RequestsPerSecond, window.rate()),
        (Figure::CpuUs, cpu_us),
        (Figure::UserUs, cpu_us * user_part),
        (Figure::SystemUs, cpu_us * (1.0 - user_part)),
        (Figure::ServerBusy, server_busy),
        (Figure::GeneratorBusy, window.generator_busy),
        (Figure::OthersBusy, (machine - server_busy - window.generator_busy).max(0.0)),
        (Figure::GeneratorLimited, f64::from(u8::from(limited))),
        (Figure::Errors, window.errors as f64),
        (Figure::PrivateMib, memory.private as f64 / MIB),
        (Figure::ResidentMib, memory.resident as f64 / MIB),
    ]);
    if times == Times::AsMeasured {
        add_times(&mut figures, &window);
        return Ok(figures);
    }
    let schedule = Schedule {
        rate: (window.rate() / mix.pipelined as f64 / 2.0).max(1.0),
        duration: bench.effort.window(),
        timeout: TIMEOUT,
        connections_max: open_connections(mix, connections),
        rests: Rests::Regular,
    };
    let seen = open::run(server.address(), mix, schedule, &mut Alone)?;
    add_times(&mut figures, &seen.window);
    *figures.entry(Figure::Errors).or_default() += (seen.window.errors + seen.window.timeouts) as f64;
    figures.insert(Figure::GeneratorLimited, f64::from(u8::from(limited || seen.generator_limited)));
    Ok(figures)
}

fn measure_at(bench: &Bench, server: &Running, clients: &Clients<'_>, rate: f64) -> Result<Figures> {
    let &Clients { mix, connections, warm } = clients;
    let schedule = |duration| Schedule {
        rate,
        duration,
        timeout: TIMEOUT,
        connections_max: open_connections(mix, connections),
        rests: Rests::None,
    };
    open::run(server.address(), mix, schedule(warm), &mut Alone)?;
    let pids = server.pids();
    let before = tree::cpu(&pids);
    let seen = open::run(server.address(), mix, schedule(bench.effort.window_at(rate)), &mut Alone)?;
    let (cpu, user_part) = tree::cpu(&pids).since(before);
    ensure!(seen.window.answered > 0, "no request was answered");
    let cpu_us = cpu.as_secs_f64() * 1e6 / seen.window.answered as f64;
    let mut figures = Figures::from([
        (Figure::RequestsPerSecond, seen.window.rate()),
        (Figure::CpuUs, cpu_us),
        (Figure::UserUs, cpu_us * user_part),
        (Figure::SystemUs, cpu_us * (1.0 - user_part)),
        (Figure::GeneratorLimited, f64::from(u8::from(seen.generator_limited))),
        (Figure::Errors, (seen.window.errors + seen.window.timeouts) as f64),
    ]);
    add_times(&mut figures, &seen.window);
    Ok(figures)
}

/// The three times that every table has.
pub(crate) fn add_times(figures: &mut Figures, window: &Window) {
    figures.insert(Figure::P50Us, window.quantile_us(0.5));
    figures.insert(Figure::P99Us, window.quantile_us(0.99));
    figures.insert(Figure::P999Us, window.quantile_us(0.999));
}
