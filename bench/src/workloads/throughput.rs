//! Measures the capacity of a server in a closed loop, then the latencies at half of it in an open loop.

use crate::bench::{Bench, Measure, Plan, Probe, open_connections_max};
use crate::figures::{Figure, Figures, Sample};
use crate::load::closed::{ClosedLoop, Until};
use crate::load::mix::Mix;
use crate::load::open::{self, IdleGaps, NoBackgroundLoad, Schedule};
use crate::load::window::Window;
use crate::process::server_process::ServerProcess;
use crate::process::tree;
use crate::process::upstream_use::UpstreamUse;
use crate::servers::ContentKind;
use anyhow::{Result, ensure};
use std::time::Duration;

/// The bytes of one MiB.
pub(super) const MIB: f64 = 1_048_576.0;
/// How long a client waits for a response at half load.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A core that is busier than this is saturated.
pub(super) const SATURATED_SHARE: f64 = 0.9;

/// The source of the latencies.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum LatencySource {
    /// An open loop at half of the server's capacity.
    HalfLoad,
    /// The closed loop itself: with one connection, no request waits for another.
    ClosedLoop,
    /// An open loop at this number of requests per second for every server. It also gives the processor time: the cost of
    /// a server that is not saturated.
    AtRate(f64),
}

/// The parameters of a throughput table.
pub(crate) struct ThroughputTable {
    pub(crate) workload: &'static str,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) content: ContentKind,
    pub(crate) path: String,
    pub(crate) mix: Mix,
    pub(crate) connections: usize,
    pub(crate) workers: usize,
    /// The condition, if the table has several.
    pub(crate) condition: String,
    pub(crate) latency_source: LatencySource,
    pub(crate) probe: Probe,
}

impl ThroughputTable {
    pub(crate) fn plan(self) -> Plan {
        let Self { workload, name, title, content, path, mix, connections, workers, condition, latency_source, probe } =
            self;
        let load = mix.clone();
        let measure: Measure = Box::new(move |bench, server| {
            let warm_up = if content == ContentKind::LongFile {
                bench.effort.warm_up_for_long_content()
            } else {
                bench.effort.warm_up()
            };
            let figures = measure(bench, server, &LoadShape { mix: &load, connections, warm_up }, latency_source)?;
            Ok(vec![Sample { condition: condition.clone(), figures }])
        });
        let (rounds_min, upstream) = (1, None);
        Plan { workload, name, title, content, path, mix, connections, workers, rounds_min, probe, upstream, measure }
    }
}

/// The clients of a measurement.
struct LoadShape<'a> {
    mix: &'a Mix,
    connections: usize,
    /// The duration of the unmeasured load before the window.
    warm_up: Duration,
}

fn measure(
    bench: &Bench,
    server: &ServerProcess,
    load_shape: &LoadShape<'_>,
    latency_source: LatencySource,
) -> Result<Figures> {
    if let LatencySource::AtRate(rate) = latency_source {
        return measure_at_rate(bench, server, load_shape, rate);
    }
    let &LoadShape { mix, connections, warm_up } = load_shape;
    let mut load = ClosedLoop::connect(server.address(), mix.clone(), connections)?;
    load.run(Until::Elapsed(warm_up))?;
    let pids = server.pids();
    let upstream = UpstreamUse::begin(server);
    let (before, machine) = (tree::cpu(&pids), tree::machine_cpu());
    let window = load.run(Until::Elapsed(bench.effort.window()))?;
    ensure!(window.completed > 0, "no request got a response");
    let (cpu, user_share) = tree::cpu(&pids).since(before);
    let machine = (tree::machine_cpu() - machine).as_secs_f64() / window.elapsed.as_secs_f64();
    let memory = tree::memory(&pids);
    // An upstream may share the core of the load generator.
    let upstream_busy = upstream.as_ref().map_or(0.0, |upstream| upstream.busy(window.elapsed));
    let connections_kept = upstream.map(|upstream| upstream.kept_connections()).transpose()?;
    drop(load);
    let server_busy = cpu.as_secs_f64() / window.elapsed.as_secs_f64();
    let load_busy = window.generator_busy + upstream_busy;
    let limited = load_busy > SATURATED_SHARE && server_busy < SATURATED_SHARE;
    let cpu_us = cpu.as_secs_f64() * 1e6 / window.completed.max(1) as f64;
    let mut figures = Figures::from([
        (Figure::RequestsPerSecond, window.completed_per_second()),
        (Figure::CpuUs, cpu_us),
        (Figure::UserUs, cpu_us * user_share),
        (Figure::SystemUs, cpu_us * (1.0 - user_share)),
        (Figure::ServerBusy, server_busy),
        (Figure::GeneratorBusy, window.generator_busy),
        (Figure::OtherProcessesBusy, (machine - server_busy - load_busy).max(0.0)),
        (Figure::GeneratorLimited, f64::from(u8::from(limited))),
        (Figure::Errors, window.errors as f64),
        (Figure::PrivateMib, memory.private as f64 / MIB),
        (Figure::ResidentMib, memory.resident as f64 / MIB),
    ]);
    if let Some(count) = connections_kept {
        figures.insert(Figure::UpstreamBusy, upstream_busy);
        figures.insert(Figure::UpstreamConnections, count as f64);
    }
    if latency_source == LatencySource::ClosedLoop {
        add_times(&mut figures, &window);
        return Ok(figures);
    }
    let schedule = Schedule {
        rate: (window.completed_per_second() / mix.pipelined as f64 / 2.0).max(1.0),
        duration: bench.effort.window(),
        timeout: TIMEOUT,
        connections_max: open_connections_max(mix, connections),
        idle_gaps: IdleGaps::Regular,
    };
    let seen = open::run(server.address(), mix, schedule, &mut NoBackgroundLoad)?;
    add_times(&mut figures, &seen.window);
    *figures.entry(Figure::Errors).or_default() += (seen.window.errors + seen.window.timeouts) as f64;
    figures.insert(Figure::GeneratorLimited, f64::from(u8::from(limited || seen.generator_limited)));
    Ok(figures)
}

fn measure_at_rate(bench: &Bench, server: &ServerProcess, load_shape: &LoadShape<'_>, rate: f64) -> Result<Figures> {
    let &LoadShape { mix, connections, warm_up } = load_shape;
    let schedule = |duration| Schedule {
        rate,
        duration,
        timeout: TIMEOUT,
        connections_max: open_connections_max(mix, connections),
        idle_gaps: IdleGaps::None,
    };
    open::run(server.address(), mix, schedule(warm_up), &mut NoBackgroundLoad)?;
    let pids = server.pids();
    let before = tree::cpu(&pids);
    let seen = open::run(server.address(), mix, schedule(bench.effort.window_at_rate(rate)), &mut NoBackgroundLoad)?;
    let (cpu, user_share) = tree::cpu(&pids).since(before);
    ensure!(seen.window.completed > 0, "no request got a response");
    let cpu_us = cpu.as_secs_f64() * 1e6 / seen.window.completed as f64;
    let mut figures = Figures::from([
        (Figure::RequestsPerSecond, seen.window.completed_per_second()),
        (Figure::CpuUs, cpu_us),
        (Figure::UserUs, cpu_us * user_share),
        (Figure::SystemUs, cpu_us * (1.0 - user_share)),
        (Figure::GeneratorLimited, f64::from(u8::from(seen.generator_limited))),
        (Figure::Errors, (seen.window.errors + seen.window.timeouts) as f64),
    ]);
    add_times(&mut figures, &seen.window);
    Ok(figures)
}

/// Adds the latency quantiles that every table has.
pub(crate) fn add_times(figures: &mut Figures, window: &Window) {
    figures.insert(Figure::P50Us, window.quantile_us(0.5));
    figures.insert(Figure::P99Us, window.quantile_us(0.99));
    figures.insert(Figure::P999Us, window.quantile_us(0.999));
}
